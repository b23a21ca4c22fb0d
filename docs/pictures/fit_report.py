"""Picture of a page of `identify.report`, by headless Chromium: a four-bar linkage with a spring,
whose damper is fitted without the dry friction that the measured one has.

    python docs/pictures/fit_report.py
"""

import io
import pathlib
import shutil
import tempfile

import jax
import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

import jaxmbd as mbd
from jaxmbd import identify

OUTPUT = pathlib.Path(__file__).parents[1] / "img/fit-report.png"
OPTIONS = dict(dt=5e-3, enforcement=mbd.VelocityImpulse(), progress=False)
SENSORS = {"crank": identify.JointPosition("pin 0"), "rocker": identify.JointPosition("pin 3")}
TIME, NOISE = np.linspace(0.0, 3.0, 301), 0.01


def four_bar(stiffness, damping, dry):
    corners = [[0.0, 0.0, 0.0], [0.0, 0.0, 0.3], [0.8, 0.0, 0.5], [0.8, 0.0, 0.0]]
    bar = mbd.Inertia.box(size=[0.3, 0.03, 0.03], mass=1.0)
    crank = mbd.Body("crank", bar, position=[0.0, 0.0, 0.15])
    coupler = mbd.Body("coupler", bar, position=[0.4, 0.0, 0.4])
    rocker = mbd.Body("rocker", bar, position=[0.8, 0.0, 0.25])
    ends = ["ground", crank, coupler, rocker, "ground"]
    pins = [
        mbd.Revolute(f"pin {i}", *ends[i : i + 2], point=corners[i], axis=[0.0, 1.0, 0.0])
        for i in range(4)
    ]
    points = [[1.2, 0.0, 0.1], [0.4, 0.0, 0.4]]
    law = dict(stiffness=stiffness, damping=damping, rest_length=0.2)
    spring = mbd.Spring("spring", "ground", coupler, points=points, **law)
    slow = mbd.forces.JointFriction(pins[0], dry=dry, speed=0.1)
    return mbd.Mechanism([crank, coupler, rocker], pins, [spring, slow])


def main():
    jax.config.update("jax_enable_x64", True)
    rng, true = np.random.default_rng(1), four_bar(50.0, 3.0, 0.5)

    def record(measured, name):
        weights = np.full((len(TIME), 2), 1 / NOISE)
        return identify.Record(TIME, measured, true.state(), weights=weights, name=name)

    empty = record(np.zeros((len(TIME), 2)), "release")
    exact = identify.predict(true, empty, SENSORS, **OPTIONS).readings[0]
    found = identify.fit(
        four_bar(40.0, 5.0, 0.0),
        {f"forces[spring].{x}": identify.Positive() for x in ("stiffness", "damping")},
        record(exact + NOISE * rng.normal(size=exact.shape), "release"),
        SENSORS,
        shooting=identify.SingleShooting(),
        **OPTIONS,
    )
    page = identify.report(found, view=mbd.view, title="Four-bar linkage, without dry friction")
    print(page)
    options = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader"]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path = page.save(pathlib.Path(folder) / "fit.html")
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=[*options, "--enable-unsafe-swiftshader"],
        )
        tab = browser.new_page(viewport={"width": 900, "height": 900})
        tab.goto(f"file://{path}")
        tab.wait_for_function("window.jaxmbdReport")
        # The second column and the tests are as the first one.
        tab.add_style_tag(
            content=".series ~ .series, #residuals, #how, h3, .matrix, h3 + p, h2 + p, .screen"
            " { display: none }"
        )
        tab.locator("iframe").scroll_into_view_if_needed()
        frame = tab.frames[-1]
        frame.wait_for_function("window.jaxmbd && window.jaxmbd.connected", timeout=60_000)
        frame.add_style_tag(content="#root .mantine-Notifications-root { display: none }")
        frame.evaluate("jaxmbd.seek(1.9)")
        tab.evaluate("jaxmbdReport.charts.forEach((chart) => chart.draw())")
        tab.wait_for_timeout(5000)
        picture = Image.open(io.BytesIO(tab.screenshot(full_page=True))).convert("RGB")
        browser.close()
    picture.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE).save(
        OUTPUT, optimize=True
    )


if __name__ == "__main__":
    main()

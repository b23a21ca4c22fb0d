"""Picture of a page of `mbd.view`, by headless Chromium: an arm with a spring, simulated with two
stiffnesses.

    python docs/pictures/viewer.py
"""

import io
import pathlib
import shutil
import tempfile

import diffrax
import jax
import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

import jaxmbd as mbd
from jaxmbd.io import Visual

OUTPUT = pathlib.Path(__file__).parents[1] / "img/viewer.png"
Y, Z = [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]
UPRIGHT, ALONG_X = np.array([1.0, 0, 0, 0]), np.array([0.5, 0.5, 0.5, 0.5])
WHITE, BLUE, DARK = (0.93, 0.94, 0.95, 1.0), (0.16, 0.36, 0.62, 1.0), (0.2, 0.22, 0.25, 1.0)


def arm(stiffness):
    """A turning base, an upper arm, a forearm and a tool, with a spring that carries the arm."""
    base = mbd.Body(
        "base", mbd.Inertia.cylinder(radius=0.12, length=0.3, mass=4.0), position=[0, 0, 0.15]
    )
    rod = mbd.Inertia.capsule(radius=0.05, length=0.5, axis="x", mass=3.0)
    upper = mbd.Body("upper arm", rod, position=[0.25, 0, 0.35])
    thin = mbd.Inertia.capsule(radius=0.04, length=0.4, axis="x", mass=2.0)
    forearm = mbd.Body("forearm", thin, position=[0.7, 0, 0.35])
    tool = mbd.Body("tool", mbd.Inertia.sphere(radius=0.06, mass=0.8), position=[0.98, 0, 0.35])
    joints = [
        mbd.Revolute("turn", "ground", base, point=[0, 0, 0], axis=Z),
        mbd.Revolute("shoulder", base, upper, point=[0, 0, 0.35], axis=Y),
        mbd.Revolute("elbow", upper, forearm, point=[0.5, 0, 0.35], axis=Y),
        mbd.Revolute("wrist", forearm, tool, point=[0.9, 0, 0.35], axis=Y),
    ]
    ends = [[-0.05, 0, 0.85], [0.4, 0, 0.37]]
    law = dict(stiffness=stiffness, damping=8.0, rest_length=0.25)
    spring = mbd.Spring("spring", base, upper, points=ends, **law)
    return mbd.Mechanism([base, upper, forearm, tool], joints, [spring])


def visuals():
    def shape(body, kind, size, color, position=(0.0, 0.0, 0.0), orientation=UPRIGHT):
        return Visual(body, body, kind, size, None, None, np.array(position), orientation, color, 0)

    return [
        shape("base", "cylinder", (0.14, 0.06), DARK, (0, 0, -0.09)),
        shape("base", "cylinder", (0.1, 0.15), WHITE),
        shape("base", "box", (0.02, 0.03, 0.3), WHITE, (-0.07, 0, 0.42)),
        shape("upper arm", "capsule", (0.055, 0.25), BLUE, orientation=ALONG_X),
        shape("forearm", "capsule", (0.045, 0.2), WHITE, orientation=ALONG_X),
        shape("tool", "sphere", (0.06,), BLUE),
        shape("tool", "box", (0.05, 0.01, 0.01), DARK, (0.1, 0.03, 0)),
        shape("tool", "box", (0.05, 0.01, 0.01), DARK, (0.1, -0.03, 0)),
    ]


def simulated(mechanism):
    saveat = diffrax.SaveAt(t0=True, steps=10)
    q, v = mechanism.state().q, np.zeros(mechanism.coordinates.nv)
    for body, omega in (("base", 1.5), ("upper arm", 1.5), ("forearm", 1.5), ("tool", 1.5)):
        own, r = mechanism.indices(body), mechanism.pose(q, body).position
        v[own.linear] = np.cross([0, 0, omega], r)
        v[own.angular] = [0, 0, omega]
    start = mbd.State(0.0, q, jax.numpy.asarray(v))
    return mbd.simulate(mechanism, mbd.VelocityImpulse(), start, t1=3.0, dt=1e-3, saveat=saveat)


def main():
    jax.config.update("jax_enable_x64", True)
    hard, soft = arm(300.0), arm(260.0)
    motions = {"measured": simulated(hard), "fitted": (soft, simulated(soft))}
    page = mbd.view(hard, motions, visuals=visuals(), trails=["tool"])
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path = page.save(pathlib.Path(folder) / "arm.html")
        options = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader"]
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=[*options, "--enable-unsafe-swiftshader"],
        )
        tab = browser.new_page(viewport={"width": 1080, "height": 600})
        tab.goto(f"file://{path}")
        tab.wait_for_function("window.jaxmbd && window.jaxmbd.connected")
        tab.add_style_tag(content="#root .mantine-Notifications-root { display: none }")
        tab.locator("#jx-selected").select_option("0 elbow")
        tab.mouse.move(370, 280)
        for _ in range(4):
            tab.mouse.wheel(0, -120)
            tab.wait_for_timeout(500)
        tab.evaluate("jaxmbd.seek(0.66)")
        tab.mouse.move(20, 20)
        tab.wait_for_timeout(3000)
        picture = Image.open(io.BytesIO(tab.screenshot())).convert("RGB")
        browser.close()
    picture.quantize(256, dither=Image.Dither.NONE).save(OUTPUT, optimize=True)


if __name__ == "__main__":
    main()

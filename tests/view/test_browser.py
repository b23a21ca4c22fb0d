"""The pages of `view` in headless Chromium: from a file, without a network."""

import io
import shutil

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from swinging import TIMES, ball, coordinates, double_pendulum, solution

import jaxmbd as mbd

pytest.importorskip("viser", reason="the viewer needs viser: pip install jaxmbd[view]")
playwright = pytest.importorskip(
    "playwright.sync_api", reason="the browser is driven by playwright: pip install jaxmbd[browser]"
)
PIL = pytest.importorskip("PIL.Image", reason="screenshots are read by pillow")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
]

# Rendering by the processor, as machines for tests have no screen.
OPTIONS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader"]
OPTIONS += ["--enable-unsafe-swiftshader", "--allow-file-access-from-files"]


@pytest.fixture(scope="module")
def page():
    pendulum = double_pendulum()
    motions = {"measured": solution(), "fitted": solution(shift=0.4)}
    return mbd.view(pendulum, motions, visuals=[ball()], title="pendulum")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def tab(browser, page, tmp_path_factory):
    """A tab without a network, whose errors fail the test."""
    path = page.save(tmp_path_factory.mktemp("page") / "motion.html")
    errors, size = [], {"width": 1100, "height": 700}
    context = browser.new_context(viewport=size, offline=True)
    tab = context.new_page()
    tab.on("console", lambda m: m.type == "error" and errors.append(m.text))
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(f"file://{path}")
    tab.wait_for_function("window.jaxmbd && window.jaxmbd.connected", timeout=60_000)
    settle(tab)
    yield tab
    context.close()
    assert errors == []


# Three frames later.
FRAMES = """new Promise(done => {
    let left = 3
    const frame = () => left-- ? requestAnimationFrame(frame) : done()
    frame()
})"""


def settle(tab):
    """Wait until the picture stands still. A busy machine takes long for a frame."""
    shots = []
    for _ in range(40):
        tab.wait_for_timeout(250)
        tab.evaluate(FRAMES)
        shots = [*shots[-2:], tab.screenshot()]
        if len(shots) == 3 and shots[0] == shots[1] == shots[2]:
            return
    raise AssertionError("The picture does not come to rest.")


def picture(tab):
    """The canvas as an array `(height, width, 3)`."""
    settle(tab)
    box = tab.locator("#root canvas").last.bounding_box()
    image = PIL.open(io.BytesIO(tab.screenshot())).convert("RGB")
    x, y = round(box["x"]), round(box["y"])
    return np.asarray(image, int)[y : y + round(box["height"]), x : x + round(box["width"])]


def red_spot(tab):
    """Centre of the opaque red ball of the first motion, in pixels (x, y)."""
    r, g, b = np.moveaxis(picture(tab), -1, 0)
    y, x = np.nonzero((r > 90) & (r > 1.4 * g) & (r > 1.4 * b) & (abs(g - b) < 0.2 * r))
    assert len(x) > 50, "the red ball is not seen"
    # The middle of its outline, since light and shadow are on one side.
    return np.array([(x.min() + x.max()) / 2, (y.min() + y.max()) / 2])


def projected(tab, point):
    """Where a camera with the reported pose sees a point, in pixels."""
    camera = tab.evaluate("window.jaxmbd.camera")
    w, x, y, z = camera["wxyz"]
    seen = Rotation.from_quat([x, y, z, w]).inv().apply(point - np.array(camera["position"]))
    focal = camera["image_height"] / 2 / np.tan(camera["fov"] / 2)
    middle = np.array([camera["image_width"], camera["image_height"]]) / 2
    return middle + focal * seen[:2] / seen[2]


@pytest.fixture
def alone(tab):
    """The first motion alone, at the start, without the spring, which is red too."""
    tab.evaluate("jaxmbd.pause(); jaxmbd.follow(null); jaxmbd.seek(0)")
    tab.locator("#jx-run-1").set_checked(False)
    tab.locator("#jx-show-springs").set_checked(False)
    yield tab
    tab.locator("#jx-run-1").set_checked(True)


def check_ball(tab, time, tolerance=3):
    _, tip = coordinates(np.array([time]))
    assert np.linalg.norm(red_spot(tab) - projected(tab, tip[0])) < tolerance


@pytest.mark.parametrize("i", [0, 13, 40])
def test_the_ball_is_drawn_where_the_motion_has_it(alone, i):
    alone.evaluate(f"jaxmbd.seek({TIMES[i]})")
    check_ball(alone, TIMES[i])


def test_play_moves_it_and_stops_at_the_end(alone):
    alone.locator("#jx-speed").select_option("4")
    alone.locator("#jx-play").click()
    alone.wait_for_function("jaxmbd.time > 0.5")
    alone.wait_for_function("jaxmbd.time >= 2", timeout=60_000)
    check_ball(alone, TIMES[-1])
    alone.locator("#jx-speed").select_option("1")


def test_scrubbing(alone):
    box = alone.locator("#jx-time").bounding_box()
    alone.mouse.click(box["x"] + 0.75 * box["width"], box["y"] + box["height"] / 2)
    time = alone.evaluate("jaxmbd.time")
    assert abs(time - 1.5) < 0.05
    check_ball(alone, time, 5)  # between saved times
    # Back, by the cursor of the plot.
    box = alone.locator("#jx-plot").bounding_box()
    alone.mouse.click(box["x"] + 46 + 0.25 * (box["width"] - 54), box["y"] + 100)
    assert abs(alone.evaluate("jaxmbd.time") - 0.5) < 0.02


def test_arrow_keys_step_through_time_and_leave_the_camera(alone):
    before = alone.evaluate("jaxmbd.camera.position")
    for key, step in [("ArrowRight", 1), ("ArrowLeft", -1)]:
        time = alone.evaluate("jaxmbd.seek(0.5); jaxmbd.time")
        alone.keyboard.press(key, delay=300)
        assert 0 < step * (alone.evaluate("jaxmbd.time") - time) < 0.1
        settle(alone)
        assert alone.evaluate("jaxmbd.camera.position") == before


def green(tab):
    """How many pixels show the second motion. Nothing else in the picture is green."""
    r, g, b = np.moveaxis(picture(tab), -1, 0)
    return np.sum((g > r + 10) & (g > b + 2))


def test_overlaid_motions_are_shown_and_hidden(alone):
    # Colours and not differences: viser renders coarser, all edges too, where frames are slow.
    assert green(alone) == 0
    alone.locator("#jx-run-1").set_checked(True)
    assert green(alone) > 1000
    alone.locator("#jx-run-1").set_checked(False)
    assert green(alone) == 0


def test_a_click_tells_name_and_numbers(alone):
    _, tip = coordinates(TIMES[:1])
    alone.mouse.click(*projected(alone, tip[0]))
    alone.wait_for_function("jaxmbd.selected === 'lower'", timeout=60_000)
    text = alone.locator("#jx-about").inner_text()
    assert "mass 1 kg" in text and "position" in text
    alone.locator("#jx-show-springs").set_checked(True)
    settle(alone)  # a click finds what is drawn
    end = np.array([0.6, 0.0, 0.0])
    # The ends of the spring are straight.
    alone.mouse.click(*projected(alone, tip[0] + 0.92 * (end - tip[0])))
    alone.wait_for_function("jaxmbd.selected === 'spring'", timeout=60_000)
    text = alone.locator("#jx-about").inner_text()
    assert f"length {np.linalg.norm(end - tip[0]):.4f} m" in text


def test_the_camera_follows_a_body(alone):
    alone.evaluate("jaxmbd.follow(1)")
    check_ball(alone, 0.0)
    alone.evaluate("jaxmbd.seek(0.7)")
    # The centre of the body stays, so the ball turns around it in the picture.
    q, tip = coordinates(np.array([0.0, 0.7]))
    center = q.reshape(2, 7, 2)[:, :3, 1]
    expected = projected(alone, tip[1] - center[1] + center[0])
    assert np.linalg.norm(red_spot(alone) - expected) < 3


def test_a_notebook_cell_shows_it(browser, page, tmp_path):
    path = tmp_path / "cell.html"
    path.write_text(f"<!doctype html><body>{page._repr_html_()}</body>", encoding="utf-8")
    context = browser.new_context(offline=True)
    tab, errors = context.new_page(), []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(f"file://{path}")
    frame = tab.frames[-1]
    frame.wait_for_function("window.jaxmbd && window.jaxmbd.connected", timeout=60_000)
    assert errors == []
    context.close()

"""The page of a fit: bands and shares against linear regression, what it says first, and how it
looks to a browser."""

import re
import shutil

import equinox as eqx
import numpy as np
import pytest
import scipy.stats
from known_motions import QUIET, Falling, position, state
from refusals import check_refused

import jaxmbd as mbd
from jaxmbd import identify
from jaxmbd._compiler import to_jax
from jaxmbd.identify import Record, UnknownStart
from jaxmbd.identify.identifiability import autocorrelation, column_test
from jaxmbd.identify.report import drawings, findings
from jaxmbd.identify.report.bands import bands_of

SIZE = 0.02
T = np.linspace(0.0, 1.0, 240)
STRANGE = '<script>"&'


def fall(name, q=1.0, v=0.5, time=T, gap=0.15, slow=0.0, size=SIZE):
    """A noisy fall with gravity 9 and samples that miss. The name decides the noise."""
    noise = size * np.random.default_rng(list(map(ord, name))).normal(size=len(time))
    measured = q + v * time - 4.5 * time**2 + noise + slow * np.sin(20 * time)
    missing = (time > 0.3) & (time < 0.3 + gap)
    measured[missing] = np.nan
    weights = np.where(missing, 0.0, 1 / size)
    return Record(time, measured, state(q, v), weights=weights, name=name)


def fit(records, **options):
    sensors = {STRANGE: position}
    return identify.fit(
        Falling(to_jax(8.0)), ["gravity"], records, sensors, dt=0.1, **QUIET, **options
    )


@pytest.fixture(scope="module")
def found():
    return fit([fall(STRANGE), fall("second", 0.0, 1.0)], start=UnknownStart())


@pytest.fixture(scope="module")
def unseen(found):
    return found.predict(fall("other", 2.0, -1.0, T[::2]))


@pytest.fixture(scope="module")
def page(found, unseen):
    return identify.report(found, unseen=unseen, reference={"gravity": 9.0}, title=STRANGE)


def design(records):
    """The derivatives of all readings by gravity and the starts."""
    rows = []
    for k, record in enumerate(records):
        own = np.zeros((len(record.time), 1 + 2 * len(records)))
        tau = record.time - record.time[0]
        own[:, 0], own[:, 1 + 2 * k], own[:, 2 + 2 * k] = -(tau**2) / 2, 1.0, tau
        rows.append(own)
    return rows


def check_bands(found):
    """Half widths are t s sqrt(x (X^T X)^-1 x^T), where nothing was measured too."""
    bands, _ = bands_of(found, None)
    records = found.prediction.records
    X = design(records)
    used = np.concatenate([x * r.weights for x, r in zip(X, records)])
    C = np.linalg.inv(used.T @ used)
    t = scipy.stats.t.ppf(0.975, len(used) - np.sum(np.all(used == 0, axis=1)) - used.shape[1])
    for k, x in enumerate(X):
        expected = t * found.noise * np.sqrt(np.einsum("ni,ij,nj->n", x, C, x))
        np.testing.assert_allclose(bands.spread[k][:, 0], expected, rtol=1e-6)
        np.testing.assert_allclose(bands.noise[k], t * SIZE, rtol=1e-12)
    return C, t


@pytest.mark.slow
def test_bands_of_a_linear_model(found, unseen):
    C, t = check_bands(found)
    assert found.inflation == 1.0
    _, bands = bands_of(found, unseen)
    tau = unseen.records[0].time  # its start is known, so only gravity is uncertain
    expected = t * found.noise * tau**2 / 2 * np.sqrt(C[0, 0])
    np.testing.assert_allclose(bands.spread[0][:, 0], expected, rtol=1e-6, atol=1e-14)
    other = found.predict(list(unseen.records), values={"gravity": 8.0})
    _, none = bands_of(found, other)
    assert none.spread is None and "not the predictions" in none.why


@pytest.mark.slow
def test_bands_from_the_jacobian_of_the_search():
    """Of known starts without gaps: t s tau^2 / |tau^2 w|, with records of different length, and
    wider for residuals that resemble their neighbours."""
    total = np.linalg.norm(np.append(T**2 / SIZE, T[:100] ** 2 / 0.001))
    for slow in (0.0, 0.05):
        own = dict(gap=0.0, slow=slow)
        found = fit([fall("long", **own), fall("short", time=T[:100], size=0.001, **own)])
        assert (found.inflation > 2) == (slow > 0)
        bands, _ = bands_of(found, None)
        factor = scipy.stats.t.ppf(0.975, 339) * found.inflation
        expected = factor * found.noise * T**2 / total
        for k, spread in enumerate(bands.spread):
            close = dict(rtol=1e-6, atol=1e-14)
            np.testing.assert_allclose(spread[:, 0], expected[: len(spread)], **close)
            whole = np.sqrt(spread**2 + bands.noise[k] ** 2)
            np.testing.assert_allclose(bands.whole(k), whole)


@pytest.mark.slow
def test_bands_of_parts_that_meet_are_those_of_one_simulation():
    shooting = identify.MultipleShooting(2)
    check_bands(fit(fall("parts"), start=UnknownStart(), shooting=shooting))


@pytest.mark.slow
def test_normal_noise_lies_inside_as_often_as_it_should(found, unseen):
    bands = bands_of(found, unseen)
    for motions, own in zip((found.prediction, unseen), bands):
        count = sum(record.count for record in motions.records)
        off = own.share(motions.errors) - 0.95
        assert abs(off) < 3 * np.sqrt(0.95 * 0.05 / count)
    # Twice the noise that is stated: 67 %.
    loud = unseen._replace(
        readings=tuple(x + np.nan_to_num(e) for x, e in zip(unseen.readings, unseen.errors))
    )
    expected = scipy.stats.norm.cdf(1.96 / 2) * 2 - 1
    assert abs(bands[1].share(loud.errors) - expected) < 0.12


@pytest.mark.slow
def test_the_page_tells_its_numbers(found, unseen, page):
    low, high = found.interval()[0]
    for number in (f"{found.entries[0]:.7g}", f"{low:.6g} … {high:.6g}", "9 (inside)"):
        assert number in page.html
    share = bands_of(found, unseen)[0].share(found.prediction.errors)
    assert any(
        x.startswith(f"{100 * share:.1f} % of the samples lie inside") for x in page.findings
    )
    assert page.headline == "The fit converged, and no check speaks against it."
    assert page.headline in repr(page) and repr(page) == str(page)
    # Names are words, never markup.
    body = page.html[page.html.index("<body") :]
    assert "<title>&lt;script&gt;&quot;&amp;</title>" in page.html
    assert "<script>" not in body and body.count("&lt;script&gt;") > 5
    assert not re.search(r"https?://(?!www\.w3\.org)", page.html)
    check_refused(lambda: identify.report(found, reference={"mass": 1.0}), "There is no entry")


@pytest.mark.slow
def test_a_failed_fit_says_so_first(found):
    failed = eqx.tree_at(lambda e: e.result, found, mbd.RESULTS.max_iterations_reached)
    page = identify.report(failed)
    assert page.headline.startswith("This fit failed") and "did not converge" in page.findings[0]
    body = page.html[page.html.index("<body") :]
    assert body.index("This fit failed") < body.index("did not converge") < body.index("<table")
    assert 'class="good"' not in body
    # Simulations that end early are failures too.
    ended = found.prediction._replace(results=(mbd.RESULTS.nonfinite_state,) * 2)
    page = identify.report(eqx.tree_at(lambda e: e.prediction, found, ended))
    assert "was not simulated to its end" in page.findings[0]


@pytest.mark.slow
def test_charts_in_a_browser(page, tmp_path):
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if chromium is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    path, errors = page.save(tmp_path / "fit.html"), []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_context(offline=True, viewport={"width": 800, "height": 600}).new_page()
        tab.on("console", lambda m: m.type == "error" and errors.append(m.text))
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.goto(f"file://{path}")
        tab.wait_for_function("window.jaxmbdReport")
        counts = tab.evaluate(COUNTS)
        # Two fitted records and one other: dots and line in each.
        assert len(counts) == 3 and all(blue > 300 and orange > 300 for blue, orange in counts)
        # A drag enlarges the record, and Escape goes back.
        canvas = tab.locator("canvas").first
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        x, y = box["x"] + 0.5 * box["width"], box["y"] + 40
        tab.mouse.move(x, y)
        tab.mouse.down()
        tab.mouse.move(x + 100, y)
        tab.mouse.up()
        first, last = tab.evaluate("jaxmbdReport.charts[0].group.span")
        seconds = 100 / (box["width"] - 68)
        assert abs(last - first - seconds) < 0.01 and 0.4 < first < 0.6
        assert "predicted" in tab.locator("output").first.inner_text()
        canvas.press("Escape")
        assert tab.evaluate("jaxmbdReport.charts[0].group.span") == [0, 1]
        browser.close()
    assert errors == []


@pytest.mark.slow
def test_the_measured_motion_is_shown_where_it_differs():
    """An elastic pendulum of two bodies in a plane: with half the stiffness the prediction is off,
    and the pulled motion is near the truth, also where no sensor looks."""
    rod = mbd.Inertia.box(size=[0.05, 0.05, 0.5], mass=1.0)
    upper = mbd.Body("upper", rod, position=[0.0, 0.0, -0.25])
    lower = mbd.Body("lower", rod, position=[0.0, 0.0, -0.75])
    y = [0.0, 1.0, 0.0]
    hinge = mbd.Revolute("hinge", "ground", upper, point=[0.0, 0.0, 0.0], axis=y)
    elbow = mbd.Revolute("elbow", upper, lower, point=[0.0, 0.0, -0.5], axis=y)

    def build(values):
        spring = mbd.forces.CoordinateSpring(
            "spring", mbd.OfJoint(elbow), stiffness=values["stiffness"], rest=0.5
        )
        return mbd.Mechanism([upper, lower], [hinge, elbow], [spring])

    sensors = {"hinge": identify.JointPosition("hinge")}
    options = dict(dt=0.01, enforcement=mbd.VelocityImpulse(), **QUIET)
    true = build({"stiffness": to_jax(20.0)})
    time = np.linspace(0.0, 0.8, 41)
    empty = Record(time, np.zeros(41), true.state(), weights=np.full(41, 1e3))
    both = {**sensors, "elbow": identify.JointPosition("elbow")}
    wide = Record(time, np.zeros((41, 2)), true.state())
    truth = identify.predict(true, wide, both, **options).readings[0]
    record = eqx.tree_at(lambda r: r.measured, empty, truth[:, :1])
    off = identify.fit(
        build,
        {"stiffness": identify.Parameter(10.0, identify.Bounded(5.0, 12.0))},
        record,
        sensors,
        shooting=identify.SingleShooting(),
        **options,
    )
    seen = {}

    def view(mechanism, motions):
        seen.update(motions)
        return identify.Report("<b>'motion'</b>", "", ())

    page = identify.report(off, view=view)
    assert "iframe" in page.html and "&lt;b&gt;&#x27;motion&#x27;" in page.html
    assert "pulled towards the readings of hinge" in page.html
    path = lambda name, joint: np.asarray(  # noqa: E731
        mbd.reports.joint_path(off.system, seen[name], joint)
    )[:, 0]
    at = np.isin(np.round(np.asarray(seen["measured"].t), 6), np.round(time, 6))
    errors = [
        [np.sqrt(np.mean((path(name, joint)[at] - truth[:, j]) ** 2)) for name in seen]
        for j, joint in enumerate(("hinge", "elbow"))
    ]
    assert list(seen) == ["predicted", "measured"]
    # The pulled motion lags by about a sample; the elbow follows the hinge and the wrong model.
    assert errors[0][1] < 0.5 * errors[0][0] and errors[1][1] < errors[1][0], errors
    assert f"<td>{errors[0][0]:.3g}</td>" in page.html


@pytest.mark.slow
def test_where_no_motion_can_be_shown_the_reason_is(found):
    page = identify.report(found, view=mbd.view)
    assert "Falling is no mechanism" in page.html and "iframe title" not in page.html
    check_refused(lambda: identify.report(found, view=mbd.view, record="no"), "There is no record")


# Blue and orange pixels of each chart.
COUNTS = """jaxmbdReport.charts.map((chart) => {
    chart.draw()
    const { width, height } = chart.canvas
    const x = chart.canvas.getContext("2d").getImageData(0, 0, width, height).data
    let blue = 0, orange = 0
    for (let i = 0; i < x.length; i += 4) {
        if (x[i] < 40 && x[i + 2] > 150) blue++
        if (x[i] > 190 && x[i + 2] < 60 && x[i + 3] > 200) orange++
    }
    return [blue, orange]
})"""


def test_directions_in_words():
    """Both go up, or one against the other; small shares are left out."""
    text, names = findings.in_words({"a": 0.7, "b": 0.71, "c": 0.01})
    assert names == ["a", "b"] and "raising a and b together" in text
    assert "raising a while lowering b" in findings.in_words({"a": 0.6, "b": -0.8})[0]
    assert findings.in_words({"a": 1.0})[0] == "a is not determined."
    head = findings.headline([findings.Finding("good", ""), findings.Finding("doubt", "")])
    assert head.kind == "doubt" and "reservations, 1" in head.text


def test_drawings_are_to_scale():
    drawing = drawings.Drawing((0.0, 2.0), (1.0, 100.0), log=True)
    assert drawing.y(10.0) == pytest.approx((drawing.y(1.0) + drawing.y(100.0)) / 2)
    places, digits = drawings.ticks(-0.31, 0.42, 4)
    np.testing.assert_allclose(places, [-0.2, 0.0, 0.2, 0.4], atol=1e-15)
    assert digits == 1
    drawing.bar(0.0, 1.0, 1.0, 100.0, "red", STRANGE)
    assert STRANGE not in drawing.svg(STRANGE)


def test_intervals_stand_beside_their_names():
    """Two of the same relative width, and one that is cut off."""
    entries = np.array([2.0, -4.0, 1.0])
    ends = np.array([[1.8, 2.2], [-4.4, -3.6], [1e-3, 1e3]])
    svg = drawings.intervals(("a", "b", "c"), ends, ends, entries, {"a": 2.1})
    names = re.findall(r'<text x="([\d.]+)" [^>]*>([abc])<', svg)
    assert len(names) == 3 and len({x for x, _ in names}) == 1 and svg.count("›") == 2
    bars = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', svg)
    assert bars[0] == bars[1] == bars[2] == bars[3] != bars[4]
    assert "reference 2.1" in svg


def test_autocorrelations_stay_within_records():
    """Of -1, 1, 1 and 1, -2 by hand: the products are -1 + 1 - 2, and -1."""
    x = [np.array([-1.0, 1.0, 1.0]), np.array([1.0, -2.0])]
    np.testing.assert_allclose(autocorrelation(x, 2), [-2 / 8, -1 / 8])


def test_columns_without_measurements():
    assert str(column_test([])) == "nothing was measured"

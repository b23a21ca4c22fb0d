"""The identification examples find what independent integrations were made with, say how far to
trust it, and refuse bad data in words. Real measurements where the shared folder is present."""

import math
import sys

import identify_air_track as track
import identify_pendulum as pendulum
import identify_spring_damper as crank
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.linalg

from jaxmbd.identify import least_squares

QUIET = dict(progress=False)
TIMES = np.linspace(0, 1.5, 151)


def mechanism():
    return crank.SliderCrank(**crank.TRUTH)


@pytest.fixture(scope="module")
def residuals():
    return crank.residuals_for(mechanism(), crank.Start(), TIMES, dt=1e-3)


def logarithms(values):
    return {name: jnp.log(jnp.asarray(value)) for name, value in values.items()}


def whole(measured):
    return measured.position, np.ones(len(measured.time))


@pytest.mark.slow
def test_spring_damper_found(residuals):
    """Without noise to 1e-6, the error of RK4 at this step being 1e-7 of the motion; with noise
    within the intervals, and these as wide as the scatter of the estimates."""
    system, start, noise = mechanism(), crank.Start(), 2e-4
    exact = crank.synthetic_measurements(system, start, 0.0, 0, TIMES)
    result = crank.identify(residuals, exact, **QUIET)
    assert result.converged
    for name, value in crank.TRUTH.items():
        assert math.exp(result.value[name]) == pytest.approx(value, rel=1e-6)

    J = result.jacobian
    expected = noise * np.sqrt(np.diag(np.linalg.inv(J.T @ J)))
    distances, spreads = [], []
    for seed in range(12):
        measured = crank.synthetic_measurements(system, start, noise, seed, TIMES)
        data, near = whole(measured), logarithms(crank.TRUTH)
        result = least_squares(residuals, near, data, scale=0.07, tolerance=1e-6, **QUIET)
        off = np.array([result.value[name] - near[name] for name in ("damping", "stiffness")])
        sigma = np.array([result.sigma[name] for name in ("damping", "stiffness")])
        # s has 300 degrees of freedom: a relative scatter of 1 / sqrt(600).
        np.testing.assert_allclose(sigma, expected, rtol=0.15)
        assert np.all(np.abs(off) < 4 * sigma)
        distances.append(crank.distance_to(crank.TRUTH, result))
        spreads.append(off / expected)
    # Chi-squared with 24 degrees of freedom, jointly and apart: between its quantiles at 0.05 %.
    assert 7 < np.sum(np.square(distances)) < 52
    assert 7 < np.sum(np.square(spreads)) < 52


@pytest.mark.slow
def test_spring_damper_from_poor_guesses(residuals):
    """The first part of the record fitted first, a guess may be off by far more than a period."""
    measured = crank.synthetic_measurements(mechanism(), crank.Start(), 2e-4, 0, TIMES)
    for k, d in ((600.0, 4.0), (18000.0, 400.0)):
        guess = {"stiffness": k, "damping": d}
        result = crank.identify(residuals, measured, guess, **QUIET)
        assert result.converged
        assert result.rms == pytest.approx(2e-4, rel=0.1)
        assert crank.distance_to(crank.TRUTH, result) < 4


POINT = {"damping": math.log(50.0), "stiffness": math.log(5000.0)}
SHIFT = 1e-5  # of central differences: their own error is about 1e-9


@pytest.mark.slow
def test_gradient_that_the_fit_uses(residuals):
    """J^T r, in forward mode, against central differences of the loss |r|^2 / 2."""
    measured = crank.synthetic_measurements(mechanism(), crank.Start(), 2e-4, 0, TIMES)

    def at(**point):
        return least_squares(residuals, point, whole(measured), max_steps=1, **QUIET)

    def loss(**point):
        return 0.5 * np.sum(np.square(at(**point).residuals))

    here = at(**POINT)
    for name, component in zip(sorted(POINT), here.jacobian.T @ here.residuals):
        up, down = ({**POINT, name: POINT[name] + sign * SHIFT} for sign in (1, -1))
        assert component == pytest.approx((loss(**up) - loss(**down)) / (2 * SHIFT), rel=1e-6)


@pytest.mark.slow
def test_gradient_in_reverse_mode(residuals):
    """Through 1500 steps, with checkpoints."""
    measured = crank.synthetic_measurements(mechanism(), crank.Start(), 2e-4, 0, TIMES)

    @jax.jit
    def loss(y):
        r = residuals({"damping": y[0], "stiffness": y[1]}, whole(measured))
        return 0.5 * jnp.sum(r**2)

    y = jnp.array([POINT["damping"], POINT["stiffness"]])
    gradient = jax.jit(jax.grad(loss))(y)
    differences = [(loss(y + e) - loss(y - e)) / (2 * SHIFT) for e in SHIFT * jnp.eye(2)]
    np.testing.assert_allclose(gradient, differences, rtol=1e-6)


@pytest.mark.slow
def test_spring_damper_with_unknown_start():
    """The initial state is found as well, from a guess that is off."""
    start = crank.Start()
    measured = crank.synthetic_measurements(mechanism(), start, 0.0, 0, TIMES)
    guess = crank.Start(angle=0.55, speed=11.0, y=0.01, ydot=0.1)
    residuals = crank.residuals_for(mechanism(), guess, TIMES)
    result = crank.identify(residuals, measured, start=guess, **QUIET)
    np.testing.assert_allclose(list(result.value["start"]), start, atol=1e-5)
    assert math.exp(result.value["stiffness"]) == pytest.approx(6000, rel=1e-5)


def test_measurements_are_read_as_written(tmp_path):
    measured = crank.synthetic_measurements(mechanism(), crank.Start(), 1e-4, 0, TIMES)
    path = tmp_path / "measured.csv"
    crank.write_measurements(path, measured)
    again = crank.read_measurements(path)
    np.testing.assert_allclose(again.time, measured.time, rtol=1e-8)
    np.testing.assert_allclose(again.position, measured.position, rtol=1e-8)


def rows(n=12, header="time [s],support_y [m],slider_x [m]", **changes):
    lines = [header] + [f"{0.1 * i},{0.01 * i},0.3" for i in range(n)]
    for place, text in changes.items():
        lines[int(place.removeprefix("line")) - 1] = text
    return "\n".join(lines) + "\n"


def test_columns_in_any_order_and_unit(tmp_path):
    path = tmp_path / "measured.csv"
    lines = [f"{300},note,{100 * i + 5},{i}" for i in range(12)]
    path.write_text("slider_x [mm],remark,time (ms), support_y [cm]\n\n" + "\n".join(lines))
    measured = crank.read_measurements(path)
    np.testing.assert_allclose(measured.time, 0.1 * np.arange(12))
    np.testing.assert_allclose(measured.position, [[0.01 * i, 0.3] for i in range(12)])


BAD_CSV = {
    "": "is empty",
    rows(header="time [s],slider_x [m]"): "no column `support_y`.*header must name",
    rows(header="time [s],support_y [furlong],slider_x [m]"): "support_y` is in .furlong.*'m'",
    rows(header="time,time,support_y,slider_x"): "`time` appears twice",
    rows(line4="0.2,nan,0.3"): "line 4: `support_y` is `nan`",
    rows(line5="0.3,0.03"): "line 5: `slider_x` is ``",
    rows(line6="0.4,0.04,three"): "line 6: `slider_x` is `three`",
    rows(line7="0.4,0.05,0.3"): "line 7: time must increase .* 0.4 s to 0.4 s",
    rows(n=9): "9 rows of numbers; give at least 10",
}


@pytest.mark.parametrize("text, message", BAD_CSV.items(), ids=BAD_CSV.values())
def test_bad_measurements(tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        crank.read_measurements(path)


def stopped(monkeypatch, module, *arguments):
    """The message with which a script ends early."""
    monkeypatch.setattr(sys, "argv", [module.__name__ + ".py", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        module.main()
    return str(end.value)


def test_scripts_stop_with_a_message(monkeypatch, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text(rows(n=3))
    assert "3 rows of numbers" in stopped(monkeypatch, crank, "--data", path)
    assert "No such file" in stopped(monkeypatch, crank, "--data", tmp_path / "none.csv")
    assert "must be positive" in stopped(monkeypatch, crank, "--guess", -1, 2)
    assert "must be one of" in stopped(monkeypatch, crank, "--set", "colour=3")
    assert "Try --carts" in stopped(monkeypatch, track, "--data", path)


def test_fit_reports_what_it_cannot_do():
    def line(y, x):
        return y["slope"] * x + y["offset"]

    guess = {"slope": 1.0, "offset": 0.0}
    with pytest.raises(ValueError, match="2 measurements cannot determine 2 parameters"):
        least_squares(line, guess, np.arange(2.0), **QUIET)
    with pytest.raises(ValueError, match="not finite"):
        least_squares(line, guess, np.full(5, np.nan), **QUIET)


def test_fit_of_a_line_is_linear_regression():
    x = np.linspace(0, 1, 50)
    y = 2 * x - 3 + 0.1 * np.random.default_rng(0).normal(size=50)

    def line(p, data):
        x, y = data
        return p["slope"] * x + p["offset"] - y

    result = least_squares(line, {"slope": 0.0, "offset": 0.0}, (x, y), **QUIET)
    (slope, offset), C = np.polyfit(x, y, 1, cov=True)
    assert result.converged
    np.testing.assert_allclose(
        [result.value["slope"], result.value["offset"]], [slope, offset], rtol=1e-7
    )
    np.testing.assert_allclose(
        [result.sigma["slope"], result.sigma["offset"]], np.sqrt(np.diag(C)), rtol=1e-7
    )


def test_the_search_ends_where_nothing_is_left_to_gain():
    """Among noise the last steps of Gauss and Newton change the sum of squares by less than its
    rounding, and do not count as improving it: the search must not wait for one that does."""
    x = np.linspace(0, 1, 21)

    def exponential(p, data):
        x, y = data
        return jnp.exp(p["rate"] * x) - y

    for seed in range(10):
        y = np.exp(0.7 * x) + 0.01 * np.random.default_rng(seed).normal(size=21)
        result = least_squares(exponential, {"rate": 0.7}, (x, y), scale=0.01, **QUIET)
        assert result.converged
        assert result.iterations <= 8
        slope = result.jacobian[:, 0] @ result.residuals
        size = jnp.linalg.norm(result.jacobian) * jnp.linalg.norm(result.residuals)
        assert abs(slope) < 1e-7 * size


# One heavy and one light cart, so that nothing is symmetric by accident.
K1, KC, K2, MASS = 8.0, 40.0, 11.0, 2.5
DAMPING = np.array([0.05, 0.02])
PLACES = np.array([60.0, -55.0])


def exact_carts(times, q0, v0):
    """Two carts by the matrix exponential."""
    K = np.array([[K1 + KC, -KC], [-KC / MASS, (K2 + KC) / MASS]])
    A = np.block([[np.zeros((2, 2)), np.eye(2)], [-K, -np.diag(DAMPING)]])
    y0 = np.concatenate([q0 - PLACES, v0])
    return np.stack([(scipy.linalg.expm(A * t) @ y0)[:2] for t in times]) + PLACES


def two_carts(noise, seed=0):
    """Two trials of different length, times a little uneven."""
    random = np.random.default_rng(seed)
    trials = []
    for name, n, q0, v0 in (
        ("0", 300, [0.0, -140.0], [-100.0, 30.0]),
        ("1", 220, [130.0, -70.0], [0.0, 0.0]),
    ):
        times = 0.5 + np.round(np.arange(n) / 30, 3)
        position = exact_carts(times - times[0], np.array(q0), np.array(v0))
        trials.append((name, times, position + noise * random.normal(size=position.shape)))
    return trials


def write_trials(path, trials):
    lines = ["% x1 x2 v1 v2"]
    for name, times, position in trials:
        lines += [f"{name} {t!r} {x[0]!r} {x[1]!r} 0 0" for t, x in zip(times, position)]
    path.write_text("\n".join(lines).replace("np.float64(", "").replace(")", ""))


@pytest.mark.slow
def test_two_carts_found(tmp_path):
    """From the file to the figures, each within four sigma of the truth."""
    path, noise = tmp_path / "trials.txt", 0.4
    write_trials(path, two_carts(noise))
    trials = track.read_trials(path)
    assert trials.carts == 2 and trials.name == ("0", "1") and trials.count == 2 * (300 + 220)
    np.testing.assert_array_equal(trials.weight.sum(axis=1), [300, 220])

    result, scales, residuals = track.identify(trials, **QUIET)
    assert result.converged
    assert result.rms == pytest.approx(noise, rel=0.1)
    truth = {
        "outer spring of cart 1, k1/m1": K1,
        "coupling spring, kc/m1": KC,
        "outer spring of cart 2, k2/m1": K2,
        "mass of cart 2, m2/m1": MASS,
        "damping of cart 1, c1/m1": DAMPING[0],
        "damping of cart 2, c2/m2": DAMPING[1],
        "equilibrium of cart 1": PLACES[0],
        "equilibrium of cart 2": PLACES[1],
    }
    squares = scipy.linalg.eigh(
        [[K1 + KC, -KC], [-KC, K2 + KC]], np.diag([1, MASS]), eigvals_only=True
    )
    truth["natural frequency of mode 1"], truth["natural frequency of mode 2"] = np.sqrt(squares)
    found = track.with_sigmas(result, scales)
    for name, value in truth.items():
        estimate, sigma, _ = found[name]
        assert abs(estimate - value) < 4 * sigma, name
        assert sigma < 0.05 * abs(value), name

    # Nothing is left out of this model, and nothing is seen.
    tested = track.missing_effects(trials, result, residuals)
    assert max(abs(sigmas) for _, sigmas, _ in tested.values()) < 4
    assert abs(track.neighbour_correlation(trials, result)) < 0.15
    assert track.without_outliers(trials, result).count == trials.count

    # A jolt at the end of the first trial is found, with a few rows before it at most.
    pushed = np.array(trials.position)
    pushed[0, 290:300] += 5.0
    jolted = trials._replace(position=pushed)
    data = (jolted.position, jolted.weight)
    result = least_squares(residuals, result.value, data, scale=100.0, count=jolted.count, **QUIET)
    cleaned = track.without_outliers(jolted, result)
    changed = np.argwhere(cleaned.weight != jolted.weight).tolist()
    assert [[0, i] for i in range(290, 300)] == changed[-10:] and changed[0] >= [0, 280]


@pytest.mark.slow
def test_one_cart_with_uneven_springs():
    """What the model leaves out is seen and named: here a spring force with a quadratic term,
    from SciPy. To first order its size is right within a few per cent."""
    uneven, omega2, size = 0.03, 9.0, 100.0

    def rates(t, y):
        return [y[1], -omega2 * (y[0] + uneven * y[0] ** 2 / size) - 0.03 * y[1]]

    times = np.arange(600) / 30
    motion = scipy.integrate.solve_ivp(
        rates, (0, times[-1]), [size, 0], "DOP853", t_eval=times, rtol=1e-10, atol=1e-8
    ).y[0]
    trials = track.make_trials([("0", times, np.round(motion)[:, None])])
    assert track.resolution(trials) == 1.0
    result, scales, residuals = track.identify(trials, **QUIET)
    tested = track.missing_effects(trials, result, residuals)
    best = min(tested, key=lambda name: tested[name][2])
    assert best == "uneven_springs"
    assert tested[best][0] == pytest.approx(uneven * trials.size / size, rel=0.1)
    omega, sigma, _ = track.with_sigmas(result, scales)["natural frequency"]
    assert omega == pytest.approx(3.0, rel=2e-3)


BAD_TRIALS = {
    "% x v\n": "no rows of numbers",
    "% x v\n" + "0 0.1 1 0\n" * 30: "line 3: time must increase",
    "% x v\n" + "".join(f"0 {i} 1 0\n" for i in range(5)): "trial 0 has 5 rows; give at least 20",
    "% x v\n0 0.1 nan 0\n": "line 2: `nan` is not a finite number",
    "% x v\n0 0.1 1 0\n0 0.2 1\n": "line 3: 3 columns, where the first row has 4",
    "% x1 x2 x3\n0 0.1 1 1 1\n": "cannot tell one or two carts",
}


@pytest.mark.parametrize("text, message", BAD_TRIALS.items(), ids=BAD_TRIALS.values())
def test_bad_trials(tmp_path, text, message):
    path = tmp_path / "bad.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        track.read_trials(path)


def zero_crossing_frequency(t, x):
    """From the times at which x crosses its middle, two a period [rad/s]."""
    x = x - 0.5 * (x.max() + x.min())
    k = np.flatnonzero(np.diff(x > 0))
    crossings = t[k] - x[k] * (t[k + 1] - t[k]) / (x[k + 1] - x[k])
    return math.pi * (len(crossings) - 1) / (crossings[-1] - crossings[0])


def spectral_peaks(t, x):
    """The two largest peaks of the spectrum of a windowed signal [rad/s]."""
    x = (x - x.mean()) * np.hanning(len(x))
    power = np.abs(np.fft.rfft(x, 8 * len(x)))
    omega = 2 * math.pi * np.fft.rfftfreq(8 * len(x), (t[-1] - t[0]) / (len(t) - 1))
    tops = np.flatnonzero((power[1:-1] > power[:-2]) & (power[1:-1] > power[2:])) + 1
    # Outside of the low peak's side lobes.
    low = tops[np.argmax(power[tops])]
    away = tops[omega[tops] > 2.5 * omega[low]]
    return omega[low], omega[away[np.argmax(power[away])]]


@pytest.mark.slow
def test_measured_cart(shared):
    trials = track.read_trials(shared / "data" / "pendulum_lab" / "real_linear_h_1.txt")
    result, scales, residuals = track.identify(trials, **QUIET)
    found = track.with_sigmas(result, scales)
    # Rounding to whole units alone is 0.29; the largest displacement is 102.
    assert result.converged and result.rms < 0.42
    assert track.without_outliers(trials, result).count == trials.count
    omega, sigma, _ = found["natural frequency"]
    counted = zero_crossing_frequency(trials.time[0], trials.position[0, :, 0])
    assert omega == pytest.approx(counted, rel=1e-3)
    assert found["stiffness k/m"][0] == pytest.approx(omega**2)
    # Friction is viscous: the dry one would be small, and of the wrong sign.
    decay = np.log(np.ptp(trials.position[0, :150]) / np.ptp(trials.position[0, -150:]))
    assert found["damping c/m"][0] == pytest.approx(2 * decay / 24.0, rel=0.1)
    assert track.missing_effects(trials, result, residuals)["dry_friction"][0] < 0.001


@pytest.mark.slow
def test_measured_pair_of_carts(shared):
    trials = track.read_trials(shared / "data" / "pendulum_lab" / "real_double_linear_h_1.txt")
    result, scales, residuals = track.identify(trials, **QUIET)
    cleaned = track.without_outliers(trials, result)
    left_out = np.flatnonzero(cleaned.weight[0] != trials.weight[0])
    assert left_out.size < 12 and left_out[0] > 480  # the jolt at the very end
    data = (cleaned.position, cleaned.weight)
    result = least_squares(residuals, result.value, data, scale=100.0, count=cleaned.count, **QUIET)
    assert result.converged and result.rms < 0.51
    found = track.with_sigmas(result, scales)
    t, x = trials.time[0], trials.position[0, :, 0]
    for k, omega in enumerate(spectral_peaks(t, x), 1):
        assert found[f"natural frequency of mode {k}"][0] == pytest.approx(omega, rel=0.02)
    # Equal springs at both ends, though nothing in the model makes them so.
    ratio, sigma, _ = found["ratio of outer springs, k2/k1"]
    assert abs(ratio - 1) < 4 * sigma < 0.1


@pytest.mark.slow
def test_pendulum_found(tmp_path):
    """Frequency, both frictions and the camera's tilt, from an integration of the angle itself."""
    omega, viscous, drag, tilt = 2.0, 0.05, 0.03, 0.02

    def rate(t, x):
        speed = math.hypot(x[1], pendulum.SLOW)
        return [x[1], -(omega**2) * math.sin(x[0]) - x[1] * (viscous + drag * speed)]

    times = 5.0 + np.linspace(0.0, 12.0, 121)
    options = dict(t_eval=times, rtol=1e-12, atol=1e-13, method="DOP853")
    theta = scipy.integrate.solve_ivp(rate, times[[0, -1]], [1.3, 0.4], **options).y[0]
    rows = np.stack([np.zeros(121), times, theta + tilt, np.full(121, np.nan)], axis=1)
    np.savetxt(tmp_path / "made.txt", rows, header="o v", comments="%", fmt="%.16e")
    record = pendulum.read(tmp_path / "made.txt")
    found = pendulum.fitted(record, ("viscous", "drag"))
    assert found.converged
    truth = {"omega": omega, "tilt": tilt, "viscous": viscous, "drag": drag}
    for name, value in truth.items():
        assert found.values[name] == pytest.approx(value, rel=1e-5), name
    # Without the law that it takes, what was not fitted is off by far more.
    seen, unseen = record.split(12.0)
    for law, off in ((("viscous", "drag"), 1e-5), (("viscous",), None)):
        found = pendulum.fitted(seen, law)
        forecast = found.predict(unseen, starts=found.starts).rms["angle"]
        assert forecast < off if off else forecast > 1e-3


@pytest.mark.slow
def test_measured_pendulum(shared):
    """Laws of friction that fit the first part of a real record alike forecast the rest by a
    factor of six apart."""
    record = pendulum.read(shared / "data" / "pendulum_lab" / "real_pend_h_1.txt")
    seen, unseen = record.split(record.time[0] + 0.6 * np.ptp(record.time))
    forecasts = {}
    for name in ("dry", "viscous and drag"):
        found = pendulum.fitted(seen, pendulum.LAWS[name])
        assert found.converged and found.prediction.rms["angle"] < 0.014
        forecasts[name] = found.predict(unseen, starts=found.starts).rms["angle"]
    assert 6 * forecasts["viscous and drag"] < forecasts["dry"]
    assert forecasts["viscous and drag"] < 0.017

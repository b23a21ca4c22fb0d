"""The identification examples find what independent integrations were made with, say how far to
trust it, and refuse bad data in words. Real measurements where the shared folder is present."""

import math

import identify_air_track as track
import identify_pendulum as pendulum
import identify_spring_damper as crank
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.linalg

from jaxmbd import identify
from jaxmbd.identify import least_squares

QUIET = dict(progress=False)
TIMES = np.linspace(0, 1.5, 151)


def slider_crank_motion():
    """Height of the support and position of the slider at `TIMES`, by SciPy, with an error of about
    1e-11 m, in the minimal coordinates p = (angle of the crank, height of the support).

    The coordinates of all bodies have the velocities A p' and accelerations A p'' + b, so that
    A^T W A p'' = A^T (F - W b).
    """
    r, length = crank.CRANK, crank.ROD
    masses = np.array([crank.SUPPORT_MASS, crank.CRANK_MASS, crank.ROD_MASS, crank.SLIDER_MASS])
    inertias = [masses[1] * r**2 / 12 + crank.FLYWHEEL, masses[2] * length**2 / 12]
    W = jnp.asarray(np.concatenate([np.repeat(masses, 2), inertias]))
    F = -crank.GRAVITY * W * jnp.asarray([0.0, 1.0] * 4 + [0.0] * 2)
    k, d = crank.TRUTH.values()

    def bodies(p):
        (theta, y), (cos, sin) = p, (jnp.cos(p[0]), jnp.sin(p[0]))
        rise = y + r * sin
        run = jnp.sqrt(length**2 - rise**2)
        support, slider = jnp.stack([0 * y, y]), jnp.stack([r * cos + run, 0 * y])
        of_crank = jnp.stack([r / 2 * cos, y + r / 2 * sin])
        of_rod = jnp.stack([r * cos + run / 2, rise / 2])
        angles = jnp.stack([theta, -jnp.arcsin(rise / length)])
        return jnp.concatenate([support, of_crank, of_rod, slider, angles])

    @jax.jit
    def rates(t, state):
        p, pdot = jnp.split(state, 2)
        A, slope = jax.jvp(jax.jacfwd(bodies), (p,), (pdot,))
        applied = jnp.stack([crank.TORQUE, -k * p[1] - d * pdot[1]])
        force = A.T @ (F - W * (slope @ pdot)) + applied
        return jnp.concatenate([pdot, jnp.linalg.solve(A.T @ (W[:, None] * A), force)])

    options = dict(t_eval=TIMES, rtol=1e-11, atol=1e-12, method="DOP853")
    p = scipy.integrate.solve_ivp(rates, TIMES[[0, -1]], np.ravel(crank.START), **options).y[:2]
    return np.asarray(jax.jit(jax.vmap(bodies))(jnp.asarray(p.T))[:, [1, 6]])


@pytest.mark.slow
def test_spring_damper_found(monkeypatch):
    """Without noise to 1e-6."""
    monkeypatch.setattr(crank, "STEP", 1e-3)  # the error of RK4 is 1e-7 of the motion
    found = crank.fitted(crank.record_of(TIMES, slider_crank_motion()), **QUIET)
    assert found.converged
    for name, value in crank.TRUTH.items():
        assert found.values[name] == pytest.approx(value, rel=1e-6)


def rows(n=12, header="time,support_y,slider_x", **changes):
    lines = [header] + [f"{0.1 * i},{0.01 * i},0.3" for i in range(n)]
    for place, text in changes.items():
        lines[int(place.removeprefix("line")) - 1] = text
    return "\n".join(lines) + "\n"


def test_columns_in_any_order(tmp_path):
    path = tmp_path / "measured.csv"
    path.write_text(
        "slider_x,remark,time,support_y\n" + "".join(f"0.3,9,{i + 5},{i}\n" for i in range(12))
    )
    record = crank.read_record(path)
    np.testing.assert_array_equal(record.time, np.arange(12.0))
    np.testing.assert_array_equal(record.measured, [[i, 0.3] for i in range(12)])


BAD_CSV = {
    rows(header="time,slider_x,support"): "no field of name support_y",
    rows(line4="0.2,nan,0.3"): "nan in row 2, column 0",
    rows(line6="0.4,0.04,three"): "nan in row 4, column 1",
    rows(line7="0.4,0.05,0.3"): "0.4 s stands in rows 4 and 5",
}


@pytest.mark.parametrize("text, message", BAD_CSV.items(), ids=BAD_CSV.values())
def test_bad_measurements(tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        crank.read_record(path)


def line(p, data):
    x, y = data
    return p["slope"] * x + p["offset"] - y


def test_fit_of_a_line_is_linear_regression():
    x, guess = np.linspace(0, 1, 50), {"slope": 0.0, "offset": 0.0}
    y = 2 * x - 3 + 0.1 * np.random.default_rng(0).normal(size=50)
    result = least_squares(line, guess, (x, y), **QUIET)
    known, C = np.polyfit(x, y, 1, cov=True)
    assert result.converged
    for found, expected in ((result.value, known), (result.sigma, np.sqrt(np.diag(C)))):
        np.testing.assert_allclose([found["slope"], found["offset"]], expected, rtol=1e-7)
    with pytest.raises(ValueError, match="not finite"):
        least_squares(line, guess, (x, np.full(50, np.nan)), **QUIET)
    with pytest.raises(ValueError, match="2 measurements cannot determine 2 parameters"):
        least_squares(line, guess, (x[:2], y[:2]), **QUIET)


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
        jacobian, residuals = np.asarray(result.jacobian), np.asarray(result.residuals)
        slope = jacobian[:, 0] @ residuals
        size = np.linalg.norm(jacobian) * np.linalg.norm(residuals)
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


@pytest.mark.slow
def test_two_carts_found(tmp_path):
    """From the file to the figures, each within four sigma of the truth; times a little uneven."""
    path, noise = tmp_path / "trial.txt", 0.4
    times = 0.5 + np.round(np.arange(400) / 30, 3)
    exact = exact_carts(times - times[0], np.array([0.0, -140.0]), np.array([-100.0, 30.0]))
    position = exact + noise * np.random.default_rng(0).normal(size=exact.shape)
    table = np.column_stack([np.zeros(400), times, position, np.zeros((400, 2))])
    np.savetxt(path, table, header="x1 x2 v1 v2", comments="% ", fmt="%.16e")
    record = track.read_record(path)
    found = track.from_early_to_late(record, **QUIET)
    assert found.converged
    assert found.noise == pytest.approx(noise, rel=0.1)
    truth = np.concatenate([[K1, K2, KC, MASS], DAMPING, PLACES])
    assert np.all(np.abs(found.entries - truth) < 4 * found.sigma)
    assert np.all(found.sigma < 0.05 * np.abs(truth))
    squares = scipy.linalg.eigh(
        [[K1 + KC, -KC], [-KC, K2 + KC]], np.diag([1, MASS]), eigvals_only=True
    )
    derived = found.derived(track.frequencies)
    for i, omega in enumerate(np.sqrt(squares), 1):
        value, sigma = derived[f"natural frequency {i} [rad/s]"]
        assert abs(value - omega) < 4 * sigma < 1e-3 * omega

    # Nothing is left out of this model, and nothing is seen.
    uneven = track.fitted(
        record, found.system, track.UNKNOWN | {"uneven": identify.Free()}, **QUIET
    )
    assert abs(uneven.values["uneven"]) < 4 * uneven.sigma[-1]
    assert found.inflation == 1
    assert np.all(track.without_outliers(found).weights == 1)


def test_more_than_one_trial(tmp_path):
    path = tmp_path / "two.txt"
    path.write_text("% x v\n0 0.1 1 0\n1 0.2 1 0\n")
    with pytest.raises(ValueError, match="more than one trial"):
        track.read_record(path)


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

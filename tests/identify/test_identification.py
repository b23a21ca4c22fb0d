"""The identification examples find what their data were made with, and say how far to trust it.
Real measurements where the shared folder is present."""

import math

import identify_air_track as track
import identify_pendulum as pendulum
import identify_spring_damper as crank
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.linalg

from jaxmbd._results import succeeded
from jaxmbd.identify import least_squares

QUIET = dict(progress=False)


@pytest.mark.slow
def test_spring_damper_found():
    found = crank.fitted(crank.made_record(), **QUIET)
    assert succeeded(found.result)
    assert np.all(np.abs(found.entries - list(crank.TRUTH.values())) < 4 * found.sigma)
    assert np.all(found.sigma < 0.02 * np.array(list(crank.TRUTH.values())))


def test_columns_in_any_order(tmp_path):
    path = tmp_path / "measured.csv"
    path.write_text(
        "slider_x,remark,time,support_y\n" + "".join(f"0.3,9,{i + 5},{i}\n" for i in range(12))
    )
    record = crank.read_record(path)
    np.testing.assert_array_equal(record.time, np.arange(12.0))
    np.testing.assert_array_equal(record.measured, [[i, 0.3] for i in range(12)])


def line(p, data):
    x, y = data
    return p["slope"] * x + p["offset"] - y


def test_fit_of_a_line_is_linear_regression():
    x, guess = np.linspace(0, 1, 50), {"slope": 0.0, "offset": 0.0}
    y = 2 * x - 3 + 0.1 * np.random.default_rng(0).normal(size=50)
    result = least_squares(line, guess, (x, y), **QUIET)
    known, C = np.polyfit(x, y, 1, cov=True)
    assert succeeded(result.result)
    for found, expected in ((result.value, known), (result.sigma, np.sqrt(np.diag(C)))):
        np.testing.assert_allclose([found["slope"], found["offset"]], expected, rtol=1e-7)
    with pytest.raises(ValueError, match="not finite"):
        least_squares(line, guess, (x, np.full(50, np.nan)), **QUIET)
    with pytest.raises(ValueError, match="2 measurements cannot determine 2 parameters"):
        least_squares(line, guess, (x[:2], y[:2]), **QUIET)


def overflowing(p, scale):
    """Without derivatives beyond 1.2, where steps from -1 lead."""
    return scale * jnp.arctan(p - 1) + jnp.where(p > 1.2, jnp.sqrt(0 * p), 0.0)


@pytest.mark.slow
def test_search_turns_back_where_derivatives_overflow():
    found = least_squares(overflowing, np.array(-1.0), np.array([1.0, 2.0]), **QUIET)
    assert succeeded(found.result)
    np.testing.assert_allclose(found.value, 1.0, atol=1e-6)


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
    assert succeeded(found.result)
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
    assert found.inflation == 1
    assert np.all(track.without_outliers(found).weights == 1)


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
    assert succeeded(found.result)
    truth = {"omega": omega, "tilt": tilt, "viscous": viscous, "drag": drag}
    for name, value in truth.items():
        assert found.values[name] == pytest.approx(value, rel=1e-5), name


@pytest.mark.slow
def test_measured_pendulum(shared):
    """Laws of friction that fit the first part of a real record alike forecast the rest by a
    factor of six apart."""
    record = pendulum.read(shared / "data" / "pendulum_lab" / "real_pend_h_1.txt")
    seen, unseen = record.split(record.time[0] + 0.6 * np.ptp(record.time))
    forecasts = {}
    for name in ("dry", "viscous and drag"):
        found = pendulum.fitted(seen, pendulum.LAWS[name])
        assert succeeded(found.result) and found.prediction.rms["angle"] < 0.014
        forecasts[name] = found.predict(unseen, starts=found.starts).rms["angle"]
    assert 6 * forecasts["viscous and drag"] < forecasts["dry"]
    assert forecasts["viscous and drag"] < 0.017

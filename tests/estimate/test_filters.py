"""Filters against Kalman's, and against what is known of a motion."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import GuidedMass, Oscillator, both_modes

import jaxmbd as mbd
from jaxmbd import estimate, identify
from jaxmbd.estimate.gaussian import factor

H = 0.02
RULES = {
    "ekf": estimate.Extended(),
    "ukf": estimate.Unscented(),
    "wide-ukf": estimate.Unscented(spread=1.7),
}


def oscillator_filter(rule, **options):
    sensors = {"x": lambda sample: sample.q, "v": lambda sample: sample.v}
    given = dict(dt=H, process_noise=estimate.ContinuousNoise(0.3), rule=rule) | options
    return estimate.Filter(Oscillator(), sensors, {"x": 0.1, "v": 0.2}, **given)


def kalman(system, dt, readings, present, P):
    """Kalman's filter, the log-likelihood, and the smoother of Rauch, Tung and Striebel."""
    m, k, c = (float(x) for x in (system.mass, system.stiffness, system.damping))
    X = dt * np.array([[0, 1], [-k / m, -c / m]])
    F = np.eye(2) + X + X @ X / 2 + X @ X @ X / 6 + X @ X @ X @ X / 24
    Q = 0.3**2 * np.array([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]])
    R, x, log = np.diag([0.1, 0.2]) ** 2, np.array([1.0, 0.0]), 0.0
    rows = []
    for y, there in zip(readings, present, strict=True):
        before = x, P
        H, S = np.eye(2)[there], P[np.ix_(there, there)] + R[np.ix_(there, there)]
        K, e = P @ H.T @ np.linalg.inv(S), (y - x)[there]
        log -= (e @ np.linalg.solve(S, e) + np.linalg.slogdet(2 * np.pi * S)[1]) / 2
        x, P = x + K @ e, P - K @ S @ K.T
        rows.append((*before, x, P))
        x, P = F @ x, F @ P @ F.T + Q
    smooth = [rows[-1][2:]]
    for (_, _, x, P), (x1, P1, *_) in zip(rows[-2::-1], rows[:0:-1], strict=True):
        G = P @ F.T @ np.linalg.inv(P1)
        smooth.append((x + G @ (smooth[-1][0] - x1), P + G @ (smooth[-1][1] - P1) @ G.T))
    return [(x, P) for _, _, x, P in rows], log, smooth[::-1]


def of_kalman(rule):
    """The run and the smoother, and Kalman's, for a record with gaps and two rates."""
    rng, n = np.random.default_rng(0), 30
    readings, present = rng.normal(size=(n, 2)), rng.random((n, 2)) > 0.2
    present[1::3, 1] = False
    filter = oscillator_filter(rule)
    state = mbd.State(0.0, np.ones(1), np.zeros(1))
    record = identify.Record(H * np.arange(n), readings, state, weights=present)
    run = filter.run(filter.start(state, position=0.3, velocity=0.5), record)
    smooth = filter.smooth(run)
    return run, smooth, kalman(Oscillator(), H, readings, present, np.diag([0.3, 0.5]) ** 2)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_of_a_linear_system_it_is_kalmans(rule):
    """Means, covariances and smoothed ones, with samples that are missing and two rates, up to
    rounding. NaN is a number nowhere."""
    run, smooth, (forward, log, back) = of_kalman(RULES[rule])
    for found, expected in ((run, forward), (smooth, back)):
        for k, (x, P) in enumerate(expected):
            mean = np.concatenate([found.q[k], found.v[k]])
            np.testing.assert_allclose(mean, x, rtol=0, atol=1e-12)
            np.testing.assert_allclose(found.beliefs.P[k], P, rtol=0, atol=1e-12)
    np.testing.assert_allclose(run.log_likelihood, log, rtol=1e-12)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves((run, smooth)))


@pytest.mark.slow
def test_steps_are_those_of_a_run():
    """A step by hand, with a dictionary of what was read, and in a batch."""
    filter = oscillator_filter(estimate.Extended())
    state = mbd.State(0.0, np.ones(1), np.zeros(1))
    start = filter.start(state, position=0.3, velocity=0.5)
    readings = np.array([[0.9, 0.1], [1.1, 0.0]])
    present = np.array([[True, True], [True, False]])
    record = identify.Record([0.0, H], readings, state, weights=present)
    run = filter.run(start, record)
    belief, _ = filter.update(start, readings[0])
    belief, innovation = filter.step(belief, {"x": 1.1})
    np.testing.assert_allclose(belief.P, run.last.P, rtol=0, atol=1e-15)
    np.testing.assert_allclose(innovation.nis, run.innovations.nis[1], rtol=1e-12)
    many = jax.tree.map(lambda x: jnp.stack([x, x]), start)
    found, _ = jax.vmap(filter.update)(many, jnp.asarray(readings))
    np.testing.assert_allclose(found.q[0], run.q[0], rtol=0, atol=1e-15)


def test_singular_covariances():
    """L L^T = P and P W^T W P = P for every rank; a negative direction is seen."""
    rng = np.random.default_rng(1)
    factored = jax.jit(factor)
    for rank in (4, 2, 0):
        A = rng.normal(size=(4, rank))
        A[0] = 0
        P = A @ A.T
        found = jax.device_get(factored(P))
        L, W = np.asarray(found.L), np.asarray(found.W)
        np.testing.assert_allclose(L @ L.T, P, rtol=0, atol=1e-14)
        np.testing.assert_allclose(P @ W.T @ W @ P, P, rtol=0, atol=1e-12)
        assert found.valid and not found.regular
    assert not factored(np.diag([1.0, 0.0, 1.0, -1e-3])).valid


@pytest.mark.slow
def test_failures_are_told():
    """A reading that is NaN, a covariance that is negative, and a system that is: each has its
    verdict, and no number is NaN. After a failure the belief stays."""
    filter = oscillator_filter(estimate.Unscented())
    start = filter.start(mbd.State(0.0, np.ones(1), np.zeros(1)), position=0.3, velocity=0.5)
    belief, innovation = filter.step(start, np.array([np.nan, 0.1]))
    assert innovation.result == mbd.RESULTS.nonfinite_reading
    assert belief.result == mbd.RESULTS.successful
    expected, _ = filter.step(start, {"v": 0.1})
    np.testing.assert_allclose(belief.P, expected.P, rtol=0, atol=1e-15)
    bad = eqx.tree_at(lambda b: b.P, start, jnp.diag(jnp.array([1.0, -1.0])))
    failed, _ = filter.step(bad, np.zeros(2))
    assert failed.result == mbd.RESULTS.covariance_indefinite
    again, _ = filter.step(failed, np.zeros(2))
    assert again.result == mbd.RESULTS.covariance_indefinite and again.t == 2 * H
    np.testing.assert_array_equal(again.q, start.q)
    exact = eqx.tree_at(lambda f: f.sigma, filter, (jnp.array(0.0), jnp.array(0.2)))
    known = eqx.tree_at(lambda b: b.P, start, jnp.zeros((2, 2)))
    failed, _ = exact.update(known, np.zeros(2))
    assert failed.result == mbd.RESULTS.covariance_indefinite
    wild = eqx.tree_at(lambda f: f.rig.model.system.mass, filter, jnp.array(np.nan))
    failed, _ = wild.step(start, np.zeros(2))
    assert failed.result == mbd.RESULTS.mass_matrix_indefinite
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(failed))


@pytest.mark.slow
def test_bias_of_a_sensor():
    """A constant bias of a linear system, among the parameters: Kalman's filter with one more
    state. Sensors that lag are refused by name."""
    bias = identify.Parameter(0.0, identify.Free(1.0), 0.4)
    rate = identify.Calibrated(lambda sample: sample.v)
    filter = estimate.Filter(
        Oscillator(),
        {"x": lambda sample: sample.q, "v": rate},
        {"x": 0.1, "v": 0.2},
        dt=H,
        parameters={"sensors[v].bias": bias},
    )
    state = mbd.State(0.0, np.ones(1), np.zeros(1))
    start = filter.start(state, position=0.3, velocity=0.5)
    belief, _ = filter.update(start, np.array([1.2, 0.3]))
    P, H3, R = (
        np.diag([0.09, 0.25, 0.16]),
        np.array([[1.0, 0, 0], [0, 1, 1]]),
        np.diag([0.01, 0.04]),
    )
    K = P @ H3.T @ np.linalg.inv(H3 @ P @ H3.T + R)
    shift = K @ np.array([0.2, 0.3])
    found = np.concatenate([belief.q - 1, belief.v, belief.free])
    np.testing.assert_allclose(found, shift, rtol=0, atol=1e-14)
    np.testing.assert_allclose(belief.P, P - K @ H3 @ P, rtol=0, atol=1e-14)
    np.testing.assert_allclose(filter.values(belief)["sensors[v].bias"], shift[2], atol=1e-14)
    late = identify.Delayed(rate, delay=0.01)
    lagging = estimate.Filter(Oscillator(), {"v": late}, 0.2, dt=H)
    with pytest.raises(ValueError, match="A sensor that lags"):
        lagging.update(start, np.array([0.3]))


@pytest.mark.slow
def test_gate():
    """An outlier is told and changes nothing; other readings count as without a gate."""
    state = mbd.State(0.0, np.ones(1), np.zeros(1))
    free, gated = (oscillator_filter(estimate.Extended(), gate=x) for x in (None, 0.999))
    start = free.start(state, position=0.3, velocity=0.5)
    away, innovation = gated.update(start, np.array([9.0, 0.0]))
    assert not innovation.accepted and innovation.nis > 100
    np.testing.assert_array_equal(away.P, start.P)
    expected, _ = free.update(start, np.array([1.1, 0.0]))
    found, innovation = gated.update(start, np.array([1.1, 0.0]))
    assert innovation.accepted
    np.testing.assert_allclose(found.q, expected.q, rtol=0, atol=1e-15)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["ekf", "ukf"])
def test_gradient_of_the_likelihood(rule):
    """With respect to noises, a spread and parameters, of which one moves the constraint: against
    differences, in both modes. A guide with constraints, along which the motion is known."""
    system = GuidedMass()
    readings = np.array([[0.40, 0.1], [0.42, 0.0], [0.37, -0.1], [0.30, -0.2], [0.2, -0.3]])
    along = np.array([np.cos(0.6), np.sin(0.6)])

    def log_likelihood(x):
        sigma, acceleration, stiffness, angle = x[0], x[1], x[2], x[3]
        own = eqx.tree_at(lambda s: (s.stiffness, s.angle), system, (stiffness, angle))
        filter = estimate.Filter(
            own,
            {"x": lambda sample: sample.q[:1], "v": lambda sample: sample.v[1:]},
            {"x": sigma, "v": 0.2},
            dt=0.05,
            process_noise=estimate.ContinuousNoise(acceleration),
            rule=RULES[rule],
        )
        state = mbd.State(0.0, 0.5 * along, 0.1 * along)
        start = filter.start(state, position=0.1, velocity=sigma, freedoms=1)
        record = identify.Record(0.05 * np.arange(5), readings, state)
        return filter.run(start, record).log_likelihood

    found = jax.jit(lambda x: both_modes(log_likelihood, x))
    x, step = np.array([0.05, 0.3, 5.0, 0.6]), 1e-5
    _, forward, reverse = found(x)
    np.testing.assert_allclose(forward, reverse, rtol=1e-9)
    differences = [
        (found(x + step * one)[0] - found(x - step * one)[0]) / (2 * step) for one in np.eye(4)
    ]
    np.testing.assert_allclose(forward, differences, rtol=1e-6)

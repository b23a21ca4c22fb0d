"""The most probable motion of a record and of a window, against least squares by SciPy, and against
Kalman's filter."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.optimize
from estimated import drawn, nees, truth
from helpers import OPTIMISED, Oscillator
from jaxtyping import Array
from scipy.stats import chi2
from test_bodies import spinner_filter
from test_filters import H, kalman, oscillator_filter

import jaxmbd as mbd
from jaxmbd import estimate, identify

slow = pytest.mark.slow
STEP, COUNT, NOISE, ACCELERATION = 0.1, 15, 0.05, 0.8
SPREAD = np.array([0.5, 0.7])


class Pendulum(mbd.AbstractSystem):
    """By its angle; mass and length are 1."""

    damping: Array

    def mass_matrix(self, q):
        return jnp.eye(1)

    def force(self, t, q, v, u):
        return -9.81 * jnp.sin(q) - self.damping * v


class Rod(mbd.AbstractSystem):
    """The same, by x and y."""

    damping: Array

    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        return jnp.array([0.0, -9.81]) - self.damping * v

    def constraint(self, q, t):
        return q @ q - 1


def filter_of(system, read, **options):
    noise = estimate.ContinuousNoise(ACCELERATION)
    return estimate.Filter(
        system, {"x": read}, {"x": NOISE}, dt=STEP, process_noise=noise, **options
    )


@pytest.fixture(scope="module")
def of_angle():
    """The filter of a pendulum whose height is not seen, a start that is far off, a record, and the
    most probable motion by SciPy `(n, 2)`."""
    filter = filter_of(Pendulum(jnp.array(0.3)), lambda sample: jnp.sin(sample.q))
    start = filter.start(mbd.State(0.0, np.array([0.6]), np.zeros(1)), position=0.5, velocity=0.7)

    def step(x):
        point = start.point._replace(q=x[:1], v=x[1:])
        later = filter.predict(start.replace(point, P=jnp.zeros((2, 2))))
        return jnp.concatenate([later.q, later.v])

    true = [np.array([1.2, 0.5])]
    later = jax.jit(step)
    for _ in range(COUNT - 1):
        true.append(np.asarray(later(jnp.asarray(true[-1]))))
    rng = np.random.default_rng(0)
    y = np.sin(np.array(true)[:, 0]) + NOISE * rng.normal(size=COUNT)
    h = STEP
    Q = ACCELERATION**2 * np.array([[h**3 / 3, h**2 / 2], [h**2 / 2, h]])
    W, each = np.linalg.inv(np.linalg.cholesky(Q)), jax.jit(jax.vmap(step))

    def residuals(x):
        x = x.reshape(COUNT, 2)
        pushed = (x[1:] - np.asarray(each(jnp.asarray(x[:-1])))) @ W.T
        return np.concatenate(
            [(x[0] - [0.6, 0.0]) / SPREAD, pushed.ravel(), (np.sin(x[:, 0]) - y) / NOISE]
        )

    tight = dict(xtol=1e-15, ftol=1e-15, gtol=1e-12)
    found = scipy.optimize.least_squares(residuals, np.array(true).ravel(), **tight)
    times = STEP * np.arange(COUNT)
    record = identify.Record(times, y, mbd.State(0.0, np.array([0.6]), np.zeros(1)))
    return filter, start, record, found.x.reshape(COUNT, 2), residuals


@slow
def test_most_probable_motion(of_angle):
    """It is that of least squares, from which the smoother is far off."""
    filter, start, record, x, residuals = of_angle
    run = filter.run(start, record)
    found = filter.smooth(run, record, iterations=12)
    mbd.raise_if_failed(found)
    np.testing.assert_allclose(np.concatenate([found.q, found.v], axis=1), x, atol=1e-7)
    once = filter.smooth(run)
    assert np.max(np.abs(once.q[:, 0] - x[:, 0])) > 0.1
    unfinished = filter.smooth(run, record, iterations=1)
    assert unfinished.result == mbd.RESULTS.max_iterations_reached
    # The covariance is the inverse of that of the squares.
    J = scipy.optimize.approx_fprime(x.ravel(), residuals, 1e-7)
    P = np.linalg.inv(J.T @ J)
    for k in (0, 7, COUNT - 1):
        own = np.s_[2 * k : 2 * k + 2]
        np.testing.assert_allclose(found.beliefs.P[k], P[own, own], rtol=1e-4)


@slow
def test_a_window_of_the_whole_record(of_angle):
    """At its end it believes what is most probable. A shorter one comes near, a filter less so."""
    filter, start, record, x, _ = of_angle
    off = {}
    for samples in (3, COUNT + 2):
        run = estimate.MovingHorizon(filter, samples, iterations=4).run(start, record)
        mbd.raise_if_failed(run)
        off[samples] = abs(run.q[-1, 0] - x[-1, 0])
    assert off[COUNT + 2] < 1e-7 and off[3] < 3e-4
    hasty = estimate.MovingHorizon(filter, 3, iterations=1).run(start, record)
    assert hasty.result == mbd.RESULTS.max_iterations_reached
    assert abs(filter.run(start, record).q[-1, 0] - x[-1, 0]) > 2e-3


@slow
def test_constrained_windows_are_those_of_the_angle(of_angle):
    """Both are the same on the circle, up to the third power of an unlikely deviation."""
    filter, _, record, _, _ = of_angle
    rod = filter_of(Rod(jnp.array(0.3)), lambda sample: sample.q[:1])
    start = mbd.State(0.0, np.array([1.15]), np.zeros(1))
    state = mbd.State(0.0, np.array([np.sin(1.15), -np.cos(1.15)]), np.zeros(2))
    of_angle, of_rod = (
        estimate.MovingHorizon(each, 4, iterations=3).run(
            each.start(first, position=0.1, velocity=0.7), record
        )
        for each, first in ((filter, start), (rod, state))
    )
    mbd.raise_if_failed(of_rod)
    angle = np.arctan2(of_rod.q[:, 0], -of_rod.q[:, 1])
    np.testing.assert_allclose(angle, of_angle.q[:, 0], atol=1e-3)
    sigma = np.sqrt(of_angle.beliefs.P[:, 0, 0])
    np.testing.assert_allclose(np.sqrt(of_rod.beliefs.P[:, 0, 0]), sigma, rtol=0.01)
    np.testing.assert_allclose(np.linalg.norm(of_rod.q, axis=1), 1, atol=1e-10)


@slow
def test_of_a_linear_system_it_is_kalmans_filter():
    """In windows that are not full and that are; with missing samples and two rates; over a record
    and by steps, in a batch."""
    rng, n = np.random.default_rng(0), 12
    readings, present = rng.normal(size=(n, 2)), rng.random((n, 2)) > 0.2
    filter = oscillator_filter(estimate.Extended())
    state = mbd.State(0.0, np.ones(1), np.zeros(1))
    record = identify.Record(H * np.arange(n), readings, state, weights=present)
    start = filter.start(state, position=0.3, velocity=0.5)
    horizon = estimate.MovingHorizon(filter, 4)
    run = horizon.run(start, record)
    P = np.diag([0.3, 0.5]) ** 2
    expected, log, back = kalman(Oscillator(), H, readings, present, P)
    for k, (x, P) in enumerate(expected):
        np.testing.assert_allclose(np.concatenate([run.q[k], run.v[k]]), x, atol=1e-12)
        np.testing.assert_allclose(run.beliefs.P[k], P, rtol=0, atol=1e-12)
    np.testing.assert_allclose(run.log_likelihood, log, rtol=1e-11)
    smooth = filter.smooth(run)
    np.testing.assert_allclose(smooth.q[0, 0], back[0][0][0], atol=1e-12)

    window, _ = filter.update(start, readings[0], present=present[0])
    many = jax.tree.map(lambda x: jnp.stack([x, x]), horizon.start(window))
    step = jax.jit(jax.vmap(horizon.step, in_axes=(0, None, None)))
    for y, there in zip(readings[1:], present[1:], strict=True):
        many, innovation = step(many, jnp.where(there, y, jnp.nan), None)
    np.testing.assert_allclose(many.belief.q[1], run.q[-1], atol=1e-12)
    np.testing.assert_allclose(innovation.nis[0], run.innovations.nis[-1], rtol=1e-9)


@slow
def test_errors_from_a_start_half_a_radian_off():
    """They are as large as a window believes, where the extended filter believes them to be a
    third."""
    filter, start = spinner_filter(estimate.Extended(), 0.5)
    horizon = estimate.MovingHorizon(filter, 6, iterations=3)
    runs, steps = 200, 6

    def run(key):
        of_start, of_motion = jr.split(key)
        true, readings = truth(filter, drawn(filter, start, of_start), of_motion, steps)

        def one(both, y):
            belief, _ = filter.step(both[0], y)
            window, _ = horizon.step(both[1], y)
            return (belief, window), None

        both, _ = jax.lax.scan(one, (start, horizon.start(start)), readings)
        last = jax.tree.map(lambda x: x[-1], true)
        return [nees(filter, each, last)[0] for each in (both[0], both[1].belief)]

    of_all = jax.jit(lambda keys: jax.lax.map(run, keys), compiler_options=OPTIMISED)
    of_filter, of_window = (np.sum(x) for x in of_all(jr.split(jr.key(5), runs)))
    low, high = chi2.ppf([1e-5, 1 - 1e-5], 6 * runs)
    assert low < of_window < high, of_window / 6 / runs
    assert of_filter > 5 * 6 * runs


class Pushed(Oscillator):
    def force(self, t, q, v, u):
        return Oscillator.force(self, t, q, v, None) + u


@slow
def test_controls_of_a_window():
    """A window remembers the numbers of each step."""
    filter = estimate.Filter(Pushed(), {"x": lambda sample: sample.q}, 0.1, dt=H)
    start = filter.start(mbd.State(0.0, np.ones(1), np.zeros(1)), position=0.3, velocity=0.5)
    horizon = estimate.MovingHorizon(filter, 3)
    belief, window = start, horizon.start(start, u=np.zeros(1))
    for k, y in enumerate([0.9, 1.1, 0.8, 0.7]):
        u = np.array([10.0 * k])
        belief, _ = filter.step(belief, np.array([y]), u)
        window, _ = horizon.step(window, np.array([y]), u)
        np.testing.assert_allclose(window.belief.q, belief.q, rtol=0, atol=1e-12)
        assert window.change < 1e-9
    assert "window of 3 times" in str(window)
    with pytest.raises(ValueError, match="A window remembers its controls"):
        horizon.step(horizon.start(start, u=None), np.array([0.9]), np.zeros(1))


@slow
def test_failed_windows_are_told():
    filter = oscillator_filter(estimate.Extended())
    start = filter.start(mbd.State(0.0, np.ones(1), np.zeros(1)), position=0.3, velocity=0.5)
    horizon = estimate.MovingHorizon(filter, 3)
    bad = start.replace(start.point, P=jnp.diag(jnp.array([1.0, jnp.nan])))
    window, _ = horizon.step(horizon.start(bad), np.zeros(2))
    assert window.result != mbd.RESULTS.successful
    assert np.all(np.isfinite(window.belief.q))


def test_what_a_window_refuses():
    with pytest.raises(ValueError, match=r"needs derivatives .* not `Unscented`"):
        estimate.MovingHorizon(oscillator_filter(estimate.Unscented()))
    with pytest.raises(ValueError, match="without it"):
        estimate.MovingHorizon(oscillator_filter(estimate.Extended(), gate=0.99))

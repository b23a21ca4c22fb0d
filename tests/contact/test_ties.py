"""Derivatives where impacts fall on steps, on saved times and on each other, as they do with round
numbers."""

import functools

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import Oscillator, assert_verdicts
from jaxtyping import Array

import jaxmbd as mbd

STEPS = 50
SIDES = -1e-9, 1e-9  # times just before and after the end [s]


class BetweenWalls(mbd.AbstractSystem):
    """Two points, each of which moves along a line of length 1 between walls."""

    restitution: Array

    def mass_matrix(self, q):
        return jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.zeros_like(v)

    def gap(self, q, t):
        return jnp.concatenate([q, 1 - q])

    @property
    def contact_law(self):
        return mbd.ContactLaw(restitution=self.restitution)


def simulated(p):
    """q and v at the end, of p = (q, v, restitution, dt), the steps in which impacts were left, and
    whether that was the end."""
    sol = mbd.simulate(
        BetweenWalls(p[4]),
        mbd.ContactImpulse(impacts=mbd.Located(2, strict=True)),
        mbd.State(0.0, p[:2], p[2:4]),
        dt=p[5],
        num_steps=STEPS,
        throw=False,
    )
    return jnp.concatenate([sol.q[0], sol.v[0]]), sol


@functools.cache
def with_derivatives(derivative):
    def both(p):
        value, sol = simulated(p)
        return value, (value, sol.result, sol.stats["unlocated_steps"])

    return jax.jit(jax.vmap(derivative(both, has_aux=True)))


def exact(p, after=0.0):
    """The same in closed form, for at most six impacts, and some time `after` the end."""
    q, v, left = p[:2], p[2:4], (STEPS * p[5] + after) * jnp.ones(2)
    for _ in range(6):
        wall = jnp.where(v > 0, 1.0, 0.0)
        flight = (wall - q) / v
        hits = flight < left
        q = jnp.where(hits, wall, q)
        left, v = jnp.where(hits, left - flight, left), jnp.where(hits, -p[4] * v, v)
    return jnp.concatenate([q + v * left, v])


CASES = 40


def round_numbers(count):
    """Random cases on a grid of round numbers."""
    rng = np.random.default_rng(4)
    return np.stack(
        [
            *rng.choice(np.arange(1, 10) / 10, (2, count)),
            *rng.choice([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0], (2, count)),
            rng.choice([1.0, 0.5], count),
            rng.choice([0.01, 0.02, 0.025, 0.04], count),
        ],
        axis=1,
    )


MODES = [jax.jacrev, pytest.param(jax.jacfwd, marks=pytest.mark.slow)]


@pytest.mark.parametrize("derivative", MODES)
def test_impacts_at_round_numbers(derivative):
    """Most of 40 cases have an impact at the end of a step, many have two at once, and some have
    one at the end of the motion, where the derivative is that of either side."""
    p = round_numbers(CASES)
    found, (value, result, _) = with_derivatives(derivative)(p)
    assert_verdicts(result, mbd.RESULTS.successful)
    found, value = np.asarray(found), np.asarray(value)
    sides = jax.jit(jax.vmap(lambda p: [(exact(p, s), jax.jacfwd(exact)(p, s)) for s in SIDES]))
    (before, d_before), (_, d_after) = jax.device_get(sides(p))
    np.testing.assert_allclose(value[:, :2], before[:, :2], atol=1e-8)
    near = [np.all(np.abs(found - d) < 1e-6, axis=-1) for d in (d_before, d_after)]
    assert np.all(near[0] | near[1])
    assert np.sum(~(near[0] & near[1])) < CASES / 2


@pytest.mark.slow
def test_second_derivatives_between_steps():
    """Of impacts that do not coincide, also where one ends a step."""

    def hessian(motion):
        return jax.jit(jax.vmap(jax.jacfwd(jax.grad(lambda p: motion(p)[0]))))

    p = jnp.array([[0.3, 0.52, -1.0, 0.7, 0.8, 0.01], [0.37, 0.52, 1.3, -0.7, 0.5, 0.01]])
    found = hessian(lambda p: simulated(p)[0])(p)
    np.testing.assert_allclose(found, hessian(exact)(p), rtol=1e-6, atol=1e-6)


# Three impacts fall into the second of steps of 2.4 s, at 2.5, 3.5 and 4.5 s.
SLOW_STEPS = np.array([0.5, 0.5, 1.0, 0.01, 1.0, 2.4])


def test_more_impacts_than_are_located_are_an_error():
    """In the program of the test above."""
    p = round_numbers(CASES)
    p[7] = SLOW_STEPS
    _, (value, result, unlocated) = with_derivatives(jax.jacrev)(p)
    expected = CASES * [mbd.RESULTS.successful]
    expected[7] = mbd.RESULTS.impacts_unlocated
    assert_verdicts(result, expected)
    assert np.all(np.isfinite(value))
    np.testing.assert_array_equal(unlocated, 0)


@pytest.mark.slow
@pytest.mark.parametrize("n, unlocated", [(4, 0), (2, 1)])
def test_more_impacts_than_are_located_can_be_allowed(n, unlocated):
    sol = mbd.simulate(
        BetweenWalls(jnp.array(1.0)),
        mbd.ContactImpulse(impacts=mbd.Located(n, strict=False)),
        mbd.State(0.0, jnp.asarray(SLOW_STEPS[:2]), jnp.asarray(SLOW_STEPS[2:4])),
        dt=2.4,
        num_steps=2,
        throw=False,
    )
    assert int(sol.stats["unlocated_steps"]) == unlocated
    assert_verdicts(sol.result, mbd.RESULTS.successful)


def test_derivatives_by_saved_times():
    """Whether they are times of the grid or not, they are the velocities and accelerations. If the
    step changes, the motion at a given time does not."""
    start, system = mbd.State(0.0, np.ones(1), np.zeros(1)), Oscillator(1.0, 1.0, 0.0)

    def motion(ts, dt):
        saveat = diffrax.SaveAt(ts=ts)
        sol = mbd.simulate(system, mbd.UdwadiaKalaba(), start, dt=dt, num_steps=10, saveat=saveat)
        return sol.q[:, 0], sol.v[:, 0]

    ts = np.linspace(0.0, 1.0, 201)  # every twentieth is one of the grid
    modes = lambda *x: [d(motion, (0, 1))(*x) for d in (jax.jacfwd, jax.jacrev)]  # noqa: E731
    for (q_ts, q_dt), (v_ts, v_dt) in jax.jit(modes)(ts, np.array(0.1)):
        np.testing.assert_allclose(q_ts, np.diag(-np.sin(ts)), atol=1e-5)
        np.testing.assert_allclose(v_ts, np.diag(-np.cos(ts)), atol=1e-5)
        np.testing.assert_allclose(q_dt, 0, atol=1e-4)
        np.testing.assert_allclose(v_dt, 0, atol=1e-4)

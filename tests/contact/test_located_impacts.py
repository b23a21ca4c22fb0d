"""Impacts that are located within a step: at its ends, in mechanisms, on each other, and where
derivatives by saved times are those of the motion."""

import functools
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_systems import Facets, bounced
from helpers import G, Oscillator, assert_verdicts
from jaxtyping import Array

import jaxmbd as mbd

BESIDE, STACKED = np.eye(2), np.array([[1.0, 0.0], [-1.0, 1.0]])


@jax.jit
@functools.partial(jax.vmap, in_axes=(None, 0, 0, 0, 0))
def balls(A, q, v, restitution, dt):
    """150 steps of two balls that fall along a line, with the gaps A q."""
    system = Facets(A, jnp.zeros(2), mbd.ContactLaw(restitution=restitution), G)
    method, saveat = mbd.ContactImpulse(impacts=mbd.Located(2)), diffrax.SaveAt(steps=1)
    state = mbd.State(0.0, q, v)
    return mbd.simulate(system, method, state, dt=dt, num_steps=150, saveat=saveat, throw=False)


# A fall of 1 m ends after so many steps, or that many m from there.
FALL_STEPS = np.concatenate([np.arange(20, 60, 3), np.repeat([23, 41], 7)])
DISTANCES = [*np.zeros(14), *2 * [-1e-9, -1e-10, -1e-12, 1e-12, 1e-10, 9e-10, 2e-9]]
DT = (np.sqrt(2 / G) - np.array(DISTANCES) / np.sqrt(2 * G)) / FALL_STEPS
E = np.tile([1.0, 0.8], (DT.size, 1))


def test_impacts_at_the_end_of_a_step():
    """Of two balls at once, or nearly so, an elastic one keeps its energy, and one of e = 0.8
    follows its closed form."""
    for later in (0.0, 5e-10, 3e-9):
        height = np.ones_like(E) + [later, 0.0]
        sol = jax.device_get(balls(BESIDE, height, 0 * height, E, DT))
        assert_verdicts(sol.result, mbd.RESULTS.successful)
        np.testing.assert_allclose(G * sol.q[..., 0] + sol.v[..., 0] ** 2 / 2, G, rtol=3e-8)
        np.testing.assert_allclose(sol.q[..., 1], bounced(sol.t, 1.0, 0.8), atol=3e-8)


def test_closed_at_the_start():
    """Closing, it bounces at once; at rest, it rests, and what falls on it bounces as on ground."""
    none = np.zeros_like(E)
    thrown = jax.device_get(balls(BESIDE, none, none - 2, E, DT))
    for i in (0, 1):
        exact = bounced(thrown.t, 0.0, E[0, i], 2.0)
        np.testing.assert_allclose(thrown.q[:, :60, i], exact[:, :60], atol=1e-8)
    fallen = jax.device_get(balls(STACKED, none + [0, 1], none, E, DT))
    np.testing.assert_allclose(fallen.q[..., 0], 0.0, atol=1e-8)
    np.testing.assert_allclose(fallen.q[..., 1], bounced(fallen.t, 1.0, 0.8), atol=3e-8)


class Arm(mbd.AbstractSystem):
    """A point of 1 kg on a circle of radius 1, its row written twice, that turns between limits at
    +-0.5 rad from the x axis, as long as it turns by less than a quarter of a circle in a step."""

    restitution: Array

    def mass_matrix(self, q):
        return jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.zeros_like(v)

    def constraint(self, q, t):
        return (q @ q - 1.0) * jnp.array([0.5, 1.0])

    def gap(self, q, t):
        angle = jnp.arctan2(q[1], q[0])
        return jnp.stack([0.5 - angle, 0.5 + angle])

    @property
    def contact_law(self):
        return mbd.ContactLaw(restitution=self.restitution)


def swing(restitution, rate, dt, steps):
    """From the middle; the motion, angles and energies."""
    state = mbd.State(0.0, jnp.array([1.0, 0.0]), rate * jnp.array([0.0, 1.0]))
    options = dict(dt=dt, num_steps=steps, saveat=diffrax.SaveAt(steps=1), throw=False)
    method = mbd.ContactImpulse(impacts=mbd.Located(3))
    sol: Any = mbd.simulate(Arm(restitution), method, state, **options)
    return sol, jnp.arctan2(sol.q[:, 1], sol.q[:, 0]), jnp.sum(sol.v**2, axis=1) / 2


def swung(t, e, rate):
    """The angle at times t in closed form."""
    times = np.cumsum(np.concatenate([[0.5 / rate], 1 / (rate * e ** np.arange(1.0, 200.0))]))
    k = np.searchsorted(times, t)
    last = np.where(k > 0, times[k - 1], -0.5 / rate)
    return (rate * e**k * (t - last) - 0.5) * (-1.0) ** k


def test_impacts_of_what_is_held_by_rows():
    """Between impacts the arm keeps its energy and stays on its rows, also where it turns by
    0.6 rad in a step; each impact leaves e^2 of it. Angles are of second order."""
    e, rate = np.array([0.5, 1.0, 1.0, 1.0, 0.9]), np.array([5.0, 5.0, 60.0, 60.0, 60.0])
    dt = np.array([1e-2, 1e-2, 1e-3, 1e-2, 1e-2])
    swings = jax.jit(jax.vmap(lambda *x: swing(*x, 200)))
    sol, angles, energies = jax.device_get(swings(e, rate, dt))
    assert_verdicts(sol.result, mbd.RESULTS.successful)
    assert sol.phi_norm.max() < 1e-9 and sol.phidot_norm.max() < 1e-9
    assert np.abs(angles).max() < 0.5 + 1e-9
    start = rate**2 / 2
    turns = np.sign(sol.q[..., 0] * sol.v[..., 1] - sol.q[..., 1] * sol.v[..., 0])
    k = np.cumsum(np.abs(np.diff(turns, axis=1, prepend=1)) / 2, axis=1)
    np.testing.assert_array_less([2, 9, 9, 90, 20], k[:, -1])
    np.testing.assert_allclose(energies, start[:, None] * e[:, None] ** (2 * k), rtol=1e-9)
    for i in (0, 1, 2):
        error = angles[i] - swung(sol.t[i], e[i], rate[i])
        assert np.all(np.abs(error) < 0.2 * (rate[i] * dt[i]) ** 2 * rate[i] * sol.t[i])


@pytest.mark.slow
def test_derivatives_at_the_limits_of_a_joint():
    """Those of the energy after k impacts, (rate e^k)^2 of which no step takes part, with respect
    to restitution, rate and step."""

    def energy(p):
        energies = swing(*p, 30)[2]
        return energies[-1], energies[-1]

    p = np.array([[0.9, 5.1, 1e-2], [0.95, 60.0, 2e-3], [0.95, 60.0, 1e-2]])
    e, rate, dt = p.T
    start = rate**2 / 2
    found, value = jax.device_get(jax.jit(jax.vmap(jax.jacrev(energy, has_aux=True)))(p))
    k = np.round(np.log(value / start) / np.log(e) / 2)
    expected = value[:, None] * np.stack([2 * k / e, 2 / rate, 0 * dt], axis=1)
    assert np.max(np.abs(found - expected) * p / value[:, None]) < 1e-6


STEPS, CASES = 50, 40
WALLS = np.concatenate([np.eye(2), -np.eye(2)])
# Three impacts fall into the second of steps of 2.4 s, at 2.5, 3.5 and 4.5 s.
SLOW_STEPS = np.array([0.5, 0.5, 1.0, 0.01, 1.0, 2.4])


def simulated(p, impacts=mbd.Located(2, strict=True), steps=STEPS):
    """q and v at the end, of p = (q, v, restitution, dt), of two points, each of which moves along
    a line of length 1 between walls."""
    system = Facets(WALLS, jnp.array([0.0, 0.0, 1.0, 1.0]), mbd.ContactLaw(restitution=p[4]))
    method, state = mbd.ContactImpulse(impacts=impacts), mbd.State(0.0, p[:2], p[2:4])
    sol = mbd.simulate(system, method, state, dt=p[5], num_steps=steps, throw=False)
    value = jnp.concatenate([sol.q[0], sol.v[0]])
    return value, (value, sol.result, sol.stats["unlocated_steps"])


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


def test_impacts_at_round_numbers():
    """Most of 40 random cases have an impact at the end of a step, many have two at once, and some
    have one at the end of the motion, where the derivative is that of either side. In one more,
    more impacts fall into a step than are located, which is an error."""
    rng = np.random.default_rng(4)
    p = np.stack(
        [
            *rng.choice(np.arange(1, 10) / 10, (2, CASES)),
            *rng.choice([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0], (2, CASES)),
            rng.choice([1.0, 0.5], CASES),
            rng.choice([0.01, 0.02, 0.025, 0.04], CASES),
        ],
        axis=1,
    )
    both = jax.jit(jax.vmap(jax.jacrev(simulated, has_aux=True)))
    found, (value, result, unlocated) = jax.device_get(both(np.concatenate([p, [SLOW_STEPS]])))
    assert_verdicts(result, CASES * [mbd.RESULTS.successful] + [mbd.RESULTS.impacts_unlocated])
    assert np.all(np.isfinite(value)) and not np.any(unlocated)
    sides = -1e-9, 1e-9  # times just before and after the end [s]
    either = jax.jit(jax.vmap(lambda p: [(exact(p, s), jax.jacfwd(exact)(p, s)) for s in sides]))
    (before, d_before), (_, d_after) = jax.device_get(either(p))
    np.testing.assert_allclose(value[:-1, :2], before[:, :2], atol=1e-8)
    near = [np.all(np.abs(found[:-1] - d) < 1e-6, axis=-1) for d in (d_before, d_after)]
    assert np.all(near[0] | near[1])
    assert np.sum(~(near[0] & near[1])) < CASES / 2


@pytest.mark.slow
def test_second_derivatives_between_steps():
    """Of impacts that do not coincide, also where one ends a step."""

    def hessian(motion):
        return jax.jit(jax.vmap(jax.jacfwd(jax.grad(lambda p: motion(p)[0]))))

    p = np.array([[0.3, 0.52, -1.0, 0.7, 0.8, 0.01], [0.37, 0.52, 1.3, -0.7, 0.5, 0.01]])
    found = hessian(lambda p: simulated(p)[0])(p)
    np.testing.assert_allclose(found, hessian(exact)(p), rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_more_impacts_than_are_located_can_be_allowed():
    _, (_, result, unlocated) = jax.jit(lambda p: simulated(p, mbd.Located(2), 2))(SLOW_STEPS)
    assert_verdicts(result, mbd.RESULTS.successful)
    assert int(unlocated) == 1


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

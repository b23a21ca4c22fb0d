"""Impacts that are located within a step: at its ends, and in mechanisms."""

import functools
from typing import Any

import diffrax
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_systems import bounced
from jaxtyping import Array

import jaxmbd as mbd

G = 9.81
FALL = np.sqrt(2 / G)  # from a height of 1 m


class Balls(mbd.AbstractSystem):
    """Two points that fall along a line, with the gaps A q."""

    A: Array
    restitution: Array

    def mass_matrix(self, q):
        return jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        return -G * jnp.ones_like(v)

    def gap(self, q, t):
        return self.A @ q

    @property
    def contact_law(self):
        return mbd.ContactLaw(restitution=self.restitution)


BESIDE = np.eye(2)
STACKED = np.array([[1.0, 0.0], [-1.0, 1.0]])


@jax.jit
@functools.partial(jax.vmap, in_axes=(None, 0, 0, 0, 0))
def balls(A, q, v, restitution, dt):
    """150 steps."""
    return mbd.simulate(
        Balls(A, restitution),
        mbd.ContactImpulse(impacts=mbd.Located(2)),
        mbd.State(0.0, q, v),
        dt=dt,
        num_steps=150,
        saveat=diffrax.SaveAt(t0=True, steps=1),
        throw=False,
    )


def steps_of_ties():
    """So that a fall of 1 m ends at the end of a step, or that many m from it."""
    ties = [(0.0, n) for n in range(20, 60, 3)]
    distances = (-1e-9, -1e-10, -1e-12, 1e-12, 1e-10, 9e-10, 2e-9)
    ties += [(x, n) for x in distances for n in (23, 41)]
    distance, n = map(np.array, zip(*ties, strict=True))
    return (FALL - distance / np.sqrt(2 * G)) / n


DT = steps_of_ties()
E = np.tile([1.0, 0.8], (DT.size, 1))
ZERO = np.zeros_like(DT)


def test_impacts_at_the_end_of_a_step():
    """Of two balls at once, or nearly so, an elastic one keeps its energy, and one of e = 0.8
    follows its closed form."""
    for later in (0.0, 5e-10, 3e-9):
        height = np.stack([ZERO + 1 + later, ZERO + 1], axis=-1)
        sol = jax.device_get(balls(BESIDE, height, 0 * height, E, DT))
        helpers.assert_verdicts(sol.result, mbd.RESULTS.successful)
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
    start = jnp.array([1.0, 0.0]), rate * jnp.array([0.0, 1.0])
    sol: Any = mbd.simulate(
        Arm(restitution),
        mbd.ContactImpulse(impacts=mbd.Located(3)),
        mbd.State(0.0, *start),
        dt=dt,
        num_steps=steps,
        saveat=diffrax.SaveAt(steps=1),
        throw=False,
    )
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
    helpers.assert_verdicts(sol.result, mbd.RESULTS.successful)
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

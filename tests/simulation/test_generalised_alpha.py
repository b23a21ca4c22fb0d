"""The generalised-alpha method: the order of multipliers, and its damping."""

import diffrax
import equinox as eqx
import helpers as h
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxmbd as mbd

EVERY = diffrax.SaveAt(t0=True, steps=True)


@eqx.filter_jit
def run(system, method, state, dt, steps):
    return mbd.simulate(system, method, state, dt=dt, num_steps=steps, saveat=EVERY)


def test_multipliers_are_of_second_order():
    """All at once, of the rod of a pendulum whose pivot moves, by Newton's second law from the
    exact motion. Also in the first steps: a(0) fits the scheme."""
    case = h.CASES["driven_pendulum"]

    def multiplier(t):
        e = 1e-4
        q, _ = case.motion(t)
        (_, after), (_, before) = case.motion(t + e), case.motion(t - e)
        pivot = np.array([0.2 * np.sin(3 * t), 0.1 * np.cos(3 * t)])
        J, weight = 2 * (q - pivot), np.array([0.0, -1.2 * 9.81])
        return (1.2 * (after - before) / (2 * e) - weight) @ J / (J @ J)

    early, late = [], []
    for refined in (1, 2):
        dt = 0.02 / refined
        sol = run(case.system, mbd.GeneralisedAlpha(0.7), case.state, np.asarray(dt), 16)
        for errors, at in ((early, 2 * refined), (late, 8 * refined)):
            q, v = case.motion(dt * at)
            pairs = ((sol.q, q), (sol.v, v), (sol.multipliers, multiplier(dt * at)))
            errors.append([np.linalg.norm(np.asarray(x)[at] - exact) for x, exact in pairs])
        assert np.max(np.asarray(sol.phi_norm)) < 1e-14
        assert np.max(np.asarray(sol.phidot_norm)) < 1e-13
    for errors, atol in ((late, 0.15), (early, 0.3)):
        np.testing.assert_allclose(np.log2(np.divide(*errors)), 2, atol=atol)


def companion(rho, z):
    """(h^2 w, h^2 a, h v, q) after a step from those before, for q'' = -(z / h)^2 q, from the
    equations of the paper."""
    m, f = (2 * rho - 1) / (rho + 1), rho / (rho + 1)
    gamma = 0.5 + f - m
    beta = (gamma + 0.5) ** 2 / 4
    left = np.array([[1, 0, 0, z**2], [-(1 - f), 1 - m, 0, 0], [0, -gamma, 1, 0], [0, -beta, 0, 1]])
    right = np.array([[0, 0, 0, 0], [f, -m, 0, 0], [0, 1 - gamma, 1, 0], [0, 0.5 - beta, 1, 1]])
    return np.linalg.solve(left, right)


@pytest.mark.parametrize("rho", [0.0, 0.5, 1.0])
def test_steps_are_those_of_the_amplification_matrix(rho):
    """At resolved and at unresolved frequencies; and the eigenvalues of the matrix in the limit
    are rho_inf in magnitude, where the paper has them."""
    dt = 0.01
    for z in (0.3, 1e3):
        start = mbd.State(0.0, np.array([1.0]), np.array([0.5 / dt]))
        system, method = h.Oscillator(1.0, (z / dt) ** 2, 0.0), mbd.GeneralisedAlpha(rho)
        sol = run(system, method, start, np.asarray(dt), 6)
        matrix = companion(rho, z)
        # The first step has no memory; a1 is extrapolated from w0 and w1.
        q, v = np.asarray(sol.q)[:, 0], dt * np.asarray(sol.v)[:, 0]
        w, shift = -(z**2) * q, (rho - 1) / (rho + 1)
        state = np.array([w[1], w[1] + shift * (w[1] - w[0]), v[1], q[1]])
        for i in range(2, 7):
            state = matrix @ state
            np.testing.assert_allclose([v[i], q[i]], state[2:], rtol=1e-9, atol=1e-9 * z)
    largest = np.max(np.abs(np.linalg.eigvals(companion(rho, 1e6))))
    assert abs(largest - rho) < 1e-2  # they meet there in a double eigenvalue: sqrt(rounding)


class Bushing(mbd.AbstractSystem):
    """A pendulum of two masses: the second hangs on the first by a bushing, which is stiff along
    the bar and across it."""

    def mass_matrix(self, q):
        return jnp.diag(jnp.array([1.0, 1.0, 0.5, 0.5], q.dtype))

    def force(self, t, q, v, u):
        weight = -9.81 * jnp.array([0.0, 1.0, 0.0, 0.5], q.dtype)
        pull = 1e10 * (q[2:] - 1.5 * q[:2])
        return weight + jnp.concatenate([1.5 * pull, -pull])

    def constraint(self, q, t):
        return (q[:2] @ q[:2] - 1.0) / 2


@pytest.mark.slow
def test_stiff_bushing():
    """Steps of 0.01 s with a spring whose period is 3e-5 s, where RK4 needs steps below 1.3e-5 s.
    The motion is that of the compound pendulum, to second order."""
    # I = 1 + 0.5 * 1.5^2, m r = 1 + 0.5 * 1.5: the point pendulum of the length I / (m r).
    length = (1 + 0.5 * 1.5**2) / (1 + 0.5 * 1.5)
    sol = solve_ivp(
        lambda t, y: [y[1], 9.81 / length * np.cos(y[0])], (0, 0.16), [0, 0], rtol=1e-12, atol=1e-12
    )
    hanging, errors = mbd.State(0.0, np.array([1.0, 0.0, 1.5, 0.0]), np.zeros(4)), []
    for refined in (1, 2):
        found = run(Bushing(), mbd.GeneralisedAlpha(0.5), hanging, np.asarray(0.02 / refined), 16)
        q = np.asarray(found.q)
        errors.append(np.abs(q[8 * refined, 0] - np.cos(sol.y[0, -1])))
        np.testing.assert_allclose(q[-1, 2:], 1.5 * q[-1, :2], atol=1e-8)
    assert errors[1] < 1e-4 and 1.7 < np.log2(errors[0] / errors[1]) < 2.3

"""The generalised-alpha method: the order of multipliers, and its damping."""

import diffrax
import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest

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


class Spring(mbd.AbstractSystem):
    """A mass of 1 kg on a spring."""

    stiffness: jax.Array

    def mass_matrix(self, q):
        return jnp.eye(1, dtype=q.dtype)

    def force(self, t, q, v, u):
        return -self.stiffness * q


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
        system, method = Spring(np.asarray((z / dt) ** 2)), mbd.GeneralisedAlpha(rho)
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


def test_it_takes_no_scheme():
    with pytest.raises(ValueError, match="step of its own: leave out `scheme`"):
        mbd.Stepper(h.Pendulum(), mbd.GeneralisedAlpha(), scheme=mbd.RK4())
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        mbd.GeneralisedAlpha(1.2)

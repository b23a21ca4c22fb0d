"""The generalised-alpha method: its order, its damping, stiff forces, references, derivatives."""

import diffrax
import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradients import check_scalar
from scipy.integrate import solve_ivp

import jaxmbd as mbd

EVERY = diffrax.SaveAt(t0=True, steps=True)


@eqx.filter_jit
def run(system, method, state, dt, steps, control=None):
    return mbd.simulate(
        system, method, state, dt=dt, num_steps=steps, control=control, saveat=EVERY
    )


def observed_orders(errors):
    """Of each of the columns, between the last two rows, where h was halved."""
    return np.log2(np.asarray(errors[-2]) / np.asarray(errors[-1]))


def test_positions_velocities_and_multipliers_are_of_second_order():
    """The rod of a pendulum whose pivot moves, all at once; the multiplier by Newton's second law
    from the exact motion. Also in the first steps: a(0) fits the scheme."""
    case = h.CASES["driven_pendulum"]

    def multiplier(t):
        e = 1e-4
        q, _ = case.motion(t)
        (_, after), (_, before) = case.motion(t + e), case.motion(t - e)
        point = mbd.evaluate(case.system, None, t, jnp.asarray(q), jnp.asarray(before))
        J, force = np.asarray(point.rows.J), np.asarray(point.f)
        return (np.asarray(point.M) @ (after - before) / (2 * e) - force) @ J[0] / (J[0] @ J[0])

    early, late = [], []
    for refined in (1, 2):
        dt = 0.02 / refined
        sol = run(case.system, mbd.GeneralisedAlpha(0.7), case.state, dt, 16)
        for errors, at in ((early, 2 * refined), (late, 8 * refined)):
            q, v = case.motion(dt * at)
            lam = multiplier(dt * at)
            pairs = ((sol.q, q), (sol.v, v), (sol.multipliers, lam))
            errors.append([np.linalg.norm(x[at] - exact) for x, exact in pairs])
        assert np.max(sol.phi_norm) < 1e-14 and np.max(sol.phidot_norm) < 1e-13
    np.testing.assert_allclose(observed_orders(late), 2, atol=0.15)
    np.testing.assert_allclose(observed_orders(early), 2, atol=0.3)


class Stiff(mbd.AbstractSystem):
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
    left = np.array(
        [
            [1, 0, 0, z**2],
            [-(1 - f), 1 - m, 0, 0],
            [0, -gamma, 1, 0],
            [0, -beta, 0, 1],
        ]
    )
    right = np.array([[0, 0, 0, 0], [f, -m, 0, 0], [0, 1 - gamma, 1, 0], [0, 0.5 - beta, 1, 1]])
    return np.linalg.solve(left, right)


@pytest.mark.parametrize("rho", [0.0, 0.5, 1.0])
def test_steps_are_those_of_the_amplification_matrix(rho):
    """At resolved and at unresolved frequencies; and the eigenvalues of the matrix in the limit
    are rho_inf in magnitude, where the paper has them."""
    dt = 0.01
    for z in (0.3, 1e3):
        stiffness = jnp.array((z / dt) ** 2)
        start = mbd.State(0.0, jnp.array([1.0]), jnp.array([0.5 / dt]))
        sol = run(Stiff(stiffness), mbd.GeneralisedAlpha(jnp.array(rho)), start, dt, 6)
        matrix = companion(rho, z)
        # The first step has no memory; a1 is extrapolated from w0 and w1.
        q, v = np.asarray(sol.q[:, 0]), dt * np.asarray(sol.v[:, 0])
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

    stiffness: jax.Array = h.parameter(1e10)
    length: jax.Array = h.parameter(1.0)

    def mass_matrix(self, q):
        return jnp.diag(jnp.array([1.0, 1.0, 0.5, 0.5], q.dtype))

    def force(self, t, q, v, u):
        weight = -9.81 * jnp.array([0.0, 1.0, 0.0, 0.5], q.dtype)
        pull = self.stiffness * (q[2:] - 1.5 * q[:2])
        return weight + jnp.concatenate([1.5 * pull, -pull])

    def constraint(self, q, t):
        return (q[:2] @ q[:2] - self.length**2) / 2


HANGING = mbd.State(0.0, jnp.array([1.0, 0.0, 1.5, 0.0]), jnp.zeros(4))


def test_stiff_bushing():
    """Steps of 0.01 s with a spring whose period is 3e-5 s, where RK4 needs steps below 1.3e-5 s.
    The motion is that of the compound pendulum, to second order."""
    # I = 1 + 0.5 * 1.5^2, m r = 1 + 0.5 * 1.5: the point pendulum of the length I / (m r).
    equivalent = (1 + 0.5 * 1.5**2) / (1 + 0.5 * 1.5)
    errors = []
    for refined in (1, 2):
        dt = 0.02 / refined
        sol = run(Bushing(), mbd.GeneralisedAlpha(0.5), HANGING, dt, 16)
        exact = swing(equivalent, 16 * 0.01)
        errors.append(np.abs(sol.q[8 * refined, 0] - np.cos(exact)))
        np.testing.assert_allclose(sol.q[-1, 2:], 1.5 * sol.q[-1, :2], atol=1e-8)
    assert errors[1] < 1e-4 and 1.7 < np.log2(errors[0] / errors[1]) < 2.3
    explicit = mbd.simulate(
        Bushing(), mbd.UdwadiaKalaba(), HANGING, dt=2e-5, num_steps=100, throw=False
    )
    assert explicit.result == mbd.RESULTS.nonfinite_state or np.max(np.abs(explicit.q)) > 10


def swing(length, t):
    """The angle below the horizontal of a pendulum that is let go there."""
    sol = solve_ivp(
        lambda t, y: [y[1], 9.81 / length * np.cos(y[0])], (0, t), [0, 0], rtol=1e-12, atol=1e-12
    )
    return sol.y[0, -1]


@pytest.mark.slow
def test_derivatives_of_stiff_steps():
    """In both modes, with respect to stiffness, damping parameter, length of a step and start."""

    def loss(x):
        stiffness, rho, dt, speed = x
        start = mbd.State(0.0, HANGING.q, speed * jnp.array([0.0, 1.0, 0.0, 1.5]))
        method = mbd.GeneralisedAlpha(rho)
        system = Bushing(1e4 * stiffness)
        sol = mbd.simulate(system, method, start, dt=0.02 * dt, num_steps=6)
        return sol.q[-1] @ jnp.array([1.0, 0.3, -0.4, 0.5]) + 0.1 * sol.multipliers[-1, 0]

    check_scalar(loss, jnp.array([1.3, 0.6, 1.0, 0.4]))


def test_newtons_method_that_fails_is_reported():
    class Snap(mbd.AbstractSystem):
        def mass_matrix(self, q):
            return jnp.eye(1)

        def force(self, t, q, v, u):
            return jnp.where(q > 0, -1e4, 1e4)

    start = mbd.State(0.0, jnp.array([1.0]), jnp.array([0.0]))
    method = mbd.GeneralisedAlpha(0.0)
    sol = mbd.simulate(Snap(), method, start, dt=0.5, num_steps=5, throw=False)
    assert sol.result == mbd.RESULTS.implicit_scheme_unsolved
    assert np.all(np.isfinite(sol.q))


def test_it_takes_no_scheme():
    with pytest.raises(ValueError, match="step of its own: leave out `scheme`"):
        mbd.Stepper(h.Pendulum(), mbd.GeneralisedAlpha(), scheme=mbd.RK4())
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        mbd.GeneralisedAlpha(1.2)

"""The variational integrator: its invariants over long motions, and its symmetry."""

import diffrax
import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd

VARIATIONAL = mbd.Variational()


@eqx.filter_jit
def run(system, state, dt, steps):
    saveat = diffrax.SaveAt(t0=True, steps=1)
    return mbd.simulate(system, VARIATIONAL, state, dt=dt, num_steps=steps, saveat=saveat)


def test_energy_oscillates_and_does_not_drift():
    """A pendulum that swings through 100 periods in 8000 steps: the error of the energy in the last
    tenth is as large as in the first, and falls with h^2."""
    case, errors = h.CASES["redundant_pendulum"], []
    for dt in (0.04, 0.02):
        sol = jax.device_get(run(case.system, case.state, np.asarray(dt), 8000))
        energy = 1.2 * (np.sum(sol.v**2, axis=1) / 2 + 9.81 * sol.q[:, 1])
        error = np.abs(energy - energy[0])
        first, last = np.max(error[:800]), np.max(error[-800:])
        assert last < 1.05 * first
        errors.append(first)
    assert 1.8 < np.log2(errors[0] / errors[1]) < 2.2


class Polar(mbd.LagrangianSystem):
    """A free mass in polar coordinates, whose inertia depends on where it is."""

    def kinetic_energy(self, q, v):
        return (v[0] ** 2 + (q[0] * v[1]) ** 2) / 2


LINE = mbd.State(0.0, np.array([1.0, 0.0]), np.array([0.0, 1.0]))


def test_order_in_curved_coordinates():
    """A straight line, x = 1 and y = t. The action is that of the middle of a step."""
    exact = np.array([np.hypot(1.0, 0.8), np.arctan(0.8)])
    errors = [
        np.linalg.norm(np.asarray(run(Polar(), LINE, np.asarray(dt), 16).q)[n] - exact)
        for dt, n in ((0.1, 8), (0.05, 16))
    ]
    assert 1.8 < np.log2(errors[0] / errors[1]) < 2.2 and errors[1] < 1e-2


@pytest.mark.slow
def test_order_of_a_turning_body():
    """The forces of inertia follow from the discrete action, on rotations."""
    case, errors = h.CASES["top"], []
    for refined in (1, 2):
        sol = run(case.system, case.state, np.asarray(0.01 / refined), 40)
        errors.append(np.linalg.norm(np.asarray(sol.q)[20 * refined] - case.motion(0.2)[0]))
    assert 1.8 < np.log2(errors[0] / errors[1]) < 2.2 and errors[1] < 1e-2


def test_motions_run_backwards():
    """With the opposite velocity at the end, to rounding."""
    sol = run(Polar(), LINE, np.asarray(0.1), 16)
    q, v = (np.asarray(x)[-1] for x in (sol.q, sol.v))
    back = run(Polar(), mbd.State(0.0, q, -v), np.asarray(0.1), 16)
    np.testing.assert_allclose(np.asarray(back.q)[-1], LINE.q, atol=1e-11)
    np.testing.assert_allclose(-np.asarray(back.v)[-1], LINE.v, atol=1e-10)


def test_steps_are_symplectic():
    """The double pendulum with one rod as a spring: the derivative F of a step keeps dq ^ dp on the
    tangents of the constraints."""

    class Elastic(mbd.AbstractSystem):
        def mass_matrix(self, q):
            return jnp.diag(jnp.array([1.0, 1.0, 0.6, 0.6]))

        def force(self, t, q, v, u):
            d = q[2:] - q[:2]
            pull = 40.0 * (1 - 0.7 / jnp.sqrt(d @ d)) * d
            weight = -9.81 * jnp.array([0.0, 1.0, 0.0, 0.6])
            return weight + jnp.concatenate([pull, -pull])

        def constraint(self, q, t):
            return (q[:2] @ q[:2] - 1) / 2

    stepper = mbd.Stepper(Elastic(), VARIATIONAL)
    q, v = np.array([0.6, -0.8, 0.9, -1.5]), np.array([0.8, 0.6, 0.3, -0.4])

    def step(x):
        start = stepper.init(mbd.State(0.0, x[:4], x[4:]), start_tolerance=jnp.inf)
        end = stepper.step(start, 0.05)
        return jnp.concatenate([end.q, end.v])

    F = np.asarray(jax.jit(jax.jacfwd(step))(np.concatenate([q, v])))
    M, zero = np.diag([1.0, 1.0, 0.6, 0.6]), np.zeros((4, 4))
    form = np.block([[zero, M], [-M, zero]])
    # Tangents of q . q = 1 and q . v = 0 in the first two components.
    rows = np.zeros((2, 8))
    rows[0, :2], rows[1, :2], rows[1, 4:6] = q[:2], v[:2], q[:2]
    T = np.linalg.svd(rows)[2][2:].T
    before, after = T.T @ form @ T, T.T @ F.T @ form @ F @ T
    np.testing.assert_allclose(after, before, atol=1e-12)
    assert np.max(np.abs(F @ T - T)) > 0.03


def test_systems_without_displacements_are_refused():
    class Scaled(mbd.AbstractSystem):
        def mass_matrix(self, q):
            return jnp.eye(1, dtype=q.dtype)

        def force(self, t, q, v, u):
            return -q

        def qdot(self, q, v):
            return 2 * v

    with pytest.raises(ValueError, match="name `coordinates` instead"):
        mbd.Stepper(Scaled(), VARIATIONAL).init(mbd.State(0.0, [1.0], [0.0]))

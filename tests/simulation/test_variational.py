"""The variational integrator: its order, its invariants over long motions, and its symmetry."""

import diffrax
import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd

VARIATIONAL = mbd.Variational()


def motion(system, state, dt, steps, every=1):
    saveat = diffrax.SaveAt(t0=True, steps=every)
    return mbd.simulate(system, VARIATIONAL, state, dt=dt, num_steps=steps, saveat=saveat)


run = eqx.filter_jit(motion)


def energies(case, sol):
    return np.asarray(jax.jit(jax.vmap(case.conserved))(sol.q, sol.v))


def test_energy_oscillates_and_does_not_drift():
    """A pendulum that swings through 100 periods in 8000 steps: the error of the energy in the last
    tenth is as large as in the first, and falls with h^2."""
    case, errors = h.CASES["redundant_pendulum"], []
    for dt in (0.04, 0.02):
        energy = energies(case, run(case.system, case.state, dt, 8000))
        error = np.abs(energy - energy[0])
        first, last = np.max(error[:800]), np.max(error[-800:])
        assert last < 1.05 * first
        errors.append(first)
    assert 1.8 < np.log2(errors[0] / errors[1]) < 2.2


@pytest.mark.slow
def test_energy_over_a_million_steps():
    case = h.CASES["pendulum"]
    long = jax.jit(motion, static_argnums=(3, 4), compiler_options=h.OPTIMISED)
    energy = energies(case, long(case.system, case.state, 0.02, 1_000_000, 10))
    error = np.abs(energy - energy[0])
    assert np.max(error[-10_000:]) < 1.05 * np.max(error[:10_000])
    assert np.max(error) < 1.05 * np.max(error[:10_000])


def two_bodies():
    """Two bodies with a ball joint between them, free in space, with offset centres of mass."""
    inertia = mbd.Inertia(2.0, [0.02, 0.05, 0.04], center=[0.1, 0.02, -0.03])
    a = mbd.Body("a", inertia, velocity=[0.3, 0, 0], angular_velocity=[1.0, 3.0, -2.0])
    arm = np.array([0.3, 0.1, 0.0])
    at_joint = np.array([0.3, 0, 0]) + np.cross([1.0, 3.0, -2.0], arm)
    spin = np.array([-2.0, 0.5, 4.0])
    b = mbd.Body(
        "b", inertia, position=2 * arm, velocity=at_joint + np.cross(spin, arm),
        angular_velocity=spin,
    )  # fmt: skip
    joint = mbd.Spherical("ball", a, b, point=arm)
    return mbd.Mechanism([a, b], [joint], gravity=[0.0, 0.0, 0.0])


@pytest.mark.slow
def test_momenta_are_kept_to_rounding():
    """Linear and angular momentum of two bodies that turn by radians, and a bounded energy, with
    frames that lie outside of the centres of mass."""
    mechanism = two_bodies()
    sol = run(mechanism, mechanism.state(), 0.01, 500)

    def momenta(q, v):
        parts = [
            body.momentum(mechanism.pose(q, body.name), mechanism.twist(v, body.name))
            for body in mechanism.bodies
        ]
        return jnp.stack([sum(p[0] for p in parts), sum(p[1] for p in parts)])

    found = np.asarray(jax.jit(jax.vmap(momenta))(sol.q, sol.v))
    np.testing.assert_allclose(found, np.broadcast_to(found[0], found.shape), atol=1e-12)
    energy = jax.jit(jax.vmap(lambda q, v: mbd.reports.total_energy(mechanism, q, v)))(sol.q, sol.v)
    error = np.abs(energy - energy[0]) / energy[0]
    assert np.max(error) < 2e-3 and np.max(error[-250:]) < 1.2 * np.max(error[:250])
    assert np.max(sol.phi_norm) < 1e-13 and np.max(sol.phidot_norm) < 1e-12


def test_motions_run_backwards():
    """With the opposite velocity at the end, to rounding."""
    case = h.CASES["pendulum"]
    sol = run(case.system, case.state, 0.02, 40)
    back = run(case.system, mbd.State(0.0, sol.q[-1], -sol.v[-1]), 0.02, 40)
    np.testing.assert_allclose(back.q[-1], case.state.q, atol=1e-11)
    np.testing.assert_allclose(-back.v[-1], case.state.v, atol=1e-10)


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
    q, v = jnp.array([0.6, -0.8, 0.9, -1.5]), jnp.array([0.8, 0.6, 0.3, -0.4])

    def step(x):
        start = stepper.init(mbd.State(0.0, x[:4], x[4:]), start_tolerance=jnp.inf)
        end = stepper.step(start, 0.05)
        return jnp.concatenate([end.q, end.v])

    F = np.asarray(jax.jit(jax.jacfwd(step))(jnp.concatenate([q, v])))
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

"""Invariants of the enforcement methods: Gauss's principle, energy, work, driven rows."""

import diffrax
import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import CASES
from jaxtyping import Array

import jaxmbd as mbd


def point_of(case, t=0.3):
    q, v = (jnp.asarray(x) for x in case.motion(t))
    return q, v, evaluate(case.system, case.control, jnp.asarray(t), q, v)


# As a whole, not operation by operation.
evaluate = eqx.filter_jit(mbd.evaluate)


@pytest.mark.parametrize("name", ["redundant_pendulum", "driven_pendulum", "top", "skate_in_space"])
def test_gauss_principle(name, getkey):
    # Of all accelerations that satisfy the rows, the constrained one is nearest to the free one
    # in the norm of M; moving along the rows can only increase the distance.
    case = CASES[name]
    _, _, point = point_of(case)
    method = mbd.UdwadiaKalaba()
    motion = jax.jit(lambda at: method.motion(at, method.factorise(at)))(point)
    M, J = np.asarray(point.M), np.asarray(point.rows.J)
    free = np.linalg.solve(M, point.f)
    np.testing.assert_allclose(J @ motion.acceleration, point.rows.gamma, atol=1e-10)
    np.testing.assert_allclose(
        M @ motion.acceleration, point.f + J.T @ motion.multipliers, atol=1e-10
    )
    admissible = np.linalg.svd(J)[2][np.linalg.matrix_rank(J) :]
    gradient = M @ (np.asarray(motion.acceleration) - free)
    np.testing.assert_allclose(admissible @ gradient, 0, atol=1e-10)


@pytest.mark.parametrize("name", ["redundant_pendulum", "top", "skate_in_space"])
def test_correction_is_the_smallest_in_kinetic_energy(name, getkey):
    case = CASES[name]
    q, v, _ = point_of(case)
    q = q + 1e-3 * jax.random.normal(getkey(), q.shape)
    v = v + 1e-3 * jax.random.normal(getkey(), v.shape)
    point = evaluate(case.system, None, jnp.asarray(0.3), q, v)
    method = mbd.UdwadiaKalaba()
    correction = jax.jit(lambda at: method.correction(at, method.factorise(at)))(point)
    M, J, rows = np.asarray(point.M), np.asarray(point.rows.J), point.rows
    np.testing.assert_allclose(J @ correction.position, -rows.position(rows.phi), atol=1e-12)
    np.testing.assert_allclose(J @ correction.velocity, -rows.velocity, atol=1e-12)
    admissible = np.linalg.svd(J)[2][np.linalg.matrix_rank(J) :]
    for change in correction:
        np.testing.assert_allclose(admissible @ M @ change, 0, atol=1e-12)


@pytest.mark.parametrize(
    "name",
    helpers.slow_unless(
        lambda name: name != "pendulum",  # that with redundant rows has its motion
        [n for n, c in CASES.items() if c.conserved is not None],
    ),
)
def test_energy_is_kept(name):
    case = CASES[name]
    sol = mbd.simulate(
        case.system, mbd.UdwadiaKalaba(), case.state, 2.0, 2e-3, saveat=diffrax.SaveAt(steps=100)
    )
    energy = jax.jit(jax.vmap(case.conserved))(sol.q, sol.v)
    start = case.conserved(case.state.q, case.state.v)
    np.testing.assert_allclose(energy, start, rtol=0, atol=1e-7 * (1 + abs(start)))


class DraggedBead(mbd.AbstractSystem):
    """A bead on a circle whose rail resists with the nonideal force -c v."""

    c: Array = helpers.parameter(0.3)

    def mass_matrix(self, q):
        return 1.2 * jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.zeros_like(v)

    def constraint(self, q, t):
        return q @ q - 1.0

    def nonideal_force(self, q, v, t):
        # The part along the rod must not act; the rail takes it over.
        return -self.c * v + 5.0 * q


@pytest.mark.parametrize("name", ["udwadia_kalaba", "baumgarte", "augmented_lagrangian"])
def test_nonideal_force_does_work(name):
    # On the circle the speed decays like exp(-c t / m), whatever pulls along the rod.
    state = mbd.State(0.0, [1.0, 0.0], [0.0, 2.0])
    sol = helpers.method(name).simulate(DraggedBead(), state, 1.0, 1e-2)
    speed = 2.0 * np.exp(-0.3 / 1.2)
    angle = (2.0 - speed) * 1.2 / 0.3
    np.testing.assert_allclose(sol.q[-1], [np.cos(angle), np.sin(angle)], atol=1e-6)
    np.testing.assert_allclose(jnp.linalg.norm(sol.v[-1]), speed, atol=1e-6)


def test_driven_row_is_met_at_the_end_of_each_impulse():
    # The secant of Phi over the step, not Phi_t at one of its ends: a prescribed coordinate is
    # exact at every step, even a large one.
    class Lift(mbd.AbstractSystem):
        def mass_matrix(self, q):
            return jnp.eye(2, dtype=q.dtype)

        def force(self, t, q, v, u):
            return jnp.array([0.0, -9.81])

        def constraint(self, q, t):
            return q[1] - jnp.sin(3 * t)

    state = mbd.State(0.0, [0.0, 0.0], [1.0, 3.0])
    for stabilisation in (mbd.NoStabilisation(), mbd.DeadBeat(), mbd.Relaxation(0.2)):
        method = mbd.VelocityImpulse(stabilisation=stabilisation)
        sol = mbd.simulate(Lift(), method, state, 1.0, 0.05, saveat=diffrax.SaveAt(steps=True))
        np.testing.assert_allclose(sol.q[:, 1], jnp.sin(3 * sol.t), atol=1e-13)
        np.testing.assert_allclose(sol.q[-1, 0], 1.0, atol=1e-13)


@pytest.mark.parametrize("tau, factor", [(0.05, 0.8), (0.01, 0.0), (0.0075, -1 / 3)])
def test_relaxation_factor(tau, factor):
    # Phi(n+1) = (1 - h/tau) Phi(n) on a row that is linear in q.
    class Wall(mbd.AbstractSystem):
        def mass_matrix(self, q):
            return jnp.eye(1, dtype=q.dtype)

        def force(self, t, q, v, u):
            return jnp.zeros_like(v)

        def constraint(self, q, t):
            return 2 * q

    method = mbd.VelocityImpulse(stabilisation=mbd.Relaxation(tau))
    sol = mbd.simulate(
        Wall(),
        method,
        mbd.State(0.0, [0.1], [0.0]),
        0.03,
        0.01,
        start_tolerance=1.0,
        saveat=diffrax.SaveAt(steps=True),
    )
    np.testing.assert_allclose(sol.q[:, 0], 0.1 * factor ** np.arange(1, 4), atol=1e-15)


def test_baumgarte_parameters_and_gains_are_the_same():
    a = mbd.LagrangeMultipliers(alpha=3.0, beta=4.0)
    b = mbd.LagrangeMultipliers(k=16.0, d=6.0)
    assert (a.k, a.d) == (b.k, b.d)


def test_baumgarte_feedback_is_critically_damped():
    # Phi'' + 2 alpha Phi' + beta^2 Phi = 0 on a linear row: Phi = Phi0 (1 + alpha t) exp(-alpha t).
    class Wall(mbd.AbstractSystem):
        def mass_matrix(self, q):
            return jnp.eye(2, dtype=q.dtype)

        def force(self, t, q, v, u):
            return jnp.array([0.0, -9.81])

        def constraint(self, q, t):
            return 3 * q[0] + q[1] - 0.1 * t**2

    alpha = 5.0
    sol = mbd.simulate(
        Wall(),
        mbd.LagrangeMultipliers(alpha=alpha, beta=alpha),
        mbd.State(0.0, [0.1, 0.0], [0.0, 0.0]),
        0.5,
        1e-3,
        start_tolerance=1.0,
    )
    phi = Wall().constraint(sol.q[-1], sol.t[-1])
    np.testing.assert_allclose(phi, 0.3 * (1 + alpha * 0.5) * np.exp(-alpha * 0.5), rtol=1e-8)


# The last two have no other default test.
QUICK = {*helpers.METHODS} - {*helpers.VARIANTS} | {"augmented_stabilised", "projected_impulse"}


@pytest.mark.parametrize(
    "name",
    helpers.slow_unless(
        lambda name: name in QUICK,
        [name for name in helpers.METHODS if name != "explicit_penalty"],  # needs to sink first
    ),
)
def test_multipliers_of_a_hanging_mass(name):
    # At rest the rod of a pendulum carries the weight: J^T lam = (0, m g).
    system = helpers.Pendulum()
    length, weight = float(system.length), float(system.mass * system.gravity)
    state = mbd.State(0.0, [0.0, -length], [0.0, 0.0])
    # Long enough for a soft rod to settle.
    t1 = 2.0 if name in helpers.SOFT else 0.02
    sol = helpers.method(name).simulate(system, state, t1, 0.01)
    point = evaluate(system, None, sol.t[-1], sol.q[-1], sol.v[-1])
    reaction = point.rows.J.T @ sol.multipliers[-1]
    np.testing.assert_allclose(reaction, [0.0, weight], atol=2e-3 * weight)


@pytest.mark.parametrize("norm", [mbd.KineticEnergy(), mbd.Euclidean()])
def test_projection_is_orthogonal_and_meets_the_rows(norm, getkey):
    case = CASES["top"]
    q, v = (jnp.asarray(x) for x in case.motion(0.2))
    q_off = q + 1e-3 * jax.random.normal(getkey(), q.shape)
    q_off = case.system.coordinates.normalise(q_off)
    v_off = v + 1e-2 * jax.random.normal(getkey(), v.shape)
    projection = mbd.Projection(norm=norm, iterations=4)
    q1, v1, result = eqx.filter_jit(projection)(case.system, jnp.asarray(0.2), q_off, v_off)
    assert result == mbd.RESULTS.successful
    point = evaluate(case.system, None, jnp.asarray(0.2), q1, v1)
    np.testing.assert_allclose(point.rows.phi, 0, atol=1e-14)
    np.testing.assert_allclose(point.rows.velocity, 0, atol=1e-13)
    np.testing.assert_allclose(jnp.linalg.norm(q1[3:]), 1, atol=1e-14)
    # The change of velocity is orthogonal to the admissible motion in the chosen metric.
    W = np.asarray(norm.metric(case.system, q1, v1))
    admissible = np.linalg.svd(point.rows.J)[2][3:]
    np.testing.assert_allclose(admissible @ W @ np.asarray(v1 - v_off), 0, atol=1e-13)

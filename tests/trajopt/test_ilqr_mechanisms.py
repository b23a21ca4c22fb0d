"""Iterative LQR of constrained motions, contacts, turns and the cart with a pole, against the same
in other coordinates and independent optimisers."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from jaxtyping import Array
from trajopt_problems import Effort, Reach, least_effort, least_norm, least_push, moved_by, pushed

import jaxmbd as mbd
from jaxmbd import trajopt


class Angle(mbd.AbstractSystem):
    """A pendulum of 1 kg and 1 m by its angle from the upright."""

    def mass_matrix(self, q):
        return jnp.eye(1)

    def force(self, t, q, v, u):
        return 9.81 * jnp.sin(q) + u


class Circle(mbd.AbstractSystem):
    """The same by its place, on a circle stated `rows` times over."""

    rows: int = eqx.field(static=True, default=2)

    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        tangent = jnp.stack([q[1], -q[0]]) / (q @ q)
        return jnp.array([0.0, -9.81]) + u[0] * tangent

    def constraint(self, q, t):
        return jnp.full(self.rows, (q @ q - 1.0) / 2)


class OfAngle(eqx.Module):
    """4 (1 - cos(angle - 0.3)) + rate^2 + u^2 / 10."""

    def __call__(self, t, q, v, u):
        return of_angle(q, v) + jnp.sum(u**2) / 10


class OfAngleAtEnd(eqx.Module):
    def __call__(self, t, q, v):
        return 10 * of_angle(q, v)


def of_angle(q, v):
    if q.shape[0] == 1:
        x, y, rate = jnp.sin(q[0]), jnp.cos(q[0]), v[0]
    else:
        (x, y), rate = q, (v[0] * q[1] - v[1] * q[0]) / (q @ q)
    return 4 * (1 - x * jnp.sin(0.3) - y * jnp.cos(0.3)) + rate**2


def swing(system, state, **options):
    return trajopt.Problem(
        system,
        state,
        1.0,
        20,
        nu=1,
        running_cost=OfAngle(),
        final_cost=OfAngleAtEnd(),
        lower=-9.0,
        upper=9.0,
        substeps=16,
        **options,
    )


def on_circle(angle, rate):
    q = jnp.array([jnp.sin(angle), jnp.cos(angle)])
    return mbd.State(0.0, q, rate * jnp.array([q[1], -q[0]]))


@pytest.mark.slow
def test_optimum_does_not_depend_on_the_coordinates():
    """A pendulum by its angle, and by its place with a redundant row, at the bounds at first: the
    motions differ by the error of the scheme, 1e-8. Second derivatives change the way there
    alone."""
    start = 0.8, 0.5
    minimal = swing(Angle(), mbd.State(0.0, [start[0]], [start[1]]))
    redundant = swing(Circle(), on_circle(*start))
    first = trajopt.FirstOrder()
    plans = [
        trajopt.ilqr(p, progress=False, tolerance=1e-11, expansion=first)
        for p in (minimal, redundant)
    ]
    for plan in plans:
        assert plan.status == trajopt.STATUS.converged
    assert np.any(np.abs(plans[0].u) == 9.0)
    assert np.isclose(plans[0].cost, plans[1].cost, rtol=2e-8)
    # The optimum is flat: where costs agree to 1e-9, controls agree to the root of that.
    assert np.allclose(plans[0].u, plans[1].u, rtol=0, atol=1e-3)
    assert plans[1].phi_norm < 1e-8
    second = trajopt.ilqr(minimal, progress=False, tolerance=1e-11)
    assert np.isclose(second.cost, plans[0].cost, rtol=1e-9)
    assert second.iterations < plans[0].iterations


@pytest.mark.slow
def test_loop_of_a_mechanism():
    """A parallelogram on four hinges in space, redundant by three, turned by a motor from rest to
    rest: without gravity its moment of inertia is constant, and the least effort known."""
    length, mass = math.hypot(0.1, 0.3), 2.0
    places = [[0.0, 0, 0], [0.1, 0, 0.3], [0.6, 0, 0.3], [0.5, 0, 0.0]]
    solid = mbd.Inertia(mass, [0.1, 0.02, 0.1])
    a, b, c = (
        mbd.Body(name, solid, position=np.add(p, q) / 2)
        for name, p, q in zip("abc", places, places[1:])
    )
    pairs = [("ground", a), (a, b), (b, c), (c, "ground")]
    at = [dict(point=place, axis=[0.0, 1.0, 0.0]) for place in places]
    joints = [mbd.Revolute(f"hinge {i}", *pairs[i], **at[i]) for i in range(4)]
    motor = mbd.Motor("motor", *pairs[0], **at[0])
    system = mbd.Mechanism([a, b, c], joints, [motor], gravity=[0.0, 0.0, 0.0])
    turned = 2 * (0.02 + mass * (length / 2) ** 2) + mass * length**2

    class Turned(eqx.Module):
        def __call__(self, t, q, v):
            angle = system.joint_coordinates(q, "hinge 0")
            return jnp.concatenate([angle + 0.8, mbd.reports.joint_rates(system, q, v, "hinge 0")])

    problem = trajopt.Problem(
        system,
        system.state(),
        duration=0.6,
        steps=12,
        nu=1,
        running_cost=Effort(jnp.array(1.0)),
        final=Turned(),
    )
    plan = trajopt.ilqr(problem, expansion=trajopt.FirstOrder(), progress=False)
    u, cost = least_norm(0.05, moved_by(12, 0.05, False) / turned, [-0.8, 0.0])
    assert plan.status == trajopt.STATUS.converged
    assert plan.phi_norm < 1e-7  # the error of RK4 at steps of 50 ms
    assert np.isclose(plan.cost, cost, rtol=1e-5)
    assert np.allclose(plan.u[:, 0], u, rtol=0, atol=1e-4 * np.abs(u).max())


@pytest.mark.slow
def test_contact_with_friction():
    """The controls of least effort are those of the equality-constrained least squares of a sliding
    block, as far as the friction law is smoothed: the error is of second order in that."""
    u, cost = least_push(20)
    off = []
    for smoothing in (1e-2, 1e-3):
        problem = pushed(20, smoothing)
        guess = jnp.full((20, 1), 2.5)
        plan = trajopt.ilqr(problem, guess, expansion=trajopt.FirstOrder(), progress=False)
        assert plan.status == trajopt.STATUS.converged and plan.phi_norm == 0
        off.append(abs(float(plan.cost) - cost))
        assert np.allclose(plan.u[:, 0], u, rtol=0, atol=5 * smoothing)
    assert off[1] < 2e-4 and off[0] > 50 * off[1]


class Ball(mbd.AbstractSystem):
    """A rigid body of equal moments of inertia 2 kg m^2, turned by torques in body axes."""

    coordinates = mbd.QuaternionBody()

    def mass_matrix(self, q):
        return 2 * jnp.eye(3)

    def force(self, t, q, v, u):
        return u


class Facing(eqx.Module):
    """At rest in the orientation `goal`."""

    goal: Array

    def __call__(self, t, q, v):
        return jnp.concatenate([Ball().difference(self.goal, q), v])


@pytest.mark.slow
def test_reorientation_by_quaternions():
    """From rest to rest about an inclined axis by 2.5 rad, with least effort: a cart's problem."""
    axis = jnp.array([1.0, -2.0, 3.0]) / jnp.sqrt(14.0)
    q = mbd.rotations.quaternion_exp(jnp.array([0.3, 0.2, -0.5]))
    goal = Ball().retract(q, 2.5 * axis)
    problem = trajopt.Problem(
        Ball(),
        mbd.State(0.0, q, jnp.zeros(3)),
        2.0,
        16,
        nu=3,
        running_cost=Effort(),
        final=Facing(goal),
    )
    plan = trajopt.ilqr(problem, progress=False, expansion=trajopt.FirstOrder())
    assert plan.status == trajopt.STATUS.converged
    assert np.isclose(plan.cost, least_effort(16, 2.0, 2.5, 2.0), rtol=1e-5)
    # On the way: a push along the axis, then against it.
    assert np.allclose(plan.u, (plan.u @ axis)[:, None] * axis[None, :], atol=1e-4)
    # A disturbed start, given by the other quaternion of the same orientation.
    dx = 0.01 * jnp.array([1.0, 2.0, 0.0])
    pushed = Ball().retract(q, dx)
    u = plan.control(0.0, -pushed, jnp.zeros(3))
    expected = plan.u[0] + plan.control.gains[0][:, :3] @ dx
    assert np.allclose(u, expected, rtol=0, atol=1e-12)


def cart_pole_by_numpy(U, duration, substeps):
    """Kelly's equations of motion, solved for the accelerations by hand; classical Runge-Kutta."""
    m1, m2, length, g = 1.0, 0.3, 0.5, 9.81

    def rate(x, u):
        s, c = np.sin(x[1]), np.cos(x[1])
        denominator = m1 + m2 * (1 - c * c)
        a = (length * m2 * s * x[3] ** 2 + u + m2 * g * c * s) / denominator
        b = -(length * m2 * c * s * x[3] ** 2 + u * c + (m1 + m2) * g * s) / (length * denominator)
        return np.array([x[2], x[3], a, b])

    x, h = np.zeros(4), duration / len(U) / substeps
    for u in U:
        for _ in range(substeps):
            k1 = rate(x, u)
            k2 = rate(x + h / 2 * k1, u)
            k3 = rate(x + h / 2 * k2, u)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + rate(x + h * k3, u))
    return x


class CartPole(mbd.AbstractSystem):
    """A cart of 1 kg with a pole of 0.5 m and 0.3 kg, that hangs at angle 0."""

    def mass_matrix(self, q):
        c = 0.15 * jnp.cos(q[1])
        return jnp.array([[1.3, c], [c, 0.075]])

    def force(self, t, q, v, u):
        s = 0.15 * jnp.sin(q[1])
        return jnp.stack([u[0] + s * v[1] ** 2, -9.81 * s])


def cart_pole(steps, **options):
    return trajopt.Problem(
        CartPole(),
        mbd.State(0.0, jnp.zeros(2), jnp.zeros(2)),
        2.0,
        steps,
        nu=1,
        running_cost=Effort(),
        final=Reach(jnp.array([1.0, jnp.pi])),
        lower=-20.0,
        upper=20.0,
        substeps=2,
        **options,
    )


@pytest.mark.slow
def test_cart_pole_swings_up_as_an_independent_optimiser_has_it():
    """From zero controls, against SLSQP on hand-written equations.

    Problem of Kelly (2017), An introduction to trajectory optimization, SIAM Review 59, section
    6 and appendix E."""
    steps = 16
    plan = trajopt.ilqr(cart_pole(steps), progress=False)
    assert plan.status == trajopt.STATUS.converged
    end = cart_pole_by_numpy(np.asarray(plan.u[:, 0]), 2.0, 2)
    goal = np.array([1.0, np.pi, 0.0, 0.0])
    assert np.allclose(end, goal, rtol=0, atol=1e-6)
    exact = scipy.optimize.minimize(
        lambda u: 2 / steps * u @ u,
        np.asarray(plan.u[:, 0]) + np.random.default_rng(0).normal(size=steps),
        jac=lambda u: 4 / steps * u,
        method="SLSQP",
        constraints=dict(type="eq", fun=lambda u: cart_pole_by_numpy(u, 2.0, 2) - goal),
        options=dict(ftol=1e-10, maxiter=200),
    )
    assert np.isclose(plan.cost, exact.fun, rtol=1e-6)
    assert np.allclose(plan.u[:, 0], exact.x, rtol=0, atol=1e-2)

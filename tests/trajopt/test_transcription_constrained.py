"""Collocation and multiple shooting of constrained motions, against closed forms and independent
optima."""

import arm_drawing_circle as arm
import equinox as eqx
import jax.numpy as jnp
import minimum_time_slider_crank as slider_crank
import numpy as np
import pytest
from helpers import Pendulum, RedundantPendulum, parameter
from jaxtyping import Array
from scipy.integrate import solve_ivp
from scipy.optimize import root
from trajopt_problems import masses
from transcribed import HERMITE, SHOOTING, TRAPEZOIDAL, Effort, Reach, converged, solve

import jaxmbd as mbd
from jaxmbd import trajopt as T
from jaxmbd.trajopt.transcriptions.independent import implied, independent

# --- constrained motion -------------------------------------------------------------------------


class Tangential(mbd.AbstractSystem):
    """A pendulum in Cartesian coordinates with a torque."""

    pendulum: mbd.AbstractSystem

    def mass_matrix(self, q):
        return self.pendulum.mass_matrix(q)

    def force(self, t, q, v, u):
        along = jnp.stack([-q[1], q[0]]) / (q @ q)
        return self.pendulum.force(t, q, v, u * along)

    def constraint(self, q, t):
        return self.pendulum.constraint(q, t)


LENGTH, MASS, GRAVITY, ANGLE = 0.9, 1.2, 9.81, 2.0


class AtAngle(eqx.Module):
    """The whole state of the pendulum, though two of its numbers say it all."""

    def __call__(self, t, q, v):
        target = LENGTH * jnp.array([np.sin(ANGLE), -np.cos(ANGLE)])
        return jnp.concatenate([q - target, v])


def raising(pendulum, steps, **options):
    """From hanging to rest at an angle, in a second."""
    start = mbd.State(0.0, LENGTH * jnp.array([0.0, -1.0]), jnp.zeros(2))
    options = {"running_cost": Effort(), "final": AtAngle(), "substeps": 2, **options}
    return T.Problem(Tangential(pendulum), start, 1.0, steps, nu=1, **options)


def along_angle(steps):
    """A guess on the circle."""
    angle = ANGLE * jnp.linspace(0, 1, steps + 1)
    q = LENGTH * jnp.stack([jnp.sin(angle), -jnp.cos(angle)], axis=1)
    return T.Guess(q, jnp.zeros_like(q), jnp.zeros((steps + 1, 1)))


@pytest.fixture(scope="module")
def least_effort():
    """int u^2 of the pendulum by Pontryagin's conditions of its angle:
    u = -p_2 / (2 m l^2), p_1' = p_2 (g / l) cos th, p_2' = -p_1."""
    inertia = MASS * LENGTH**2

    def rates(t, y):
        angle, omega, p1, p2, _ = y
        u = -p2 / (2 * inertia)
        rate = -GRAVITY / LENGTH * np.sin(angle) + u / inertia
        return [omega, rate, p2 * GRAVITY / LENGTH * np.cos(angle), -p1, u**2]

    def end(p):
        start = [0, 0, *p, 0]
        return solve_ivp(rates, (0, 1), start, "DOP853", rtol=1e-12, atol=1e-12).y[:, -1]

    push = -2 * inertia**2 * 6 * ANGLE  # of a mass without weight
    found = root(lambda p: end(p)[:2] - [ANGLE, 0], [2 * push, push], tol=1e-11)
    assert found.success
    return end(found.x)[4]


@pytest.mark.slow
@pytest.mark.parametrize(
    "method, order, error",
    [
        (TRAPEZOIDAL, 2, 1e-2),
        (HERMITE, 4, 2e-5),
        (SHOOTING, 2, 1e-2),
    ],
)
def test_order_on_the_manifold(method, order, error, least_effort):
    pendulum = Pendulum(MASS, LENGTH, GRAVITY)
    plans = [solve(raising(pendulum, n), method, along_angle(n)) for n in (10, 20)]
    assert all(converged(plan) for plan in plans)
    errors = [abs(float(plan.cost) / least_effort - 1) for plan in plans]
    assert errors[1] < error
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.5)
    assert all(plan.phi_norm < 1e-8 and plan.final_violation < 1e-8 for plan in plans)


@pytest.mark.slow
def test_multipliers_are_the_tension():
    plan = solve(raising(Pendulum(MASS, LENGTH, GRAVITY), 20), guess=along_angle(20))
    speed2 = jnp.sum(plan.v**2, axis=1)
    # m v^2 / l = tension + weight along the rod, J^T lam = 2 q lam = -tension q / l
    tension = MASS * speed2 / LENGTH - MASS * GRAVITY * plan.q[:, 1] / LENGTH
    np.testing.assert_allclose(plan.multipliers[:, 0], -tension / (2 * LENGTH), atol=1e-7)


@pytest.mark.slow
def test_redundant_rows_change_nothing():
    pendulum = Pendulum(MASS, LENGTH, GRAVITY)
    plain = solve(raising(pendulum, 10), HERMITE, along_angle(10))
    redundant = solve(raising(RedundantPendulum(pendulum), 10), HERMITE, along_angle(10))
    assert converged(redundant)
    np.testing.assert_allclose(redundant.cost, plain.cost, rtol=1e-7)
    scales = np.array([1.0, -2.5, 0.3])
    expected = np.asarray(plain.multipliers) * scales / (scales @ scales)  # least norm
    np.testing.assert_allclose(redundant.multipliers, expected, rtol=1e-4, atol=1e-5)


def test_motion_does_not_jump_across_the_constraints():
    """The guess does, from one side of the circle to the other."""
    guess = along_angle(10)
    jump = guess.q.at[5:].set(guess.q[-1]).at[:5].set(guess.q[0])
    plan = solve(raising(Pendulum(MASS, LENGTH, GRAVITY), 10), guess=guess._replace(q=jump))
    replay = T.replay(raising(Pendulum(MASS, LENGTH, GRAVITY), 10), plan, substeps=10)
    assert converged(plan)
    assert replay.largest < 0.05


@pytest.mark.parametrize("stiffness, status", [(1.0, "converged"), (-50.0, "unstable")])
def test_drift_of_a_linear_motion(stiffness, status):
    """To first order is exact there: what the plan says is what its replay finds. Where errors grow
    beyond the way of the motion, it is no plan."""
    problem = eqx.tree_at(lambda p: p.system.stiffness, masses(), jnp.array(stiffness))
    plan = solve(problem, TRAPEZOIDAL)
    replay = T.replay(problem, plan)
    assert replay.largest > 1e-3
    assert np.isclose(plan.drift, replay.largest, rtol=1e-6)
    assert plan.status == getattr(T.STATUS, status)
    assert ("feedback" in str(plan)) == (status == "unstable")


@pytest.mark.slow
def test_plan_is_what_its_controls_do():
    problem = raising(Pendulum(MASS, LENGTH, GRAVITY), 20)
    shot = solve(problem, SHOOTING, along_angle(20))
    assert T.replay(problem, shot).largest < 1e-6
    drifts = []
    for n in (10, 20):
        problem = raising(Pendulum(MASS, LENGTH, GRAVITY), n)
        plan = solve(problem, HERMITE, along_angle(n))
        drifts.append(float(T.replay(problem, plan, substeps=20).largest))
    assert drifts[1] < 2e-3 and drifts[1] < drifts[0] / 4


class Ball(mbd.AbstractSystem):
    """A ball turned by torques: a quaternion."""

    inertia: Array = parameter(0.7)
    coordinates = mbd.Product(mbd.QuaternionBody())

    def mass_matrix(self, q):
        return self.inertia * jnp.eye(3)

    def force(self, t, q, v, u):
        return u


class Attitude(eqx.Module):
    q: Array

    def __call__(self, t, q, v):
        return jnp.concatenate([q - self.q, v])


@pytest.mark.slow
@pytest.mark.parametrize("method", [HERMITE, TRAPEZOIDAL])
def test_turning_a_ball(method):
    """About a fixed axis by an angle from rest to rest: 12 I^2 angle^2 / T^3. The final condition
    has four numbers for three freedoms."""
    angle, axis = 2.0, np.array([2.0, -1.0, 2.0]) / 3
    target = jnp.array([np.cos(angle / 2), *np.sin(angle / 2) * axis])
    start = mbd.State(0.0, jnp.array([1.0, 0, 0, 0]), jnp.zeros(3))
    problem = T.Problem(Ball(), start, 1.0, 12, nu=3, running_cost=Effort(), final=Attitude(target))
    plan = solve(problem, method)
    assert converged(plan)
    exact = 12 * 0.7**2 * angle**2
    np.testing.assert_allclose(plan.cost, exact, rtol=1e-4 if method is HERMITE else 4e-2)
    np.testing.assert_allclose(jnp.linalg.norm(plan.q, axis=1), 1.0, atol=1e-9)


def test_rows_are_chosen_by_rank():
    J = np.array([[1.0, 0, 0], [2, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1e-3]])
    kept = independent(J)
    assert len(kept) == 3 and 4 in kept
    np.testing.assert_array_equal(independent(J, first=1), [0, *independent(J, first=1)[1:]])


def test_touching_condition_does_not_replace_the_constraint():
    """At the top of a circle y = 1 has its gradient, and yet does not imply it; x = 0 and y = 1
    do."""

    def circle(x):
        point = x + jnp.array([0.1, 0.9])
        return point, point @ point - 1

    touching = implied(lambda x, _: jnp.stack([circle(x)[0][1] - 1, circle(x)[1]]), 2, 1)
    there = jnp.array([0.0, 1.0])
    both = implied(lambda x, _: jnp.concatenate([circle(x)[0] - there, circle(x)[1][None]]), 2, 2)
    np.testing.assert_array_equal(touching, [0, 1])
    np.testing.assert_array_equal(both, [0, 1])


@pytest.mark.slow
def test_slider_crank_in_the_least_time():
    start, end, torque = 0.3, 0.3 + 1.5 * np.pi, 2.0
    problem = slider_crank.problem(start, end, torque, steps=20)
    plan = solve(problem, duration=(0.05, 10.0))
    exact = slider_crank.least_time(problem.system, start, end, torque)
    assert converged(plan) and plan.phi_norm < 1e-8
    np.testing.assert_allclose(plan.cost, exact, rtol=2e-4)
    assert np.mean(np.abs(np.asarray(plan.u)) > 0.999 * torque) > 0.8


@pytest.mark.slow
def test_arm_in_a_tube_needs_what_inverse_dynamics_says():
    """What the tube saves vanishes with its radius."""
    tubes = np.array([1e-3, 1e-5])
    known = arm.prescribed_effort(400)
    saved = []
    for tube in tubes:
        plan = solve(arm.problem(40, tube), guess=arm.guess(40))
        assert converged(plan) and plan.path_violation < 1e-6
        saved.append(1 - float(plan.cost) / known)
    assert 0 < saved[1] < saved[0] / 15 < 2e-3


# --- the cart-pole ------------------------------------------------------------------------------


class CartPole(mbd.AbstractSystem):
    """Kelly's (2017): cart of 1 kg, bob of 0.3 kg on a rod of 0.5 m. q = (x, th), th from
    hanging."""

    def mass_matrix(self, q):
        coupling = 0.15 * jnp.cos(q[1])
        return jnp.array([[1.3, 0.0], [0.0, 0.075]]) + coupling * jnp.array([[0.0, 1], [1, 0]])

    def force(self, t, q, v, u):
        s = jnp.sin(q[1])
        return jnp.stack([u[0] + 0.15 * v[1] ** 2 * s, -0.15 * 9.81 * s])


class CartBob(mbd.AbstractSystem):
    """The same by the places of cart and bob, q = (x, bob), and the row of the rod."""

    def mass_matrix(self, q):
        return jnp.diag(jnp.array([1.0, 0.3, 0.3]))

    def force(self, t, q, v, u):
        return jnp.concatenate([u, jnp.array([0.0, -0.3 * 9.81])])

    def constraint(self, q, t):
        rod = q[1:] - q[0] * jnp.array([1.0, 0.0])
        return rod @ rod - 0.25


def swing_up(steps, redundant=False, **options):
    if redundant:
        system, start, end = CartBob(), jnp.array([0.0, 0, -0.5]), jnp.array([1.0, 1, 0.5])
    else:
        system, start, end = CartPole(), jnp.zeros(2), jnp.array([1.0, np.pi])
    final = Reach(end, jnp.zeros_like(end))
    state = mbd.State(0.0, start, jnp.zeros_like(start))
    options = {"running_cost": Effort(), "lower": -20, "upper": 20, "substeps": 4, **options}
    return T.Problem(system, state, 2.0, steps, nu=1, final=final, **options)


@pytest.mark.slow
def test_swing_up_in_both_coordinates():
    minimal = solve(swing_up(80))
    x, angle = minimal.q.T
    # Of the several local optima the one with these places, from there at rest without a push.
    places = jnp.stack([x, x + jnp.sin(angle) / 2, -jnp.cos(angle) / 2], axis=1)
    guess = T.Guess(places, jnp.zeros_like(places), jnp.zeros((81, 1)))
    redundant = solve(swing_up(80, redundant=True), guess=guess)
    for plan in (minimal, redundant):
        assert converged(plan) and plan.phi_norm < 1e-8
        # The limit of finer grids: 58.80766 with 80 intervals, 58.80767 with 160.
        np.testing.assert_allclose(plan.cost, 58.80767, rtol=1e-4)

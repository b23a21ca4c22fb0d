"""Collocation and multiple shooting of constrained motions, against closed forms and independent
optima."""

import arm_drawing_circle as arm
import jax
import jax.numpy as jnp
import minimum_time_slider_crank as slider_crank
import numpy as np
import pytest
import trajopt_problems as tp
from helpers import Pendulum, RedundantPendulum
from scipy.integrate import solve_ivp
from scipy.optimize import root

import jaxmbd as mbd
from jaxmbd import trajopt as T
from jaxmbd._compiler import to_jax
from jaxmbd.trajopt.transcribe import implied, independent
from jaxmbd.trajopt.transcriptions import Dynamics, Interval, Knot

LENGTH, MASS, GRAVITY, ANGLE = 0.9, 1.2, 9.81, 2.0
INERTIA = MASS * LENGTH**2
T0 = 0.2
SCALES = np.array([1.0, -2.5, 0.3])  # of the rows of the redundant pendulum


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


def pendulum(redundant=False):
    one = Pendulum(MASS, LENGTH, GRAVITY)
    return Tangential(RedundantPendulum(one) if redundant else one)


def raising(steps, redundant=False):
    """From hanging to rest at an angle, in a second. The whole state is asked for, though two of
    its numbers say it all."""
    start = mbd.State(0.0, LENGTH * np.array([0.0, -1.0]), np.zeros(2))
    target = tp.Reach(LENGTH * np.array([np.sin(ANGLE), -np.cos(ANGLE)]))
    options = dict(running_cost=tp.Effort(), final=target, substeps=2)
    return T.Problem(pendulum(redundant), start, 1.0, steps, nu=1, **options)


def motion(t):
    """A motion on the circle in closed form: the state, the torque and the multiplier."""
    angle, rate, rise = 0.3 + 1.1 * t + 0.7 * t**2, 1.1 + 1.4 * t, 1.4
    s, c = np.sin(angle), np.cos(angle)
    q, v = LENGTH * np.array([s, -c]), LENGTH * rate * np.array([c, s])
    u = INERTIA * rise + MASS * GRAVITY * LENGTH * s
    tension = MASS * LENGTH * rate**2 + MASS * GRAVITY * c
    return Knot(*map(np.atleast_1d, (q, v, u, -tension / (2 * LENGTH))))


@pytest.mark.parametrize("method, order", [(tp.TRAPEZOIDAL, 2), (tp.HERMITE, 4)])
def test_defects_of_an_exact_motion(method, order):
    """They and the error of the cost are of one order more than the method. The slacks add
    h N J^T gamma, in Hermite and Simpson's rule 4/6 of it, and h M^-1 J^T mu. Rows and multipliers
    at the points are exact."""
    one = to_jax(np.array([0]))
    dynamics = Dynamics(pendulum(), one, one)

    @jax.jit
    def found(h, begin, end, middle, zero):
        def equations(mu, gamma):
            own = (middle.u, middle.lam, gamma) if method is tp.HERMITE else (mu, gamma)
            found = method.equations(raising(4), dynamics, Interval(T0, h, begin, end, own))
            return found.defects, found.cost

        slopes = jax.jacfwd(lambda *x: equations(*x)[0], argnums=(0, 1))(zero, zero)
        here = dynamics.at(T0 + h, *end)
        rows = jnp.concatenate([here.level, here.position, here.velocity])
        lam = dynamics.multipliers(T0 + h, end.q, end.v, end.u)
        return equations(zero, zero), slopes, rows, lam

    errors, places, weights = [], *np.polynomial.legendre.leggauss(8)
    for h in (0.1, 0.05):
        begin, middle, end = (motion(T0 + x) for x in (0, h / 2, h))
        (defects, cost), (by_mu, by_gamma), rows, lam = found(h, begin, end, middle, np.zeros(1))
        efforts = [motion(T0 + h / 2 * (1 + x)).u[0] ** 2 for x in places]
        off = np.abs([*np.asarray(defects), float(cost) - h / 2 * weights @ efforts])
        errors.append([off[:2].max(), off[2:4].max(), off[4]])
        np.testing.assert_allclose(rows, np.zeros(3), atol=1e-12)
        np.testing.assert_allclose(lam, end.lam, rtol=1e-12)
        if method is tp.HERMITE:
            by_slacks = np.zeros(4), -np.append(h * 4 / 6 * 2 * middle.q, [0, 0])
        else:
            by_slacks = -np.append([0, 0], 2 * h * end.q / MASS), -np.append(2 * h * end.q, [0, 0])
        np.testing.assert_allclose(np.hstack([by_mu, by_gamma]).T, by_slacks, atol=1e-5)
    falls = np.log2(np.array(errors[0]) / errors[1])
    np.testing.assert_allclose(falls, order + 1, atol=0.4)


def test_defects_of_multiple_shooting():
    """Of linear masses: the end of an interval without the motion from its beginning, and the cost
    by the trapezoidal rule."""
    x0, x1, u = np.random.default_rng(0).normal(size=(3, 4))
    A, B = tp.runge_kutta()
    none = to_jax(np.zeros(0))
    begin, end = (Knot(x[:2], x[2:], none, none) for x in (x0, x1))
    dynamics = Dynamics(tp.masses().system, *[to_jax(np.zeros(0, int))] * 2)

    @jax.jit
    def found(begin, end, u):
        interval = Interval(T0, jnp.asarray(tp.DT), begin, end, (u, none, none))
        return tp.SHOOTING.equations(tp.masses(), dynamics, interval)[:2]

    cost, defects = found(begin, end, u[:2])
    ahead = A @ x0 + B @ u[:2]
    np.testing.assert_allclose(defects, x1 - ahead, atol=1e-12)
    costs = [x @ tp.Q @ x + u[:2] @ tp.R @ u[:2] for x in (x0, ahead)]
    np.testing.assert_allclose(cost, tp.DT * np.mean(costs), rtol=1e-12)


def along_angle(steps):
    """A guess on the circle."""
    angle = ANGLE * np.linspace(0, 1, steps + 1)
    q = LENGTH * np.stack([np.sin(angle), -np.cos(angle)], axis=1)
    return T.Guess(q, np.zeros_like(q), np.zeros((steps + 1, 1)))


def least_effort():
    """int u^2 of the pendulum by Pontryagin's conditions of its angle:
    u = -p_2 / (2 m l^2), p_1' = p_2 (g / l) cos th, p_2' = -p_1."""

    def rates(t, y):
        angle, omega, p1, p2, _ = y
        u = -p2 / (2 * INERTIA)
        rate = -GRAVITY / LENGTH * np.sin(angle) + u / INERTIA
        return [omega, rate, p2 * GRAVITY / LENGTH * np.cos(angle), -p1, u**2]

    def end(p):
        start = [0, 0, *p, 0]
        return solve_ivp(rates, (0, 1), start, "DOP853", rtol=1e-12, atol=1e-12).y[:, -1]

    push = -2 * INERTIA**2 * 6 * ANGLE  # of a mass without weight
    found = root(lambda p: end(p)[:2] - [ANGLE, 0], [2 * push, push], tol=1e-11)
    assert found.success
    return end(found.x)[4]


@pytest.mark.parametrize(
    "method, steps, tolerance",
    [
        (tp.TRAPEZOIDAL, 20, 1e-2),
        pytest.param(tp.HERMITE, 10, 2e-4, marks=pytest.mark.slow),
        pytest.param(tp.SHOOTING, 20, 1e-2, marks=pytest.mark.slow),
    ],
)
def test_motion_with_redundant_rows(method, steps, tolerance):
    """From a guess that jumps across the circle, which the motion does not; with the least effort,
    and the tension of the rod in three rows, the shortest of all multipliers. Of multiple shooting,
    which takes no guess that jumps, the motion is what its controls do."""
    problem, guess = raising(steps, redundant=True), along_angle(steps)
    if method is not tp.SHOOTING:
        after = np.arange(steps + 1)[:, None] >= steps // 2
        guess = guess._replace(q=np.where(after, guess.q[-1], guess.q[0]))
    plan = tp.solve(problem, method, guess)
    assert tp.converged(plan)
    assert max(float(plan.phi_norm), float(plan.final_violation)) < 1e-8
    np.testing.assert_allclose(plan.cost, least_effort(), rtol=tolerance)
    if method is tp.SHOOTING:
        assert float(T.perform(problem, plan).drift) < 1e-6
    q, v = np.asarray(plan.q), np.asarray(plan.v)
    assert np.abs(np.diff(q, axis=0) - (v[1:] + v[:-1]) / (2 * steps)).max() < 0.02
    # m v^2 / l = tension + weight along the rod, J^T lam = 2 q lam = -tension q / l
    tension = MASS * np.sum(v**2, axis=1) / LENGTH - MASS * GRAVITY * q[:, 1] / LENGTH
    expected = -tension[:, None] / (2 * LENGTH) * SCALES / (SCALES @ SCALES)
    np.testing.assert_allclose(plan.multipliers, expected, atol=1e-6)


@pytest.mark.slow
def test_ilqr_with_redundant_rows():
    plan = T.ilqr(raising(20, redundant=True), progress=False, expansion=T.FirstOrder())
    assert tp.converged(plan) and max(float(plan.phi_norm), float(plan.final_violation)) < 1e-6
    np.testing.assert_allclose(plan.cost, least_effort(), rtol=1e-2)


@pytest.mark.parametrize("stiffness, status", [(1.0, "successful"), (-50.0, "unstable")])
def test_drift_of_a_linear_motion(stiffness, status):
    """To first order is exact there: what the plan says is what is measured. Where errors grow
    beyond the way of the motion, it is no plan."""
    problem = tp.masses(stiffness=stiffness)
    plan = tp.solve(problem, tp.TRAPEZOIDAL)
    performed = T.perform(problem, plan)
    assert float(performed.drift) > 1e-3
    np.testing.assert_allclose(plan.drift, performed.drift, rtol=1e-6)
    assert tp.ended(plan, status)
    assert ("feedback" in str(plan)) == (status == "unstable")


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
    there = np.array([0.0, 1.0])
    both = implied(lambda x, _: jnp.append(circle(x)[0] - there, circle(x)[1]), 2, 2)
    np.testing.assert_array_equal(touching, [0, 1])
    np.testing.assert_array_equal(both, [0, 1])


@pytest.mark.slow
def test_slider_crank_in_the_least_time():
    given = 0.3, 0.3 + 1.5 * np.pi, 2.0  # start, end and torque
    problem = slider_crank.problem(*given, steps=20)
    plan = tp.solve(problem, duration=(0.05, 10.0))
    exact = slider_crank.least_time(problem.system, *given)
    assert tp.converged(plan) and plan.phi_norm < 1e-8
    np.testing.assert_allclose(plan.cost, exact, rtol=2e-4)
    assert np.mean(np.abs(np.asarray(plan.u)) > 0.999 * given[2]) > 0.8


@pytest.mark.slow
def test_arm_in_a_tube_needs_what_inverse_dynamics_says():
    """What the tube saves vanishes with its radius."""
    known, saved = arm.prescribed_effort(400), []
    for tube in (1e-3, 1e-5):
        plan = tp.solve(arm.problem(40, np.array(tube)), guess=arm.guess(40))
        assert tp.converged(plan) and plan.path_violation < 1e-6
        saved.append(1 - float(plan.cost) / known)
    assert 0 < saved[1] < saved[0] / 15 < 2e-3

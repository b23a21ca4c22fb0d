"""Collocation and multiple shooting, against closed forms and independent optima."""

import sys

import arm_drawing_circle as arm
import equinox as eqx
import jax
import jax.numpy as jnp
import minimum_time_slider_crank as slider_crank
import numpy as np
import pytest
from helpers import COMPILED, Pendulum, RedundantPendulum, compilation_events, parameter
from jaxtyping import Array
from scipy.integrate import solve_ivp
from scipy.optimize import minimize, root
from trajopt_problems import least_push, masses, pushed

import jaxmbd as mbd
from jaxmbd.trajopt.nlp import Evaluator
from jaxmbd.trajopt.transcriptions.independent import implied, independent

T = mbd.trajopt
HERMITE, TRAPEZOIDAL, SHOOTING = T.HermiteSimpson(), T.Trapezoidal(), T.DirectMultipleShooting()


class Effort(eqx.Module):
    """l = |u|^2."""

    def __call__(self, t, q, v, u):
        return u @ u


class Reach(eqx.Module):
    """A state."""

    q: Array
    v: Array

    def __call__(self, t, q, v):
        return jnp.concatenate([q - self.q, v - self.v])


class Time(eqx.Module):
    def __call__(self, t, q, v, u):
        return jnp.ones((), q.dtype)


class Mass(mbd.AbstractSystem):
    """A mass on a line, pushed by u."""

    mass: Array = parameter(1.0)

    def mass_matrix(self, q):
        return self.mass * jnp.eye(1)

    def force(self, t, q, v, u):
        return u


def rest_to_rest(distance=1.0, duration=1.0, steps=6, mass=1.0, **options):
    options = {"running_cost": Effort(), **options}
    return T.Problem(
        Mass(mass),
        mbd.State(0.0, jnp.zeros(1), jnp.zeros(1)),
        duration,
        steps,
        nu=1,
        final=Reach(jnp.array([distance]), jnp.zeros(1)),
        **options,
    )


def solve(problem, method=HERMITE, guess=None, **options):
    return T.transcription(problem, guess, method, progress=False, **options)


def converged(plan):
    return plan.status == T.STATUS.converged


# --- nonlinear programs -------------------------------------------------------------------------


class Rosenbrock(eqx.Module):
    """A chain: each part sees two neighbours and a variable of all."""

    def __call__(self, x, k):
        a, b, c = x
        cost = 100 * (b - a**2) ** 2 + (1 - a) ** 2 + k * c**2
        return cost, jnp.stack([a * b * c + k, jnp.sin(b) + c**3])


def chain(n=5):
    index = np.stack([np.arange(1, n), np.arange(2, n + 1), np.zeros(n - 1, int)], axis=1)
    terms = [
        T.Term(Rosenbrock(), index, jnp.arange(n - 1.0), jnp.zeros(2), jnp.ones(2)),
        T.Term(Rosenbrock(), index[::-1], jnp.ones(n - 1), -jnp.ones(2), jnp.ones(2)),
    ]
    x = jnp.linspace(-1, 1, n + 1)
    return T.NonlinearProgram(tuple(terms), x, x - 2, x + 2)


def test_sparse_derivatives_are_those_of_the_whole_program():
    program = chain()
    evaluator, x = Evaluator(program), np.random.default_rng(1).normal(size=6)
    lam = np.random.default_rng(2).normal(size=len(evaluator.row_lower))

    def objective(x):
        return sum(jnp.sum(term.values(x)[0]) for term in program.terms)

    def rows(x):
        return jnp.concatenate([term.values(x)[1].ravel() for term in program.terms])

    J = np.zeros((len(lam), 6))
    np.add.at(J, evaluator.jacobian_places(), evaluator.jacobian(x))
    H = np.zeros((6, 6))
    np.add.at(H, evaluator.hessian_places(), evaluator.hessian(x, 0.7, lam))
    lagrangian = lambda x: 0.7 * objective(x) + lam @ rows(x)  # noqa: E731
    np.testing.assert_allclose(J, jax.jacfwd(rows)(jnp.array(x)), atol=1e-12)
    np.testing.assert_allclose(H, np.tril(jax.hessian(lagrangian)(jnp.array(x))), atol=1e-9)
    np.testing.assert_allclose(evaluator.gradient(x), jax.grad(objective)(jnp.array(x)), atol=1e-9)


@pytest.mark.parametrize("solver", [T.Uno(), T.Uno("filtersqp"), T.SciPy()])
def test_solvers_find_the_minimum(solver):
    """min (x - 2)^2 + (y - 1)^2 with x = 2 y - 1, x^2 / 4 + y^2 <= 1 (Himmelblau's)."""

    class Rows(eqx.Module):
        def __call__(self, x, data):
            a, b = x
            rows = jnp.stack([a - 2 * b + 1, a**2 / 4 + b**2 - 1])
            return (a - 2) ** 2 + (b - 1) ** 2, rows

    bounds = jnp.array([0.0, -jnp.inf]), jnp.zeros(2)
    term = T.Term(Rows(), np.array([[0, 1]]), None, *bounds)
    free = jnp.full(2, jnp.inf)
    found = solver.solve(T.NonlinearProgram((term,), jnp.array([2.0, 2.0]), -free, free))
    root = np.sqrt(7.0)
    accuracy = 1e-4 if isinstance(solver, T.SciPy) else 1e-6
    np.testing.assert_allclose(found.x, [(root - 1) / 2, (root + 1) / 4], atol=accuracy)
    assert found.status == T.STATUS.converged and found.violation < 1e-6


def test_missing_solver_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "unopy", None)
    with pytest.raises(ImportError, match=r"jaxmbd\[trajopt\]"):
        T.Uno().solve(chain())


# --- closed forms -------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", [T.Uno(), T.SciPy()])
def test_least_energy_is_the_cubic(solver):
    """x = 3 t^2 - 2 t^3, u = 6 - 12 t, J = 12: Hermite-Simpson has it exactly."""
    plan = solve(rest_to_rest(), solver=solver)
    assert converged(plan)
    np.testing.assert_allclose(plan.cost, 12.0, rtol=1e-6)
    np.testing.assert_allclose(plan.q[:, 0], 3 * plan.t**2 - 2 * plan.t**3, atol=1e-5)
    t = jnp.linspace(0, 1, 20)
    u = jax.vmap(lambda t: plan.control(t, plan.q[0], plan.v[0]))(t)
    np.testing.assert_allclose(u[:, 0], 6 - 12 * t, atol=1e-4)


@pytest.mark.parametrize("method, limit", [(SHOOTING, 1e-6), (HERMITE, 0.02), (TRAPEZOIDAL, 0.1)])
def test_least_time_is_bang_bang(method, limit):
    """T = 2 sqrt(distance mass / force), exactly where the control may jump on the grid."""
    problem = rest_to_rest(2.0, 1.0, running_cost=Time(), lower=-3.0, upper=3.0)
    plan = solve(problem, method, duration=(0.1, 10.0))
    exact = 2 * np.sqrt(2.0 / 3.0)
    assert converged(plan)
    assert -1e-6 < plan.cost / exact - 1 < limit
    np.testing.assert_allclose(plan.t[-1], plan.cost, rtol=1e-12)
    if method is SHOOTING:
        np.testing.assert_allclose(plan.u[:, 0], [3, 3, 3, -3, -3, -3], atol=1e-4)


class Below(eqx.Module):
    limit: Array

    def __call__(self, t, q, v, u):
        return q - self.limit


def test_path_condition_holds():
    """Bryson and Ho (1975), Applied optimal control, section 3.11, example 2: from v = 1 to -1 at
    the same place below a limit L <= 1/6, int u^2 = 8 / (9 L)."""
    limit = 1 / 8
    problem = T.Problem(
        Mass(),
        mbd.State(0.0, jnp.zeros(1), jnp.ones(1)),
        1.0,
        24,
        nu=1,
        running_cost=Effort(),
        final=Reach(jnp.zeros(1), -jnp.ones(1)),
        path=Below(jnp.array(limit)),
    )
    plan = solve(problem)
    assert converged(plan) and plan.path_violation < 1e-7
    np.testing.assert_allclose(plan.cost, 8 / (9 * limit), rtol=2e-3)
    assert jnp.max(plan.q) > limit - 1e-3


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
@pytest.mark.parametrize("method", [HERMITE, SHOOTING])
def test_redundant_rows_change_nothing(method):
    pendulum = Pendulum(MASS, LENGTH, GRAVITY)
    plain = solve(raising(pendulum, 10), method, along_angle(10))
    redundant = solve(raising(RedundantPendulum(pendulum), 10), method, along_angle(10))
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


def shooting_by_hand(guess, substeps):
    """The least sum of u_k^2 dt by SciPy, on the equations of motion solved for the accelerations
    by hand, with classical Runge-Kutta steps in NumPy."""
    steps = len(guess)
    h = 2.0 / (steps * substeps)

    def rates(y, u):
        _, th, xd, thd = y
        s, c = np.sin(th), np.cos(th)
        m1, m2, length, g = 1.0, 0.3, 0.5, 9.81
        xdd = (length * m2 * s * thd**2 + u + m2 * g * c * s) / (m1 + m2 * (1 - c**2))
        thdd = -(length * m2 * c * s * thd**2 + u * c + (m1 + m2) * g * s) / (
            length * m1 + length * m2 * (1 - c**2)
        )
        return np.stack([xd, thd, xdd, thdd])

    def end(u):
        y = np.zeros((4, *u.shape[1:]))
        for value in u:
            for _ in range(substeps):
                a = rates(y, value)
                b = rates(y + h / 2 * a, value)
                c = rates(y + h / 2 * b, value)
                d = rates(y + h * c, value)
                y = y + h / 6 * (a + 2 * b + 2 * c + d)
        return y

    target = np.array([1.0, np.pi, 0, 0])

    def slope(u):
        step = 1e-6
        pushed = u[:, None] + step * np.concatenate([np.eye(steps), -np.eye(steps)], axis=1)
        y = end(pushed)
        return (y[:, :steps] - y[:, steps:]) / (2 * step)

    found = minimize(
        lambda u: u @ u * 2 / steps,
        guess,
        jac=lambda u: 4 / steps * u,
        bounds=[(-20, 20)] * steps,
        constraints={"type": "eq", "fun": lambda u: end(u[:, None])[:, 0] - target, "jac": slope},
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-11},
    )
    assert found.success
    return found.fun


@pytest.mark.slow
def test_swing_up_of_the_cart_pole():
    plan = solve(swing_up(40), SHOOTING)
    assert converged(plan)
    # From controls nearby, since there are several local optima.
    guess = np.asarray(plan.u[:, 0]) + np.random.default_rng(0).normal(size=40)
    np.testing.assert_allclose(plan.cost, shooting_by_hand(guess, 4), rtol=1e-6)


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


# --- verdicts and input -------------------------------------------------------------------------


def test_out_of_reach_is_reported():
    plan = solve(rest_to_rest(10.0, lower=-1.0, upper=1.0))
    assert plan.status == T.STATUS.infeasible
    assert "contradict" in plan.message and plan.message in str(plan)
    assert np.isfinite(plan.q).all()


def test_limit_of_iterations_is_reported():
    plan = solve(rest_to_rest(path=Below(jnp.array(0.999))), solver=T.Uno(max_iterations=1))
    assert plan.status == T.STATUS.running


def test_guess_that_is_not_finite_is_reported():
    guess = T.Guess(jnp.full((7, 1), jnp.inf), jnp.zeros((7, 1)), jnp.zeros((7, 1)))
    plan = solve(rest_to_rest(), guess=guess)
    assert plan.status == T.STATUS.failed_start and "not finite" in plan.message


@pytest.mark.slow
def test_plan_of_a_coarse_grid_begins_a_fine_one():
    coarse = solve(rest_to_rest(steps=4), TRAPEZOIDAL)
    fine = solve(rest_to_rest(steps=8), HERMITE, coarse)
    assert converged(fine) and fine.q.shape == (9, 1)
    np.testing.assert_allclose(fine.cost, 12.0, rtol=1e-6)


def test_new_numbers_compile_nothing():
    solve(rest_to_rest())
    problem = rest_to_rest(1.5, 1.2, mass=2.0)
    with compilation_events() as events:
        plan = solve(problem)
    assert COMPILED not in events
    np.testing.assert_allclose(plan.cost, 12 * 4 * 1.5**2 / 1.2**3, rtol=1e-6)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"duration": (2.0, 1.0)}, "duration"),
        ({"duration": (0.0, 1.0)}, "positive"),
        ({"guess": T.Guess(jnp.zeros((3, 1)), jnp.zeros((3, 1)), jnp.zeros((3, 1)))}, r"\(7, 1\)"),
        ({"guess": jnp.zeros((3, 2))}, "guess"),
    ],
)
def test_bad_input_is_named(options, words):
    with pytest.raises(ValueError, match=words):
        solve(rest_to_rest(), **options)


@pytest.mark.parametrize("method", [HERMITE, TRAPEZOIDAL])
def test_collocation_refuses_contacts(method):
    """The block would fall through the ground."""
    with pytest.raises(ValueError, match="1 contacts.*DirectMultipleShooting"):
        solve(pushed(8, 1e-3), method)


@pytest.mark.slow
def test_contact_by_multiple_shooting():
    """Sliding with friction, as far as its law is smoothed."""
    plan = solve(pushed(8, 1e-3), SHOOTING, jnp.full((8, 1), 2.5))
    u, cost = least_push(8)
    assert converged(plan)
    np.testing.assert_allclose(plan.cost, cost, rtol=1e-4)
    np.testing.assert_allclose(plan.u[:, 0], u, atol=5e-3)


def test_not_inside_of_jit():
    def cost(duration):
        problem = eqx.tree_at(lambda p: p.duration, rest_to_rest(), duration)
        return solve(problem).cost

    with pytest.raises(ValueError, match="outside"):
        jax.jit(cost)(jnp.array(1.0))

"""Problems, controls and shooting of `mbd.trajopt`, against closed forms."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import optimistix as optx
import pytest
from helpers import COMPILED, compilation_events
from trajopt_problems import (
    START,
    Cart,
    Effort,
    Masses,
    Q,
    R,
    Reach,
    Speed,
    cart,
    least_effort,
    masses,
    runge_kutta,
)

import jaxmbd as mbd

trajopt = mbd.trajopt
STEPS, DT = 6, 0.1


def exact_regulator(steps=STEPS):
    """The optimal cost of `masses` by the Riccati recursion over a finite horizon."""
    A, B = runge_kutta(DT)
    P = np.zeros((4, 4))
    for _ in range(steps):
        gain = np.linalg.solve(DT * R + B.T @ P @ B, B.T @ P @ A)
        P = DT * Q + A.T @ P @ (A - B @ gain)
    return START @ P @ START


def test_regulator_by_quasi_newton():
    problem = masses(STEPS)
    plan = trajopt.shooting(problem, optimiser=optx.BFGS(rtol=1e-9, atol=1e-9), progress=False)
    assert plan.status == trajopt.STATUS.converged
    assert np.isclose(plan.cost, exact_regulator(), rtol=1e-8)
    # What it found is what it does.
    again = trajopt.perform(problem, plan.control)
    assert np.isclose(again.cost, plan.cost, rtol=1e-12)
    assert again.status == trajopt.STATUS.performed


@pytest.mark.slow
@pytest.mark.parametrize(
    "optimiser, bounds",
    [
        (optax.lbfgs(), trajopt.Squash()),
        (optax.adam(0.05), trajopt.Projected()),
    ],
    ids=["lbfgs", "adam"],
)
def test_regulator_with_bounds_by_optax(optimiser, bounds):
    """As `ilqr` has it, which is compared with bounded least squares elsewhere."""
    problem = masses(STEPS, lower=-0.4, upper=0.5)
    exact = trajopt.ilqr(problem, progress=False)
    assert np.any(exact.u == -0.4)
    plan = trajopt.shooting(
        problem, optimiser=optimiser, bounds=bounds, tolerance=1e-5, progress=False
    )
    assert plan.bound_violation == 0
    assert np.isclose(plan.cost, exact.cost, rtol=1e-5)
    assert plan.cost >= exact.cost * (1 - 1e-9)


@pytest.mark.slow
def test_conditions_by_multipliers():
    """A cart from rest to rest: the minimum norm."""
    sharp = optx.BFGS(rtol=1e-10, atol=1e-10)
    plan = trajopt.shooting(cart(STEPS), optimiser=sharp, condition_tolerance=1e-6, progress=False)
    assert plan.status == trajopt.STATUS.converged
    assert plan.final_violation <= 1e-6
    assert np.isclose(plan.cost, least_effort(STEPS, 1.0, 1.0), rtol=1e-5)


class Line(eqx.Module):
    """A policy of three numbers: u = a + b t + c v."""

    numbers: jax.Array

    def __call__(self, t, q, v):
        a, b, c = self.numbers
        return a + b * t + c * v


def test_parameters_of_a_policy():
    """With u = a + b t, continuous in time, the cart's optimum is that of continuous time,
    int u^2 dt = 12, but for the left rectangles of the cost."""
    steps = 40
    policy = Line(jnp.zeros(3))
    plan = trajopt.shooting(cart(steps), policy, condition_tolerance=1e-6, progress=False)
    assert plan.status == trajopt.STATUS.converged
    a, b, c = plan.control.control.numbers
    u = a + b * plan.t[:-1] + c * plan.v[:-1, 0]
    assert np.allclose(plan.u[:, 0], u)
    assert np.isclose(plan.cost, 12.0, rtol=0.03)
    # The motion itself has no such error: it is a cubic, or near to one.
    assert np.isclose(plan.q[steps // 2, 0], 0.5, atol=0.03)


@pytest.mark.slow
def test_starts_side_by_side():
    """A cost with two valleys: each start falls into its own, and the best is picked."""
    problem = trajopt.Problem(
        Cart(),
        mbd.State(0.0, jnp.zeros(1), jnp.zeros(1)),
        1.0,
        3,
        nu=1,
        running_cost=Effort(0.01),
        final_cost=Valleys(),
    )
    guesses = jnp.array([-1.0, 1.0])[:, None, None] * jnp.ones((2, 3, 1))
    plans = trajopt.multi_start(problem, guesses, progress=False)
    assert plans.q.shape == (2, 4, 1)
    assert np.all(plans.status == trajopt.STATUS.converged)
    assert np.allclose(plans.q[:, -1, 0], [-1.0, 1.0], atol=0.1)
    best = trajopt.best(plans)
    assert np.isclose(best.q[-1, 0], 1.0, atol=0.1) and best.cost == plans.cost[1]
    alone = trajopt.shooting(problem, guesses[0], progress=False)
    assert np.isclose(plans.cost[0], alone.cost, rtol=1e-6)


class Valleys(eqx.Module):
    """(q^2 - 1)^2 - q / 10."""

    def __call__(self, t, q, v):
        return 10 * (q[0] ** 2 - 1) ** 2 - 0.1 * q[0]


def test_gradient_is_the_discrete_one():
    """Of the cost with respect to every control: reverse mode against the condensed problem."""
    from jaxmbd.trajopt.control_guess import table
    from jaxmbd.trajopt.motion import cost, follow

    A, B = runge_kutta(DT)
    U = np.linspace(-1, 1, 2 * STEPS).reshape(STEPS, 2)
    x, xs = START, []
    for u in U:
        xs.append(x)
        x = A @ x + B @ u
    adjoint, expected = np.zeros(4), np.zeros((STEPS, 2))
    for k in reversed(range(STEPS)):
        expected[k] = 2 * DT * R @ U[k] + B.T @ adjoint
        adjoint = 2 * DT * Q @ xs[k] + A.T @ adjoint
    problem = masses(STEPS)
    gradient = jax.jit(jax.grad(lambda u: cost(problem, follow(problem, table(problem, u)))))(
        jnp.asarray(U)
    )
    assert np.allclose(gradient, expected, rtol=0, atol=1e-12)


TABLE = np.array([[0.0], [1.0], [4.0]])


def test_tables():
    constant = trajopt.PiecewiseConstant(1.0, 0.5, TABLE)
    linear = trajopt.PiecewiseLinear(1.0, 0.5, TABLE)
    times = np.array([0.0, 1.0, 1.25, 1.5, 1.75, 2.0, 2.4, 3.0])
    values = [[float(c(t, None, None)[0]) for t in times] for c in (constant, linear)]
    assert values[0] == [0, 0, 0, 1, 1, 4, 4, 4]
    assert np.allclose(values[1], [0, 0, 0.5, 1, 2.5, 4, 4, 4])
    cut = trajopt.Saturated(constant, 0.5, 2.0)
    assert [float(cut(t, None, None)[0]) for t in (1.0, 1.5, 2.0)] == [0.5, 1.0, 2.0]
    squashed = trajopt.Squashed(linear, -1.0, 3.0)
    assert np.isclose(squashed(1.75, None, None)[0], 1 + 2 * np.tanh(0.75))
    free = trajopt.Squashed(linear, -jnp.inf, jnp.inf)
    assert free(1.75, None, None)[0] == 2.5
    with pytest.raises(ValueError, match=r"`values`.*\(3,\)"):
        trajopt.PiecewiseConstant(0.0, 0.1, TABLE[:, 0])


def test_squashed_controls_keep_every_bound():
    """Between equal bounds u is held, a limit of intervals that shrink, and so are derivatives; a
    single bound is kept as two are."""
    lower, upper = jnp.array([-1.0, 2.0, 2.0, 0.0, -jnp.inf]), jnp.array([3.0, 2, 2, jnp.inf, 3])
    z = jnp.array([4.0, 5.0, 1.0, -2.0, 10.0])

    def squashed(z, lower, upper):
        return trajopt.Squashed(lambda t, q, v: z, lower, upper)(0.0, None, None)

    u = squashed(z, lower, upper)
    exact = [1 + 2 * np.tanh(1.5), 2, 2, np.log1p(np.exp(-2)), 3 - np.log1p(np.exp(-7))]
    np.testing.assert_allclose(u, exact, atol=1e-15)
    of_z, of_lower, of_upper = (
        np.diag(x) for x in jax.jit(jax.jacrev(squashed, argnums=(0, 1, 2)))(z, lower, upper)
    )
    sigmoids = [1 / (1 + np.exp(2)), 1 - 1 / (1 + np.exp(-7))]
    np.testing.assert_allclose(of_z, [np.cosh(1.5) ** -2, 0, 0, *sigmoids], atol=1e-15)
    # Above equal bounds it is the upper one that holds, below the lower one.
    np.testing.assert_array_equal(of_upper[1:3], [1, 0])
    np.testing.assert_array_equal(of_lower[1:3], [0, 1])
    there = trajopt.Squashed(lambda t, q, v: z, lower, upper)
    inside = jnp.array([2.9, 2.0, 2.0, 700.0, 2.9])
    np.testing.assert_allclose(squashed(there.inverse(inside, 0.98), lower, upper), inside)
    brought = squashed(there.inverse(jnp.array([9.0, 9.0, 9.0, -9.0, 9.0]), 0.98), lower, upper)
    np.testing.assert_allclose(brought, [2.96, 2.0, 2.0, 0.02, 2.98])


def test_shooting_within_one_bound():
    """min int (u + 1)^2 for u >= 0 is at u = 0."""
    problem = trajopt.Problem(
        Cart(),
        mbd.State(0.0, jnp.zeros(1), jnp.zeros(1)),
        duration=1.0,
        steps=2,
        nu=1,
        lower=0.0,
        running_cost=lambda t, q, v, u: jnp.sum((u + 1) ** 2),
    )
    plan = trajopt.shooting(problem, progress=False)
    assert np.all(plan.u >= 0) and np.all(plan.u < 1e-3)


def test_tables_hold_on_the_grid_and_drive_simulate():
    """A cart under a table: on the grid its motion is exact, as u is held; a table of straight
    lines is a control of `simulate` like any other, exact for RK4 as well."""
    problem = cart(3)
    u = jnp.array([[3.0], [-1.0], [2.0]])
    dt = 1 / 3
    plan = trajopt.perform(problem, trajopt.PiecewiseConstant(0.0, dt, u))
    speeds = np.concatenate([[0], dt * np.cumsum(u[:, 0])])
    places = np.concatenate([[0], np.cumsum(dt * (speeds[:-1] + speeds[1:]) / 2)])
    assert np.allclose(plan.v[:, 0], speeds, atol=1e-14)
    assert np.allclose(plan.q[:, 0], places, atol=1e-14)
    assert np.isclose(plan.cost, dt * np.sum(u**2)) and np.allclose(plan.open_loop.values, u)
    lines = trajopt.PiecewiseLinear(0.0, 0.5, jnp.array([[0.0], [2.0], [0.0]]))
    sol = mbd.simulate(Cart(), mbd.UdwadiaKalaba(), problem.state, t1=1.0, dt=0.25, control=lines)
    assert np.isclose(sol.v[-1, 0], 1.0, atol=1e-14)
    assert np.isclose(trajopt.perform(cart(4), lines).v[-1, 0], 1.0, atol=1e-14)


@pytest.mark.slow
def test_feedback_holds_a_plan_against_other_parameters():
    problem = masses(STEPS, end=Reach(jnp.zeros(2)))
    plan = trajopt.ilqr(problem, progress=False)
    other = eqx.tree_at(lambda p: p.system.stiffness, problem, jnp.array(1.3))
    closed = trajopt.perform(other, plan.control)
    free = trajopt.perform(other, plan.open_loop)
    assert closed.final_violation < 0.2 * free.final_violation
    # At points between those of the grid, the nominal motion is interpolated.
    t = 0.5 * DT
    middle = (plan.q[0] + plan.q[1]) / 2, (plan.v[0] + plan.v[1]) / 2
    assert np.allclose(plan.control(t, *middle), plan.u[0], atol=1e-12)
    nudged = plan.control(t, middle[0] + jnp.array([0.01, 0.0]), middle[1])
    assert np.allclose(nudged - plan.u[0], 0.01 * plan.control.gains[0, :, 0], atol=1e-12)


def test_controls_as_an_array():
    """The same as a table; another shape is refused; Python numbers in the problem do not make
    another program."""
    problem = cart(6)
    u = jnp.linspace(-1.0, 1.0, 6)[:, None]
    plan = trajopt.perform(problem, u)
    np.testing.assert_array_equal(plan.u, u)
    table = trajopt.PiecewiseConstant(0.0, problem.dt, u)
    np.testing.assert_array_equal(trajopt.perform(problem, table).q, plan.q)
    with compilation_events() as events:
        trajopt.perform(eqx.tree_at(lambda p: p.state.t, problem, 0.0), u)
    assert COMPILED not in events
    with pytest.raises(ValueError, match=r"\(6, 1\)"):
        trajopt.perform(problem, jnp.ones((5, 1)))


def test_plan_reads_well():
    text = str(trajopt.perform(cart(3), trajopt.Held(jnp.ones(1))))
    for part in ("not optimised", "cost               1\n", "0 to 1 s, 3 intervals"):
        assert part in text


START_STATE = mbd.State(0.0, jnp.zeros(1), jnp.zeros(1))


class Off(Cart):
    def constraint(self, q, t):
        return q - 1.0


class Vector(eqx.Module):
    def __call__(self, *args):
        return jnp.ones(3)


class Scalar(eqx.Module):
    def __call__(self, *args):
        return jnp.array(1.0)


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(steps=0), "`steps`.* must be a whole number, at least 1, but is 0"),
        (dict(substeps=-1), "`substeps`.*-1"),
        (dict(nu=0), "`nu`.*0"),
        (dict(duration=-1.0), "`duration`.* must be positive.*-1.0"),
        (dict(duration=jnp.ones(2)), r"`duration`.*\(2,\)"),
        (dict(lower=1.0, upper=0.0), "control 0 leave no room: `lower` is 1.0, `upper` is 0.0"),
        (dict(lower=jnp.zeros(2)), r"`lower`.*\(1,\).*\(2,\)"),
        (dict(upper=jnp.nan), "`upper`.* must be a number, but is nan"),
        (dict(running_cost=Vector()), r"`running_cost\(t, q, v, u\)` must return a scalar"),
        (dict(final=Scalar()), r"`final\(t, q, v\)` must return a vector"),
        (dict(path=Scalar()), r"`path\(t, q, v, u\)` must return a vector"),
        (dict(system=Off()), r"violates the constraints: \|Phi\| = 1.*`mbd.assemble`"),
        (dict(system=Masses()), "shape|shapes"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_bad_problems(changes, message):
    arguments = dict(system=Cart(), state=START_STATE, duration=1.0, steps=3, nu=1)
    arguments |= changes
    with pytest.raises((ValueError, TypeError), match=message):
        trajopt.Problem(**arguments)


def test_bad_searches():
    with pytest.raises(ValueError, match="`optimiser`.* must be one of optax"):
        trajopt.shooting(cart(3), optimiser="adam")
    with pytest.raises(ValueError, match="`Projected` bounds need a table.*Line"):
        trajopt.shooting(cart(3), Line(jnp.zeros(3)), bounds=trajopt.Projected())
    with pytest.raises(ValueError, match=r"`guesses`.* must have shape \(starts, 3, 1\)"):
        trajopt.multi_start(cart(3), jnp.zeros((3, 1)))
    with pytest.raises(ValueError, match="`guess.*` is NaN"):
        trajopt.shooting(cart(3), jnp.array([jnp.nan]))
    with pytest.raises(ValueError, match="`max_rounds`.* must be .*at least 1, but is 0"):
        trajopt.shooting(cart(3), max_rounds=0)


def test_what_is_trained():
    """Times and bounds are no unknowns, wherever they stand."""
    from jaxmbd.trajopt.controls import trainable

    inner = trajopt.PiecewiseLinear(jnp.zeros(()), jnp.ones(()), jnp.asarray(TABLE))
    mask = trainable(trajopt.Squashed(inner, -jnp.ones(1), jnp.ones(1)))
    assert mask.control.values and not (mask.control.t0 or mask.control.dt)
    assert not (mask.lower or mask.upper)
    network = eqx.nn.MLP(2, 1, 3, 1, key=jr.key(0))
    assert trainable(network).layers[0].weight


@pytest.mark.slow
def test_path_condition_by_shooting():
    exact = trajopt.ilqr(cart(STEPS, path=Speed(1.3)), progress=False)
    plan = trajopt.shooting(cart(STEPS, path=Speed(1.3)), condition_tolerance=1e-6, progress=False)
    assert plan.status == trajopt.STATUS.converged and plan.path_violation <= 1e-6
    assert np.isclose(plan.cost, exact.cost, rtol=1e-5)


class Skewed(Masses):
    """With a mass matrix that is none."""

    def mass_matrix(self, q):
        return jnp.array([[1.0, 0.5], [0.0, 1.0]])


def test_no_motion_of_parameters_out_of_range():
    """Known only when it runs, a negative stiffness is told by the plan, as `simulate` tells it."""

    @jax.jit
    def status(stiffness):
        method = mbd.ImplicitPenalty(stiffness)
        problem = trajopt.Problem(
            Masses(), mbd.State(0.0, START[:2], START[2:]), 0.2, 2, nu=2, enforcement=method
        )
        return trajopt.perform(problem, jnp.zeros(2)).status

    assert status(1.0) == trajopt.STATUS.performed
    assert status(-1.0) == trajopt.STATUS.failed_start


@pytest.mark.parametrize("guess", ["control", "states"])
def test_no_motion_of_a_mass_matrix_that_is_not_symmetric(guess):
    problem = eqx.tree_at(lambda p: p.system, masses(3), Skewed())
    given = jnp.zeros(2)
    if guess == "states":
        given = trajopt.Guess(jnp.zeros((4, 2)), jnp.zeros((4, 2)), jnp.zeros((4, 2)))
    plan = trajopt.ilqr(problem, given, max_iterations=2, progress=False)
    assert plan.status == trajopt.STATUS.failed_start


def test_no_shooting_with_a_mass_matrix_that_is_not_symmetric():
    problem = eqx.tree_at(lambda p: p.system, masses(3), Skewed())
    method = trajopt.DirectMultipleShooting()
    plan = trajopt.transcription(problem, jnp.zeros(2), method, progress=False)
    assert plan.status == trajopt.STATUS.failed_start


@pytest.mark.slow
def test_no_motion_beyond_the_contact_budget():
    """Of two balls there is room for the lower one. The other falls by 21 mm in six intervals, of
    one step each."""
    inertia = mbd.Inertia.sphere(radius=0.1, mass=1.0)
    places = {"low": (0.0, 0.0, 0.105), "high": (1.0, 0.0, 0.1)}
    balls = [mbd.Body(name, inertia, position=place) for name, place in places.items()]
    contacts = [
        mbd.Contact(ball.name, "ground", ball, mbd.HalfSpace(), mbd.Sphere(0.1)) for ball in balls
    ]
    mechanism = mbd.Mechanism(balls, contacts=contacts, contact_budget=1)
    method = mbd.ContactImpulse(contact_solver=mbd.ProjectedGaussSeidel(10))
    low = mechanism.state()
    height = np.flatnonzero(np.asarray(low.q) == 0.1)
    for gap, status in ((0.022, trajopt.STATUS.performed), (0.015, trajopt.STATUS.failed_start)):
        start = mbd.State(0.0, low.q.at[height].add(gap), low.v)
        problem = trajopt.Problem(mechanism, start, 0.06, 6, nu=1, enforcement=method)
        assert trajopt.perform(problem, jnp.zeros(1)).status == status

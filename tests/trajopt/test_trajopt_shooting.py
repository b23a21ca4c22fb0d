"""Problems, controls and shooting of `mbd.trajopt`, against closed forms."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.optimize
import trajopt_problems as tp
from helpers import COMPILED, compilation_events

import jaxmbd as mbd
from jaxmbd import trajopt
from jaxmbd._compiler import to_jax
from jaxmbd.trajopt.controls import trainable

STEPS = 6


def test_bounds_and_conditions():
    """A cart with bounds of the force, the lower of which acts, and of the speed, by the method of
    multipliers."""
    problem = tp.cart(STEPS, path=tp.Below(1.45, of_rate=True), lower=-5.1, upper=9.0)
    exact = tp.least_effort_between(STEPS, 1.45, -5.1)
    plan = trajopt.shooting(problem, condition_tolerance=1e-6, progress=False)
    assert tp.ended(plan, "successful") and float(plan.bound_violation) == 0
    assert max(float(plan.final_violation), float(plan.path_violation)) <= 1e-6
    np.testing.assert_allclose(plan.cost, exact.fun, rtol=1e-5)


@pytest.mark.slow
def test_projected_gradients():
    """As bounded least squares of the condensed problem; some bounds are missing, and some act."""
    a, b = tp.condensed(STEPS)
    lower, upper = np.array([-0.4, -np.inf]), np.array([np.inf, 0.5])
    limits = np.tile(lower, STEPS), np.tile(upper, STEPS)
    exact = scipy.optimize.lsq_linear(a, -b, limits, method="bvls", tol=1e-14)
    assert np.any(exact.active_mask == -1)
    problem = tp.masses(STEPS, lower=lower, upper=upper)
    options = dict(optimiser=optax.adam(0.05), bounds=trajopt.Saturated, tolerance=1e-5)
    plan = trajopt.shooting(problem, **options, progress=False)
    assert plan.bound_violation == 0
    np.testing.assert_allclose(plan.cost, 2 * exact.cost, rtol=1e-5)
    assert plan.cost >= 2 * exact.cost * (1 - 1e-9)


class Line(eqx.Module):
    """A policy of three numbers: u = a + b t + c v."""

    numbers: jax.Array

    def __call__(self, t, q, v):
        a, b, c = self.numbers
        return a + b * t + c * v


@pytest.mark.slow
def test_parameters_of_a_policy():
    """With u = a + b t, continuous in time, the cart's optimum is that of continuous time,
    int u^2 dt = 12, but for the left rectangles of the cost; by the method of multipliers."""
    policy = Line(jnp.zeros(3))
    plan = trajopt.shooting(tp.cart(40), policy, condition_tolerance=1e-6, progress=False)
    assert tp.ended(plan, "successful") and plan.final_violation <= 1e-6
    a, b, c = np.asarray(plan.control.control.numbers)
    t, q, v, u = map(np.asarray, (plan.t, plan.q, plan.v, plan.u))
    np.testing.assert_allclose(u[:, 0], a + b * t[:-1] + c * v[:-1, 0])
    np.testing.assert_allclose(plan.cost, 12.0, rtol=0.03)
    # The motion itself has no such error: it is a cubic, or near to one.
    assert np.isclose(q[20, 0], 0.5, atol=0.03)


@pytest.mark.slow
def test_starts_side_by_side():
    """A cost with two valleys, at its end (q^2 - 1)^2 - q / 100: each start falls into its own, and
    the best is picked."""
    valleys = lambda t, q, v: 10 * (q[0] ** 2 - 1) ** 2 - 0.1 * q[0]  # noqa: E731
    problem = tp.cart(3, running_cost=tp.Effort(0.01), final=None, final_cost=valleys)
    guesses = np.array([-1.0, 1.0])[:, None, None] * np.ones((2, 3, 1))
    plans = trajopt.shooting(problem, trajopt.Starts(guesses), progress=False)
    assert plans.q.shape == (2, 4, 1) and np.all(plans.result == mbd.RESULTS.successful)
    np.testing.assert_allclose(np.asarray(plans.q)[:, -1, 0], [-1.0, 1.0], atol=0.1)
    best = trajopt.best(plans)
    assert np.isclose(np.asarray(best.q)[-1, 0], 1.0, atol=0.1)
    assert best.cost == np.min(plans.cost) < np.max(plans.cost)


TABLE = np.array([[0.0], [1.0], [4.0]])


@jax.jit
def at(control, times):
    return jax.vmap(lambda t: control(t, None, None)[0])(times)


def test_tables():
    constant = trajopt.PiecewiseConstant(1.0, 0.5, TABLE)
    linear = trajopt.PiecewiseLinear(1.0, 0.5, TABLE)
    times = np.array([0.0, 1.0, 1.25, 1.5, 1.75, 2.0, 2.4, 3.0])
    values = np.array([0, 0, 0.5, 1, 2.5, 4, 4, 4])
    for control, expected in (
        (constant, [0, 0, 0, 1, 1, 4, 4, 4]),
        (linear, values),
        (trajopt.Saturated(constant, 0.5, 2.0), [0.5, 0.5, 0.5, 1, 1, 2, 2, 2]),
        (trajopt.Squashed(linear, -1.0, 3.0), 1 + 2 * np.tanh((values - 1) / 2)),
        (trajopt.Squashed(linear, -np.inf, np.inf), values),
    ):
        np.testing.assert_allclose(at(control, times), expected)
    with pytest.raises(ValueError, match=r"`values`.*\(3,\)"):
        trajopt.PiecewiseConstant(0.0, 0.1, TABLE[:, 0])


def test_squashed_controls_keep_every_bound():
    """Between equal bounds u is held, a limit of intervals that shrink, and so are derivatives; a
    single bound is kept as two are."""
    lower, upper = np.array([-1.0, 2.0, 2.0, 0.0, -np.inf]), np.array([3.0, 2, 2, np.inf, 3])
    z = np.array([4.0, 5.0, 1.0, -2.0, 10.0])

    @jax.jit
    def squashed(z, lower, upper):
        return trajopt.Squashed(lambda t, q, v: z, lower, upper)(0.0, None, None)

    @jax.jit
    def there_and_back(u):
        inverse = trajopt.Squashed(lambda t, q, v: z, lower, upper).inverse(u, 0.98)
        return squashed(inverse, lower, upper)

    exact = [1 + 2 * np.tanh(1.5), 2, 2, np.log1p(np.exp(-2)), 3 - np.log1p(np.exp(-7))]
    np.testing.assert_allclose(squashed(z, lower, upper), exact, atol=1e-15)
    slopes = jax.jit(jax.jacrev(squashed, argnums=(0, 1, 2)))(z, lower, upper)
    of_z, of_lower, of_upper = map(np.diag, slopes)
    sigmoids = [1 / (1 + np.exp(2)), 1 - 1 / (1 + np.exp(-7))]
    np.testing.assert_allclose(of_z, [np.cosh(1.5) ** -2, 0, 0, *sigmoids], atol=1e-15)
    # Above equal bounds it is the upper one that holds, below the lower one.
    np.testing.assert_array_equal(of_upper[1:3], [1, 0])
    np.testing.assert_array_equal(of_lower[1:3], [0, 1])
    inside = np.array([2.9, 2.0, 2.0, 700.0, 2.9])
    np.testing.assert_allclose(there_and_back(inside), inside)
    brought = there_and_back(np.array([9.0, 9.0, 9.0, -9.0, 9.0]))
    np.testing.assert_allclose(brought, [2.96, 2.0, 2.0, 0.02, 2.98])


def test_tables_hold_on_the_grid():
    """A cart under a table: on the grid its motion is exact, as u is held; an array is a table.
    RK4 is exact for straight lines, too."""
    problem, u, dt = tp.cart(3), np.array([[3.0], [-1.0], [2.0]]), 1 / 3
    plan = trajopt.perform(problem, trajopt.PiecewiseConstant(0.0, dt, u))
    speeds = np.concatenate([[0], dt * np.cumsum(u[:, 0])])
    places = np.concatenate([[0], np.cumsum(dt * (speeds[:-1] + speeds[1:]) / 2)])
    np.testing.assert_allclose(np.ravel(plan.v), speeds, atol=1e-14)
    np.testing.assert_allclose(np.ravel(plan.q), places, atol=1e-14)
    np.testing.assert_allclose(plan.cost, dt * np.sum(u**2))
    np.testing.assert_array_equal(plan.open_loop.values, u)
    for part in ("not optimised", f"cost               {dt * 14:.9g}\n", "0 to 1 s, 3 intervals"):
        assert part in str(plan)
    np.testing.assert_array_equal(trajopt.perform(problem, u).q, plan.q)
    # Python numbers in the problem do not make another program.
    with compilation_events() as events:
        trajopt.perform(eqx.tree_at(lambda p: p.state.t, problem, 0.0), u)
    assert COMPILED not in events
    lines = trajopt.PiecewiseLinear(0.0, 0.5, np.array([[0.0], [2.0], [0.0]]))
    v = np.asarray(trajopt.perform(tp.cart(4), lines).v)
    np.testing.assert_allclose(v[-1], [1.0], atol=1e-14)


@pytest.mark.slow
def test_feedback_interpolates_the_nominal_motion():
    plan = trajopt.ilqr(tp.masses(STEPS, end=tp.Reach(np.zeros(2))), progress=False)
    q, v = ((x[0] + x[1]) / 2 for x in (plan.q, plan.v))
    np.testing.assert_allclose(plan.control(0.5 * tp.DT, q, v), plan.u[0], atol=1e-12)
    nudged = plan.control(0.5 * tp.DT, q + np.array([0.01, 0.0]), v)
    np.testing.assert_allclose(nudged - plan.u[0], 0.01 * plan.control.gains[0, :, 0], atol=1e-12)


def test_what_is_trained():
    """Times and bounds are no unknowns, wherever they stand."""
    inner = trajopt.PiecewiseLinear(np.zeros(()), np.ones(()), TABLE)
    mask = trainable(trajopt.Squashed(inner, -np.ones(1), np.ones(1)))
    assert mask.control.values and not (mask.control.t0 or mask.control.dt)
    assert not (mask.lower or mask.upper)
    assert trainable(Line(to_jax(np.zeros(3)))).numbers


@pytest.mark.slow
def test_motions_that_fail_are_told():
    """Known only when it runs, a negative stiffness is told as `simulate` tells it."""

    @jax.jit
    def performed(stiffness):
        problem = tp.masses(2, enforcement=mbd.ImplicitPenalty(stiffness))
        return trajopt.perform(problem, np.zeros(2))

    assert tp.ended(performed(1.0), "successful") and tp.ended(performed(-1.0), "failed_start")

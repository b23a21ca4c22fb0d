"""Collocation and multiple shooting of a mass on a line and of nonlinear programs, against closed
forms and an independent optimiser. Verdicts and bad input."""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import COMPILED, compilation_events
from trajopt_problems import (
    HERMITE,
    SHOOTING,
    STATUS,
    TRAPEZOIDAL,
    Below,
    Cart,
    Effort,
    Reach,
    cart,
    converged,
    least_push,
    pushed,
    solve,
)

import jaxmbd as mbd
from jaxmbd import trajopt as T
from jaxmbd.trajopt.nlp import Evaluator


class Rosenbrock(eqx.Module):
    """A chain: each part sees two neighbours and a variable of all."""

    def __call__(self, x, k):
        a, b, c = x
        cost = 100 * (b - a**2) ** 2 + (1 - a) ** 2 + k * c**2
        return cost, jnp.stack([a * b * c + k, jnp.sin(b) + c**3])


def chain(n=5):
    index = np.stack([np.arange(1, n), np.arange(2, n + 1), np.zeros(n - 1, int)], axis=1)
    terms = [
        T.Term(Rosenbrock(), index, np.arange(n - 1.0), np.zeros(2), np.ones(2)),
        T.Term(Rosenbrock(), index[::-1], np.ones(n - 1), -np.ones(2), np.ones(2)),
    ]
    x = np.linspace(-1, 1, n + 1)
    return T.NonlinearProgram(tuple(terms), x, x - 2, x + 2)


def test_sparse_derivatives_are_those_of_the_whole_program():
    program = chain()
    evaluator, x = Evaluator(program), np.random.default_rng(1).normal(size=6)
    lam = np.random.default_rng(2).normal(size=len(evaluator.row_lower))

    def objective(x):
        return sum(jnp.sum(term.values(x)[0]) for term in program.terms)

    def rows(x):
        return jnp.concatenate([term.values(x)[1].ravel() for term in program.terms])

    @jax.jit
    def whole(x):
        lagrangian = lambda x: 0.7 * objective(x) + lam @ rows(x)  # noqa: E731
        return jax.grad(objective)(x), jax.jacfwd(rows)(x), jax.hessian(lagrangian)(x)

    gradient, jacobian, hessian = whole(x)
    J, H = np.zeros((len(lam), 6)), np.zeros((6, 6))
    np.add.at(J, evaluator.jacobian_places(), evaluator.jacobian(x))
    np.add.at(H, evaluator.hessian_places(), evaluator.hessian(x, 0.7, lam))
    np.testing.assert_allclose(J, jacobian, atol=1e-12)
    np.testing.assert_allclose(H, np.tril(hessian), atol=1e-9)
    np.testing.assert_allclose(evaluator.gradient(x), gradient, atol=1e-9)


def himmelblau(x, data):
    a, b = x
    rows = jnp.stack([a - 2 * b + 1, a**2 / 4 + b**2 - 1])
    return (a - 2) ** 2 + (b - 1) ** 2, rows


@pytest.mark.parametrize("solver", [T.Uno(), T.Uno("filtersqp"), T.SciPy()])
def test_solvers_find_the_minimum(solver):
    """min (x - 2)^2 + (y - 1)^2 with x = 2 y - 1, x^2 / 4 + y^2 <= 1 (Himmelblau's)."""
    bounds = np.array([0.0, -np.inf]), np.zeros(2)
    term = T.Term(himmelblau, np.array([[0, 1]]), None, *bounds)
    free = np.full(2, np.inf)
    found = solver.solve(T.NonlinearProgram((term,), np.array([2.0, 2.0]), -free, free))
    root = np.sqrt(7.0)
    accuracy = 1e-4 if isinstance(solver, T.SciPy) else 1e-6
    np.testing.assert_allclose(found.x, [(root - 1) / 2, (root + 1) / 4], atol=accuracy)
    assert found.status == STATUS.converged and found.violation < 1e-6


@pytest.mark.parametrize(
    "x, violation", [((0.7, 1.0), 0.3), ((3.0, 2.0), 5.25), ((0.0, 0.5), 0.7), ((1.2, 1.1), 0.57)]
)
def test_largest_violation(x, violation):
    """Of Himmelblau's rows, below and above, and of bounds from 0.7 to 1 on both variables."""
    term = T.Term(himmelblau, np.array([[0, 1]]), None, np.array([0.0, -np.inf]), np.zeros(2))
    bounds = np.full(2, 0.7), np.ones(2)
    evaluator = Evaluator(T.NonlinearProgram((term,), np.zeros(2), *bounds))
    np.testing.assert_allclose(evaluator.violation(np.array(x)), violation, rtol=1e-12)


def test_missing_solver_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "unopy", None)
    with pytest.raises(ImportError, match=r"jaxmbd\[trajopt\]"):
        T.Uno().solve(chain())


# --- closed forms -------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", [T.Uno(), T.SciPy()])
def test_least_energy_is_the_cubic(solver):
    """x = 3 t^2 - 2 t^3, u = 6 - 12 t, J = 12: Hermite-Simpson has it exactly."""
    plan = solve(cart(6), solver=solver)
    assert converged(plan)
    t = np.asarray(plan.t)
    np.testing.assert_allclose(plan.cost, 12.0, rtol=1e-6)
    np.testing.assert_allclose(np.ravel(plan.q), 3 * t**2 - 2 * t**3, atol=1e-5)
    fine, q = np.linspace(0, 1, 20), np.zeros(1)
    u = jax.jit(lambda control, t: jax.vmap(lambda t: control(t, q, q))(t))(plan.control, fine)
    np.testing.assert_allclose(u[:, 0], 6 - 12 * fine, atol=1e-4)


def test_new_numbers_compile_nothing():
    solve(cart(6))
    with compilation_events() as events:
        plan = solve(cart(6, 1.2, 1.5, mass=2.0))
    assert COMPILED not in events
    np.testing.assert_allclose(plan.cost, 12 * 4 * 1.5**2 / 1.2**3, rtol=1e-6)


def time(t, q, v, u):
    return jnp.ones((), q.dtype)


@pytest.mark.parametrize(
    "method, limit",
    [
        (SHOOTING, 1e-6),
        pytest.param(HERMITE, 0.02, marks=pytest.mark.slow),
    ],
)
def test_least_time_is_bang_bang(method, limit):
    """T = 2 sqrt(distance mass / force), exactly where the control may jump on the grid."""
    problem = cart(6, distance=2.0, running_cost=time, lower=-3.0, upper=3.0)
    plan = solve(problem, method, duration=(0.1, 10.0))
    assert converged(plan)
    assert -1e-6 < plan.cost / (2 * np.sqrt(2.0 / 3.0)) - 1 < limit
    np.testing.assert_allclose(np.asarray(plan.t)[-1], plan.cost, rtol=1e-12)
    if method is SHOOTING:
        np.testing.assert_allclose(np.ravel(plan.u), [3, 3, 3, -3, -3, -3], atol=1e-4)


def test_path_condition_holds():
    """Bryson and Ho (1975), Applied optimal control, section 3.11, example 2: from v = 1 to -1 at
    the same place below a limit L <= 1/6, int u^2 = 8 / (9 L). One iteration is not enough."""
    limit = 1 / 8
    problem = T.Problem(
        Cart(),
        mbd.State(0.0, np.zeros(1), np.ones(1)),
        1.0,
        24,
        nu=1,
        running_cost=Effort(),
        final=Reach(np.zeros(1), -np.ones(1)),
        path=Below(limit),
    )
    plan = solve(problem)
    assert converged(plan) and plan.path_violation < 1e-7
    np.testing.assert_allclose(plan.cost, 8 / (9 * limit), rtol=2e-3)
    assert np.max(plan.q) > limit - 1e-3
    assert solve(problem, solver=T.Uno(max_iterations=1)).status == STATUS.running


# --- verdicts and input -------------------------------------------------------------------------


def test_out_of_reach_is_reported():
    plan = solve(cart(6, distance=10.0, lower=-1.0, upper=1.0))
    assert plan.status == STATUS.infeasible
    assert "contradict" in plan.message and plan.message in str(plan)
    assert np.isfinite(plan.q).all()


def test_guess_that_is_not_finite_is_reported():
    plan = solve(
        cart(6), guess=T.Guess(np.full((7, 1), np.inf), np.zeros((7, 1)), np.zeros((7, 1)))
    )
    assert plan.status == STATUS.failed_start and "not finite" in plan.message


@pytest.mark.slow
def test_plan_of_a_coarse_grid_begins_a_fine_one():
    fine = solve(cart(8), HERMITE, solve(cart(4), TRAPEZOIDAL))
    assert converged(fine) and fine.q.shape == (9, 1)
    np.testing.assert_allclose(fine.cost, 12.0, rtol=1e-6)


@pytest.mark.parametrize("method", [HERMITE, TRAPEZOIDAL])
def test_collocation_refuses_contacts(method):
    """The block would fall through the ground."""
    with pytest.raises(ValueError, match="1 contacts.*DirectMultipleShooting"):
        solve(pushed(8, 1e-3), method)


@pytest.mark.slow
def test_contact_by_multiple_shooting():
    """Sliding with friction, as far as its law is smoothed."""
    plan = solve(pushed(8, 1e-3), SHOOTING, np.full((8, 1), 2.5))
    u, cost = least_push(8)
    assert converged(plan)
    np.testing.assert_allclose(plan.cost, cost, rtol=1e-4)
    np.testing.assert_allclose(plan.u[:, 0], u, atol=5e-3)


def test_not_inside_of_jit():
    def cost(duration):
        return solve(eqx.tree_at(lambda p: p.duration, cart(6), duration)).cost

    with pytest.raises(ValueError, match="outside"):
        jax.eval_shape(cost, jax.ShapeDtypeStruct((), float))

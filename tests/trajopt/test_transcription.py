"""Collocation and multiple shooting of a mass on a line and of nonlinear programs, against closed
forms and an independent optimiser. Verdicts and bad input."""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import COMPILED, compilation_events
from jaxtyping import Array
from trajopt_problems import least_push, pushed
from transcribed import (
    HERMITE,
    SHOOTING,
    TRAPEZOIDAL,
    Effort,
    Mass,
    Reach,
    Time,
    converged,
    rest_to_rest,
    solve,
)

import jaxmbd as mbd
from jaxmbd import trajopt as T
from jaxmbd.trajopt.nlp import Evaluator

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
    np.testing.assert_allclose(J, jax.jit(jax.jacfwd(rows))(jnp.array(x)), atol=1e-12)
    np.testing.assert_allclose(
        H, np.tril(jax.jit(jax.hessian(lagrangian))(jnp.array(x))), atol=1e-9
    )
    np.testing.assert_allclose(
        evaluator.gradient(x), jax.jit(jax.grad(objective))(jnp.array(x)), atol=1e-9
    )


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
    u = jax.jit(jax.vmap(lambda t: plan.control(t, plan.q[0], plan.v[0])))(t)
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

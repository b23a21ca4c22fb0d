"""Collocation and multiple shooting of a mass on a line and of nonlinear programs, against closed
forms and an independent optimiser. Verdicts and bad input."""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trajopt_problems as tp
from helpers import COMPILED, compilation_events

from jaxmbd import trajopt as T
from jaxmbd._compiler import to_jax
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


def himmelblaus(lower, upper):
    """min (x - 2)^2 + (y - 1)^2 with x = 2 y - 1, x^2 / 4 + y^2 <= 1, between bounds."""
    term = T.Term(himmelblau, np.array([[0, 1]]), None, np.array([0.0, -np.inf]), np.zeros(2))
    return T.NonlinearProgram((term,), np.full(2, 2.0), np.full(2, lower), np.full(2, upper))


@pytest.mark.parametrize("solver", [T.Uno(), T.Uno("filtersqp"), T.SciPy()])
def test_solvers_find_the_minimum(solver):
    found = solver.solve(himmelblaus(-np.inf, np.inf))
    root = np.sqrt(7.0)
    accuracy = 1e-4 if isinstance(solver, T.SciPy) else 1e-6
    np.testing.assert_allclose(found.x, [(root - 1) / 2, (root + 1) / 4], atol=accuracy)
    assert tp.ended(found, "successful") and found.violation < 1e-6


@pytest.mark.parametrize(
    "x, violation", [((0.7, 1.0), 0.3), ((3.0, 2.0), 5.25), ((0.0, 0.5), 0.7), ((1.2, 1.1), 0.57)]
)
def test_largest_violation(x, violation):
    """Of Himmelblau's rows, below and above, and of bounds from 0.7 to 1 on both variables."""
    evaluator = Evaluator(himmelblaus(0.7, 1.0))
    np.testing.assert_allclose(evaluator.violation(np.array(x)), violation, rtol=1e-12)


def test_missing_solver_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "unopy", None)
    with pytest.raises(ImportError, match=r"jaxmbd\[trajopt\]"):
        T.Uno().solve(chain())


# --- closed forms -------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", [T.Uno(), T.SciPy()])
def test_least_energy_is_the_cubic(solver):
    """x = 3 t^2 - 2 t^3, u = 6 - 12 t, J = 12: Hermite-Simpson has it exactly."""
    plan = tp.solve(tp.cart(6), solver=solver)
    assert tp.converged(plan)
    t = np.asarray(plan.t)
    np.testing.assert_allclose(plan.cost, 12.0, rtol=1e-6)
    np.testing.assert_allclose(np.ravel(plan.q), 3 * t**2 - 2 * t**3, atol=1e-5)
    fine, q = np.linspace(0, 1, 20), np.zeros(1)
    u = jax.jit(lambda control, t: jax.vmap(lambda t: control(t, q, q))(t))(plan.control, fine)
    np.testing.assert_allclose(np.ravel(u), 6 - 12 * fine, atol=1e-4)


def test_new_numbers_compile_nothing():
    tp.solve(tp.cart(6))
    with compilation_events() as events:
        plan = tp.solve(tp.cart(6, 1.2, 1.5, mass=2.0))
    assert COMPILED not in events
    np.testing.assert_allclose(plan.cost, 12 * 4 * 1.5**2 / 1.2**3, rtol=1e-6)


def time(t, q, v, u):
    return jnp.ones((), q.dtype)


@pytest.mark.parametrize(
    "method, limit", [(tp.SHOOTING, 1e-6), pytest.param(tp.HERMITE, 0.02, marks=pytest.mark.slow)]
)
def test_least_time_is_bang_bang(method, limit):
    """T = 2 sqrt(distance mass / force), exactly where the control may jump on the grid."""
    problem = tp.cart(6, distance=2.0, running_cost=time, lower=-3.0, upper=3.0)
    plan = tp.solve(problem, method, duration=(0.1, 10.0))
    assert tp.converged(plan)
    assert -1e-6 < float(plan.cost) / (2 * np.sqrt(2.0 / 3.0)) - 1 < limit
    np.testing.assert_allclose(np.asarray(plan.t)[-1], plan.cost, rtol=1e-12)
    if method is tp.SHOOTING:
        np.testing.assert_allclose(np.ravel(plan.u), [3, 3, 3, -3, -3, -3], atol=1e-4)


def test_path_condition_holds():
    """Bryson and Ho (1975), Applied optimal control, section 3.11, example 2: from v = 1 to -1 at
    the same place below a limit L <= 1/6, int u^2 = 8 / (9 L). One iteration is not enough."""
    limit = 1 / 8
    problem = tp.cart(24, final=tp.Reach(np.zeros(1), -np.ones(1)), path=tp.Below(limit))
    problem = eqx.tree_at(lambda p: p.state.v, problem, to_jax(np.ones(1)))
    plan = tp.solve(problem)
    assert tp.converged(plan) and float(plan.path_violation) < 1e-7
    np.testing.assert_allclose(plan.cost, 8 / (9 * limit), rtol=2e-3)
    assert np.max(np.asarray(plan.q)) > limit - 1e-3
    assert tp.ended(tp.solve(problem, solver=T.Uno(max_iterations=1)), "max_iterations_reached")


# --- verdicts and input -------------------------------------------------------------------------


def test_out_of_reach_is_reported():
    plan = tp.solve(tp.cart(6, distance=10.0, lower=-1.0, upper=1.0))
    assert tp.ended(plan, "infeasible")
    assert "contradict" in str(plan)
    assert np.isfinite(plan.q).all()


def test_guess_that_is_not_finite_is_reported():
    plan = tp.solve(tp.cart(6), guess=T.Guess(np.full((7, 1), np.inf), *np.zeros((2, 7, 1))))
    assert tp.ended(plan, "failed_start") and "not finite" in plan.message


@pytest.mark.slow
def test_plan_of_a_coarse_grid_begins_a_fine_one():
    fine = tp.solve(tp.cart(8), tp.HERMITE, tp.solve(tp.cart(4), tp.TRAPEZOIDAL))
    assert tp.converged(fine) and fine.q.shape == (9, 1)
    np.testing.assert_allclose(fine.cost, 12.0, rtol=1e-6)


@pytest.mark.parametrize("method", [tp.HERMITE, tp.TRAPEZOIDAL])
def test_collocation_refuses_contacts(method):
    """The block would fall through the ground."""
    with pytest.raises(ValueError, match="1 contacts.*DirectMultipleShooting"):
        tp.solve(tp.pushed(8, 1e-3), method)


@pytest.mark.slow
@pytest.mark.parametrize("by_ilqr", [False, True])
def test_contact(by_ilqr):
    """Sliding with friction, as far as its law is smoothed."""
    problem, guess = tp.pushed(8, 1e-3), np.full((8, 1), 2.5)
    if by_ilqr:
        plan = T.ilqr(problem, guess, expansion=T.FirstOrder(), progress=False)
    else:
        plan = tp.solve(problem, tp.SHOOTING, guess)
    u, cost = tp.least_push(8)
    assert tp.converged(plan)
    np.testing.assert_allclose(plan.cost, cost, rtol=1e-4)
    np.testing.assert_allclose(plan.u[:, 0], u, atol=5e-3)


def test_not_inside_of_jit():
    def cost(duration):
        return tp.solve(eqx.tree_at(lambda p: p.duration, tp.cart(6), duration)).cost

    with pytest.raises(ValueError, match="outside"):
        jax.eval_shape(cost, jax.ShapeDtypeStruct((), float))

"""Iterative LQR of linear masses, against Riccati's equation and independent optimisers."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.optimize
from riccati_equation import DT, riccati
from trajopt_problems import (
    START,
    Q,
    QuadraticRunning,
    R,
    Reach,
    Speed,
    cart,
    least_effort,
    masses,
    runge_kutta,
)

import jaxmbd as mbd
from jaxmbd import trajopt


def test_regulator_is_riccatis():
    """With P as the cost of the end, a finite horizon has the cost and the gains of the endless
    one; the first iteration finds them."""
    P, gain = riccati()
    plan = trajopt.ilqr(masses(final=P), progress=False)
    assert plan.status == trajopt.STATUS.converged
    assert plan.iterations <= 3
    assert np.isclose(plan.cost, START @ P @ START, rtol=1e-12)
    assert np.allclose(plan.control.gains, -gain, rtol=0, atol=1e-9)
    x = np.concatenate([plan.q[:-1], plan.v[:-1]], axis=1)
    assert np.allclose(plan.u, -x @ gain.T, rtol=0, atol=1e-9)


def test_states_of_a_guess_are_joined(getkey):
    """Of a linear motion one whole step joins any states to the best one; a plan on another grid
    is such states too."""
    P, _ = riccati()
    problem = masses(final=P)
    points = problem.steps + 1
    guess = trajopt.Guess(*(jr.normal(getkey(), (points, 2)) for _ in range(3)))
    plan = trajopt.ilqr(problem, guess, progress=False)
    assert plan.status == trajopt.STATUS.converged
    assert plan.iterations <= 3
    assert np.isclose(plan.cost, START @ P @ START, rtol=1e-12)
    again = trajopt.perform(problem, plan.open_loop)
    assert np.allclose(again.q, plan.q, rtol=0, atol=1e-12)


def condensed(steps, dt=DT):
    """Rows r(U) = a U + b with |r|^2 = cost, U all controls one after the other."""
    A, B = runge_kutta(dt)
    q, r = np.linalg.cholesky(dt * Q).T, np.linalg.cholesky(dt * R).T
    x, x_of_u = START, np.zeros((4, 2 * steps))
    rows, right = [], []
    for k in range(steps):
        u_of_u = np.zeros((2, 2 * steps))
        u_of_u[:, 2 * k : 2 * k + 2] = np.eye(2)
        rows += [q @ x_of_u, r @ u_of_u]
        right += [q @ x, np.zeros(2)]
        x, x_of_u = A @ x, A @ x_of_u + B @ u_of_u
    return np.concatenate(rows), np.concatenate(right), x, x_of_u


def test_bounds_as_in_bounded_least_squares():
    steps, lower, upper = 12, np.array([-0.6, -0.3]), np.array([0.5, 0.2])
    a, b, *_ = condensed(steps)
    bounds = np.tile(lower, steps), np.tile(upper, steps)
    exact = scipy.optimize.lsq_linear(a, -b, bounds, method="bvls", tol=1e-14)
    plan = trajopt.ilqr(masses(steps, lower=lower, upper=upper), progress=False)
    assert plan.status == trajopt.STATUS.converged
    assert np.sum(exact.active_mask != 0) > 5
    assert np.isclose(plan.cost, 2 * exact.cost, rtol=1e-9)
    assert np.allclose(plan.u.ravel(), exact.x, rtol=0, atol=1e-5)
    assert plan.bound_violation == 0


def test_final_conditions_as_in_the_kkt_system():
    """min |a U + b|^2 subject to x_N = 0."""
    steps = 12
    a, b, x, x_of_u = condensed(steps)
    n = 2 * steps
    kkt = np.block([[a.T @ a, x_of_u.T], [x_of_u, np.zeros((4, 4))]])
    U = np.linalg.solve(kkt, np.concatenate([-a.T @ b, -x]))[:n]
    problem = masses(steps, end=Reach(jnp.zeros(2)))
    plan = trajopt.ilqr(problem, condition_tolerance=1e-9, progress=False)
    assert plan.status == trajopt.STATUS.converged
    assert plan.final_violation <= 1e-9
    assert np.isclose(plan.cost, np.sum((a @ U + b) ** 2), rtol=1e-7)
    assert np.allclose(plan.u.ravel(), U, rtol=0, atol=1e-4)


@pytest.mark.slow
def test_path_conditions_as_in_an_independent_optimiser():
    """A cart with a speed limit, against SLSQP on the same unknowns."""
    steps, limit = 10, 1.2
    dt = 1 / steps
    left = 1 - dt * (np.arange(steps) + 0.5)
    speeds = dt * np.tril(np.ones((steps, steps)))
    exact = scipy.optimize.minimize(
        lambda u: dt * u @ u,
        np.zeros(steps),
        jac=lambda u: 2 * dt * u,
        method="SLSQP",
        constraints=[
            dict(type="eq", fun=lambda u: np.array([dt * left @ u - 1, dt * u.sum()])),
            dict(type="ineq", fun=lambda u: limit - speeds @ u),
        ],
        options=dict(ftol=1e-14, maxiter=300),
    )
    plan = trajopt.ilqr(cart(steps, path=Speed(limit)), progress=False)
    assert plan.status == trajopt.STATUS.converged
    assert np.max(plan.v) > limit - 1e-5  # the limit matters
    assert exact.fun > 1.01 * least_effort(steps, 1.0, 1.0)
    assert np.isclose(plan.cost, exact.fun, rtol=1e-5)
    assert np.allclose(plan.u[:, 0], exact.x, rtol=0, atol=1e-3)


class LastControl(eqx.Module):
    """A condition of state and control together: u + v <= 0.5."""

    def __call__(self, t, q, v, u):
        return u + v - 0.5


def test_path_conditions_with_the_last_control():
    """The condition at the end couples the last state with the last control."""
    problem = trajopt.Problem(
        cart(4).system,
        mbd.State(0.0, jnp.zeros(1), jnp.zeros(1)),
        1.0,
        4,
        nu=1,
        running_cost=Pull(),
        path=LastControl(),
    )
    plan = trajopt.ilqr(problem, progress=False, condition_tolerance=1e-8)
    # By hand, the conditions are linear: v(k+1) = v(k) + u(k) / 4.
    v_of_u = np.tril(np.full((5, 4), 0.25), -1)
    u_of_u = np.concatenate([np.eye(4), np.eye(4)[-1:]])
    exact = scipy.optimize.minimize(
        lambda u: np.sum((u - 1) ** 2) / 4,
        np.zeros(4),
        method="SLSQP",
        constraints=[dict(type="ineq", fun=lambda u: 0.5 - (v_of_u + u_of_u) @ u)],
        options=dict(ftol=1e-14),
    )
    assert plan.status == trajopt.STATUS.converged
    assert np.allclose(plan.u[:, 0], exact.x, rtol=0, atol=1e-5)


class Pull(eqx.Module):
    """(u - 1)^2."""

    def __call__(self, t, q, v, u):
        return jnp.sum((u - 1.0) ** 2)


def test_new_numbers_compile_nothing():
    P, _ = riccati()
    count = Count()
    problem = masses(final=P)
    problem = eqx.tree_at(lambda p: p.running_cost, problem, Counted(problem.running_cost, count))
    trajopt.ilqr(problem, jnp.zeros(2), progress=False)
    before = count.calls
    other = eqx.tree_at(
        lambda p: (p.system.stiffness, p.running_cost.inner.R, p.state.q, p.duration),
        problem,
        (jnp.array(1.3), jnp.asarray(2 * R), jnp.array([0.1, 0.2]), jnp.array(1.4)),
    )
    plan = trajopt.ilqr(other, 0.1 * jnp.ones(2), progress=False, tolerance=1e-10)
    assert before > 0 and count.calls == before
    assert plan.status == trajopt.STATUS.converged


class Count:
    """A counter that is the same for every purpose of compilation."""

    calls = 0


class Counted(eqx.Module):
    inner: QuadraticRunning
    count: Count = eqx.field(static=True)

    def __call__(self, *args):
        self.count.calls += 1
        return self.inner(*args)


@pytest.mark.slow
def test_a_batch_is_a_loop():
    """`jax.vmap` over starts; each has its own number of iterations."""
    P, _ = riccati()
    problem = masses(final=P, upper=np.array([0.3, 0.3]))
    starts = jnp.asarray(START[:2])[None] * jnp.array([1.0, 0.1, -2.0])[:, None]

    def from_start(q):
        moved = eqx.tree_at(lambda p: p.state.q, problem, q)
        return trajopt.ilqr(moved, max_iterations=20, progress=True)

    plans = eqx.filter_jit(eqx.filter_vmap(from_start))(starts)
    for i, q in enumerate(starts):
        alone = from_start(q)
        assert np.isclose(plans.cost[i], alone.cost, rtol=1e-12)
        assert plans.iterations[i] == alone.iterations
        assert plans.history.shape == (3, 21)
        assert alone.history.shape == (int(alone.iterations) + 1,)


@pytest.mark.slow
def test_status_tells_what_happened():
    P, _ = riccati()
    upper = np.array([0.3, 0.3])
    assert trajopt.ilqr(masses(final=P, upper=upper), max_iterations=1, progress=False).status == (
        trajopt.STATUS.running
    )
    failed = trajopt.ilqr(masses(final=P), 1e300 * jnp.ones(2), progress=False)
    assert failed.status == trajopt.STATUS.failed_start
    assert "first guess" in str(failed)
    # No force within these bounds gets there.
    impossible = trajopt.ilqr(cart(4, lower=-0.1, upper=0.1), progress=False)
    assert impossible.status == trajopt.STATUS.infeasible
    with pytest.raises(ValueError, match=r"`guess`.*\(12, 2\).*\(3,\)"):
        trajopt.ilqr(masses(final=P), jnp.zeros(3))

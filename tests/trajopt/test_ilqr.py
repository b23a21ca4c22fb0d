"""Iterative LQR of linear masses, against Riccati's equation and independent optimisers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import trajopt_problems as tp
from helpers import COMPILED, compilation_events

from jaxmbd import trajopt
from jaxmbd._compiler import to_jax

P, GAIN = tp.riccati()
WIDE = dict(lower=np.full(2, -9.0), upper=np.full(2, 9.0))  # bounds that do not act


def ilqr(problem, guess=None, **options):
    return trajopt.ilqr(problem, guess, progress=False, **options)


def test_regulator_is_riccatis():
    """With P as the cost of the end, a finite horizon has the cost and the gains of the endless
    one; the first iteration finds them. Other numbers compile nothing."""
    plan = ilqr(tp.masses(final=P, **WIDE), np.zeros(2))
    assert tp.ended(plan, "successful") and int(plan.iterations) <= 3
    still = tp.condensed(12, P)[1]
    np.testing.assert_allclose(np.asarray(plan.history)[0], still @ still, rtol=1e-12)
    np.testing.assert_allclose(plan.cost, tp.START @ P @ tp.START, rtol=1e-12)
    np.testing.assert_allclose(plan.control.gains, np.stack([-GAIN] * 12), atol=1e-9)
    x = np.hstack([plan.q, plan.v])[:-1]
    np.testing.assert_allclose(plan.u, -x @ GAIN.T, atol=1e-9)
    other = eqx.tree_at(
        lambda p: (p.system.stiffness, p.running_cost.R, p.state.q, p.duration),
        tp.masses(final=P, **WIDE),
        tuple(map(to_jax, (1.3, 2 * tp.R, [0.1, 0.2], 1.4))),
    )
    with compilation_events() as events:
        plan = ilqr(other, 0.1 * np.ones(2), tolerance=1e-10)
    assert COMPILED not in events and tp.ended(plan, "successful")


def test_states_of_a_guess_are_joined():
    """Of a linear motion one whole step joins any states to the best one."""
    guess = trajopt.Guess(*np.random.default_rng(0).normal(size=(3, 13, 2)))
    plan = ilqr(tp.masses(final=P, **WIDE), guess)
    assert tp.ended(plan, "successful") and int(plan.iterations) <= 2
    np.testing.assert_allclose(plan.cost, tp.START @ P @ tp.START, rtol=1e-12)
    again = trajopt.perform(tp.masses(final=P), plan.open_loop)
    np.testing.assert_allclose(again.q, plan.q, rtol=0, atol=1e-12)


def test_bounds_as_in_bounded_least_squares():
    lower, upper = np.array([-0.6, -0.3]), np.array([0.5, 0.2])
    a, b = tp.condensed(12, P)
    bounds = np.tile(lower, 12), np.tile(upper, 12)
    exact = scipy.optimize.lsq_linear(a, -b, bounds, method="bvls", tol=1e-14)
    problem = tp.masses(final=P, lower=lower, upper=upper)
    plan = ilqr(problem, np.zeros(2))
    assert tp.ended(plan, "successful")
    assert np.sum(exact.active_mask != 0) > 5
    np.testing.assert_allclose(plan.cost, 2 * exact.cost, rtol=1e-9)
    np.testing.assert_allclose(np.ravel(plan.u), exact.x, rtol=0, atol=1e-5)
    assert float(plan.bound_violation) == 0


def test_growth_under_feedback():
    """The gains of a plan close the loop: A + B K of each step; and the plan knows it from its last
    iteration as its performance does."""
    wide = dict(lower=np.full(2, -1e6), upper=np.full(2, 1e6))
    problem = tp.masses(final=np.zeros((4, 4)), stiffness=-200.0, **wide)
    still = np.tile(tp.START, (13, 1))
    plan = ilqr(problem, trajopt.Guess(still[:, :2], still[:, 2:], np.zeros((13, 2))))
    A, B = tp.runge_kutta(tp.DT, -200.0)
    product, expected = np.eye(4), 0.0
    for gain in np.asarray(plan.control.gains)[::-1]:
        product = product @ (A + B @ gain)
        expected = max(expected, np.linalg.norm(product, 2))
    again = trajopt.perform(problem, plan.control)
    np.testing.assert_allclose([plan.growth, again.growth], expected, rtol=1e-6)
    alone = trajopt.perform(problem, plan.open_loop)
    assert float(alone.growth) > 1e3 * float(plan.growth)
    assert tp.ended(plan, "successful")


def test_starts_that_have_no_motion_fail():
    plan = ilqr(tp.masses(final=P, **WIDE, stiffness=np.inf), np.zeros(2))
    assert tp.ended(plan, "failed_start") and "first guess" in str(plan)
    with pytest.raises(ValueError, match=r"`guess`.*\(12, 2\).*\(3,\)"):
        ilqr(tp.masses(final=P), np.zeros(3))


def test_conditions_at_the_end_and_on_the_way():
    """A cart ends at 0.15 m, with u + v <= 0.5, which at the end couples the last state with the
    last control. A sharper tolerance needs more than these iterations, and with less force it does
    not get there."""
    problem = tp.cart(
        4,
        running_cost=lambda t, q, v, u: jnp.sum((u - 1.0) ** 2),
        final=lambda t, q, v: q - 0.15,
        path=lambda t, q, v, u: u + v - 0.5,
        upper=9.0,
    )
    plan, other = (ilqr(problem, condition_tolerance=x, max_iterations=24) for x in (1e-8, 1e-10))
    assert tp.ended(other, "max_iterations_reached") and "limit" in str(other)
    # By hand, the conditions are linear: v(k+1) = v(k) + u(k) / 4.
    v_of_u = np.tril(np.full((5, 4), 0.25), -1)
    u_of_u = np.concatenate([np.eye(4), np.eye(4)[-1:]])
    q_of_u = np.sum(v_of_u[:-1] + v_of_u[1:], axis=0) / 8
    exact = scipy.optimize.minimize(
        lambda u: np.sum((u - 1) ** 2) / 4,
        np.zeros(4),
        method="SLSQP",
        constraints=[
            dict(type="ineq", fun=lambda u: 0.5 - (v_of_u + u_of_u) @ u),
            dict(type="eq", fun=lambda u: q_of_u @ u - 0.15),
        ],
        options=dict(ftol=1e-14),
    )
    assert tp.ended(plan, "successful") and float(plan.final_violation) <= 1e-8
    np.testing.assert_allclose(np.ravel(plan.u), exact.x, rtol=0, atol=1e-5)
    weak = eqx.tree_at(lambda p: p.upper, problem, to_jax(np.array([0.1])))
    assert tp.ended(ilqr(weak, max_iterations=24), "infeasible")


@pytest.mark.slow
def test_feedback_at_a_bound_has_its_gains():
    """Where the plan itself is at a bound, the derivative is that from within."""
    system, rng = tp.masses(**WIDE).system, np.random.default_rng(0)
    q, v, gains = rng.normal(size=(2, 2)), rng.normal(size=(2, 2)), rng.normal(size=(1, 2, 4))
    u = np.array([[1.0, -1.0]])
    control = trajopt.Feedback(
        system, 0.0, 0.1, q, v, u, gains, lower=-np.ones(2), upper=np.ones(2)
    )
    slopes = jax.jacfwd(lambda q, v: control(0.0, q, v), argnums=(0, 1))(q[0], v[0])
    np.testing.assert_allclose(np.concatenate(slopes, axis=1), gains[0], rtol=1e-12)

"""Receding horizons against Riccati's equation, and the growth of errors under them."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import trajopt_problems as tp

from jaxmbd import trajopt


@pytest.mark.slow
def test_receding_horizon_is_riccatis():
    """With P as the cost of the end, every plan's first control is that of the endless horizon,
    also for a plant that is not the model."""
    P, gain = tp.riccati()
    problem = tp.masses(5, 5 * tp.DT / 5, final=P)
    plant = eqx.tree_at(lambda s: s.stiffness, problem.system, jnp.array(1.5))
    pursuit = trajopt.receding_horizon(problem, 8, plant=plant, progress=False)
    A, B = tp.runge_kutta(tp.DT, stiffness=1.5)
    x, cost = tp.START, 0.0
    for k in range(8):
        assert np.allclose(np.concatenate([pursuit.q[k], pursuit.v[k]]), x, rtol=0, atol=1e-9)
        u = -gain @ x
        assert np.allclose(pursuit.u[k], u, rtol=0, atol=1e-9)
        cost += tp.DT * (x @ tp.Q @ x + u @ tp.R @ u)
        x = A @ x + B @ u
    assert np.isclose(pursuit.cost, cost, rtol=1e-9)
    assert np.isclose(pursuit.t[-1], 8 * tp.DT) and bool(pursuit.good)
    assert bool(pursuit.successful) and "all searches converged" in str(pursuit)


def unstable_masses(stiffness):
    return tp.masses(final=np.eye(4), end=tp.Reach(np.ones(2)), stiffness=stiffness)


@pytest.mark.parametrize("stiffness, unstable", [(-50.0, False), (-5000.0, True)])
def test_growth_of_errors(stiffness, unstable):
    """Of a linear motion the largest singular value of the products of its transition matrices; at
    most the last one of them, open loop, grows without bound."""
    A, _ = tp.runge_kutta(tp.DT, stiffness)
    products = [np.linalg.matrix_power(A, k) for k in range(1, 13)]
    expected = max(np.linalg.norm(product, 2) for product in products)
    plan = trajopt.perform(unstable_masses(stiffness), np.zeros(2))
    assert np.isclose(plan.growth, expected, rtol=1e-9)
    assert tp.ended(plan, "unstable" if unstable else "successful")
    if unstable:
        assert float(plan.growth) > 1e16 and "errors grow" in str(plan) and "feedback" in str(plan)


@pytest.mark.parametrize("stiffness", [-5e4, 5e6])
def test_performance_that_is_none(stiffness):
    """A motion that runs away, and one that is too stiff for its steps: both end anywhere, and say
    so, with the conditions that they miss by 10^60 and more."""
    plan = trajopt.perform(unstable_masses(stiffness), np.zeros(2))
    assert tp.ended(plan, "unstable") and float(plan.final_violation) > 1e60
    assert "feedback" in str(plan) and "more `substeps`" in str(plan)

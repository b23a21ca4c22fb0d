"""Receding horizons against Riccati's equation, and the growth of errors under them."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from trajopt_problems import (
    DT,
    START,
    STATUS,
    Q,
    QuadraticFinal,
    QuadraticRunning,
    R,
    Reach,
    masses,
    riccati,
    runge_kutta,
)

import jaxmbd as mbd
from jaxmbd import trajopt


@pytest.mark.slow
def test_receding_horizon_is_riccatis():
    """With P as the cost of the end, every plan's first control is that of the endless horizon,
    also for a plant that is not the model."""
    P, gain = riccati()
    problem = masses(5, 5 * DT / 5, final=P)
    plant = eqx.tree_at(lambda s: s.stiffness, problem.system, jnp.array(1.5))
    pursuit = trajopt.receding_horizon(problem, 8, plant=plant, progress=False)
    A, B = runge_kutta(DT, stiffness=1.5)
    x, cost = START, 0.0
    for k in range(8):
        assert np.allclose(np.concatenate([pursuit.q[k], pursuit.v[k]]), x, rtol=0, atol=1e-9)
        u = -gain @ x
        assert np.allclose(pursuit.u[k], u, rtol=0, atol=1e-9)
        cost += DT * (x @ Q @ x + u @ R @ u)
        x = A @ x + B @ u
    assert np.isclose(pursuit.cost, cost, rtol=1e-9)
    assert np.isclose(pursuit.t[-1], 8 * DT) and bool(pursuit.good)
    assert bool(pursuit.successful) and "all searches converged" in str(pursuit)


class StackedPendulums(mbd.AbstractSystem):
    """A cart of 1 kg, and on it two rods of 0.5 m with 0.2 kg at the end of each, one on the other,
    upright at angle 0; all `heavier` by a factor. A `gust` pushes the cart for 0.1 s."""

    heavier: Array = eqx.field(converter=jnp.asarray, default=1.0)
    gust: Array = eqx.field(converter=jnp.asarray, default=0.0)

    def mass_matrix(self, q):
        a, b, e = jnp.cos(q[1]), jnp.cos(q[2]), jnp.cos(q[1] - q[2])
        rows = [[1.4, 0.2 * a, 0.1 * b], [0.2 * a, 0.1, 0.05 * e], [0.1 * b, 0.05 * e, 0.05]]
        return self.heavier * jnp.stack([jnp.stack([x + 0 * a for x in row]) for row in rows])

    def force(self, t, q, v, u):
        (_, a, b), (_, wa, wb) = q, v
        twist = 0.05 * jnp.sin(a - b)
        own = [
            0.2 * jnp.sin(a) * wa**2 + 0.1 * jnp.sin(b) * wb**2,
            0.2 * 9.81 * jnp.sin(a) - twist * wb**2,
            0.1 * 9.81 * jnp.sin(b) + twist * wa**2,
        ]
        gust = jnp.where((t >= 0.5) & (t < 0.6), self.gust, 0.0)
        return self.heavier * jnp.stack(own) + jnp.stack([u[0] + gust, 0 * gust, 0 * gust])


@pytest.mark.parametrize("stiffness, unstable", [(-50.0, False), (-5000.0, True)])
def test_growth_of_errors(stiffness, unstable):
    """Of a linear motion the largest singular value of the products of its transition matrices; at
    most the last one of them, open loop, grows without bound."""
    A, _ = runge_kutta(DT, stiffness)
    products = [np.linalg.matrix_power(A, k) for k in range(1, 13)]
    expected = max(np.linalg.norm(product, 2) for product in products)
    plan = trajopt.perform(masses(final=np.eye(4), stiffness=stiffness), np.zeros(2))
    assert np.isclose(plan.growth, expected, rtol=1e-9)
    assert (plan.status == STATUS.unstable) == unstable
    assert (plan.status == STATUS.performed) != unstable
    if unstable:
        assert plan.growth > 1e16 and "errors grow" in str(plan) and "feedback" in str(plan)


@pytest.mark.parametrize("stiffness", [-5e4, 5e6])
def test_performance_that_is_none(stiffness):
    """A motion that runs away, and one that is too stiff for its steps: both end anywhere, and say
    so, with the conditions that they miss by 10^60 and more."""
    problem = masses(final=np.eye(4), end=Reach(np.ones(2)), stiffness=stiffness)
    plan = trajopt.perform(problem, np.zeros(2))
    assert plan.status == STATUS.unstable and plan.final_violation > 1e60
    assert "feedback" in str(plan) and "more `substeps`" in str(plan)


UPRIGHT = np.diag([1.0, 10.0, 10.0, 0.1, 0.1, 0.1])


def stacked_pendulums(duration, steps):
    """Hold them upright, from a lean of 0.1 rad."""
    return trajopt.Problem(
        StackedPendulums(),
        mbd.State(0.0, jnp.array([0.0, 0.1, 0.1]), jnp.zeros(3)),
        duration,
        steps,
        nu=1,
        running_cost=QuadraticRunning(UPRIGHT, 0.01 * np.eye(1)),
        final_cost=QuadraticFinal(np.diag([10.0, 100.0, 100.0, 10.0, 10.0, 10.0])),
        lower=-40.0,
        upper=40.0,
    )


@pytest.mark.slow
def test_receding_horizon_holds_what_falls():
    """Two stacked pendulums lean by 0.1 rad; the plant is 5 % heavier, and a gust of 10 N blows. A
    lean grows 10^6 times in a horizon: warm starts by controls alone, or a first plan from none,
    let them fall to 5 rad."""
    problem = stacked_pendulums(2.0, 50)
    plant = StackedPendulums(1.05, 10.0)
    pursuit = trajopt.receding_horizon(problem, 75, plant=plant, progress=False)
    assert bool(pursuit.successful) and np.mean(pursuit.iterations[1:]) < 3
    assert np.max(np.abs(pursuit.q[:, 1:])) < 0.2
    assert np.max(np.abs(pursuit.q[-1, 1:])) < 0.02
    cut = trajopt.receding_horizon(problem, 10, plant=plant, max_iterations=1, progress=False)
    assert not bool(cut.successful) and int(cut.unconverged) >= 5
    assert f"{int(cut.unconverged)} of 10 searches did not converge" in str(cut)

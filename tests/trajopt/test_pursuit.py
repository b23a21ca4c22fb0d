"""The verdict on the plans of a receding horizon, by their costs, and the goal of a problem."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from trajopt_problems import Circle, Reach, masses, on_circle

import jaxmbd as mbd
from jaxmbd import trajopt
from jaxmbd._compiler import to_jax
from jaxmbd.trajopt.pursuit import Watch
from jaxmbd.trajopt.receding_horizon import goal

CONVERGED = mbd.RESULTS.successful
HOLDS = (1.0, 0.05)  # the final cost falls to a twentieth
HALF = (1.0, 0.5)


def verdicts(plans):
    """For costs and final costs one after the other: which plans are doubted, and which astray."""
    watch, doubted, astray = Watch(), [], []
    for cost, ends in plans:
        cost, ends = float(cost), tuple(map(float, ends))
        doubted.append(bool(astray) and watch.doubts(cost, ends, CONVERGED))
        astray.append(watch.accept(cost, ends, doubted[-1]))
    return doubted, astray


@pytest.mark.parametrize(
    "plans, doubted, astray",
    [
        pytest.param([(4, HALF), (2, HALF), (1, HALF)], [], [], id="falling"),
        # From 2 to 2.9 is no jump; from 2 to 3.1 is one, which is accepted after the searches.
        pytest.param([(4, HALF), (2, HALF), (2.9, HALF), (3.1, HALF)], [3], [], id="jump"),
        # By less than a tenth of the largest cost, it may be noise.
        pytest.param([(4, HALF), (0.01, HALF), (0.3, HALF)], [], [], id="noise"),
        pytest.param([(4, HALF), (41, HALF), (20, HALF)], [1, 2], [1, 2], id="grown"),
        pytest.param([(4, HALF), (41, HALF), (7, HALF), (3, HALF)], [1, 2], [1], id="back"),
        # Pushed from rest, any plan costs more than those before.
        pytest.param([(0, (0, 0)), (1, HOLDS), (0.5, HOLDS)], [1], [], id="pushed from rest"),
        # Away from the goal from the first plan on; and then, though its cost falls, not back.
        pytest.param([(4, (1, 11)), (3, HALF), (1, HALF)], [1, 2], [0, 1, 2], id="first"),
        pytest.param([(400, (1, 11)), (3, HALF)], [1], [0], id="first, and back"),
        # Costs that are gains: from -5 on, ten times as bad is +40.
        pytest.param([(-5, HALF), (39, HALF)], [1], [], id="gain"),
        pytest.param([(-5, HALF), (41, HALF)], [1], [1], id="loss"),
        pytest.param([(4, HALF), (np.nan, HALF), (4, HALF)], [1, 2], [1], id="not a number"),
        # Without a final cost the costs alone decide.
        pytest.param([(4, (0, 0)), (41, (0, 0))], [1], [1], id="no final cost"),
    ],
)
def test_verdicts(plans, doubted, astray):
    found = verdicts(plans)
    assert [k for k, x in enumerate(found[0]) if x] == doubted
    assert [k for k, x in enumerate(found[1]) if x] == astray


def test_failed_searches_are_doubted():
    watch = Watch()
    watch.accept(4.0, HALF, False)
    for status in (mbd.RESULTS.failed_start, mbd.RESULTS.infeasible):
        assert watch.doubts(3.0, HALF, status)
    assert not watch.doubts(3.0, HALF, mbd.RESULTS.max_iterations_reached)


def test_goal_of_conditions_and_costs():
    """What `final` asks for; and of a cost its minimum, at rest where the speed costs nothing."""
    end = Reach(np.array([0.4, -1.3]))
    q, v = goal(masses(end=end), 4)
    np.testing.assert_allclose(q, end.goal, atol=1e-3)  # the running cost pulls a little
    np.testing.assert_allclose(v, 0.0, atol=1e-3)
    costs = to_jax(np.zeros((4, 4))), to_jax(np.diag([1.0, 2.0, 0.0, 0.0]))
    of = lambda p: (p.running_cost.Q, p.final_cost.Q)  # noqa: E731
    only = eqx.tree_at(of, masses(final=np.eye(4)), costs)
    q, v = goal(only, 4)
    np.testing.assert_allclose(np.concatenate([q, v]), 0.0, atol=1e-12)


def away(t, q, v):
    """The squared distance from a point."""
    return jnp.sum((q - np.array([3.0, 0.0])) ** 2) + v @ v


@pytest.mark.parametrize("angle", [0.3, 2.5, 3.1])
def test_goal_on_constraints(angle):
    """The point of the circle nearest to another point, also from nearly opposite, where the
    distance is concave. Steps do not know the curvature of constraints and approach it linearly,
    which is enough for a guess."""
    start = on_circle(np.pi / 2 - angle, -0.2)
    problem = trajopt.Problem(Circle(), start, 1.0, 4, nu=1, final_cost=away)
    q, v = goal(problem, 2)
    np.testing.assert_allclose(q, [1.0, 0.0], atol=1e-3)
    np.testing.assert_allclose(v, 0.0, atol=1e-6)

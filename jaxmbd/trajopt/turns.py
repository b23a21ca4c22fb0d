"""Angles along a collocated motion whose turns its equations do not count."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Bool

from .._step import turning
from .motion import Trajectory
from .problem import Problem

# The largest advance of an angle between the points of the walk [rad], as in a step.
_QUARTER = math.pi / 2


def loses_turns(problem: Problem, path: Trajectory) -> Bool[ArrayLike, ""]:
    """Whether an angle whose turns are needed passes half a turn from its `middle`, where the
    equations take it for another angle, or moves too fast for its turns to be counted. The walk
    goes along the grid and the middles of its intervals, on the cubic of Hermite-Simpson
    collocation."""
    system, half = problem.system, problem.dt / 2
    start = turning(system, path.q[0], path.v[0])
    if start is None:
        return np.array(False)
    qdot = jax.vmap(system.qdot)(path.q, path.v)
    middles = (path.q[:-1] + path.q[1:]) / 2 + half / 4 * (qdot[:-1] - qdot[1:])
    between = jax.vmap(system.normalise)(middles), (path.v[:-1] + path.v[1:]) / 2
    later = jax.tree.map(
        lambda a, b: jnp.stack([a, b], axis=1).reshape(-1, a.shape[1]),
        between,
        (path.q[1:], path.v[1:]),
    )

    def onwards(angle, point):
        q, v = point
        here, alone = turning(system, q, v, angle), turning(system, q, v)
        assert here is not None and alone is not None
        off = jnp.abs(here.angle - alone.angle) > math.pi
        most = jnp.maximum(jnp.abs(here.angle - angle), jnp.abs(half * here.rate))
        return here.angle, jnp.any(here.needed & (off | (most > _QUARTER)))

    return jnp.any(jax.lax.scan(onwards, start.angle, later)[1])

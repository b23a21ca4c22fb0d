"""Joint coordinates along a motion: rates, counted turns, limits."""

import math
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiler import as_one_program, to_jax
from .._inputs import checked
from .._system import AbstractStates
from .batching import batched
from .element import unnamed
from .joints import AbstractJoint
from .mechanism import Mechanism
from .relative import within_half_a_turn
from .tables import BodyTables


@checked
def joint_rates(
    mechanism: Mechanism, state: AbstractStates, name: str
) -> Float[Array, "*batch coordinates"]:
    """Time derivatives [m/s, rad/s] of the coordinates of the joint `name`, in the order of
    `Mechanism.joint_coordinates`, for a `State` or a `Solution` with any leading axes.

    **Raises:** `ValueError` if there is no such joint, or if it has no coordinates."""
    joint, tables = joint_with_coordinates(mechanism, name), mechanism.tables
    q, v = mechanism.checked_q(state.q), mechanism.checked_v(state.v)
    return _rates(unnamed(joint), tables, q, v, *tables.columns_of(joint))


@checked
def joint_path(
    mechanism: Mechanism, motion: AbstractStates, name: str
) -> Float[Array, "times coordinates"]:
    """Coordinates of the joint `name` along a motion, with turns of angles counted. The first
    sample is within half a turn.

    Each angle is exactly the angle of its pose. Only the whole turns between samples are counted.
    The expected advance between samples is the mean of the rates times the time. The count is right
    if that is wrong by less than half a turn, however many turns go by. If you know no velocities,
    give zeros: then it is right if the joint turns by less than half a turn between samples.

    **Arguments:** `motion`: a `Solution`, a `Plan`, or a `State` of shape `(times,)`.

    **Raises:** `ValueError` if there is no such joint, or if it has no coordinates."""
    joint = joint_with_coordinates(mechanism, name)
    t, q, v = motion.points()
    tables, q, v = mechanism.tables, mechanism.checked_q(q), mechanism.checked_v(v)
    return _path(unnamed(joint), tables, t, q, v, *tables.columns_of(joint))


@as_one_program
def _rates(joint: AbstractJoint, tables: BodyTables, q: Array, v: Array, *columns: Any) -> Array:
    def one(q, v):
        a, b = tables.frames(joint, q, columns)
        twist_a, twist_b = tables.frame_twists(joint, q, v, columns)
        return joint.rates(a, b, twist_a, twist_b)

    return batched(one, (q, 1), (v, 1))


@as_one_program
def _path(
    joint: AbstractJoint, tables: BodyTables, t: Array, q: Array, v: Array, *columns: Any
) -> Array:
    x = batched(lambda q: joint.coordinates(*tables.frames(joint, q, columns)), (q, 1))
    return with_turns(t, x, _rates(joint, tables, q, v, *columns), joint.angles)


def with_turns(
    t: Float[Array, " times"], x: Array, rates: Array, angles: int
) -> Float[Array, "times coordinates"]:
    """Coordinates along a motion, the last `angles` of which are angles, with their turns
    counted."""
    expected = jnp.diff(t)[:, None] * (rates[1:] + rates[:-1]) / 2
    turns = jnp.round((expected - jnp.diff(x, axis=0)) / (2 * math.pi))
    turns = turns.at[:, : x.shape[1] - angles].set(0.0)
    return x.at[1:].add(2 * math.pi * jnp.cumsum(turns, axis=0))


@checked
def limit_violation(
    mechanism: Mechanism, state: AbstractStates, name: str
) -> Float[Array, "*batch coordinates"]:
    """By how much each coordinate of the joint `name` exceeds its `limits` [m, rad]: positive above
    the upper one, negative below the lower one, 0 between or without limits. `state`: a `State` or
    a `Solution`, with any leading axes.

    The angle of a pose is taken within half a turn of the middle of its limits. For angles that
    turn further, count the turns: `joint.limit_violation(joint_path(...))`.

    **Raises:** `ValueError` if there is no such joint, or if it has no coordinates."""
    joint = joint_with_coordinates(mechanism, name)
    x = mechanism.joint_coordinates(state.points()[1], name)
    if joint.limits is None:
        return to_jax(np.zeros(x.shape, x.dtype))
    return _beyond_limits(unnamed(joint), x)


@as_one_program
def _beyond_limits(joint: AbstractJoint, x: Array) -> Array:
    assert joint.limits is not None
    lower, upper = joint.limits[:, 0], joint.limits[:, 1]
    near = (upper - lower < 2 * math.pi) & (jnp.arange(len(lower)) >= len(lower) - joint.angles)
    middle = jnp.where(near, lower + upper, 0.0) / 2

    def one(x):
        angles = middle + jax.vmap(within_half_a_turn)(x - middle)
        return joint.limit_violation(jnp.where(near, angles, x))

    return batched(one, (x, 1))


def joint_with_coordinates(mechanism: Mechanism, name: str) -> AbstractJoint:
    """Return the joint `name`.

    **Raises:** `ValueError` if there is none, or if it has no coordinates."""
    joint = mechanism.joint(name)
    if joint.count() == 0:
        raise ValueError(
            f'{type(joint).__name__} "{name}" has no joint coordinates. Those that have some: '
            f"{[j.name for j in mechanism.joints if j.count()]}."
        )
    return cast(AbstractJoint, joint)

"""Angles of the elements of a mechanism whose turns a simulation counts."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._concrete import is_concrete, to_jax
from .._equations import Turning
from .._types import Coordinates, Velocity
from .linearise import frame_poses, frame_twists
from .stack import Stack
from .tables import BodyTables


def may_need(kind: Stack) -> bool:
    """Whether an element of this kind may need the turns of its angles."""
    if not kind.together.angle_count:
        return False
    needed = kind.together.needs_turns
    return not is_concrete(needed) or bool(np.any(needed))


def turning(
    tables: BodyTables,
    kinds: Sequence[Stack],
    counted: Sequence[bool],
    q: Coordinates,
    v: Velocity,
) -> Turning | None:
    """The angles of all elements, kind by kind, 0 for kinds that are not `counted`; `None` without
    any angles."""

    def of_element(element, qs, vs):
        poses, twists = frame_poses(element, qs), frame_twists(element, qs, vs)
        moving = tuple(pose.rate(twist) for pose, twist in zip(poses, twists, strict=True))
        angles = lambda poses: jnp.stack(element.counted_angles(poses))  # noqa: E731
        angle, rate = jax.jvp(angles, (poses,), (moving,))
        return angle, rate, jnp.broadcast_to(jnp.asarray(element.needs_turns), angle.shape)

    def of_kind(kind, counts):
        size = kind.together.angle_count * len(kind)
        if not counts:
            none = jnp.zeros(size, q.dtype)
            return Turning(none, none, jnp.zeros(size, bool))
        return Turning(*(x.ravel() for x in tables.map(kind, of_element, q, v)))

    pairs = zip(kinds, counted, strict=True)
    found = [of_kind(kind, counts) for kind, counts in pairs if kind.together.angle_count]
    return jax.tree.map(lambda *x: jnp.concatenate(x), *found) if found else None


def near(
    kinds: Sequence[Stack], counted: Sequence[bool], angles: Float[Array, " angles"]
) -> tuple[Stack, ...]:
    """The elements whose angles are within half a turn of these, in the order of `turning`."""
    given: Any = angles
    if is_concrete(angles):  # no program is compiled for known numbers
        given = np.asarray(angles)
    sizes = [kind.together.angle_count * len(kind) for kind in kinds]
    ends = np.cumsum(sizes).tolist()
    return tuple(
        _near(kind, given[end - size : end].reshape(-1, len(kind))) if counts else kind
        for kind, counts, size, end in zip(kinds, counted, sizes, ends, strict=True)
    )


def _near(
    kind: Stack, angles: Float[Array, "k elements"] | Float[np.ndarray, "k elements"]
) -> Stack:
    leaves = jax.tree.leaves(kind.together.near(tuple(map(to_jax, angles))))
    return Stack(leaves, kind.structures, kind.names, kind.places, kind.kept)

"""Angles of the elements of a mechanism whose turns a simulation counts."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._equations import Turning
from .._types import Coordinates, Velocity
from .linearise import frame_poses, frame_twists
from .stack import Stack
from .tables import BodyTables


def turning(
    tables: BodyTables, kinds: Sequence[Stack], q: Coordinates, v: Velocity
) -> Turning | None:
    """The angles of all elements, kind by kind; `None` without any."""

    def of_element(element, qs, vs):
        poses, twists = frame_poses(element, qs), frame_twists(element, qs, vs)
        moving = tuple(pose.rate(twist) for pose, twist in zip(poses, twists, strict=True))
        angles = lambda poses: jnp.stack(element.counted_angles(poses))  # noqa: E731
        angle, rate = jax.jvp(angles, (poses,), (moving,))
        return angle, rate, jnp.broadcast_to(jnp.asarray(element.needs_turns), angle.shape)

    found = [
        Turning(*(x.ravel() for x in tables.map(kind, of_element, q, v)))
        for kind in kinds
        if kind.together.angle_count
    ]
    return jax.tree.map(lambda *x: jnp.concatenate(x), *found) if found else None


def near(kinds: Sequence[Stack], angles: Float[Array, " angles"]) -> tuple[Stack, ...]:
    """The elements whose angles are within half a turn of these, in the order of `turning`."""
    counts = [kind.together.angle_count * len(kind) for kind in kinds]
    ends = np.cumsum(counts).tolist()
    return tuple(
        _near(kind, angles[end - count : end].reshape(-1, len(kind))) if count else kind
        for kind, count, end in zip(kinds, counts, ends, strict=True)
    )


def _near(kind: Stack, angles: Float[Array, "k elements"]) -> Stack:
    element = kind.together
    leaves = jax.tree.leaves(element.near(tuple(angles)))
    return Stack(leaves, kind.structures, kind.names, kind.places, kind.kept)

"""The counted angles of a mechanism, from the joint coordinates of a file."""

from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiler import as_one_program
from .._mechanism import AbstractScalarCoordinate, DriveTwist, Mechanism, OfJoint, WeightedSum


def counted_angles(
    mechanism: Mechanism, members: Sequence[Any], qpos: Any, q: Array, v: Array
) -> Float[Array, " angles"] | None:
    """The counted angles where the hinges of the file have these coordinates; `None` without any.
    Others are within half a turn of their `middle`."""
    entry = _entries(mechanism, members)
    if entry.size == 0:
        return None
    given = jnp.asarray(qpos[np.maximum(entry, 0)], q.dtype)
    if np.all(entry >= 0):
        return given
    return jnp.where(entry < 0, _angles(mechanism, q, v), given)


@as_one_program
def _angles(mechanism: Mechanism, q: Array, v: Array) -> Float[Array, " angles"]:
    found = mechanism.turning(q, v)
    assert found is not None
    return found.angle


def _entries(mechanism: Mechanism, members: Sequence[Any]) -> np.ndarray:
    """For each counted angle, in the order of `Solution.angles`, its entry of qpos, or -1 for an
    angle that is none."""
    place = {
        (member.joint, member.number): member.qpos for member in members if member.kind == "hinge"
    }
    found = []
    for kind in mechanism.element_stacks:
        rows = [
            [place.get(key, -1) if key else -1 for key in _keys(element)]
            for element in (kind[i] for i in range(len(kind)))
            if element.angle_count
        ]
        found.append(np.array(rows, int).T.ravel())
    return np.concatenate([np.zeros(0, int), *found])


def _keys(element: Any) -> Iterator[tuple[str, int | None] | None]:
    """Joint and number of the coordinate of each angle of an element."""
    parts = [getattr(element, name, None) for name in ("coordinate", "of")]
    angles = 0
    for part in parts:
        if isinstance(part, AbstractScalarCoordinate):
            yield from _of(part)
            angles += part.angle_count
    for _ in range(element.angle_count - angles):
        yield None


def _of(coordinate: AbstractScalarCoordinate) -> Iterator[tuple[str, int | None] | None]:
    if isinstance(coordinate, OfJoint):
        if coordinate.angle_count:
            yield coordinate.joint_name, coordinate.index
    elif isinstance(coordinate, WeightedSum | DriveTwist):
        for term in coordinate.terms:
            yield from _of(term)
    else:
        for _ in range(coordinate.angle_count):
            yield None

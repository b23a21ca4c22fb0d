"""One coordinate of a joint, for constraints that couple or drive it."""

import copy
from collections.abc import Sequence
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float

from ..pose import Pose, Twist
from .base import AbstractJoint


class JointCoordinate(eqx.Module):
    """One coordinate of a joint, as a function of the world poses of its frames.

    - `joint`: the joint without its names. Then constraints on joints of the same kind have the
      same structure and are evaluated together.
    - `index`: index of the coordinate.
    - `angle`: whether it is an angle [rad], within half a turn. Otherwise it is a displacement [m].
    """

    joint: AbstractJoint
    index: int = eqx.field(static=True)
    angle: bool = eqx.field(static=True)

    def __call__(self, poses: Sequence[Pose]) -> Float[Array, ""]:
        a, b = poses
        return self.joint.coordinates(a, b)[self.index]

    def rate(self, poses: Sequence[Pose], twists: Sequence[Twist]) -> Float[Array, ""]:
        """The time derivative of the coordinate [m/s, rad/s]."""
        (a, b), (twist_a, twist_b) = poses, twists
        return self.joint.rates(a, b, twist_a, twist_b)[self.index]


def joint_coordinate(
    what: str, joint: AbstractJoint, index: int | None, angle: bool | None = None
) -> JointCoordinate:
    """The coordinate `index` of a joint. If `index` is `None`, the joint must have exactly one: one
    angle if `angle` is `True`, one displacement if `False`, one coordinate of any kind if `None`.

    **Raises:** `ValueError`, which begins with `what`, if there is none, or several and no `index`.
    """
    if not isinstance(joint, AbstractJoint):
        raise ValueError(f"{what} needs a joint with coordinates, but got {joint!r}.")
    label = f'{type(joint).__name__} "{joint.name}"'
    count = joint.count()
    kinds = [i >= count - joint.angles for i in range(count)]
    kind = {None: "a joint coordinate", True: "an angle", False: "a displacement"}[angle]
    fitting = [i for i in range(count) if angle is None or kinds[i] == angle]
    if not fitting:
        raise ValueError(f"{what} needs a joint with {kind}, but {label} has none.")
    if index is None:
        if len(fitting) > 1:
            raise ValueError(
                f"{what} needs {kind} of {label}, which has several: give one of the indices "
                f"{fitting} of its coordinates."
            )
        index = fitting[0]
    if index not in fitting:
        raise ValueError(
            f"{what} needs {kind} of {label}, whose indices are {fitting}, but got {index}."
        )
    return JointCoordinate(without_names(joint), index, kinds[index])


def without_names(joint: AbstractJoint, limits: Any = None) -> AbstractJoint:
    """The joint with empty names, so that joints of one kind are alike, and the given `limits`."""
    twin = copy.copy(joint)
    for field, value in (("name", ""), ("body_a", ""), ("body_b", ""), ("limits", limits)):
        object.__setattr__(twin, field, value)
    return twin

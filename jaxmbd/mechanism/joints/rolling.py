"""Rolling on a plane without slip."""

import abc
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from jaxtyping import Array, Float

from ..._concrete import to_jax
from ..._inputs import Number, Vector, checked, number, positive
from ..body import Body
from ..pose import Frame, Pose
from .base import AbstractJoint, limit_pairs


class AbstractRolling(AbstractJoint):
    """A round body b rolls without slip on the plane through the origin of a, normal to the axis of
    a. The contact can pull: the body never leaves the plane. A subclass gives the contact point.

    **Fields:** `radius` [m].
    """

    radius: Float[Array, ""]

    rows: ClassVar[int] = 1
    velocity_rows: ClassVar[int] = 2
    directed: ClassVar[bool] = True

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        radius: Annotated[Number, positive],
        point: Vector | None = None,
        points: Sequence[Vector] | None = None,
        axis: Vector | None = None,
        axes: Sequence[Vector] | None = None,
        orientation: Any = None,
        frame_a: Frame | None = None,
        frame_b: Frame | None = None,
        limits: Annotated[Any, number] = None,
    ):
        """**Arguments:** as `AbstractJoint`. In the world give `points`, one on the plane and the
        centre of the body, and `axis`, the normal of the plane. For a disc give `axes`, this normal
        and the axis of the disc.

        - `radius`: > 0 [m].
        """
        self._connect(name, (a, b), (point, points), (axis, axes, orientation), (frame_a, frame_b))
        self.limits = limit_pairs(limits, self.dtype)
        self.radius = to_jax(radius, self.dtype)

    @abc.abstractmethod
    def arm(self, a: Pose, b: Pose) -> Float[Array, "3"]:
        """The vector from the centre to the lowest point, in world axes."""

    def nonholonomic(self, a, b, twist_a, twist_b, t):
        del t
        arm = self.arm(a, b)
        touching = b.position + arm
        slip = twist_b.at(arm) - twist_a.at(touching - a.position)
        return a.local_direction(slip)[:2]

"""The base of couplings between two joints."""

from typing import Any

import equinox as eqx

from ..._inputs import checked
from ..element import checked_name
from .base import AbstractConstraint, AbstractJoint
from .joint_coordinate import JointCoordinate, joint_coordinate


class AbstractCoupling(AbstractConstraint):
    """An equation between a coordinate of one joint and a coordinate of another. Give the joints to
    the mechanism as well: the coupling only reads their coordinates.

    **Fields:**

    - `name`: its name in reports.
    - `names`: names of the bodies of the first, then of the second joint.
    - `first`, `second`: the coupled coordinates.
    """

    name: str = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    first: JointCoordinate
    second: JointCoordinate

    @checked
    def __init__(
        self,
        name: str,
        first: AbstractJoint,
        second: AbstractJoint,
        *,
        coordinates: tuple[int | None, int | None] = (None, None),
        angles: tuple[bool | None, bool | None] = (None, None),
    ):
        """`angles`: `True` for a coordinate that must be an angle, `False` for a displacement."""
        what = f'{type(self).__name__} "{name}"'
        self.name = checked_name(type(self).__name__, name)
        self.first = joint_coordinate(what, first, coordinates[0], angles[0])
        self.second = joint_coordinate(what, second, coordinates[1], angles[1])
        self.names = (*first.bodies, *second.bodies)

    @property
    def bodies(self):
        return self.names

    @property
    def frames(self):
        return (*self.first.joint.frames, *self.second.joint.frames)

    @property
    def dtype(self) -> Any:
        """The dtype of the frames and of the other parameters."""
        return self.first.joint.dtype

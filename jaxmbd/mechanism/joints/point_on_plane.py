from typing import ClassVar

from ..relative import offset
from .pair import AbstractPair


class PointOnPlane(AbstractPair):
    """The origin of b stays in the plane through the origin of a, normal to the axis of a.

    Row: the position of b along the axis (1). Freedoms: 3 rotations and the displacements along x
    and y of a, which are the coordinates.
    """

    rows: ClassVar[int] = 1
    holds: ClassVar[tuple[str, ...]] = ("z",)
    directed: ClassVar[bool] = True

    def coordinates(self, a, b):
        return offset(a, b)[:2]

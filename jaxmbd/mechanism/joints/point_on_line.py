from typing import ClassVar

from ..relative import offset
from .pair import AbstractPair


class PointOnLine(AbstractPair):
    """The origin of b stays on the axis of a.

    Rows: the position of b normal to the axis (2). Freedoms: 3 rotations and the displacement along
    the axis, which is the coordinate.
    """

    rows: ClassVar[int] = 2
    holds: ClassVar[tuple[str, ...]] = ("x", "y")
    directed: ClassVar[bool] = True

    def coordinates(self, a, b):
        return offset(a, b)[2:]

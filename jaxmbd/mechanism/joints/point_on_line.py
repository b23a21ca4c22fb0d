from typing import ClassVar

from ..relative import offset
from .pair import AbstractPair


class PointOnLine(AbstractPair):
    """The origin of b stays on the axis of a.

    Rows: the position of b across the axis (2). Freedoms: 3 rotations and, the coordinate, the
    displacement along the axis.
    """

    rows: ClassVar[int] = 2
    holds: ClassVar[tuple[str, ...]] = ("x", "y")
    directed: ClassVar[bool] = True

    def coordinates(self, a, b):
        return offset(a, b)[2:]

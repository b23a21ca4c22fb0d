from typing import ClassVar

from ..relative import offset
from .base import AbstractJoint


class PointOnLine(AbstractJoint):
    """The origin of b stays on the axis of a.

    Rows: the position of b across the axis (2). Freedoms: 3 rotations and, the coordinate, the
    displacement along the axis.
    """

    rows: ClassVar[int] = 2
    directed: ClassVar[bool] = True

    def constraint(self, a, b, t):
        del t
        return offset(a, b)[:2]

    def coordinates(self, a, b):
        return offset(a, b)[2:]

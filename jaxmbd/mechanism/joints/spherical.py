from typing import ClassVar

from ..relative import offset
from .base import AbstractJoint


class Spherical(AbstractJoint):
    """Ball joint: the origins coincide.

    Rows: the position of b in frame a (3). Freedoms: 3 rotations.
    """

    rows: ClassVar[int] = 3
    directed: ClassVar[bool] = False

    def constraint(self, a, b, t):
        del t
        return offset(a, b)

from typing import ClassVar

from ..relative import angle
from .pair import AbstractPair


class Revolute(AbstractPair):
    """Hinge: the origins coincide, and the axes are parallel.

    Rows: the position of b in frame a (3), the components of the axis of b normal to that of a (2).
    Freedom and coordinate: the angle of b relative to a about the axis.
    """

    rows: ClassVar[int] = 5
    holds: ClassVar[tuple[str, ...]] = ("x", "y", "z", "tilt_x", "tilt_y")
    angles: ClassVar[int] = 1
    directed: ClassVar[bool] = True

    def coordinates(self, a, b):
        return angle(a, b)[None]

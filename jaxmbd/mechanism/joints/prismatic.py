from typing import ClassVar

from ..relative import offset
from .pair import AbstractPair


class Prismatic(AbstractPair):
    """Slider: the frames stay aligned, and the origin of b stays on the axis of a.

    Rows: the position of b normal to the axis (2), twice the vector part of the relative quaternion
    (3). Freedom and coordinate: the displacement along the axis.
    """

    rows: ClassVar[int] = 5
    holds: ClassVar[tuple[str, ...]] = ("x", "y", "turn_x", "turn_y", "turn_z")
    directed: ClassVar[bool] = True

    def coordinates(self, a, b):
        return offset(a, b)[2:]

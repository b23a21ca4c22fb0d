from typing import ClassVar

from .pair import AbstractPair


class Fixed(AbstractPair):
    """The frames coincide: both bodies move as one.

    Rows: the position of b in frame a (3), twice the vector part of the relative quaternion (3).
    No freedom.
    """

    rows: ClassVar[int] = 6
    holds: ClassVar[tuple[str, ...]] = ("x", "y", "z", "turn_x", "turn_y", "turn_z")
    directed: ClassVar[bool] = False

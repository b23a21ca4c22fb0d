from typing import ClassVar

from ..relative import gimbal_angles
from .pair import AbstractPair


class Spherical(AbstractPair):
    """Ball joint: the origins coincide.

    Rows: the position of b in frame a (3). Freedoms: 3 rotations. Coordinates: the gimbal angles
    alpha, beta, gamma about the x, then y, then z axis of b, R = Rx(alpha) Ry(beta) Rz(gamma) from
    b to a. The first two are the angles of a `Universal` joint.

    The angles are singular at beta = +- pi / 2, where alpha and gamma turn about the same axis. The
    joint moves through such poses as through any other, but rates and turns of alpha and gamma are
    meaningless there. Choose the `orientation` or the frames to stay away from these poses.
    """

    rows: ClassVar[int] = 3
    holds: ClassVar[tuple[str, ...]] = ("x", "y", "z")
    angles: ClassVar[int] = 3
    directed: ClassVar[bool] = False

    def coordinates(self, a, b):
        return gimbal_angles(a, b)

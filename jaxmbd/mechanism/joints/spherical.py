from typing import ClassVar

from ..relative import gimbal_angles
from .pair import AbstractPair


class Spherical(AbstractPair):
    """Ball joint: the origins coincide.

    Rows: the position of b in frame a (3). Freedoms: 3 rotations. Coordinates: the angles alpha,
    beta, gamma about the axes x, then y, then z of b as it turns, R = Rx(alpha) Ry(beta) Rz(gamma)
    from b to a: those of a gimbal, of which the first two are the angles of a `Universal` joint.

    They are singular at beta = +- pi / 2, where alpha and gamma turn about one axis: the joint
    moves through such poses as through any other, but rates and turns of the two have no meaning
    there. Choose the `orientation`, or the frames, such that they are not near.
    """

    rows: ClassVar[int] = 3
    holds: ClassVar[tuple[str, ...]] = ("x", "y", "z")
    angles: ClassVar[int] = 3
    directed: ClassVar[bool] = False

    def coordinates(self, a, b):
        return gimbal_angles(a, b)

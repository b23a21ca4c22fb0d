from typing import ClassVar

from ..._coordinates import quaternion_conjugate, quaternion_log, quaternion_product
from .pair import AbstractPair


class ConstantVelocity(AbstractPair):
    """Homokinetic joint (Rzeppa, tripod): origins coincide, and both shafts turn equally fast at
    any bend between them, where a `Universal` joint does not.

    b is always turned relative to a about an axis that lies across both shafts, as if the two were
    mirrored at the plane that halves their angle. Then the relative quaternion p has no part along
    the axis. With the shafts held at a bend beta, the axis of the bend goes round by -omega_a in
    frame a and by -omega_b in frame b; it has the same components in both, so omega_a = omega_b.

    Rows: the position of b in frame a (3), 2 p_z (1). Freedoms and coordinates: the bend about the
    x and y axes, as a rotation vector. Bent by half a turn, the joint is singular.
    """

    rows: ClassVar[int] = 4
    holds: ClassVar[tuple[str, ...]] = ("x", "y", "z", "turn_z")
    angles: ClassVar[int] = 2
    directed: ClassVar[bool] = True

    def coordinates(self, a, b):
        p = quaternion_product(quaternion_conjugate(a.orientation), b.orientation)
        return quaternion_log(p)[:2]

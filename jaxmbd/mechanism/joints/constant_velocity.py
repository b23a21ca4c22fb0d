from typing import ClassVar

from ..._coordinates import quaternion_conjugate, quaternion_log, quaternion_product
from .pair import AbstractPair


class ConstantVelocity(AbstractPair):
    """Homokinetic joint (Rzeppa, tripod): the origins coincide, and both shafts turn equally fast
    at any bend between them. With a `Universal` joint they do not.

    The rotation of b relative to a is about an axis normal to both shafts, as if they were mirror
    images in the plane that bisects their angle. So the relative quaternion p has no component
    along the shafts. At a constant bend beta, this axis turns at the rate -omega_a in frame a and
    -omega_b in frame b. It has the same components in both, so omega_a = omega_b.

    Rows: the position of b in frame a (3), 2 p_z (1). Freedoms and coordinates: the bend about the
    x and y axes, as a rotation vector. The joint is singular at a bend of half a turn.
    """

    rows: ClassVar[int] = 4
    holds: ClassVar[tuple[str, ...]] = ("x", "y", "z", "turn_z")
    angles: ClassVar[int] = 2
    directed: ClassVar[bool] = True

    def coordinates(self, a, b):
        p = quaternion_product(quaternion_conjugate(a.orientation), b.orientation)
        return quaternion_log(p)[:2]

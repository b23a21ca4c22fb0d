from typing import ClassVar

from ..._coordinates import dot
from ..relative import z_axis
from .base import Wrench
from .friction import AbstractJointFriction


class TurningFriction(AbstractJointFriction):
    """Friction of a hinge: a torque against the angular velocity of b relative to a about the axis
    of a. The law is that of `AbstractJointFriction`, with `viscous` [N m s/rad], `dry` [N m] and
    `speed` [rad/s]."""

    directed: ClassVar[bool] = True

    def wrench(self, a, b, twist_a, twist_b, t, u):
        del b, t, u
        axis = z_axis(a)
        rate = dot(axis, twist_b.angular - twist_a.angular)
        return Wrench.of_torque(-self.resistance(rate) * axis)

from typing import ClassVar

from ..._coordinates import dot
from ..relative import z_axis
from .actuator import AbstractActuator
from .base import Wrench


class Motor(AbstractActuator):
    """Torque `gear` u about the axis of a. It acts on b, and the opposite on a. A positive torque
    turns b forwards. Fields and constructor are those of `AbstractActuator`.

    If u is the torque of a motor before a gearbox, `gear` is the speed of the motor over that of
    the joint, and a `rotor_inertia` acts at the joint as gear^2 rotor_inertia.
    """

    directed: ClassVar[bool] = True

    def wrench(self, a, b, twist_a, twist_b, t, u):
        del b, twist_a, twist_b, t
        torque = self.effort(u) * z_axis(a)
        return Wrench.of_torque(torque)

    def rate(self, poses, twists):
        return dot(z_axis(poses[0]), twists[1].angular - twists[0].angular)

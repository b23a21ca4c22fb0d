from typing import ClassVar

import jax.numpy as jnp

from ..relative import z_axis
from .actuator import AbstractActuator
from .base import Wrench


class Motor(AbstractActuator):
    """Torque `gear` u about the axis of a, on b and back on a: a positive one turns b forwards.
    Fields and constructor are those of `AbstractActuator`.

    If u is the torque of a motor before a gearbox, `gear` is the ratio of its speed to that of the
    joint. The rotor has no inertia of its own.
    """

    directed: ClassVar[bool] = True

    def wrench(self, a, b, twist_a, twist_b, t, u):
        del b, twist_a, twist_b, t
        torque = self.effort(u) * z_axis(a)
        return Wrench(jnp.zeros_like(torque), torque)

from typing import ClassVar

import jax.numpy as jnp

from ..._coordinates import dot
from ..relative import z_axis
from .actuator import AbstractActuator
from .base import Wrench


class LinearActuator(AbstractActuator):
    """Force `gear` u along the axis of a, on b at its origin, and back on a at the same point: a
    positive one pushes b forwards. Fields and constructor are those of `AbstractActuator`.

    If u is the torque of a motor before a spindle, `gear` is 2 pi over its pitch; a `rotor_inertia`
    then resists like a mass of gear^2 times it. For a force along the line between two points, as
    of a hydraulic cylinder, see the `actuator` of `Spring`.
    """

    directed: ClassVar[bool] = True

    def wrench(self, a, b, twist_a, twist_b, t, u):
        del b, twist_a, twist_b, t
        force = self.effort(u) * z_axis(a)
        return Wrench(force, jnp.zeros_like(force))

    def rate(self, poses, twists):
        (a, b), (twist_a, twist_b) = poses, twists
        return dot(z_axis(a), twist_b.linear - twist_a.at(b.position - a.position))

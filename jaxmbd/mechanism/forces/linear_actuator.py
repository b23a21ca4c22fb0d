from typing import ClassVar

import jax.numpy as jnp

from ..._coordinates import dot
from ..relative import z_axis
from .actuator import AbstractActuator
from .base import Wrench


class LinearActuator(AbstractActuator):
    """Force `gear` u along the axis of a. It acts on b at its origin, and the opposite on a at the
    same point. A positive force pushes b forwards. Fields and constructor: see `AbstractActuator`.

    If u is the torque of a motor that drives a spindle, `gear` is 2 pi over its pitch, and a
    `rotor_inertia` acts like a mass of gear^2 rotor_inertia. For a force along the line between two
    points, as of a hydraulic cylinder, see the `actuator` of `Spring`.
    """

    directed: ClassVar[bool] = True

    def wrench(self, a, b, twist_a, twist_b, t, u):
        del b, twist_a, twist_b, t
        force = self.effort(u) * z_axis(a)
        return Wrench(force, jnp.zeros_like(force))

    def rate(self, poses, twists):
        (a, b), (twist_a, twist_b) = poses, twists
        return dot(z_axis(a), twist_b.linear - twist_a.at(b.position - a.position))

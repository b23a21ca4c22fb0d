from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._coordinates import dot
from ..body import Body
from ..connector import AbstractConnector
from ..relative import angle, z_axis
from .base import AbstractForce, Wrench


class TorsionSpring(AbstractForce):
    """Spring and damper about the axis of a: on b acts the torque

        -stiffness (phi - rest_angle) - damping phi'

    along it, with the angle phi of b relative to a as `Revolute` has it, the difference taken
    within half a turn.

    **Fields:** `stiffness` [N m/rad], `damping` [N m s/rad], `rest_angle` [rad].
    """

    stiffness: Float[Array, ""]
    damping: Float[Array, ""]
    rest_angle: Float[Array, ""]

    directed: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        stiffness: Any,
        damping: Any = 0.0,
        rest_angle: Any = 0.0,
        **frames: Any,
    ):
        """**Arguments:** the fields; the others as in `AbstractJoint`."""
        AbstractConnector.__init__(self, name, a, b, **frames)
        dtype = self.frame_a.position.dtype
        self.stiffness = jnp.asarray(stiffness, dtype)
        self.damping = jnp.asarray(damping, dtype)
        self.rest_angle = jnp.asarray(rest_angle, dtype)

    def wrench(self, a, b, twist_a, twist_b, t, u):
        del t, u
        difference = angle(a, b) - self.rest_angle
        turned = jnp.arctan2(jnp.sin(difference), jnp.cos(difference))
        axis = z_axis(a)
        rate = dot(axis, twist_b.angular - twist_a.angular)
        torque = -(self.stiffness * turned + self.damping * rate) * axis
        return Wrench(jnp.zeros_like(torque), torque)

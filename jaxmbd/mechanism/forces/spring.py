from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._coordinates import dot
from ..body import Body
from ..connector import AbstractConnector
from .base import AbstractForce, Wrench


class Spring(AbstractForce):
    """Spring and damper along the line from the origin of a to that of b: the tension

        stiffness (l - rest_length) + damping l',    l = |r_b - r_a|.

    Where both points meet the line has no direction, and there is no force.

    **Fields:** `stiffness` [N/m], `damping` [N s/m], `rest_length` [m].
    """

    stiffness: Float[Array, ""]
    damping: Float[Array, ""]
    rest_length: Float[Array, ""]

    directed: ClassVar[bool] = False

    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        stiffness: Any,
        damping: Any = 0.0,
        rest_length: Any,
        **frames: Any,
    ):
        """**Arguments:** the fields; the others as in `AbstractJoint`, usually `points`, the two
        ends."""
        AbstractConnector.__init__(self, name, a, b, **frames)
        dtype = self.frame_a.position.dtype
        self.stiffness = jnp.asarray(stiffness, dtype)
        self.damping = jnp.asarray(damping, dtype)
        self.rest_length = jnp.asarray(rest_length, dtype)

    def wrench(self, a, b, twist_a, twist_b, t, u):
        del t, u
        d = b.position - a.position
        l2 = dot(d, d)
        apart = l2 > 0
        length = jnp.sqrt(jnp.where(apart, l2, 1.0))
        direction = jnp.where(apart, d / length, 0.0)
        rate = dot(direction, twist_b.linear - twist_a.linear)
        tension = self.stiffness * (length - self.rest_length) + self.damping * rate
        return Wrench(-tension * direction, jnp.zeros_like(d))

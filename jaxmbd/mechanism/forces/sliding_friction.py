from typing import ClassVar

import jax.numpy as jnp

from ..._coordinates import dot
from ..relative import z_axis
from .base import Wrench
from .friction import AbstractJointFriction


class SlidingFriction(AbstractJointFriction):
    """Friction of a slide: force against the velocity of the origin of b relative to a along the
    axis of a. `viscous` [N s/m], `dry` [N], `speed` [m/s]; the law is that of
    `AbstractJointFriction`."""

    directed: ClassVar[bool] = True

    def wrench(self, a, b, twist_a, twist_b, t, u):
        del t, u
        axis = z_axis(a)
        rate = dot(axis, twist_b.linear - twist_a.at(b.position - a.position))
        return Wrench(-self.resistance(rate) * axis, jnp.zeros_like(axis))

from typing import ClassVar

import jax.numpy as jnp

from ..._coordinates import dot
from ..relative import z_axis
from .base import Wrench
from .friction import AbstractJointFriction


class SlidingFriction(AbstractJointFriction):
    """Friction of a slide: a force against the velocity of the origin of b relative to a along the
    axis of a. The law is that of `AbstractJointFriction`, with `viscous` [N s/m], `dry` [N] and
    `speed` [m/s]."""

    directed: ClassVar[bool] = True

    def wrench(self, a, b, twist_a, twist_b, t, u):
        del t, u
        axis = z_axis(a)
        rate = dot(axis, twist_b.linear - twist_a.at(b.position - a.position))
        return Wrench(-self.resistance(rate) * axis, jnp.zeros_like(axis))

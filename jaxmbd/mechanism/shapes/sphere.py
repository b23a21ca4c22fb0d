from typing import Annotated

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._concrete import to_jax
from ..._inputs import Number, checked, positive
from .base import AbstractConvexShape, Face, dtype_of


class Sphere(AbstractConvexShape):
    """A ball centred at the origin of its frame.

    **Fields:** `radius` [m].
    """

    radius: Float[Array, ""]

    @checked
    def __init__(self, radius: Annotated[Number, positive]):
        """**Arguments:** `radius`: > 0 [m]."""
        self.radius = to_jax(radius, dtype_of(radius))

    @property
    def margin(self):
        return self.radius

    def support(self, d):
        return jnp.zeros_like(d)

    def nearest(self, p):
        return jnp.zeros_like(p)

    def feet(self, down):
        return jnp.zeros_like(down)[None]

    def face(self, d):
        """The farthest point."""
        return Face(self.radius * d[None], self.radius)

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..parameter import positive
from .base import AbstractConvexShape, dtype_of


class Ellipsoid(AbstractConvexShape):
    """A solid ellipsoid about the origin of its frame.

    **Fields:** `semi_axes` along x, y and z, shape `(3,)` [m].
    """

    semi_axes: Float[Array, "3"]

    def __init__(self, semi_axes: Any):
        """**Arguments:** `semi_axes`: three numbers > 0 [m]."""
        self.semi_axes = positive("`semi_axes` of Ellipsoid", semi_axes, dtype_of(semi_axes), (3,))

    @property
    def margin(self):
        return jnp.zeros_like(self.semi_axes[0])

    def support(self, d):
        scaled = self.semi_axes * d
        norm2 = jnp.sum(scaled * scaled)
        zero = norm2 == 0
        return self.semi_axes * scaled / jnp.sqrt(jnp.where(zero, 1.0, norm2))

    def feet(self, down):
        """The deepest point."""
        return self.support(down)[None]

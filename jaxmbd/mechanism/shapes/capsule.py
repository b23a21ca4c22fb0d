from typing import Annotated

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._concrete import to_jax
from ..._inputs import Number, checked, positive
from .base import AbstractConvexShape, Face, clamped, common_dtype


class Capsule(AbstractConvexShape):
    """All points within `radius` of a segment along the z axis, from -`half_length` to
    `half_length`: a cylinder between two half balls.

    **Fields:** `radius` [m]; `half_length` of the segment [m].
    """

    radius: Float[Array, ""]
    half_length: Float[Array, ""]

    @checked
    def __init__(
        self, radius: Annotated[Number, positive], half_length: Annotated[Number, positive]
    ):
        """**Arguments:** both > 0 [m]."""
        dtype = common_dtype(radius, half_length)
        self.radius = to_jax(radius, dtype)
        self.half_length = to_jax(half_length, dtype)

    @property
    def margin(self):
        return self.radius

    def support(self, d):
        o = jnp.zeros_like(d[0])
        return jnp.stack([o, o, jnp.where(d[2] < 0, -self.half_length, self.half_length)])

    def nearest(self, p):
        o = jnp.zeros_like(p[0])
        return jnp.stack([o, o, clamped(p[2], self.half_length)])

    def feet(self, down):
        """The ends of the segment."""
        del down
        o = jnp.zeros_like(self.half_length)
        end = jnp.stack([o, o, self.half_length])
        return jnp.stack([end, -end])

    def face(self, d):
        """The line on the side."""
        return Face(self.feet(d) + self.radius * d[None], self.radius)

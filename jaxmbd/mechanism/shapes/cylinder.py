from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._coordinates import components
from ..parameter import positive
from .base import AbstractConvexShape, clamped, common_dtype, rim


class Cylinder(AbstractConvexShape):
    """A solid cylinder about the z axis, from -`half_length` to `half_length`.

    **Fields:** `radius` [m]; `half_length` [m].
    """

    radius: Float[Array, ""]
    half_length: Float[Array, ""]

    def __init__(self, radius: Any, half_length: Any):
        """**Arguments:** both > 0 [m]."""
        dtype = common_dtype(radius, half_length)
        self.radius = positive("`radius` of Cylinder", radius, dtype)
        self.half_length = positive("`half_length` of Cylinder", half_length, dtype)

    @property
    def margin(self):
        return jnp.zeros_like(self.radius)

    def support(self, d):
        z = jnp.where(d[2] < 0, -self.half_length, self.half_length)
        return jnp.concatenate([rim(self.radius, d)[0], z[None]])

    def nearest(self, p):
        x, y, z = components(p)
        rho2 = x * x + y * y
        beyond = rho2 > self.radius * self.radius
        inward = jnp.where(beyond, self.radius / jnp.sqrt(jnp.where(beyond, rho2, 1.0)), 1.0)
        return jnp.stack([inward * x, inward * y, clamped(z, self.half_length)])

    def feet(self, down):
        """On the rim of each end the deepest point and those a quarter, half and three quarters of
        a turn on: a standing cylinder rests on four points, a lying one on two."""
        points = rim(self.radius, down)
        z = jnp.ones_like(points[:, :1]) * self.half_length
        return jnp.concatenate(
            [jnp.concatenate([points, z], axis=1), jnp.concatenate([points, -z], axis=1)]
        )

from typing import Annotated

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._concrete import to_jax
from ..._coordinates import components
from ..._inputs import Number, checked, positive
from .base import AbstractConvexShape, Face, clamped, common_dtype, rim

# The corners of a face: points of the unit circle on an end, z / half_length on the side.
_ANGLES = np.pi / 4 * np.arange(8)
_RIM = np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], axis=1)
_ENDS = np.repeat([-1.0, 1.0], 4)


class Cylinder(AbstractConvexShape):
    """A solid cylinder about the z axis, from -`half_length` to `half_length`.

    **Fields:** `radius` [m]; `half_length` [m].
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
        return to_jax(np.zeros(()), self.radius.dtype)

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
        """On the rim of each end, the deepest point and those a quarter, half and three quarters of
        a turn on. A standing cylinder rests on four points, a lying one on two."""
        points = rim(self.radius, down)
        z = jnp.ones_like(points[:, :1]) * self.half_length
        return jnp.concatenate(
            [jnp.concatenate([points, z], axis=1), jnp.concatenate([points, -z], axis=1)]
        )

    def face(self, d):
        """Eight points on the rim of an end, or the line on the side."""
        x, y, z = components(d)
        flat = z * z > 0.5
        across = jnp.sqrt(jnp.where(flat, 1.0, x * x + y * y))
        end = jnp.where(z < 0, -self.half_length, self.half_length)
        lying = self.radius / across * jnp.stack([x, y])
        standing = jnp.asarray(_RIM, d.dtype) * self.radius
        xy = jnp.where(flat, standing, lying[None])
        z = jnp.where(flat, end, jnp.asarray(_ENDS, d.dtype) * self.half_length)
        corners = jnp.concatenate([xy, z[:, None]], axis=1)
        return Face(corners, jnp.where(flat, 0.0, self.radius))

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..parameter import positive
from .base import AbstractShape, dtype_of, rim


class Disc(AbstractShape):
    """A thin disc about the z axis: the circular edge of a wheel or a coin, against half-spaces.

    **Fields:** `radius` [m].
    """

    radius: Float[Array, ""]

    def __init__(self, radius: Any):
        """**Arguments:** `radius`: > 0 [m]."""
        self.radius = positive("`radius` of Disc", radius, dtype_of(radius))

    @property
    def margin(self) -> Float[Array, ""]:
        """No layer around it [m]."""
        return jnp.zeros_like(self.radius)

    def feet(self, down: Float[Array, "3"]) -> Float[Array, "4 3"]:
        """The deepest point of the rim and those a quarter, half and three quarters of a turn on:
        a rolling disc rests on one point, a flat one on four."""
        points = rim(self.radius, down)
        return jnp.concatenate([points, jnp.zeros_like(points[:, :1])], axis=1)

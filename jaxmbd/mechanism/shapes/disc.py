from typing import Annotated

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._concrete import to_jax
from ..._inputs import Number, checked, positive
from .base import AbstractShape, dtype_of, rim


class Disc(AbstractShape):
    """A thin disc about the z axis: the circular edge of a wheel or a coin, against half-spaces.

    **Fields:** `radius` [m].
    """

    radius: Float[Array, ""]

    @checked
    def __init__(self, radius: Annotated[Number, positive]):
        """**Arguments:** `radius`: > 0 [m]."""
        self.radius = to_jax(radius, dtype_of(radius))

    @property
    def margin(self) -> Float[Array, ""]:
        """0: there is no layer around the disc [m]."""
        return jnp.zeros_like(self.radius)

    def feet(self, down: Float[Array, "3"]) -> Float[Array, "4 3"]:
        """The deepest point of the rim, and those a quarter, half and three quarters of a turn on.
        A rolling disc rests on one point, a flat one on four."""
        points = rim(self.radius, down)
        return jnp.concatenate([points, jnp.zeros_like(points[:, :1])], axis=1)

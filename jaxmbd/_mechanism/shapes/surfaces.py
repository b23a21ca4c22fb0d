"""Surfaces without a volume: ground, flat and uneven, and a thin disc."""

from typing import Annotated

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ..._compiler import floating_dtype, to_jax
from ..._inputs import Number, Numbers, Shape, checked, positive
from .base import AbstractShape, rim


class HalfSpace(AbstractShape):
    """All points with z <= 0 in its frame: level ground, or a wall. It has no fields."""


class HeightField(AbstractShape):
    """Uneven ground: all points below a surface z = h(x, y) over a rectangle centred at the origin
    of its frame. Each cell of the grid consists of two triangles, divided along the diagonal from
    its corner of least x and y. The planes of the triangles at the border continue beyond the grid.

    **Fields:**

    - `heights`: z of the surface at the nodes of the grid, shape `(nx, ny)` [m]. Node (i, j) is at
      x = (i - (nx - 1) / 2) `spacing[0]`, and likewise for y.
    - `spacing` of the grid along x and y, shape `(2,)` [m].
    """

    heights: Float[Array, "nx ny"]
    spacing: Float[Array, "2"]

    @checked
    def __init__(
        self,
        heights: Annotated[Numbers, Shape(["nx", "ny"])],
        spacing: Annotated[Numbers, Shape([2]), positive],
    ):
        """**Arguments:** `heights`: at least 2 x 2 [m]; `spacing`: two numbers > 0 [m]."""
        dtype = floating_dtype(heights, spacing)
        self.heights, self.spacing = to_jax(heights, dtype), to_jax(spacing, dtype)
        if min(self.heights.shape) < 2:
            raise ValueError(
                "Argument `heights` of HeightField must have shape (nx, ny) with nx, ny >= 2, but "
                f"has {self.heights.shape}. Give a row for each x, with the heights along y."
            )

    def surface(self, x: Float[Array, ""], y: Float[Array, ""]) -> Float[Array, "3"]:
        """Height of the surface at (x, y) [m], and its slopes dh/dx and dh/dy."""
        (i, u), (j, v) = (
            _cell(coordinate / self.spacing[k], self.heights.shape[k])
            for k, coordinate in enumerate((x, y))
        )
        corners = lax.dynamic_slice(self.heights, (i, j), (2, 2))
        (z00, z01), (z10, z11) = corners
        below = u >= v
        du = jnp.where(below, z10 - z00, z11 - z01)
        dv = jnp.where(below, z11 - z10, z01 - z00)
        return jnp.stack([z00 + u * du + v * dv, du / self.spacing[0], dv / self.spacing[1]])


def _cell(x: Float[Array, ""], nodes: int):
    """The index of the cell at x, and the position of x in the cell, in units of the spacing."""
    along = x + (nodes - 1) / 2
    index = jnp.clip(jnp.floor(lax.stop_gradient(along)), 0, nodes - 2)
    return index.astype(jnp.int32), along - index


class Disc(AbstractShape):
    """A thin disc about the z axis: the circular edge of a wheel or a coin, against half-spaces.

    **Fields:** `radius` [m].
    """

    radius: Float[Array, ""]

    @checked
    def __init__(self, radius: Annotated[Number, positive]):
        """**Arguments:** `radius`: > 0 [m]."""
        self.radius = to_jax(radius, floating_dtype(radius))

    @property
    def margin(self) -> Float[Array, ""]:
        """0: there is no layer around the disc [m]."""
        return jnp.zeros_like(self.radius)

    def feet(self, down: Float[Array, "3"]) -> Float[Array, "4 3"]:
        """The deepest point of the rim, and those a quarter, half and three quarters of a turn on.
        A rolling disc rests on one point, a flat one on four."""
        points = rim(self.radius, down)
        return jnp.concatenate([points, jnp.zeros_like(points[:, :1])], axis=1)

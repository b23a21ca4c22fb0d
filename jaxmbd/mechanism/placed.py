"""Positions and axes of all bodies."""

from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._coordinates import body_axes
from .._types import Coordinates


class Placed(NamedTuple):
    """The coordinates of all bodies, split once for all functions of them. So reverse mode joins
    their derivatives once. The body axis is last; that of one body has none.

    - `position`: of the origins [m].
    - `orientation`: quaternions.
    - `axes`: axes of the bodies in world axes, as columns.
    """

    position: Float[Array, "3 *bodies"]
    orientation: Float[Array, "4 *bodies"]
    axes: Float[Array, "3 3 *bodies"]

    @classmethod
    def of(cls, table: Float[Array, "7 *bodies"]) -> "Placed":
        """Split the table of q."""
        position, orientation = jnp.split(table, [3])
        return cls(position, orientation, body_axes(orientation))

    @property
    def table(self) -> Float[Array, "7 *bodies"]:
        """The table of q."""
        return jnp.concatenate([self.position, self.orientation])

    @property
    def dtype(self) -> Any:
        return self.position.dtype


class PlacedFlat(NamedTuple):
    """The same in a plane: `table`, the table of q, and cosine and sine of half the angles."""

    table: Float[Array, "3 bodies"]
    half_cos: Float[Array, " bodies"]
    half_sin: Float[Array, " bodies"]

    @classmethod
    def of(cls, table: Float[Array, "3 bodies"]) -> "PlacedFlat":
        """From the table of q."""
        return cls(table, jnp.cos(table[2] / 2), jnp.sin(table[2] / 2))

    @property
    def cos_sin(self) -> tuple[Float[Array, " bodies"], Float[Array, " bodies"]]:
        """Cosine and sine of the angles."""
        c, s = self.half_cos, self.half_sin
        return c * c - s * s, 2 * c * s

    @property
    def dtype(self) -> Any:
        return self.table.dtype


# q as a vector, or split.
Configuration: TypeAlias = Coordinates | Placed | PlacedFlat

"""Where all bodies are, with their axes."""

from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._coordinates import body_axes
from .._types import Coordinates


class Placed(NamedTuple):
    """The coordinates of all bodies, taken apart once for all that is evaluated there, and so put
    together once in reverse mode; the body axis last.

    - `position`: of their origins [m].
    - `orientation`: their quaternions.
    - `axes`: theirs in world axes, in columns.
    """

    position: Float[Array, "3 bodies"]
    orientation: Float[Array, "4 bodies"]
    axes: Float[Array, "3 3 bodies"]

    @classmethod
    def of(cls, table: Float[Array, "7 bodies"]) -> "Placed":
        """From the table of q."""
        position, orientation = jnp.split(table, [3])
        return cls(position, orientation, body_axes(orientation))

    @property
    def table(self) -> Float[Array, "7 bodies"]:
        """That of q."""
        return jnp.concatenate([self.position, self.orientation])

    @property
    def dtype(self) -> Any:
        return self.position.dtype


# q, as it is or taken apart.
Configuration: TypeAlias = Coordinates | Placed

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from ..._contact import ABSENT


class ContactPoints(NamedTuple):
    """Where two shapes a and b touch, or would: a fixed number of points for each pair of kinds.

    **Fields:**

    - `gap`: signed distance [m], negative where they overlap; `ABSENT` for a point that does not
      exist in this pose.
    - `position`: midway between the points of both surfaces, in the world [m].
    - `normal`: unit vector from a towards b, in the world: moving b along it opens the gap.
    """

    gap: Float[Array, " points"]
    position: Float[Array, "points 3"]
    normal: Float[Array, "points 3"]

    def swapped(self) -> "ContactPoints":
        """The same with a and b exchanged."""
        return ContactPoints(self.gap, self.position, -self.normal)

    def where(self, present: Bool[Array, " points"]) -> "ContactPoints":
        """The same with only some points present."""
        p = present[:, None]
        return ContactPoints(
            jnp.where(present, self.gap, ABSENT),
            jnp.where(p, self.position, lax.stop_gradient(self.position)),
            jnp.where(p, self.normal, lax.stop_gradient(self.normal)),
        )


def stacked(*points: tuple[Array, Array, Array]) -> ContactPoints:
    """Contact points of their gaps, positions and normals."""
    return ContactPoints(*(jnp.stack(x) for x in zip(*points, strict=True)))

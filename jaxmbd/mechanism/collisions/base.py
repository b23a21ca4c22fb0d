from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from ..._contact import ABSENT


class ContactPoints(NamedTuple):
    """Points where two shapes a and b touch, or may touch: a fixed number for each pair of kinds.

    **Fields:**

    - `gap`: signed distance [m], negative where they overlap; `ABSENT` for a point that does not
      exist in this pose.
    - `position`: the midpoint between the points on both surfaces, in the world [m].
    - `normal`: unit vector from a to b, in the world. Moving b along it opens the gap.
    """

    gap: Float[Array, " points"]
    position: Float[Array, "points 3"]
    normal: Float[Array, "points 3"]

    def swapped(self) -> "ContactPoints":
        """The same points with a and b exchanged."""
        return ContactPoints(self.gap, self.position, -self.normal)

    def where(self, present: Bool[Array, " points"]) -> "ContactPoints":
        """The same points, `ABSENT` where `present` is false."""
        p = present[:, None]
        return ContactPoints(
            jnp.where(present, self.gap, ABSENT),
            jnp.where(p, self.position, lax.stop_gradient(self.position)),
            jnp.where(p, self.normal, lax.stop_gradient(self.normal)),
        )


def stacked(*points: tuple[Array, Array, Array]) -> ContactPoints:
    """Contact points from (gap, position, normal) of each."""
    return ContactPoints(*(jnp.stack(x) for x in zip(*points, strict=True)))

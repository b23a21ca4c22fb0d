import itertools
from typing import Annotated

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._concrete import to_jax
from ..._inputs import Vector, checked, positive
from .base import AbstractConvexShape, Face, clamped, dtype_of

_SIGNS = np.array(list(itertools.product((-1.0, 1.0), repeat=3)))


class Box(AbstractConvexShape):
    """A block centred at the origin of its frame, with its edges along the axes.

    **Fields:** `half_sizes`: half the lengths of the edges along x, y and z, shape `(3,)` [m].
    """

    half_sizes: Float[Array, "3"]

    @checked
    def __init__(self, half_sizes: Annotated[Vector, positive]):
        """**Arguments:** `half_sizes`: three numbers > 0 [m]."""
        self.half_sizes = to_jax(half_sizes, dtype_of(half_sizes))

    @property
    def margin(self):
        return to_jax(np.zeros(()), self.half_sizes.dtype)

    def support(self, d):
        return jnp.where(d < 0, -self.half_sizes, self.half_sizes)

    def nearest(self, p):
        return clamped(p, self.half_sizes)

    def feet(self, down):
        """The eight corners."""
        del down
        return jnp.asarray(_SIGNS, self.half_sizes.dtype) * self.half_sizes[None]

    def face(self, d):
        """The face most nearly normal to d."""
        chosen = jnp.arange(3) == jnp.argmax(jnp.abs(d))
        last, x, y = (jnp.where(jnp.roll(chosen, k), self.half_sizes, 0.0) for k in (0, 1, 2))
        center = jnp.where(d < 0, -last, last)
        corners = jnp.stack([center + x + y, center - x + y, center - x - y, center + x - y])
        return Face(corners, self.margin)

from typing import ClassVar

import jax.numpy as jnp

from ..relative import angle, offset
from .pair import AbstractPair


class Cylindrical(AbstractPair):
    """Sleeve: axes coincide.

    Rows: the position of b across the axis (2), the components of the axis of b across that of a
    (2). Freedoms and coordinates: displacement along and angle about the axis.
    """

    rows: ClassVar[int] = 4
    holds: ClassVar[tuple[str, ...]] = ("x", "y", "tilt_x", "tilt_y")
    angles: ClassVar[int] = 1
    directed: ClassVar[bool] = True

    def coordinates(self, a, b):
        return jnp.stack([offset(a, b)[2], angle(a, b)])

from typing import ClassVar

import jax.numpy as jnp

from ..relative import angle, offset
from .pair import AbstractPair


class Cylindrical(AbstractPair):
    """Sleeve: the axes coincide.

    Rows: the position of b normal to the axis (2), the components of the axis of b normal to that
    of a (2). Freedoms and coordinates: the displacement along and the angle about the axis.
    """

    rows: ClassVar[int] = 4
    holds: ClassVar[tuple[str, ...]] = ("x", "y", "tilt_x", "tilt_y")
    angles: ClassVar[int] = 1
    directed: ClassVar[bool] = True

    def coordinates(self, a, b):
        return jnp.stack([offset(a, b)[2], angle(a, b)])

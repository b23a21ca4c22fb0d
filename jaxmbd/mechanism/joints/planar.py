from typing import ClassVar

import jax.numpy as jnp

from ..relative import angle, offset
from .pair import AbstractPair


class Planar(AbstractPair):
    """Two planes normal to the axis slide on each other.

    Rows: the position of b along the axis of a (1), the components of the axis of b normal to that
    of a (2). Freedoms and coordinates: displacements along x and y of a, angle about the axis.
    """

    rows: ClassVar[int] = 3
    holds: ClassVar[tuple[str, ...]] = ("z", "tilt_x", "tilt_y")
    angles: ClassVar[int] = 1
    directed: ClassVar[bool] = True

    def coordinates(self, a, b):
        return jnp.append(offset(a, b)[:2], angle(a, b))

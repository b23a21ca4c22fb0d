from typing import ClassVar

import jax.numpy as jnp

from ..relative import angle, offset, tilt
from .base import AbstractJoint


class Cylindrical(AbstractJoint):
    """Sleeve: axes coincide.

    Rows: the position of b across the axis (2), the components of the axis of b across that of a
    (2). Freedoms and coordinates: displacement along and angle about the axis.
    """

    rows: ClassVar[int] = 4
    angles: ClassVar[int] = 1
    directed: ClassVar[bool] = True

    def constraint(self, a, b, t):
        del t
        return jnp.concatenate([offset(a, b)[:2], tilt(a, b)])

    def coordinates(self, a, b):
        return jnp.stack([offset(a, b)[2], angle(a, b)])

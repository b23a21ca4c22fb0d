from typing import ClassVar

import jax.numpy as jnp

from ..relative import misaligned, offset
from .base import AbstractJoint


class Prismatic(AbstractJoint):
    """Slider: frames are aligned, the origin of b stays on the axis of a.

    Rows: the position of b across the axis (2), twice the vector part of the relative quaternion
    (3). Freedom and coordinate: the displacement along the axis.
    """

    rows: ClassVar[int] = 5
    directed: ClassVar[bool] = True

    def constraint(self, a, b, t):
        del t
        return jnp.concatenate([offset(a, b)[:2], misaligned(a, b)])

    def coordinates(self, a, b):
        return offset(a, b)[2:]

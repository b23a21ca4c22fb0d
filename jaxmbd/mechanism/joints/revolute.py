from typing import ClassVar

import jax.numpy as jnp

from ..relative import angle, offset, tilt
from .base import AbstractJoint


class Revolute(AbstractJoint):
    """Hinge: origins coincide, axes are parallel.

    Rows: the position of b in frame a (3), the components of the axis of b across that of a (2).
    Freedom and coordinate: the angle of b relative to a about the axis.
    """

    rows: ClassVar[int] = 5
    angles: ClassVar[int] = 1
    directed: ClassVar[bool] = True

    def constraint(self, a, b, t):
        del t
        return jnp.concatenate([offset(a, b), tilt(a, b)])

    def coordinates(self, a, b):
        return angle(a, b)[None]

from typing import ClassVar

import jax.numpy as jnp

from ..._coordinates import dot
from ..relative import offset, polar_angle, x_axis, y_axis
from .base import AbstractJoint


class Universal(AbstractJoint):
    """Hooke's joint: origins coincide, the x axis of a and the y axis of b, the two arms of the
    cross, stay at right angles.

    Rows: the position of b in frame a (3), x_a . y_b (1). Freedoms and coordinates: the angle of
    the cross about x_a, then that of b about y_b.
    """

    rows: ClassVar[int] = 4
    angles: ClassVar[int] = 2
    directed: ClassVar[bool] = False

    def constraint(self, a, b, t):
        del t
        return jnp.concatenate([offset(a, b), dot(x_axis(a), y_axis(b))[None]])

    def coordinates(self, a, b):
        _, cos_first, sin_first = a.local_direction(y_axis(b))
        cos_second, _, sin_second = b.local_direction(x_axis(a))
        return jnp.stack([polar_angle(cos_first, sin_first), polar_angle(cos_second, sin_second)])

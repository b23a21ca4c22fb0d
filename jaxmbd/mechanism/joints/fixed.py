from typing import ClassVar

import jax.numpy as jnp

from ..relative import misaligned, offset
from .base import AbstractJoint


class Fixed(AbstractJoint):
    """The frames coincide: one body.

    Rows: the position of b in frame a (3), twice the vector part of the relative quaternion (3).
    No freedom.
    """

    rows: ClassVar[int] = 6
    directed: ClassVar[bool] = False

    def constraint(self, a, b, t):
        del t
        return jnp.concatenate([offset(a, b), misaligned(a, b)])

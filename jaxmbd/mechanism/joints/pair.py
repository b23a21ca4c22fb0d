"""Joints that set components of the relative pose of two frames to zero."""

from typing import ClassVar

import jax.numpy as jnp

from ..._coordinates import dot
from ..relative import misaligned, offset, tilt, x_axis, y_axis
from .base import AbstractJoint


class AbstractPair(AbstractJoint):
    """A joint whose rows are some of nine components of the pose of b relative to a:

    - `x`, `y`, `z`: the position of the origin of b in frame a [m];
    - `tilt_x`, `tilt_y`: the components of the axis of b normal to that of a;
    - `arms`: the scalar product of the x axis of a and the y axis of b;
    - `turn_x`, `turn_y`, `turn_z`: twice the vector part of the relative quaternion.

    A subclass lists its rows in `holds`. Pairs of all kinds are evaluated together, with
    derivatives in closed form: see `pairs.py`.
    """

    holds: ClassVar[tuple[str, ...]]

    def constraint(self, a, b, t):
        del t
        every = {
            **dict(zip(("x", "y", "z"), offset(a, b), strict=True)),
            **dict(zip(("tilt_x", "tilt_y"), tilt(a, b), strict=True)),
            "arms": dot(x_axis(a), y_axis(b)),
            **dict(zip(("turn_x", "turn_y", "turn_z"), misaligned(a, b), strict=True)),
        }
        return jnp.stack([every[name] for name in self.holds])

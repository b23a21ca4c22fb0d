import math
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import is_concrete
from ..body import Body
from ..connector import AbstractConnector
from ..relative import angle, offset, tilt
from .base import AbstractJoint


class Screw(AbstractJoint):
    """Axes coincide, and b advances by `pitch` along the axis of a for each turn of b about it.

    Rows: the position of b across the axis (2), the components of the axis of b across that of a
    (2), and pitch / 2 pi (phi - 2 pi z / pitch), where the difference of the angle phi and the one
    that belongs to the displacement z is taken within half a turn (1): true for any number of
    turns, without counting them. Freedom and coordinate: the displacement z.
    """

    pitch: Float[Array, ""]

    rows: ClassVar[int] = 5
    directed: ClassVar[bool] = True

    def __init__(self, name: str, a: Body | str, b: Body | str, *, pitch: Any, **frames: Any):
        """**Arguments:** as `AbstractJoint`.

        - `pitch`: advance per turn [m], negative for a left-handed screw, not 0.
        """
        AbstractConnector.__init__(self, name, a, b, **frames)
        if is_concrete(pitch) and not (math.isfinite(float(pitch)) and float(pitch) != 0):
            raise ValueError(f'`pitch` of "{name}" must be finite and not 0, but is {pitch}.')
        self.pitch = jnp.asarray(pitch, self.frame_a.position.dtype)

    def constraint(self, a, b, t):
        del t
        d = offset(a, b)
        lead = self.pitch / (2 * math.pi)
        behind = angle(a, b) - d[2] / lead
        within = jnp.arctan2(jnp.sin(behind), jnp.cos(behind))
        return jnp.concatenate([d[:2], tilt(a, b), (lead * within)[None]])

    def coordinates(self, a, b):
        return offset(a, b)[2:]

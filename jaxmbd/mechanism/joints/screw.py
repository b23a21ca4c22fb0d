import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._concrete import to_jax
from ..._inputs import Number, Vector, checked, not_zero, number
from ..body import Body
from ..pose import Frame
from ..relative import angle, offset, tilt, within_half_a_turn
from .base import AbstractJoint, limit_pairs


class Screw(AbstractJoint):
    """The axes coincide, and b advances by `pitch` along the axis of a for each turn about it.

    Rows: the position of b normal to the axis (2), the components of the axis of b normal to that
    of a (2), and pitch / 2 pi (phi - 2 pi z / pitch), with the difference of angles wrapped to
    within half a turn (1). This holds for any number of turns, without counting them. Freedom and
    coordinate: the displacement z.
    """

    pitch: Float[Array, ""]

    rows: ClassVar[int] = 5
    directed: ClassVar[bool] = True

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        pitch: Annotated[Number, not_zero],
        point: Vector | None = None,
        points: Sequence[Vector] | None = None,
        axis: Vector | None = None,
        axes: Sequence[Vector] | None = None,
        orientation: Any = None,
        frame_a: Frame | None = None,
        frame_b: Frame | None = None,
        limits: Annotated[Any, number] = None,
    ):
        """**Arguments:** as `AbstractJoint`.

        - `pitch`: advance per turn [m], negative for a left-handed screw, not 0.
        """
        self._connect(name, (a, b), (point, points), (axis, axes, orientation), (frame_a, frame_b))
        self.limits = limit_pairs(limits, self.dtype)
        self.pitch = to_jax(pitch, self.dtype)

    def constraint(self, a, b, t):
        del t
        d = offset(a, b)
        lead = self.pitch / (2 * math.pi)
        behind = within_half_a_turn(angle(a, b) - d[2] / lead)
        return jnp.concatenate([d[:2], tilt(a, b), (lead * behind)[None]])

    def coordinates(self, a, b):
        return offset(a, b)[2:]

from collections.abc import Sequence
from typing import Annotated, ClassVar

from jaxtyping import Array, Float

from ..._concrete import to_jax
from ..._coordinates import dot
from ..._inputs import Number, Vector, checked, positive
from ..body import Body
from ..pose import Frame
from ..relative import offset
from .base import AbstractJoint


class Distance(AbstractJoint):
    """Massless rod: the distance between the origins is `length`.

    Row: (d . d - length^2) / (2 length), with d from a to b, to first order |d| - length (1).
    Freedoms: 5.
    """

    length: Float[Array, ""]

    rows: ClassVar[int] = 1
    directed: ClassVar[bool] = False

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        length: Annotated[Number, positive],
        point: Vector | None = None,
        points: Sequence[Vector] | None = None,
        frame_a: Frame | None = None,
        frame_b: Frame | None = None,
    ):
        """**Arguments:** as `AbstractJoint`, usually `points` (the two ends) or frames.

        - `length`: > 0 [m].
        """
        self._connect(name, (a, b), (point, points), (None, None, None), (frame_a, frame_b))
        self.limits = None
        self.length = to_jax(length, self.dtype)

    def constraint(self, a, b, t):
        del t
        d = offset(a, b)
        return ((dot(d, d) - self.length**2) / (2 * self.length))[None]

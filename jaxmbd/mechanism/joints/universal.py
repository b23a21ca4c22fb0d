from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._concrete import as_one_program, is_concrete
from ..._coordinates import cross, dot, quaternion_from_matrix
from ..._inputs import Vector, checked, number
from ..body import Body
from ..connector import pair_of, unit_vector
from ..element import dtype_of
from ..pose import Frame
from ..relative import polar_angle, x_axis, y_axis
from .base import limit_pairs
from .pair import AbstractPair


class Universal(AbstractPair):
    """Hooke's joint: the origins coincide, and the two arms of the cross, the x axis of a and the
    y axis of b, stay at right angles.

    Rows: the position of b in frame a (3), x_a . y_b (1). Freedoms and coordinates: the angle of
    the cross about x_a, then that of b about y_b.
    """

    rows: ClassVar[int] = 4
    holds: ClassVar[tuple[str, ...]] = ("x", "y", "z", "arms")
    angles: ClassVar[int] = 2
    directed: ClassVar[bool] = False

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        point: Vector | None = None,
        points: Sequence[Vector] | None = None,
        axes: Sequence[Vector] | None = None,
        orientation: Any = None,
        frame_a: Frame | None = None,
        frame_b: Frame | None = None,
        limits: Annotated[Any, number] = None,
    ):
        """**Arguments:** as `AbstractJoint`, except

        - `axes`: the two arms of the cross in the world, at right angles. The cross turns in a
          about the first, and b turns on the cross about the second;
        - or `orientation`, whose x and y axes are the two arms.

        **Raises:** `ValueError` for a joint in the world without either, and for axes that are not
        at right angles.
        """
        if axes is None and orientation is None and frame_a is None:
            raise ValueError(
                f'Universal "{name}" turns about two axes: give `axes`, the arms of the cross on a '
                "and on b, or an `orientation` whose x and y axes they are."
            )
        if axes is not None:
            if orientation is not None or frame_a is not None:
                raise ValueError(
                    f'Universal "{name}" needs one of `axes`, `orientation` and frames: together '
                    "they say it twice."
                )
            orientation = _arms(name, axes, dtype_of((a, b)))
        self._connect(name, (a, b), (point, points), (None, None, orientation), (frame_a, frame_b))
        self.limits = limit_pairs(limits, self.dtype)

    def coordinates(self, a, b):
        _, cos_first, sin_first = a.local_direction(y_axis(b))
        cos_second, _, sin_second = b.local_direction(x_axis(a))
        return jnp.stack([polar_angle(cos_first, sin_first), polar_angle(cos_second, sin_second)])


def _arms(name: str, axes: Any, dtype: Any) -> Float[Array, "4"]:
    """The orientation whose x and y axes are `axes`."""
    what = f'`axes` of Universal "{name}"'
    x, y = (unit_vector(what, axis, dtype) for axis in pair_of(name, "axes", axes))
    if is_concrete(x) and is_concrete(y):
        cosine = float(np.asarray(x) @ np.asarray(y))
        if not abs(cosine) < 1e-5:
            raise ValueError(
                f"{what} must be at right angles, as the arms of the cross are, but are at "
                f"{np.degrees(np.arccos(np.clip(cosine, -1, 1))):.6g} degrees."
            )
    return _orientation(x, y)


@as_one_program
def _orientation(x: Array, y: Array) -> Float[Array, "4"]:
    y = y - dot(x, y) * x
    y = y / jnp.sqrt(dot(y, y))
    return quaternion_from_matrix(jnp.stack([x, y, cross(x, y)], axis=1))

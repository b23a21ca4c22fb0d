from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._inputs import Vector, checked
from ..body import Body
from ..pose import Frame
from ..relative import offset
from .base import AbstractJoint


class PointOnCurve(AbstractJoint):
    """The origin of b stays on a curve that is fixed to a, the intersection of two surfaces

        F_1(r) = 0,    F_2(r) = 0,    r: position of b in frame a.

    Given so, a curve needs no parameter along it as a further unknown, no search for the nearest
    point, and no memory of the branch: the rows are exact, and as differentiable as F. Examples:

    - a graph y = f(x), z = g(x): `lambda r: jnp.stack([r[1] - f(r[0]), r[2] - g(r[0])])`;
    - a circle in the plane z = 0: `[(r_x^2 + r_y^2 - R^2) / (2 R), r_z]`;
    - a helix: `[(r_x^2 + r_y^2 - R^2) / (2 R), R sin(phi - r_z / c)]` with phi the polar angle,
      without a sine of an angle: `[..., r_y cos(r_z / c) - r_x sin(r_z / c)]`, which admits the
      opposite strand too.

    A parametric curve c(s) takes this form by solving one of its components for s; a closed one
    that is seen from inside under each angle once is a `Cam` with a `PointOnPlane`.

    The gradients of F_1 and F_2 must not be parallel on the curve, and best have length 1: then the
    rows are distances.

    Rows: F_1, F_2 (2). Freedoms: 3 rotations and the motion along the curve. Coordinates: none.

    **Fields:** `surfaces`: the function F.
    """

    surfaces: Callable[..., Any]

    rows: ClassVar[int] = 2
    directed: ClassVar[bool] = False

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        surfaces: Callable[[Float[Array, "3"]], Any],
        point: Vector | None = None,
        points: Sequence[Vector] | None = None,
        axis: Vector | None = None,
        axes: Sequence[Vector] | None = None,
        orientation: Any = None,
        frame_a: Frame | None = None,
        frame_b: Frame | None = None,
    ):
        """**Arguments:** as `AbstractJoint`.

        - `surfaces`: of the position r, shape `(3,)` [m], gives (F_1, F_2), shape `(2,)` [m]. An
          `eqx.Module` with numbers in it makes them parameters with derivatives.
        """
        self._connect(name, (a, b), (point, points), (axis, axes, orientation), (frame_a, frame_b))
        self.limits = None
        what = f'`surfaces` of PointOnCurve "{name}"'
        if not callable(surfaces):
            raise ValueError(f"{what} must be a function of the position, but is {surfaces!r}.")
        rows = eqx.filter_eval_shape(surfaces, jax.ShapeDtypeStruct((3,), self.dtype))
        if getattr(rows, "shape", None) != (2,):
            raise ValueError(
                f"{what} must give two numbers, shape (2,), but gives {rows}. Use `jnp.stack`."
            )
        self.surfaces = surfaces

    def constraint(self, a, b, t):
        del t
        return jnp.asarray(self.surfaces(offset(a, b)), a.position.dtype)

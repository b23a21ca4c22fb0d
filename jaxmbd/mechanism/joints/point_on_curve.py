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

    This form needs no curve parameter as an additional unknown, no search for the nearest point,
    and no memory of the branch. The rows are exact, and as differentiable as F. Examples:

    - a graph y = f(x), z = g(x): `lambda r: jnp.stack([r[1] - f(r[0]), r[2] - g(r[0])])`;
    - a circle in the plane z = 0: `[(r_x^2 + r_y^2 - R^2) / (2 R), r_z]`;
    - a helix: `[(r_x^2 + r_y^2 - R^2) / (2 R), R sin(phi - r_z / c)]` with phi the polar angle, or,
      without phi, `[..., r_y cos(r_z / c) - r_x sin(r_z / c)]`. Both admit the opposite strand too.

    To bring a parametric curve c(s) into this form, solve one of its components for s. For a closed
    plane curve with one radius for each polar angle, use a `Cam` with a `PointOnPlane`.

    The gradients of F_1 and F_2 must not be parallel on the curve. If they have length 1, the rows
    are distances to first order, which is best.

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

        - `surfaces`: a function of the position r, shape `(3,)` [m], that returns (F_1, F_2), shape
          `(2,)` [m]. The arrays of an `eqx.Module` are parameters with derivatives.
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

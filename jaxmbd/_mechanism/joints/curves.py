"""Contacts along given curves, which may be splines."""

import math
from collections.abc import Callable
from typing import Annotated, ClassVar, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._compiler import as_one_program, refuted, to_jax
from ..._inputs import Numbers, Shape, checked, number
from ..._types import Convertible, RealScalarLike, Scalar
from ..body import Body
from ..frames import Frames
from ..relative import offset, polar_angle
from .base import AbstractJoint, limit_pairs


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

    surfaces: Callable[[Float[Array, "3"]], Convertible]

    rows: ClassVar[int] = 2
    directed: ClassVar[bool] = False

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        surfaces: Callable[[Float[Array, "3"]], Convertible],
        **frames: Unpack[Frames],
    ):
        """**Arguments:** as `AbstractJoint`.

        - `surfaces`: a function of the position r, shape `(3,)` [m], that returns (F_1, F_2), shape
          `(2,)` [m]. The arrays of an `eqx.Module` are parameters with derivatives.
        """
        self._connect(name, a, b, frames)
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


class Cam(AbstractJoint):
    """A follower on a disc cam. The origin of b stays on a surface about the axis of a. The section
    of the surface is radius = profile(phi) in polar coordinates, with phi from the x axis of a.

    Another joint guides the follower, so its position along the axis is free here. For a follower
    with a roller, give the profile that the centre of the roller follows. The contact can pull: the
    follower never leaves the cam.

    Row: rho - profile(phi), with (rho, phi) the polar coordinates of b normal to the axis (1).
    Freedoms: 5. Coordinates: the displacement along the axis, the angle phi.

    **Fields:** `profile`: a function, such as a `PeriodicSpline`.
    """

    profile: Callable[[Scalar], Convertible]

    rows: ClassVar[int] = 1
    angles: ClassVar[int] = 1
    directed: ClassVar[bool] = True

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        profile: Callable[[Scalar], Convertible],
        limits: Annotated[Numbers, number] | None = None,
        **frames: Unpack[Frames],
    ):
        """**Arguments:** as `AbstractJoint`. An `orientation` or frames say where phi = 0 is.

        - `profile`: a function of the angle phi [rad], from -pi to pi, that returns the radius > 0
          [m], shape `()`; periodic and at least twice differentiable. The arrays of a
          `PeriodicSpline` or another `eqx.Module` are parameters with derivatives.
        """
        self._connect(name, a, b, frames)
        self.limits = limit_pairs(limits, self.dtype)
        what = f'`profile` of Cam "{name}"'
        if not callable(profile):
            raise ValueError(f"{what} must be a function of the angle, but is {profile!r}.")
        radius = eqx.filter_eval_shape(profile, jax.ShapeDtypeStruct((), self.dtype))
        if getattr(radius, "shape", None) != ():
            raise ValueError(f"{what} must give a number, shape (), but gives {radius}.")
        self.profile = profile

    def constraint(self, a, b, t):
        del t
        x, y, _ = offset(a, b)
        # The angle is undefined on the axis. All derivatives of rho and phi are set to 0 there.
        r2 = x * x + y * y
        apart = r2 > 0
        rho = jnp.where(apart, jnp.sqrt(jnp.where(apart, r2, 1.0)), 0.0)
        radius = self.profile(polar_angle(x, y))
        return (rho - jnp.asarray(radius, rho.dtype))[None]

    def coordinates(self, a, b):
        x, y, z = offset(a, b)
        return jnp.stack([z, polar_angle(x, y)])


class PeriodicSpline(eqx.Module):
    """The periodic cubic spline through given points: a function of an angle with period 2 pi and
    continuous second derivatives, so that accelerations do not jump. The error is of fourth order
    in the spacing of the angles.

        profile = mbd.joints.PeriodicSpline(angles, radii)
        profile(0.3)

    **Fields:** at the points, with the first one repeated a turn later as the last,

    - `angles` [rad], `values`: as given;
    - `bends`: second derivatives of the spline.

    Reference: de Boor (1978), A Practical Guide to Splines, chapter IV.
    """

    angles: Float[Array, " points"]
    values: Float[Array, " points"]
    bends: Float[Array, " points"]

    @checked
    def __init__(
        self, angles: Annotated[Numbers, Shape(["n"])], values: Annotated[Numbers, Shape(["n"])]
    ):
        """**Arguments:**

        - `angles`: at least 3, increasing within less than a turn, shape `(n,)` [rad].
        - `values`: of the function at these angles, shape `(n,)`. The spline has derivatives
          with respect to both.

        **Raises:** `ValueError` for other angles.
        """
        dtype = jnp.result_type(float)
        angles, values = to_jax(angles, dtype), to_jax(values, dtype)
        n = len(angles)
        if len(values) != n:
            raise ValueError(
                f"Argument `values` of PeriodicSpline must hold one value for each of the {n} "
                f"`angles`, but holds {len(values)}."
            )
        if n < 3:
            raise ValueError(f"A periodic spline needs at least 3 points, but got {n}.")
        if refuted(lambda x: np.all(np.diff(x) > 0) and x[-1] - x[0] < 2 * math.pi, angles):
            raise ValueError(
                "`angles` of the spline must increase within a turn, without its end, but are "
                f"{angles.tolist()}."
            )
        self.angles, self.values, self.bends = _closed(angles, values)

    def __call__(self, phi: RealScalarLike) -> Float[Array, ""]:
        """The value at the angle phi [rad], shape `()`."""
        start = self.angles[0]
        phi = start + jnp.mod(phi - start, 2 * math.pi)
        i = jnp.sum(phi >= self.angles[1:-1])
        x, h = phi - self.angles[i], self.angles[i + 1] - self.angles[i]
        y, y_next, m, m_next = (table[k] for table in (self.values, self.bends) for k in (i, i + 1))
        slope = (y_next - y) / h - h * (2 * m + m_next) / 6
        return y + x * (slope + x * (m / 2 + x * (m_next - m) / (6 * h)))


@as_one_program
def _closed(angles: Array, values: Array) -> tuple[Array, Array, Array]:
    """The angles, values and second derivatives, with the first point at the end again."""
    angles = jnp.append(angles, angles[0] + 2 * math.pi)
    values = jnp.append(values, values[0])
    # Continuity of the slope at point i requires
    # h[i-1] m[i-1] + 2 (h[i-1] + h[i]) m[i] + h[i] m[i+1] = 6 (slope[i] - slope[i-1]).
    h = jnp.diff(angles)
    slope = jnp.diff(values) / h
    before = jnp.roll(h, 1)
    n = h.size
    i = np.arange(n)
    A = jnp.zeros((n, n), h.dtype).at[i, i].add(2 * (before + h))
    A = A.at[i, i - 1].add(before).at[i, (i + 1) % n].add(h)
    bends = jnp.linalg.solve(A, 6 * (slope - jnp.roll(slope, 1)))
    return angles, values, jnp.append(bends, bends[0])

"""Contact points, and vector functions that stay finite in degenerate cases."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from ..._contact import ABSENT
from ..._coordinates import cross, dot
from ..pose import Pose


class ContactPoints(NamedTuple):
    """Points where two shapes a and b touch, or may touch: a fixed number for each pair of kinds.

    **Fields:**

    - `gap`: signed distance [m], negative where they overlap; `ABSENT` for a point that does not
      exist in this pose.
    - `position`: the midpoint between the points on both surfaces, in the world [m].
    - `normal`: unit vector from a to b, in the world. Moving b along it opens the gap.
    """

    gap: Float[Array, " points"]
    position: Float[Array, "points 3"]
    normal: Float[Array, "points 3"]

    def swapped(self) -> "ContactPoints":
        """The same points with a and b exchanged."""
        return ContactPoints(self.gap, self.position, -self.normal)

    def where(self, present: Bool[Array, " points"]) -> "ContactPoints":
        """The same points, `ABSENT` where `present` is false."""
        p = present[:, None]
        return ContactPoints(
            jnp.where(present, self.gap, ABSENT),
            jnp.where(p, self.position, lax.stop_gradient(self.position)),
            jnp.where(p, self.normal, lax.stop_gradient(self.normal)),
        )


def stacked(*points: tuple[Array, Array, Array]) -> ContactPoints:
    """Contact points from (gap, position, normal) of each."""
    return ContactPoints(*(jnp.stack(x) for x in zip(*points, strict=True)))


def x_direction(like: Float[Array, "3"]) -> Float[Array, "3"]:
    """The unit vector along x."""
    return jnp.array([1.0, 0.0, 0.0], like.dtype)


def z_direction(like: Float[Array, "3"]) -> Float[Array, "3"]:
    """The unit vector along z."""
    return jnp.array([0.0, 0.0, 1.0], like.dtype)


def unit(
    d: Float[Array, "3"], fallback: Float[Array, "3"]
) -> tuple[Float[Array, ""], Float[Array, "3"]]:
    """The length and direction of d. At d = 0 the direction is the unit vector `fallback`, which is
    also the gradient of the length."""
    d2 = dot(d, d)
    # Lengths below eps^2 are rounding errors here, and their powers would underflow.
    apart = d2 > jnp.finfo(d.dtype).eps ** 4
    length = jnp.sqrt(jnp.where(apart, d2, 1.0))
    return (
        jnp.where(apart, length, dot(d, fallback)),
        jnp.where(apart, d / length, fallback),
    )


def perpendicular(u: Float[Array, "3"]) -> Float[Array, "3"]:
    """A unit vector normal to the unit vector u."""
    y_direction = jnp.array([0.0, 1.0, 0.0], u.dtype)
    a = cross(jnp.where(jnp.abs(u[0]) < 0.7, x_direction(u), y_direction), u)
    return a / jnp.sqrt(dot(a, a))


def sign(x: Array) -> Array:
    """1 or -1, never 0."""
    return jnp.where(x < 0, -jnp.ones_like(x), jnp.ones_like(x))


def nonzero(x: Array, tolerance: Any) -> Array:
    """x, or 1 where |x| is at most `tolerance`, for use as a denominator."""
    return jnp.where(jnp.abs(x) > tolerance, x, 1.0)


def mixed(weights: Float[Array, " n"], rows: Float[Array, "n 3"]) -> Float[Array, "3"]:
    """The weighted sum of the rows."""
    return jnp.sum(weights[:, None] * rows, axis=0)


def axes(frame: Pose) -> Float[Array, "3 3"]:
    """World components of the axes of a frame, in rows."""
    return jnp.stack(frame.axes)


def one_hot_of_largest(x: Float[Array, " n"]) -> Float[Array, " n"]:
    """1 at the largest entry (the first of several), 0 elsewhere."""
    return (jnp.arange(x.shape[0]) == jnp.argmax(x)).astype(x.dtype)


def largest(x: Float[Array, " n"]) -> Float[Array, ""]:
    """The largest entry. It has the derivative of this entry, the first of several. `jnp.max`
    shares the derivative among all entries that compare equal to the maximum. There may be none if
    XLA recomputes them with other roundings."""
    return jnp.sum(jnp.where(jnp.arange(x.shape[0]) == jnp.argmax(x), x, 0.0))

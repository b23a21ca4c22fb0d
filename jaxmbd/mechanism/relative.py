"""Position and orientation of one frame relative to another, over components."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._coordinates import components, quaternion_conjugate, quaternion_product
from .pose import Pose


def offset(a: Pose, b: Pose) -> Float[Array, "3"]:
    """Position of the origin of b in frame a [m]."""
    return a.local_point(b.position)


def tilt(a: Pose, b: Pose) -> Float[Array, "2"]:
    """Components of the axis of b across that of a: 0 where they are parallel."""
    return a.local_direction(z_axis(b))[:2]


def misaligned(a: Pose, b: Pose) -> Float[Array, "3"]:
    """Twice the vector part of the relative quaternion, to first order the small rotation from a to
    b: 0 for aligned frames, and for no other orientation."""
    p = quaternion_product(quaternion_conjugate(a.orientation), b.orientation)
    return jnp.where(p[0] < 0, -2 * p[1:], 2 * p[1:])


def x_axis(frame: Pose) -> Float[Array, "3"]:
    """World components of the x axis."""
    w, x, y, z = components(frame.orientation)
    return jnp.stack([1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)])


def y_axis(frame: Pose) -> Float[Array, "3"]:
    """World components of the y axis."""
    w, x, y, z = components(frame.orientation)
    return jnp.stack([2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x)])


def z_axis(frame: Pose) -> Float[Array, "3"]:
    """World components of the z axis."""
    w, x, y, z = components(frame.orientation)
    return jnp.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)])


def angle(a: Pose, b: Pose) -> Float[Array, ""]:
    """Angle [rad] from the x axis of a to that of b about the axis of a, in (-pi, pi]."""
    x, y, _ = components(a.local_direction(x_axis(b)))
    return polar_angle(x, y)


def polar_angle(x: Float[Array, ""], y: Float[Array, ""]) -> Float[Array, ""]:
    """Angle of the point (x, y); at the origin, where it has none, 0 with the derivative 0."""
    apart = x * x + y * y > 0
    return jnp.arctan2(jnp.where(apart, y, 0.0), jnp.where(apart, x, 1.0))


def within_half_a_turn(phi: Float[Array, ""]) -> Float[Array, ""]:
    """The angle in [-pi, pi] that differs from phi [rad] by whole turns; its derivative is 1."""
    return jnp.arctan2(jnp.sin(phi), jnp.cos(phi))


def shortest(difference: Float[Array, " coordinates"], angles: int) -> Float[Array, " coordinates"]:
    """A difference of joint coordinates, of which the last `angles` are taken within half a
    turn."""
    first = difference.shape[0] - angles
    return jnp.stack(
        [within_half_a_turn(x) if i >= first else x for i, x in enumerate(components(difference))]
    )

"""Position and orientation of one frame relative to another."""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._coordinates import components, dot, quaternion_conjugate, quaternion_product
from .pose import Pose


def offset(a: Pose, b: Pose) -> Float[Array, "3"]:
    """Position of the origin of b in frame a [m]."""
    return a.local_point(b.position)


def tilt(a: Pose, b: Pose) -> Float[Array, "2"]:
    """Components of the axis of b across the axis of a, 0 if they are parallel."""
    return a.local_direction(z_axis(b))[:2]


def misaligned(a: Pose, b: Pose) -> Float[Array, "3"]:
    """Twice the vector part of the relative quaternion, to first order the small rotation from a to
    b. It is 0 only for aligned frames."""
    p = quaternion_product(quaternion_conjugate(a.orientation), b.orientation)
    return jnp.where(p[0] < 0, -2 * p[1:], 2 * p[1:])


def x_axis(frame: Pose) -> Float[Array, "3"]:
    """World components of the x axis."""
    return frame.axes[0]


def y_axis(frame: Pose) -> Float[Array, "3"]:
    """World components of the y axis."""
    return frame.axes[1]


def z_axis(frame: Pose) -> Float[Array, "3"]:
    """World components of the z axis."""
    return frame.axes[2]


def angle(a: Pose, b: Pose) -> Float[Array, ""]:
    """Angle [rad] from the x axis of a to the x axis of b about the axis of a, in (-pi, pi]."""
    x, y, _ = components(a.local_direction(x_axis(b)))
    return polar_angle(x, y)


def twist(a: Pose, b: Pose) -> Float[Array, ""]:
    """Twist angle [rad] of b relative to a, in [-pi, pi]: the rotation about the axis of a that
    remains after the shortest rotation of that axis into the axis of b. It equals `angle` where the
    axes are parallel, and is undefined where they are opposite."""
    w, _, _, z = components(quaternion_product(quaternion_conjugate(a.orientation), b.orientation))
    return polar_angle(w * w - z * z, 2 * w * z)


def twist_axis(a: Pose, b: Pose) -> Float[Array, "3"]:
    """g in world axes, with twist' = g . (omega_b - omega_a): (e_a + e_b) / (1 + e_a . e_b) for the
    axes e. If these are opposite, it is e_a."""
    e_a, e_b = z_axis(a), z_axis(b)
    size = 1 + dot(e_a, e_b)
    apart = size > 0
    return jnp.where(apart, (e_a + e_b) / jnp.where(apart, size, 1.0), e_a)


def gimbal_angles(a: Pose, b: Pose) -> Float[Array, "3"]:
    """Angles (alpha, beta, gamma) [rad] of the body-fixed sequence x, y, z that turns the axes of a
    into those of b, R = Rx(alpha) Ry(beta) Rz(gamma), with |beta| <= pi / 2.

    beta and gamma are read from Rx(alpha)^T R. So the three angles give R also at |beta| = pi / 2,
    where alpha alone is undefined. There alpha is 0, and derivatives are finite but meaningless."""
    (_, _, r02), (r10, r11, r12), (r20, r21, r22) = map(
        components, components(jnp.stack([a.local_direction(e) for e in b.axes], axis=1))
    )
    alpha = polar_angle(r22, -r12)
    c, s = jnp.cos(alpha), jnp.sin(alpha)
    beta = polar_angle(c * r22 - s * r12, r02)
    gamma = polar_angle(c * r11 + s * r21, c * r10 + s * r20)
    return jnp.stack([alpha, beta, gamma])


def polar_angle(x: Float[Array, "*rest"], y: Float[Array, "*rest"]) -> Float[Array, "*rest"]:
    """Angle of the point (x, y). At the origin it is 0, with derivative 0."""
    apart = x * x + y * y > 0
    return jnp.arctan2(jnp.where(apart, y, 0.0), jnp.where(apart, x, 1.0))


def within_half_a_turn(phi: Float[Array, ""]) -> Float[Array, ""]:
    """The angle in [-pi, pi] that differs from phi [rad] by whole turns. Its derivative is 1."""
    return jnp.arctan2(jnp.sin(phi), jnp.cos(phi))


def near_angle(phi: Float[Array, "*rest"], middle: Float[Array, "*rest"]) -> Float[Array, "*rest"]:
    """The angle within half a turn of `middle` that differs from phi [rad] by whole turns. Its
    derivative by phi is 1, by `middle` 0."""
    return phi - 2 * math.pi * jnp.round((phi - middle) / (2 * math.pi))


def shortest(difference: Float[Array, " coordinates"], angles: int) -> Float[Array, " coordinates"]:
    """A difference of joint coordinates, with the last `angles` of them within half a turn."""
    first = difference.shape[0] - angles
    return jnp.stack(
        [within_half_a_turn(x) if i >= first else x for i, x in enumerate(components(difference))]
    )

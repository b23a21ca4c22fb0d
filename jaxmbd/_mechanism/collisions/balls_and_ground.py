"""Balls and capsules against each other, a ball at a cylinder, and shapes on the ground."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._coordinates import cross, dot
from ..pose import Pose
from ..relative import z_axis
from ..shapes import (
    AbstractConvexShape,
    Capsule,
    Cylinder,
    Disc,
    HalfSpace,
    HeightField,
    Sphere,
    clamped,
)
from .base import ContactPoints, perpendicular, sign, stacked, unit, z_direction


def half_space_shape(
    a: HalfSpace, pose_a: Pose, b: AbstractConvexShape | Disc, pose_b: Pose
) -> ContactPoints:
    """The points `b.feet`, on which b can rest on level ground, with their heights above it."""
    del a
    normal = z_axis(pose_a)
    feet = jax.vmap(pose_b.point)(b.feet(pose_b.local_direction(-normal)))
    n = jnp.broadcast_to(normal, feet.shape)
    gap = jnp.sum((feet - pose_a.position[None]) * n, axis=1) - b.margin
    return ContactPoints(gap, feet - (b.margin + gap / 2)[:, None] * n, n)


def height_field_shape(
    a: HeightField, pose_a: Pose, b: AbstractConvexShape, pose_b: Pose
) -> ContactPoints:
    """The centre of a sphere, the ends of a capsule, the corners of a box or the points of a hull.
    The gap of each is its distance to the plane of the triangle below or above it, less the radius.

    This is for shapes that are small compared with the cells, and for slopes that change little
    from cell to cell. A peak of the surface can enter a box between its corners. When a sphere
    passes a ridge, its gap jumps by about its radius times half the square of the change of slope.
    """

    def one(foot):
        x, y, z = pose_a.local_point(pose_b.point(foot))
        height, slope_x, slope_y = a.surface(x, y)
        normal = jnp.stack([-slope_x, -slope_y, jnp.ones_like(z)])
        normal = normal / jnp.sqrt(jnp.sum(normal * normal))
        distance = (z - height) * normal[2]
        position = jnp.stack([x, y, z]) - (b.margin + distance) / 2 * normal
        return distance - b.margin, pose_a.point(position), pose_a.direction(normal)

    # The feet of these shapes do not depend on the direction.
    down = pose_b.local_direction(-pose_a.direction(jnp.array([0.0, 0.0, 1.0], a.heights.dtype)))
    return ContactPoints(*jax.vmap(one)(b.feet(down)))


# Capsules have two points if the sine of the angle between their axes is below this.
_NEARLY_PARALLEL = 0.1


def sphere_sphere(a: Sphere, pose_a: Pose, b: Sphere, pose_b: Pose) -> ContactPoints:
    """One point, on the line of centres. If the centres coincide, the normal is the world's z."""
    fallback = z_direction(pose_a.position)
    return stacked(_balls(pose_a.position, a.radius, pose_b.position, b.radius, fallback))


def capsule_sphere(a: Capsule, pose_a: Pose, b: Sphere, pose_b: Pose) -> ContactPoints:
    """One point, at the point of the segment nearest to the centre. If the centre is on the
    segment, the normal is perpendicular to it."""
    u = z_axis(pose_a)
    s = clamped(dot(u, pose_b.position - pose_a.position), a.half_length)
    nearest = pose_a.position + s * u
    return stacked(_balls(nearest, a.radius, pose_b.position, b.radius, perpendicular(u)))


def capsule_capsule(a: Capsule, pose_a: Pose, b: Capsule, pose_b: Pose) -> ContactPoints:
    """Two points. The first is at the nearest points of the segments (Ericson, *Real-Time Collision
    Detection*, 2005, section 5.1.9). The second exists for nearly parallel capsules, so that one
    can lie on the other. It is at the far end of the part where they are side by side: of the pairs
    of an end and its nearest point on the other segment, the closer one. So the gap changes at the
    rate of the points along the normal."""
    u, v, d = z_axis(pose_a), z_axis(pose_b), pose_b.position - pose_a.position
    across = cross(u, v)
    sin2, along, du, dv = dot(across, across), dot(u, v), dot(d, u), dot(d, v)
    # The ends of the part of a that is beside b; they are equal if there is none.
    reach = jnp.abs(along) * b.half_length
    low, high = clamped(jnp.stack([du - reach, du + reach]), a.half_length)

    def nearest_on_b(s):
        return clamped(s * along - dv, b.half_length)

    def nearest_on_a(t):
        return clamped(du + t * along, a.half_length)

    def ball_pair(s, t):
        on_a, on_b = pose_a.position + s * u, pose_b.position + t * v
        return _balls(on_a, a.radius, on_b, b.radius, fallback)

    parallel = sin2 <= jnp.finfo(sin2.dtype).eps
    _, crossing = unit(jnp.where(parallel, perpendicular(u), across), perpendicular(u))
    fallback = crossing
    # The nearest points of the lines, clipped in turn, since clipping one moves the other.
    s = (du - along * dv) / jnp.where(parallel, 1.0, sin2)
    s = jnp.where(parallel, low, clamped(s, a.half_length))
    t = nearest_on_b(s)
    s = nearest_on_a(t)
    s = jnp.where(parallel, low, s)

    is_low = high - s < s - low
    far = jnp.where(is_low, low, high)
    two = (sin2 < _NEARLY_PARALLEL**2) & (jnp.abs(far - s) > 1e-3 * a.half_length)
    end_a = jnp.where(is_low, -1, 1) * a.half_length
    end_b = jnp.where(is_low ^ (along < 0), -1, 1) * b.half_length
    of_a, of_b = (end_a, nearest_on_b(end_a)), (nearest_on_a(end_b), end_b)

    def distance2(s, t):  # without |d|^2
        return s * s + t * t - 2 * (s * t * along + s * du - t * dv)

    is_of_a = distance2(*of_a) < distance2(*of_b)
    end = [jnp.where(is_of_a, x, y) for x, y in zip(of_a, of_b, strict=True)]
    first, second = ball_pair(s, nearest_on_b(s)), ball_pair(*end)
    return stacked(first, second).where(jnp.stack([jnp.ones_like(two), two]))


def _balls(
    center_a: Float[Array, "3"],
    radius_a: Float[Array, ""],
    center_b: Float[Array, "3"],
    radius_b: Float[Array, ""],
    fallback: Float[Array, "3"],
) -> tuple[Float[Array, ""], Float[Array, "3"], Float[Array, "3"]]:
    distance, normal = unit(center_b - center_a, fallback)
    gap = distance - radius_a - radius_b
    return gap, center_a + (radius_a + gap / 2) * normal, normal


def cylinder_sphere(a: Cylinder, pose_a: Pose, b: Sphere, pose_b: Pose) -> ContactPoints:
    """One point: the point of the cylinder nearest to the centre, or of its surface if the centre
    is inside. For a centre on the axis, the radial direction is x."""
    center = pose_a.local_point(pose_b.position)
    x, y, z = center
    o = jnp.zeros_like(x)
    rho, outward = unit(jnp.stack([x, y, o]), jnp.stack([o + 1, o, o]))
    up = sign(z) * jnp.stack([o, o, o + 1])

    # In the half plane through the axis and the centre, a cylinder is a rectangle.
    over_side, over_end = rho - a.radius, sign(z) * z - a.half_length
    by_side = over_side > over_end
    corner = jnp.where(over_side > 0, over_side, 0.0) * outward
    corner = corner + jnp.where(over_end > 0, over_end, 0.0) * up
    inside = (over_side <= 0) & (over_end <= 0)
    nearest = jnp.where(by_side, outward, up)
    length, direction = unit(corner, nearest)
    distance = jnp.where(inside, jnp.where(by_side, over_side, over_end), length)
    normal = jnp.where(inside, nearest, direction)
    position = center - (b.radius + distance) / 2 * normal
    return stacked((distance - b.radius, pose_a.point(position), pose_a.direction(normal)))

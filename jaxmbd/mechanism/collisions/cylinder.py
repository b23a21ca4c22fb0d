import jax.numpy as jnp

from ..pose import Pose
from ..shapes import Cylinder, Sphere
from .base import ContactPoints, stacked
from .vectors import sign, unit


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

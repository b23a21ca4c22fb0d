import jax
import jax.numpy as jnp

from ..pose import Pose
from ..shapes import AbstractConvexShape, HeightField
from .base import ContactPoints


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

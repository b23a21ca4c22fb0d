import jax
import jax.numpy as jnp

from ..pose import Pose
from ..relative import z_axis
from ..shapes import AbstractConvexShape, Disc, HalfSpace
from .base import ContactPoints


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

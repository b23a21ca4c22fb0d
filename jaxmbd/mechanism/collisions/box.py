"""Spheres and capsules against boxes."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ..._coordinates import cross, dot
from ..._fusion import materialise_condition
from ..pose import Pose
from ..relative import z_axis
from ..shapes import Box, Capsule, Sphere
from .base import ContactPoints, stacked
from .vectors import largest, mixed, nonzero, one_hot_of_largest, sign, unit, x_direction

# A capsule has a second point if its distance to the box rises by less than this per unit length
# along the segment.
_SLOPE = 0.1


def box_sphere(a: Box, pose_a: Pose, b: Sphere, pose_b: Pose) -> ContactPoints:
    """One point: the point of the box nearest to the centre, or of its surface if the centre is
    inside."""
    center = pose_a.local_point(pose_b.position)
    distance, normal = _signed_distance(a.half_sizes, center)
    return _contacts(pose_a, b.radius, (distance, center, normal))


def box_capsule(a: Box, pose_a: Pose, b: Capsule, pose_b: Pose) -> ContactPoints:
    """Two points. The first is at the nearest points of the segment and the box. The second exists
    if the segment is nearly parallel to the face or edge that it touches. It is at the far end of
    the part of the segment above this face or edge.

    Outside the box, the squared distance is piecewise quadratic along the segment. Its derivative
    is monotone, and 0 at the nearest point. If the segment enters the box, the normal is the
    direction of least overlap among the axes of the box and their cross products with the segment
    (Gottschalk, Lin and Manocha, OBBTree, SIGGRAPH 1996).
    """
    h, half = a.half_sizes, b.half_length
    p, u = pose_a.local_point(pose_b.position), pose_a.local_direction(z_axis(pose_b))
    s_out = _nearest_on_segment(h, p, u, half)
    distance_out, normal_out = _signed_distance(h, p + s_out * u)
    distance_in, normal_in, s_in, face = _least_overlap(h, p, u, half)
    # If the segment enters the box, s_out is inside, or on the surface up to rounding.
    enters = distance_out <= 100 * jnp.finfo(p.dtype).eps * (jnp.max(h) + half)
    s = jnp.where(enters, s_in, s_out)
    first = (
        jnp.where(enters, distance_in, distance_out),
        p + s * u,
        jnp.where(enters, normal_in, normal_out),
    )

    # A segment that enters the box has its second point at the face of least overlap. Another one
    # may be nearer.
    def at(x):
        distance, normal = _signed_distance(h, p + x * u)
        along = dot(face, p + x * u) - dot(sign(face) * face, h)
        return jnp.where(enters, along, distance), jnp.where(enters, face, normal)

    parallel = ~enters | (sign(dot(face, u)) * dot(face, u) < _SLOPE)
    candidates = _above(h, p, u, half, s, enters & (face != 0))
    low, high = (at(x)[0] for x in candidates)
    rise = jnp.stack([low, high]) - first[0] - _SLOPE * jnp.abs(candidates - s)
    far = jnp.where(rise[0] < rise[1], candidates[0], candidates[1])
    two = parallel & (jnp.min(rise) < 0) & (jnp.abs(far - s) > 1e-3 * half)
    distance, normal = at(far)
    points = _contacts(pose_a, b.radius, first, (distance, p + far * u, normal))
    return points.where(jnp.stack([jnp.ones_like(two), two]))


def _contacts(pose_a: Pose, radius: Array, *cores: tuple[Array, Array, Array]) -> ContactPoints:
    """Contact points from (distance, position, normal) of points of the core of b in frame a."""
    return stacked(
        *(
            (d - radius, pose_a.point(x - (radius + d) / 2 * n), pose_a.direction(n))
            for d, x, n in cores
        )
    )


def _signed_distance(
    h: Float[Array, "3"], x: Float[Array, "3"]
) -> tuple[Float[Array, ""], Float[Array, "3"]]:
    """The signed distance of a point from a box, negative inside, and its gradient."""
    d = x - jnp.clip(x, -h, h)
    inside = dot(d, d) <= jnp.finfo(d.dtype).eps ** 4
    distance, normal = unit(d, x_direction(d))
    over = sign(x) * x - h
    face = one_hot_of_largest(over)
    return (
        jnp.where(inside, dot(face, over), distance),
        jnp.where(inside, face * sign(x), normal),
    )


def _nearest_on_segment(h, p, u, half) -> Float[Array, ""]:
    """The least s at which the segment p + s u, |s| <= half, is nearest to the box."""
    eps = jnp.finfo(p.dtype).eps
    safe = nonzero(u, eps)
    breaks = jnp.concatenate([(-h - p) / safe, (h - p) / safe])
    breaks = jnp.where(jnp.concatenate([jnp.abs(u), jnp.abs(u)]) > eps, breaks, 0.0)
    ends = jnp.stack([-half, half])
    breaks = jnp.concatenate([jnp.clip(breaks, -half, half), ends])
    x = p[None] + breaks[:, None] * u[None]
    over = x - jnp.clip(x, -h[None], h[None])
    slope = jnp.sum(over * u[None], axis=1)  # half the derivative of the squared distance
    falling = slope < -10 * eps * jnp.max(h)
    # The last break before the root and the first one after it, between which the slope is linear.
    before = one_hot_of_largest(jnp.where(falling, breaks, -2 * half))
    after = one_hot_of_largest(jnp.where(falling, -2 * half, -breaks))
    s0, s1 = jnp.sum(before * breaks), jnp.sum(after * breaks)
    f0, f1 = jnp.sum(before * slope), jnp.sum(after * slope)
    bracketed = jnp.any(falling) & ~jnp.all(falling)
    root = s0 - (s1 - s0) * f0 / jnp.where(bracketed, nonzero(f1 - f0, 0.0), 1.0)
    end = jnp.where(jnp.any(falling), half, -half)
    return jnp.where(bracketed, root, end)


def _least_overlap(h, p, u, half):
    """The signed distance (negative) of a segment that enters the box, the normal, the s of the
    contact, and the normal of the face of least overlap."""
    size = jnp.max(h)
    faces = sign(p) * p - jnp.abs(u) * half - h
    identity = jnp.eye(3, dtype=h.dtype)
    across = jnp.stack([cross(e, u) for e in identity])
    length2 = jnp.sum(across * across, axis=1)
    usable = length2 > 1e-6
    across = across / jnp.sqrt(jnp.where(usable, length2, 1.0))[:, None]
    offsets = jnp.sum(across * p[None], axis=1)
    edges = sign(offsets) * offsets - jnp.sum(jnp.abs(across) * h[None], axis=1)
    edges = jnp.where(usable, edges, -1e3 * size)

    face, edge = one_hot_of_largest(faces), one_hot_of_largest(edges)
    toward = face * sign(p)
    s_face = -half * sign(dot(toward, u))
    # Move s to the part of the segment above the face. This affects the position only.
    low, high = _above(h, p, u, half, jnp.zeros_like(half), face > 0)
    s_face = jnp.clip(s_face, low, high)

    m = mixed(edge * sign(offsets), across)
    corner = sign(m) * h
    w = cross(m, edge)
    s_edge = jnp.clip(dot(w, corner - p) / nonzero(dot(w, u), 1e-4), -half, half)
    use_edge = materialise_condition(dot(edge, edges) > dot(face, faces) + 1e-6 * size)
    return (
        jnp.where(use_edge, dot(edge, edges), dot(face, faces)),
        jnp.where(use_edge, m, toward),
        jnp.where(use_edge, s_edge, s_face),
        toward,
    )


def _above(h, p, u, half, s, free) -> Float[Array, "2"]:
    """The ends of the part of the segment that lies between the same pairs of opposite faces as its
    point at s, but for the pairs along axes that are `free`."""
    eps = jnp.finfo(p.dtype).eps
    here = jnp.abs(p + s * u)
    between = lax.stop_gradient(here) <= h * (1 + 100 * eps)
    bound = jnp.maximum(h, here)
    limited = between & ~free & (jnp.abs(u) > eps)
    inverse = 1 / jnp.where(limited, u, 1.0)
    one, other = (-bound - p) * inverse, (bound - p) * inverse
    lows = jnp.where(limited, jnp.where(one < other, one, other), -half)
    highs = jnp.where(limited, jnp.where(one < other, other, one), half)
    low, high = largest(lows), -largest(-highs)
    return jnp.clip(jnp.stack([low, high]), -half, half)

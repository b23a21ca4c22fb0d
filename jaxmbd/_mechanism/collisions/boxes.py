"""Boxes against spheres, capsules and boxes."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from ..._compiler import clip, materialise, tree_where
from ..._coordinates import components, cross, dot
from ..pose import Pose
from ..relative import z_axis
from ..shapes import Box, Capsule, Sphere, clamped
from .base import (
    ContactPoints,
    axes,
    largest,
    mixed,
    nonzero,
    one_hot_of_largest,
    sign,
    stacked,
    unit,
    x_direction,
    z_direction,
)

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
    d = x - clamped(x, h)
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
    breaks = jnp.concatenate([clamped(breaks, half), ends])
    x = p[None] + breaks[:, None] * u[None]
    over = x - clamped(x, h[None])
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
    faces = sign(p) * p - sign(u) * u * half - h
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
    s_face = clip(s_face, low, high)

    m = mixed(edge * sign(offsets), across)
    corner = sign(m) * h
    w = cross(m, edge)
    s_edge = clamped(dot(w, corner - p) / nonzero(dot(w, u), 1e-4), half)
    of_edge, of_face = dot(edge, edges), dot(face, faces)
    use_edge = of_edge > of_face + 1e-6 * size
    return (*tree_where(use_edge, (of_edge, m, s_edge), (of_face, toward, s_face)), toward)


def _above(h, p, u, half, s, free) -> Float[Array, "2"]:
    """The ends of the part of the segment that lies between the same pairs of opposite faces as its
    point at s, but for the pairs along axes that are `free`."""
    eps = jnp.finfo(p.dtype).eps
    here = jnp.abs(p + s * u)
    between = lax.stop_gradient(here) <= h * (1 + 100 * eps)
    bound = jnp.where(here > h, here, h)
    limited = between & ~free & (jnp.abs(u) > eps)
    inverse = 1 / jnp.where(limited, u, 1.0)
    one, other = (-bound - p) * inverse, (bound - p) * inverse
    lows = jnp.where(limited, jnp.where(one < other, one, other), -half)
    highs = jnp.where(limited, jnp.where(one < other, other, one), half)
    low, high = largest(lows), -largest(-highs)
    return clamped(jnp.stack([low, high]), half)


_POINTS = 8

# An edge axis, or a face of b instead of a, must separate more by this fraction of the smallest
# half size. Otherwise rounding could change the kind of contact, which would move all points.
_PREFERENCE = 1e-3

# Squared sine of the angle between edges below which they count as parallel.
_PARALLEL = 1e-6


def box_box(a: Box, pose_a: Pose, b: Box, pose_b: Pose) -> ContactPoints:
    """Eight points, some of which may be absent. Between two faces, they are the corners of the
    polygon that both have in common, seen along the normal of the first, which is the normal of all
    points. Between two edges there is one point.

    The direction is that of the largest signed distance among the 15 candidates of the separating
    axis test (Gottschalk, Lin and Manocha, OBBTree, SIGGRAPH 1996), with a small preference for
    faces. If the boxes overlap, the least `gap` is the least translation that separates them, to
    within 1e-3 of the smallest half size. If they are apart, it is the true distance when a vertex
    or an edge is above a face. From edge to edge or vertex to vertex it is a positive lower bound.
    """
    A, B, d = axes(pose_a), axes(pose_b), pose_b.position - pose_a.position
    C = jnp.sum(A[:, None, :] * B[None, :, :], axis=2)  # cosines, (axes of a, axes of b)
    from_a = jnp.sum(A * d[None], axis=1)
    from_b = jnp.sum(B * d[None], axis=1)
    ha, hb = a.half_sizes, b.half_sizes
    faces_a = jnp.abs(from_a) - ha - jnp.sum(jnp.abs(C) * hb[None, :], axis=1)
    faces_b = jnp.abs(from_b) - hb - jnp.sum(jnp.abs(C) * ha[:, None], axis=0)

    margin = _PREFERENCE * jnp.minimum(jnp.min(ha), jnp.min(hb))
    gap_edge, normal_edge, position_edge = _edges(A, ha, B, hb, pose_a.position, d)
    best_a, best_b = jnp.max(faces_a), jnp.max(faces_b)
    use_edge = gap_edge > jnp.maximum(best_a, best_b) + margin
    # The box with the face, the other one, the direction to it, and its sign.
    one, other, between, way = tree_where(
        best_b > best_a + margin,
        ((B, hb, faces_b, pose_b.position), (A, ha), -d, -jnp.ones_like(best_a)),
        ((A, ha, faces_a, pose_a.position), (B, hb), d, jnp.ones_like(best_a)),
    )
    (axes_one, h_one, gaps, origin), (axes_other, h_other) = one, other
    face = one_hot_of_largest(gaps)
    faces = _faces(axes_one, h_one, face, axes_other, h_other, origin, between)
    faces = ContactPoints(faces.gap, faces.position, way * faces.normal)
    edge = jax.tree.map(
        lambda x, like: jnp.broadcast_to(x, like.shape),
        ContactPoints(gap_edge, position_edge, normal_edge),
        faces,
    )
    both = tree_where(use_edge, edge, faces)
    return both.where(~use_edge | (jnp.arange(_POINTS) == 0))


def _edges(A, ha, B, hb, origin, d) -> tuple[Array, Array, Array]:
    """The signed distance along the best of the nine cross products of edges, its direction from a
    to b, and the midpoint between the two edges."""
    m = jnp.stack([cross(x, y) for x in components(A) for y in components(B)])
    length2 = jnp.sum(m * m, axis=1)
    usable = length2 > _PARALLEL
    m = m / jnp.sqrt(jnp.where(usable, length2, 1.0))[:, None]

    def extents(axes, h):
        return sum(
            jnp.abs(jnp.sum(m * axis[None], axis=1)) * x
            for axis, x in zip(components(axes), components(h), strict=True)
        )

    offsets = jnp.sum(m * d[None], axis=1)
    gaps = jnp.abs(offsets) - extents(A, ha) - extents(B, hb)
    gaps = jnp.where(usable, gaps, -10 * (jnp.sum(ha) + jnp.sum(hb)))
    chosen = one_hot_of_largest(gaps)
    normal = mixed(chosen * sign(offsets), m)
    normal = jnp.where(jnp.any(usable), normal, z_direction(d))
    gap = jnp.sum(chosen * gaps)

    chosen = chosen.reshape(3, 3)
    edge_a, edge_b = jnp.sum(chosen, axis=1), jnp.sum(chosen, axis=0)
    u, v = mixed(edge_a, A), mixed(edge_b, B)
    on_a = mixed((1 - edge_a) * sign(jnp.sum(A * normal[None], axis=1)) * ha, A)
    on_b = d - mixed((1 - edge_b) * sign(jnp.sum(B * normal[None], axis=1)) * hb, B)
    # Solve on_a + s u + gap normal = on_b + r v for s: multiply by normal x v.
    w = cross(normal, v)
    s = dot(on_b - on_a, w) / nonzero(dot(u, w), 1e-4)
    reach = jnp.sum(edge_a * ha)
    s = clamped(s, reach)
    return gap, normal, origin + on_a + s * u + gap / 2 * normal


def _faces(axes1, h1, chosen, axes2, h2, origin, d) -> ContactPoints:
    """Contact points of the face `chosen` of box 1 (centred at `origin`) and the face of box 2
    (centred at `origin` + d) most opposed to it. The normal points from 1 to 2."""
    # A right-handed frame on box 1 whose z axis is the normal of the face, towards box 2.
    (ex, ey, ez), (hx, hy, hz) = _last(axes1, h1, chosen)
    s = sign(dot(ez, d))
    ey, ez = s * ey, s * ez

    def local(x):
        return jnp.stack([dot(ex, x), dot(ey, x), dot(ez, x)])

    def world(x, y, z):
        return origin + x * ex + y * ey + z * ez

    opposed = one_hot_of_largest(jnp.abs(jnp.sum(axes2 * ez[None], axis=1)))
    (e1, e2, e3), (k1, k2, k3) = _last(axes2, h2, opposed)
    e1, e2 = materialise(local(k1 * e1)), materialise(local(k2 * e2))
    center = materialise(local(d - sign(dot(e3, ez)) * k3 * e3))
    size = jnp.stack([hx, hy, k1, k2])
    tolerance = lax.stop_gradient(jnp.finfo(d.dtype).eps ** 0.5 * jnp.max(size))
    points, present = _common_polygon(center, e1, e2, hx, hy, tolerance)

    # Without a common polygon, take the corner of box 2 nearest to the plane of the face.
    toward = jnp.sum(axes2 * ez[None], axis=1)
    x, y, z = local(d - mixed(sign(toward) * h2, axes2))
    corner = jnp.stack([clamped(x, hx), clamped(y, hy), z])
    alone = ~jnp.any(present)
    points = jnp.where(alone, corner[None], points)
    present = present | (alone & (jnp.arange(points.shape[0]) == 0))

    # The points that exist come first: point k of the result is the k-th of them.
    points = materialise(points)
    rank = jnp.cumsum(present) - 1
    slots = present[None] & (rank[None] == jnp.arange(_POINTS)[:, None])
    filled = jnp.any(slots, axis=1)
    points = jnp.sum(jnp.where(slots[:, :, None], points[None], 0.0), axis=1)
    x, y, z = components(points, axis=1)
    position = jax.vmap(world)(x, y, (z + hz) / 2)
    normal = jnp.broadcast_to(ez, position.shape)
    return ContactPoints(z - hz, position, normal).where(filled)


def _last(axes, h, chosen):
    """The axes and half sizes of a box, in cyclic order with the chosen axis third."""
    orders = [jnp.roll(chosen, k) for k in (1, 2, 0)]
    return [mixed(order, axes) for order in orders], [jnp.sum(order * h) for order in orders]


def _common_polygon(
    center: Float[Array, "3"],
    e1: Float[Array, "3"],
    e2: Float[Array, "3"],
    hx: Float[Array, ""],
    hy: Float[Array, ""],
    tolerance: Float[Array, ""],
) -> tuple[Float[Array, "12 3"], Bool[Array, "12"]]:
    """Corners of the intersection of the face `center` +- e1 +- e2 and the rectangle |x| <= hx,
    |y| <= hy, seen along z. All are on the face, and up to eight are present.

    They are the points where an edge of the face enters the rectangle or begins in it, the points
    where it leaves the rectangle, and the corners of the rectangle within the face. The rectangle
    is enlarged by `tolerance` and the face reduced, so that coinciding faces have just four.
    """
    signs = ((1, 1), (-1, 1), (-1, -1), (1, -1))
    corners = jnp.stack([center + i * e1 + j * e2 for i, j in signs])
    along = jnp.roll(corners, -1, axis=0) - corners
    limits = jnp.stack([hx, hy])[None] + tolerance
    start, step = corners[:, :2], along[:, :2]
    runs = jnp.abs(step) > tolerance
    safe = jnp.where(runs, step, 1.0)
    one, other = (-limits - start) / safe, (limits - start) / safe
    enter = jnp.where(runs, jnp.where(one < other, one, other), 0.0)
    leave = jnp.where(runs, jnp.where(one < other, other, one), 1.0)
    within = jnp.all(runs | (jnp.abs(start) <= limits), axis=1)
    enter = clip(jax.vmap(largest)(enter), 0.0, 1.0)
    leave = clip(-jax.vmap(largest)(-leave), 0.0, 1.0)
    small = jnp.finfo(center.dtype).eps ** 0.5
    crosses = within & (enter <= leave)
    exits = crosses & (leave < 1 - small) & (leave - enter > small)
    crosses = crosses & (enter < 1 - small)

    # Corners of the rectangle as center + alpha e1 + beta e2, by Cramer's rule. The determinant is
    # at least k1 k2 / sqrt(3), since the face is the most opposed one.
    det = e1[0] * e2[1] - e1[1] * e2[0]
    x = jnp.stack([hx, -hx, -hx, hx]) - center[0]
    y = jnp.stack([hy, hy, -hy, -hy]) - center[1]
    alpha, beta = (x * e2[1] - y * e2[0]) / det, (e1[0] * y - e1[1] * x) / det
    inside = (jnp.abs(alpha) < 1 - small) & (jnp.abs(beta) < 1 - small)
    on_face = center[None] + alpha[:, None] * e1[None] + beta[:, None] * e2[None]

    points = [corners + enter[:, None] * along, corners + leave[:, None] * along, on_face]
    return jnp.concatenate(points), jnp.concatenate([crosses, exits, inside])

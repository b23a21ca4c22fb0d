"""Boxes against boxes."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from ..._coordinates import components, cross, dot
from ..._fusion import materialise_condition
from ..pose import Pose
from ..shapes import Box
from .base import ContactPoints
from .vectors import axes, largest, mixed, nonzero, one_hot_of_largest, sign, z_direction

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
    use_b = materialise_condition(best_b > best_a + margin)
    use_edge = materialise_condition(gap_edge > jnp.maximum(best_a, best_b) + margin)

    faces = _faces(
        jnp.where(use_b, B, A),
        jnp.where(use_b, hb, ha),
        one_hot_of_largest(jnp.where(use_b, faces_b, faces_a)),
        jnp.where(use_b, A, B),
        jnp.where(use_b, ha, hb),
        jnp.where(use_b, pose_b.position, pose_a.position),
        jnp.where(use_b, -d, d),
    )
    faces = ContactPoints(faces.gap, faces.position, jnp.where(use_b, -faces.normal, faces.normal))
    both = ContactPoints(
        jnp.where(use_edge, gap_edge, faces.gap),
        jnp.where(use_edge, position_edge[None], faces.position),
        jnp.where(use_edge, normal_edge[None], faces.normal),
    )
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
    s = jnp.clip(s, -reach, reach)
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
    e1, e2 = local(k1 * e1), local(k2 * e2)
    center = local(d - sign(dot(e3, ez)) * k3 * e3)
    size = jnp.stack([hx, hy, k1, k2])
    tolerance = lax.stop_gradient(jnp.finfo(d.dtype).eps ** 0.5 * jnp.max(size))
    points, present = _common_polygon(center, e1, e2, hx, hy, tolerance)

    # Without a common polygon, take the corner of box 2 nearest to the plane of the face.
    toward = jnp.sum(axes2 * ez[None], axis=1)
    x, y, z = local(d - mixed(sign(toward) * h2, axes2))
    corner = jnp.stack([jnp.clip(x, -hx, hx), jnp.clip(y, -hy, hy), z])
    alone = ~jnp.any(present)
    points = jnp.where(alone, corner[None], points)
    present = present | (alone & (jnp.arange(points.shape[0]) == 0))

    # The points that exist come first: point k of the result is the k-th of them.
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
    enter = jnp.clip(jax.vmap(largest)(enter), 0.0, 1.0)
    leave = jnp.clip(-jax.vmap(largest)(-leave), 0.0, 1.0)
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

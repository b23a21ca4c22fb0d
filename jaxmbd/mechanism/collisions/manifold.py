"""Several contact points where flat or straight parts of two surfaces are nearly parallel."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from ..._coordinates import components, cross
from ..shapes import Face
from .base import ContactPoints
from .vectors import mixed, nonzero, one_hot_of_largest, perpendicular

_POINTS = 8

# Points are present where the gap rises by less than this per length from the deepest one.
_SLOPE = 0.1

# Round sides lie on each other with points that are aside by less than this share of their radii.
_ASIDE = 0.1

# Squared sine of the angle between edges below which they do not cross.
_PARALLEL = 1e-6


class _Candidates(NamedTuple):
    """Points on both faces, one above the other, in a frame with the normal as its z axis."""

    on_a: Float[Array, "n 3"]
    on_b: Float[Array, "n 3"]
    valid: Bool[Array, " n"]


def manifold(
    a: Face, b: Face, normal: Float[Array, "3"], gap: Float[Array, ""], position: Float[Array, "3"]
) -> ContactPoints:
    """Points on the outline of what two faces have in common seen along `normal`, which is that of
    all of them, from a to b; two if one of the faces is a segment, up to eight otherwise, of more
    those that are farthest from each other.

    `gap` and `position` are those of the deepest point: it is among them, unless others are as deep
    up to rounding. Each gap is that of two points of the shapes, measured along the normal: none is
    less than the least one, and none is less than what a line along the normal has between the
    shapes.

    The deepest point separates the shapes; as long as it is the only one within `_SLOPE` of it, it
    is the only one present.
    """
    t = perpendicular(normal)
    frame = jnp.stack([t, cross(normal, t), normal])
    local = jax.vmap(lambda x: jnp.sum(frame * x[None], axis=1))
    A, B, deepest = local(a.corners), local(b.corners), local(position[None])[0]
    size = lax.stop_gradient(jnp.max(jnp.abs(A - A[:1])) + jnp.max(jnp.abs(B - B[:1])))
    eps = jnp.finfo(gap.dtype).eps
    near, level = eps**0.5 * size, eps**0.75 * size

    on_a, on_b, valid = (
        jnp.concatenate(x) for x in zip(*_candidates(A, B, near), strict=True)
    )
    radius = a.radius + b.radius
    curved = radius > 0
    safe = jnp.where(curved, radius, 1.0)
    aside = on_b[:, :2] - on_a[:, :2]
    aside2 = jnp.sum(aside * aside, axis=1)
    gaps = on_b[:, 2] - on_a[:, 2] + jnp.where(curved, aside2 / (2 * safe), 0.0)
    share = jnp.where(curved, a.radius / safe, 0.0)
    xy = on_a[:, :2] + share * aside
    points = jnp.concatenate([xy, (on_a[:, 2:] + on_b[:, 2:]) / 2, gaps[:, None]], axis=1)
    points = jnp.concatenate([points, jnp.concatenate([deepest, gap[None]])[None]])

    x, y, _, gaps = lax.stop_gradient(components(points, axis=1))
    run = jnp.sqrt((x - x[-1]) ** 2 + (y - y[-1]) ** 2)
    present = valid & (aside2 <= (near + _ASIDE * radius) ** 2)
    present = present & (gaps[:-1] - gaps[-1] <= level + _SLOPE * run[:-1])
    one = jnp.ones((1,), bool)
    as_deep = jnp.concatenate([present & (gaps[:-1] <= gaps[-1] + level), one])
    count = 2 if min(A.shape[0], B.shape[0]) == 2 else _POINTS
    chosen = _spread(x, y, jnp.concatenate([present, ~one]), jnp.argmax(as_deep), near, count)

    filled = jnp.any(chosen, axis=1)
    points = jnp.sum(jnp.where(chosen[:, :, None], points[None], 0.0), axis=1)
    world = jax.vmap(lambda x: mixed(x, frame))(points[:, :3])
    normals = jnp.broadcast_to(normal, world.shape)
    return ContactPoints(points[:, 3], world, normals).where(filled)


def _candidates(A: Float[Array, "m 3"], B: Float[Array, "n 3"], near: Float[Array, ""]):
    """Corners of each face with the nearest point of the other, and crossings of their edges."""
    everywhere = [jnp.ones(x.shape[0], bool) for x in (A, B)]
    yield A, _beneath(B, A, near), everywhere[0]
    yield _beneath(A, B, near), B, everywhere[1]

    u, v = (jnp.roll(x, -1, axis=0) - x for x in (A, B))
    start, u, v = B[None] - A[:, None], u[:, None], v[None]
    across = _cross2(u, v)
    valid = across * across > _PARALLEL * _dot2(u, u) * _dot2(v, v)
    safe = jnp.where(valid, across, 1.0)
    s, r = _cross2(start, v) / safe, _cross2(start, u) / safe
    valid = valid & (s >= 0) & (s <= 1) & (r >= 0) & (r <= 1)
    on_a, on_b = A[:, None] + s[:, :, None] * u, B[None] + r[:, :, None] * v
    yield on_a.reshape(-1, 3), on_b.reshape(-1, 3), valid.ravel()


def _beneath(
    face: Float[Array, "n 3"], points: Float[Array, "m 3"], near: Float[Array, ""]
) -> Float[Array, "m 3"]:
    """Of the face the point on the line along z through each point, or nearest to it."""
    along = jnp.roll(face, -1, axis=0) - face
    from_corner = points[:, None] - face[None]
    length2 = _dot2(along, along)
    s = _dot2(from_corner, along[None]) / nonzero(length2, near * near)
    on_edges = face[None] + jnp.clip(s, 0.0, 1.0)[:, :, None] * along[None]
    d = on_edges - points[:, None]
    nearest = jax.vmap(mixed)(jax.vmap(one_hot_of_largest)(-_dot2(d, d)), on_edges)

    # The plane of the face, by its area as a vector (Newell's method).
    center = jnp.mean(face, axis=0)
    r = face - center[None]
    area = jnp.sum(jax.vmap(cross)(r, jnp.roll(r, -1, axis=0)), axis=0)
    wide = jnp.abs(area[2]) > near * jnp.sqrt(jnp.max(length2))
    inside = wide & jnp.all(area[2] * _cross2(along[None], from_corner) >= 0, axis=1)
    from_center = points - center[None]
    fall = jnp.sum(area[None, :2] * from_center[:, :2], axis=1) / jnp.where(wide, area[2], 1.0)
    above = jnp.concatenate([points[:, :2], (center[2] - fall)[:, None]], axis=1)
    return jnp.where(inside[:, None], above, nearest)


def _spread(x, y, present, first, near, count) -> Bool[Array, "count n"]:
    """Which of the points come to each of `count` places: the first one, and the next ones each
    as far as possible from those before, until none is left that is not `near` one of them."""
    index = jnp.arange(x.shape[0])

    def distances2(k):
        here = index == k
        at_x, at_y = (jnp.sum(jnp.where(here, c, 0.0)) for c in (x, y))
        return jnp.where(present, (x - at_x) ** 2 + (y - at_y) ** 2, 0.0)

    def place(distance2, _):
        most = jnp.max(distance2)
        # The first of several that are as far up to rounding: points keep their places.
        k = jnp.argmax(distance2 >= (1 - 1e-4) * most)
        return jnp.minimum(distance2, distances2(k)), (index == k) & (most > near * near)

    _, rest = lax.scan(place, distances2(first), None, length=count - 1)
    return jnp.concatenate([(index == first)[None], rest])


def _dot2(u: Float[Array, "*n 3"], v: Float[Array, "*n 3"]) -> Array:
    """u . v seen along z."""
    return u[..., 0] * v[..., 0] + u[..., 1] * v[..., 1]


def _cross2(u: Float[Array, "*n 3"], v: Float[Array, "*n 3"]) -> Array:
    """z component of u x v."""
    return u[..., 0] * v[..., 1] - u[..., 1] * v[..., 0]

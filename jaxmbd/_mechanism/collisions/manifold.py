"""Several contact points where flat or straight parts of two surfaces are nearly parallel."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from ..._compiler import clip
from ..._coordinates import components, cross
from ..shapes import Face
from .base import ContactPoints, mixed, nonzero, one_hot_of_largest, perpendicular

_POINTS = 8

# A point is present if the gap rises by less than this per unit length from the deepest point.
_SLOPE = 0.1

# Round sides also touch if their lines are offset by up to this fraction of the sum of the radii.
_ASIDE = 0.1

# Squared sine of the angle between edges below which they do not cross.
_PARALLEL = 1e-6


def manifold(
    a: Face, b: Face, normal: Float[Array, "3"], gap: Float[Array, ""], position: Float[Array, "3"]
) -> ContactPoints:
    """Points on the outline of the region that two faces have in common, seen along `normal`. All
    points have this normal, from a to b. There are up to three if one of the faces is a segment,
    and up to eight otherwise. If there are more, those farthest from each other are chosen.

    `gap` and `position` are those of the deepest point. It is among the points unless others are
    equally deep up to rounding. `normal` must be the direction in which the shapes are farthest
    apart or overlap least. Each gap is measured along it between a point of a and a point of b, so
    no gap is less than at the deepest point.
    """
    t = perpendicular(normal)
    frame = jnp.stack([t, cross(normal, t), normal])
    local = jax.vmap(lambda x: jnp.sum(frame * x[None], axis=1))
    A, B, deepest = local(a.corners), local(b.corners), local(position[None])[0]
    size = lax.stop_gradient(jnp.max(jnp.abs(A - A[:1])) + jnp.max(jnp.abs(B - B[:1])))
    eps = jnp.finfo(gap.dtype).eps
    near, level = eps**0.5 * size, eps**0.75 * size

    on_a, on_b, beside, valid = (
        jnp.concatenate(x) for x in zip(*_candidates(A, B, near), strict=True)
    )
    # Between parallel round sides: the least distance of two parabolas along z, and its place.
    aside = on_b[:, :2] - on_a[:, :2]
    aside2 = jnp.sum(aside * aside, axis=1)
    round_sides = (a.radius > 0) & (b.radius > 0)
    radius = jnp.where(round_sides, a.radius + b.radius, 1.0)
    gaps = on_b[:, 2] - on_a[:, 2] + jnp.where(round_sides, aside2 / (2 * radius), 0.0)
    xy = on_a[:, :2] + jnp.where(round_sides, a.radius / radius, 0.5) * aside
    points = jnp.concatenate([xy, (on_a[:, 2:] + on_b[:, 2:]) / 2, gaps[:, None]], axis=1)
    points = jnp.concatenate([points, jnp.concatenate([deepest, gap[None]])[None]])

    x, y, _, gaps = lax.stop_gradient(components(points, axis=1))
    run = jnp.sqrt((x - x[-1]) ** 2 + (y - y[-1]) ** 2)
    reach = jnp.where(beside & round_sides, _ASIDE * radius, near)
    present = valid & (aside2 <= reach * reach)
    present = present & (gaps[:-1] - gaps[-1] <= level + _SLOPE * run[:-1])
    one = jnp.ones((1,), bool)
    as_deep = jnp.concatenate([present & (gaps[:-1] <= gaps[-1] + level), one])
    # Both ends of a segment, and a deeper point between them.
    count = 3 if min(A.shape[0], B.shape[0]) == 2 else _POINTS
    chosen = _spread(x, y, jnp.concatenate([present, ~one]), jnp.argmax(as_deep), near, count)

    filled = jnp.any(chosen, axis=1)
    points = jnp.sum(jnp.where(chosen[:, :, None], points[None], 0.0), axis=1)
    world = jax.vmap(lambda x: mixed(x, frame))(points[:, :3])
    normals = jnp.broadcast_to(normal, world.shape)
    return ContactPoints(points[:, 3], world, normals).where(filled)


def _candidates(A: Float[Array, "m 3"], B: Float[Array, "n 3"], near: Float[Array, ""]):
    """Pairs of points on a and b: each corner of a face with the nearest point of the other face,
    and the crossings of edges. For each pair: whether the corner is above the other face or beside
    an edge of it, not beyond the ends of the edge, and whether the pair exists."""
    on_b, beside_b = jax.vmap(lambda p: _beneath(B, p, near))(A)
    on_a, beside_a = jax.vmap(lambda p: _beneath(A, p, near))(B)
    yield A, on_b, beside_b, jnp.ones_like(beside_b)
    yield on_a, B, beside_a, jnp.ones_like(beside_a)

    along_a, along_b = _edges(A), _edges(B)

    def crossing(p, u, q, v):
        across, start = _cross2(u, v), q - p
        exists = across * across > _PARALLEL * _dot2(u, u) * _dot2(v, v)
        safe = jnp.where(exists, across, 1.0)
        s, r = _cross2(start, v) / safe, _cross2(start, u) / safe
        exists = exists & (s >= 0) & (s <= 1) & (r >= 0) & (r <= 1)
        return p + s * u, q + r * v, exists, exists

    of_edge = jax.vmap(crossing, in_axes=(None, None, 0, 0))
    crossings = jax.vmap(of_edge, in_axes=(0, 0, None, None))(A, along_a, B, along_b)
    yield jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), crossings)


def _beneath(
    face: Float[Array, "n 3"], p: Float[Array, "3"], near: Float[Array, ""]
) -> tuple[Float[Array, "3"], Bool[Array, ""]]:
    """The point of the face on the line along z through p, or nearest to it, and whether that line
    passes through the face or beside an edge, not beyond the ends of the edge."""
    along, from_corner = _edges(face), p[None] - face
    length2 = _dot2(along, along)
    s = _dot2(from_corner, along) / nonzero(length2, near * near)
    on_edge = clip(s, 0.0, 1.0)
    on_edges = face + on_edge[:, None] * along
    d = on_edges - p[None]
    edge = one_hot_of_largest(-_dot2(d, d))
    beside = jnp.any((edge > 0) & (s == on_edge))

    # The plane of the face, from its area vector (Newell's method).
    center = jnp.mean(face, axis=0)
    r = face - center[None]
    area = jnp.sum(jax.vmap(cross)(r, jnp.roll(r, -1, axis=0)), axis=0)
    wide = jnp.abs(area[2]) > near * jnp.sqrt(jnp.max(length2))
    inside = wide & jnp.all(area[2] * _cross2(along, from_corner) >= 0)
    height = center[2] - _dot2(area, p - center) / jnp.where(wide, area[2], 1.0)
    above = jnp.stack([p[0], p[1], height])
    return jnp.where(inside, above, mixed(edge, on_edges)), inside | beside


def _edges(face: Float[Array, "n 3"]) -> Float[Array, "n 3"]:
    """The vectors from each corner to the next one."""
    return jnp.roll(face, -1, axis=0) - face


def _spread(x, y, present, first, near, count) -> Bool[Array, "count n"]:
    """Which point comes to each of `count` places. The first is the point `first`. Each next one is
    the point farthest from those before, until all others are within `near` of one of them."""
    index = jnp.arange(x.shape[0])

    def distances2(k):
        here = index == k
        at_x, at_y = (jnp.sum(jnp.where(here, c, 0.0)) for c in (x, y))
        return jnp.where(present, (x - at_x) ** 2 + (y - at_y) ** 2, 0.0)

    def place(distance2, _):
        most = jnp.max(distance2)
        # The first of several that are equally far up to rounding: points keep their places.
        k = jnp.argmax(distance2 >= (1 - 1e-4) * most)
        return jnp.minimum(distance2, distances2(k)), (index == k) & (most > near * near)

    _, rest = lax.scan(place, distances2(first), None, length=count - 1)
    return jnp.concatenate([(index == first)[None], rest])


def _dot2(u: Float[Array, "... 3"], v: Float[Array, "... 3"]) -> Float[Array, "..."]:
    """u . v seen along z."""
    return u[..., 0] * v[..., 0] + u[..., 1] * v[..., 1]


def _cross2(u: Float[Array, "... 3"], v: Float[Array, "... 3"]) -> Float[Array, "..."]:
    """The z component of u x v."""
    return u[..., 0] * v[..., 1] - u[..., 1] * v[..., 0]

"""Any two convex shapes, by their support functions."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from ..._coordinates import components, cross, dot, quaternion_rotate
from ..pose import Pose
from ..shapes import AbstractConvexShape
from .base import ContactPoints, stacked
from .epa import epa
from .gjk import gjk
from .vectors import mixed, perpendicular, sign, unit, x_direction

_NEWTON_STEPS = 4
_REFINEMENTS = 5


class _Pair(NamedTuple):
    """The cores of two shapes, about the origin of a, in world axes."""

    a: AbstractConvexShape
    orientation_a: Float[Array, "4"]
    b: AbstractConvexShape
    orientation_b: Float[Array, "4"]
    offset: Float[Array, "3"]

    def on_a(self, n):
        """The farthest point of a in the direction n."""
        local = Pose(self.offset, self.orientation_a).local_direction(n)
        return quaternion_rotate(self.orientation_a, self.a.support(local))

    def on_b(self, n):
        """The farthest point of b in the direction -n."""
        local = Pose(self.offset, self.orientation_b).local_direction(-n)
        return self.offset + quaternion_rotate(self.orientation_b, self.b.support(local))

    def apart(self, n):
        """From the point of a to that of b: its product with n is how far the planes across n that
        touch them are apart, and its derivative by n is 0 along n."""
        return self.on_b(n) - self.on_a(n)


def convex_convex(
    a: AbstractConvexShape, pose_a: Pose, b: AbstractConvexShape, pose_b: Pose
) -> ContactPoints:
    """One point, midway between the nearest points, or where the shapes overlap between those that
    the least translation to separate them brings together.

    `gap` is the largest distance of two parallel planes between the shapes, or the least negative
    overlap, over all directions n: n . (x_b - x_a) with the farthest points x_a along n and x_b
    against it. The direction is found by GJK and the expanding polytope, and sharpened by Newton's
    method where x_a and x_b depend on it smoothly. Both run a fixed number of iterations, and
    nothing is differentiated through: at the solution the gap does not depend on n to first order,
    and position and normal follow from the features that touch, points of curved surfaces by the
    implicit function theorem and vertices, edges and faces by their corners. Their derivatives are
    approximate where a curved surface touches an edge or a face; that of the gap is right also
    there, to what the iterations reach.

    Where curved shapes overlap by about half of their size or more, the direction found may not be
    that of the least overlap. Costs much more than the pairs that have closed forms. The cores of
    both shapes together must fill space.
    """
    offset = pose_b.position - pose_a.position
    pair = _Pair(a, pose_a.orientation, b, pose_b.orientation, offset)
    frozen = lax.stop_gradient(pair)
    directions, active, normal, enters, size = _features(frozen)
    normal, smooth = _sharpened(frozen, normal, size)

    # Smooth: the normal by one more step of Newton, of which only the derivative counts.
    normal_smooth = _newton(pair, frozen, normal)
    a_smooth, b_smooth = pair.on_a(normal_smooth), pair.on_b(normal_smooth)
    gap_smooth = dot(normal, pair.apart(normal))

    # Corners: points carried along by the shapes, and the point of their plane nearest to 0.
    corners_a = jnp.stack([pair.on_a(d) for d in directions])
    corners_b = jnp.stack([pair.on_b(d) for d in directions])
    corners = corners_a - corners_b
    weights, plane = _weights_of_plane(corners, active)
    gap_corners = -dot(normal, mixed(lax.stop_gradient(weights), corners))
    gap_corners = gap_corners + lax.stop_gradient(gap_smooth - gap_corners)
    normal_corners = _normal_of_corners(corners, weights, plane, enters, normal)
    # Within the corners, also where the iterations stopped beside them.
    weights = jnp.where(weights > 0, weights, 0.0)
    weights = weights / jnp.sum(weights)
    a_corners, b_corners = mixed(weights, corners_a), mixed(weights, corners_b)

    gap = jnp.where(smooth, gap_smooth, gap_corners) - a.margin - b.margin
    n = jnp.where(smooth, normal_smooth, normal_corners)
    middle = (jnp.where(smooth, a_smooth, a_corners) + jnp.where(smooth, b_smooth, b_corners)) / 2
    position = pose_a.position + middle + (a.margin - b.margin) / 2 * n
    return stacked((gap, position, n))


def _features(pair: _Pair):
    """Directions of up to three farthest points of the difference of the cores a - b, whose plane,
    line or point is the nearest to the origin, and which of them count; the normal; whether the
    origin is inside; the size of the difference."""

    def support(d):
        return -pair.apart(d)

    axes = jnp.eye(3, dtype=pair.offset.dtype)
    size = jnp.sum(jnp.stack([dot(e, support(e) - support(-e)) for e in components(axes)]))
    _, start = unit(pair.offset, x_direction(pair.offset))
    simplex, facet = gjk(support, start), epa(support, size)

    v = simplex.nearest
    _, normal = unit(-v, facet.normal)
    enters = dot(v, v) <= (1e3 * jnp.finfo(v.dtype).eps * size) ** 2
    refined, refined_normal = _refined(support, facet.normal, size)
    better = -dot(refined_normal, support(refined_normal)) >= -dot(
        facet.normal, support(facet.normal)
    )

    outside = jnp.where(enters, refined.weights, simplex.weights)
    order = jnp.argsort(-outside)[:3]
    whole = enters & ~better
    directions = jnp.where(enters, refined.directions, simplex.directions)[order]
    directions = jnp.where(whole, facet.directions, directions)
    active = whole | (outside[order] > 0)
    normal_in = jnp.where(better, refined_normal, facet.normal)
    return directions, active, jnp.where(enters, normal_in, normal), enters, size


def _refined(support, n, size):
    """A direction of least overlap from one that is near, and the simplex there.

    The point of the set nearest to the origin on its surface is also the nearest one to a point
    beyond, on the line from the origin; of that, GJK converges much faster than the polytope.
    """

    def shifted(n):
        beyond = (dot(n, support(n)) + 0.1 * size) * n
        return gjk(lambda d: support(d) - beyond, n)

    def step(_, state):
        n, _ = state
        simplex = shifted(n)
        return unit(-simplex.nearest, n)[1], simplex

    n, simplex = lax.fori_loop(0, _REFINEMENTS, step, (n, shifted(n)))
    return simplex, n


def _sharpened(pair: _Pair, n, size):
    """The direction after some steps of Newton's method, each only if it separates no less; and
    whether it is the solution: the two farthest points are then opposite each other."""

    def step(_, n):
        new = _newton(pair, pair, n)
        return jnp.where(dot(new, pair.apart(new)) >= dot(n, pair.apart(n)), new, n)

    n = lax.fori_loop(0, _NEWTON_STEPS, step, n)
    across = cross(n, pair.apart(n))
    tolerance = jnp.finfo(n.dtype).eps ** 0.5 * size
    return n, dot(across, across) < tolerance**2


def _newton(pair: _Pair, frozen: _Pair, n):
    """n after a step towards where the part of `apart`(n) across n is 0; with the derivative of
    that part by the shapes and poses of `pair`, and by n as of those of `frozen`."""
    t = perpendicular(n)
    t = jnp.stack([t, cross(n, t)])
    residual = jnp.stack([dot(t[0], pair.apart(n)), dot(t[1], pair.apart(n))])
    slopes = jax.vmap(lambda d: jax.jvp(frozen.apart, (n,), (d,))[1])(t)
    J = jnp.sum(slopes[:, None] * t[None], axis=2) - dot(n, frozen.apart(n)) * jnp.eye(
        2, dtype=n.dtype
    )
    (p, q), (r, s) = J
    det = p * s - q * r
    flat = jnp.abs(det) <= 1e3 * jnp.finfo(n.dtype).eps * (p * p + q * q + r * r + s * s)
    det = jnp.where(flat, 1.0, det)
    x, y = residual
    step = jnp.stack([q * y - s * x, r * x - p * y]) / det
    return unit(n + jnp.where(flat, 0.0, step[0]) * t[0] + jnp.where(flat, 0.0, step[1]) * t[1], n)[
        1
    ]


def _weights_of_plane(corners, active):
    """Weights, of sum 1, of the nearest point to the origin of the plane, or the line, through the
    corners that count; the first does."""
    o, e, f = corners[0], corners[1] - corners[0], corners[2] - corners[0]
    ee, ff, ef = dot(e, e), dot(f, f), dot(e, f)
    eps = jnp.finfo(o.dtype).eps
    line = active[1] & (ee > 0)
    plane = line & active[2] & (ee * ff - ef * ef > 10 * eps * ee * ff)
    det = jnp.where(plane, ee * ff - ef * ef, 1.0)
    oe, of = dot(o, e), dot(o, f)
    s, t = (ef * of - ff * oe) / det, (ef * oe - ee * of) / det
    s = jnp.where(plane, s, jnp.where(line, -oe / jnp.where(line, ee, 1.0), 0.0))
    t = jnp.where(plane, t, 0.0)
    return jnp.stack([1 - s - t, s, t]), plane


def _normal_of_corners(corners, weights, plane, enters, n):
    """n with the derivative of the normal of the plane through the corners, or of the direction
    from their nearest point to the origin."""
    _, across = unit(cross(corners[1] - corners[0], corners[2] - corners[0]), n)
    _, direct = unit(-mixed(weights, corners), n)
    moving = jnp.where(plane, across * sign(dot(across, n)), jnp.where(enters, n, direct))
    return n + moving - lax.stop_gradient(moving)

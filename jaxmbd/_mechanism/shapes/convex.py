"""The convex hull of points, and the point of a convex set nearest to the origin."""

import itertools
from collections.abc import Callable
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Shaped

from ..._compiler import floating_dtype, to_jax, tree_where
from ..._coordinates import cross, dot
from ..._inputs import Numbers, Shape, checked
from .base import AbstractConvexShape, Face, farthest, index_of_farthest, row

_ITERATIONS = 16

# Points less than this fraction of the size below a face count as part of it.
_COPLANAR = 1e-6


class ConvexPoints(AbstractConvexShape):
    """The convex hull of points: tetrahedra, wedges, simplified meshes. Points inside the hull are
    allowed, but cost as much as corners. Against shapes other than half-spaces and height fields,
    the points must not all lie in a plane.

    **Fields:** `points`, shape `(n, 3)` [m].
    """

    points: Float[Array, "n 3"]

    @checked
    def __init__(self, points: Annotated[Numbers, Shape(["n", 3])]):
        """**Arguments:** `points`: at least one, shape `(n, 3)` [m]."""
        if np.size(points) == 0:
            raise ValueError("Argument `points` of ConvexPoints must hold a corner, but is empty.")
        self.points = to_jax(points, floating_dtype(points))

    @property
    def margin(self):
        return to_jax(np.zeros(()), self.points.dtype)

    def support(self, d):
        return farthest(self.points, d)

    def nearest(self, p):
        """By GJK on the points relative to p. The derivatives belong to the point, line or plane
        through the corners of the simplex with positive weights."""
        points, q = lax.stop_gradient((self.points, p))

        def support(d):
            index = index_of_farthest(points, d)
            return row(points, index) - q, index

        simplex = gjk(support, q, _ITERATIONS)
        order = jnp.argsort(-simplex.weights)[:3]
        corners = jnp.stack([row(self.points, index) for index in simplex.sources[order]])
        weights = weights_of_plane(corners - p[None], simplex.weights[order] > 0)
        inside = jnp.all(simplex.weights > 0)
        return jnp.where(inside, p, jnp.sum(weights[:, None] * corners, axis=0))

    def feet(self, down):
        """All points."""
        del down
        return self.points

    def face(self, d):
        """A face of up to five corners as it is. Of a larger face, a polygon of eight corners."""
        points, d = lax.stop_gradient((self.points, d))
        corners = jnp.stack([row(self.points, index) for index in _face(points, d)])
        return Face(corners, self.margin)


def _face(points: Float[Array, "n 3"], d: Float[Array, "3"]) -> list[Int[Array, ""]]:
    """Indices of eight corners.

    Gift wrapping (Chand and Kapur, An algorithm for convex polytopes, 1970) finds the face. It
    takes the edge at the farthest point that falls least, then the face at this edge that falls
    less. All points are below the plane through this edge that is level across it. Then, as in
    Quickhull (Barber, Dobkin and Huhdanpaa, 1996), the farthest point of the face beyond each side
    is added."""
    x = points - farthest(points, d)[None]

    def along(direction):
        return jnp.sum(x * direction[None], axis=1)

    def least_falling(height, run):
        aside = run > small
        return row(x, jnp.argmax(jnp.where(aside, height / jnp.where(aside, run, 1.0), -jnp.inf)))

    distance2 = jnp.sum(x * x, axis=1)
    size = jnp.sqrt(jnp.max(distance2))
    small = size * max(_COPLANAR, 100 * float(jnp.finfo(d.dtype).eps))
    height = along(d)
    edge = least_falling(height, jnp.sqrt(jnp.maximum(distance2 - height * height, 0.0)))
    level = cross(d, edge)
    up = cross(edge, level)
    up, level = (v / jnp.sqrt(dot(v, v)) for v in (up, level))
    other = least_falling(along(up), jnp.abs(along(level)))
    normal = cross(edge, other)
    normal = normal / jnp.sqrt(dot(normal, normal))
    normal = jnp.where(dot(normal, up) < 0, -normal, normal)
    on_face = along(normal) > -small

    def farthest_on_face(measure):
        return jnp.argmax(jnp.where(on_face, measure, -jnp.inf))

    def beyond(i, j):
        side = row(x, j) - row(x, i)
        return jnp.where(i == j, i, farthest_on_face(along(cross(side, normal))))

    first = farthest_on_face(distance2)
    polygon = [first, farthest_on_face(jnp.sum((x - row(x, first)[None]) ** 2, axis=1))]
    for _ in range(2):
        following = polygon[1:] + polygon[:1]
        polygon = [k for i, j in zip(polygon, following, strict=True) for k in (i, beyond(i, j))]
    return polygon


_EDGES = np.array(list(itertools.combinations(range(4), 2)))
_TRIANGLES = np.array(list(itertools.combinations(range(4), 3)))


class Simplex(NamedTuple):
    """Up to four points of a convex set, the source of each, and weights. The weighted sum is the
    point of their hull nearest to the origin."""

    points: Float[Array, "4 3"]
    sources: Shaped[Array, "4 ..."]
    weights: Float[Array, "4"]

    @property
    def nearest(self) -> Float[Array, "3"]:
        return jnp.sum(self.weights[:, None] * self.points, axis=0)


def gjk(
    support: Callable[[Float[Array, "3"]], tuple[Float[Array, "3"], Shaped[Array, "..."]]],
    start: Float[Array, "3"],
    iterations: int,
) -> Simplex:
    """The point of a convex set nearest to the origin, after some iterations from the direction
    `start` (Gilbert, Johnson and Keerthi, A fast procedure for computing the distance between
    complex objects in three-dimensional space, 1988). It is 0 if the origin is inside. Steps that
    do not reduce the distance are rejected, so rounding cannot undo progress.

    `support`(d) returns the point of the set farthest in the direction d, and its source. The
    source cannot be recovered from d, which in the end is normal to a face."""

    def step(_, simplex):
        d = -simplex.nearest
        free = jnp.arange(4) == jnp.argmin(simplex.weights)
        point, source = support(d)
        points = jnp.where(free[:, None], point[None], simplex.points)
        at = free.reshape(4, *(1,) * source.ndim)
        sources = jnp.where(at, source[None], simplex.sources)
        weights = _weights(points, (simplex.weights > 0) | free)
        new = Simplex(points, sources, weights)
        d, v = simplex.nearest, new.nearest
        return tree_where(dot(v, v) < dot(d, d), new, simplex)

    w, source = support(start)
    one = (jnp.arange(4) == 0).astype(w.dtype)
    sources = jnp.broadcast_to(source[None], (4, *source.shape))
    first = Simplex(one[:, None] * w[None], sources, one)
    return jax.lax.fori_loop(0, iterations, step, first)


def _weights(w: Float[Array, "4 3"], exists: Bool[Array, "4"]) -> Float[Array, "4"]:
    """The weights of the point nearest to the origin in the hull of the points that exist. For each
    vertex, edge, triangle and the tetrahedron, it takes the nearest point of the whole line, plane
    or space if that is within, and returns the nearest of all."""
    eps = jnp.finfo(w.dtype).eps
    identity = jnp.eye(4, dtype=w.dtype)
    candidates, usable = [identity], [exists]

    i, j = _EDGES.T
    e = w[j] - w[i]
    ee = jnp.sum(e * e, axis=1)
    t = -jnp.sum(w[i] * e, axis=1) / jnp.where(ee > 0, ee, 1.0)
    candidates.append((1 - t)[:, None] * identity[i] + t[:, None] * identity[j])
    usable.append((ee > 0) & exists[i] & exists[j])

    i, j, k = _TRIANGLES.T
    e, f, o = w[j] - w[i], w[k] - w[i], w[i]
    ee, ff, ef = (jnp.sum(x * y, axis=1) for x, y in ((e, e), (f, f), (e, f)))
    oe, of = jnp.sum(o * e, axis=1), jnp.sum(o * f, axis=1)
    det = ee * ff - ef * ef
    flat = det <= 10 * eps * ee * ff
    det = jnp.where(flat, 1.0, det)
    s, t = (ef * of - ff * oe) / det, (ef * oe - ee * of) / det
    weights = (1 - s - t)[:, None] * identity[i] + s[:, None] * identity[j]
    candidates.append(weights + t[:, None] * identity[k])
    usable.append(~flat & exists[i] & exists[j] & exists[k])

    e, f, g = w[1] - w[0], w[2] - w[0], w[3] - w[0]
    normal = cross(f, g)
    det = dot(e, normal)
    scale = jnp.sqrt(dot(e, e) * dot(f, f) * dot(g, g))
    flat = jnp.abs(det) <= 100 * eps * scale
    det = jnp.where(flat, 1.0, det)
    r, s, t = (-dot(w[0], n) / det for n in (normal, cross(g, e), cross(e, f)))
    candidates.append(jnp.stack([1 - r - s - t, r, s, t])[None])
    usable.append((~flat & jnp.all(exists))[None])

    weights = jnp.concatenate(candidates)
    valid = jnp.concatenate(usable) & jnp.all(weights >= 0, axis=1)
    nearest = sum(weights[:, k : k + 1] * w[None, k] for k in range(4))
    norm2 = jnp.sum(nearest * nearest, axis=1)
    inside = jnp.arange(norm2.shape[0]) == norm2.shape[0] - 1
    norm2 = jnp.where(valid, jnp.where(inside, 0.0, norm2), jnp.inf)
    best = jnp.arange(norm2.shape[0]) == jnp.argmin(norm2)
    return jnp.sum(jnp.where(best[:, None], weights, 0.0), axis=0)


def weights_of_plane(corners: Float[Array, "3 3"], active: Bool[Array, "3"]) -> Float[Array, "3"]:
    """The weights, with sum 1, of the point nearest to the origin on the plane or line through the
    active corners. The first corner always counts as active."""
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
    return jnp.stack([1 - s - t, s, t])

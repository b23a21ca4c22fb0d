"""The point of a convex set nearest to the origin (Gilbert, Johnson and Keerthi, A fast procedure
for computing the distance between complex objects in three-dimensional space, 1988)."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

from ..._coordinates import cross, dot
from ..._fusion import materialise_condition
from ..._loop import tree_where

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
    `start`. It is 0 if the origin is inside. Steps that do not reduce the distance are rejected, so
    rounding cannot undo progress.

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
        nearer = materialise_condition(dot(v, v) < dot(d, d))
        return tree_where(nearer, new, simplex)

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

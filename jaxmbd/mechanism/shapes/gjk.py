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
    """Up to four points of a convex set, what was told of each with it, and the weights with which
    their sum is the nearest point of their hull to the origin."""

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
    """Nearest point to the origin of the convex set of which `support`(d) tells the point that is
    farthest in the direction d, and where it comes from; after some iterations from the direction
    `start`; 0 if the origin is within. The distance never grows, so that rounding cannot undo what
    is reached.

    Where a point comes from cannot be found again from d, which in the end is normal to a face."""

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
    """Weights of the nearest point to the origin of the hull of those points that exist: of all
    vertices, edges, triangles and the tetrahedron within which the nearest point of their plane
    is, the nearest."""
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
    return jnp.stack([1 - s - t, s, t])

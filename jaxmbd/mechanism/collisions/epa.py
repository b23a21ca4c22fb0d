"""The nearest supporting plane of a convex set around the origin: the expanding polytope (van den
Bergen, *Collision Detection in Interactive 3D Environments*, 2003, section 4.3.8)."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..._coordinates import cross
from .vectors import perpendicular, unit, x_direction

_START = 6
_ITERATIONS = 20
_POINTS = _START + _ITERATIONS
# All pairs below, first those of the first m points, for every m.
_PAIRS = np.array([(j, k) for k in range(_POINTS) for j in range(k)], np.int32)
_TRIPLES = _POINTS * (_POINTS - 1) * (_POINTS - 2) // 6


class Facet(NamedTuple):
    """Three points of a convex set, each the farthest in its direction, and the normal of their
    plane, away from the set."""

    points: Float[Array, "3 3"]
    directions: Float[Array, "3 3"]
    normal: Float[Array, "3"]


class _Polytope(NamedTuple):
    """Triples of the points, the signed distances of their planes from the origin, and whether all
    points are below and above: a facet, if either holds."""

    points: Float[Array, "n 3"]
    directions: Float[Array, "n 3"]
    corners: Int[Array, "triples 3"]
    normals: Float[Array, "triples 3"]
    offsets: Float[Array, " triples"]
    below: Bool[Array, " triples"]
    above: Bool[Array, " triples"]

    def outward(self) -> tuple[Float[Array, " triples"], Float[Array, "triples 3"]]:
        """Signed distances of the facets along their outer normals, and these."""
        up = jnp.where(self.below, self.offsets, jnp.inf)
        down = jnp.where(self.above, -self.offsets, jnp.inf)
        turn = jnp.where(up <= down, jnp.ones_like(up), -jnp.ones_like(up))
        return jnp.minimum(up, down), turn[:, None] * self.normals

    def nearest(self) -> Float[Array, "3"]:
        """Outer normal of the facet with the least signed distance."""
        offsets, normals = self.outward()
        return normals[jnp.argmin(offsets)]

    def facet(self, tolerance: Float[Array, ""]) -> Facet:
        """That facet; of several in one plane, the one that the origin is above most centrally."""
        offsets, normals = self.outward()
        w = self.points[self.corners]
        n, (p, q, r) = normals, (w[:, k] for k in range(3))
        sides = [jnp.sum(jnp.cross(x, y) * n, axis=1) for x, y in ((q, r), (r, p), (p, q))]
        turn = jnp.where(sides[0] + sides[1] + sides[2] < 0, -1.0, 1.0)
        area = jnp.abs(sides[0] + sides[1] + sides[2])
        central = jnp.min(turn[None] * jnp.stack(sides), axis=0) / jnp.where(area > 0, area, 1.0)
        central = jnp.where(offsets <= jnp.min(offsets) + tolerance, central, -jnp.inf)
        k = jnp.argmax(central)
        corners = self.corners[k]
        return Facet(self.points[corners], self.directions[corners], normals[k])


def epa(support: Callable[[Float[Array, "3"]], Float[Array, "3"]], size: Float[Array, ""]) -> Facet:
    """A facet in the plane nearest to the origin, which is within the convex set with the points
    `support`(d) farthest in the directions d, after a fixed number of iterations; `size` is about
    that of the set.

    Each adds the farthest point along the normal of the nearest facet of the hull of the points
    before. Facets are all triples of points with all others on one side: of a new point with any
    two others, and the old ones that it is not beyond. That needs no order among them, and no
    special cases for facets in one plane.
    """
    dtype = size.dtype
    tolerance = 200 * jnp.finfo(dtype).eps * size
    room = _TRIPLES + len(_PAIRS)
    polytope = _Polytope(
        jnp.zeros((_POINTS, 3), dtype),
        jnp.zeros((_POINTS, 3), dtype),
        jnp.zeros((room, 3), jnp.int32),
        jnp.zeros((room, 3), dtype),
        jnp.zeros(room, dtype),
        jnp.zeros(room, bool),
        jnp.zeros(room, bool),
    )

    def add(polytope, m, d):
        return _with_point(polytope, m, support(d), d, tolerance)

    # Points on both sides of three axes across each other, the first along a line through the set.
    x = x_direction(polytope.points[0])
    first, last = support(x), support(-x)
    _, through = unit(last - first, x)
    y = perpendicular(through)
    z = cross(through, y)
    for m, d in enumerate((x, -x, y, -y, z, -z)):
        polytope = add(polytope, jnp.int32(m), d)
    polytope = jax.lax.fori_loop(
        _START,
        _POINTS,
        lambda m, polytope: add(polytope, jnp.int32(m), polytope.nearest()),
        polytope,
    )
    return polytope.facet(tolerance)


def _with_point(polytope: _Polytope, m, w, d, tolerance) -> _Polytope:
    points = polytope.points.at[m].set(w)
    directions = polytope.directions.at[m].set(d)
    height = jnp.sum(polytope.normals * w[None], axis=1) - polytope.offsets
    below = polytope.below & (height <= tolerance)
    above = polytope.above & (height >= -tolerance)

    j, k = jnp.asarray(_PAIRS.T)
    e, f = points[j] - w[None], points[k] - w[None]
    normals = jnp.cross(e, f)
    length = jnp.sqrt(jnp.sum(normals * normals, axis=1))
    lengths = jnp.sqrt(jnp.sum(e * e, axis=1) * jnp.sum(f * f, axis=1))
    fat = length > 1e3 * jnp.finfo(w.dtype).eps * lengths
    normals = normals / jnp.where(fat, length, 1.0)[:, None]
    offsets = jnp.sum(normals * w[None], axis=1)
    heights = sum(normals[:, k : k + 1] * points[None, :, k] for k in range(3)) - offsets[:, None]
    exists = (jnp.arange(_POINTS, dtype=m.dtype) < m)[None]
    new = fat & (k < m)
    corners = jnp.stack([jnp.zeros_like(j) + m, j, k], axis=1)
    at = m * (m - 1) * (m - 2) // 6
    return _Polytope(
        points,
        directions,
        *(
            jax.lax.dynamic_update_slice(old, x, (at, jnp.zeros_like(at))[: x.ndim])
            for old, x in (
                (polytope.corners, corners),
                (polytope.normals, normals),
                (polytope.offsets, offsets),
                (below, new & jnp.all((heights <= tolerance) | ~exists, axis=1)),
                (above, new & jnp.all((heights >= -tolerance) | ~exists, axis=1)),
            )
        ),
    )

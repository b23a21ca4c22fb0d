from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from ..._concrete import to_jax
from ..._coordinates import cross, dot
from ..._inputs import Shape, checked
from .base import AbstractConvexShape, Face, dtype_of, farthest, index_of_farthest, row
from .gjk import gjk, weights_of_plane

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
    def __init__(self, points: Annotated[Any, Shape(["n", 3])]):
        """**Arguments:** `points`: at least one, shape `(n, 3)` [m]."""
        if len(points) == 0:
            raise ValueError("Argument `points` of ConvexPoints must hold a corner, but is empty.")
        self.points = to_jax(points, dtype_of(points))

    @property
    def margin(self):
        return to_jax(np.zeros(()), self.points.dtype)

    def support(self, d):
        return farthest(self.points, d)

    def nearest(self, p):
        """By GJK on the points relative to p. The derivatives are those of the point, line or plane
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

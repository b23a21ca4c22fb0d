from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ..parameter import finite
from .base import AbstractConvexShape, dtype_of, farthest, index_of_farthest, row
from .gjk import gjk, weights_of_plane

_ITERATIONS = 16


class ConvexPoints(AbstractConvexShape):
    """The convex hull of points: tetrahedra, wedges, simplified meshes. Points inside the hull do
    no harm, but cost as much as corners. Against shapes other than half-spaces and height fields
    the points must not all lie in a plane.

    **Fields:** `points`, shape `(n, 3)` [m].
    """

    points: Float[Array, "n 3"]

    def __init__(self, points: Any):
        """**Arguments:** `points`: at least one, shape `(n, 3)` [m]."""
        what = "`points` of ConvexPoints"
        shape = np.shape(points)
        if len(shape) != 2 or shape[1] != 3 or shape[0] == 0:
            raise ValueError(
                f"{what} must have shape (n, 3) with n >= 1, but has {shape}. Give the corners as "
                "rows."
            )
        self.points = finite(what, points, dtype_of(points), shape)

    @property
    def margin(self):
        return jnp.zeros_like(self.points[0, 0])

    def support(self, d):
        return farthest(self.points, d)

    def nearest(self, p):
        """By GJK of the points about p; derivatives are those of the point, line or plane of the
        corners of the simplex that count."""
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

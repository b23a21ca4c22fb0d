"""What contact asks of shapes."""

import abc
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..._compiler import clip
from ..._extensible import Extensible


class Face(NamedTuple):
    """A flat or straight part of the surface of a shape, the one that faces a given direction.

    **Fields:**

    - `corners` of a plane convex polygon on the surface, in order, in the frame of the shape [m].
      A corner may be repeated, and the polygon may be a segment or a point.
    - `radius` of the surface around a segment or a point [m], 0 for edges and vertices.
    """

    corners: Float[Array, "corners 3"]
    radius: Float[Array, ""]


class AbstractShape(Extensible):
    """The geometry of a body for contact, in the frame of the shape. Its dimensions are arrays, so
    they are differentiable parameters. The pose of the frame is given separately."""


class AbstractConvexShape(AbstractShape):
    """A convex shape: a core and all points within `margin` [m] of it."""

    @property
    @abc.abstractmethod
    def margin(self) -> Float[Array, ""]:
        """Radius of the layer around the core [m], 0 for none."""

    @abc.abstractmethod
    def support(self, d: Float[Array, "3"]) -> Float[Array, "3"]:
        """A farthest point of the core in the direction d, of any length but 0, in the frame of the
        shape [m]."""

    @abc.abstractmethod
    def nearest(self, p: Float[Array, "3"]) -> Float[Array, "3"]:
        """The point of the core nearest to p, in the frame of the shape [m]. Its derivative depends
        on whether this point is on a face, an edge, a vertex, or a curved surface."""

    @abc.abstractmethod
    def feet(self, down: Float[Array, "3"]) -> Float[Array, "points 3"]:
        """Points of the core on which the shape can rest on a plane, in the frame of the shape [m].
        The unit vector `down` points to the plane. The deepest point is among them."""

    @abc.abstractmethod
    def face(self, d: Float[Array, "3"]) -> Face:
        """The flat or straight part of the surface at its farthest point along the unit vector d.
        If there are several, it is the one most nearly normal to d."""


def clamped(x: Array, limit: Array) -> Array:
    """x clipped to [-`limit`, `limit`]."""
    return clip(x, -limit, limit)


def farthest(points: Float[Array, "points 3"], d: Float[Array, "3"]) -> Float[Array, "3"]:
    """The point farthest in the direction d, the first of several."""
    return row(points, index_of_farthest(points, d))


def index_of_farthest(points: Float[Array, "points 3"], d: Float[Array, "3"]) -> Int[Array, ""]:
    """The index of the point farthest in the direction d, the first of several."""
    x, y, z = points[:, 0], points[:, 1], points[:, 2]
    return jnp.argmax(x * d[0] + y * d[1] + z * d[2])


def row(points: Float[Array, "points 3"], index: Int[Array, ""]) -> Float[Array, "3"]:
    """points[index], as a sum, which XLA fuses with its neighbours."""
    mask = (jnp.arange(points.shape[0]) == index)[:, None]
    return jnp.sum(jnp.where(mask, points, 0.0), axis=0)


def rim(radius: Float[Array, ""], d: Float[Array, "3"]) -> Float[Array, "4 2"]:
    """Points of a circle about the origin in the xy plane: the farthest one in the direction d, and
    those a quarter, half and three quarters of a turn on. If d is along z, all are equally far, and
    the first is on the x axis."""
    x, y = d[0], d[1]
    across2 = x * x + y * y
    flat = across2 <= jnp.finfo(d.dtype).eps * jnp.sum(d * d)
    across = jnp.sqrt(jnp.where(flat, 1.0, across2))
    x, y = jnp.where(flat, 1.0, x / across), jnp.where(flat, 0.0, y / across)
    turns = [jnp.stack([x, y]), jnp.stack([-y, x]), jnp.stack([-x, -y]), jnp.stack([y, -x])]
    return radius * jnp.stack(turns)

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


class Face(NamedTuple):
    """What a shape shows to an onlooker far away: a flat or straight part of its surface.

    **Fields:**

    - `corners` of a plane convex polygon on the surface, in order, in the frame of the shape [m].
      The same one can come several times, and the polygon can be a segment or a point.
    - `radius` of the surface across a segment or around a point [m], 0 for edges and vertices.
    """

    corners: Float[Array, "corners 3"]
    radius: Float[Array, ""]


class AbstractShape(eqx.Module):
    """The geometry of a body for contact. Its numbers are arrays, so parameters to differentiate
    by, in the frame of the shape; where that frame is, is told by a pose from outside."""


class AbstractConvexShape(AbstractShape):
    """A convex shape: a core and all points within `margin` [m] of it."""

    @property
    @abc.abstractmethod
    def margin(self) -> Float[Array, ""]:
        """Radius of the layer around the core [m], 0 for none."""

    @abc.abstractmethod
    def support(self, d: Float[Array, "3"]) -> Float[Array, "3"]:
        """A point of the core that is farthest in the direction d, of any length other than 0, in
        the frame of the shape [m]."""

    @abc.abstractmethod
    def nearest(self, p: Float[Array, "3"]) -> Float[Array, "3"]:
        """The point of the core that is nearest to p, in the frame of the shape [m]. Its derivative
        tells what of the core is nearest: a face, an edge, a vertex, or a curved surface."""

    @abc.abstractmethod
    def feet(self, down: Float[Array, "3"]) -> Float[Array, "points 3"]:
        """Points of the core on which the shape can rest on a plane that is in the direction of
        the unit vector `down`, in the frame of the shape [m]: the deepest one is among them."""

    @abc.abstractmethod
    def face(self, d: Float[Array, "3"]) -> Face:
        """Of the flat and straight parts of the surface at its farthest point in the direction of
        the unit vector d, the one most across d."""


def dtype_of(value: Any) -> Any:
    """That of a floating-point array; numbers and lists become JAX's default one."""
    if isinstance(value, jax.Array | np.ndarray | np.floating):
        if jnp.issubdtype(value.dtype, jnp.floating):
            return value.dtype
    return jnp.result_type(float)


def common_dtype(*values: Any) -> Any:
    """That of the floating-point arrays among `values`."""
    arrays = [dtype_of(x) for x in values if isinstance(x, jax.Array | np.ndarray | np.floating)]
    return jnp.result_type(*arrays) if arrays else jnp.result_type(float)


def clamped(x: Array, limit: Array) -> Array:
    """x between -`limit` and `limit`. Its derivatives are 1 by x within them and by `limit` beyond:
    those of `jnp.clip` halve where both meet."""
    return jnp.where(x > limit, limit, jnp.where(x < -limit, -limit, x))


def farthest(points: Float[Array, "points 3"], d: Float[Array, "3"]) -> Float[Array, "3"]:
    """The first of the points that are farthest in the direction d."""
    return row(points, index_of_farthest(points, d))


def index_of_farthest(points: Float[Array, "points 3"], d: Float[Array, "3"]) -> Int[Array, ""]:
    """That of the first of the points that are farthest in the direction d."""
    x, y, z = points[:, 0], points[:, 1], points[:, 2]
    return jnp.argmax(x * d[0] + y * d[1] + z * d[2])


def row(points: Float[Array, "points 3"], index: Int[Array, ""]) -> Float[Array, "3"]:
    """points[index]: a sum, which fuses with its neighbours."""
    mask = (jnp.arange(points.shape[0]) == index)[:, None]
    return jnp.sum(jnp.where(mask, points, 0.0), axis=0)


def rim(radius: Float[Array, ""], d: Float[Array, "3"]) -> Float[Array, "4 2"]:
    """Points of a circle about the origin in the xy plane: the farthest one in the direction of d
    and those a quarter, half and three quarters of a turn on. Where d is along z and all are as
    far, the first is on the x axis."""
    x, y = d[0], d[1]
    across2 = x * x + y * y
    flat = across2 <= jnp.finfo(d.dtype).eps * jnp.sum(d * d)
    across = jnp.sqrt(jnp.where(flat, 1.0, across2))
    x, y = jnp.where(flat, 1.0, x / across), jnp.where(flat, 0.0, y / across)
    turns = [jnp.stack([x, y]), jnp.stack([-y, x]), jnp.stack([-x, -y]), jnp.stack([y, -x])]
    return radius * jnp.stack(turns)

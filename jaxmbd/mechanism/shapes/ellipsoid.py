from typing import Annotated

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ..._concrete import to_jax
from ..._coordinates import dot
from ..._inputs import Vector, checked, positive
from .base import AbstractConvexShape, Face, dtype_of

_ITERATIONS = 8


class Ellipsoid(AbstractConvexShape):
    """A solid ellipsoid centred at the origin of its frame.

    **Fields:** `semi_axes` along x, y and z, shape `(3,)` [m].
    """

    semi_axes: Float[Array, "3"]

    @checked
    def __init__(self, semi_axes: Annotated[Vector, positive]):
        """**Arguments:** `semi_axes`: three numbers > 0 [m]."""
        self.semi_axes = to_jax(semi_axes, dtype_of(semi_axes))

    @property
    def margin(self):
        return to_jax(np.zeros(()), self.semi_axes.dtype)

    def support(self, d):
        scaled = self.semi_axes * d
        norm2 = jnp.sum(scaled * scaled)
        zero = norm2 == 0
        return self.semi_axes * scaled / jnp.sqrt(jnp.where(zero, 1.0, norm2))

    def nearest(self, p):
        """p_i a_i^2 / (a_i^2 + t) along each axis, with the t >= 0 that puts a p outside on the
        surface, and t = 0 for a p inside.

        t is the root of 1 - 1/s, s = |a_i p_i / (a_i^2 + t)|, a convex and nearly linear function.
        Newton's method finds it from below (Hebden, An algorithm for minimization using exact
        second derivatives, 1973). Derivatives are those of one more step."""
        a, q = lax.stop_gradient((self.semi_axes, p))
        # Lower bounds of the root: with the largest semi-axis for all axes, or with one term alone.
        least = jnp.sqrt(dot(a * q, a * q)) - jnp.max(a) ** 2
        t = jnp.maximum(jnp.maximum(jnp.max(jnp.abs(a * q) - a * a), least), 0.0)
        t = lax.fori_loop(0, _ITERATIONS, lambda _, t: jnp.maximum(_step(a, q, t), 0.0), t)
        t = _step(self.semi_axes, p, lax.stop_gradient(t))
        a2 = self.semi_axes * self.semi_axes
        return p * (a2 / (a2 + jnp.where(t > 0, t, 0.0)))

    def feet(self, down):
        """The deepest point."""
        return self.support(down)[None]

    def face(self, d):
        """The farthest point."""
        return Face(self.support(d)[None], self.margin)


def _step(a: Float[Array, "3"], p: Float[Array, "3"], t: Float[Array, ""]) -> Float[Array, ""]:
    """t after one step of Newton's method."""
    shrunk = a * a + t
    u = a * p / shrunk
    s2 = dot(u, u)
    zero = s2 == 0
    slope = dot(u, u / shrunk)
    step = s2 * (jnp.sqrt(jnp.where(zero, 1.0, s2)) - 1) / jnp.where(zero, 1.0, slope)
    return t + step

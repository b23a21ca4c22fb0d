"""Solids of one formula."""

import itertools
from typing import Annotated

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ..._compiler import floating_dtype, to_jax
from ..._coordinates import components, dot
from ..._inputs import Number, Vector, checked, positive
from .base import AbstractConvexShape, Face, clamped, rim


class Sphere(AbstractConvexShape):
    """A ball centred at the origin of its frame.

    **Fields:** `radius` [m].
    """

    radius: Float[Array, ""]

    @checked
    def __init__(self, radius: Annotated[Number, positive]):
        """**Arguments:** `radius`: > 0 [m]."""
        self.radius = to_jax(radius, floating_dtype(radius))

    @property
    def margin(self):
        return self.radius

    def support(self, d):
        return jnp.zeros_like(d)

    def nearest(self, p):
        return jnp.zeros_like(p)

    def feet(self, down):
        return jnp.zeros_like(down)[None]

    def face(self, d):
        """The farthest point."""
        return Face(self.radius * d[None], self.radius)


class AbstractRod(AbstractConvexShape):
    """A round solid along the z axis, whose middle is the origin."""

    radius: Float[Array, ""]
    length: Float[Array, ""]

    @checked
    def __init__(self, *, radius: Annotated[Number, positive], length: Annotated[Number, positive]):
        """**Arguments:** both > 0 [m], as in `Inertia.capsule` and `Inertia.cylinder`."""
        dtype = floating_dtype(radius, length)
        self.radius, self.length = to_jax(radius, dtype), to_jax(length, dtype)

    @property
    def half_length(self):
        """Half the length [m]."""
        return self.length / 2


class Capsule(AbstractRod):
    """A cylinder between two half balls: all points within `radius` of a segment of this `length`
    along the z axis, whose middle is the origin.

    **Fields:** `radius` [m]; `length` of the segment [m], without the half balls.
    """

    @property
    def margin(self):
        return self.radius

    def support(self, d):
        o = jnp.zeros_like(d[0])
        return jnp.stack([o, o, jnp.where(d[2] < 0, -self.half_length, self.half_length)])

    def nearest(self, p):
        o = jnp.zeros_like(p[0])
        return jnp.stack([o, o, clamped(p[2], self.half_length)])

    def feet(self, down):
        """The ends of the segment."""
        del down
        o = jnp.zeros_like(self.half_length)
        end = jnp.stack([o, o, self.half_length])
        return jnp.stack([end, -end])

    def face(self, d):
        """The line on the side."""
        return Face(self.feet(d) + self.radius * d[None], self.radius)


_SIGNS = np.array(list(itertools.product((-1.0, 1.0), repeat=3)))


class Box(AbstractConvexShape):
    """A block centred at the origin of its frame, with its edges along the axes.

    **Fields:** `size`: the lengths of the edges along x, y and z, shape `(3,)` [m].
    """

    size: Float[Array, "3"]

    @checked
    def __init__(self, *, size: Annotated[Vector, positive]):
        """**Arguments:** `size`: three numbers > 0 [m], as in `Inertia.box`."""
        self.size = to_jax(size, floating_dtype(size))

    @property
    def half_sizes(self):
        """The farthest coordinates along x, y and z [m]."""
        return self.size / 2

    @property
    def margin(self):
        return to_jax(np.zeros(()), self.size.dtype)

    def support(self, d):
        return jnp.where(d < 0, -self.half_sizes, self.half_sizes)

    def nearest(self, p):
        return clamped(p, self.half_sizes)

    def feet(self, down):
        """The eight corners."""
        del down
        return jnp.asarray(_SIGNS, self.size.dtype) * self.half_sizes[None]

    def face(self, d):
        """The face most nearly normal to d."""
        chosen = jnp.arange(3) == jnp.argmax(jnp.abs(d))
        last, x, y = (jnp.where(jnp.roll(chosen, k), self.half_sizes, 0.0) for k in (0, 1, 2))
        center = jnp.where(d < 0, -last, last)
        corners = jnp.stack([center + x + y, center - x + y, center - x - y, center + x - y])
        return Face(corners, self.margin)


# The corners of a face: points of the unit circle on an end, z / half_length on the side.
_ANGLES = np.pi / 4 * np.arange(8)
_RIM = np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], axis=1)
_ENDS = np.repeat([-1.0, 1.0], 4)


class Cylinder(AbstractRod):
    """A solid cylinder about the z axis, whose middle is the origin.

    **Fields:** `radius` [m]; `length` [m].
    """

    @property
    def margin(self):
        return to_jax(np.zeros(()), self.radius.dtype)

    def support(self, d):
        z = jnp.where(d[2] < 0, -self.half_length, self.half_length)
        return jnp.concatenate([rim(self.radius, d)[0], z[None]])

    def nearest(self, p):
        x, y, z = components(p)
        rho2 = x * x + y * y
        beyond = rho2 > self.radius * self.radius
        inward = jnp.where(beyond, self.radius / jnp.sqrt(jnp.where(beyond, rho2, 1.0)), 1.0)
        return jnp.stack([inward * x, inward * y, clamped(z, self.half_length)])

    def feet(self, down):
        """On the rim of each end, the deepest point and those a quarter, half and three quarters of
        a turn on. A standing cylinder rests on four points, a lying one on two."""
        points = rim(self.radius, down)
        z = jnp.ones_like(points[:, :1]) * self.half_length
        return jnp.concatenate(
            [jnp.concatenate([points, z], axis=1), jnp.concatenate([points, -z], axis=1)]
        )

    def face(self, d):
        """Eight points on the rim of an end, or the line on the side."""
        x, y, z = components(d)
        flat = z * z > 0.5
        across = jnp.sqrt(jnp.where(flat, 1.0, x * x + y * y))
        end = jnp.where(z < 0, -self.half_length, self.half_length)
        lying = self.radius / across * jnp.stack([x, y])
        standing = jnp.asarray(_RIM, d.dtype) * self.radius
        xy = jnp.where(flat, standing, lying[None])
        z = jnp.where(flat, end, jnp.asarray(_ENDS, d.dtype) * self.half_length)
        corners = jnp.concatenate([xy, z[:, None]], axis=1)
        return Face(corners, jnp.where(flat, 0.0, self.radius))


_ITERATIONS = 8


class Ellipsoid(AbstractConvexShape):
    """A solid ellipsoid centred at the origin of its frame.

    **Fields:** `semiaxes` along x, y and z, shape `(3,)` [m].
    """

    semiaxes: Float[Array, "3"]

    @checked
    def __init__(self, *, semiaxes: Annotated[Vector, positive]):
        """**Arguments:** `semiaxes`: three numbers > 0 [m], as in `Inertia.ellipsoid`."""
        self.semiaxes = to_jax(semiaxes, floating_dtype(semiaxes))

    @property
    def margin(self):
        return to_jax(np.zeros(()), self.semiaxes.dtype)

    def support(self, d):
        scaled = self.semiaxes * d
        norm2 = jnp.sum(scaled * scaled)
        zero = norm2 == 0
        return self.semiaxes * scaled / jnp.sqrt(jnp.where(zero, 1.0, norm2))

    def nearest(self, p):
        """p_i a_i^2 / (a_i^2 + t) along each axis, with the t >= 0 that puts a p outside on the
        surface, and t = 0 for a p inside.

        t is the root of 1 - 1/s, s = |a_i p_i / (a_i^2 + t)|, a convex and nearly linear function.
        Newton's method finds it from below (Hebden, An algorithm for minimization using exact
        second derivatives, 1973). Derivatives are those of one more step."""
        a, q = lax.stop_gradient((self.semiaxes, p))
        # Lower bounds of the root: with the largest semi-axis for all axes, or with one term alone.
        least = jnp.sqrt(dot(a * q, a * q)) - jnp.max(a) ** 2
        t = jnp.maximum(jnp.maximum(jnp.max(jnp.abs(a * q) - a * a), least), 0.0)
        t = lax.fori_loop(0, _ITERATIONS, lambda _, t: jnp.maximum(_step(a, q, t), 0.0), t)
        t = _step(self.semiaxes, p, lax.stop_gradient(t))
        a2 = self.semiaxes * self.semiaxes
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

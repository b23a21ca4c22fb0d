"""Friction laws as sets: the impulses that one unit of normal impulse allows in a contact.

Of all impulses in its set, sliding friction is the one that dissipates most for the slip z (the
principle of maximum dissipation, Moreau 1974). Equivalently t = P(t - rho z) for any rho > 0, where
P is the orthogonal projection on the set times the normal impulse. Solvers need nothing else.
"""

import abc
from typing import Annotated

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._coordinates import length
from .._extensible import Extensible
from .._inputs import Range, checked
from .._types import Scalar


class AbstractFriction(Extensible):
    """A set of tangential impulses for unit normal impulse, star-shaped about 0."""

    @abc.abstractmethod
    def project(
        self, t: Float[Array, " k"], radius: Scalar, smoothing: Scalar | None
    ) -> Float[Array, " k"]:
        """Project t on `radius` times the set. With `smoothing` > 0 the projection is
        differentiable everywhere and wrong by O(`smoothing`). `None` means 0, known when
        tracing."""

    @abc.abstractmethod
    def support(self, z: Float[Array, " k"]) -> Scalar:
        """Return the greatest -z.t over the set: the power lost to the slip z per unit normal
        force."""

    @abc.abstractmethod
    def facets(self, k: int) -> np.ndarray | None:
        """Rows (c, -n) of the facets c - n.t >= 0, shape `(m, 1 + k)`; `None` for the ball."""


class Cone(AbstractFriction):
    """Coulomb's cone |t| <= mu n, the same in all directions."""

    def project(self, t, radius, smoothing):
        square = jnp.sum(t * t)
        if smoothing is None:
            size = _root(square)
            largest = jnp.where(size > radius, size, radius)
        else:
            # The smoothed maximum is above both.
            size = _root(square + smoothing**2)
            largest = (radius + size + _root((radius - size) ** 2 + 4 * smoothing**2)) / 2
        # Where both are 0, the contact has no friction, and any divisor will do. Where they are
        # equal otherwise, the ratio is 1: such a contact sticks, in its derivative too.
        return t * (radius / jnp.where(largest > 0, largest, 1.0))

    def support(self, z):
        return length(z)

    def facets(self, k):
        del k
        return None


def _clipped(x: Float[Array, "..."], most: Scalar) -> Float[Array, "..."]:
    """Return x between -most and most, of which `most` >= 0. The derivative is that of x at both
    ends, and 0 between ends that coincide."""
    inside = (jnp.abs(x) <= most) & (most > 0)
    return jnp.where(inside, x, jnp.sign(x) * most)


def _root(square: Scalar) -> Scalar:
    """Return the square root of a number >= 0, with derivative 0 at 0."""
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)


_even = Range("even and at least 4", lambda x: (x >= 4) & (x % 2 == 0))


@checked
class Pyramid(AbstractFriction):
    """A regular polygon in place of the circle, which makes the contact problem a linear
    complementarity problem. In one tangent direction it equals the cone.

    **Arguments:**

    - `directions`: number of corners, even and at least 4, the first one on the first tangent.
    - `circumscribed`: whether the polygon encloses the circle. Friction is then mu halfway between
      the corners and mu / cos(pi / directions) at the corners. By default the polygon is inscribed,
      as are Stewart and Trinkle's non-negative combinations of the directions: friction is mu at
      the corners and mu cos(pi / directions) halfway between them, 0.71 mu with four.

    Reference: Stewart and Trinkle (1996), An implicit time-stepping scheme for rigid body dynamics
    with inelastic collisions and Coulomb friction.
    """

    directions: Annotated[int, _even] = eqx.field(static=True, default=4)
    circumscribed: bool = eqx.field(static=True, default=False)

    def project(self, t, radius, smoothing):
        del smoothing
        if t.shape[0] == 1:
            return _clipped(t, radius)
        # Find the edge in whose sector t lies, project on its line, then clip to its ends.
        normals, reach, half = self._polygon()
        normals = jnp.asarray(normals, t.dtype)
        along = normals[:, 0] * t[0] + normals[:, 1] * t[1]
        n = normals[jnp.argmax(along)]
        side = jnp.stack([-n[1], n[0]])
        offset = side[0] * t[0] + side[1] * t[1]
        on_edge = reach * radius * n + _clipped(offset, half * radius) * side
        inside = (jnp.max(along) <= reach * radius) & (radius > 0)
        return jnp.where(inside, t, on_edge)

    def support(self, z):
        if z.shape[0] == 1:
            return jnp.abs(z[0])
        normals, reach, half = self._polygon()
        side = np.stack([-normals[:, 1], normals[:, 0]], axis=1)
        corners = jnp.asarray(reach * normals + half * side, z.dtype)
        return jnp.max(-(corners[:, 0] * z[0] + corners[:, 1] * z[1]))

    def facets(self, k):
        if k == 1:
            return np.array([[1.0, -1.0], [1.0, 1.0]])
        normals, reach, _ = self._polygon()
        return np.concatenate([np.full((self.directions, 1), reach), -normals], axis=1)

    def _polygon(self) -> tuple[np.ndarray, float, float]:
        """Return normals, distance and half length of the edges, for unit radius."""
        angle = np.pi / self.directions
        size = 1 / np.cos(angle) if self.circumscribed else 1.0
        turns = angle * (2 * np.arange(self.directions) + 1)
        normals = np.stack([np.cos(turns), np.sin(turns)], axis=1)
        return normals, float(size * np.cos(angle)), float(size * np.sin(angle))

"""Friction laws as sets: the impulses in a contact that one unit of normal impulse allows.

Sliding friction takes, of all impulses in its set, the one that takes most energy out of the slip z
(the principle of maximum dissipation, Moreau 1974). Equivalently t = P(t - rho z) for any rho > 0,
with the orthogonal projection P on the set times the normal impulse, which is all that the solvers
need to know.
"""

import abc
from typing import Annotated

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._coordinates import length
from .._inputs import Range, checked
from .._types import Scalar


class AbstractFriction(eqx.Module):
    """A set of tangential impulses, star-shaped about 0, of size 1."""

    @abc.abstractmethod
    def project(
        self, t: Float[Array, " k"], radius: Scalar, smoothing: Scalar | None
    ) -> Float[Array, " k"]:
        """The point of `radius` times the set that is nearest to t; within O(smoothing), and then
        differentiable everywhere, with `smoothing` > 0; `None` is 0, and known when tracing."""

    @abc.abstractmethod
    def support(self, z: Float[Array, " k"]) -> Scalar:
        """The greatest -z.t over the set: the power that the slip z loses to unit normal force."""

    @abc.abstractmethod
    def facets(self, k: int) -> np.ndarray | None:
        """Rows (c, -n) of the facets, c - n.t >= 0, shape `(m, 1 + k)`; `None` for the ball."""


class Cone(AbstractFriction):
    """Coulomb's cone, the same in all directions: |t| <= mu n."""

    def project(self, t, radius, smoothing):
        square = jnp.sum(t * t)
        if smoothing is None:
            largest = jnp.maximum(radius, _root(square))
        else:
            # The smoothed maximum is above both.
            size = _root(square + smoothing**2)
            largest = (radius + size + _root((radius - size) ** 2 + 4 * smoothing**2)) / 2
        # Without friction, where both are 0, any divisor will do. Without a tangential impulse the
        # ratio is 1: such a contact sticks, in its derivative too.
        return t * (radius / jnp.where(largest > 0, largest, 1.0))

    def support(self, z):
        return length(z)

    def facets(self, k):
        del k
        return None


def _root(square: Scalar) -> Scalar:
    """Of a number >= 0, with the derivative 0 at 0."""
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)


_even = Range("even and at least 4", lambda x: (x >= 4) & (x % 2 == 0))


@checked
class Pyramid(AbstractFriction):
    """A regular polygon in place of the circle, which makes the problem a linear complementarity
    problem; in one tangent direction it is the same as the cone.

    **Arguments:**

    - `directions`: number of corners, even and at least 4, the first one on the first tangent.
    - `circumscribed`: whether the polygon encloses the circle, so that friction reaches mu between
      the corners and exceeds it by 1 / cos(pi / directions) in their direction. By default it is
      inscribed, as with Stewart and Trinkle's non-negative combinations of the directions: mu at
      the corners, and cos(pi / directions) mu half-way between them, which is 0.71 mu with four.

    Reference: Stewart and Trinkle (1996), An implicit time-stepping scheme for rigid body dynamics
    with inelastic collisions and Coulomb friction.
    """

    directions: Annotated[int, _even] = eqx.field(static=True, default=4)
    circumscribed: bool = eqx.field(static=True, default=False)

    def project(self, t, radius, smoothing):
        del smoothing
        if t.shape[0] == 1:
            return jnp.clip(t, -radius, radius)
        # Of all edges the one in whose sector t lies; there to the edge, then along it to its ends.
        normals, reach, half = self._polygon()
        normals = jnp.asarray(normals, t.dtype)
        along = normals[:, 0] * t[0] + normals[:, 1] * t[1]
        n = normals[jnp.argmax(along)]
        beyond = jnp.maximum(jnp.max(along) - reach * radius, 0.0)
        side = jnp.stack([-n[1], n[0]])
        offset = side[0] * t[0] + side[1] * t[1]
        on_edge = reach * radius * n + jnp.clip(offset, -half * radius, half * radius) * side
        return jnp.where(beyond > 0, on_edge, t)

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
        """Normals of the edges, their distance, and half their length, for unit radius."""
        angle = np.pi / self.directions
        size = 1 / np.cos(angle) if self.circumscribed else 1.0
        turns = angle * (2 * np.arange(self.directions) + 1)
        normals = np.stack([np.cos(turns), np.sin(turns)], axis=1)
        return normals, float(size * np.cos(angle)), float(size * np.sin(angle))

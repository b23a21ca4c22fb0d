"""Coordinates of many free bodies, and their positions and axes."""

from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._coordinates import AbstractCoordinates, body_axes
from .._results import RESULTS
from .._types import Coordinates
from .body import BODY_COORDINATES


def each(fn):
    """Map a function of one element over all, with the component axis first and the element axis
    last. With this structure of arrays the code of XLA is fastest."""
    return jax.vmap(fn, in_axes=-1, out_axes=-1)


class BodyIndices(NamedTuple):
    """Indices of one body's components in q and v.

    **Fields:**

    - `position` [m]: 3 of q; `orientation`: the unit quaternion (w, x, y, z), 4 of q.
    - `linear` [m/s]: the velocity of the origin of the body, 3 of v; `angular` [rad/s]: 3 of v.
    - `q`, `v`: all of each.

    In a plane there are 2 positions and 2 velocities along its axes, 1 angle [rad] and 1 angular
    velocity.
    """

    position: np.ndarray
    orientation: np.ndarray
    linear: np.ndarray
    angular: np.ndarray

    @property
    def q(self) -> np.ndarray:
        return np.concatenate([self.position, self.orientation])

    @property
    def v(self) -> np.ndarray:
        return np.concatenate([self.linear, self.angular])


class Bodies(AbstractCoordinates):
    """Kinematic map of `count` free bodies. q is a (7, count) array and v a (6, count) array, both
    flattened: component by component, each for all bodies."""

    count: int = eqx.field(static=True)

    @property
    def nq(self) -> int:
        return 7 * self.count

    @property
    def nv(self) -> int:
        return 6 * self.count

    def qdot(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nq"]:
        return each(BODY_COORDINATES.qdot)(self.table(q), self.table(v)).ravel()

    def retract(self, q: Float[Array, " nq"], dp: Float[Array, " nv"]) -> Float[Array, " nq"]:
        return each(BODY_COORDINATES.retract)(self.table(q), self.table(dp)).ravel()

    def difference(self, q0: Float[Array, " nq"], q1: Float[Array, " nq"]) -> Float[Array, " nv"]:
        return each(BODY_COORDINATES.difference)(self.table(q0), self.table(q1)).ravel()

    def normalise(self, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
        return each(BODY_COORDINATES.normalise)(self.table(q)).ravel()

    def result(self, q: Float[Array, " nq"]) -> RESULTS:
        norm2 = jnp.sum(self.table(q)[3:] ** 2, axis=0)
        usable = jnp.all((norm2 > 0.25) & (norm2 < 4))  # False for NaN
        return RESULTS.where(usable, RESULTS.successful, RESULTS.invalid_coordinates)

    def indices(self, i: int) -> BodyIndices:
        """Indices of body i."""
        own = i + self.count * np.arange(7)
        return BodyIndices(own[:3], own[3:], own[:3], own[3:6])

    def table(self, x: Float[Array, " n"]) -> Float[Array, "components count"]:
        """x as a table with one column for each body."""
        return x.reshape(-1, self.count)


class FlatBodies(AbstractCoordinates):
    """Coordinates of `count` free bodies in a plane, whose rates are the velocities. q and v are
    (3, count) arrays, both flattened: x, y and angle of all bodies one after the other."""

    count: int = eqx.field(static=True)

    @property
    def nq(self) -> int:
        return 3 * self.count

    @property
    def nv(self) -> int:
        return 3 * self.count

    def qdot(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nq"]:
        del q
        return v

    def retract(self, q: Float[Array, " nq"], dp: Float[Array, " nv"]) -> Float[Array, " nq"]:
        return q + dp

    def difference(self, q0: Float[Array, " nq"], q1: Float[Array, " nq"]) -> Float[Array, " nv"]:
        return q1 - q0

    def normalise(self, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
        return q

    def result(self, q: Float[Array, " nq"]) -> RESULTS:
        del q
        return RESULTS.successful

    def indices(self, i: int) -> BodyIndices:
        """Indices of body i."""
        own = i + self.count * np.arange(3)
        return BodyIndices(own[:2], own[2:], own[:2], own[2:])

    def table(self, x: Float[Array, " n"]) -> Float[Array, "components count"]:
        """x as a table with one column for each body."""
        return x.reshape(-1, self.count)


class Placed(NamedTuple):
    """The coordinates of all bodies, split once for all functions of them. So reverse mode joins
    their derivatives once. The body axis is last; that of one body has none.

    - `position`: of the origins [m].
    - `orientation`: quaternions.
    - `axes`: axes of the bodies in world axes, as columns.
    """

    position: Float[Array, "3 *bodies"]
    orientation: Float[Array, "4 *bodies"]
    axes: Float[Array, "3 3 *bodies"]

    @classmethod
    def of(cls, table: Float[Array, "7 *bodies"]) -> "Placed":
        """Split the table of q."""
        position, orientation = jnp.split(table, [3])
        return cls(position, orientation, body_axes(orientation))

    @property
    def table(self) -> Float[Array, "7 *bodies"]:
        """The table of q."""
        return jnp.concatenate([self.position, self.orientation])

    @property
    def dtype(self) -> np.dtype:
        return self.position.dtype


class PlacedFlat(NamedTuple):
    """The same in a plane: `table`, the table of q, and cosine and sine of half the angles."""

    table: Float[Array, "3 bodies"]
    half_cos: Float[Array, " bodies"]
    half_sin: Float[Array, " bodies"]

    @classmethod
    def of(cls, table: Float[Array, "3 bodies"]) -> "PlacedFlat":
        """From the table of q."""
        return cls(table, jnp.cos(table[2] / 2), jnp.sin(table[2] / 2))

    @property
    def cos_sin(self) -> tuple[Float[Array, " bodies"], Float[Array, " bodies"]]:
        """Cosine and sine of the angles."""
        c, s = self.half_cos, self.half_sin
        return c * c - s * s, 2 * c * s

    @property
    def dtype(self) -> np.dtype:
        return self.table.dtype


# q as a vector, or split.
Configuration: TypeAlias = Coordinates | Placed | PlacedFlat

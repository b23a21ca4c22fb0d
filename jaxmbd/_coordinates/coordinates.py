"""Coordinates q of a system, and what their velocities v are."""

import abc
from collections.abc import Sequence
from itertools import accumulate
from typing import Annotated

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .._extensible import Extensible
from .._inputs import at_least, checked, positive
from .._results import RESULTS, first_failure
from .algebra import dot, quaternion_rate
from .rotation import (
    cross,
    quaternion_conjugate,
    quaternion_exp,
    quaternion_log,
    quaternion_product,
    quaternion_to_rpy,
    rpy_to_quaternion,
)


class AbstractCoordinates(Extensible):
    """A kinematic map q' = N(q) v, from nv velocities to the rates of nq coordinates."""

    @property
    @abc.abstractmethod
    def nq(self) -> int | None:
        """Number of coordinates; None for any number."""

    @property
    @abc.abstractmethod
    def nv(self) -> int | None:
        """Number of velocities; None for any number."""

    @abc.abstractmethod
    def qdot(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nq"]:
        """Coordinate rates N(q) v, linear in v."""

    @abc.abstractmethod
    def retract(self, q: Float[Array, " nq"], dp: Float[Array, " nv"]) -> Float[Array, " nq"]:
        """Coordinates after the finite displacement dp, a constant velocity times a time.

        The derivative at dp = 0 is N(q), and rotations stay rotations whatever the size of dp.
        """

    @abc.abstractmethod
    def difference(self, q0: Float[Array, " nq"], q1: Float[Array, " nq"]) -> Float[Array, " nv"]:
        """The displacement dp that leads from q0 to q1, the shortest one:
        `retract(q0, difference(q0, q1))` is q1."""

    @abc.abstractmethod
    def normalise(self, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
        """The valid coordinates nearest to q, e.g. the unit quaternion in its direction."""

    @abc.abstractmethod
    def result(self, q: Float[Array, " nq"]) -> RESULTS:
        """The verdict on the coordinates at q: `RESULTS.successful`, or what is wrong."""


@checked
class Plain(AbstractCoordinates):
    """Coordinates whose rates are the velocities: q' = v, nq = nv = n.

    For positions (m), joint angles (rad) and all other coordinates that add like vectors.
    `Plain(3)` also serves for roll-pitch-yaw angles with their rates as velocities.

    **Arguments:**

    - `n`: number of coordinates; `None` for as many as q has.
    """

    n: Annotated[int | None, at_least(0)] = eqx.field(static=True, default=None)

    @property
    def nq(self) -> int | None:
        return self.n

    @property
    def nv(self) -> int | None:
        return self.n

    def qdot(self, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, " n"]:
        del q
        return v

    def retract(self, q: Float[Array, " n"], dp: Float[Array, " n"]) -> Float[Array, " n"]:
        return q + dp

    def difference(self, q0: Float[Array, " n"], q1: Float[Array, " n"]) -> Float[Array, " n"]:
        return q1 - q0

    def normalise(self, q: Float[Array, " n"]) -> Float[Array, " n"]:
        return q

    def result(self, q: Float[Array, " n"]) -> RESULTS:
        del q
        return RESULTS.successful


class Product(AbstractCoordinates):
    """Several kinematic maps in one: q and v are the coordinates and velocities of the parts, one
    after the other.

    A free body with its position (m) and its quaternion, and its velocity (m/s) and angular
    velocity (rad/s), is

        mbd.Product(mbd.Plain(3), mbd.QuaternionWorld())    # nq = 7, nv = 6

    **Arguments:**

    - `parts`: kinematic maps of known size.
    """

    parts: tuple[AbstractCoordinates, ...]

    @checked
    def __init__(self, *parts: AbstractCoordinates):
        for part in parts:
            if part.nq is None or part.nv is None:
                raise ValueError(
                    f"Argument `parts` must have known sizes, but {part} has not: "
                    "give the number of coordinates, as in `Plain(3)`."
                )
        self.parts = parts

    @property
    def nq(self) -> int:
        return sum(self._nqs())

    @property
    def nv(self) -> int:
        return sum(self._nvs())

    def qdot(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nq"]:
        qs, vs = _split(q, self._nqs(), "q"), _split(v, self._nvs(), "v")
        return jnp.concatenate([part.qdot(*x) for part, *x in zip(self.parts, qs, vs, strict=True)])

    def retract(self, q: Float[Array, " nq"], dp: Float[Array, " nv"]) -> Float[Array, " nq"]:
        qs, dps = _split(q, self._nqs(), "q"), _split(dp, self._nvs(), "dp")
        return jnp.concatenate(
            [part.retract(*x) for part, *x in zip(self.parts, qs, dps, strict=True)]
        )

    def difference(self, q0: Float[Array, " nq"], q1: Float[Array, " nq"]) -> Float[Array, " nv"]:
        q0s, q1s = _split(q0, self._nqs(), "q0"), _split(q1, self._nqs(), "q1")
        return jnp.concatenate(
            [part.difference(*x) for part, *x in zip(self.parts, q0s, q1s, strict=True)]
        )

    def normalise(self, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
        qs = _split(q, self._nqs(), "q")
        return jnp.concatenate([part.normalise(x) for part, x in zip(self.parts, qs, strict=True)])

    def result(self, q: Float[Array, " nq"]) -> RESULTS:
        qs = _split(q, self._nqs(), "q")
        return first_failure(*(part.result(x) for part, x in zip(self.parts, qs, strict=True)))

    def _nqs(self) -> list[int]:
        return [part.nq or 0 for part in self.parts]

    def _nvs(self) -> list[int]:
        return [part.nv or 0 for part in self.parts]


def _split(x: Float[Array, " n"], sizes: Sequence[int], name: str) -> list[Array]:
    if x.shape != (sum(sizes),):
        raise ValueError(
            f"Argument `{name}` must have shape ({sum(sizes)},), the sum of the parts' "
            f"sizes {list(sizes)}, but has shape {x.shape}."
        )
    return jnp.split(x, list(accumulate(sizes))[:-1])


class _AbstractQuaternion(AbstractCoordinates):
    @property
    def nq(self) -> int:
        return 4

    @property
    def nv(self) -> int:
        return 3

    def normalise(self, q: Float[Array, "4"]) -> Float[Array, "4"]:
        norm2 = jnp.sum(q * q)
        return q / jnp.sqrt(jnp.where(norm2 > 0, norm2, 1.0))

    def result(self, q: Float[Array, "4"]) -> RESULTS:
        norm2 = jnp.sum(q * q)
        usable = (norm2 > 0.25) & (norm2 < 4)  # False for NaN
        return RESULTS.where(usable, RESULTS.successful, RESULTS.invalid_coordinates)


class QuaternionWorld(_AbstractQuaternion):
    """Orientation as a unit quaternion, with the angular velocity in world axes as velocity.

    p' = 1/2 (0, omega_world) p, with q = p = (w, x, y, z), scalar first, from body to world axes,
    and v = omega_world in rad/s. A finite displacement is p+ = exp(dp) p. |p| is a first integral
    of p'. `normalise` corrects the error that a scheme makes in it. |p| outside of 1/2 ... 2 is
    reported as `RESULTS.invalid_coordinates`.

    Reference: Nikravesh, *Computer-Aided Analysis of Mechanical Systems* (1988), chapter 6, Euler
    parameters.
    """

    def qdot(self, q: Float[Array, "4"], v: Float[Array, "3"]) -> Float[Array, "4"]:
        return quaternion_rate(q, v)

    def retract(self, q: Float[Array, "4"], dp: Float[Array, "3"]) -> Float[Array, "4"]:
        return quaternion_product(quaternion_exp(dp), q)

    def difference(self, q0: Float[Array, "4"], q1: Float[Array, "4"]) -> Float[Array, "3"]:
        return quaternion_log(quaternion_product(q1, quaternion_conjugate(q0)))


class QuaternionBody(_AbstractQuaternion):
    """Orientation as a unit quaternion, with the angular velocity in body axes as velocity.

    p' = 1/2 p (0, omega_body), with q = p = (w, x, y, z), scalar first, from body to world axes,
    and v = omega_body in rad/s; the inertia matrix is then constant. The new orientation after a
    finite displacement is p exp(dp). Otherwise as `QuaternionWorld`.
    """

    def qdot(self, q: Float[Array, "4"], v: Float[Array, "3"]) -> Float[Array, "4"]:
        w, u = lax.split(q, (1, 3))
        return jnp.concatenate([-dot(u, v)[None], w * v + cross(u, v)]) / 2

    def retract(self, q: Float[Array, "4"], dp: Float[Array, "3"]) -> Float[Array, "4"]:
        return quaternion_product(q, quaternion_exp(dp))

    def difference(self, q0: Float[Array, "4"], q1: Float[Array, "4"]) -> Float[Array, "3"]:
        return quaternion_log(quaternion_product(quaternion_conjugate(q0), q1))


class _AbstractRollPitchYaw(AbstractCoordinates):
    tolerance: eqx.AbstractVar[float]

    @property
    def nq(self) -> int:
        return 3

    @property
    def nv(self) -> int:
        return 3

    def normalise(self, q: Float[Array, "3"]) -> Float[Array, "3"]:
        return q

    def result(self, q: Float[Array, "3"]) -> RESULTS:
        locked = jnp.abs(jnp.cos(q[1])) < self.tolerance
        return RESULTS.where(locked, RESULTS.gimbal_lock, RESULTS.successful)


@checked
class RollPitchYawWorld(_AbstractRollPitchYaw):
    """Orientation as roll, pitch and yaw, with the angular velocity in world axes as velocity.

    q = (roll, pitch, yaw) in rad gives R = Rz(yaw) Ry(pitch) Rx(roll) from body to world axes;
    v = omega_world in rad/s:

        roll'  = (cos(yaw) v_x + sin(yaw) v_y) / cos(pitch)
        pitch' = -sin(yaw) v_x + cos(yaw) v_y
        yaw'   = v_z + sin(pitch) roll'

    At gimbal lock, cos(pitch) = 0, no rates exist for a general omega. There `result` returns
    `RESULTS.gimbal_lock`, and the values stay finite. `QuaternionWorld` has no such singularity.
    With the rates themselves as velocities, use `Plain(3)`.

    A finite displacement is the exact rotation exp(dp) R, given by the angles nearest to q. They
    continue beyond +-pi.

    **Arguments:**

    - `tolerance`: |cos(pitch)| below this is gimbal lock.
    """

    tolerance: Annotated[float, positive] = eqx.field(static=True, default=1e-6)

    def qdot(self, q: Float[Array, "3"], v: Float[Array, "3"]) -> Float[Array, "3"]:
        (_, sp, sy), (_, cp, cy) = jnp.sin(q), jnp.cos(q)
        x, y, z = v
        roll_rate = (cy * x + sy * y) / _nonzero(cp, self.tolerance)
        return jnp.stack([roll_rate, cy * y - sy * x, z + sp * roll_rate])

    def retract(self, q: Float[Array, "3"], dp: Float[Array, "3"]) -> Float[Array, "3"]:
        p = quaternion_product(quaternion_exp(dp), rpy_to_quaternion(q))
        return _nearest(quaternion_to_rpy(p), q)

    def difference(self, q0: Float[Array, "3"], q1: Float[Array, "3"]) -> Float[Array, "3"]:
        p0, p1 = rpy_to_quaternion(q0), rpy_to_quaternion(q1)
        return quaternion_log(quaternion_product(p1, quaternion_conjugate(p0)))


@checked
class RollPitchYawBody(_AbstractRollPitchYaw):
    """Orientation as roll, pitch and yaw, with the angular velocity in body axes as velocity.

    q = (roll, pitch, yaw) in rad gives R = Rz(yaw) Ry(pitch) Rx(roll) from body to world axes;
    v = omega_body in rad/s:

        yaw'   = (sin(roll) v_y + cos(roll) v_z) / cos(pitch)
        pitch' = cos(roll) v_y - sin(roll) v_z
        roll'  = v_x + sin(pitch) yaw'

    A finite displacement is the exact rotation R exp(dp). Otherwise as `RollPitchYawWorld`.

    **Arguments:**

    - `tolerance`: |cos(pitch)| below this is gimbal lock.
    """

    tolerance: Annotated[float, positive] = eqx.field(static=True, default=1e-6)

    def qdot(self, q: Float[Array, "3"], v: Float[Array, "3"]) -> Float[Array, "3"]:
        (sr, sp, _), (cr, cp, _) = jnp.sin(q), jnp.cos(q)
        x, y, z = v
        yaw_rate = (sr * y + cr * z) / _nonzero(cp, self.tolerance)
        return jnp.stack([x + sp * yaw_rate, cr * y - sr * z, yaw_rate])

    def retract(self, q: Float[Array, "3"], dp: Float[Array, "3"]) -> Float[Array, "3"]:
        p = quaternion_product(rpy_to_quaternion(q), quaternion_exp(dp))
        return _nearest(quaternion_to_rpy(p), q)

    def difference(self, q0: Float[Array, "3"], q1: Float[Array, "3"]) -> Float[Array, "3"]:
        p0, p1 = rpy_to_quaternion(q0), rpy_to_quaternion(q1)
        return quaternion_log(quaternion_product(quaternion_conjugate(p0), p1))


def _nonzero(x: Float[Array, ""], tolerance: float) -> Float[Array, ""]:
    return jnp.where(jnp.abs(x) < tolerance, tolerance, x)


def _nearest(angles: Float[Array, "3"], q: Float[Array, "3"]) -> Float[Array, "3"]:
    """The angles of the same rotation that are nearest to q: up to whole turns, and to the flip
    (roll + pi, pi - pitch, yaw + pi)."""
    roll, pitch, yaw = angles
    flipped = jnp.stack([roll + jnp.pi, jnp.pi - pitch, yaw + jnp.pi])
    direct, flipped = _whole_turns(angles, q), _whole_turns(flipped, q)
    flip = jnp.sum((flipped - q) ** 2) < jnp.sum((direct - q) ** 2)
    return jnp.where(flip, flipped, direct)


def _whole_turns(angles: Float[Array, "3"], q: Float[Array, "3"]) -> Float[Array, "3"]:
    return angles + 2 * jnp.pi * jnp.round((q - angles) / (2 * jnp.pi))

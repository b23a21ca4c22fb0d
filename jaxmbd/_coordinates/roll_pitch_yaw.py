from typing import Annotated

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._inputs import checked, positive
from .._results import RESULTS
from .base import AbstractCoordinates
from .rotation import (
    quaternion_conjugate,
    quaternion_exp,
    quaternion_log,
    quaternion_product,
    quaternion_to_rpy,
    rpy_to_quaternion,
)


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

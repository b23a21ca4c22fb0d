import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .._results import RESULTS
from .algebra import dot, quaternion_rate
from .base import AbstractCoordinates
from .rotation import (
    cross,
    quaternion_conjugate,
    quaternion_exp,
    quaternion_log,
    quaternion_product,
)


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

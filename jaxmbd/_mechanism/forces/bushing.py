"""Bushings: elastic connections in all six directions."""

import math
from typing import ClassVar, Unpack

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._compiler import is_known
from ..._coordinates import cross, dot, quaternion_conjugate, quaternion_log, quaternion_product
from ..._inputs import Numbers, checked, finite, not_negative
from ..._types import DType
from ..body import Body
from ..frames import Frames
from ..glyphs import Glyph
from ..pose import Pose, Wrench
from .base import AbstractForce


class Bushing(AbstractForce):
    """Elastic connection in all six directions. With the deflection x = (d, phi) of b relative to
    a, its generalised force is

        f = preload - K x - C x',

    where d is the position of the origin of b in frame a, and phi the rotation vector from a to b:
    the unit axis, which has the same components in both frames, times the angle, at most pi. The
    force f[:3] and the torque G^T f[3:] act on b at its origin, in the axes of a, where
    phi' = G omega. For small rotations G = 1. With one stiffness k about all axes the elastic
    torque is -k phi, since G^T phi = phi. The opposite acts on a at the same point.

    The elastic part thus has the energy x.K x / 2 - preload.x for rotations of any size, and the
    damping dissipates x'.C x' >= 0. At half a turn phi jumps, and the torque with it.

    **Fields:**

    - `stiffness`: K, six values along and about the axes of a [N/m, N m/rad], or the full matrix
      `(6, 6)`.
    - `damping`: C likewise [N s/m, N m s/rad].
    - `preload`: f at x = 0, shape `(6,)` [N, N m].
    """

    stiffness: Float[Array, "6"] | Float[Array, "6 6"]
    damping: Float[Array, "6"] | Float[Array, "6 6"]
    preload: Float[Array, "6"]

    directed: ClassVar[bool] = False
    glyphs = (Glyph.CUSHION,)

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        stiffness: Numbers,
        damping: Numbers = (0.0,) * 6,
        preload: Numbers = (0.0,) * 6,
        **frames: Unpack[Frames],
    ):
        """**Arguments:** the fields; `frames` as in `Frames`. Without `axis` and
        `orientation` the axes of a are the world's in the present pose.

        **Raises:** `ValueError` for values that are negative or not finite, and for a matrix that
        is not symmetric and positive semidefinite. An unsymmetric stiffness or a negative damping
        would be a source of energy.
        """
        self._connect(name, a, b, frames)
        of = f'of Bushing "{name}"'
        self.stiffness = _matrix(f"`stiffness` {of}", stiffness, self.dtype)
        self.damping = _matrix(f"`damping` {of}", damping, self.dtype)
        self.preload = finite(f"`preload` {of}", preload, self.dtype, (6,))

    def wrench(self, a, b, twist_a, twist_b, t, u):
        del t, u
        x = _deflection(a, b)
        phi = x[3:]
        arm = b.position - a.position
        v = a.local_direction(twist_b.linear - twist_a.at(arm))
        omega = a.local_direction(twist_b.angular - twist_a.angular)
        c = _curvature(dot(phi, phi))

        def turn(y, sign):
            """G y for sign = -1, G^T y for 1."""
            once = cross(phi, y)
            return y + sign / 2 * once + c * cross(phi, once)

        rate = jnp.concatenate([v, turn(omega, -1)])
        f = self.preload - _times(self.stiffness, x) - _times(self.damping, rate)
        return Wrench(a.direction(f[:3]), a.direction(turn(f[3:], 1)))

    def energy(self, poses, t):
        del t
        x = _deflection(*poses)
        return jnp.sum((_times(self.stiffness, x) / 2 - self.preload) * x)


def _deflection(a: Pose, b: Pose) -> Float[Array, "6"]:
    turned = quaternion_product(quaternion_conjugate(a.orientation), b.orientation)
    return jnp.concatenate([a.local_point(b.position), quaternion_log(turned)])


def _curvature(s: Float[Array, ""]) -> Float[Array, ""]:
    """(1 - h cot h) / s with h = sqrt(s) / 2, an analytic function of s up to s = (2 pi)^2."""
    small = s < 1
    near = jnp.where(small, s, 0.0)
    series = jnp.zeros_like(s)
    for coefficient in reversed(_CURVATURE):
        series = series * near + coefficient
    far = jnp.where(small, 1.0, s)
    h = jnp.sqrt(far) / 2
    return jnp.where(small, series, (1 - h * jnp.cos(h) / jnp.sin(h)) / far)


# The coefficients |B_2k| / (2k)! = 2 zeta(2k) / (2 pi)^2k, with the Bernoulli numbers B_2k. There
# are enough of them for second derivatives in float64 up to s = 1.
_CURVATURE = [1 / 12, 1 / 720, 1 / 30240] + [
    2 * sum(n ** (-2.0 * k) for n in range(1, 50)) / (2 * math.pi) ** (2 * k) for k in range(4, 15)
]


def _times(A: Array, x: Float[Array, "6"]) -> Float[Array, "6"]:
    return A * x if A.ndim == 1 else jnp.sum(A * x[None], axis=1)


def _matrix(what: str, value: Numbers, dtype: DType) -> Array:
    if np.ndim(value) != 2:
        return not_negative(what, value, dtype, (6,))
    A = finite(what, value, dtype, (6, 6))
    if is_known(A):
        known = np.asarray(A, float)
        rounding = 1e2 * np.finfo(np.dtype(dtype)).eps * np.abs(known).max()
        symmetric = np.all(np.abs(known - known.T) <= rounding)
        if not symmetric or np.linalg.eigvalsh(known)[0] < -rounding:
            raise ValueError(
                f"{what} must be a symmetric, positive semidefinite matrix, but is\n{known}."
            )
    return A

"""Rotations as quaternions, matrices and angles.

A quaternion p = (w, x, y, z), scalar first, maps body to world axes: r_world = p r_body p*. Angles
are in rad. The arithmetic is in `algebra.py`. All functions accept leading axes and broadcast
them.
"""

import functools
from collections.abc import Callable
from typing import Annotated, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiler import refuted
from .._inputs import Refusal, checked
from . import algebra
from .algebra import inlined

_Function = TypeVar("_Function", bound=Callable)


def _over_leading_axes(*own: int) -> Callable[[_Function], _Function]:
    """Extend a function of arrays with these numbers of axes to leading axes. For a single sample
    the function runs as it is."""

    def extended(fn):
        single = inlined(fn)

        @inlined
        def batch(*arrays):
            shapes = [x.shape[: x.ndim - k] for x, k in zip(arrays, own, strict=True)]
            shape, over = jnp.broadcast_shapes(*shapes), fn
            for _ in shape:
                over = jax.vmap(over)
            tails = [x.shape[x.ndim - k :] for x, k in zip(arrays, own, strict=True)]
            return over(
                *(jnp.broadcast_to(x, shape + tail) for x, tail in zip(arrays, tails, strict=True))
            )

        @functools.wraps(fn)
        def over(*arrays):
            alone = all(x.ndim == k for x, k in zip(arrays, own, strict=True))
            return (single if alone else batch)(*arrays)

        return over

    return cast(Callable[[_Function], _Function], extended)


@inlined
def length(x: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
    """|x| along the last axis, with the derivative 0 at 0."""
    square = jnp.sum(x * x, axis=-1)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


@checked
@_over_leading_axes(1, 1)
def cross(a: Float[Array, "*#batch 3"], b: Float[Array, "*#batch 3"]) -> Float[Array, "*batch 3"]:
    """Vector product a x b."""
    return algebra.cross(a, b)


@checked
@_over_leading_axes(1)
def skew(a: Float[Array, "*batch 3"]) -> Float[Array, "*batch 3 3"]:
    """Matrix of the vector product: skew(a) @ b = a x b."""
    return algebra.skew(a)


@checked
@_over_leading_axes(1, 1)
def quaternion_product(
    a: Float[Array, "*#batch 4"], b: Float[Array, "*#batch 4"]
) -> Float[Array, "*batch 4"]:
    """Hamilton's product a b: the rotation b followed by the rotation a."""
    return algebra.quaternion_product(a, b)


@checked
@_over_leading_axes(1)
def quaternion_conjugate(p: Float[Array, "*batch 4"]) -> Float[Array, "*batch 4"]:
    """Conjugate p* = (w, -x, -y, -z). For a unit quaternion it is the inverse rotation."""
    return algebra.quaternion_conjugate(p)


@checked
@_over_leading_axes(1, 1)
def quaternion_rotate(
    p: Float[Array, "*#batch 4"], r: Float[Array, "*#batch 3"]
) -> Float[Array, "*batch 3"]:
    """Rotated vector p r p* = r + w t + u x t of a unit p = (w, u), where t = 2 u x r."""
    return algebra.quaternion_rotate(p, r)


@checked
@_over_leading_axes(1)
def quaternion_to_matrix(p: Float[Array, "*batch 4"]) -> Float[Array, "*batch 3 3"]:
    """Rotation matrix R of a unit quaternion, r_world = R r_body; its columns are the body axes."""
    return algebra.quaternion_to_matrix(p)


@checked
@_over_leading_axes(2)
def quaternion_from_matrix(R: Float[Array, "*batch 3 3"]) -> Float[Array, "*batch 4"]:
    """Unit quaternion of a rotation matrix, the one with w >= 0."""
    return algebra.quaternion_from_matrix(R)


@checked
@_over_leading_axes(1)
def quaternion_exp(phi: Float[Array, "*batch 3"]) -> Float[Array, "*batch 4"]:
    """Unit quaternion (cos(a/2), phi sin(a/2) / a) of the rotation vector phi, with a = |phi|.

    Values and derivatives of every order are right at phi = 0 too.
    """
    return algebra.quaternion_exp(phi)


def _not_all_zero(p: Array) -> Array:
    if refuted(lambda p: np.any(p, axis=-1), p):
        raise Refusal("must be a quaternion other than 0, which has no direction.")
    return p


@checked
@_over_leading_axes(1)
def quaternion_log(
    p: Annotated[Float[Array, "*batch 4"], _not_all_zero],
) -> Float[Array, "*batch 3"]:
    """Rotation vector phi of a quaternion, |phi| <= pi; the length of p has no influence.

    Derivatives are right at the identity too. At half a turn phi jumps to -phi.
    """
    return algebra.quaternion_log(p)


@checked
@_over_leading_axes(1)
def rpy_to_matrix(q: Float[Array, "*batch 3"]) -> Float[Array, "*batch 3 3"]:
    """Rotation matrix R = Rz(yaw) Ry(pitch) Rx(roll) of q = (roll, pitch, yaw)."""
    (sr, sp, sy), (cr, cp, cy) = jnp.sin(q), jnp.cos(q)
    return jnp.stack(
        [
            jnp.stack([cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr]),
            jnp.stack([sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr]),
            jnp.stack([-sp, cp * sr, cp * cr]),
        ]
    )


@checked
@_over_leading_axes(1)
def rpy_to_quaternion(q: Float[Array, "*batch 3"]) -> Float[Array, "*batch 4"]:
    """Unit quaternion of q = (roll, pitch, yaw): the rotation Rz(yaw) Ry(pitch) Rx(roll)."""
    (sr, sp, sy), (cr, cp, cy) = jnp.sin(q / 2), jnp.cos(q / 2)
    return jnp.stack(
        [
            cr * cp * cy + sr * sp * sy,
            sr * cp * cy - cr * sp * sy,
            cr * sp * cy + sr * cp * sy,
            cr * cp * sy - sr * sp * cy,
        ]
    )


@checked
@_over_leading_axes(1)
def quaternion_to_rpy(p: Float[Array, "*batch 4"]) -> Float[Array, "*batch 3"]:
    """(roll, pitch, yaw) of a unit quaternion, with |pitch| <= pi/2 and |roll|, |yaw| <= pi.

    Roll is read from Rz(yaw)^T R, so that the three angles together give the same rotation even at
    gimbal lock (|pitch| = pi/2). There yaw alone has no meaning and is 0, and derivatives are
    finite but meaningless.
    """
    R = quaternion_to_matrix(p)
    cp2 = R[0, 0] ** 2 + R[1, 0] ** 2
    locked = cp2 < jnp.finfo(p.dtype).eps ** 2
    cy = jnp.where(locked, 1.0, R[0, 0])
    sy = jnp.where(locked, 0.0, R[1, 0])
    yaw = jnp.arctan2(sy, cy)
    pitch = jnp.arctan2(-R[2, 0], jnp.where(locked, 0.0, jnp.sqrt(jnp.where(locked, 1.0, cp2))))
    sin_roll, cos_roll = sy * R[0, 2] - cy * R[1, 2], cy * R[1, 1] - sy * R[0, 1]
    return jnp.stack([jnp.arctan2(sin_roll, cos_roll), pitch, yaw])

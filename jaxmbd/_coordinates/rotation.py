"""Rotation algebra over components.

A quaternion p = (w, x, y, z), scalar first, maps body to world axes: r_world = p r_body p*.
Everything is sums of products of components, not `@`: forward-mode derivatives then multiply no
zero tangents, and `vmap` with the component axis first keeps the structure of arrays. Angles are in
rad.
"""

import math
from collections.abc import Callable
from typing import Annotated, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from .._fusion import once
from .._inputs import Refusal, checked

_Function = TypeVar("_Function", bound=Callable)


def _inlined(fn: _Function) -> _Function:
    """fn, traced and differentiated once for each shape and copied wherever it is called: the
    program is the same, but a mechanism calls these functions by the thousand."""
    return cast(_Function, jax.jit(fn, inline=True))


def components(x: Float[Array, "..."], axis: int = 0) -> list[Float[Array, "..."]]:
    """x[0], x[1], ..., or those along another axis: one operation, whose transpose in reverse mode
    is one stack, where as many slices become as many padded arrays and their sum."""
    return list(jnp.unstack(jnp.asarray(x), axis=axis))


@_inlined
def dot(a: Float[Array, "3"], b: Float[Array, "3"]) -> Float[Array, ""]:
    """Scalar product a . b."""
    ax, ay, az = components(a)
    bx, by, bz = components(b)
    return ax * bx + ay * by + az * bz


@_inlined
def length(x: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
    """|x| along the last axis, with the derivative 0 at 0."""
    square = jnp.sum(x * x, axis=-1)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


@checked
@_inlined
def cross(a: Float[Array, "3"], b: Float[Array, "3"]) -> Float[Array, "3"]:
    """Vector product a x b."""
    return cross_columns(a, b)


def cross_columns(a: Float[Array, "3 *rest"], b: Float[Array, "3 *rest"]) -> Array:
    """a x b, column by column."""
    (ax, ay, az), (bx, by, bz) = components(a), components(b)
    return jnp.stack([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx])


@checked
@_inlined
def skew(a: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """Matrix of the vector product: skew(a) @ b = a x b."""
    x, y, z = components(a)
    o = jnp.zeros_like(x)
    return jnp.stack([jnp.stack([o, -z, y]), jnp.stack([z, o, -x]), jnp.stack([-y, x, o])])


@checked
@_inlined
def quaternion_product(a: Float[Array, "4"], b: Float[Array, "4"]) -> Float[Array, "4"]:
    """Hamilton's product a b: the rotation b, then the rotation a."""
    aw, ax, ay, az = components(a)
    bw, bx, by, bz = components(b)
    return jnp.stack(
        [
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ]
    )


@checked
@_inlined
def quaternion_conjugate(p: Float[Array, "4"]) -> Float[Array, "4"]:
    """Conjugate p* = (w, -x, -y, -z), for a unit quaternion the inverse rotation."""
    w, x, y, z = components(p)
    return jnp.stack([w, -x, -y, -z])


@checked
@_inlined
def quaternion_rotate(p: Float[Array, "4"], r: Float[Array, "3"]) -> Float[Array, "3"]:
    """Rotated vector p r p* = r + w t + u x t of a unit p = (w, u), where t = 2 u x r."""
    w, x, y, z = components(p)
    rx, ry, rz = components(r)
    tx, ty, tz = 2 * (y * rz - z * ry), 2 * (z * rx - x * rz), 2 * (x * ry - y * rx)
    return jnp.stack(
        [
            rx + w * tx + y * tz - z * ty,
            ry + w * ty + z * tx - x * tz,
            rz + w * tz + x * ty - y * tx,
        ]
    )


@checked
@_inlined
def quaternion_to_matrix(p: Float[Array, "4"]) -> Float[Array, "3 3"]:
    """Rotation matrix R of a unit quaternion, r_world = R r_body; its columns are the body axes."""
    w, x, y, z = components(p)
    return jnp.stack(
        [
            jnp.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)]),
            jnp.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)]),
            jnp.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]),
        ]
    )


@jax.custom_jvp
def body_axes(p: Float[Array, "4 *count"]) -> Float[Array, "3 3 *count"]:
    """Rotation matrix of the quaternion p / |p|. Its derivatives are those of axes that turn,

        R' = theta x R,    theta = 2 vec(p' p*) / |p|^2,

    whatever |p|: six products for each axis, and no derivative of a square. It is computed once for
    all that the body carries."""
    w, x, y, z = components(p)
    s = 2 / (w * w + x * x + y * y + z * z)
    rows = (
        (1 - s * (y * y + z * z), s * (x * y - w * z), s * (x * z + w * y)),
        (s * (x * y + w * z), 1 - s * (x * x + z * z), s * (y * z - w * x)),
        (s * (x * z - w * y), s * (y * z + w * x), 1 - s * (x * x + y * y)),
    )
    return once(jnp.stack([jnp.stack(row) for row in rows]))


@body_axes.defjvp
def _body_axes_jvp(primals, tangents):
    (p,), (dp,) = primals, tangents
    R = body_axes(p)
    (w, x, y, z), (dw, dx, dy, dz) = components(p), components(dp)
    s = 2 / (w * w + x * x + y * y + z * z)
    a = s * (w * dx - x * dw + y * dz - z * dy)
    b = s * (w * dy - y * dw + z * dx - x * dz)
    c = s * (w * dz - z * dw + x * dy - y * dx)
    X, Y, Z = components(R)
    turned = [b[None] * Z - c[None] * Y, c[None] * X - a[None] * Z, a[None] * Y - b[None] * X]
    return R, jnp.stack(turned)


@_inlined
def apply_matrix(A: Float[Array, "3 3"], x: Float[Array, "3"]) -> Float[Array, "3"]:
    """A x."""
    return jnp.sum(A * x[None, :], axis=1)


@_inlined
def apply_transpose(A: Float[Array, "3 3"], x: Float[Array, "3"]) -> Float[Array, "3"]:
    """A^T x."""
    return jnp.sum(A * x[:, None], axis=0)


@checked
def quaternion_from_matrix(R: Float[Array, "3 3"]) -> Float[Array, "4"]:
    """Unit quaternion of a rotation matrix, the one with w >= 0.

    The entries of R give all products 4 p_i p_j. The row of that matrix with the largest diagonal
    entry (at least 1) is p up to a factor, so nothing cancels at any angle (Shepperd, "Quaternion
    from rotation matrix", Journal of Guidance and Control 1, 1978).
    """
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = map(components, components(R))
    products = jnp.stack(
        [
            jnp.stack([1 + xx + yy + zz, zy - yz, xz - zx, yx - xy]),
            jnp.stack([zy - yz, 1 + xx - yy - zz, xy + yx, xz + zx]),
            jnp.stack([xz - zx, xy + yx, 1 - xx + yy - zz, yz + zy]),
            jnp.stack([yx - xy, xz + zx, yz + zy, 1 - xx - yy + zz]),
        ]
    )
    row = products[jnp.argmax(jnp.diagonal(products))]
    p = row / jnp.sqrt(jnp.sum(row * row))
    return jnp.where(p[0] < 0, -p, p)


@checked
@_inlined
def quaternion_exp(phi: Float[Array, "3"]) -> Float[Array, "4"]:
    """Unit quaternion (cos(a/2), phi sin(a/2) / a) of the rotation vector phi, with a = |phi|.

    Both factors are entire functions of a^2, taken from their power series below 1 rad: values and
    derivatives of every order are right at phi = 0 too.
    """
    s = dot(phi, phi)
    series = s < 1
    x = jnp.where(series, s, 0.0) / 4
    half = jnp.sqrt(jnp.where(series, 1.0, s)) / 2
    by_series = _polynomial(x[None], np.stack([_COS, _SINC], axis=1))
    directly = jnp.stack([jnp.cos(half), jnp.sin(half) / half])
    w, factor = components(once(jnp.where(series, by_series, directly)))
    factor = factor / 2
    return jnp.concatenate([w[None], factor * phi])


def _not_all_zero(p: Array) -> Array:
    if not isinstance(p, Tracer) and not np.any(np.asarray(p)):
        raise Refusal("must be a quaternion other than 0, which has no direction.")
    return p


@checked
@_inlined
def quaternion_log(p: Annotated[Float[Array, "4"], _not_all_zero]) -> Float[Array, "3"]:
    """Rotation vector phi of a quaternion, |phi| <= pi; every multiple of p gives the same.

    With w >= 0, u = (x, y, z) and y = tan(|phi| / 4) = |u| / (|p| + w): phi = 4 atan(y) u / |u|.
    As y <= 1, the tangent is far from its poles, and the power series of atan(y) / y keeps the
    derivatives right at the identity. At half a turn phi jumps to -phi.
    """
    p = jnp.where(p[0] < 0, -p, p)
    w, u = p[0], p[1:]
    scale = w + jnp.sqrt(w * w + dot(u, u))
    s = dot(u, u) / (scale * scale)
    series = s < 0.01
    y = jnp.sqrt(jnp.where(series, 1.0, s))
    ratio = jnp.where(
        series, _polynomial(jnp.where(series, s, 0.0)[None], _ATAN[:, None])[0], jnp.arctan(y) / y
    )
    return 4 * ratio / scale * u


@checked
def rpy_to_matrix(q: Float[Array, "3"]) -> Float[Array, "3 3"]:
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
def rpy_to_quaternion(q: Float[Array, "3"]) -> Float[Array, "4"]:
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
def quaternion_to_rpy(p: Float[Array, "4"]) -> Float[Array, "3"]:
    """(roll, pitch, yaw) of a unit quaternion, with |pitch| <= pi/2 and |roll|, |yaw| <= pi.

    Roll is read from Rz(yaw)^T R, so that the three angles together give the same rotation even at
    gimbal lock (|pitch| = pi/2), where yaw alone has no meaning: there it is 0, and derivatives are
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


def _polynomial(x: Float[Array, "#n"], coefficients: np.ndarray) -> Float[Array, " n"]:
    """Of n polynomials, whose coefficients are columns, by Horner's rule."""
    value = jnp.broadcast_to(jnp.asarray(coefficients[-1], x.dtype), coefficients.shape[1:])
    for c in coefficients[-2::-1]:
        value = value * x + jnp.asarray(c, x.dtype)
    return value


# Power series in x of cos(sqrt(x)), sin(sqrt(x)) / sqrt(x) and atan(sqrt(x)) / sqrt(x): long enough
# for third derivatives in float64 where they are used, up to x = 1/4, 1/4 and 1/100.
_COS = np.array([(-1) ** k / math.factorial(2 * k) for k in range(11)])
_SINC = np.array([(-1) ** k / math.factorial(2 * k + 1) for k in range(11)])
_ATAN = np.array([(-1) ** k / (2 * k + 1) for k in range(11)])

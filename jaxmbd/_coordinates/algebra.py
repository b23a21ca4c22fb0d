"""Rotation algebra of a single vector or quaternion, or of many. Components are the first axis. Any
further axes, at the end, count the vectors.

A quaternion p = (w, x, y, z), scalar first, maps body to world axes: r_world = p r_body p*.
Everything is written as sums of products of components, not as `@`, so that forward-mode
derivatives do not multiply zero tangents. The axes of a body, which all its points share, and power
series have their own derivative rules: a table that is computed once, and a sum of products for
each tangent or cotangent. The functions that readers of files need serve NumPy's arrays too: these
stay NumPy's, in double precision, and nothing is compiled.

`rotation.py` has the public functions, which take single vectors and check them.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, ArrayLike, Float

from .._compiler import contracted, materialise, materialise_cotangent

# An argument, and a result from the same library, which static checkers take for one of JAX.
AnyArray: TypeAlias = Array | np.ndarray
if TYPE_CHECKING:
    SameArray: TypeAlias = Array
else:
    SameArray = AnyArray


def bilinear(
    name: str,
    product: Callable[[Array, Array], Array],
    left: Callable[[Array, Array], Array],
    right: Callable[[Array, Array], Array],
) -> Callable[[AnyArray, AnyArray], Array]:
    """`product(a, b)` as one operation. Along the first axis it has as many components as a and b;
    the other axes broadcast. For a cotangent c of the product, `left(c, b)` is the cotangent of a,
    and `right(a, c)` the cotangent of b.

    A vector product written in components is about fifteen operations. Its transposes are as many
    again for each factor, since JAX transposes each sum, slice and stack separately. As one
    bilinear primitive it is traced as one operation, and both cotangents are vector products too.
    The gradient of a mechanism then compiles in two thirds of the time.
    """
    primitive = Primitive(name)

    def along(fn, a, b, axis):
        # `vmap` may have moved the axis of the components.
        return jnp.moveaxis(fn(jnp.moveaxis(a, axis, 0), jnp.moveaxis(b, axis, 0)), 0, axis)

    def written_out(a, b, *, axis):
        return along(product, a, b, axis)

    def batched(operands, dims, *, axis):
        # `None` marks an operand without a batch axis.
        d, size = next(
            (d, x.shape[d]) for x, d in zip(operands, dims, strict=True) if d is not None
        )

        def with_batch(x, own):
            if own is not None:
                return jnp.moveaxis(x, own, d)
            shape = (*x.shape[:d], size, *x.shape[d:])
            return jnp.broadcast_to(jnp.expand_dims(x, d), shape)

        a, b = map(with_batch, operands, dims)
        return primitive.bind(a, b, axis=axis + (d <= axis)), d

    primitive.def_impl(jax.jit(written_out, static_argnames="axis"))
    primitive.def_abstract_eval(lambda a, b, *, axis: ShapedArray(a.shape, a.dtype))
    ad.defbilinear(
        primitive,
        lambda c, a, b, *, axis: along(left, materialise(c), b, axis),
        lambda c, a, b, *, axis: along(right, a, materialise(c), axis),
    )
    batching.primitive_batchers[primitive] = batched
    mlir.register_lowering(primitive, mlir.lower_fun(written_out, multiple_results=False))

    def of_one_shape(a, b):
        if library(a, b) is np:
            return product(a, b)
        shape = jnp.broadcast_shapes(a.shape, b.shape)
        dtype = jnp.result_type(a, b)
        a, b = (jnp.broadcast_to(x, shape).astype(dtype) for x in (a, b))
        return primitive.bind(a, b, axis=0)

    return of_one_shape


_Function = TypeVar("_Function", bound=Callable)

# Argument reduction: pi = _PI + _REST. Multiples of _PI are exact.
_PI, _REST = 3.140625, 9.67653589793116e-4

# Number of terms of the power series: enough for third derivatives in float64 over the range in
# which the series are used.
_TERMS = 13


def inlined(fn: _Function) -> _Function:
    """fn, traced and differentiated once for each shape and inlined at each call. The compiled
    program is the same, but tracing is faster: a mechanism calls these functions thousands of
    times."""
    return cast(_Function, jax.jit(fn, inline=True))


def library(*arrays: Any) -> Any:
    """NumPy if all arrays are its own, otherwise `jax.numpy`."""
    return np if all(isinstance(x, np.ndarray | np.generic) for x in arrays) else jnp


def components(x: Float[AnyArray, "..."], axis: int = 0) -> list[Float[SameArray, "..."]]:
    """x[0], x[1], ..., or the entries along another axis. This is one operation, and its transpose
    in reverse mode is one stack. The transpose of separate slices would be a sum of padded
    arrays."""
    if library(x) is np:
        parts = np.moveaxis(np.asarray(x), axis, 0)
        return [np.asarray(part) for part in parts]  # pyright: ignore[reportReturnType]
    return list(jnp.unstack(jnp.asarray(x), axis=axis))


@inlined
def dot(a: Float[AnyArray, "3 *#rest"], b: Float[AnyArray, "3 *#rest"]) -> Float[Array, "*rest"]:
    """a . b."""
    ax, ay, az = components(a)
    bx, by, bz = components(b)
    return ax * bx + ay * by + az * bz


def _cross(a, b):
    (ax, ay, az), (bx, by, bz) = components(a), components(b)
    return library(a, b).stack([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx])


# a x b.
cross = bilinear("cross", _cross, lambda c, b: cross(b, c), lambda a, c: cross(c, a))


@inlined
def skew(a: Float[Array, "3 *rest"]) -> Float[Array, "3 3 *rest"]:
    """The matrix of the vector product: skew(a) b = a x b."""
    x, y, z = components(a)
    o = jnp.zeros_like(x)
    return jnp.stack([jnp.stack([o, -z, y]), jnp.stack([z, o, -x]), jnp.stack([-y, x, o])])


@inlined
def apply_matrix(A: Float[Array, "m n *#rest"], x: Float[Array, "n *#rest"]) -> Array:
    """A x."""
    return contracted(A, x[None], 1)


@inlined
def apply_transpose(A: Float[Array, "n m *#rest"], x: Float[Array, "n *#rest"]) -> Array:
    """A^T x."""
    return contracted(A, x[:, None], 0)


@inlined
def matrix_product(A: Float[Array, "m n *#rest"], B: Float[Array, "n k *#rest"]) -> Array:
    """A B."""
    return contracted(A[:, :, None], B[None], 1)


def combined(axes: Sequence[Array], d: AnyArray) -> Float[Array, "3"]:
    """The vector with the components d along three axes."""
    (x, y, z), (e_x, e_y, e_z) = components(d), axes
    return materialise_cotangent(x * e_x + y * e_y + z * e_z)


def along_axes(axes: Sequence[Array], d: AnyArray) -> Float[Array, "3"]:
    """The components of d along three axes."""
    return materialise_cotangent(jnp.stack([dot(e, d) for e in axes]))


def _quaternion_product(a, b):
    aw, ax, ay, az = components(a)
    bw, bx, by, bz = components(b)
    return library(a, b).stack(
        [
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ]
    )


# a b.
quaternion_product = bilinear(
    "quaternion_product",
    _quaternion_product,
    lambda c, b: quaternion_product(c, quaternion_conjugate(b)),
    lambda a, c: quaternion_product(quaternion_conjugate(a), c),
)


def quaternion_conjugate(p: Float[AnyArray, "4 *rest"]) -> Float[SameArray, "4 *rest"]:
    """p*."""
    return library(p).concatenate([p[:1], -p[1:]])


def quaternion_rotate(
    p: Float[AnyArray, "4 *#rest"], r: Float[AnyArray, "3 *#rest"]
) -> Float[SameArray, "3 *rest"]:
    """p r p* = r + w t + u x t of a unit p = (w, u), where t = 2 u x r."""
    w, u = p[:1], p[1:]
    t = 2 * cross(u, r)
    return cast(Array, r) + w * t + cross(u, t)


def quaternion_about(axis: Float[AnyArray, "3"], angle: ArrayLike) -> Float[SameArray, "4"]:
    """The rotation by `angle` about a unit vector."""
    xp = library(axis, angle)
    half = xp.asarray(angle) / 2
    return xp.concatenate([xp.cos(half)[None], xp.sin(half) * axis])


def quaternion_along(axis: Float[AnyArray, "3"]) -> Float[SameArray, "4"]:
    """The shortest rotation of the z axis into a unit vector. If it points downwards, half a turn
    about x and then the shortest rotation from -z."""
    xp = library(axis)
    x, y, z = axis
    down = z < 0
    s = 1 + abs(z)  # 2 cos^2 of half the angle, at least 1
    o = xp.zeros_like(s)
    # (s, -y, x, 0) turns z into the axis. Below, (s, y, -x, 0) (0, 1, 0, 0) = (-y, s, 0, x) does.
    p = xp.where(down, xp.stack([-y, s, o, x]), xp.stack([s, -y, x, o]))
    return p / xp.sqrt(2 * s)


def quaternion_to_matrix(p: Float[AnyArray, "4 *rest"]) -> Float[SameArray, "3 3 *rest"]:
    """Rotation matrix of a unit quaternion."""
    xp = library(p)
    w, x, y, z = components(p)
    return xp.stack(
        [
            xp.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)]),
            xp.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)]),
            xp.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]),
        ]
    )


def quaternion_from_matrix(R: Float[AnyArray, "3 3"]) -> Float[SameArray, "4"]:
    """Unit quaternion of a rotation matrix, the one with w >= 0.

    The entries of R give all products 4 p_i p_j. The row of that matrix with the largest diagonal
    entry (at least 1) is p up to a factor, so nothing cancels at any angle (Shepperd, "Quaternion
    from rotation matrix", Journal of Guidance and Control 1, 1978)."""
    xp = library(R)
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = map(components, components(R))
    products = xp.stack(
        [
            xp.stack([1 + xx + yy + zz, zy - yz, xz - zx, yx - xy]),
            xp.stack([zy - yz, 1 + xx - yy - zz, xy + yx, xz + zx]),
            xp.stack([xz - zx, xy + yx, 1 - xx + yy - zz, yz + zy]),
            xp.stack([yx - xy, xz + zx, yz + zy, 1 - xx - yy + zz]),
        ]
    )
    row = products[xp.argmax(xp.diagonal(products))]
    p = row / xp.sqrt(xp.sum(row * row))
    return xp.where(p[0] < 0, -p, p)


@inlined
def quaternion_rate(
    p: Float[Array, "4 *rest"], omega: Float[Array, "3 *rest"]
) -> Float[Array, "4 *rest"]:
    """p' = (0, omega) p / 2, with omega in world axes."""
    w, u = p[0], p[1:]
    return jnp.concatenate([-dot(omega, u)[None], w[None] * omega + cross(omega, u)]) / 2


@jax.custom_jvp
def body_axes(p: Float[Array, "4 *rest"]) -> Float[Array, "3 3 *rest"]:
    """Rotation matrix of the quaternion p / |p|. It has the derivatives of rotating axes,

        R' = theta x R,    theta = 2 vec(p' p*) / |p|^2,

    for any |p|. The matrix is computed once for all vectors of the body."""
    w, x, y, z = components(p)
    s = 2 / (w * w + x * x + y * y + z * z)
    rows = (
        (1 - s * (y * y + z * z), s * (x * y - w * z), s * (x * z + w * y)),
        (s * (x * y + w * z), 1 - s * (x * x + z * z), s * (y * z - w * x)),
        (s * (x * z - w * y), s * (y * z + w * x), 1 - s * (x * x + y * y)),
    )
    return materialise(jnp.stack([jnp.stack(row) for row in rows]))


@body_axes.defjvp
def _body_axes_jvp(primals, tangents):
    (p,), (dp,) = primals, tangents
    R = body_axes(p)
    w, x, y, z = components(p)
    s = 2 / (w * w + x * x + y * y + z * z)
    # theta = s E p'. The derivatives of R with respect to the components of p are one table, which
    # all uses of these axes share. Each tangent or cotangent is then one sum.
    E = jnp.stack([jnp.stack(row) for row in ((-x, w, -z, y), (-y, z, w, -x), (-z, -y, x, w))])
    table = materialise(cross((s[None, None] * E)[:, None], R[:, :, None]))
    return R, materialise_cotangent(contracted(table, dp[None, None], 2))


@inlined
def quaternion_exp(phi: Float[Array, "3 *rest"]) -> Float[Array, "4 *rest"]:
    """(cos(a/2), phi sin(a/2) / a) with a = |phi|.

    Both factors are entire functions of a^2. They are evaluated by their power series after whole
    turns are subtracted. So values and derivatives of every order are right at phi = 0 too, and no
    sine is called."""
    s = dot(phi, phi)
    near = s < 9
    # For small angles turns is 0 and rest / half is 1.
    half = jnp.sqrt(jnp.where(near, 1.0, s)) / 2
    turns = jnp.round(half / math.pi)
    rest = (half - turns * _PI) - turns * _REST
    cos, sinc = components(_series(_COS_SINC, jnp.where(near, s / 4, rest * rest)))
    even = 1 - 2 * (turns - 2 * jnp.floor(turns / 2))
    factor = even * sinc * (rest / half) / 2
    return materialise(jnp.concatenate([(even * cos)[None], factor[None] * phi]))


@inlined
def quaternion_log(p: Float[Array, "4 *rest"]) -> Float[Array, "3 *rest"]:
    """Rotation vector phi of p / |p|, with |phi| <= pi.

    With w >= 0, u = (x, y, z) and y = tan(|phi| / 4) = |u| / (|p| + w): phi = 4 atan(y) u / |u|.
    Since y <= 1, the tangent is far from its poles. The power series of atan(y) / y keeps the
    derivatives right at the identity. At half a turn phi jumps to -phi."""
    p = jnp.where(p[:1] < 0, -p, p)
    w, u = p[0], p[1:]
    scale = w + jnp.sqrt(w * w + dot(u, u))
    s = dot(u, u) / (scale * scale)
    near = s < 0.01
    y = jnp.sqrt(jnp.where(near, 1.0, s))
    ratio = jnp.where(near, _series(_ATAN, jnp.where(near, s, 0.0))[0], jnp.arctan(y) / y)
    return (4 * ratio / scale)[None] * u


# Coefficients of x^0, x^1, ..., with x the square of the argument, of cos(a) and sin(a) / a, and of
# atan(a) / a.
_COS_SINC = tuple(
    tuple((-1) ** k / math.factorial(2 * k + odd) for k in range(_TERMS)) for odd in (0, 1)
)
_ATAN = (tuple((-1) ** k / (2 * k + 1) for k in range(_TERMS)),)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _series(coefficients: tuple, x: Float[Array, "*rest"]) -> Float[Array, "n *rest"]:
    """The values of n power series at x. Their derivatives are power series again."""
    table = np.array(coefficients).T.reshape(_TERMS, -1, *(1,) * x.ndim)
    highest, *others = (jnp.asarray(row, x.dtype) for row in table[::-1])
    # Horner's rule for all series at once.
    y = jnp.broadcast_to(highest, (len(coefficients), *x.shape))
    for row in others:
        y = y * x[None] + row
    return y


@_series.defjvp
def _series_jvp(coefficients, primals, tangents):
    (x,), (dx,) = primals, tangents
    slopes = tuple((*(k * c for k, c in enumerate(row) if k), 0.0) for row in coefficients)
    return _series(coefficients, x), _series(slopes, x) * dx[None]

"""Second-order cones |x_1| <= x_0 along the last axis, and their Jordan algebra.

Reference: Vandenberghe (2010), The CVXOPT linear and quadratic cone program solvers, sections 2 and
5. A cone with one component is the half-line.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

Points = Float[Array, "*batch k"]


def unit(like: Points) -> Points:
    """Return the unit element (1, 0, ...)."""
    return jnp.zeros_like(like).at[..., 0].set(1.0)


def product(a: Points, b: Points) -> Points:
    """Return the Jordan product (a.b, a_0 b_1 + b_0 a_1)."""
    first = jnp.sum(a * b, axis=-1, keepdims=True)
    return jnp.concatenate([first, a[..., :1] * b[..., 1:] + b[..., :1] * a[..., 1:]], axis=-1)


def quotient(a: Points, r: Points) -> Points:
    """Return x with product(a, x) = r, for a in the interior of the cone."""
    first = a[..., :1] * r[..., :1] - jnp.sum(a[..., 1:] * r[..., 1:], axis=-1, keepdims=True)
    first = first / _determinant(a)[..., None]
    return jnp.concatenate([first, (r[..., 1:] - a[..., 1:] * first) / a[..., :1]], axis=-1)


def scaling(s: Points, w: Points) -> tuple[Float[Array, "*batch k k"], Points]:
    """Return the symmetric scaling W of Nesterov and Todd, W s = W^-1 w = v, and v."""
    s_size, w_size = jnp.sqrt(_determinant(s)), jnp.sqrt(_determinant(w))
    s_bar, w_bar = s / s_size[..., None], w / w_size[..., None]
    half = jnp.sqrt((1 + jnp.sum(s_bar * w_bar, axis=-1)) / 2)
    # W W s = w. So the axis of W lies halfway between w and the reflection of s.
    mirrored = jnp.concatenate([s_bar[..., :1], -s_bar[..., 1:]], axis=-1)
    axis = (w_bar + mirrored) / (2 * half)[..., None]
    tail = axis[..., 1:]
    k = tail.shape[-1]
    identity = jnp.broadcast_to(jnp.eye(k, dtype=s.dtype), (*tail.shape[:-1], k, k))
    outer = tail[..., :, None] * tail[..., None, :]
    below = identity + outer / (1 + axis[..., :1, None])
    top = jnp.concatenate([axis[..., :1], tail], axis=-1)[..., None, :]
    W = jnp.concatenate([top, jnp.concatenate([tail[..., :, None], below], axis=-1)], axis=-2)
    W = jnp.sqrt(w_size / s_size)[..., None, None] * W
    return W, apply(W, s)


def apply(W: Float[Array, "*batch k k"], x: Points) -> Points:
    """Return W x."""
    return jnp.sum(W * x[..., None, :], axis=-1)


def longest_step(x: Points, d: Points) -> Float[Array, "*batch"]:
    """Largest a with x + a d in the cone, for x in its interior; infinite if it never leaves."""
    falls = d[..., 0] < 0
    to_zero = jnp.where(falls, -x[..., 0] / jnp.where(falls, d[..., 0], -1.0), jnp.inf)
    if x.shape[-1] == 1:
        return to_zero
    # The ray leaves the cone at the smallest positive root of A a^2 + 2 B a + C.
    A = d[..., 0] ** 2 - jnp.sum(d[..., 1:] ** 2, axis=-1)
    B = x[..., 0] * d[..., 0] - jnp.sum(x[..., 1:] * d[..., 1:], axis=-1)
    C = _determinant(x)
    square = B * B - A * C
    # Along x itself, towards the apex, both roots coincide and the square is only rounding.
    square = jnp.where(jnp.abs(square) <= 8 * jnp.finfo(x.dtype).eps * B * B, 0.0, square)
    q = -(B + jnp.where(B >= 0, 1.0, -1.0) * jnp.sqrt(jnp.maximum(square, 0.0)))

    def root(over, under):
        a = over / jnp.where(under == 0, 1.0, under)
        return jnp.where((under != 0) & (a > 0) & (square >= 0), a, jnp.inf)

    return jnp.minimum(to_zero, jnp.minimum(root(q, A), root(C, q)))


def _determinant(x: Points) -> Float[Array, "*batch"]:
    tiny = jnp.finfo(x.dtype).tiny
    size = jnp.sqrt(jnp.sum(x[..., 1:] ** 2, axis=-1))
    # As a product, since x_0^2 - |x_1|^2 cancels near the boundary.
    return jnp.maximum((x[..., 0] - size) * (x[..., 0] + size), tiny)

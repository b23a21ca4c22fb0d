"""Roots outside of a step: Newton's method, and a root as a function of what its equations depend
on. Steps have `solve_step`, whose loops compile without libraries."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .._compiler import without_tangents

Place = TypeVar("Place")
Residual = Callable[[Place, Float[Array, " n"]], Float[Array, " rows"]]
Moved = Callable[[Place, Float[Array, " n"]], Place]
Linearised = Callable[[Place], tuple[Float[Array, " rows"], Float[Array, "rows n"]]]

# Singular values below this share of the largest count as zero.
_CUTOFF = 1e-11


def least_solution(A: Array, b: Array) -> Array:
    """x of least norm among those that minimise |A x - b|."""
    return jnp.linalg.pinv(A, rtol=_CUTOFF) @ b


def linearised_by(residual: Residual, n: int) -> Linearised:
    """`residual(x, d)`, after a displacement d of size n from x, and its slope at d = 0."""

    def linearised(x):
        def both(d):
            r = residual(x, d)
            return r, r

        J, r = jax.jacfwd(both, has_aux=True)(jnp.zeros(n, jax.tree.leaves(x)[0].dtype))
        return r, J

    return linearised


def newton_root(
    linearised: Linearised,
    x: Place,
    moved: Moved,
    *,
    max_iterations: int,
    tolerance: float | Array | None = None,
    size: Callable[[Place, Array, Array], Array] = lambda x, d, r: jnp.max(jnp.abs(d), initial=0.0),
    longest: float = jnp.inf,
    lost: float = jnp.inf,
    rtol: float = _CUTOFF,
) -> tuple[Place, Float[Array, "n rows"], Float[Array, ""], Int[Array, ""]]:
    """Newton's method from x, with the least corrections d = -J^+ r where rows are redundant.

    `moved(x, d)` is x after a displacement d, in any coordinates. No entry of d exceeds `longest`.
    The search ends when `size(x, d, r)`, of the next x and the correction to it, is at most
    `tolerance`, by default what rounding leaves; or when it exceeds `lost`.

    **Returns:** the root, J^+ before the last correction, the last size, and the iterations.
    """
    dtype = jax.tree.leaves(x)[0].dtype
    enough = jnp.finfo(dtype).eps ** 0.7 if tolerance is None else tolerance

    def going(carry):
        _, _, left, k = carry
        return (k < max_iterations) & ~(left <= enough) & ((k == 0) | (left < lost))

    def corrected(carry):
        x, _, _, k = carry
        r, J = linearised(x)
        X = jnp.linalg.pinv(J, rtol=rtol)
        d = -X @ r
        if longest < jnp.inf:
            d = d / jnp.maximum(1.0, jnp.max(jnp.abs(d), initial=0.0) / longest)
        x = moved(x, d)
        return x, X, size(x, d, r), k + 1

    like = jax.eval_shape(linearised, x)[1]
    none = jnp.zeros(like.shape[::-1], like.dtype)
    start = x, none, jnp.asarray(jnp.inf, dtype), jnp.array(0)
    return jax.lax.while_loop(going, corrected, start)


def implicit(residual: Callable[[Array], Array], x: Array, X: Array | None = None) -> Array:
    """x, a root of `residual`, as a function of all that `residual` depends on, in both modes and
    to any order. With more equations than unknowns give X, the J^+ at the root, or near it."""

    def solve(linear, r):
        return least_solution(jax.jacfwd(linear)(jnp.zeros_like(r)), r)

    # A function, as a method of a module with traced numbers has no hash.
    def square(x):
        return residual(x) if X is None else X @ residual(x)

    return jax.lax.custom_root(square, x, lambda _, x: x, solve)


def root(
    residual: Residual, x: Place, moved: Moved, n: int, **options
) -> tuple[Place, Float[Array, ""]]:
    """The root of `residual(x, d)`, after a displacement d of size n from x, as a function of all
    that `residual` depends on but the start; and the size of the last correction. The options are
    those of `newton_root`."""
    linearised = linearised_by(residual, n)
    x, X, left, _ = without_tangents(lambda x: newton_root(linearised, x, moved, **options), x)
    d = implicit(lambda d: residual(x, d), jnp.zeros(n, X.dtype), X)
    return moved(x, d), left

"""Linear least squares within bounds."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

_STEPS = 0.5 ** np.arange(20)
_ARMIJO = 0.1


class BoundedSolution(NamedTuple):
    """The minimiser, which of its entries are not held at a bound, and whether it was found."""

    x: Float[Array, " n"]
    free: Bool[Array, " n"]
    converged: Bool[Array, ""]


# Traced once for all places in a program.
@jax.jit
def bounded_least_squares(
    A: Float[Array, "m n"],
    b: Float[Array, " m"],
    lower: Float[Array, " n"],
    upper: Float[Array, " n"],
    start: Float[Array, " n"],
) -> BoundedSolution:
    """Solve min |A x - b|^2, lower <= x <= upper, for A of full column rank. Each Newton step moves
    the entries that the gradient does not hold at a bound, and is projected onto the bounds.

    Minimising a strictly convex quadratic x^T H x / 2 + g^T x is the same problem, with H = A^T A
    and A^T b = -g.

    Reference: Bertsekas (1982), Projected Newton methods for optimization problems with simple
    constraints, SIAM J. Control 20.
    """

    def is_free(x, slope):
        return ~((x <= lower) & (slope > 0) | (x >= upper) & (slope < 0))

    def body(state):
        x, _, _, count = state
        r = b - A @ x
        slope = -(A.T @ r)
        free = is_free(x, slope)
        Q, R = _factor(A, free)
        dx = jax.scipy.linalg.solve_triangular(R, Q[: len(r)].T @ r)
        dx = jnp.where(free, dx, 0.0)

        def trial(scale):
            new = jnp.clip(x + scale * dx, lower, upper)
            d = new - x
            # The decrease follows from the step. A difference of two sums of squares would cancel.
            linear = slope @ d
            return new, -(linear + jnp.sum((A @ d) ** 2) / 2) >= -_ARMIJO * linear

        trials, enough = jax.vmap(trial)(jnp.asarray(_STEPS, x.dtype))
        new = trials[jnp.argmax(enough)]
        moved = jnp.any(enough) & jnp.any(new != x)
        new = jnp.where(moved, new, x)
        new_free = is_free(new, A.T @ (A @ new - b))
        # A full step that changed no bound is the exact minimum.
        exact = jnp.all(new == x + dx) & jnp.all(new_free == free)
        return new, new_free, ~moved | exact, count + 1

    def is_going(state):
        _, _, done, count = state
        return ~done & (count < 30 + 2 * lower.size)

    first = (jnp.clip(start, lower, upper), jnp.ones(lower.shape, bool), jnp.array(False))
    x, free, done, _ = jax.lax.while_loop(is_going, body, (*first, jnp.array(0)))
    return BoundedSolution(x, free, done)


def normal_inverse(A: Float[Array, "m n"], free: Bool[Array, " n"]) -> Float[Array, "n n"]:
    """The inverse of A^T A on the free entries, zero elsewhere."""
    _, R = _factor(A, free)
    inverse = jax.scipy.linalg.solve_triangular(R, jnp.diag(free.astype(A.dtype)))
    return inverse @ inverse.T


def _factor(A, free):
    """QR of the free columns. The others become columns of the identity, in rows of their own."""
    own_rows = jnp.diag((~free).astype(A.dtype))
    return jnp.linalg.qr(jnp.concatenate([jnp.where(free, A, 0.0), own_rows]))

"""A small convex quadratic problem with bounds."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

_MAX_ITERATIONS = 30
_STEPS = 0.5 ** np.arange(20)
_ARMIJO = 0.1


class BoxSolution(NamedTuple):
    """The minimiser, the inverse of H on the entries that are free there (zero elsewhere), and
    whether H is positive definite."""

    x: Float[Array, " n"]
    inverse: Float[Array, "n n"]
    convex: Bool[Array, ""]


def box_qp(
    H: Float[Array, "n n"],
    g: Float[Array, " n"],
    lower: Float[Array, " n"],
    upper: Float[Array, " n"],
    start: Float[Array, " n"],
) -> BoxSolution:
    """min x^T H x / 2 + g^T x subject to lower <= x <= upper, by Newton steps on the entries that
    are not held at a bound by the gradient, projected onto the bounds.

    Reference: Bertsekas (1982), Projected Newton methods for optimization problems with simple
    constraints, SIAM J. Control 20; as used by Tassa, Mansard and Todorov (2014), algorithm 1.
    """
    convex = jnp.all(jnp.isfinite(jnp.linalg.cholesky(H)))
    H = jnp.where(convex, H, jnp.eye(H.shape[0], dtype=H.dtype))

    def value(x):
        return x @ H @ x / 2 + g @ x

    def is_free(x, slope):
        return ~((x <= lower) & (slope > 0) | (x >= upper) & (slope < 0))

    def on_free(free):
        both = free[:, None] & free[None, :]
        return jnp.where(both, H, jnp.eye(H.shape[0], dtype=H.dtype))

    def body(carry):
        x, _, k = carry
        slope = H @ x + g
        free = is_free(x, slope)
        dx = -jnp.linalg.solve(on_free(free), jnp.where(free, slope, 0.0))

        def tried(scale):
            new = jnp.clip(x + scale * dx, lower, upper)
            return new, value(x) - value(new) >= _ARMIJO * (slope @ (x - new))

        news, enough = jax.vmap(tried)(jnp.asarray(_STEPS, x.dtype))
        new = news[jnp.argmax(enough)]
        moved = jnp.any(enough) & jnp.any(new != x)
        # A full step that changed no bound is the exact minimum.
        exact = jnp.all(new == x + dx) & jnp.all(is_free(new, H @ new + g) == free)
        return jnp.where(moved, new, x), ~moved | exact, k + 1

    def going(carry):
        return ~carry[1] & (carry[2] < _MAX_ITERATIONS)

    first = (jnp.clip(start, lower, upper), jnp.array(False), jnp.array(0))
    x, _, _ = jax.lax.while_loop(going, body, first)
    free = is_free(x, H @ x + g)
    both = free[:, None] & free[None, :]
    inverse = jnp.where(both, jnp.linalg.inv(on_free(free)), 0.0)
    return BoxSolution(x, inverse, convex)

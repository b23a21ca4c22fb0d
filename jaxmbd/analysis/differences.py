"""Derivatives by finite differences, with an estimate of their error."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# The first step relative to the size of the variable, and the ratio of each step to the next.
_FIRST, _RATIO = 0.1, 4
_STEPS = {jnp.dtype("float64"): 10, jnp.dtype("float32"): 6}


def central_difference(
    fn: Callable[[Float[Array, ""]], Float[Array, ""]], dtype: jnp.dtype
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The derivative of fn at 0, and an estimate of its error. The argument of fn has size 1.

    Central differences of ever smaller steps are extrapolated to step 0 (Ridders, Accurate
    computation of F'(x) and F'(x) F''(x), Advances in Engineering Software 4, 1982, eqs. 3 to 5):

        D(k, m) = D(k, m-1) + (D(k, m-1) - D(k-1, m-1)) / (ratio^2m - 1).

    The result is the D that differs least from the two that it was computed from. The rounding
    error of the values counts as a difference. Steps with values that are not finite are left out.
    The error is infinite if no step remains.
    """
    count = _STEPS.get(jnp.dtype(dtype), 6)
    steps = _FIRST / float(_RATIO) ** np.arange(count)
    shifts = jnp.asarray(np.concatenate([steps, -steps]), dtype)
    ahead, behind = jnp.split(jax.vmap(fn)(shifts), 2)
    h = shifts[:count]
    D = (ahead - behind) / (2 * h)
    rounding = jnp.finfo(dtype).eps * jnp.maximum(jnp.abs(ahead), jnp.abs(behind)) / h

    # D[k] of order m, with its error. Differences of the first order have no estimate of their own.
    best, least = jnp.zeros((), dtype), jnp.asarray(jnp.inf, dtype)
    for m in range(1, count):
        fine, coarse = D[1:], D[:-1]
        D = fine + (fine - coarse) / (_RATIO ** (2 * m) - 1)
        rounding = rounding[1:]
        error = jnp.maximum(jnp.abs(D - fine), jnp.abs(D - coarse)) + rounding
        error = jnp.where(jnp.isfinite(error), error, jnp.inf)
        k = jnp.argmin(error)
        best, least = jnp.where(error[k] < least, D[k], best), jnp.minimum(error[k], least)
    return best, least

"""States between the steps of a simulation."""

import jax.numpy as jnp
from jaxtyping import Array, Float

# Times as near to a step as this are that of the step, in steps.
_ON_GRID = 1e-6


def interpolated(
    x: Float[Array, "steps d"], s: Float[Array, " n"], points: int
) -> Float[Array, "n d"]:
    """x at the times s, counted in steps, by the polynomial through the nearest `points` steps
    (Lagrange's form); exact at steps.

    A shorter step to each time would be exact as well, but is a second program as long as that of
    the loop, for all times at once: several times as slow to compile, and to run.
    """
    points = min(points, len(x))
    nearest = jnp.round(s)
    s = jnp.where(jnp.abs(s - nearest) < _ON_GRID, nearest, s)
    first = jnp.floor(s) - (points - 1) // 2
    first = jnp.clip(first, 0, len(x) - points)
    ahead = s - first
    first = first.astype(jnp.int32)
    total = jnp.zeros((len(s), x.shape[1]), x.dtype)
    for j in range(points):
        weight = jnp.ones_like(s)
        for k in range(points):
            if k != j:
                weight = weight * (ahead - k) / (j - k)
        total = total + weight[:, None] * x[first + j]
    return total

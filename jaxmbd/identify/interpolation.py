"""States between the steps of a simulation."""

import jax.numpy as jnp
from jaxtyping import Array, Float

# Times this close to a step, in steps, count as the time of the step.
_ON_GRID = 1e-6


def interpolated(
    x: Float[Array, "steps d"], s: Float[Array, " n"], points: int
) -> Float[Array, "n d"]:
    """Interpolate x at the times s, counted in steps, by the polynomial through the nearest
    `points` steps (in Lagrange form). It is exact at steps.

    A shorter step to each time would be exact too. But it needs a second program as long as that of
    the loop, for all times at once, which takes several times longer to compile and run.
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

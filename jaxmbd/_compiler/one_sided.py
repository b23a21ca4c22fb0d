"""Functions with a kink, whose derivative at it is that of one side."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array


def clip(x: Array, low: Any, high: Any) -> Array:
    """x clipped to [`low`, `high`]. Its derivative is that of x within the limits and at them, and
    that of a limit beyond. `jnp.clip` takes a part of each at the limits, which is the derivative
    on neither side. Values often lie there: inputs that are bounded, and shapes that touch."""
    return jnp.where(x > high, high, jnp.where(x < low, low, x))

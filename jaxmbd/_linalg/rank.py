"""When rows count as dependent: the one place of cutoffs.

A row is independent of others by the sine of its angle to their span. Redundant rows lie in that
span on the constraints alone: where they are violated, as within a step, bodies stand turned
against each other, and so do the rows. Taken for independent, they would ask for accelerations of
any size. So the cutoff is never below the angle by which the violation may have turned them.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

# Rows at this angle to the span of others are independent, however large the violation.
_LARGEST = 1e-2

# Part of `tilt`, which names the largest angle that is possible, that redundant rows are found at:
# of four-bars, five-bars and rings of six hinges at random poses nearby, 0.002 to 0.02.
_PART = 0.2


def cutoff(
    given: float | None, double: float, single: float, tilt: Float[Array, ""] | None, dtype: Any
) -> Float[Array, ""]:
    """The sine up to which rows count as dependent: what the violation asks for, but no less than
    `given` by the user, or else than what a method tells from rounding, in either precision."""
    if given is None:
        given = double if dtype == jnp.float64 else single
    least = jnp.asarray(given, dtype)
    if tilt is None:
        return least
    return jnp.maximum(least, jnp.minimum(_PART * tilt.astype(dtype), _LARGEST))

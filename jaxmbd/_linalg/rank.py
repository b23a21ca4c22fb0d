"""The cutoff at which rows count as dependent.

The independence of a row is measured by the sine of its angle to the span of the others. Redundant
rows lie in that span only if the constraints hold exactly. If the constraints are violated, as
within a step, the bodies are slightly rotated against each other, and so are the rows. Treated as
independent, such rows would cause arbitrarily large accelerations. So the cutoff is never below the
angle by which the violation may have rotated the rows.
"""

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

# Rows at a larger angle to the span of others count as independent, however large the violation.
_LARGEST = 1e-2

# The share of `tilt`, an upper bound on the angle, that serves as the cutoff. Measured angles of
# redundant rows are 0.002 to 0.02 of `tilt`, for four-bars, five-bars and rings of six hinges at
# random poses nearby.
_PART = 0.2


def cutoff(
    given: float | None,
    double: float,
    single: float,
    tilt: Float[Array, ""] | None,
    dtype: DTypeLike,
) -> Float[Array, ""]:
    """The sine up to which rows count as dependent.

    The user's value `given` is the least. Without one, it is the resolution of the method, in
    float64 (`double`) or in float32 (`single`). A violation of the constraints raises it."""
    if given is None:
        given = double if dtype == jnp.float64 else single
    least = jnp.asarray(given, dtype)
    if tilt is None:
        return least
    return jnp.maximum(least, jnp.minimum(_PART * tilt.astype(dtype), _LARGEST))

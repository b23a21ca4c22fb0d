"""Which singular values count as zero: those up to a share of the largest one.

The share depends on where a matrix comes from. This is the one place of these shares; those of the
linear algebra of a step, where rows turn as the constraints are violated, are in `_linalg/rank.py`.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

# Of a matrix at hand, with an orthonormal basis in its product.
ROUNDED = 1e-12
# Of derivatives of equations that may follow from each other, such as continuity and final states.
DEPENDENT = 1e-9


def rounding(matrix: np.ndarray) -> float:
    """Of a matrix whose entries are exact but for rounding, as NumPy's `matrix_rank` has it."""
    return float(np.finfo(matrix.dtype).eps) * max(matrix.shape)


def simulation_error(dtype: Any) -> float:
    """Of sensitivities: they have come through thousands of steps."""
    return float(np.finfo(dtype).eps) ** (2 / 3)


def redundancy(dtype: Any) -> float:
    """Of rows of constraints: redundant ones are so only up to the drift of the constraints."""
    return 1e-6 if dtype == np.float64 else 1e-3


def nonzero(values: Any, share: float) -> Any:
    """Which of these singular values are more than this share of the largest."""
    xp = np if isinstance(values, np.ndarray) else jnp
    return values > share * xp.max(values, initial=0.0)

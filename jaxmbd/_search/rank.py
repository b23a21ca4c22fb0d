"""Which singular values count as zero: those up to a share of the largest one.

The share depends on the origin of the matrix. All shares are defined here, except those for the
linear algebra of a step, where rows turn as the constraints are violated (`_linalg/rank.py`).
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

# For a matrix that is known up to rounding, multiplied by an orthonormal basis.
ROUNDED = 1e-12
# For derivatives of equations that may depend on each other, such as continuity and final states.
DEPENDENT = 1e-9


def rounding(matrix: np.ndarray) -> float:
    """The share for a matrix that is exact up to rounding, as in NumPy's `matrix_rank`."""
    return float(np.finfo(matrix.dtype).eps) * max(matrix.shape)


def simulation_error(dtype: Any) -> float:
    """The share for sensitivities, which accumulate rounding errors over thousands of steps."""
    return float(np.finfo(dtype).eps) ** (2 / 3)


def redundancy(dtype: Any) -> float:
    """The share for rows of constraints, which are redundant only up to the drift."""
    return 1e-6 if dtype == np.float64 else 1e-3


def nonzero(values: Any, share: float) -> Any:
    """Which of these singular values exceed this share of the largest one."""
    xp = np if isinstance(values, np.ndarray) else jnp
    return values > share * xp.max(values, initial=0.0)

"""Gauss and Newton's method for few equations, redundant or not."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

_ITERATIONS = 30


class Equations:
    """Rows that should be zero, as NumPy functions.

    - `rows`: of a displacement, a JAX function.
    """

    def __init__(self, rows: Callable):
        self._value, self._slope = jax.jit(rows), jax.jit(jax.jacfwd(rows))

    def value(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(self._value(x))

    def slope(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(self._slope(x))

    def closest(self, x: np.ndarray, kept: Any = slice(None)) -> np.ndarray:
        """A point near x where the `kept` rows vanish, or as far as it got; x if that is not
        finite."""
        found = x
        for _ in range(_ITERATIONS):
            J, r = self.slope(found)[kept], self.value(found)[kept]
            if not (np.isfinite(J).all() and np.isfinite(r).all()):
                return x
            change = np.linalg.pinv(J, rcond=1e-9) @ r
            found = found - change
            if np.abs(change).max(initial=0.0) < 1e-14 * (1 + np.abs(found).max(initial=0.0)):
                break
        return found

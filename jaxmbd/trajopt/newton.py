"""Gauss and Newton's method for few equations, redundant or not."""

from collections.abc import Callable
from typing import Any

import numpy as np

_ITERATIONS = 30


def closest(
    rows: Callable, slope: Callable, x: np.ndarray, data: Any = None, kept: Any = slice(None)
) -> np.ndarray:
    """A point near x where the `kept` rows vanish, or as far as it got; x if that is not finite.

    - `rows`, `slope`: values and Jacobian as functions of (x, data).
    """
    found = x
    for _ in range(_ITERATIONS):
        J, r = np.asarray(slope(found, data))[kept], np.asarray(rows(found, data))[kept]
        if not (np.isfinite(J).all() and np.isfinite(r).all()):
            return x
        change = np.linalg.pinv(J, rcond=1e-9) @ r
        found = found - change
        if np.abs(change).max(initial=0.0) < 1e-12 * (1 + np.abs(found).max(initial=0.0)):
            break
    return found

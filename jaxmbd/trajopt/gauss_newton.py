"""The Gauss-Newton method for few equations, which may be redundant."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .._search import DEPENDENT

_ITERATIONS = 30


@eqx.filter_jit
def value_and_slope(rows: Callable, x: Any, data: Any) -> tuple[Any, Any]:
    """The values and Jacobian of rows(x, data). Define `rows` once, or it is compiled again."""
    return rows(x, data), jax.jacfwd(lambda x: rows(x, data))(x)


def nearest_root(rows: Callable, x: np.ndarray, data: Any, chosen: Any = slice(None)) -> np.ndarray:
    """A point near x where the `chosen` entries of rows(x, data) vanish, or the last iterate if
    none is found. It is x if the values or the Jacobian are not finite."""
    found = x
    for _ in range(_ITERATIONS):
        r, J = (np.asarray(part)[chosen] for part in value_and_slope(rows, found, data))
        if not (np.isfinite(J).all() and np.isfinite(r).all()):
            return x
        change = np.linalg.pinv(J, rcond=DEPENDENT) @ r
        found = found - change
        if np.abs(change).max(initial=0.0) < 1e-12 * (1 + np.abs(found).max(initial=0.0)):
            break
    return found

"""Parameters of elements: numbers and vectors as arrays, checked at the door.

Each function raises a `ValueError` that begins with `what`, as in '`length` of Distance "rod"',
if the value has the wrong shape or, when it is known now, is no such number.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import is_concrete


def finite(what: str, value: Any, dtype: Any, shape: tuple[int, ...] = ()) -> Float[Array, "..."]:
    """`value` as an array of finite numbers."""
    return _checked(what, value, dtype, shape, "finite", np.isfinite)


def positive(what: str, value: Any, dtype: Any, shape: tuple[int, ...] = ()) -> Float[Array, "..."]:
    """`value` as an array of finite numbers > 0."""
    return _checked(what, value, dtype, shape, "positive and finite", lambda x: x > 0)


def not_negative(
    what: str, value: Any, dtype: Any, shape: tuple[int, ...] = ()
) -> Float[Array, "..."]:
    """`value` as an array of finite numbers >= 0."""
    return _checked(what, value, dtype, shape, "finite and not negative", lambda x: x >= 0)


def not_zero(what: str, value: Any, dtype: Any, shape: tuple[int, ...] = ()) -> Float[Array, "..."]:
    """`value` as an array of finite numbers other than 0."""
    return _checked(what, value, dtype, shape, "finite and not 0", lambda x: x != 0)


def _checked(
    what: str,
    value: Any,
    dtype: Any,
    shape: tuple[int, ...],
    demand: str,
    holds: Callable[[np.ndarray], np.ndarray],
) -> Float[Array, "..."]:
    try:
        array = jnp.asarray(value, dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} must be numbers, but is {value!r}.") from error
    if array.shape != shape:
        raise ValueError(f"{what} must have shape {shape}, but has {array.shape}.")
    if is_concrete(array):
        x = np.asarray(array)
        if not np.all(np.isfinite(x) & holds(x)):
            raise ValueError(f"{what} must be {demand}, but is {x.tolist()}.")
    return array

"""Functions of one sample, applied over leading axes."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, PyTree

from .._coordinates import algebra
from .._inputs import unjudged

_Function = TypeVar("_Function", bound=Callable)


def batched(fn: Callable[..., PyTree], *arguments: tuple[Array, int]) -> PyTree:
    """Apply fn over the leading axes, broadcast, of arrays with their numbers of own axes."""
    arrays = [array for array, _ in arguments]
    own = [array.shape[array.ndim - k :] for array, k in arguments]
    lead = [array.shape[: array.ndim - k] for array, k in arguments]
    shape = jnp.broadcast_shapes(*lead)
    for _ in shape:
        fn = jax.vmap(fn)
    return fn(*(jnp.broadcast_to(x, shape + k) for x, k in zip(arrays, own, strict=True)))


def over_leading_axes(fn: _Function) -> _Function:
    """Extend a function of vectors, or tuples of vectors, to leading axes, which are broadcast. One
    sample is passed to `fn` itself, and compiles nothing if all its vectors are NumPy's."""

    what = f"of {fn.__qualname__}"

    def numbers(x):
        return x if isinstance(x, tuple | jax.Array) else unjudged(what, x, shape=None)

    @algebra.inlined
    def whole(*arguments):
        vectors, structure = jax.tree.flatten(arguments)
        if all(x.ndim == 1 for x in vectors):
            return fn(*arguments)
        return batched(
            lambda *vectors: fn(*structure.unflatten(vectors)), *((x, 1) for x in vectors)
        )

    @functools.wraps(fn)
    def over(*arguments):
        if all(isinstance(x, np.ndarray) and x.ndim == 1 for x in jax.tree.leaves(arguments)):
            return fn(*arguments)
        return whole(*map(numbers, arguments))

    return cast(_Function, over)


def with_last_axis(what: str, x: ArrayLike, size: int, sizes: str) -> Array:
    """Return x as an array whose last axis has `size` entries.

    **Raises:** `ValueError`, which begins with `what` and explains the size by `sizes`."""
    array: Any = x if isinstance(x, jax.Array) else unjudged(what, x, shape=None)
    if array.ndim == 0 or array.shape[-1] != size:
        raise ValueError(
            f"{what} must have {size} entries along the last axis, {sizes}, but has shape "
            f"{array.shape}."
        )
    return array

"""Functions of one sample over leading axes."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree


def batched(fn: Callable[..., PyTree], *arguments: tuple[Array, int]) -> PyTree:
    """fn over the leading axes, broadcast, of arrays given with the number of their own axes."""
    arrays = [array for array, _ in arguments]
    own = [array.shape[array.ndim - k :] for array, k in arguments]
    lead = [array.shape[: array.ndim - k] for array, k in arguments]
    shape = jnp.broadcast_shapes(*lead)
    for _ in shape:
        fn = jax.vmap(fn)
    return fn(*(jnp.broadcast_to(x, shape + k) for x, k in zip(arrays, own, strict=True)))

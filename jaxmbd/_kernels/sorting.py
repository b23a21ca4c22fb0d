"""Sorting, by counting for each number those that come before it."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


def sorted_known(params: dict[str, Any], arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    axis = params["dimension"]
    # NumPy too has NaN last. The last key is the first that it sorts by.
    order = np.lexsort([x + 0 for x in arrays[: params["num_keys"]]][::-1], axis=axis)
    return [np.take_along_axis(x, order, axis) for x in arrays]


def sorted_along(params: dict[str, Any], *arrays: Array) -> list[Array]:
    """The arrays in the order of the first `num_keys` of them, NaN last, and equal ones as they
    were."""
    axis, rows = params["dimension"], [jnp.moveaxis(x, params["dimension"], -1) for x in arrays]
    shape, n = rows[0].shape, rows[0].shape[-1]
    place = jnp.arange(n, dtype=jnp.int32)
    before = jnp.broadcast_to(place[:, None] < place[None, :], (*shape, n))
    for x in reversed(rows[: params["num_keys"]]):
        a, b = jnp.broadcast_arrays(x[..., :, None], x[..., None, :])
        # Not a number is not equal to itself.
        less = (a < b) | ((a == a) & (b != b))
        equal = (a == b) | ((a != a) & (b != b))
        before = less | (equal & before)
    rank = jnp.sum(before, axis=-2, dtype=jnp.int32).reshape(-1, n)
    move = jax.vmap(lambda to, x: jnp.zeros_like(x).at[to].set(x, mode="promise_in_bounds"))
    moved = (move(rank, x.reshape(-1, n)).reshape(shape) for x in rows)
    return [jnp.moveaxis(x, -1, axis) for x in moved]

"""Operations as programs of others: functions of their parameters and operands, in JAX."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import eval_jaxpr
from jaxtyping import Array

from . import keys
from .unsupported import Unsupported

Params = dict[str, Any]


# --- shapes ---------------------------------------------------------------------------------------


def _split(p: Params, x: Array) -> list[Array]:
    ends = np.cumsum(p["sizes"])
    pairs = zip([0, *ends[:-1]], ends, strict=True)
    return [lax.slice_in_dim(x, int(a), int(b), axis=p["axis"]) for a, b in pairs]


def _unstack(p: Params, x: Array) -> list[Array]:
    return [lax.index_in_dim(x, k, p["axis"], False) for k in range(x.shape[p["axis"]])]


def _stack(p: Params, *rows: Array) -> Array:
    return lax.concatenate([lax.expand_dims(x, [p["axis"]]) for x in rows], p["axis"])


# --- arithmetic -----------------------------------------------------------------------------------


def _integer_pow(p: Params, x: Array) -> Array:
    power = None
    for digit in bin(abs(p["y"]))[:1:-1]:
        if digit == "1":
            power = x if power is None else power * x
        x = x * x  # dropped again after the last digit
    if power is None:
        return jnp.ones_like(x)
    return 1 / power if p["y"] < 0 else power


def _dot_general(p: Params, *factors: Array) -> Array:
    contract, batch = p["dimension_numbers"]
    dtype = p["preferred_element_type"] or jnp.result_type(*factors)
    if np.dtype(dtype).kind == "b":
        raise Unsupported("dot_general of bool")
    free = [
        [k for k in range(x.ndim) if k not in (*c, *b)]
        for x, c, b in zip(factors, contract, batch, strict=True)
    ]
    counts, parts = (len(batch[0]), len(free[0]), len(free[1])), []
    for side, x in enumerate(factors):
        x = lax.transpose(x, (*batch[side], *free[side], *contract[side])).astype(dtype)
        # An axis of length 1 for each free axis of the other factor.
        at = counts[0] + (counts[1] if side == 0 else 0)
        parts.append(lax.expand_dims(x, range(at, at + counts[2 - side])))
    axes = tuple(range(sum(counts), parts[0].ndim))
    return jnp.sum(parts[0] * parts[1], axes, dtype)


# --- along axes -----------------------------------------------------------------------------------


def _reduce(p: Params, *operands: Array) -> Array:
    if len(operands) != 2:
        raise Unsupported("reduce of several arrays")
    (x, start), program = operands, p["jaxpr"]

    def combined(total, row):
        return eval_jaxpr(program.jaxpr, program.consts, total, row)[0]

    kept = [k for k in range(x.ndim) if k not in p["dimensions"]]
    shape = [x.shape[k] for k in kept]
    for _ in shape:
        combined = jax.vmap(combined)
    count = math.prod(x.shape[k] for k in p["dimensions"])
    rows = lax.transpose(x, (*p["dimensions"], *kept)).reshape(count, *shape)
    total = jnp.broadcast_to(start, shape)
    return lax.scan(lambda total, row: (combined(total, row), None), total, rows)[0]


def _cumulative(combine: Callable) -> Callable:
    def program(p: Params, x: Array) -> Array:
        if x.shape[p["axis"]] == 0:
            return x
        rows = jnp.moveaxis(x, p["axis"], 0)
        ends = slice(-1, None) if p["reverse"] else slice(0, 1)

        def step(total, row):
            total = combine(total, row)
            return total, total

        others = rows[:-1] if p["reverse"] else rows[1:]
        _, later = lax.scan(step, rows[ends][0], others, reverse=p["reverse"])
        whole = [later, rows[ends]] if p["reverse"] else [rows[ends], later]
        return jnp.moveaxis(lax.concatenate(whole, 0), 0, p["axis"])

    return program


def _is_nan(x: Array) -> Array:
    return x != x if jnp.issubdtype(x.dtype, jnp.floating) else jnp.zeros(x.shape, bool)


def _place_of(extreme: Callable) -> Callable:
    """The first place of the largest or smallest number, or of NaN."""

    def program(p: Params, x: Array) -> Array:
        (axis,), x = p["axes"], x.astype(np.int32) if x.dtype == bool else x
        found = (x == extreme(x, axis=axis, keepdims=True)) | _is_nan(x)
        place = lax.broadcasted_iota(p["index_dtype"], x.shape, axis)
        return jnp.min(jnp.where(found, place, jnp.full_like(place, x.shape[axis])), axis)

    return program


def _sort(p: Params, *arrays: Array) -> list[Array]:
    """The arrays in the order of the first `num_keys` of them, NaN last, and equal ones as they
    were, by counting for each number those that come before it."""
    axis, rows = p["dimension"], [jnp.moveaxis(x, p["dimension"], -1) for x in arrays]
    shape, n = rows[0].shape, rows[0].shape[-1]
    if not rows[0].size:
        return list(arrays)
    place = jnp.arange(n, dtype=jnp.int32)
    before = jnp.broadcast_to(place[:, None] < place[None, :], (*shape, n))
    for x in reversed(rows[: p["num_keys"]]):
        a, b = jnp.broadcast_arrays(x[..., :, None], x[..., None, :])
        less = (a < b) | (~_is_nan(a) & _is_nan(b))
        equal = (a == b) | (_is_nan(a) & _is_nan(b))
        before = less | (equal & before)
    rank = jnp.sum(before, axis=-2, dtype=jnp.int32).reshape(-1, n)
    move = jax.vmap(lambda to, x: jnp.zeros_like(x).at[to].set(x, mode="promise_in_bounds"))
    moved = (move(rank, x.reshape(-1, n)).reshape(shape) for x in rows)
    return [jnp.moveaxis(x, -1, axis) for x in moved]


PROGRAMS: dict[str, Callable[..., Any]] = {
    "add_any": lambda p, a, b: a + b,
    "argmax": _place_of(jnp.max),
    "argmin": _place_of(jnp.min),
    "clamp": lambda p, low, x, high: jnp.minimum(jnp.maximum(low, x), high),
    "cummax": _cumulative(lax.max),
    "cummin": _cumulative(lax.min),
    "cumprod": _cumulative(lax.mul),
    "cumsum": _cumulative(lax.add),
    "dot_general": _dot_general,
    "integer_pow": _integer_pow,
    "iota_2x32_shape": lambda p: keys.places(p["shape"]),
    "reduce": _reduce,
    "sort": _sort,
    "split": _split,
    "square": lambda p, x: x * x,
    "stack": _stack,
    "threefry2x32": lambda p, *x: keys.threefry(*x),
    "unstack": _unstack,
}

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


def _pad(p: Params, x: Array, filler: Array) -> Array:
    def extended(x, axis, low, high):
        sizes = ([*x.shape[:axis], n, *x.shape[axis + 1 :]] for n in (low, high))
        before, after = (jnp.broadcast_to(filler, size) for size in sizes)
        return lax.concatenate([before, x, after], axis)

    for axis, (low, high, gap) in enumerate(p["padding_config"]):
        if gap and x.shape[axis]:
            rows = extended(lax.expand_dims(x, [axis + 1]), axis + 1, 0, gap)
            x = lax.collapse(rows, axis, axis + 2)
            high -= gap
        x = extended(x, axis, max(low, 0), max(high, 0)) if max(low, high) > 0 else x
        x = lax.slice_in_dim(x, max(-low, 0), x.shape[axis] - max(-high, 0), axis=axis)
    return x


# --- arithmetic -----------------------------------------------------------------------------------


def _plain(fn: Callable) -> Callable:
    """A function without parameters."""
    return lambda p, *operands: fn(*operands)


def _log1p(x: Array) -> Array:
    u = 1 + x
    return jnp.where(u == 1, x, jnp.where(u - 1 == x, lax.log(u), lax.log(u) * (x / (u - 1))))


def _expm1(x: Array) -> Array:
    u = lax.exp(x)
    d = u - 1
    return jnp.where(u == 1, x, jnp.where((d == -1) | (d == u), d, d * (x / lax.log(u))))


def _odd(fn: Callable) -> Callable:
    """From positive numbers on, with a zero as it is."""
    return lambda x: jnp.where(x == 0, x, jnp.where(x < 0, -1, 1).astype(x.dtype) * fn(abs(x)))


def _log_of_twice(x: Array, otherwise: Array) -> Array:
    """Of large numbers."""
    return jnp.where(x > 1e9, lax.log(x) + np.log(2.0).item(), otherwise)


def _asinh(x: Array) -> Array:
    return _log_of_twice(x, lax.log1p(x + x * (x / (1 + lax.sqrt(x * x + 1)))))


def _acosh(x: Array) -> Array:
    d = x - 1
    return _log_of_twice(x, lax.log1p(d + lax.sqrt(d * (x + 1))))


def _nextafter(x: Array, y: Array) -> Array:
    whole = np.dtype(f"int{8 * x.dtype.itemsize}")
    one, bits = np.ones((), whole), lax.bitcast_convert_type(x, whole)
    first = jnp.where(y < 0, np.iinfo(whole).min | one, one)
    step = jnp.where((x < y) == (x > 0), one, -one)
    found = lax.bitcast_convert_type(jnp.where(x == 0, first, bits + step), x.dtype)
    return jnp.where((x != x) | (y != y), x + y, jnp.where(x == y, y, found))


# Giles, Approximating the erfinv function, 2010, table 5: in the middle, and in the tails.
_ERF_INV = np.array(
    [
        (2.81022636e-08, -0.000200214257),
        (3.43273939e-07, 0.000100950558),
        (-3.5233877e-06, 0.00134934322),
        (-4.39150654e-06, -0.00367342844),
        (0.00021858087, 0.00573950773),
        (-0.00125372503, -0.0076224613),
        (-0.00417768164, 0.00943887047),
        (0.246640727, 1.00167406),
        (1.50140941, 2.83297682),
    ],
    np.float32,
)


def _erf_inv(y: Array) -> Array:
    x = y.astype(np.float32)
    w = -lax.log1p(-x * x)
    middle = w < 5
    u, root = jnp.where(middle, w - 2.5, lax.sqrt(w) - 3), jnp.zeros_like(w)
    for a, b in _ERF_INV:
        root = jnp.where(middle, a, b) + root * u
    found = root * x
    if y.dtype != np.float32:
        # From there by steps of Halley's method, for the small one of erf and 1 - erf.
        a, rest = abs(y), 1 - abs(y)
        w = -lax.log(rest)
        far = lax.sqrt(w - lax.log(lax.sqrt(np.pi * w)))
        root = jnp.where(a > 0.9999999, far, abs(found).astype(y.dtype))
        for _ in range(3):
            error = jnp.where(a > 0.5, rest - lax.erfc(root), lax.erf(root) - a)
            r = error / (2 / np.sqrt(np.pi) * lax.exp(-root * root))
            root = root - r / (1 + root * r)
        found = jnp.where(y < 0, -root, root)
    return jnp.where(y == 0, y, jnp.where(abs(y) == 1, y * np.inf, found))


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
    "acosh": _plain(_acosh),
    "add_any": _plain(lax.add),
    "argmax": _place_of(jnp.max),
    "argmin": _place_of(jnp.min),
    "asinh": _plain(_odd(_asinh)),
    "atanh": _plain(_odd(lambda x: lax.log1p(2 * (x / (1 - x))) / 2)),
    "clamp": _plain(lambda low, x, high: jnp.minimum(jnp.maximum(low, x), high)),
    "cummax": _cumulative(lax.max),
    "cummin": _cumulative(lax.min),
    "cumprod": _cumulative(lax.mul),
    "cumsum": _cumulative(lax.add),
    "dot_general": _dot_general,
    "erf_inv": _plain(_erf_inv),
    "expm1": _plain(_expm1),
    "integer_pow": _integer_pow,
    "iota_2x32_shape": lambda p: keys.places(p["shape"]),
    "log1p": _plain(_log1p),
    "nextafter": _plain(_nextafter),
    "pad": _pad,
    "reduce": _reduce,
    "sort": _sort,
    "split": _split,
    "square": _plain(lambda x: x * x),
    "stack": _stack,
    "threefry2x32": _plain(keys.threefry),
    "unstack": _unstack,
}

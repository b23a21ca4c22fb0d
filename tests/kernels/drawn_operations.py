"""The operations of programs at random, each with what it makes of exact numbers."""

import functools
import math
from collections.abc import Sequence
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from drawn import DTYPES, ONLY_MOVED, ROUNDED, SIZES, Drawing, Number, numbers, some_shape
from jax import lax


def exact(x: Number) -> bool:
    return x.kind != "f" or x.exact


def ordered(x: Number) -> bool:
    return x.rounded is None


def has_axes(x: Number) -> bool:
    return x.x.ndim > 0


def not_empty(x: Number) -> bool:
    return x.x.size > 0


def moved(x: Number, *results) -> list[Number]:
    return [x._replace(x=y) for y in results]


def joined(*xs: Number, signed: bool = True) -> Number:
    """What holds for numbers that come from several ones."""
    rounded = [x.rounded for x in xs if x.rounded is not None]
    return Number(
        None,
        min(x.low for x in xs),
        max(x.high for x in xs),
        signed and all(x.signed for x in xs),
        max(rounded) if rounded else None,
    )


# --- numbers one by one ---------------------------------------------------------------------------


def _sum(a: Number, b: Number) -> Number:
    return Number(None, min(a.low, b.low), max(a.high, b.high) + 1, signed=False)


def _product(a: Number, b: Number) -> Number:
    return Number(None, a.low + b.low, a.high + b.high, a.signed and b.signed)


def arithmetic(d: Drawing):
    a = d.one(exact)
    b = d.like(a, exact)
    name = d.random.choice(("add", "sub", "mul")) if a.kind != "b" else "bitwise_xor"
    result = (_product if name == "mul" else _sum)(a, b)._replace(x=getattr(lax, name)(a.x, b.x))
    return [result] if exact(result) else []


def quotient(d: Drawing):
    a = d.one(lambda x: x.kind in "iuf" and ordered(x) and x.signed)
    b = d.like(a, lambda x: ordered(x) and x.signed)
    if not b.signed:
        return []
    if a.kind != "f":
        # XLA ends the process if it divides known integers by 0 itself.
        divide = d.random.choice((lax.div, lax.rem))
        return [Number(divide(a.x, b.x))] if b.given else []
    # XLA multiplies by the reciprocal of a known number.
    return [Number(lax.div(a.x, b.x), rounded=ROUNDED[a.x.dtype.itemsize])]


def extreme(d: Drawing):
    a = d.one(ordered)
    b = d.like(a, ordered)
    return [joined(a, b, signed=False)._replace(x=d.random.choice((lax.max, lax.min))(a.x, b.x))]


def clamp(d: Drawing):
    a = d.one(lambda x: ordered(x) and x.kind != "b")
    b, c = d.like(a, ordered), d.like(a, ordered)
    return [joined(a, b, c, signed=False)._replace(x=lax.clamp(b.x, a.x, c.x))]


def comparison(d: Drawing):
    a = d.one(ordered)
    b = d.like(a, ordered)
    names = ("lt", "le", "gt", "ge", "eq", "ne")
    return [Number(getattr(lax, d.random.choice(names))(a.x, b.x))]


def choice(d: Drawing):
    a = d.one()
    b = d.like(a)
    which = d.like(Number(jnp.zeros(a.x.shape, bool)))
    return [joined(a, b)._replace(x=lax.select_n(which.x, a.x, b.x))]


def choice_by_number(d: Drawing):
    a = d.one()
    b, c = d.like(a), d.like(a)
    k = lax.clamp(jnp.int32(0), d.like(Number(jnp.zeros(a.x.shape, jnp.int32))).x, jnp.int32(2))
    return [joined(a, b, c)._replace(x=lax.select_n(k, a.x, b.x, c.x))]


def bits(d: Drawing):
    a = d.one(lambda x: x.kind in "iub")
    b = d.like(a)
    names = ["bitwise_and", "bitwise_or", "bitwise_xor"]
    if a.kind != "b":
        names += ["shift_left", "shift_right_logical", "shift_right_arithmetic"]
    return [Number(getattr(lax, d.random.choice(names))(a.x, b.x))]


def one_number(d: Drawing):
    a = d.one()
    if a.kind in "bu":
        return moved(a, lax.bitwise_not(a.x))
    names = ["neg", "abs"] + ["sign"] * ordered(a) + ["bitwise_not", "square"] * (a.kind == "i")
    names += ["floor", "ceil", "round"] * (a.kind == "f" and ordered(a))
    name = d.random.choice(names)
    high = a.high + (name in ("ceil", "round"))
    return [a._replace(x=getattr(lax, name)(a.x), high=high)]


def function(d: Drawing):
    """Of which libraries round differently."""
    a = d.one(lambda x: x.kind == "f" and exact(x) and x.signed)
    if a is None:
        return []
    names = "sin cos exp log log1p expm1 tanh sqrt rsqrt logistic asinh atan erf cbrt".split()
    x = getattr(lax, d.random.choice(names))(a.x)
    return [Number(x, rounded=ROUNDED[a.x.dtype.itemsize])]


def power(d: Drawing):
    a = d.one(lambda x: x.kind in "iu" or (x.kind == "f" and exact(x)))
    k = d.random.choice((0, 1, 2, 3, 5))
    result = Number(lax.integer_pow(a.x, k), a.low * k, a.high * k, a.signed)
    return [result] if exact(result) else []


def converted(d: Drawing):
    a = d.one(ordered)
    to = d.random.choice(DTYPES)
    # Floats with another precision would be other numbers afterwards.
    rounded = 0.0 if to.kind == "f" and a.kind != "b" and a.x.dtype != to else None
    return [
        Number(lax.convert_element_type(a.x, to), min(a.low, 0), max(a.high, 1), a.signed, rounded)
    ]


def same_bits(d: Drawing):
    a = d.one(lambda x: x.kind == "f" and ordered(x) and x.signed)
    if a is None:
        return []
    number = jnp.where(lax.eq(a.x, a.x), a.x, jnp.ones_like(a.x))
    return [Number(lax.bitcast_convert_type(number, f"int{8 * a.x.dtype.itemsize}"))]


# --- numbers that move ----------------------------------------------------------------------------


def reshape(d: Drawing):
    a = d.one()
    sizes = [n for n in a.x.shape if n != 1]
    if d.random.random() < 0.5:
        sizes = [math.prod(sizes)]
    sizes.insert(d.random.randint(0, len(sizes)), 1)
    return moved(a, lax.reshape(a.x, sizes))


def transpose(d: Drawing):
    a = d.one(lambda x: x.x.ndim > 1)
    order = list(range(a.x.ndim))
    d.random.shuffle(order)
    return moved(a, lax.transpose(a.x, order))


def reverse(d: Drawing):
    a = d.one(has_axes)
    return moved(a, lax.rev(a.x, [d.axis(a)]))


def piece(d: Drawing):
    a = d.one(has_axes)
    begin = [d.random.randint(0, n) for n in a.x.shape]
    end = [d.random.randint(b, n) for b, n in zip(begin, a.x.shape)]
    steps = [d.random.choice((1, 1, 2, 3)) for _ in begin]
    return moved(a, lax.slice(a.x, begin, end, steps))


def broadcast(d: Drawing):
    a = d.one(lambda x: x.x.ndim < 3)
    axis = d.random.randint(0, a.x.ndim)
    shape = list(a.x.shape)
    shape.insert(axis, d.random.choice(SIZES))
    axes = [k for k in range(len(shape)) if k != axis]
    return moved(a, lax.broadcast_in_dim(a.x, shape, axes))


def concatenate(d: Drawing):
    a = d.one(has_axes)
    axis = d.axis(a)

    def fits(y):
        shapes = [[*x.x.shape[:axis], *x.x.shape[axis + 1 :]] for x in (a, y)]
        return y.x.dtype == a.x.dtype and y.x.ndim == a.x.ndim and shapes[0] == shapes[1]

    parts = [a, *(d.one(fits) for _ in range(d.random.randint(0, 2)))]
    return [joined(*parts)._replace(x=lax.concatenate([x.x for x in parts], axis))]


def pad(d: Drawing):
    a = d.one()
    config = []
    for n in a.x.shape:
        gap = d.random.choice((0, 0, 1, 2))
        low, high = d.random.randint(-2, 2), d.random.randint(-2, 3)
        whole = n + max(n - 1, 0) * gap
        config.append((low, max(high, -whole - low), gap))
    filler = jnp.asarray(7, a.x.dtype) if a.kind != "b" else jnp.asarray(True)
    return [joined(a, Number(None, 0, 3))._replace(x=lax.pad(a.x, filler, config))]


def dynamic_slice(d: Drawing):
    a = d.one(has_axes)
    sizes = [d.random.randint(0, n) for n in a.x.shape]
    start = [jnp.asarray(d.index(), jnp.int64) for _ in sizes]
    if d.random.random() < 0.5:  # all of them of one type
        kind = d.random.choice((jnp.int32, jnp.uint32))
        start = [lax.convert_element_type(x, kind) for x in start]
    return moved(a, lax.dynamic_slice(a.x, start, sizes))


def dynamic_update_slice(d: Drawing):
    a = d.one(has_axes)

    def fits(y):
        small = all(n <= m for n, m in zip(y.x.shape, a.x.shape, strict=False))
        return y.x.dtype == a.x.dtype and y.x.ndim == a.x.ndim and small

    b, start = d.one(fits), [lax.convert_element_type(d.index(), jnp.int32) for _ in a.x.shape]
    return [joined(a, b)._replace(x=lax.dynamic_update_slice(a.x, b.x, start))]


MODES = "clip", "fill"


def gather(d: Drawing):
    a, places = d.one(has_axes), d.one(lambda x: x.kind in "iu" and x.x.ndim < 3)
    axis, mode = d.axis(a), d.random.choice(MODES)
    if a.x.shape[axis] == 0:  # JAX refuses most of it
        return []
    filler = 3 if a.kind != "b" else True
    at = a.x.at[(*[slice(None)] * axis, places.x)]
    result = at.get(mode=mode, fill_value=filler if mode == "fill" else None)
    return [joined(a, Number(None, 0, 2))._replace(x=result)]


def blocks(d: Drawing):
    """A slice of each row."""
    a = d.one(lambda x: x.x.ndim > 1 and all(x.x.shape))
    if a is None:
        return []
    n = d.random.randint(1, a.x.shape[1])
    k = d.like(Number(jnp.zeros(a.x.shape[:1], d.random.choice((jnp.int32, jnp.int64)))))
    rows = jax.vmap(lambda x, k: lax.dynamic_slice_in_dim(x, k, n))(a.x, k.x)
    return moved(a, rows)


def scatter(d: Drawing):
    a = d.one(lambda x: has_axes(x) and exact(x) and x.kind != "b")
    places = d.one(lambda x: x.kind in "iu" and x.x.ndim < 2)
    at = a.x.at[places.x]
    name, mode = d.random.choice(("set", "add", "mul", "min", "max")), d.random.choice(MODES)
    if a.x.shape[0] == 0:
        return []
    shape = (*places.x.shape, *a.x.shape[1:])
    if name == "set":  # which one wins is open
        return [
            joined(a, Number(None, 0, 2))._replace(x=at.set(jnp.ones(shape, a.x.dtype), mode=mode))
        ]
    b = d.like(Number(jnp.zeros(shape, a.x.dtype)), exact)
    turns = math.prod(places.x.shape)
    low, high = min(a.low, b.low), max(a.high, b.high) + (name == "add") * turns.bit_length()
    if name == "mul":
        low, high = a.low + turns * b.low, a.high + turns * b.high
    result = Number(getattr(at, name)(b.x, mode=mode), low, high, signed=False)
    return [result] if exact(result) else []


# --- along axes -----------------------------------------------------------------------------------


def reduction(d: Drawing):
    a = d.one(exact)
    axes = [k for k in range(a.x.ndim) if d.random.random() < 0.6]
    names = {"f": "sum prod max min", "b": "and or xor max min"}.get(
        a.kind, "sum prod max min xor and or"
    )
    name, n = d.random.choice(names.split()), math.prod(a.x.shape[k] for k in axes)
    low, high = (a.low * n, a.high * n) if name == "prod" else (a.low, a.high + n.bit_length())
    result = Number(
        getattr(lax, f"reduce_{name}")(a.x, axes), min(low, 0), max(high, 1), signed=False
    )
    return [result] if exact(result) else []


def reduction_of_a_program(d: Drawing):
    a = d.one(lambda x: has_axes(x) and x.kind in "iu")
    lowest = np.array(np.iinfo(a.x.dtype).min, a.x.dtype)
    last = lambda a, b: lax.select(b >= a, b, a)  # noqa: E731
    return [Number(lax.reduce(a.x, lowest, last, [d.axis(a)]))]


def cumulative(d: Drawing):
    a = d.one(lambda x: has_axes(x) and exact(x) and x.kind != "b")
    names = ["cumsum", "cummax", "cummin"] + ["cumprod"] * (a.kind != "f")
    name, axis = d.random.choice(names), d.axis(a)
    x = getattr(lax, name)(a.x, axis, reverse=d.random.random() < 0.5)
    result = Number(x, a.low, a.high + 3, signed=False)
    return [result] if exact(result) else []


def place_of_extreme(d: Drawing):
    a = d.one(lambda x: has_axes(x) and ordered(x) and all(x.x.shape))
    return [Number(d.random.choice((lax.argmax, lax.argmin))(a.x, d.axis(a), jnp.int32))]


def sorted_numbers(d: Drawing):
    a = d.one(lambda x: has_axes(x) and ordered(x))
    b = d.like(a, ordered)
    found = lax.sort((a.x, b.x), dimension=d.axis(a), num_keys=d.random.choice((1, 2)))
    return [*moved(a, found[0]), *moved(b, found[1])]


def product(d: Drawing):
    a = d.one(lambda x: has_axes(x) and exact(x) and x.kind != "b")
    axis = d.axis(a)

    def fits(y):
        return y.x.dtype == a.x.dtype and a.x.shape[axis] in y.x.shape and exact(y)

    b = d.one(fits)
    other = d.random.choice([k for k, n in enumerate(b.x.shape) if n == a.x.shape[axis]])
    batch = [
        (j, k)
        for j, n in enumerate(a.x.shape)
        for k, m in enumerate(b.x.shape)
        if n == m and j != axis and k != other
    ][:1]
    batch = batch if d.random.random() < 0.5 else []
    if a.x.ndim + b.x.ndim - 2 - len(batch) > 3:
        return []
    numbers = ([axis], [other]), ([j for j, _ in batch], [k for _, k in batch])
    high = a.high + b.high + a.x.shape[axis].bit_length()
    result = Number(lax.dot_general(a.x, b.x, numbers), min(a.low + b.low, 0), high, signed=False)
    return [result] if exact(result) else []


# --- loops and branches ---------------------------------------------------------------------------


def _inner(d: Drawing, own: Sequence[Number], like: Sequence[Number], count: int) -> list[Number]:
    """Operations on `own` and outer numbers, and some results of the shapes and types of `like`."""
    inner = Drawing(d.random, [*d.all, *own], SIMPLE if d.depth else OPERATIONS, d.depth + 1)
    inner.draw(d.random.randint(1, count))
    found = []
    for x in like:
        fits = [y for y in inner.all[len(d.all) :] if _same(x, y)] or [
            y for y in d.all if _same(x, y)
        ]
        found.append(d.random.choice(fits))
    return found


def _same(a: Number, b: Number) -> bool:
    return a.x.dtype == b.x.dtype and a.x.shape == b.x.shape


def _several(d: Drawing) -> list[Number]:
    # What turns of a loop make of floats cannot be told here, so they are only moved.
    found = [d.one() for _ in range(d.random.randint(1, 3))]
    return [_only_moved(x) if x.kind == "f" else x for x in found]


def _only_moved(x: Number, y: Any = None) -> Number:
    x = x if y is None else x._replace(x=y)
    return x if x.kind != "f" else x._replace(rounded=x.rounded or ROUNDED[4], signed=False)


def branches(d: Drawing):
    like = [d.one() for _ in range(d.random.randint(1, 3))]
    found: list[list[Number]] = []

    def branch():
        results = _inner(d, [], like, 5)
        found.append(results)
        return [x.x for x in results]

    cases = [functools.partial(branch) for _ in range(d.random.choice((2, 2, 3)))]
    if len(cases) == 2:
        which = d.one(lambda x: x.kind == "b" and x.x.ndim == 0)
        results = lax.cond(which.x, *cases)
    else:
        results = lax.switch(lax.convert_element_type(d.index(), jnp.int32), cases)
    return [joined(*xs)._replace(x=x) for x, *xs in zip(results, *found)]


def scan(d: Drawing):
    start, over = _several(d), [d.one(has_axes)]
    length = over[0].x.shape[0]
    over += [x for x in [d.one(lambda x: has_axes(x) and x.x.shape[0] == length)] if x is not None]
    rows: list[Number] = []

    def turn(carry, xs):
        own = [*map(_only_moved, start, carry), *(x._replace(x=y) for x, y in zip(over, xs))]
        shapes = [Number(jax.ShapeDtypeStruct(x.shape, x.dtype)) for x in carry]
        *carried, row = _inner(d, own, [*shapes, own[-1]], 5)
        rows[:] = [row]
        return [x.x for x in carried], row.x

    carried, stacked = lax.scan(
        turn, [x.x for x in start], [x.x for x in over], reverse=d.random.random() < 0.5
    )
    results = [_only_moved(x, y) for x, y in zip(start, carried)]
    return [*results, *(_only_moved(row, stacked) for row in rows)]


def while_loop(d: Drawing):
    start, end = _several(d), d.one(lambda x: x.x.dtype == np.int32 and x.x.ndim == 0)

    def goes_on(state):
        return state[0] < (end.x & 7)

    def turn(state):
        k, *carry = state
        own = [Number(k), *map(_only_moved, start, carry)]
        return [k + 1, *(x.x for x in _inner(d, own, own[1:], 5))]

    _, *found = lax.while_loop(goes_on, turn, [jnp.int32(0), *(x.x for x in start)])
    return [_only_moved(x, y) for x, y in zip(start, found)]


SIMPLE = [
    arithmetic, arithmetic, quotient, extreme, clamp, comparison, choice, choice_by_number, bits,
    one_number, function, power, converted, same_bits, reshape, transpose, reverse, piece,
    broadcast, concatenate, pad, dynamic_slice, dynamic_update_slice, gather, blocks, scatter,
    reduction, reduction_of_a_program, cumulative, place_of_extreme, sorted_numbers, product,
]  # fmt: skip
OPERATIONS = [*SIMPLE, branches, scan, while_loop]


# --- programs -------------------------------------------------------------------------------------


def inputs(random: Random, samples: int) -> list[np.ndarray]:
    """The arrays that a program starts with, with the samples first. The last one is only moved."""
    shapes = [(), (3,), (2, 3), some_shape(random)]
    arrays = [numbers(random, d, (samples, *s)) for d in DTYPES for s in shapes]
    last = random.choice(DTYPES[:2])
    return [*arrays, numbers(random, last, (samples, 3, 2), ONLY_MOVED)]


class Program:
    """A program of about `length` operations as a function for `jax.jit`. Afterwards `names` tells
    what has made each result, and `results` how it may differ."""

    def __init__(self, random: Random, length: int):
        self.random, self.length = random, length
        self.names: list[str] = []
        self.results: list[Number] = []

    def __call__(self, *arrays):
        known = [Number(x, -1, 2, given=True) for x in arrays[:-1]]
        known.append(Number(arrays[-1], rounded=0.0))
        drawing = Drawing(self.random, known, OPERATIONS)
        drawing.draw(self.length)
        kept = [k for k in range(len(arrays), len(drawing.all)) if drawing.is_kept(k)]
        self.results = [drawing.all[k] for k in kept]
        self.names = [drawing.names[k] for k in kept]
        return [x.x for x in self.results]

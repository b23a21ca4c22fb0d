"""Sums and extremes along axes."""

import math

import numpy as np

from .emitter import Emitter, Rule
from .form import Op
from .values import Entries, Ix, Lazy, Operand

# Up to this many terms of a sum are written out.
_WRITTEN_OUT, _WRITTEN_OUT_IN_LANES = 32, 11

_COMBINED_BY = {
    "reduce_sum": "add",
    "reduce_prod": "mul",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_and": "and",
    "reduce_or": "or",
    "reduce_xor": "xor",
}


def _of_nothing(name: str, dtype: np.dtype) -> Operand:
    """The result for no numbers."""
    low, high = (-np.inf, np.inf)
    if dtype.kind in "iu":
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    if dtype.kind == "b":
        low, high = False, True
    every = True if dtype.kind == "b" else -1
    by_name = {"add": 0, "mul": 1, "max": low, "min": high, "and": every, "or": 0, "xor": 0}
    return np.asarray(by_name[name]).astype(dtype)[()]


def _reduce(e: Emitter, op: Op) -> None:
    (x,), (out,), axes = op.ins, op.outs, list(map(int, op.params["axes"]))
    name, dtype = _COMBINED_BY[op.name], out.dtype
    value = e.value(x)
    kept = [k for k in range(len(x.shape)) if k not in axes]
    along = [x.shape[k] for k in axes]
    count = math.prod(along)
    most = _WRITTEN_OUT if e.options.lanes == 1 else _WRITTEN_OUT_IN_LANES
    written_out = isinstance(value, Entries) or count <= most
    if not e.is_small(out):
        value = e.in_loops(x)
        written_out = count <= 4

    def combined(a: Operand, b: Operand) -> Operand:
        return e.scalar(name, {}, [a, b], [dtype, dtype], dtype)

    def at(index):
        def number(inner):
            place = [Ix()] * len(x.shape)
            for k, i in (*zip(kept, index, strict=True), *zip(axes, inner, strict=True)):
                place[k] = i
            return e.at(value, place)

        if not written_out:
            return looped(number)
        numbers = [number(list(map(Ix, place))) for place in np.ndindex(*along)]
        total = numbers.pop(0) if numbers else _of_nothing(name, dtype)
        for x_ in numbers:
            total = combined(total, x_)
        return total

    def looped(number):
        total = e.variable(dtype, _of_nothing(name, dtype))

        def add(x: Operand) -> None:
            e.line(f"{total} = {e.show(combined(total, x))};")

        # Each lane adds some of the numbers. Then lanes exchange what they have.
        exchanged = e.sharing.can_share
        with e.loops(along, shared=exchanged) as inner:
            add(number(inner))
        if exchanged:
            step = e.name("i")
            with e.braces(f"for (int {step} = lanes / 2; {step} > 0; {step} /= 2)"):
                add(e.fresh(f"shuffle({total}, {step})", dtype))
        return total

    cost = count * (1 + getattr(value, "cost", 0))
    e.define(out, Lazy(out.shape, at, cost, value.buffers))


RULES: dict[str, Rule] = dict.fromkeys(_COMBINED_BY, _reduce)

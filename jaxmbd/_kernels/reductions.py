"""Sums, extremes, their places, and running sums."""

import math
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

import numpy as np

from .arrays import new_view
from .emitter import Emitter, Rule
from .form import Op
from .operations import CTYPE
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
    "cumsum": "add",
    "cumprod": "mul",
    "cummax": "max",
    "cummin": "min",
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


class _Fold:
    """A running result: one or more numbers that are combined with the next ones. `in_any_order`:
    the order does not matter, and the first numbers change nothing."""

    def __init__(
        self,
        e: Emitter,
        dtypes: Sequence[np.dtype],
        combine: Callable,
        in_any_order: bool = False,
    ):
        self.e, self.dtypes, self.combine = e, dtypes, combine
        self.in_any_order = in_any_order

    def written_out(self, first: list[Operand], others: Sequence[list[Operand]]) -> list[Operand]:
        for other in others:
            first = self.combine(first, other)
        return first

    def looped(
        self, first: list[Operand], shape: Sequence[int], numbers: Callable
    ) -> list[Operand]:
        e = self.e
        names: list[Any] = [e.variable(d, x) for d, x in zip(self.dtypes, first, strict=True)]
        # Each lane folds some of the numbers. Then lanes exchange what they have.
        exchanged = self.in_any_order and e.sharing.can_share
        with e.loops(shape, shared=exchanged) as index:
            self.assign(names, self.combine(names, numbers(index)))
        if exchanged:
            step = e.name("i")
            with e.braces(f"for (int {step} = lanes / 2; {step} > 0; {step} /= 2)"):
                pairs = zip(names, self.dtypes, strict=True)
                others = [e.fresh(f"shuffle({name}, {step})", dtype) for name, dtype in pairs]
                self.assign(names, self.combine(names, others))
        return names

    def assign(self, names: list[Operand], numbers: list[Operand]) -> None:
        for name, x in zip(names, numbers, strict=True):
            self.e.line(f"{name} = {self.e.show(x)};")


def _over_axes(
    e: Emitter,
    op: Op,
    axes: Sequence[SupportsIndex],
    fold: _Fold,
    first,
    numbers,
    neutral: bool = True,
) -> None:
    """`numbers(value, index)` of all places along the axes, folded from `first` on, which is
    `neutral` if it changes nothing."""
    x, out = op.ins[0], op.outs[0]
    value = e.value(x)
    kept = [k for k in range(len(x.shape)) if k not in axes]
    along = [x.shape[k] for k in axes]
    count = math.prod(along)
    most = _WRITTEN_OUT if e.options.lanes == 1 else _WRITTEN_OUT_IN_LANES
    written_out = isinstance(value, Entries) or count <= most
    if not e.is_small(out):
        value = e.in_loops(x)
        written_out = count <= 4

    def at(index):
        def full(inner):
            place = [Ix()] * len(x.shape)
            for k, i in (*zip(kept, index, strict=True), *zip(axes, inner, strict=True)):
                place[k] = i
            return numbers(value, place)

        if not written_out:
            return fold.looped(first, along, full)[-1]
        places = [full(list(map(Ix, place))) for place in np.ndindex(*along)]
        start = places.pop(0) if neutral and places else first
        return fold.written_out(start, places)[-1]

    cost = count * (1 + getattr(value, "cost", 0))
    e.define(out, Lazy(out.shape, at, cost, value.buffers))


def _reduce(e: Emitter, op: Op) -> None:
    name, dtype = _COMBINED_BY[op.name], op.outs[0].dtype

    def combine(a, b):
        return [e.scalar(name, {}, [*a, *b], [dtype, dtype], dtype)]

    axes = op.params["axes"]
    first = [_of_nothing(name, dtype)]
    fold = _Fold(e, [dtype], combine, in_any_order=True)
    _over_axes(e, op, axes, fold, first, lambda v, i: [e.at(v, i)])


def _reduce_by_block(e: Emitter, op: Op) -> None:
    (block,), dtype = op.blocks, op.outs[0].dtype

    def combine(a, b):
        for var, x in zip(block.params, (*a, *b), strict=True):
            e.values[var] = Entries(np.array(x, object))
        for inner in block.ops:
            e.forget([*inner.ins, *inner.outs])
        e.block(block)
        return [e.number(block.results[0])]

    axes, first, fold = op.params["axes"], [e.number(op.ins[1])], _Fold(e, [dtype], combine)
    _over_axes(e, op, axes, fold, first, lambda v, i: [e.at(v, i)], neutral=False)


def _arg(e: Emitter, op: Op) -> None:
    """The first place of the largest or smallest number, or of NaN."""
    (axis,), x, out = op.params["axes"], op.ins[0], op.outs[0]
    sign = ">" if op.name == "argmax" else "<"
    flag = np.dtype(bool)

    def combine(a, b):
        (best, at), (number, place) = a, b
        shown = e.show(number), e.show(best)
        text = f"{shown[0]} {sign} {shown[1]}"
        if x.dtype.kind == "f":
            text += f" || ({shown[0]} != {shown[0]} && {shown[1]} == {shown[1]})"
        better = e.named(text, flag)
        pairs = ((best, number, x.dtype), (at, place, out.dtype))
        return [e.scalar("select_n", {}, [better, *p[:2]], [flag, p[2], p[2]], p[2]) for p in pairs]

    def numbers(value, index):
        place, kind = index[axis], CTYPE[out.dtype.name]
        known = place.known
        counted = (
            e.named(f"({kind})({place})", out.dtype) if known is None else out.dtype.type(known)
        )
        return [e.at(value, index), counted]

    worst = _of_nothing("max" if op.name == "argmax" else "min", x.dtype)
    first = [worst, out.dtype.type(0)]
    _over_axes(e, op, [axis], _Fold(e, [x.dtype, out.dtype], combine), first, numbers)


def _cumulative(e: Emitter, op: Op) -> None:
    x, out, axis = op.ins[0], op.outs[0], op.params["axis"]
    name, n, shape = (
        _COMBINED_BY[op.name],
        op.ins[0].shape[op.params["axis"]],
        list(op.ins[0].shape),
    )
    order = range(n)[::-1] if op.params["reverse"] else range(n)
    value = e.value(x) if e.is_small(out) else e.in_loops(x)

    def running(place_of):
        """The results along a line, one after the other."""
        total = None
        for k in order:
            place = place_of(Ix(k))
            number = e.at(value, place)
            if total is not None:
                number = e.scalar(name, {}, [total, number], [x.dtype] * 2, x.dtype)
            total = number
            yield place, total

    def line(index):
        return lambda k: [*index[:axis], k, *index[axis:]]

    across = [m for k, m in enumerate(shape) if k != axis]
    if e.is_small(out):
        found = np.empty(out.shape, object)
        for index in np.ndindex(*across):
            for place, total in running(line(list(map(Ix, index)))):
                found[tuple(i.constant for i in place)] = total
        e.define(out, Entries(found))
        return
    view = new_view(e, out)
    with e.loops(across) as index:
        total: Any = e.variable(x.dtype, _of_nothing(name, x.dtype))
        with e.loops([n], shared=False) as (k,):
            place = line(index)(k * -1 + (n - 1) if op.params["reverse"] else k)
            operands = [total, e.at(value, place)]
            e.line(f"{total} = {e.show(e.scalar(name, {}, operands, [x.dtype] * 2, x.dtype))};")
            e.write(view, place, total)
    e.define(out, view)


RULES: dict[str, Rule] = {
    **dict.fromkeys((name for name in _COMBINED_BY if name.startswith("reduce")), _reduce),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin"), _cumulative),
    "reduce": _reduce_by_block,
    "argmax": _arg,
    "argmin": _arg,
}

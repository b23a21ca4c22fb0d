"""Operations that move numbers."""

import math
from collections.abc import Sequence

import numpy as np

from .emitter import Emitter, Rule
from .form import Op, Var
from .operations import ctype
from .values import Change, Entries, Ix, Lazy, Value, View, packed


def moved(e: Emitter, value: Value, change: Change, shape: Sequence[int]) -> Value:
    """The array whose entry at `index` is that of `value` at `change(index)`."""
    if isinstance(value, View):
        return value.moved(change, shape)
    cost = value.cost if isinstance(value, Lazy) else 0
    return Lazy(tuple(shape), lambda i: e.at(value, change(i)), cost, value.buffers)


def _slice(op: Op) -> Change:
    start = op.params["start_indices"]
    strides = op.params["strides"] or (1,) * len(start)
    return lambda index: [i * s + a for i, a, s in zip(index, start, strides, strict=True)]


def _transpose(op: Op) -> Change:
    back = np.argsort(op.params["permutation"])
    return lambda index: [index[k] for k in back]


def _reverse(op: Op) -> Change:
    last = {k: op.ins[0].shape[k] - 1 for k in op.params["dimensions"]}
    return lambda index: [i * -1 + last[k] if k in last else i for k, i in enumerate(index)]


def _broadcast(op: Op) -> Change:
    axes = list(zip(op.params["broadcast_dimensions"], op.ins[0].shape, strict=True))
    return lambda index: [index[k] if n != 1 else Ix() for k, n in axes]


def _rule(change_of) -> Rule:
    def rule(e: Emitter, op: Op) -> None:
        out = op.outs[0]
        e.define(out, moved(e, e.operand(op.ins[0], out), change_of(op), out.shape))

    return rule


def _reshape(e: Emitter, op: Op) -> None:
    x, out = op.ins[0], op.outs[0]
    value = e.value(x)
    if isinstance(value, Entries):
        e.define(out, Entries(value.array.reshape(out.shape)))
        return
    long = [k for k, n in enumerate(x.shape) if n != 1]
    places = [k for k, n in enumerate(out.shape) if n != 1]
    if [x.shape[k] for k in long] == [out.shape[k] for k in places]:

        def change(index):
            full = [Ix()] * len(x.shape)
            for k, j in zip(long, places, strict=True):
                full[k] = index[j]
            return full

        e.define(out, moved(e, value, change, out.shape))
        return
    if isinstance(value, Lazy):
        value = e.in_memory(x)
    view = value.reshaped(out.shape)
    if view is None:
        view = e.materialised(value, x).reshaped(out.shape)
    assert view is not None
    e.define(out, view)


def _iota(e: Emitter, op: Op) -> None:
    out, axis = op.outs[0], op.params["dimension"]
    kind = ctype(out.dtype)
    at = lambda index: e.named(f"({kind})({index[axis]})", out.dtype)  # noqa: E731
    e.define(out, Lazy(out.shape, at, 0, frozenset()))


def new_view(e: Emitter, var: Var) -> View:
    return packed(e.buffer(var.dtype, math.prod(var.shape)), var.shape)


def _concatenate(e: Emitter, op: Op) -> None:
    out, axis = op.outs[0], op.params["dimension"]
    values = [e.value(x) for x in op.ins]
    if e.is_small(out):
        e.define(out, Entries(np.concatenate(list(map(e.entries, values)), axis)))
        return
    view, begin = new_view(e, out), 0
    for x, value in zip(op.ins, values, strict=True):
        first = [Ix(begin if k == axis else 0) for k in range(len(out.shape))]
        e.store(View(view.buffer, view.place(first), view.strides, x.shape), value)
        begin += x.shape[axis]
    e.define(out, view)


RULES: dict[str, Rule] = {
    "slice": _rule(_slice),
    "transpose": _rule(_transpose),
    "rev": _rule(_reverse),
    "broadcast_in_dim": _rule(_broadcast),
    "reshape": _reshape,
    "iota": _iota,
    "concatenate": _concatenate,
}

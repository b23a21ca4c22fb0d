"""Reading and writing at places that only run time knows."""

import math
from collections.abc import Sequence

import numpy as np

from .arrays import moved
from .emitter import Emitter, Rule
from .form import Op, Var
from .form import Value as Named
from .operations import same
from .values import Entries, Ix, Lazy, Operand, Value, View, buffers_of, entries

# Up to so many entries in all, variables are chosen by comparisons instead of moving to memory.
_CHOSEN = 64

_INT, _BOOL = np.dtype(np.int32), np.dtype(bool)


def _clamped(e: Emitter, x: Operand, top: int) -> Ix:
    """x between 0 and `top`, as an index."""
    if not isinstance(x, str):
        return Ix(min(max(int(x), 0), top))
    if top <= 0:
        return Ix()
    return Ix(0, {e.named(f"{x} < 0 ? 0 : {x} > {top} ? {top} : (int){x}", _INT): 1})


def _inside(e: Emitter, x: Operand, top: int) -> Operand:
    """Whether x is between 0 and `top`."""
    if not isinstance(x, str):
        return np.bool_(0 <= int(x) <= top)
    return e.named(f"{x} >= 0 && {x} <= {top}", _BOOL)


def _starts(e: Emitter, starts: Sequence[Named], shape, sizes) -> list[Ix]:
    tops = [n - k for n, k in zip(shape, sizes, strict=True)]
    return [_clamped(e, e.number(s), top) for s, top in zip(starts, tops, strict=True)]


def _dynamic_slice(e: Emitter, op: Op) -> None:
    (x, *starts), out = op.ins, op.outs[0]
    start = _starts(e, starts, x.shape, out.shape)
    shifted = lambda index: [i + a for i, a in zip(index, start, strict=True)]  # noqa: E731
    value, moving = e.value(x), [k for k, a in enumerate(start) if a.known is None]
    if isinstance(value, Entries) and moving:
        choices = math.prod(x.shape[k] - out.shape[k] + 1 for k in moving)
        if choices * math.prod(out.shape) <= _CHOSEN and x not in e.stored_values:
            e.define(out, _chosen_slice(e, value, start, moving, out))
            return
        value = e.in_memory(x)
    elif isinstance(value, Lazy) and value.cost and not e.is_small(out):
        value = e.in_memory(x)
    found = moved(e, value, shifted, out.shape)
    if isinstance(found, View) and e.is_small(out) and not found.buffer.constant:
        # Read now, the row does not keep others from writing to the array.
        found = Entries(e.entries(found))
    e.define(out, found)


def _chosen_slice(e: Emitter, value: Entries, start: list[Ix], moving: list[int], out: Var):
    array = value.array
    for k, a in enumerate(start):
        n = out.shape[k]
        if k not in moving:
            array = np.take(array, range(a.constant, a.constant + n), k)
            continue
        pieces = [np.take(array, range(b, b + n), k) for b in range(array.shape[k] - n + 1)]
        array = pieces[-1]
        for b, piece in reversed(list(enumerate(pieces[:-1]))):
            here = e.named(f"{a} == {b}", _BOOL)
            array = _either(e, here, piece, array, out.dtype)
    return Entries(array)


def _either(e: Emitter, condition: Operand, a: np.ndarray, b: np.ndarray, dtype: np.dtype):
    """a where the condition holds, else b, of all entries."""
    pairs = zip(a.ravel(), b.ravel(), strict=True)
    types = [_BOOL, dtype, dtype]
    chosen = (e.scalar("select_n", {}, [condition, y, x], types, dtype) for x, y in pairs)
    return entries(a.shape, chosen).array


def _dynamic_update_slice(e: Emitter, op: Op) -> None:
    (x, update, *starts), out = op.ins, op.outs[0]
    start = _starts(e, starts, x.shape, update.shape)
    value, new = e.value(x), e.value(update)
    moving = [k for k, a in enumerate(start) if a.known is None]
    if e.is_small(out) and (isinstance(value, Entries) or not moving):
        tops = [n - m for n, m in zip(x.shape, update.shape, strict=True)]
        choices = math.prod(tops[k] + 1 for k in moving)
        if choices * math.prod(update.shape) <= _CHOSEN:
            array = e.entries(value)
            numbers = e.entries(new)
            e.define(out, _updated(e, array, numbers, start, moving, tops, out))
            return
    if not isinstance(new, Entries) and new.buffers & value.buffers:
        new = e.materialised(new, update)
    view = e.writable(x) or e.materialised(e.value(x), out)
    if math.prod(update.shape):
        e.store(View(view.buffer, view.place(start), view.strides, update.shape), new)
    e.define(out, view)


def _updated(e: Emitter, array, numbers, start, moving, tops, out: Var) -> Entries:
    """The entries with an update at all places where it may stand, each under its condition."""
    found = array.copy()
    for choice in np.ndindex(*(tops[k] + 1 for k in moving)):
        begin, condition = [a.constant for a in start], np.bool_(True)
        for k, b in zip(moving, choice, strict=True):
            begin[k] = b
            here = e.named(f"{start[k]} == {b}", _BOOL)
            condition = e.scalar("and", {}, [condition, here], [_BOOL, _BOOL], _BOOL)
        window = tuple(slice(b, b + n) for b, n in zip(begin, numbers.shape, strict=True))
        window = (*window, ...)
        found[window] = _either(e, condition, numbers, found[window], out.dtype)
    return Entries(found)


# --- gather and scatter ---------------------------------------------------------------------------


def _drops(params) -> bool:
    """Whether places outside of the array are left out; else they move to its border."""
    mode = str(params["mode"])
    if "CLIP" in mode or "PROMISE" in mode or "FILL" in mode:
        return "FILL" in mode
    return True


def _located(e: Emitter, op: Op, rows: Named, where: Value):
    """A function from the index of a number in `rows`, of which each belongs to one of the places
    `where`, to its index in the array, and whether this is in the array."""
    # The axes of windows in `rows`; those that a window lacks; those that begin at a place; those
    # that array and places have in common.
    in_rows, removed, starts, common, in_places, *_ = op.params["dimension_numbers"]
    shape, drops = op.ins[0].shape, _drops(op.params)
    window = [k for k in range(len(shape)) if k not in (*removed, *common)]
    windows = list(zip(window, in_rows, strict=True))
    sizes = {k: rows.shape[j] for k, j in windows}
    batch = [k for k in range(len(rows.shape)) if k not in in_rows]

    def at(index):
        full, inside = [Ix()] * len(shape), np.bool_(True)
        for k, j in zip(common, in_places, strict=True):
            full[k] = index[batch[j]]
        for n, k in enumerate(starts):
            number = e.at(where, [*(index[j] for j in batch), Ix(n)])
            top = shape[k] - sizes.get(k, 1)
            full[k] = _clamped(e, number, top)
            if drops:
                both = [inside, _inside(e, number, top)]
                inside = e.scalar("and", {}, both, [_BOOL, _BOOL], _BOOL)
        for k, j in windows:
            full[k] = full[k] + index[j]
        return full, inside

    return at


def _gather(e: Emitter, op: Op) -> None:
    (x, places), out, fill = op.ins, op.outs[0], op.params["fill_value"]
    if fill is None:
        info = np.iinfo(out.dtype) if out.dtype.kind in "iu" else None
        fill = {"f": np.nan, "i": info and info.min, "u": info and info.max}.get(out.dtype.kind, 0)
    fill = out.dtype.type(fill)
    where = e.value(places) if e.is_small(out) else e.read_often(places)
    value = e.read_often(x)
    if isinstance(e.value(x), Entries) and e.is_small(out) and _all_known(e, places):
        value = e.value(x)
    located = _located(e, op, out, where)

    def at(index):
        full, inside = located(index)
        number = e.at(value, full) if math.prod(x.shape) else fill
        types = [_BOOL, out.dtype, out.dtype]
        return e.scalar("select_n", {}, [inside, fill, number], types, out.dtype)

    e.define(out, Lazy(out.shape, at, 3, buffers_of([where, value])))


def _all_known(e: Emitter, x: Named) -> bool:
    value = e.value(x)
    if isinstance(value, View):
        return value.buffer.table is not None
    return isinstance(value, Entries) and not any(isinstance(i, str) for i in value.array.flat)


_COMBINED_BY = {
    "scatter-add": "add",
    "scatter-mul": "mul",
    "scatter-min": "min",
    "scatter-max": "max",
}


def _scatter(e: Emitter, op: Op) -> None:
    (x, places, updates), out = op.ins, op.outs[0]
    in_entries = _all_known(e, places) and e.is_small(out)
    target = _located(e, op, updates, e.value(places) if in_entries else e.read_often(places))

    def combined(old, new):
        name = _COMBINED_BY.get(op.name)
        return new if name is None else e.scalar(name, {}, [old, new], [out.dtype] * 2, out.dtype)

    if in_entries:
        array = e.entries(e.value(x)).copy()
        numbers = e.entries(e.value(updates))
        for place in np.ndindex(*updates.shape):
            full, inside = target(list(map(Ix, place)))
            if inside:
                at = tuple(i.constant for i in full)
                array[at] = combined(array[at], numbers[place])
        e.define(out, Entries(array))
        return
    new = e.read_often(updates)
    if new.buffers & e.value(x).buffers:
        new = e.materialised(new, updates)
    view = e.writable(x) or e.materialised(e.value(x), out)
    # Several updates may go to one place, so lanes cannot share them.
    with e.sharing.alone(), e.scope(), e.loops(updates.shape, shared=False) as index:
        full, inside = target(index)
        if not same(inside, np.bool_(False)) and math.prod(x.shape):
            number = e.at(new, index)
            with e.braces("if (" + e.show(inside) + ")"):
                old = e.at(view, full) if op.name in _COMBINED_BY else None
                e.write(view, full, combined(old, number))
    e.define(out, view)


RULES: dict[str, Rule] = {
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    **dict.fromkeys(("scatter", *_COMBINED_BY), _scatter),
}

"""Loops and branches."""

import contextlib
import math
from collections.abc import Iterator, Sequence

from .arrays import moved, new_view
from .emitter import Emitter, Rule
from .form import Block, Op, Var
from .form import Value as Named
from .operations import same
from .values import Entries, Ix, Value, View, entries, packed

# Carried arrays of more entries lie in memory if they are read or written at places that only run
# time knows.
_FEW = 8

# Bytes of an array that is stacked by a loop of more than `_SHORT` turns; larger ones lie in
# scratch memory.
_NEAR, _SHORT = 256, 32


class _Carry:
    """What goes from one turn of a loop to the next: variables that change, and memory."""

    def __init__(self, e: Emitter, operands: Sequence[Named], body: Block):
        self.e = e
        self.values = [self.begin(x, p, body) for x, p in zip(operands, body.params, strict=False)]
        names = (v.array.flat for v in self.values if isinstance(v, Entries))
        self.names = {name for flat in names for name in flat}
        views = (v for v in self.values if isinstance(v, View))
        self.buffers = frozenset(view.buffer for view in views)

    def begin(self, x: Named, param: Var, body: Block) -> Entries | View:
        e = self.e
        if e.is_small(param) and not (
            math.prod(param.shape) > _FEW and _read_anywhere(param, body)
        ):
            numbers = e.entries(e.value(x)).ravel()
            return entries(param.shape, [e.variable(param.dtype, number) for number in numbers])
        return e.writable(x) or e.materialised(e.value(x), param)

    def give(self, params: Sequence[Var], owner: Block) -> None:
        """The parameters of a block, or results behind the loop, have the carried values."""
        for param, value in zip(params, self.values, strict=False):
            self.e.values[param] = value
            if isinstance(value, View):
                value.buffer.owner = owner
                value.buffer.users.append(param)

    def update(self, results: Sequence[Named]) -> None:
        """At the end of a turn, all at once: nothing is overwritten before it is read."""
        e, stores, assignments = self.e, [], []
        for old, x in zip(self.values, results, strict=True):
            new = e.value(x)
            if isinstance(old, Entries):
                for name, number in zip(old.array.flat, e.entries(new).flat, strict=True):
                    if same(name, number):
                        continue
                    if number in self.names:
                        number = e.fresh(number, x.dtype)
                    assignments.append((name, number))
                continue
            if isinstance(new, View) and new.buffer is old.buffer and new.is_whole:
                continue
            if new.buffers & self.buffers:
                new = e.materialised(new, x)
            stores.append((old, new))
        for old, new in stores:
            e.store(old, new)
        for name, number in assignments:
            e.line(f"{name} = {e.show(number)};")


def _read_anywhere(x: Var, block: Block) -> bool:
    """Whether the block, or one within it, reads or writes x at places that only run time knows."""
    for op in block.ops:
        if x in op.ins[:1] and op.name in ("dynamic_slice", "dynamic_update_slice", "gather"):
            if any(isinstance(i, Var) for i in op.ins[1:]):
                return True
        if x in op.ins[:1] and op.name.startswith("scatter") and isinstance(op.ins[1], Var):
            return True
        if op.name == "scan" and x in op.ins[op.carries :]:
            return True
        for inner in op.blocks:
            if _read_anywhere(x, inner):
                return True
        if op.name in ("scan", "while"):
            for k, y in enumerate(op.ins[: op.carries]):
                if y is x and any(_read_anywhere(inner.params[k], inner) for inner in op.blocks):
                    return True
    return False


@contextlib.contextmanager
def _repeated(e: Emitter, head: str) -> Iterator[None]:
    with e.braces(head):
        e.sharing.forget()
        yield
    e.sharing.forget()


def _done(e: Emitter, block: Block) -> None:
    for x in block.results:
        e.used(x)


def _scan(e: Emitter, op: Op) -> None:
    (body,), n, length = op.blocks, op.carries, op.params["length"]
    carry = _Carry(e, op.ins[:n], body)
    arrays = [e.read_often(x) for x in op.ins[n:]]
    stacked = [_stack(e, out, length) for out in op.outs[n:]]
    turn = e.name("t")
    at = Ix(length - 1, {turn: -1}) if op.params["reverse"] else Ix(0, {turn: 1})
    with _repeated(e, f"for (int {turn} = 0; {turn} < {length}; ++{turn})"):
        carry.give(body.params, body)
        for param, value in zip(body.params[n:], arrays, strict=True):
            e.define(param, _row(e, value, at, param.shape))
        e.block(body)
        for view, x in zip(stacked, body.results[n:], strict=True):
            row = view.moved(lambda index: [at, *index], x.shape)
            if math.prod(x.shape):
                e.store(row, e.value(x))
        carry.update(body.results[:n])
        _done(e, body)
    carry.give(op.outs, e.blocks[-1])
    for out, view in zip(op.outs[n:], stacked, strict=True):
        e.define(out, view)


def _stack(e: Emitter, out: Var, length: int) -> View:
    """Memory for what a loop stacks. What a long loop writes is read much later, and need not be
    near."""
    size = math.prod(out.shape)
    far = length > _SHORT and size * out.dtype.itemsize > _NEAR
    return packed(e.buffer(out.dtype, size, far), out.shape)


def _row(e: Emitter, value: Value, at: Ix, shape: Sequence[int]) -> Value:
    row = moved(e, value, lambda index: [at, *index], shape)
    if isinstance(row, View) and math.prod(shape) <= e.options.small:
        return Entries(e.entries(row))
    return row


def _while(e: Emitter, op: Op) -> None:
    condition, body = op.blocks
    carry = _Carry(e, op.ins, body)
    with _repeated(e, "while (true)"):
        carry.give(condition.params, body)
        carry.give(body.params, body)
        e.block(condition)
        e.line(f"if (!({e.show(e.number(condition.results[0]))})) break;")
        _done(e, condition)
        e.block(body)
        carry.update(body.results)
        _done(e, body)
    carry.give(op.outs, e.blocks[-1])


def _unset(e: Emitter, out: Var) -> Entries:
    names = [e.variable(out.dtype, prefix="r") for _ in range(math.prod(out.shape))]
    return entries(out.shape, names)


def _cond(e: Emitter, op: Op) -> None:
    index, is_bool = e.number(op.ins[0]), op.ins[0].dtype.kind == "b"
    results = [_unset(e, out) if e.is_small(out) else new_view(e, out) for out in op.outs]
    for k, block in enumerate(op.blocks):
        test = f"!{e.show(index)}" if is_bool else f"{e.show(index)} <= {k}"
        last = k == len(op.blocks) - 1
        head = ("else " if k else "") + ("" if last else f"if ({test})")
        with e.braces(head):
            e.block(block)
            for x, result in zip(block.results, results, strict=True):
                if isinstance(result, View):
                    e.store(result, e.value(x))
                    continue
                numbers = e.entries(e.value(x)).flat
                for name, number in zip(result.array.flat, numbers, strict=True):
                    e.line(f"{name} = {e.show(number)};")
            _done(e, block)
        e.sharing.forget()
    for out, result in zip(op.outs, results, strict=True):
        e.define(out, result)


def _failed(e: Emitter, op: Op) -> None:
    number = e.show(e.number(op.ins[0]))
    e.line(f"failed[0] = {op.params['first']} + (int){number};")
    e.line("return;")  # a loop that follows might not end


RULES: dict[str, Rule] = {"scan": _scan, "while": _while, "cond": _cond, "failed": _failed}

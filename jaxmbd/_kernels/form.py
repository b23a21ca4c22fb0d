"""The intermediate form: operations on arrays in blocks, where only loops and branches have inner
blocks.

Every variable is assigned once. The operations are those of JAX (their names and parameters), but
there are no calls, and

- `scan`: operands are the carry, then the arrays that the loop goes over; the block returns the new
  carry, then what is stacked. `params`: `length`, `reverse`, and `carry`, the size of the carry.
- `while`: operands are the carry; the first block is the condition, the second the body.
- `cond`: the operand is the index, the blocks are the branches, without parameters.
- `failed`: has no result. This branch raises an error and ends the program; the operand is added to
  `first`, the number of its first message.

Blocks read the variables of the blocks around them.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np


class Const:
    """A known array."""

    def __init__(self, value: Any):
        self.value = np.asarray(value)
        self.shape, self.dtype = self.value.shape, self.value.dtype


class Var:
    """An array. `op` is what computes it; a parameter of a block has none. `uses` counts its
    readers, and `looped` tells whether some of them run more often than `op`."""

    __slots__ = ("block", "dtype", "index", "looped", "op", "shape", "uses")

    def __init__(self, shape, dtype, block: "Block", op: "Op | None", index: int):
        self.shape, self.dtype = tuple(map(int, shape)), np.dtype(dtype)
        self.block, self.op, self.index = block, op, index
        self.uses, self.looped = 0, False


Value = Var | Const


@dataclass(eq=False)
class Op:
    name: str
    params: dict[str, Any]
    ins: list[Value]
    outs: list[Var] = field(default_factory=list)
    blocks: list["Block"] = field(default_factory=list)

    @property
    def carries(self) -> int:
        """How many of the operands are carried through a loop."""
        return self.params["carry"] if self.name == "scan" else len(self.ins)


@dataclass(eq=False)
class Block:
    """`known` are the operations of the block by what they compute."""

    parent: "Block | None" = None
    is_loop: bool = False
    op: Op | None = None
    params: list[Var] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)
    known: dict[Any, Op] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        return 0 if self.parent is None else self.parent.depth + 1

    def add_params(self, avals) -> list[Var]:
        self.params = [Var(a.shape, a.dtype, self, None, k) for k, a in enumerate(avals)]
        return self.params


def cleaned(top: Block) -> Block:
    """The program without what no result needs, with the users of each variable counted."""
    _prune(top, _needed(top))
    return top


def _needed(top: Block) -> set[Var]:
    """Variables that results depend on."""
    needed: set[Var] = set()
    waiting = list(top.results)
    while waiting:
        x = waiting.pop()
        if isinstance(x, Const) or x in needed:
            continue
        needed.add(x)
        op, k = x.op or x.block.op, x.index
        if op is None:  # an input of the program
            continue
        if op.name in ("scan", "while"):
            if k < op.carries:
                waiting += [op.ins[k], op.blocks[-1].results[k]]
            else:
                waiting.append(op.blocks[0].results[k] if x.op else op.ins[k])
            if op.name == "while":
                waiting.append(op.blocks[0].results[0])
        else:
            waiting += op.ins
            waiting += (block.results[k] for block in op.blocks)
            waiting += (i for block in op.blocks for y in block.ops if not y.outs for i in y.ins)
    return needed


def _prune(block: Block, needed: set[Var]) -> None:
    kept = []
    for op in block.ops:
        if op.name in ("scan", "while"):
            n, body = op.carries, op.blocks[-1]
            carried = [
                op.outs[k] in needed or any(inner.params[k] in needed for inner in op.blocks)
                for k in range(n)
            ]
            over = [x in needed for x in body.params[n:]]
            stacked = [x in needed for x in op.outs[n:]]
            if not any(carried + stacked):
                continue
            op.ins = _picked(op.ins, carried + over)
            for inner in op.blocks:
                inner.params = _picked(inner.params, carried + over)
            body.results = _picked(body.results, carried + stacked)
            op.outs = _picked(op.outs, carried + stacked)
            if op.name == "scan":
                op.params["carry"] = sum(carried)
        else:
            keep = [x in needed for x in op.outs]
            if op.name != "failed" and not any(keep):
                continue
            op.outs = _picked(op.outs, keep)
            for inner in op.blocks:
                inner.results = _picked(inner.results, keep)
        for x in op.ins:
            _use(x, block)
        for inner in op.blocks:
            _prune(inner, needed)
        kept.append(op)
    block.ops = kept
    for x in block.results:
        _use(x, block)


def _use(x: Value, at: Block) -> None:
    if isinstance(x, Const):
        return
    x.uses += 1
    while at is not x.block:
        x.looped |= at.is_loop
        assert at.parent is not None
        at = at.parent


def _picked(xs: list, keep: list[bool]) -> list:
    return [x for x, k in zip(xs, keep, strict=True) if k]

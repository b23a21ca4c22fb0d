"""From a jaxpr to the intermediate form.

Calls are opened. What is known is computed. What is computed twice, or in each turn of a loop
without changing, is computed once. Short loops are written out. Operations that are others in
disguise are replaced, so that few remain.
"""

import functools
import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr

from .._lanes import call_of, equations_of, is_literal, opened, scan_parts, while_parts
from . import keys
from .folding import folded, sorted_known
from .form import Block, Const, Op, Value, Var, cleaned
from .operations import is_elementwise
from .programs import PROGRAMS
from .unsupported import Unsupported

# Operations that only tell compilers or derivatives something, and return their operands.
_IDENTITIES = (
    "materialise materialise_cotangent stop_gradient name copy copy_p optimization_barrier pvary "
    "device_put reshard"
).split()

# What the emitter knows, besides elementwise operations.
_KEPT = (
    "reshape transpose broadcast_in_dim slice rev concatenate iota dynamic_slice "
    "dynamic_update_slice gather scatter scatter-add scatter-mul scatter-min scatter-max "
    "reduce_sum reduce_prod reduce_max reduce_min reduce_and reduce_or reduce_xor"
).split()

_KINDS = "biuf"


def flattened(program: ClosedJaxpr, unrolled: int) -> tuple[Block, list[str]]:
    """The program in the intermediate form, and the messages of the errors that it raises. Loops of
    up to `unrolled` operations on numbers are written out."""
    flattener = _Flattener(unrolled)
    top = flattener.block
    top.add_params([_aval(v) for v in program.jaxpr.invars])
    top.results = flattener.run(program, list(top.params))
    return cleaned(top), flattener.checks


class _Aval:
    """Shape and type of an array."""

    def __init__(self, shape: Sequence[int], dtype: Any):
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        if self.dtype.kind not in _KINDS or (self.dtype.kind == "f" and self.dtype.itemsize < 4):
            raise Unsupported(f"numbers of type {self.dtype.name}")


def _aval(v: Any) -> _Aval:
    try:
        dtype = keys.stored_dtype(v.aval.dtype)
    except TypeError:
        raise Unsupported(f"numbers of type {v.aval.dtype}") from None
    return _Aval(v.aval.shape, dtype)


class _Flattener:
    def __init__(self, unrolled: int):
        self.block, self.unrolled = Block(), unrolled
        self.checks: list[str] = []
        self.works: dict[Jaxpr, int] = {}
        self.programs: dict[Any, ClosedJaxpr] = {}

    # --- programs

    def run(self, program: ClosedJaxpr | Jaxpr, operands: list[Value]) -> list[Value]:
        known = dict(opened(program, operands, lambda x: Const(keys.stored(x))))

        def read(v):
            return Const(np.asarray(v.val, _aval(v).dtype)) if is_literal(v) else known[v]

        jaxpr = equations_of(program)
        for equation in jaxpr.eqns:
            outs = self.equation(equation, list(map(read, equation.invars)))
            known.update(zip(equation.outvars, outs, strict=True))
        return list(map(read, jaxpr.outvars))

    def equation(self, equation, ins: list[Value]) -> list[Value]:
        name, params = equation.primitive.name, equation.params
        call = call_of(equation, ins)
        if call is not None:
            return self.run(*call)
        if name in _IDENTITIES:
            return ins
        rule = getattr(self, "_" + name.replace("-", "_"), None)
        if rule is not None:
            return rule(equation, ins)
        if name in PROGRAMS:
            return self.program(name, params, ins)
        if name in keys.MAKERS:
            return self.random(equation, ins)
        if is_elementwise(name) or name in _KEPT:
            return [self.add(name, params, ins, _aval(v)) for v in equation.outvars]
        return self.opened_up(equation, ins)

    def traced(self, fn: Callable, ins: list[Value], key: Any = None) -> list[Value]:
        """The results of a function that JAX can trace, once for each key."""
        if key is None or key not in self.programs:
            shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in ins]
            self.programs[key] = jax.make_jaxpr(fn)(*shapes)
        return self.run(self.programs[key], ins)

    def program(self, name: str, params: dict, ins: list[Value]) -> list[Value]:
        """An operation as a program of others."""
        known = [x.value for x in ins if isinstance(x, Const)]
        if name == "sort" and len(known) == len(ins):
            return list(map(Const, sorted_known(params, known)))
        key = name, repr(params), tuple((x.shape, x.dtype) for x in ins)
        fn = functools.partial(PROGRAMS[name], params)
        return self.traced(fn, ins, None if name == "reduce" else key)

    def opened_up(self, equation, ins):
        """A primitive of others, by its implementation in JAX."""
        primitive = equation.primitive
        if "callback" in primitive.name:
            raise Unsupported(primitive.name)
        shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars]
        try:
            program = jax.make_jaxpr(lambda *x: primitive.impl(*x, **equation.params))(*shapes)
        except Exception:
            raise Unsupported(primitive.name) from None
        if any(inner.primitive is primitive for inner in program.jaxpr.eqns):
            raise Unsupported(primitive.name)
        return self.run(program, ins)

    # --- operations

    def add(self, name: str, params: dict, ins: list[Value], aval: Any) -> Value:
        if all(isinstance(x, Const) for x in ins):
            known = [x.value for x in ins if isinstance(x, Const)]
            value = folded(name, params, known, aval.dtype, math.prod(aval.shape))
            if value is not None:
                return Const(value)
        if _changes_nothing(name, params, ins, aval):
            return ins[0]
        key = self.key(name, params, ins)
        at = self.block
        while key is not None and at is not None:
            if key in at.known:
                return at.known[key].outs[0]
            at = at.parent
        block = self.home(ins)
        op = Op(name, params, ins)
        op.outs = [Var(aval.shape, aval.dtype, block, op, 0)]
        block.ops.append(op)
        if key is not None:
            block.known[key] = op
        return op.outs[0]

    def key(self, name, params, ins):
        def of(x):
            if isinstance(x, Const):
                return x.shape, x.dtype.str, x.value.tobytes()
            return x

        try:
            key = name, tuple(sorted(params.items())), tuple(map(of, ins))
            hash(key)
        except TypeError:
            return None
        return key

    def home(self, ins: list[Value]) -> Block:
        """The outermost block in which the operands are known, without leaving a branch."""
        needed = max((x.block.depth for x in ins if isinstance(x, Var)), default=0)
        block = self.block
        while block.depth > needed and block.is_loop:
            assert block.parent is not None
            block = block.parent
        return block

    def reshaped(self, x: Value, shape: Sequence[int]) -> Value:
        return self.add("reshape", {"new_sizes": tuple(shape)}, [x], _Aval(shape, x.dtype))

    def sliced(self, x: Value, axis: int, begin: int, end: int) -> Value:
        start, limit = [0] * len(x.shape), list(x.shape)
        start[axis], limit[axis] = begin, end
        shape = [b - a for a, b in zip(start, limit, strict=True)]
        params = dict(start_indices=tuple(start), limit_indices=tuple(limit), strides=None)
        return self.add("slice", params, [x], _Aval(shape, x.dtype))

    def elementwise(self, name: str, *ins: Value, dtype: Any = None, **params: Any) -> Value:
        shape = np.broadcast_shapes(*(x.shape for x in ins))
        aval = _Aval(shape, ins[0].dtype if dtype is None else dtype)
        return self.add(name, params, list(ins), aval)

    def _squeeze(self, equation, ins):
        return [self.reshaped(ins[0], equation.outvars[0].aval.shape)]

    _expand_dims = _squeeze

    def _reshape(self, equation, ins):
        if equation.params.get("dimensions") is not None:
            raise Unsupported("reshape in another order")
        return self._squeeze(equation, ins)

    def _broadcast_in_dim(self, equation, ins):
        out, params = _aval(equation.outvars[0]), dict(equation.params)
        if math.prod(out.shape) == math.prod(ins[0].shape):
            return [self.reshaped(ins[0], out.shape)]
        params.pop("sharding", None)
        return [self.add("broadcast_in_dim", params, ins, out)]

    def _empty2(self, equation, ins):
        return [Const(np.zeros(v.aval.shape, _aval(v).dtype)) for v in equation.outvars]

    _empty = _empty2

    def _platform_index(self, equation, ins):
        # What is for no platform in particular.
        return [Const(np.int32(equation.params["platforms"].index(None)))]

    def _pure_callback(self, equation, ins):
        # Equinox raises by a callback, in a branch, and a kernel cannot raise.
        fn: Any = getattr(equation.params["callback"], "callback_func", None)
        if not getattr(fn, "__module__", "").startswith("equinox."):
            raise Unsupported("pure_callback, by which it calls Python")
        # Its last operand tells which of its messages it is.
        messages = inspect.getclosurevars(fn).nonlocals.get("msgs", ("A check failed.",))
        self.block.ops.append(Op("failed", {"first": len(self.checks) + 1}, ins[-1:]))
        self.checks += messages
        return self._empty2(equation, ins)

    def random(self, equation, ins):
        for v in (*equation.invars, *equation.outvars):
            _aval(v)  # refuses keys of other generators
        name = equation.primitive.name
        operands = [ins[0] if name == "random_seed" else self.halves(ins[0]), *ins[1:]]
        (out,) = self.traced(functools.partial(keys.MAKERS[name], equation.params), operands)
        return [out if name == "random_bits" else self.joined(out)]

    def halves(self, key: Value) -> Value:
        halves = [
            self.elementwise(half, key, dtype=np.uint32) for half in ("low_half", "high_half")
        ]
        rows = [self.reshaped(x, (*x.shape, 1)) for x in halves]
        aval = _Aval((*key.shape, 2), np.uint32)
        return self.add("concatenate", {"dimension": len(key.shape)}, rows, aval)

    def joined(self, halves: Value) -> Value:
        axis = len(halves.shape) - 1
        parts = [
            self.reshaped(self.sliced(halves, axis, k, k + 1), halves.shape[:-1]) for k in (0, 1)
        ]
        return self.elementwise("joined_halves", *parts, dtype=np.uint64)

    def _random_wrap(self, equation, ins):
        _aval(equation.outvars[0])
        return [self.joined(ins[0])]

    def _random_unwrap(self, equation, ins):
        return [self.halves(ins[0])]

    # --- loops and branches

    def _scan(self, equation, ins):
        constants, carry, over = scan_parts(equation, ins)
        program, length = equation.params["jaxpr"], equation.params["length"]
        if length == 1 or length * self.work(program) <= self.unrolled:
            return self.written_out(equation, constants, carry, over)
        params = dict(length=length, reverse=equation.params["reverse"], carry=len(carry))
        op, fixed = Op("scan", params, [*carry, *over]), _fixed(program, carry, len(over))
        self.inner(
            op, program, constants, [*carry, *(_Aval(x.shape[1:], x.dtype) for x in over)], fixed
        )
        return self.finish(op, equation.outvars, fixed)

    def written_out(self, equation, constants, carry, over):
        """A short scan."""
        params, stacked = equation.params, []
        turns = range(params["length"])
        for turn in reversed(turns) if params["reverse"] else turns:
            rows = [self.reshaped(self.sliced(x, 0, turn, turn + 1), x.shape[1:]) for x in over]
            found = self.run(params["jaxpr"], [*constants, *carry, *rows])
            carry, out = found[: len(carry)], found[len(carry) :]
            stacked.append([self.reshaped(x, (1, *x.shape)) for x in out])
        if params["reverse"]:
            stacked.reverse()
        avals = [_aval(v) for v in equation.outvars[len(carry) :]]
        if not stacked:
            return [*carry, *(Const(np.zeros(a.shape, a.dtype)) for a in avals)]
        joined = [
            self.add("concatenate", {"dimension": 0}, list(rows), aval)
            for rows, aval in zip(zip(*stacked, strict=True), avals, strict=True)
        ]
        return [*carry, *joined]

    def _while(self, equation, ins):
        of_condition, of_body, carry = while_parts(equation, ins)
        condition, body = equation.params["cond_jaxpr"], equation.params["body_jaxpr"]
        op, fixed = Op("while", {}, carry), _fixed(body, carry)
        self.inner(op, condition, of_condition, carry, fixed)
        self.inner(op, body, of_body, carry, fixed)
        return self.finish(op, equation.outvars, fixed)

    def _cond(self, equation, ins):
        branches, index = equation.params["branches"], ins[0]
        if isinstance(index, Const):
            return self.run(branches[int(np.clip(index.value, 0, len(branches) - 1))], ins[1:])
        op = Op("cond", {}, ins[:1])
        for program in branches:
            self.inner(op, program, ins[1:])
        return self.finish(op, equation.outvars)

    def inner(
        self, op: Op, program, given: list[Value], like: Sequence[Any] = (), fixed=()
    ) -> None:
        """Append a block to a loop or a branch: the program of what is given and of parameters
        `like` arrays, or the values that are `fixed` in their place."""
        block = Block(self.block, op.name != "cond", op)
        params = itertools.zip_longest(block.add_params(like), fixed)
        operands = [p if x is None else x for p, x in params]
        outer, self.block = self.block, block
        block.results = self.run(program, [*given, *operands])
        self.block = outer
        op.blocks.append(block)

    def finish(self, op: Op, outvars, fixed=()) -> list[Value]:
        """Append an operation with blocks."""
        avals = [_aval(v) for v in outvars]
        op.outs = [Var(a.shape, a.dtype, self.block, op, k) for k, a in enumerate(avals)]
        self.block.ops.append(op)
        return [y if x is None else x for y, x in itertools.zip_longest(op.outs, fixed)]

    def work(self, program: ClosedJaxpr | Jaxpr) -> int:
        """About how many operations on numbers a program takes. Loops of unknown length count as
        too many to be written out."""
        jaxpr = equations_of(program)
        if jaxpr not in self.works:
            self.works[jaxpr] = sum(map(self.work_of, jaxpr.eqns))
        return self.works[jaxpr]

    def work_of(self, equation) -> int:
        name, params = equation.primitive.name, equation.params
        call = call_of(equation, list(equation.invars))
        if call is not None:
            return self.work(call.program)
        if name == "scan":
            return params["length"] * self.work(params["jaxpr"])
        if name == "while":
            return self.unrolled + 1
        if name == "cond":
            return sum(map(self.work, params["branches"]))
        sizes = [math.prod(v.aval.shape) for v in equation.outvars]
        if name == "dot_general":
            (contract, _), _ = params["dimension_numbers"]
            return 2 * sizes[0] * math.prod(equation.invars[0].aval.shape[k] for k in contract)
        if name.startswith(("reduce", "arg", "cum")):
            return sum(math.prod(v.aval.shape) for v in equation.invars)
        return sum(sizes) if is_elementwise(name) else 0


def _fixed(program: ClosedJaxpr, carry: list[Value], others: int = 0) -> list[Value | None]:
    """What the body of a loop carries on as it is."""
    jaxpr = equations_of(program)
    given = jaxpr.invars[len(jaxpr.invars) - len(carry) - others :]
    trios = zip(carry, given, jaxpr.outvars, strict=False)
    return [x if a is b else None for x, a, b in trios]


def _changes_nothing(name: str, params: dict, ins: list[Value], aval: Any) -> bool:
    if not ins or ins[0].shape != aval.shape or ins[0].dtype != aval.dtype:
        return False
    if name == "transpose":
        return list(params["permutation"]) == sorted(params["permutation"])
    return name in ("reshape", "slice", "convert_element_type", "broadcast_in_dim")

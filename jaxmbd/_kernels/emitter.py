"""From the intermediate form to C: names, memory and loops.

The entries of small arrays are variables of their own, so that no index is computed and what nobody
reads is not computed. Larger arrays are recipes (`Lazy`) until they are read more than once; then
they lie in memory that is reserved while somebody still reads them.

With several lanes, threads that share a sample, all lanes compute all single numbers. They share
the iterations of loops over arrays, which lie in memory that they share (`sharing.py`).
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .folding import folded
from .form import Block, Const, Op, Var
from .form import Value as Named
from .operations import ctype, expression, literal, same, simplified
from .sharing import Sharing
from .values import Buffer, Entries, Ix, Lazy, Operand, Value, View, buffers_of, entries, packed


@dataclass(frozen=True)
class Options:
    """`small`: the most entries of an array whose entries are variables. `local`: the most bytes of
    an array in local or shared memory; larger ones are in scratch memory. `cost`: the most
    operations of a recipe. `lanes`: threads that share a sample. `longest`: the most lines."""

    small: int
    local: int = 4096
    cost: int = 60
    lanes: int = 1
    longest: int | None = None


class TooLong(Exception):
    """The program has more lines than allowed."""


class Pool:
    """A piece of memory whose parts are used again and again."""

    def __init__(self, unit: int):
        self.unit, self.size, self.taken = unit, 0, []

    def reserve(self, size: int) -> int:
        """The first gap that is large enough."""
        size, at = self.rounded(size), 0
        for begin, end in sorted(self.taken):
            if begin - at >= size:
                break
            at = max(at, end)
        self.taken.append((at, at + size))
        self.size = max(self.size, at + size)
        return at

    def release(self, at: int, size: int) -> None:
        self.taken.remove((at, at + self.rounded(size)))

    def rounded(self, size: int) -> int:
        return -(-max(size, 1) // self.unit) * self.unit


@dataclass
class Scope:
    """Between two braces: expressions that have names, and buffers that end with it."""

    known: dict[str, str]
    buffers: list[Buffer]


Rule = Callable[["Emitter", Op], None]


class Emitter:
    def __init__(self, options: Options, rules: dict[str, Rule]):
        self.options, self.rules = options, rules
        self.lines: list[str] = []
        self.tables: dict[tuple, Buffer] = {}
        self.definitions: list[str] = []
        self.pools: dict[str, Pool] = {}
        self.values: dict[Var, Value] = {}
        self.stored_values: dict[Var, View] = {}
        self.left: dict[Var, int] = {}
        self.scopes, self.blocks = [Scope({}, [])], []
        self.count = 0
        self.sharing = Sharing(self.lines, self.name, options.lanes)

    # --- text

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def line(self, text: str) -> None:
        self.lines.append(text)

    def show(self, x: Operand) -> str:
        return x if isinstance(x, str) else literal(x)

    def variable(self, dtype: np.dtype, value: Operand | None = None, prefix: str = "c") -> str:
        """A variable that may change."""
        name = self.name(prefix)
        initial = "" if value is None else f" = {self.show(value)}"
        self.line(f"{ctype(dtype)} {name}{initial};")
        return name

    def named(self, text: str, dtype: np.dtype) -> str:
        """A name for an expression whose value does not change."""
        key = f"{ctype(dtype)} {text}"
        for scope in reversed(self.scopes):
            if key in scope.known:
                return scope.known[key]
        found = self.scopes[-1].known[key] = self.fresh(text, dtype)
        return found

    def fresh(self, text: str, dtype: np.dtype) -> str:
        name = self.name("s")
        self.line(f"const {ctype(dtype)} {name} = {text};")
        return name

    def scalar(self, name: str, params: dict, operands: Sequence[Operand], dtypes, out) -> Operand:
        """The operation on single numbers."""
        found = simplified(name, operands)
        if found is not None:
            return found
        if not any(isinstance(x, str) for x in operands):
            value = folded(name, params, list(map(np.asarray, operands)), out)
            if value is not None:
                return value[()]
        text = expression(name, params, dtypes, out).format(*map(self.show, operands))
        return self.named(text, out)

    @contextlib.contextmanager
    def braces(self, head: str) -> Iterator[None]:
        """`head { ... }`."""
        self.line(head + " {")
        with self.scope():
            yield
        self.line("}")

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        self.scopes.append(Scope({}, []))
        yield
        for buffer in self.scopes.pop().buffers:
            self.release(buffer)

    @contextlib.contextmanager
    def loops(self, shape: Sequence[int], shared: bool = True) -> Iterator[list[Ix]]:
        """Loops over all entries of an array. Lanes share them if they are independent."""
        index, sizes = [Ix() for _ in shape], tuple(n for n in shape if n != 1)
        axes = [k for k, n in enumerate(shape) if n != 1]
        with contextlib.ExitStack() as stack:
            if shared and axes and self.sharing.can_share:
                names = stack.enter_context(self.sharing.loop(sizes))
                stack.enter_context(self.scope())
            else:
                names = [self.name("i") for _ in axes]
                for n, name in zip(sizes, names, strict=True):
                    self.sharing.extents[name] = n
                    if n > 4:
                        self.line("#pragma unroll 1")
                    head = f"for (int {name} = 0; {name} < {n}; ++{name})"
                    stack.enter_context(self.braces(head))
            for k, name in zip(axes, names, strict=True):
                index[k] = Ix(0, {name: 1})
            yield index

    # --- memory

    def buffer(self, dtype: np.dtype, size: int, far: bool = False) -> Buffer:
        """Memory, which is near if it may be: shared by lanes, or local."""
        shared, kind, taken = self.options.lanes > 1, ctype(dtype), size * dtype.itemsize
        if far or taken > self.options.local:
            pool, name = "scratch", self.name("g")
            at = self.pools.setdefault(pool, Pool(8)).reserve(taken)
            pointer = f"{kind}* const {name} = ({kind}*)(scratch + {at}ll * n) + s;"
            # Nothing between loops keeps those that lanes share from becoming one.
            (self.definitions if shared else self.lines).append(pointer)
            text = f"{name}[({{}}) * n]"
        elif shared:
            pool, name = "arena", self.name("a")
            at = self.pools.setdefault(pool, Pool(8)).reserve(taken)
            self.definitions.append(f"{kind}* const {name} = ({kind}*)(arena + {at});")
            text = f"{name}[{{}}]"
        else:
            pool, taken = f"local_{dtype.name}", size
            at = self.pools.setdefault(pool, Pool(1)).reserve(taken)
            text = f"{pool}[{at} + {{}}]" if at else f"{pool}[{{}}]"
        owner = self.blocks[-1] if self.blocks else None
        buffer = Buffer(text, dtype, size, owner, place=(pool, at), taken=taken)
        self.scopes[-1].buffers.append(buffer)
        return buffer

    def release(self, buffer: Buffer) -> None:
        pool, at = buffer.place or ("", 0)
        self.pools[pool].release(at, buffer.taken)
        for var in [v for v, view in self.stored_values.items() if view.buffer is buffer]:
            del self.stored_values[var]

    def sweep(self) -> None:
        """Release the memory of this scope that nobody reads any more."""
        scope = self.scopes[-1]
        dead = [b for b in scope.buffers if b.users and not any(map(self.is_alive, b.users))]
        for buffer in dead:
            self.release(buffer)
        scope.buffers = [b for b in scope.buffers if b not in dead]

    def is_alive(self, var: Var) -> bool:
        return self.left.get(var, var.uses) > 0

    def table(self, array: np.ndarray) -> View:
        """A known array in memory."""
        key = array.dtype.str, array.tobytes()
        if key not in self.tables:
            name, kind = self.name("k"), ctype(array.dtype)
            numbers = ", ".join(map(literal, array.ravel()))
            self.definitions.append(f"static const {kind} {name}[{array.size}] = {{{numbers}}};")
            text = f"{name}[{{}}]"
            self.tables[key] = Buffer(
                text, array.dtype, array.size, table=array.ravel(), constant=True
            )
        return packed(self.tables[key], array.shape)

    # --- values

    def is_small(self, x: Named) -> bool:
        return math.prod(x.shape) <= self.options.small

    def value(self, x: Named) -> Value:
        if isinstance(x, Var):
            value = self.values[x]
            return self.stored_values.get(x, value) if isinstance(value, Lazy) else value
        if x.value.size and len(set(x.value.ravel().view(f"V{x.dtype.itemsize}").tolist())) == 1:
            number = x.value.ravel()[0]
            if not self.is_small(x):
                return Lazy(x.shape, lambda index: number, 0, frozenset())
        return entries(x.shape, x.value.ravel()) if self.is_small(x) else self.table(x.value)

    def at(self, value: Value, index: Sequence[Ix]) -> Operand:
        """An entry."""
        if isinstance(value, Entries):
            known = [i.known for i in index]
            if None not in known:
                return value.array[tuple(known)]
            first = value.array.flat[0]
            assert all(same(x, first) for x in value.array.flat)
            return first
        if isinstance(value, Lazy):
            return value.at(index)
        buffer, place = value.buffer, value.place(index)
        if buffer.table is not None and place.known is not None:
            return buffer.table[place.known]
        text = buffer.text.format(place)
        if buffer.constant:
            return self.named(text, buffer.dtype)
        self.sharing.access(buffer, place, writes=False)
        return self.fresh(text, buffer.dtype)

    def entries(self, value: Value) -> np.ndarray:
        """All entries."""
        if isinstance(value, Entries):
            return value.array
        places = np.ndindex(*value.shape)
        return entries(value.shape, (self.at(value, list(map(Ix, p))) for p in places)).array

    def number(self, x: Named) -> Operand:
        return self.at(self.value(x), [])

    def in_loops(self, x: Named) -> Value:
        """The value of x, such that loops can read it."""
        value = self.value(x)
        if not isinstance(value, Entries) or value.array.size <= 1:
            return value
        if all(same(a, value.array.flat[0]) for a in value.array.flat):
            return value
        return self.in_memory(x)

    def in_memory(self, x: Named) -> View:
        if isinstance(x, Const):
            return self.table(x.value)
        value = self.values[x]
        if isinstance(value, View):
            return value
        if x not in self.stored_values:
            view = self.stored_values[x] = self.materialised(value, x)
            view.buffer.users.append(x)
        return self.stored_values[x]

    def read_often(self, x: Named) -> Value:
        """The value of x, such that reading an entry costs nothing."""
        value = self.in_loops(x)
        return self.in_memory(x) if isinstance(value, Lazy) and value.cost else value

    def operand(self, x: Named, out: Var) -> Value:
        """The value of x, of which the entries of `out` are made."""
        if self.is_small(out):
            return self.value(x)
        several = math.prod(out.shape) > math.prod(x.shape)
        return self.read_often(x) if several else self.in_loops(x)

    def materialised(self, value: Value, like: Named) -> View:
        view = packed(self.buffer(like.dtype, math.prod(like.shape)), like.shape)
        self.store(view, value)
        return view

    def store(self, view: View, value: Value) -> None:
        """Write all entries of `value` to `view`."""
        size = math.prod(view.shape)
        if isinstance(value, Entries) or size <= min(self.options.small, 16):
            for place in np.ndindex(*view.shape):
                index = list(map(Ix, place))
                self.write(view, index, self.at(value, index))
        else:
            with self.loops(view.shape) as index:
                self.write(view, index, self.at(value, index))

    def write(self, view: View, index: Sequence[Ix], x: Operand) -> None:
        place = view.place(index)
        self.sharing.access(view.buffer, place, writes=True)
        self.line(f"{view.buffer.text.format(place)} = {self.show(x)};")

    def define(self, var: Var, value: Value) -> None:
        """`var` has this value, which is computed now if it is small or read often."""
        if isinstance(value, Lazy):
            if self.is_small(var):
                value = Entries(self.entries(value))
            elif value.cost and (var.uses > 1 or var.looped or value.cost > self.options.cost):
                value = self.materialised(value, var)
        self.values[var] = value
        for buffer in value.buffers:
            buffer.users.append(var)

    # --- operations

    def block(self, block: Block) -> None:
        self.blocks.append(block)
        for op in block.ops:
            self.rules.get(op.name, elementwise)(self, op)
            for x in op.ins:
                self.used(x)
            self.sweep()
            if self.options.longest is not None and len(self.lines) > self.options.longest:
                raise TooLong
        self.blocks.pop()

    def used(self, x: Named) -> None:
        if isinstance(x, Var):
            self.left[x] = self.left.get(x, x.uses) - 1

    def writable(self, x: Named) -> View | None:
        """Memory with the numbers of x that may be changed, if nobody else reads it afterwards.
        Others in it are saved."""
        value = self.value(x)
        if not isinstance(x, Var) or not isinstance(value, View) or not value.is_whole:
            return None
        buffer, block = value.buffer, self.blocks[-1]
        if buffer.place is None or buffer.owner is not block or self.left.get(x, x.uses) != 1:
            return None
        others = [v for v in set(buffer.users) if v is not x and self.is_alive(v)]
        others = [v for v in others if buffer in self.values[v].buffers]
        if any(v.block is not block or math.prod(v.shape) > buffer.size / 2 for v in others):
            return None
        for v in others:
            self.values[v] = saved = self.materialised(self.values[v], v)
            saved.buffer.users.append(v)
        return value


def elementwise(e: Emitter, op: Op) -> None:
    out, dtypes = op.outs[0], [x.dtype for x in op.ins]
    values = [e.operand(x, out) for x in op.ins]

    def at(index):
        def own(shape):
            pairs = zip(index[len(index) - len(shape) :], shape, strict=True)
            return [i if n != 1 else Ix() for i, n in pairs]

        operands = [e.at(v, own(v.shape)) for v in values]
        return e.scalar(op.name, op.params, operands, dtypes, out.dtype)

    cost = 1 + sum(getattr(v, "cost", 0) for v in values)
    e.define(out, Lazy(out.shape, at, cost, buffers_of(values)))

"""What an array is while its program is written: numbers with names, a place in memory, or a
recipe for its entries."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .form import Block, Var

# A number: the name of a variable in C, or a known number.
Operand = Any


class Ix:
    """An index: a constant and multiples of integer variables."""

    __slots__ = ("constant", "terms")

    def __init__(self, constant: int = 0, terms: dict[str, int] | None = None):
        self.constant, self.terms = int(constant), terms or {}

    def __add__(self, other: "Ix | int") -> "Ix":
        if not isinstance(other, Ix):
            return Ix(self.constant + other, self.terms)
        terms = dict(self.terms)
        for name, factor in other.terms.items():
            terms[name] = terms.get(name, 0) + factor
        return Ix(self.constant + other.constant, {k: f for k, f in terms.items() if f})

    def __mul__(self, factor: int) -> "Ix":
        terms = {name: factor * f for name, f in self.terms.items()} if factor else {}
        return Ix(self.constant * factor, terms)

    def __str__(self) -> str:
        parts = [name if f == 1 else f"{f} * {name}" for name, f in self.terms.items()]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts).replace("+ -", "- ")

    @property
    def known(self) -> int | None:
        return None if self.terms else self.constant


@dataclass(eq=False)
class Buffer:
    """Numbers in memory. `text` reads or writes one of them, with {} for the index; `users` are the
    variables whose values lie in it; `owner` is the block that may write to it; `place` and `taken`
    are where it lies in which pool, and how much it takes there."""

    text: str
    dtype: np.dtype
    size: int
    owner: Block | None = None
    table: np.ndarray | None = None
    constant: bool = False
    place: tuple[str, int] | None = None
    taken: int = 0
    users: list[Var] = field(default_factory=list)


@dataclass(eq=False)
class Entries:
    """An array whose entries are operands, in a NumPy array of objects."""

    array: np.ndarray

    buffers = frozenset()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape


@dataclass(eq=False)
class View:
    """An array in a buffer."""

    buffer: Buffer
    offset: Ix
    strides: tuple[int, ...]
    shape: tuple[int, ...]

    cost = 0

    @property
    def buffers(self) -> frozenset[Buffer]:
        return frozenset([self.buffer])

    def place(self, index: Sequence[Ix]) -> Ix:
        place = self.offset
        for i, stride in zip(index, self.strides, strict=True):
            place = place + i * stride
        return place

    @property
    def is_packed(self) -> bool:
        expected = 1
        for n, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n != 1 and stride != expected:
                return False
            expected *= n
        return True

    @property
    def is_whole(self) -> bool:
        known = self.offset.known == 0 and self.is_packed
        return known and math.prod(self.shape) == self.buffer.size

    def moved(self, change: "Change", shape: Sequence[int]) -> "View":
        """The array whose entry at `index` is that of this one at `change(index)`."""
        marks = [f"${k}" for k in range(len(shape))]
        place = self.place(change([Ix(0, {mark: 1}) for mark in marks]))
        strides = tuple(place.terms.get(mark, 0) for mark in marks)
        rest = {name: f for name, f in place.terms.items() if name not in marks}
        return View(self.buffer, Ix(place.constant, rest), strides, tuple(shape))

    def reshaped(self, shape: Sequence[int]) -> "View | None":
        """The same numbers in another shape, if they lie so that strides can say it."""
        if not math.prod(shape):
            return packed(self.buffer, shape)
        groups: list[tuple[int, int]] = []  # runs of axes that are packed among themselves
        for n, stride in zip(self.shape, self.strides, strict=True):
            if n == 1:
                continue
            if groups and groups[-1][1] == stride * n:
                groups[-1] = groups[-1][0] * n, stride
            else:
                groups.append((n, stride))
        strides, left, step = [], 1, 0
        for n in reversed(shape):
            if n == 1:
                strides.append(0)
                continue
            if left == 1 and groups:
                left, step = groups.pop()
            if left % n:
                return None
            strides.append(step)
            step, left = step * n, left // n
        return View(self.buffer, self.offset, tuple(strides[::-1]), tuple(shape))


@dataclass(eq=False)
class Lazy:
    """An array that is computed where it is read: `at(index)` writes what computes an entry, and
    returns its name. `cost` counts the operations."""

    shape: tuple[int, ...]
    at: Callable[[Sequence[Ix]], Operand]
    cost: int
    buffers: frozenset[Buffer]


Value = Entries | View | Lazy
Change = Callable[[Sequence[Ix]], Sequence[Ix]]


def packed(buffer: Buffer, shape: Sequence[int]) -> View:
    strides, n = [], 1
    for size in reversed(shape):
        strides.append(n)
        n *= size
    return View(buffer, Ix(), tuple(strides[::-1]), tuple(shape))


def entries(shape: Sequence[int], operands: Iterable[Operand]) -> Entries:
    array = np.empty(math.prod(shape), object)
    for k, x in enumerate(operands):
        array[k] = x
    return Entries(array.reshape(tuple(shape)))


def buffers_of(values: Iterable[Value]) -> frozenset[Buffer]:
    return frozenset().union(*(value.buffers for value in values))

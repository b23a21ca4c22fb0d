"""Lanes, threads that share a sample: which of them does what, and what they wait for.

All lanes run the same text. In a section, a loop or what the first lane does alone, each of them
does its part. Outside of sections all do the same, and write the same numbers to the same places.
They wait for each other where one of them could meet, in memory, what another has not yet read or
written. Neighbouring loops over arrays of one shape become one, if no lane needs what another
computes in them.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from .values import Buffer, Ix


@dataclass(frozen=True)
class Access:
    """Reading or writing bytes of a piece of memory. `text` is the place in C."""

    memory: str
    begin: int
    end: int
    text: str
    writes: bool

    def meets(self, other: "Access") -> bool:
        """Whether their order matters."""
        apart = self.memory != other.memory or self.end <= other.begin or other.end <= self.begin
        return not apart and (self.writes or other.writes)


@dataclass
class _Section:
    """Lines from `start` on, those of its body from `body` on. A loop has `sizes` and the names of
    its indices; `end` is the line after its brace."""

    start: int
    sizes: tuple[int, ...] | None = None
    names: list[str] = field(default_factory=list)
    body: int = 0
    end: int = 0
    accesses: list[Access] = field(default_factory=list)

    def is_apart(self, other: "_Section") -> bool:
        """Whether each lane can do its parts of both, one after the other: where they meet, they
        are at the same place in the same turn of their loops."""
        pairs = ((a, b) for a in self.accesses for b in other.accesses if a.meets(b))
        return all(a.text == b.text for a, b in pairs)


class Sharing:
    """What lanes have done since they waited for each other last: `common` accesses to memory by
    all of them, and `parts` of sections, if it is `known`. `extents` are the numbers of values that
    indices take."""

    def __init__(self, lines: list[str], name: Callable[[str], str], lanes: int):
        self.lines, self.name, self.lanes = lines, name, lanes
        self.known = True
        self.common: list[Access] = []
        self.parts: list[Access] = []
        self.section: _Section | None = None
        self.last: _Section | None = None
        self.extents: dict[str, int] = {}

    @property
    def can_share(self) -> bool:
        return self.lanes > 1 and self.section is None

    def forget(self) -> None:
        """What lanes did before is not known here."""
        if self.section is None:
            self.known = False

    def access(self, buffer: Buffer, place: Ix, writes: bool) -> None:
        if self.lanes == 1 or buffer.constant or buffer.place is None:
            return
        memory, at = buffer.place
        begin, end = self._range(place, buffer.size)
        size, text = buffer.dtype.itemsize, buffer.text.format(place)
        new = Access(memory, at + size * begin, at + size * end, text, writes)
        if self.section is not None:
            self.section.accesses.append(new)
            return
        if self._must_wait([new]):
            self._wait(len(self.lines))
        self.common.append(new)

    def _range(self, place: Ix, size: int) -> tuple[int, int]:
        if not all(name in self.extents for name in place.terms):
            return 0, size
        ends = [f * (self.extents[name] - 1) for name, f in place.terms.items()]
        low, high = (sum(pick(0, x) for x in ends) for pick in (min, max))
        return place.constant + low, place.constant + high + 1

    def _must_wait(self, new: Sequence[Access]) -> bool:
        if not self.known:
            return bool(new)
        # Each lane has written itself what all of them wrote, so that it can read it.
        return any(a.meets(b) for a in new for b in self.parts) or any(
            a.writes and a.meets(b) for a in new for b in self.common
        )

    def _wait(self, line: int) -> None:
        self.lines.insert(line, "sync();")
        self.known, self.common, self.parts = True, [], []

    @contextlib.contextmanager
    def loop(self, sizes: tuple[int, ...]) -> Iterator[list[str]]:
        """A loop whose turns lanes share. Gives the names of its indices."""
        above, section = self._above(sizes), _Section(len(self.lines), sizes)
        # Under the same names, places that are the same are told by their text.
        section.names = self._names(sizes) if above is None else above.names
        self.lines += self._head(section.names, sizes)
        section.body = len(self.lines)
        self.extents.update(zip(section.names, sizes, strict=True))
        with self._within(section):
            yield section.names
        if above is not None and above.is_apart(section):
            del self.lines[above.end - 1 : section.body]
            del self.parts[len(self.parts) - len(above.accesses) :]
            section.start, section.accesses = above.start, above.accesses + section.accesses
        self._finish(section)

    def _above(self, sizes: tuple[int, ...]) -> _Section | None:
        """The loop that ends in the line above, if it has these sizes."""
        last = self.last
        near = last is not None and last.end == len(self.lines) and last.sizes == sizes
        return last if near else None

    def _names(self, sizes: tuple[int, ...]) -> list[str]:
        alone = len(sizes) == 1 and sizes[0] <= self.lanes
        return ["lane"] if alone else [self.name("i") for _ in sizes]

    def _head(self, names: list[str], sizes: tuple[int, ...]) -> list[str]:
        total, flat = math.prod(sizes), "lane"
        lines = [f"if (lane < {total}) {{"]
        if total > self.lanes:
            flat = names[0] if len(names) == 1 else self.name("i")
            loop = f"for (int {flat} = lane; {flat} < {total}; {flat} += lanes) {{"
            lines = ["#pragma unroll 1", loop]
        if len(names) > 1:
            for k, (n, name) in enumerate(zip(sizes, names, strict=True)):
                total //= n
                whole = flat if total == 1 else f"{flat} / {total}"
                lines.append(f"const int {name} = {whole if k == 0 else f'{whole} % {n}'};")
        return lines

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Only the first lane does this; no value is computed in it for others."""
        if not self.can_share:
            yield
            return
        section = _Section(len(self.lines))
        self.lines.append("if (lane == 0) {")
        with self._within(section):
            yield
        self._finish(section)

    @contextlib.contextmanager
    def _within(self, section: _Section) -> Iterator[None]:
        self.section = section
        yield
        self.section = None
        self.lines.append("}")

    def _finish(self, section: _Section) -> None:
        if self._must_wait(section.accesses):
            self._wait(section.start)
        self.parts += section.accesses
        section.end = len(self.lines)
        self.last = section

"""The part of a run that one process computes, and the combined result of all processes."""

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._results import verdict
from .blocks import Tree
from .processes import gathered
from .program import Program
from .progress import Hook, Progress
from .result import Failures, Rollouts
from .samples import Samples
from .stores import AbstractRecord
from .verdicts import SUCCESSFUL

# Relative difference up to which stored outputs agree with those that the function returns now.
_SAME = 1e-6


class Part:
    """Consecutive blocks of the samples: those that are stored already, and those that are to be
    computed."""

    def __init__(
        self,
        program: Program,
        samples: Samples,
        reductions: PyTree | None,
        record: AbstractRecord | None,
        pool: Executor,
    ):
        self.program, self.samples, self.record, self.pool = program, samples, record, pool
        self.tree = Tree(reductions)
        self.failed: list[tuple[np.ndarray, np.ndarray]] = []
        self.computed, self.seconds = 0, 0.0
        count = -(-samples.n // program.block)
        # Samples that must be written by one process stay together.
        step = 1 if record is None else max(1, record.rows // program.block)
        share = -(-count // (step * jax.process_count())) * step
        mine = range(count)[share * jax.process_index() :][:share]
        self.done = [b for b in mine if self._is_done(b)]
        self.to_do = sorted(set(mine) - set(self.done))

    def add_stored(self) -> None:
        """Add the stored samples to the statistics and the list of failures."""
        if self.done:
            self._check_stored(self.done[0])
        for blocks, index in self._chunks(self.done):
            status = self.record.status[self._inside(index)]  # pyright: ignore[reportOptionalMemberAccess]
            states = None
            if self.program.merge is not None:
                parts = [self._read(int(first)) for first in index[:: self.program.block]]
                outputs = jax.tree.map(lambda *x: np.concatenate(x), *parts)
                states = self.program.reduce(outputs, status, self._number(index))
            self._take(blocks, index, status, states)

    def compute(self, progress: bool | Hook) -> None:
        """Compute all remaining samples. While chunks are computed, the previous one is written."""
        start = time.perf_counter()
        done, to_do = (sum(b - a for a, b in map(self._range, x)) for x in (self.done, self.to_do))
        with Progress(progress, done, done + to_do) as meter:
            running = deque()
            for blocks, index in self._chunks(self.to_do):
                running.append((blocks, index, self._start(index)))
                if len(running) > self.program.ahead:
                    self._finish(running.popleft(), meter)
            while running:
                self._finish(running.popleft(), meter)
        self.seconds = time.perf_counter() - start

    def _range(self, b: int) -> tuple[int, int]:
        block = self.program.block
        return b * block, min((b + 1) * block, self.samples.n)

    def _is_done(self, b: int) -> bool:
        first, stop = self._range(b)
        return self.record is not None and bool(np.all(self.record.status[first:stop] >= 0))

    def _chunks(self, blocks: list[int]) -> Iterator[tuple[list[int], np.ndarray]]:
        """One block for each device at a time, and the indices of their samples. If fewer blocks
        are left, the last one is repeated. Indices may exceed the last sample."""
        count, block = self.program.mesh.size, self.program.block
        for i in range(0, len(blocks), count):
            chunk = blocks[i : i + count]
            filled = chunk + [chunk[-1]] * (count - len(chunk))
            yield chunk, np.concatenate([b * block + np.arange(block) for b in filled])

    def _inside(self, index: np.ndarray) -> np.ndarray:
        return np.minimum(index, self.samples.n - 1)

    def _number(self, index: np.ndarray) -> np.ndarray:
        return index.astype(jnp.result_type(int))

    def _start(self, index: np.ndarray) -> Callable[[], Any]:
        rows = self.samples.rows(self._inside(index))
        return self.program.start(self.pool, self._number(index), rows)

    def _finish(self, chunk: tuple[list[int], Any, Callable], meter: Progress) -> None:
        blocks, index, wait = chunk
        outputs, status, states = wait()
        status = np.asarray(status)
        self._take(blocks, index, status, states)
        if self.record is not None:
            outputs = jax.device_get(outputs)
            for k, b in enumerate(blocks):
                first, stop = self._range(b)
                rows = slice(k * self.program.block, k * self.program.block + stop - first)
                part = jax.tree.map(lambda x, rows=rows: x[rows], outputs)
                self.record.write(first, part, status[rows])
        count = sum(stop - first for first, stop in map(self._range, blocks))
        self.computed += count
        meter.advance(count, sum(len(which) for which, _ in self.failed))

    def _take(self, blocks: list[int], index: np.ndarray, status: np.ndarray, states: Any) -> None:
        """Add a chunk to the statistics and the list of failures."""
        block = self.program.block
        real = (np.arange(index.size) < len(blocks) * block) & (index < self.samples.n)
        failed = real & (status != SUCCESSFUL)
        if np.any(failed):
            self.failed.append((index[failed], status[failed]))
        if states is not None:
            states = jax.device_get(states)
            for k, b in enumerate(blocks):
                one = jax.tree.map(lambda x, k=k: x[k], states)
                self.tree.add(block.bit_length() - 1, b, one)

    def _read(self, first: int) -> PyTree:
        """The outputs of a stored block. If the block is not full, the last one is repeated."""
        stop = min(first + self.program.block, self.samples.n)
        missing = first + self.program.block - stop
        outputs = self.record.read(first, stop)  # pyright: ignore[reportOptionalMemberAccess]
        return jax.tree.map(lambda x: np.concatenate([x, *[x[-1:]] * missing]), outputs)

    def _check_stored(self, b: int) -> None:
        """Compute a stored block again, to check that the function has not changed."""
        (_, index), (first, stop) = next(self._chunks([b])), self._range(b)
        now = jax.device_get(self._start(index)()[:2])
        now = jax.tree.map(lambda x: x[: stop - first], now)
        stored = self.record.read(first, stop), self.record.status[first:stop]  # pyright: ignore[reportOptionalMemberAccess]
        if not all(map(_alike, jax.tree.leaves(now), jax.tree.leaves(stored))):
            raise ValueError(
                f"The stored outputs of samples {first} to {stop - 1} differ from those that the "
                "function returns now: it, or something that it uses, has changed. Resume with the "
                "function that the run was started with, or give another path."
            )


def _alike(x: np.ndarray, y: np.ndarray) -> bool:
    if not np.issubdtype(x.dtype, np.inexact):
        return np.array_equal(x, y)
    scale = np.max(np.abs(x), initial=0.0, where=np.isfinite(x))
    return np.allclose(x, y, rtol=_SAME, atol=_SAME * scale, equal_nan=True)


def combine(own: Part, seconds_to_compile: float) -> Rollouts:
    """The combined result of all processes, on each of them."""
    mine = (own.tree.nodes, own.failed, own.computed, own.seconds, seconds_to_compile)
    nodes, failed, computed, times, compilations = zip(*gathered(mine), strict=True)
    statistics = None
    if own.tree.reductions is not None:
        tree = Tree(own.tree.reductions)
        for part in nodes:
            for (level, position), states in part.items():
                tree.add(level, position, states)
        statistics = tree.results()
    lists = list(itertools.chain.from_iterable(failed))
    index = np.concatenate([np.zeros(0, int), *(which for which, _ in lists)])
    codes = np.concatenate([np.zeros(0, np.int16), *(why for _, why in lists)])
    order = np.argsort(index)
    return Rollouts(
        n=own.samples.n,
        failures=Failures(index[order], verdict(codes[order].astype(np.int32))),
        statistics=statistics,
        outputs=None if own.record is None else own.record.result(),
        computed=sum(computed),
        seconds=max(times),
        seconds_to_compile=max(compilations),
        chunk=own.program.block,
        devices=sum(gathered(own.program.mesh.size)),
        processes=jax.process_count(),
        threads=max(gathered(own.program.threads)),
        bytes=own.program.bytes,
    )

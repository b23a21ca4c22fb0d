"""`run`: one function on many samples."""

import itertools
import math
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .._inputs import Refusal, checked, positive_or_infinite, random_key, shown
from .._progress import progress_bar, says_when_compiling
from .._results import verdict
from .blocks import Tree, is_reduction
from .kernels import Way, chosen
from .program import Program, block_for, compile_program, free_bytes, make_program, workers
from .result import Failures, Rollouts
from .samples import SUCCESSFUL, Samples, make_samples
from .stores import AbstractRecord, AbstractStore, Layout, Memory, gathered

# Called with the number of finished samples and the number of all samples.
Hook = Callable[[int, int], Any]


class Progress:
    """Shows a bar, calls the user's function, or does nothing."""

    def __init__(self, progress: bool | Hook, done: int, total: int):
        self.hook = progress if callable(progress) else None
        self.done, self.total = done, total
        self.bar = progress_bar(total, "rollouts", progress is True, done=done, unit=" samples")

    def advance(self, count: int, failed: int) -> None:
        self.done += count
        self.bar.set_postfix_str(f"{failed} failed" if failed else "", refresh=False)
        self.bar.update(count)
        if self.hook is not None:
            self.hook(self.done, self.total)

    def __enter__(self):
        self.bar.__enter__()
        return self

    def __exit__(self, *exception):
        self.bar.__exit__(*exception)


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

    def _start(self, index: np.ndarray) -> Callable[[], PyTree]:
        rows = self.samples.rows(self._inside(index))
        return self.program.start(self.pool, self._number(index), rows)

    def _finish(self, chunk: tuple[list[int], np.ndarray, Callable], meter: Progress) -> None:
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

    def _take(
        self, blocks: list[int], index: np.ndarray, status: np.ndarray, states: PyTree
    ) -> None:
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


def combine(own: Part, seconds_to_compile: float, way: Way) -> Rollouts:
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
        kernel=way.kernel is not None,
        way=way.words,
    )


def _power_of_two(chunk: int | None) -> int | None:
    if chunk is not None and (chunk < 1 or chunk & (chunk - 1)):
        near = 1 << max(0, chunk.bit_length() - 1)
        raise Refusal(f"must be a power of two, but is {chunk}: e.g. {near}.")
    return chunk


@checked
@says_when_compiling("rollouts")
def run(
    one: Callable[[PyTree, Array], PyTree],
    samples: PyTree | int,
    *,
    key: Annotated[PyTree, random_key] = None,
    reductions: Any = None,
    store: AbstractStore | None = None,
    chunk: Annotated[int | None, _power_of_two] = None,
    memory: Annotated[float | int | None, positive_or_infinite] = None,
    devices: Sequence[Any] | None = None,
    kernel: bool | None = None,
    compiler_options: dict[str, Any] | None = None,
    progress: bool | Hook = True,
) -> Rollouts:
    """Compute

        output_i, result_i = one(sample_i, fold_in(key, i)),    i = 0 ... n - 1,

    in chunks that fit into the memory, distributed over the devices of this process, the cores of a
    CPU and, after `jax.distributed.initialize`, all processes. Keep statistics of the outputs, or
    the outputs themselves in memory or on disk. Every sample is computed once and independently of
    the others, so that the results depend on chunks, devices and processes only by rounding.

    **Arguments:**

    - `one`: `one(sample, key)`, any function of one sample and its own random key that JAX can
      trace. It returns a pytree of arrays, numbers and verdicts, such as a `Solution` or a dict of
      selected quantities; or a pair `(outputs, result)`, of which only the outputs are kept. Call
      `simulate` in it with `throw=False`. A sample has failed if any returned verdict is not
      successful, or if an output is not finite. The function is compiled once for the shapes of the
      samples. If it is an `eqx.Module`, its arrays may have new values in the next call without a
      compilation.
    - `samples`: any pytree of arrays with a leading axis of n samples: parameters, states,
      controls, policies, a batch of systems. NumPy memory maps are read in chunks. Leaves that are
      not arrays are common to all samples. Or the number n alone: then the sample is the index i,
      and `one` draws its random numbers from its key.
    - `key`: default `jax.random.key(0)`.
    - `reductions`: statistics over the good samples, a pytree of `Mean`, `Moments`, `Covariance`,
      `Extremes`, `Histogram` or your own reductions.
    - `store`: where outputs are kept: `Memory()`, the default without reductions, or `Zarr(path)`.
      With reductions and no store they are discarded. A run with `Zarr` can be resumed after an
      interruption.
    - `chunk`: number of samples in a chunk on each device, a power of two. Default: as many as keep
      the device busy and fit into the memory. On a CPU one thread for each core shares the chunk.
    - `memory`: bytes that a chunk may take on each device. Default: half of the free memory, or no
      limit if `chunk` is given.
    - `devices`: devices of this process to be used. Default: `jax.local_devices()`.
    - `kernel`: whether each device computes a chunk by one kernel, which holds the whole function
      of a sample. Default: on GPUs where it can, for what it knows of JAX's operations, if the
      package warp-lang is installed; otherwise XLA computes the chunk. `True` demands it, on CPUs
      too, which gains nothing there. `False` refuses it. The `way` of the result says what was
      done, and why. Both agree up to rounding.
    - `compiler_options`: as of `jax.jit`. Kernels do not have them.
    - `progress`: `True` for a bar, `False` for none, or a function of the number of finished
      samples and the number of all samples, which is called after each chunk. Each process shows
      its own part.

    **Returns:** a `Rollouts`.

    **Raises:** `ValueError` for samples without a common leading axis, for anything but one random
    key, a chunk that does not fit into the memory, outputs that are not arrays, a store that
    belongs to another run, and with `kernel=True` a function that can be no kernel; `ImportError`
    naming the extra if a package is missing.
    """
    batch = make_samples(samples)
    key = jax.random.key(0) if key is None else key
    _check_reductions(reductions)
    devices = _checked_devices(devices)
    if memory is None:
        memory = free_bytes(devices) if chunk is None else math.inf
    start = time.perf_counter()
    way = chosen(one, batch, key, devices, block_for(batch.n, devices, chunk, True), kernel)
    parts = (one, batch, key, reductions, devices, compiler_options)
    program = make_program(*parts, chunk, memory, way)
    block = min(gathered(program.block))
    if block != program.block:
        program = compile_program(*parts, block, way)
    seconds_to_compile = time.perf_counter() - start
    if store is None and reductions is None:
        store = Memory()
    record = None
    if store is not None:
        data = np.ravel(jax.random.key_data(key)).tolist()
        record = store.open(Layout(batch.n, program.output, data, batch.digest(), block))
    try:
        with workers(program.threads) as pool:
            own = Part(program, batch, reductions, record, pool)
            own.add_stored()
            own.compute(progress)
    except jax.errors.JaxRuntimeError as error:
        words = re.findall(r"EquinoxRuntimeError: ([^\n]*)", str(error))
        if not words:
            raise
        raise RuntimeError(
            f"The function of run raised an error: {words[-1]} With `throw=False` in it, samples "
            "that fail are counted, and the others go on."
        ) from None
    return combine(own, seconds_to_compile, way)


def _check_reductions(reductions) -> None:
    for reduction in jax.tree.leaves(reductions, is_leaf=is_reduction):
        if not is_reduction(reduction):
            raise ValueError(
                "Argument `reductions` of run must be reductions such as `mbd.rollout.Mean()`, or "
                f"a pytree of them, but has {shown(reduction)}."
            )


def _checked_devices(devices: Sequence[Any] | None) -> list[Any]:
    local = jax.local_devices()
    devices = local if devices is None else list(devices)
    if not devices or any(device not in local for device in devices):
        raise ValueError(
            f"Argument `devices` of run must be some of `jax.local_devices()`, {local}, but is "
            f"{shown(devices)}."
        )
    return devices

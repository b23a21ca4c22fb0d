"""The program that computes a chunk of samples on the devices, compiled once."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_jaxpr
from jax.extend.core import ClosedJaxpr
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from .._lanes import LANES, in_lanes
from .._sizes import available_bytes, format_bytes
from .blocks import reduce_block
from .kernels import Way, on_cpu, shapes_of
from .once import Hashable, once
from .samples import SUCCESSFUL, Samples, compute

_AXIS = "samples"
_ALL, _SPLIT = PartitionSpec(), PartitionSpec(_AXIS)

# Samples in a chunk that keep a device busy. Larger chunks gain little and need more memory. A
# kernel holds the numbers of a step in registers, and needs more samples to fill the device.
_BUSY = {"cpu": 256}
_BUSY_ELSEWHERE = 16384
_BUSY_IN_KERNELS = 131072

# Pieces of a chunk for each thread of a CPU. A thread takes the next piece when it has finished
# one, since some samples take longer than others. The call of a piece takes about 50 microseconds.
_PIECES = 4

# Samples in a chunk from which a CPU computes several side by side. In a smaller chunk the blocks
# would be too few for all threads.
_SIDE_BY_SIDE = 128


# Vector instructions as wide as the machine has them. XLA's own choice is half of that.
_WIDE = {"xla_cpu_prefer_vector_width": 512}


class Program(NamedTuple):
    """The compiled functions for blocks of `block` samples on each device."""

    block: int
    mesh: Mesh
    simulate: Callable  # piece, index, rows -> outputs and status of a piece of each device's block
    output: PyTree[jax.ShapeDtypeStruct]  # of one sample
    merge: Callable | None  # outputs, status, index -> states of each device's block
    pieces: list[jax.Array]  # their numbers
    threads: int
    ahead: int  # chunks that are started while one is computed, so that no thread waits
    bytes: int

    def start(self, pool: Executor, index: np.ndarray, rows: PyTree) -> Callable[[], PyTree]:
        """Start to compute a chunk. The returned function waits for its outputs, status and
        states."""
        index, rows = self._place((index, rows))
        if not on_cpu(self.mesh.devices):
            outputs, status = self.simulate(self.pieces[0], index, rows)
            found = outputs, status, self.reduce(outputs, status, index)
            return lambda: found

        def compute(piece):
            return jax.block_until_ready(self.simulate(piece, index, rows))

        running = [pool.submit(compute, piece) for piece in self.pieces]

        def wait():
            outputs, status = jax.tree.map(self._joined, *(one.result() for one in running))
            return outputs, status, self.reduce(outputs, status, index)

        return wait

    def reduce(self, outputs: PyTree, status, index) -> PyTree:
        """States of the blocks of a chunk, or `None` if there are no reductions."""
        return None if self.merge is None else self.merge(*self._place((outputs, status, index)))

    def _place(self, x: PyTree) -> PyTree:
        """Put arrays on the devices, one block on each."""
        return jax.device_put(x, NamedSharding(self.mesh, _SPLIT))

    def _joined(self, *pieces: jax.Array) -> np.ndarray:
        """The blocks of all devices, joined from their pieces."""
        (count, *shape), devices = pieces[0].shape, self.mesh.size
        each = [np.asarray(x).reshape(devices, count // devices, *shape) for x in pieces]
        return np.concatenate(each, axis=1).reshape(devices * self.block, *shape)


def block_for(n: int, devices: list[Any], chunk: int | None, in_kernel: bool) -> int:
    """The samples of a block of each device, if the memory is large enough."""
    if chunk is not None:
        return chunk
    if in_kernel and not on_cpu(devices):
        busy = _BUSY_IN_KERNELS
    else:
        busy = _BUSY.get(devices[0].platform, _BUSY_ELSEWHERE)
    return min(_power_of_two_from(-(-n // len(devices))), busy)


def make_program(
    one: Callable,
    samples: Samples,
    key,
    reductions: PyTree | None,
    devices: list[Any],
    options: dict[str, Any] | None,
    chunk: int | None,
    memory: float | int,
    way: Way,
) -> Program:
    """The program with the given chunk, or else with the largest useful chunk that fits into the
    memory."""
    block = block_for(samples.n, devices, chunk, way.kernel is not None)
    program = compile_program(one, samples, key, reductions, devices, options, block, way)
    while program.bytes > memory:
        if program.block in (1, chunk):
            least = "one sample" if program.block == 1 else f"a chunk of {program.block} samples"
            smaller = "" if program.block == 1 else "a smaller `chunk`, "
            raise ValueError(
                f"{least.capitalize()} on each device takes {format_bytes(program.bytes)} of "
                f"memory, but there are {format_bytes(memory)}: use {smaller}fewer outputs (see "
                "`saveat`), or a larger `memory` if there is more."
            )
        # Smaller in the ratio of the memory, and by at least a half.
        fits = int(program.block * memory / program.bytes)
        block = min(program.block // 2, 1 << max(0, fits.bit_length() - 1))
        program = compile_program(one, samples, key, reductions, devices, options, block, way)
    return program


def compile_program(
    one, samples: Samples, key, reductions, devices, options, block: int, way: Way
) -> Program:
    parts = (one, samples.shared, reductions)
    arrays, rest = eqx.partition(parts, eqx.is_array)
    shapes = (shapes_of(arrays), shapes_of(key), samples.shapes(block * len(devices)))
    cpu = on_cpu(devices)
    threads = max(1, cores() // len(devices)) if cpu and way.kernel is None else 1
    most = block // LANES if block >= _SIDE_BY_SIDE else block
    pieces = min(most, _power_of_two_from(_PIECES * threads)) if threads > 1 else 1
    inputs = [*map(Hashable, (rest, *shapes, options)), tuple(devices), block, pieces, way.kernel]
    mesh, simulate, output, merge = once(_compile, *inputs)
    ahead = -(-threads // pieces)
    # Outputs of the started chunks and of the previous one; on a CPU also the joined ones.
    size = bytes_of(simulate, threads, pieces * (ahead + 1 + cpu))
    # Put on the devices once for all calls.
    numbers = [np.asarray(x, jnp.result_type(int)) for x in (samples.n, *range(pieces))]
    placed = jax.device_put((arrays, key, numbers), NamedSharding(mesh, _ALL))
    arrays, key, [n, *numbers] = placed
    if merge is not None:
        size += bytes_of(merge)
        merge = functools.partial(merge, arrays, n)
    simulate = functools.partial(simulate, arrays, key, n)
    return Program(block, mesh, simulate, output, merge, numbers, threads, ahead, size)


@functools.lru_cache(maxsize=8)
def _compile(rest, arrays, key, rows, options, devices, block, pieces, kernel):
    mesh = Mesh(np.asarray(devices), (_AXIS,))
    split, everywhere = NamedSharding(mesh, _SPLIT), NamedSharding(mesh, _ALL)

    options_of_lanes: dict[str, Any] = {}  # known when `simulate` has been traced

    # Indices continue beyond the last sample, to fill a block.
    def simulate(arrays, key, n, piece, index, rows):
        if kernel is not None:
            return kernel(block, arrays[:2], key, jnp.minimum(index, n - 1), rows)
        one, shared, _ = eqx.combine(arrays, rest.tree)
        each = functools.partial(compute, one, shared, key)
        if not on_cpu(devices):
            return jax.vmap(each)(jnp.minimum(index, n - 1), rows)

        size = block // pieces
        first = piece * size
        # For a single sample at a known place XLA would make a different program with different
        # rounding.
        twice = lambda x: jnp.concatenate([x, x]) if block == 1 else x  # noqa: E731
        samples = jax.tree.map(twice, (index, rows))
        one_of = lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype)  # noqa: E731
        traced, shapes = jax.make_jaxpr(each, return_shape=True)(*jax.tree.map(one_of, samples))
        count = jnp.clip(n - index[first], 0, size)
        nonlocal options_of_lanes
        together = in_lanes(traced) if block >= _SIDE_BY_SIDE else None
        options_of_lanes = {} if together is None else _WIDE
        found = _computed(traced, together, jax.tree.leaves(samples), first, count, size)
        return jax.tree.unflatten(jax.tree.structure(shapes), found)

    def reduce(arrays, n, outputs, status, index):
        reductions = eqx.combine(arrays, rest.tree)[2]
        good = (status == SUCCESSFUL) & (index < n)
        states = reduce_block(reductions, outputs, good, index)
        return jax.tree.map(lambda x: x[None], states)

    def lowered(fn, inputs, specs):
        # Each device runs independently, so that a loop that ends early on one does not wait for
        # the others.
        apart = jax.shard_map(fn, mesh=mesh, in_specs=specs, out_specs=_SPLIT, check_vma=False)
        where = tuple(everywhere if spec == _ALL else split for spec in specs)
        return jax.jit(apart, in_shardings=where, out_shardings=split).lower(*inputs)

    n, index = (
        jax.ShapeDtypeStruct(s, jnp.result_type(int)) for s in ((), (block * len(devices),))
    )
    inputs = (arrays.tree, key.tree, n, n, index, rows.tree)
    run = lowered(simulate, inputs, (_ALL, _ALL, _ALL, _ALL, _SPLIT, _SPLIT))
    output = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), run.out_info)
    run, merge = run.compile(options_of_lanes | (options.tree or {})), None
    if rest.tree[2] is not None:
        shape = lambda x: jax.ShapeDtypeStruct((*index.shape, *x.shape), x.dtype)  # noqa: E731
        inputs = (arrays.tree, n, *jax.tree.map(shape, output), index)
        merge = lowered(reduce, inputs, (_ALL, _ALL, _SPLIT, _SPLIT, _SPLIT)).compile(options.tree)
    return mesh, run, output[0], merge


def _computed(
    traced: ClosedJaxpr, together: Callable | None, samples: list, first, count, size: int
) -> list:
    """The outputs of `count` samples of `size`, from the one at `first` on, by `traced` for one
    sample or by `together` for several."""
    found = [jnp.zeros((size, *x.shape), x.dtype) for x in traced.out_avals]

    # One sample after the other: its steps are compiled whole, its data fits the L1 cache, and it
    # takes only the branches and iterations that it needs itself.
    def alone(i, found):
        out = eval_jaxpr(traced.jaxpr, traced.consts, *(x[first + i] for x in samples))
        put = jax.lax.dynamic_update_index_in_dim
        return [put(x, y, i, 0) for x, y in zip(found, out, strict=True)]

    # Several side by side, if all take the same steps. Samples after the last one fill a block.
    def side_by_side(k, found):
        assert together is not None
        part = (jax.lax.dynamic_slice_in_dim(x, first + k * LANES, LANES) for x in samples)
        out = together(*(jnp.moveaxis(x, 0, -1) for x in part))
        put = jax.lax.dynamic_update_slice_in_dim
        return [
            put(x, jnp.moveaxis(y, -1, 0), k * LANES, 0) for x, y in zip(found, out, strict=True)
        ]

    compute, times = (alone, count) if together is None else (side_by_side, -(-count // LANES))
    return jax.lax.fori_loop(jnp.zeros_like(times), times, compute, found)


def _power_of_two_from(n: int) -> int:
    return 1 << (n - 1).bit_length()


_SHARE = 0.5  # of the available memory; the rest is for transfers and other programs


def free_bytes(devices: list[Any]) -> float:
    """The memory that a run may use on each of `devices` [bytes]; infinite if it is not known."""
    return _SHARE * available_bytes(devices)


def bytes_of(compiled: jax.stages.Compiled, calls: int = 1, held: int = 2) -> int:
    """The memory on each device [bytes] for this number of simultaneous calls of `compiled`, with
    this number of its outputs `held`; 0 if the compiler does not report it."""
    analysis = compiled.memory_analysis()
    if analysis is None:
        return 0
    outputs = analysis.output_size_in_bytes
    return calls * analysis.temp_size_in_bytes + analysis.argument_size_in_bytes + held * outputs


def cores() -> int:
    """The number of cores that this process may use, for instance under `taskset`."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def workers(count: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads. After an error no further work is started.

    XLA computes a loop that is compiled whole on one core. Meanwhile it releases Python's global
    lock, so that other threads compute other samples with the same program.
    """
    pool = ThreadPoolExecutor(count, "rollout")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)

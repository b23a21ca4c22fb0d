"""`run`: one function on many samples."""

import math
import re
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import jax
import numpy as np
from jaxtyping import Array, PyTree

from .._inputs import Refusal, checked, positive_or_infinite, random_key, shown
from .._progress import says_when_compiling
from .blocks import is_reduction
from .memory import free_bytes
from .part import Part, combine
from .processes import gathered
from .program import compile_program, make_program
from .progress import Hook
from .result import Rollouts
from .samples import make_samples
from .stores import AbstractStore, Layout, Memory
from .workers import workers


def _power_of_two(chunk: int | None) -> int | None:
    if chunk is not None and (chunk < 1 or chunk & (chunk - 1)):
        near = 1 << max(0, chunk.bit_length() - 1)
        raise Refusal(f"must be a power of two, but is {chunk}: e.g. {near}.")
    return chunk


@checked
@says_when_compiling("rollouts")
def run(
    one: Callable[[Any, Array], PyTree],
    samples: PyTree | int,
    *,
    key: Annotated[Any, random_key] = None,
    reductions: Any = None,
    store: AbstractStore | None = None,
    chunk: Annotated[int | None, _power_of_two] = None,
    memory: Annotated[float | int | None, positive_or_infinite] = None,
    devices: Sequence[Any] | None = None,
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
    - `compiler_options`: as of `jax.jit`.
    - `progress`: `True` for a bar, `False` for none, or a function of the number of finished
      samples and the number of all samples, which is called after each chunk. Each process shows
      its own part.

    **Returns:** a `Rollouts`.

    **Raises:** `ValueError` for samples without a common leading axis, for anything but one random
    key, a chunk that does not fit into the memory, outputs that are not arrays, and a store that
    belongs to another run; `ImportError` naming the extra if a package is missing.
    """
    batch = make_samples(samples)
    key = jax.random.key(0) if key is None else key
    _check_reductions(reductions)
    devices = _checked_devices(devices)
    if memory is None:
        memory = free_bytes(devices) if chunk is None else math.inf
    start = time.perf_counter()
    program = make_program(one, batch, key, reductions, devices, compiler_options, chunk, memory)
    block = min(gathered(program.block))
    if block != program.block:
        program = compile_program(one, batch, key, reductions, devices, compiler_options, block)
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
    return combine(own, seconds_to_compile)


def _check_reductions(reductions) -> None:
    for reduction in jax.tree.leaves(reductions, is_leaf=is_reduction):
        if not is_reduction(reduction):
            raise ValueError(
                "Argument `reductions` of run must be reductions such as `mbd.rollout.Mean()`, or "
                f"a pytree of them, but has {shown(reduction)}."
            )


def _checked_devices(devices) -> list[Any]:
    local = jax.local_devices()
    devices = local if devices is None else list(devices)
    if not devices or any(device not in local for device in devices):
        raise ValueError(
            f"Argument `devices` of run must be some of `jax.local_devices()`, {local}, but is "
            f"{shown(devices)}."
        )
    return devices

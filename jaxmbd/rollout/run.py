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
from .part import Part, combined
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

    in chunks that fit the memory, shared out among the devices of this process, the cores of a CPU
    and, after `jax.distributed.initialize`, all processes. Keep statistics of the outputs, or the
    outputs themselves in memory or on disk. Every sample is computed once and on its own: what
    comes out does not depend on chunks, devices and processes, but for rounding.

    **Arguments:**

    - `one`: `one(sample, key)`, any function that JAX can trace, of one sample and a random key of
      its own. It returns a pytree of arrays, numbers and verdicts: a `Solution`, say, or a dict of
      what is of interest; or a pair `(outputs, result)` of which the first is kept. Let `simulate`
      run with `throw=False`: then a sample has failed if any verdict in what is returned is not
      successful, or if an output is not finite. Compiled once for a function and the shapes of the
      samples. Of an `eqx.Module`, arrays may have new values in the next call.
    - `samples`: any pytree of arrays with a leading axis of n samples: parameters, states,
      controls, policies, a batch of systems. NumPy memory maps are read by chunks. What is no array
      is common to all. Or the number n: then the sample is the index i, and `one` draws what it
      needs from its key.
    - `key`: default `jax.random.key(0)`.
    - `reductions`: statistics to keep, a pytree of `Mean`, `Moments`, `Covariance`, `Extremes`,
      `Histogram` and your own, without the samples that failed.
    - `store`: where the outputs go: `Memory()`, the default without reductions; `Zarr(path)`; with
      reductions and no store they are dropped. After an interruption a run with `Zarr` goes on.
    - `chunk`: how many samples a device is given at once, a power of two. Default: as many as keep
      it busy and fit. Threads of a CPU, one for each core, share them.
    - `memory`: bytes that a chunk may take on each device. Default: half of what is free, or no
      limit for a `chunk` that is given.
    - `devices`: of this process, to be used. Default: `jax.local_devices()`.
    - `compiler_options`: as of `jax.jit`.
    - `progress`: a bar, or none, or a function of the number of samples that are done and that
      there are, called after each chunk. Of several processes, each shows its own part.

    **Returns:** a `Rollouts`.

    **Raises:** `ValueError` for samples without a common leading axis, something other than one
    random key, a chunk that does not fit the memory, outputs that are no arrays, and a store that
    belongs to another run; `ImportError` naming the extra if a package is missing.
    """
    batch = make_samples(samples)
    key = jax.random.key(0) if key is None else key
    _check_reductions(reductions)
    devices = _checked_devices(devices)
    if memory is None:
        memory = free_bytes(devices) if chunk is None else math.inf
    begun = time.perf_counter()
    program = make_program(one, batch, key, reductions, devices, compiler_options, chunk, memory)
    block = min(gathered(program.block))
    if block != program.block:
        program = compile_program(one, batch, key, reductions, devices, compiler_options, block)
    seconds_to_compile = time.perf_counter() - begun
    if store is None and reductions is None:
        store = Memory()
    record = None
    if store is not None:
        data = np.ravel(jax.random.key_data(key)).tolist()
        record = store.open(Layout(batch.n, program.output, data, batch.digest(), block))
    try:
        with workers(program.threads) as pool:
            own = Part(program, batch, reductions, record, pool)
            own.reread()
            own.compute(progress)
    except jax.errors.JaxRuntimeError as error:
        words = re.findall(r"EquinoxRuntimeError: ([^\n]*)", str(error))
        if not words:
            raise
        raise RuntimeError(
            f"The function of run raised an error: {words[-1]} With `throw=False` in it, samples "
            "that fail are counted, and the others go on."
        ) from None
    return combined(own, seconds_to_compile)


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

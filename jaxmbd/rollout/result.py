"""The result of a run."""

import dataclasses

import numpy as np
from jaxtyping import PyTree

from .._printed import failures, printed
from .._results import RESULTS, code


@printed
@dataclasses.dataclass(frozen=True)
class Failures:
    """The samples that failed.

    **Fields:**

    - `index`: which ones, shape `(failed,)`, increasing.
    - `result`: why, a batch of `RESULTS` of that shape; `mbd.RESULTS[failures.result]` are the
      messages.
    """

    index: np.ndarray
    result: RESULTS

    def __len__(self) -> int:
        return self.index.size

    def __str__(self) -> str:
        return "\n".join(failures(self.index, np.asarray(code(self.result)))) or "no failures"


@printed
@dataclasses.dataclass(frozen=True)
class Rollouts:
    """The result of `run`; `print` it.

    **Fields:**

    - `n`: number of samples. `failures`: those that failed; see also `good`.
    - `statistics`: the results of the `reductions`, as a pytree of the same structure. Each is
      `None` if no sample was good.
    - `outputs` of all samples, also of the failed ones, as returned by the store.
    - `computed`: number of samples that this call computed on all processes. It is less than n if
      the call resumed an interrupted run. `seconds`: their computing time, without the compilation,
      which took `seconds_to_compile`. Both belong to the slowest process.
    - `chunk`: number of samples in a chunk on each device. `devices`: number of devices of all
      processes. `threads`: number of threads of each process, which compute pieces of the chunks on
      a CPU.
    - `bytes`: memory of a chunk on each device.
    - `kernel`: whether the samples were computed by a kernel. `way`: how, in words, and why not by
      a kernel if one was wanted.
    """

    n: int
    failures: Failures
    statistics: PyTree
    outputs: PyTree
    computed: int
    seconds: float
    seconds_to_compile: float
    chunk: int
    devices: int
    processes: int
    threads: int
    bytes: int
    kernel: bool
    way: str

    @property
    def good(self) -> np.ndarray:
        """Which samples did not fail, shape `(n,)`."""
        good = np.ones(self.n, bool)
        good[self.failures.index] = False
        return good

    @property
    def samples_per_second(self) -> float:
        """Samples per second of this call, without compilation."""
        return self.computed / self.seconds if self.seconds else 0.0

    def __str__(self) -> str:
        failed = len(self.failures)
        there = f", {self.n - self.computed} of them from before" if self.computed < self.n else ""
        lines = [f"{self.n} samples{there}: {self.n - failed} succeeded, {failed} failed"]
        if failed:
            lines += [f"  {line}" for line in str(self.failures).splitlines()]
        lines.append(
            f"{self.samples_per_second:.4g} samples/s: {self.computed} in {self.seconds:.3g} s, "
            f"after {self.seconds_to_compile:.3g} s of compilation; chunks of {self.chunk} on each "
            f"of {self.devices} devices of {self.processes} processes, by {self.threads} threads"
        )
        if self.way != "XLA":
            lines.append(f"computed by {self.way}")
        return "\n".join(lines)

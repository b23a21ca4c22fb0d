"""Threads that keep all cores of a CPU busy.

XLA computes a loop that is compiled whole on one core. Meanwhile it releases Python's global lock,
so that other threads compute other samples with the same program.
"""

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor


def cores() -> int:
    """The number of cores that this process may use, for instance under `taskset`."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def workers(count: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads. After an error no further work is started."""
    pool = ThreadPoolExecutor(count, "rollout")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)

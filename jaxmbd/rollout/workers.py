"""Threads that keep all cores of a CPU busy.

XLA computes a loop that it compiles whole on one core. It lets go of Python meanwhile, so that
threads compute other samples at the same time, by the same program.
"""

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor


def cores() -> int:
    """That this process may use, such as `taskset` leaves it."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def workers(count: int) -> Iterator[ThreadPoolExecutor]:
    """After an error, nothing more is begun."""
    pool = ThreadPoolExecutor(count, "rollout")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)

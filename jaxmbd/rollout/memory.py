"""The memory that a compiled function may use, and the memory that it needs."""

from typing import Any

import jax

from .._sizes import available_bytes

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

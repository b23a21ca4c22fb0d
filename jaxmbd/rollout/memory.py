"""How many bytes a compiled function may take, and how many it needs."""

from typing import Any

import jax

from .._sizes import available_bytes

_SHARE = 0.5  # of what is available: the rest is for transfers, and for others


def free_bytes(devices: list[Any]) -> float:
    """What each of `devices` may use; infinite if nothing is known of them."""
    return _SHARE * available_bytes(devices)


def bytes_of(compiled: jax.stages.Compiled, calls: int = 1, held: int = 2) -> int:
    """Of each device, for so many calls of `compiled` at once, while so many of its outputs are
    there; 0 where the compiler does not tell."""
    analysis = compiled.memory_analysis()
    if analysis is None:
        return 0
    outputs = analysis.output_size_in_bytes
    return calls * analysis.temp_size_in_bytes + analysis.argument_size_in_bytes + held * outputs

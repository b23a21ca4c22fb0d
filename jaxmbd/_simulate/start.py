"""The check of a start before anything long is compiled."""

from typing import Any

import numpy as np
from jaxtyping import Array

from .._concrete import all_concrete, compiled_quickly
from .._methods import AbstractEnforcement
from .._raising import error_if
from .._system import AbstractSystem

# Contacts that are named in a message.
_NAMED = 5


def check_overlaps(
    system: AbstractSystem, enforcement: AbstractEnforcement, t: Any, q: Array, tolerance: Any
) -> None:
    """**Raises** an error that names the rigid contacts that overlap at a concrete start by more
    than the tolerance, among them limits of joints. A traced start is judged by the first step."""
    if not enforcement.unilateral or not all_concrete((system, t, q, tolerance)):
        return
    gap = np.asarray(_gap(system, np.asarray(t, q.dtype), q))
    if not np.any(gap < -tolerance):  # NaN has a verdict of its own
        return
    said = system._overlaps(gap, float(tolerance))
    if not said:
        return
    more = f"; and {len(said) - _NAMED} more" if len(said) > _NAMED else ""
    message = (
        "In the initial state contacts overlap, or joints are outside of their limits, by more "
        f"than `start_tolerance`, {float(tolerance):.4g}: {'; '.join(said[:_NAMED])}{more}. Move "
        "the joints within their limits and the bodies apart (`mbd.place_bodies`), or raise "
        "`start_tolerance`: the first step then removes the overlap."
    )
    error_if(gap, True, 0, [message])


@compiled_quickly
def _gap(system, t, q):
    return system.gap(q, t)

"""The loop over the iterations of a search, with a progress bar, stopping and restart."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import PyTree

from .._progress import progress_bar
from .checkpoint import Checkpoint, NoCheckpoint


class Monitor(NamedTuple):
    """How the progress of a search is shown: a bar with a `label`, for at most `limit` iterations.
    `report` is called with the state after each iteration and returns the text beside the bar."""

    label: str
    limit: int
    report: Callable[[Any], str]
    progress: bool = True
    checkpoint: Checkpoint | NoCheckpoint = NoCheckpoint()


@eqx.filter_jit
def once(step: Callable, args: PyTree, state: Any) -> Any:
    """Do one iteration, compiled."""
    return step(args, state)


@eqx.filter_jit
def _all(step, args, state):
    return jax.lax.while_loop(lambda s: ~s.done, lambda s: step(args, s), state)


def iterate(step: Callable, args: PyTree, state: Any, monitor: Monitor | None) -> tuple[Any, int]:
    """Repeat `state = step(args, state)` until `state.done`, which may be a batch of flags.

    With a monitor, this is a Python loop around one compiled iteration, so that the bar moves and
    Ctrl-C works. Without one, or with traced numbers, it is one compiled loop.

    **Returns:** the last state, and the number of iterations. That is 0 after a compiled loop.
    """
    traced = any(isinstance(x, Tracer) for x in jax.tree.leaves((args, state)))
    if traced or monitor is None:
        return _all(step, args, state), 0
    count, state = monitor.checkpoint.restored(state)
    with progress_bar(monitor.limit, monitor.label, monitor.progress, done=count) as bar:
        while count < monitor.limit and not np.all(np.asarray(state.done)):
            state = once(step, args, state)
            count += 1
            bar.update()
            bar.set_postfix_str(monitor.report(state))
            monitor.checkpoint.save(count, state)
        bar.total = bar.n  # the search may end before the limit
        monitor.checkpoint.save(count, state, now=True)
    return state, count

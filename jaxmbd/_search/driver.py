"""The loop over the iterations of a search: a progress bar, checkpoints, stopping and restart."""

import hashlib
import json
import os
import pathlib
import time
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from .._compiler import is_known, to_jax
from .._inputs import checked, not_negative
from .._progress import progress_bar


class NoCheckpoint:
    """A checkpoint that saves nothing."""

    def restored(self, state: PyTree) -> tuple[int, PyTree]:
        return 0, state

    def save(self, iteration: int, state: PyTree, *, now: bool = False) -> None:
        pass


class Checkpoint:
    """A file that a search is saved in, and from which it continues.

    The file holds a line of JSON, then the arrays as `equinox.tree_serialise_leaves` writes them.
    It is replaced as a whole, so an interruption leaves the previous file.

    **Arguments:**

    - `path`: the path of the file.
    - `problem`: a pytree of arrays. A file that was saved with other arrays is refused.
    - `seconds`: the shortest time between two writes [s]; 0 to write after each iteration.
    """

    @checked
    def __init__(
        self,
        path: str | os.PathLike,
        problem: PyTree,
        seconds: Annotated[float, not_negative] = 10.0,
    ):
        self.path = pathlib.Path(path)
        self.fingerprint = fingerprint(problem)
        self.seconds, self._last = seconds, -np.inf

    def restored(self, state: PyTree) -> tuple[int, PyTree]:
        """The number of iterations done and the state then; 0 and the given one without a file.

        **Raises:** `ValueError` for the file of another problem.
        """
        if not self.path.exists():
            return 0, state
        with self.path.open("rb") as file:
            try:
                header = json.loads(file.readline())
                problem, done = header["problem"], int(header["iterations"])
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(
                    f"{self.path} is no checkpoint of a fit: remove it, or name another file."
                ) from error
            if problem != self.fingerprint:
                raise ValueError(
                    f"{self.path} was saved by the search of another problem (other measurements, "
                    "guesses or options): remove it, or name another file."
                )
            try:
                return done, eqx.tree_deserialise_leaves(file, state, _loaded)
            except Exception as error:  # its type depends on what is missing
                raise ValueError(
                    f"{self.path} is damaged: remove it, and the search begins again."
                ) from error

    def save(self, iteration: int, state: PyTree, *, now: bool = False) -> None:
        """Write the state, unless the last write was less than `seconds` ago and not `now`."""
        if not now and time.monotonic() - self._last < self.seconds:
            return
        self._last = time.monotonic()
        new = self.path.with_name(self.path.name + ".new")
        with new.open("wb") as file:
            header = {"problem": self.fingerprint, "iterations": iteration}
            file.write(json.dumps(header).encode() + b"\n")
            eqx.tree_serialise_leaves(file, state)
        new.replace(self.path)


def fingerprint(tree: PyTree) -> str:
    """Hash the shapes, types and numbers of the leaves of a pytree."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_array_like)):
        x = np.asarray(leaf)
        digest.update(f"{x.shape}{x.dtype}".encode())
        digest.update(x.tobytes())
    return digest.hexdigest()


def _loaded(file, like):
    """The next leaf of a file. Unlike `jnp.load`, it compiles nothing."""
    if isinstance(like, jax.Array) and like.dtype.kind in "biuf":
        return to_jax(np.load(file))
    return eqx.default_deserialise_filter_spec(file, like)


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
    if monitor is None or not is_known((args, state)):
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

"""Checkpoints, from which an interrupted search continues."""

import hashlib
import json
import os
import pathlib
import time
from typing import Annotated

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from .._concrete import to_jax
from .._inputs import checked, not_negative


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

"""Where outputs of samples go."""

import abc
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from ..._results import is_verdict


class Layout(NamedTuple):
    """What a store has to hold, and what tells one run from another.

    **Fields:**

    - `n`: number of samples.
    - `output`: shapes and dtypes of the output of one sample, a pytree of `jax.ShapeDtypeStruct`.
    - `key`: data of the random key, a list of integers.
    - `samples`: digest of the samples.
    - `block`: how many samples are written at once, a power of two.
    """

    n: int
    output: PyTree[jax.ShapeDtypeStruct]
    key: list[int]
    samples: str
    block: int

    @property
    def bytes(self) -> int:
        """Of the output of one sample."""
        return sum(math.prod(s.shape) * s.dtype.itemsize for s in jax.tree.leaves(self.output))

    def named(self) -> dict[str, jax.ShapeDtypeStruct]:
        """The leaves of `output` by their names."""
        leaves = jax.tree_util.tree_leaves_with_path(self.output, is_leaf=is_verdict)
        return {
            jax.tree_util.keystr(path, simple=True, separator="/") or "output": x
            for path, x in ((path, jax.tree.leaves(leaf)[0]) for path, leaf in leaves)
        }


class AbstractRecord(abc.ABC):
    """A store that has been opened, of one process.

    **Fields:** `status`, shape `(n,)`: numbers of the verdicts of samples that are there, -1 of
    those that are not.
    """

    status: np.ndarray
    # Samples that must be written by one process: a power of two.
    rows: int

    @abc.abstractmethod
    def write(self, first: int, outputs: PyTree, status: np.ndarray) -> None:
        """Those of the samples first, first + 1, ...: outputs first, then their status, so that
        after an interruption nothing is taken for written that is not."""

    @abc.abstractmethod
    def read(self, first: int, stop: int) -> PyTree[np.ndarray]:
        """Outputs of the samples first ... stop - 1."""

    @abc.abstractmethod
    def result(self) -> Any:
        """What the user gets of it, when all is written."""


class AbstractStore(eqx.Module):
    """Where the outputs of all samples go; a new kind is a subclass with its `AbstractRecord`."""

    @abc.abstractmethod
    def open(self, layout: Layout) -> AbstractRecord:
        """Begin, or go on after an interruption. Called once on each process."""

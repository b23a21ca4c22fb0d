"""The interface of stores for the outputs of samples."""

import abc
import math
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from ..._extensible import Extensible
from ..._results import is_verdict


class Layout(NamedTuple):
    """The contents of a store, and the data that identify a run.

    **Fields:**

    - `n`: number of samples.
    - `output`: shapes and dtypes of the output of one sample, a pytree of `jax.ShapeDtypeStruct`.
    - `key`: data of the random key, a list of integers.
    - `samples`: digest of the samples.
    - `block`: number of samples that are written at once, a power of two.
    """

    n: int
    output: PyTree[jax.ShapeDtypeStruct]
    key: list[int]
    samples: str
    block: int

    @property
    def bytes(self) -> int:
        """The size of the output of one sample."""
        return sum(math.prod(s.shape) * s.dtype.itemsize for s in jax.tree.leaves(self.output))

    def named(self) -> dict[str, jax.ShapeDtypeStruct]:
        """The leaves of `output` with their names."""
        leaves = jax.tree_util.tree_leaves_with_path(self.output, is_leaf=is_verdict)
        return {
            jax.tree_util.keystr(path, simple=True, separator="/") or "output": x
            for path, x in ((path, jax.tree.leaves(leaf)[0]) for path, leaf in leaves)
        }


class AbstractRecord(abc.ABC):
    """A store that one process has opened.

    **Fields:** `status`, shape `(n,)`: the number of each sample's verdict, or -1 for samples that
    are not stored yet.
    """

    status: np.ndarray
    # Number of consecutive samples that one process must write, a power of two.
    rows: int

    @abc.abstractmethod
    def write(self, first: int, outputs: PyTree, status: np.ndarray) -> None:
        """Write the samples first, first + 1, ...: first their outputs, then their status. So after
        an interruption no sample counts as written that is not."""

    @abc.abstractmethod
    def read(self, first: int, stop: int) -> PyTree[np.ndarray]:
        """Outputs of the samples first ... stop - 1."""

    @abc.abstractmethod
    def result(self) -> Any:
        """The outputs for the user, when all samples are written."""


class AbstractStore(Extensible):
    """A store for the outputs of all samples. A new kind is a subclass with its own
    `AbstractRecord`."""

    @abc.abstractmethod
    def open(self, layout: Layout) -> AbstractRecord:
        """Start a new run, or resume one after an interruption. Called once on each process."""

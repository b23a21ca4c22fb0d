"""Histograms."""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..._concrete import is_concrete
from ..._inputs import checked
from ..._printed import counted, entries, printed, span
from .base import AbstractReduction, everything, numbers


@printed
@dataclasses.dataclass(frozen=True)
class HistogramResult:
    """The result of `Histogram`.

    **Fields:**

    - `edges`: of the bins, shape `(bins + 1,)`.
    - `counts`: a pytree of integers with the bins of each entry along the last axis. `below` and
      `above`: the numbers of values outside of the edges; `nan`: those of values that are NaN.
    """

    edges: np.ndarray
    counts: PyTree
    below: PyTree
    above: PyTree
    nan: PyTree

    def __str__(self) -> str:
        rows = [f"{counted(self.edges.size - 1, 'bin')} over {span(self.edges)}"]
        words = "counts {}, below {}, above {}, NaN {}"
        found = self.counts, self.below, self.above, self.nan
        return "\n".join([*rows, *entries(words, *found)])


@checked
class Histogram(AbstractReduction):
    """Numbers of good samples in bins. A bin includes its left edge; the last one includes both
    edges. Values that are NaN count apart, neither below nor above.

    **Arguments:**

    - `edges`: of the bins, shape `(bins + 1,)`, increasing, e.g. `jnp.linspace(0.0, 1.0, 101)`.
    - `of`: `of(output)`, any pytree of real numbers. Default: the whole output. A chunk of B
      samples with k numbers takes B k (bins + 3) integers of memory.

    **Returns:** a `HistogramResult` in `Rollouts.statistics`.

    **Raises:** `ValueError` for edges that do not increase.
    """

    edges: Float[Array, " edges"] = eqx.field(converter=jnp.asarray)
    of: Callable = everything

    def __check_init__(self):
        if is_concrete(self.edges):
            edges = np.asarray(self.edges)
            if edges.ndim != 1 or edges.size < 2 or not np.all(np.diff(edges) > 0):
                raise ValueError(
                    f"`edges` must be two numbers or more that increase, but are {edges}: e.g. "
                    "`jnp.linspace(0.0, 1.0, 101)`."
                )

    def single(self, output, index):
        del index
        size = self.edges.shape[0]

        def count(x):
            bin = jnp.searchsorted(self.edges.astype(x.dtype), x, side="right")
            bin = jnp.where(x == self.edges[-1].astype(x.dtype), size - 1, bin)
            bin = jnp.where(jnp.isnan(x), size + 1, bin)
            return jax.nn.one_hot(bin, size + 2, dtype=int)

        return jax.tree.map(count, numbers(self.of, output))

    def merge(self, a, b):
        return jax.tree.map(jnp.add, a, b)

    def result(self, state):
        part = lambda rows: jax.tree.map(lambda x: np.asarray(x)[..., rows], state)  # noqa: E731
        counts, below, above, nan = map(part, (slice(1, -2), 0, -2, -1))
        return HistogramResult(np.asarray(self.edges), counts, below, above, nan)

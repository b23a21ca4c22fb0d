"""Smallest and largest values, and their samples."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..._inputs import checked
from ..._printed import entries, printed
from .base import AbstractReduction, everything


@printed
@dataclasses.dataclass(frozen=True)
class ExtremesResult:
    """The result of `Extremes`.

    **Fields:** `min` and `max` of each entry; `argmin` and `argmax`, the indices of their samples,
    the first of several equal ones. All are pytrees of the same structure. As in NumPy, both values
    are NaN where one of a good sample is, with the index of the first such sample.
    """

    min: PyTree
    max: PyTree
    argmin: PyTree
    argmax: PyTree

    def __str__(self) -> str:
        words = "smallest {}, of sample {}; largest {}, of sample {}"
        return "\n".join(
            ["extremes", *entries(words, self.min, self.argmin, self.max, self.argmax)]
        )


@checked
class Extremes(AbstractReduction):
    """Smallest and largest value of each entry over the good samples.

    **Arguments:**

    - `of`: `of(output)`, any pytree of real numbers. Default: the whole output.

    **Returns:** an `ExtremesResult` in `Rollouts.statistics`.
    """

    of: Callable = everything

    def single(self, output, index):
        x = jax.tree.map(jnp.asarray, self.of(output))
        whose = jax.tree.map(lambda x: jnp.full(x.shape, index), x)
        return (x, whose), (x, whose)

    def merge(self, a, b):
        (low_a, high_a), (low_b, high_b) = a, b
        # The indices of b are larger, so that of equal values the one of a is kept.
        return _better(jnp.less, low_a, low_b), _better(jnp.greater, high_a, high_b)

    def result(self, state):
        (low, argmin), (high, argmax) = jax.tree.map(np.asarray, state)
        return ExtremesResult(low, high, argmin, argmax)


def _better(than, a, b):
    """b where it is better, or the first NaN, so that no order of merging loses it."""
    nan = lambda x: x != x  # noqa: E731
    replaced = jax.tree.map(lambda y, x: than(y, x) | (nan(y) & ~nan(x)), b[0], a[0])
    return tuple(jax.tree.map(jnp.where, replaced, y, x) for x, y in zip(a, b, strict=True))

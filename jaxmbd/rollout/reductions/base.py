"""Statistics of many samples, in place of their outputs."""

import abc
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from ..._extensible import Extensible
from ..verdicts import without_verdicts


class AbstractReduction(Extensible):
    """A statistic of many samples, computed from the states of single samples by merging two at a
    time:

        merge(merge(a, b), c) = merge(a, merge(b, c)).

    Write `single`, `merge` and `result` as pure functions of arrays. Samples that failed are never
    merged. States are merged in a binary tree over the indices of the samples: neighbours first,
    then pairs of neighbours, and so on. So the order does not depend on the size of the chunks and
    the number of devices and processes, and rounding errors grow only with the logarithm of the
    number of samples.
    """

    @abc.abstractmethod
    def single(self, output: PyTree, index: Int[Array, ""]) -> PyTree[Array]:
        """The state of the one sample `index`, whose output is `output`."""

    @abc.abstractmethod
    def merge(self, a: PyTree[Array], b: PyTree[Array]) -> PyTree[Array]:
        """The state of the samples of `a` and of `b`; all indices of `a` are less than those of
        `b`. It has the same shapes and dtypes as both."""

    @abc.abstractmethod
    def result(self, state: PyTree[Array]) -> Any:
        """The result for the user, from the state of all samples. Called once, outside of
        `jax.jit`."""


def everything(output: PyTree) -> PyTree:
    """The whole output without verdicts: the default of the argument `of` of reductions."""
    return without_verdicts(output)


def numbers(of: Callable[[PyTree], PyTree], output: PyTree) -> PyTree[Array]:
    """The numbers of a statistic, `of(output)`, in floating point."""

    def floating(x):
        x = jnp.asarray(x)
        return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(float)

    return jax.tree.map(floating, of(output))

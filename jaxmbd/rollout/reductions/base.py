"""What is kept of many samples in place of their outputs."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PyTree

from ..verdicts import without_verdicts


class AbstractReduction(eqx.Module):
    """A statistic of many samples, made from that of single ones by merging two at a time:

        merge(merge(a, b), c) = merge(a, merge(b, c)).

    Write `single`, `merge` and `result` as pure functions of arrays. Samples that failed are never
    merged. Neighbours are merged first, then pairs of neighbours, and so on up a binary tree over
    the indices of the samples: so the same numbers are merged in the same order whatever the size
    of chunks and the number of devices and processes, and errors of rounding grow with the
    logarithm of the number of samples only.
    """

    @abc.abstractmethod
    def single(self, output: PyTree, index: Int[Array, ""]) -> PyTree[Array]:
        """The state of the one sample `index`, whose output is `output`."""

    @abc.abstractmethod
    def merge(self, a: PyTree[Array], b: PyTree[Array]) -> PyTree[Array]:
        """The state of the samples of `a` and of `b`; all indices of `a` are less than those of
        `b`. Same shapes and dtypes as both."""

    @abc.abstractmethod
    def result(self, state: PyTree[Array]) -> Any:
        """What the user sees of the state of all samples; called once, outside of `jax.jit`."""


def everything(output: PyTree) -> PyTree:
    """The whole output but for verdicts, the default of what a reduction is `of`."""
    return without_verdicts(output)


def numbers(of: Callable[[PyTree], PyTree], output: PyTree) -> PyTree[Array]:
    """What a statistic is `of`, in floating point."""

    def floating(x):
        x = jnp.asarray(x)
        return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(float)

    return jax.tree.map(floating, of(output))

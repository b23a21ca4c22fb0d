"""Statistics of many samples, in place of their outputs."""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from .._compiler import refuted
from .._extensible import Extensible
from .._inputs import checked
from .._printed import counted, entries, in_a_line, printed, span
from .samples import without_verdicts


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
    def single(self, output: PyTree, index: Int[Array, ""]) -> PyTree:
        """The state of the one sample `index`, whose output is `output`."""

    @abc.abstractmethod
    def merge(self, a: PyTree, b: PyTree) -> PyTree:
        """The state of the samples of `a` and of `b`; all indices of `a` are less than in
        `b`. It has the same shapes and dtypes as both."""

    @abc.abstractmethod
    def result(self, state: PyTree) -> Any:
        """The result for the user, from the state of all samples. Called once, outside of
        `jax.jit`."""


def everything(output: PyTree) -> PyTree:
    """The whole output without verdicts: the default of the argument `of` of reductions."""
    return without_verdicts(output)


def numbers(of: Callable[[PyTree], PyTree], output: PyTree) -> PyTree:
    """The numbers of a statistic, `of(output)`, in floating point."""

    def floating(x):
        x = jnp.asarray(x)
        return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(float)

    return jax.tree.map(floating, of(output))


class _AboutMean(AbstractReduction):
    """Means over the good samples, and sums S of products about them: with d = mean_b - mean_a,

    n = n_a + n_b,    mean = mean_a + d n_b / n,    S = S_a + S_b + product(d) n_a n_b / n.
    """

    of: Callable = everything

    @abc.abstractmethod
    def product(self, d: Array) -> Array:
        """The product of the deviation d with itself."""

    def numbers(self, output: PyTree) -> PyTree:
        return numbers(self.of, output)

    def single(self, output, index):
        del index
        mean = self.numbers(output)
        S = jax.tree.map(lambda x: jnp.zeros_like(self.product(x)), mean)
        return jnp.asarray(1), mean, S

    def merge(self, a, b):
        (n_a, mean_a, S_a), (n_b, mean_b, S_b) = a, b
        n = n_a + n_b

        def spread(x, y, S, T):
            return S + T + self.product(y - x) * share(n_b, n, x.dtype) * n_a.astype(x.dtype)

        return (
            n,
            jax.tree.map(lambda x, y: x + (y - x) * share(n_b, n, x.dtype), mean_a, mean_b),
            jax.tree.map(spread, mean_a, mean_b, S_a, S_b),
        )

    def found(self, state: PyTree) -> tuple[int, PyTree, PyTree]:
        """n, mean and the unbiased S / (n - 1)."""
        n, mean, S = jax.tree.map(np.asarray, state)
        unbiased = lambda x: x / (n - 1) if n > 1 else np.full_like(x, np.nan)  # noqa: E731
        return int(n), mean, jax.tree.map(unbiased, S)


@checked
class Mean(AbstractReduction):
    """The mean of each entry over the good samples,

        n = n_a + n_b,    mean = mean_a + (mean_b - mean_a) n_b / n.

    **Arguments:**

    - `of`: `of(output)`, any pytree of numbers. Default: the whole output.

    **Returns:** a pytree of the same structure in `Rollouts.statistics`.
    """

    of: Callable = everything

    def single(self, output, index):
        del index
        return jnp.asarray(1), numbers(self.of, output)

    def merge(self, a, b):
        (n_a, mean_a), (n_b, mean_b) = a, b
        n = n_a + n_b
        return n, jax.tree.map(lambda x, y: x + (y - x) * share(n_b, n, x.dtype), mean_a, mean_b)

    def result(self, state):
        return jax.tree.map(np.asarray, state[1])


def share(part, whole, dtype):
    """part / whole of two counts, as `dtype`."""
    return part.astype(dtype) / whole.astype(dtype)


@printed
@dataclasses.dataclass(frozen=True)
class MomentsResult:
    """The result of `Moments`.

    **Fields:** `count` of samples; `mean` and unbiased `variance` of each entry, pytrees. The
    variance of a single sample is NaN.
    """

    count: int
    mean: PyTree
    variance: PyTree

    def __str__(self) -> str:
        rows = [counted(self.count, "sample")]
        words = "mean {}, standard deviation {}"
        return "\n".join([*rows, *entries(words, self.mean, self.deviation)])

    @property
    def deviation(self) -> PyTree:
        """Standard deviation of each entry."""
        return jax.tree.map(np.sqrt, self.variance)

    @property
    def standard_error(self) -> PyTree:
        """Standard error of the mean: deviation / sqrt(count)."""
        return jax.tree.map(lambda x: np.sqrt(x / self.count), self.variance)


@checked
class Moments(_AboutMean):
    """Mean and variance of each entry over the good samples: with d = mean_b - mean_a,

        n = n_a + n_b,    mean = mean_a + d n_b / n,    S = S_a + S_b + d^2 n_a n_b / n,

    where S is the sum of squares about the mean and the variance S / (n - 1).

    **Arguments:**

    - `of`: `of(output)`, any pytree of numbers. Default: the whole output.

    **Returns:** a `MomentsResult` in `Rollouts.statistics`.

    Reference: Chan, Golub and LeVeque (1983), Algorithms for computing the sample variance, The
    American Statistician 37, eqs. 2.1.
    """

    def product(self, d):
        return d**2

    def result(self, state):
        return MomentsResult(*self.found(state))


@printed
@dataclasses.dataclass(frozen=True)
class CovarianceResult:
    """The result of `Covariance`.

    **Fields:** `count` of samples; `mean`, shape `(k,)`; unbiased `covariance`, shape `(k, k)`,
    NaN for a single sample. The k numbers are in the order of `jax.flatten_util.ravel_pytree`.
    """

    count: int
    mean: np.ndarray
    covariance: np.ndarray

    def __str__(self) -> str:
        rows = [counted(self.count, "sample")]
        rows.append(
            f"  mean {in_a_line(self.mean)}, standard deviation {in_a_line(self.deviation)}"
        )
        return "\n".join([*rows, "correlation:", str(self.correlation)])

    @property
    def deviation(self) -> np.ndarray:
        """Standard deviation of each number, shape `(k,)`."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def correlation(self) -> np.ndarray:
        """Coefficients of correlation, shape `(k, k)`; NaN for a number that does not vary."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.covariance / np.outer(self.deviation, self.deviation)


@checked
class Covariance(_AboutMean):
    """Mean and covariance of k numbers over the good samples: with d = mean_b - mean_a,

        n = n_a + n_b,    mean = mean_a + d n_b / n,    C = C_a + C_b + d d^T n_a n_b / n,

    and the covariance is C / (n - 1). If the outputs hold parameters and the quantities that depend
    on them, the correlations show which parameters matter.

    **Arguments:**

    - `of`: `of(output)`, any pytree of k numbers. Default: the whole output. A chunk of B samples
      takes B k^2 numbers of memory.

    **Returns:** a `CovarianceResult` in `Rollouts.statistics`.

    Reference: Chan, Golub and LeVeque (1983), as for `Moments`, for pairs of numbers.
    """

    def numbers(self, output):
        return ravel_pytree(super().numbers(output))[0]

    def product(self, d):
        return jnp.outer(d, d)

    def result(self, state):
        return CovarianceResult(*self.found(state))


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


@printed
@dataclasses.dataclass(frozen=True)
class HistogramResult:
    """The result of `Histogram`.

    **Fields:**

    - `edges`: of the bins, shape `(bins + 1,)`.
    - `counts`: a pytree of integers with the bins of each entry along the last axis. `below` and
      `above`: the numbers of values outside of the edges; `nan`: of values that are NaN.
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
        if refuted(lambda x: x.ndim == 1 and x.size > 1 and np.all(np.diff(x) > 0), self.edges):
            raise ValueError(
                f"`edges` must be two numbers or more that increase, but are {self.edges}: e.g. "
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

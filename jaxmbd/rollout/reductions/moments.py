"""Mean and variance."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..._inputs import checked
from ..._printed import counted, entries, printed
from .base import AbstractReduction, everything, numbers
from .mean import share


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
class Moments(AbstractReduction):
    """Mean and variance of each entry over the good samples: with d = mean_b - mean_a,

        n = n_a + n_b,    mean = mean_a + d n_b / n,    S = S_a + S_b + d^2 n_a n_b / n,

    where S is the sum of squares about the mean and the variance S / (n - 1).

    **Arguments:**

    - `of`: `of(output)`, any pytree of numbers. Default: the whole output.

    **Returns:** a `MomentsResult` in `Rollouts.statistics`.

    Reference: Chan, Golub and LeVeque (1983), Algorithms for computing the sample variance, The
    American Statistician 37, eqs. 2.1.
    """

    of: Callable = everything

    def single(self, output, index):
        del index
        mean = numbers(self.of, output)
        return jnp.asarray(1), mean, jax.tree.map(jnp.zeros_like, mean)

    def merge(self, a, b):
        (n_a, mean_a, S_a), (n_b, mean_b, S_b) = a, b
        n = n_a + n_b

        def mean(x, y):
            return x + (y - x) * share(n_b, n, x.dtype)

        def squares(x, y, S, T):
            return S + T + (y - x) ** 2 * share(n_b, n, x.dtype) * n_a.astype(x.dtype)

        return (
            n,
            jax.tree.map(mean, mean_a, mean_b),
            jax.tree.map(squares, mean_a, mean_b, S_a, S_b),
        )

    def result(self, state):
        n, mean, S = jax.tree.map(np.asarray, state)
        unbiased = lambda x: x / (n - 1) if n > 1 else np.full_like(x, np.nan)  # noqa: E731
        return MomentsResult(int(n), mean, jax.tree.map(unbiased, S))

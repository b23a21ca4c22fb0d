"""Mean and covariance."""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from ..._inputs import checked
from ..._printed import counted, in_a_line, printed
from .base import AbstractReduction, everything, numbers
from .mean import share


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
class Covariance(AbstractReduction):
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

    of: Callable = everything

    def single(self, output, index):
        del index
        x = ravel_pytree(numbers(self.of, output))[0]
        return jnp.asarray(1), x, jnp.zeros((x.size, x.size), x.dtype)

    def merge(self, a, b):
        (n_a, mean_a, C_a), (n_b, mean_b, C_b) = a, b
        n, d = n_a + n_b, mean_b - mean_a
        weight = share(n_b, n, d.dtype)
        return (
            n,
            mean_a + d * weight,
            C_a + C_b + jnp.outer(d, d) * weight * n_a.astype(d.dtype),
        )

    def result(self, state):
        n, mean, C = (np.asarray(x) for x in state)
        C = C / (n - 1) if n > 1 else np.full_like(C, np.nan)
        return CovarianceResult(int(n), mean, C)

"""The mean."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from ..._inputs import checked
from .base import AbstractReduction, everything, numbers


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

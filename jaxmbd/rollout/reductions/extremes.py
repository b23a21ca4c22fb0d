"""Smallest and largest values, and whose they are."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .base import AbstractReduction, everything


class ExtremesResult(NamedTuple):
    """What `Extremes` found.

    **Fields:** `min` and `max` of each entry, and in `argmin` and `argmax` the indices of the
    samples that they belong to, the first ones of several: all pytrees alike.
    """

    min: PyTree
    max: PyTree
    argmin: PyTree
    argmax: PyTree


class Extremes(AbstractReduction):
    """Smallest and largest value of each entry over the good samples.

    **Arguments:**

    - `of`: `of(output)`, the part of each output that they are taken of, any pytree of real
      numbers. Default: all of it.

    **Returns:** an `ExtremesResult` in `Rollouts.statistics`.
    """

    of: Callable = everything

    def single(self, output, index):
        x = jax.tree.map(jnp.asarray, self.of(output))
        whose = jax.tree.map(lambda x: jnp.full(x.shape, index), x)
        return ExtremesResult(x, x, whose, whose)

    def merge(self, a, b):
        # The indices of b are larger: of equal values that of a stays.
        less = jax.tree.map(jnp.less, b.min, a.min)
        more = jax.tree.map(jnp.greater, b.max, a.max)
        return ExtremesResult(
            jax.tree.map(jnp.where, less, b.min, a.min),
            jax.tree.map(jnp.where, more, b.max, a.max),
            jax.tree.map(jnp.where, less, b.argmin, a.argmin),
            jax.tree.map(jnp.where, more, b.argmax, a.argmax),
        )

    def result(self, state):
        return jax.tree.map(np.asarray, state)

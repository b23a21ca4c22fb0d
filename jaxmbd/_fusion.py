"""Limits to XLA's fusion."""

import functools
import math
import operator
from collections.abc import Iterable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool


@jax.custom_jvp
def once(x: Array) -> Array:
    """x, computed before what uses it.

    XLA's CPU compiler fuses a chain of products into one loop, in which each entry of the last
    computes anew all that it needs of those before it: three products of 6 x 6 blocks cost not 3
    but 6^2 times one. `lax.optimization_barrier` is gone before fusion begins; a division it takes
    to be too dear to be done many times over. By 1, it leaves x what it is, NaN and infinity too.

    For factors and values that many results share; derivatives pass as if it were not there.
    """
    return x / jnp.where(x == x, 1.0, 2.0)


@once.defjvp
def _once_jvp(primals, tangents):
    return once(*primals), tangents[0]


def decided(condition: Bool[Array, "..."]) -> Bool[Array, "..."]:
    """The condition, decided once for all that hangs on it.

    XLA may compute it anew for each array that is chosen by it, with other roundings of what is
    compared. Where that is equal up to rounding, the arrays would not be of the same choice.
    """
    return once(condition.astype(jnp.float32)) > 0


# Products up to which their sum is one reduction. Of more XLA makes a call of a library, with
# which it does not compile a loop whole.
_MAX_REDUCED = 3000


def contracted(A: Array, B: Array, axis: int) -> Array:
    """The sum of A B, broadcast, along an axis that both have. As a reduction it is two operations
    to compile, which nothing that uses the sum computes anew; of large arrays it is written out."""
    if math.prod(jnp.broadcast_shapes(A.shape, B.shape)) <= _MAX_REDUCED:
        return jnp.sum(A * B, axis=axis)

    def at(x, i):
        return jax.lax.index_in_dim(x, i, axis, keepdims=False)

    return total(at(A, i) * at(B, i) for i in range(A.shape[axis]))


def total(terms: Iterable[Array]) -> Array:
    """Their sum. Written out, sums of products fuse where a reduction or a batched matrix product
    would be a kernel of its own."""
    return functools.reduce(operator.add, terms)

"""Limits to XLA's fusion."""

import functools
import math
import operator
from collections.abc import Iterable

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Bool


def once(x: Array) -> Array:
    """x, computed before what uses it.

    XLA's CPU compiler fuses a chain of products into one loop, in which each entry of the last
    computes anew all that it needs of those before it: three products of 6 x 6 blocks cost not 3
    but 6^2 times one. `lax.optimization_barrier` is gone before fusion begins; a division it takes
    to be too dear to be done many times over. By 1, it leaves x what it is, NaN and infinity too.
    That x < x never holds, XLA does not see, but LLVM does, and so nothing is divided in the end.

    For factors and values that many results share; derivatives pass as if it were not there.
    """
    return _once.bind(x)


def _divided(x):
    return x / jnp.where(x < x, 2.0, 1.0).astype(x.dtype)


_once = Primitive("once")
_once.def_impl(jax.jit(_divided))
_once.def_abstract_eval(lambda x: x)
ad.primitive_jvps[_once] = lambda x, dx: (once(*x), *dx)
ad.primitive_transposes[_once] = lambda c, _: (c,)
batching.primitive_batchers[_once] = lambda x, d: (once(*x), *d)
mlir.register_lowering(_once, mlir.lower_fun(_divided, multiple_results=False))


def settled(x: Array) -> Array:
    """x, whose cotangent is computed `once`: for what has many users, or one that uses each of its
    cotangent's entries many times."""
    return _settled.bind(x)


_settled = Primitive("settled")
_settled.def_impl(lambda x: x)
_settled.def_abstract_eval(lambda x: x)
ad.primitive_jvps[_settled] = lambda x, dx: (settled(*x), settled(*map(ad.instantiate_zeros, dx)))
ad.primitive_transposes[_settled] = lambda c, _: (c if type(c) is ad.Zero else once(c),)
batching.primitive_batchers[_settled] = lambda x, d: (settled(*x), *d)
mlir.register_lowering(_settled, lambda ctx, x: [x])


def decided(condition: Bool[Array, "..."]) -> Bool[Array, "..."]:
    """The condition, decided once for all that hangs on it.

    XLA may compute it anew for each array that is chosen by it, with other roundings of what is
    compared. Where that is equal up to rounding, the arrays would not be of the same choice.
    """
    return once(condition.astype(jnp.float32)) > 0


# Products up to which their sum is one reduction. Of more XLA makes a call of a library, with
# which it does not compile a loop whole.
MAX_REDUCED = 3000


def contracted(A: Array, B: Array, axis: int) -> Array:
    """The sum of A B, broadcast, along an axis that both have. As a reduction it is two operations
    to compile, which nothing that uses the sum computes anew; of large arrays it is written out."""
    if math.prod(jnp.broadcast_shapes(A.shape, B.shape)) <= MAX_REDUCED:
        return jnp.sum(A * B, axis=axis)

    def at(x, i):
        return jax.lax.index_in_dim(x, i, axis, keepdims=False)

    return total(at(A, i) * at(B, i) for i in range(A.shape[axis]))


def total(terms: Iterable[Array]) -> Array:
    """Their sum. Written out, sums of products fuse where a reduction or a batched matrix product
    would be a kernel of its own."""
    return functools.reduce(operator.add, terms)

"""Barriers to XLA's fusion, and contractions that fuse well."""

import functools
import math
import operator
from collections.abc import Iterable

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Bool


def materialise(x: Array) -> Array:
    """x, computed once, before its users.

    XLA's CPU compiler fuses a chain of products into one loop. In it, each entry of the last
    product recomputes every entry of the earlier products that it needs: three products of 6 x 6
    blocks cost 6^2 times as much as one, instead of three times. `lax.optimization_barrier` does
    not help, since XLA removes it before fusion. A division helps, because XLA considers it too
    expensive to be repeated. So x is divided by 1, which changes no value, NaN and infinity
    included. The 1 is written as an expression of x < x. XLA does not see that x < x is always
    false. LLVM does see it and removes the division, so that nothing is divided at run time.

    Use it for factors and values that many results share. To derivatives it is the identity.
    """
    return _materialise.bind(x)


def _divided(x):
    return x / jnp.where(x < x, 2.0, 1.0).astype(x.dtype)


_materialise = Primitive("materialise")
_materialise.def_impl(jax.jit(_divided))
_materialise.def_abstract_eval(lambda x: x)
ad.primitive_jvps[_materialise] = lambda x, dx: (materialise(*x), *dx)
ad.primitive_transposes[_materialise] = lambda c, _: (c,)
batching.primitive_batchers[_materialise] = lambda x, d: (materialise(*x), *d)
mlir.register_lowering(_materialise, mlir.lower_fun(_divided, multiple_results=False))


def materialise_cotangent(x: Array) -> Array:
    """x, with a cotangent that passes through `materialise`. Use it for values with many users, or
    where the reverse pass reads each entry of the cotangent many times."""
    return _materialise_cotangent.bind(x)


_materialise_cotangent = Primitive("materialise_cotangent")
_materialise_cotangent.def_impl(lambda x: x)
_materialise_cotangent.def_abstract_eval(lambda x: x)
ad.primitive_jvps[_materialise_cotangent] = lambda x, dx: (
    materialise_cotangent(*x),
    materialise_cotangent(*map(ad.instantiate_zeros, dx)),
)
ad.primitive_transposes[_materialise_cotangent] = lambda c, _: (
    c if type(c) is ad.Zero else materialise(c),
)
batching.primitive_batchers[_materialise_cotangent] = lambda x, d: (materialise_cotangent(*x), *d)
mlir.register_lowering(_materialise_cotangent, lambda ctx, x: [x])


def materialise_condition(condition: Bool[Array, "..."]) -> Bool[Array, "..."]:
    """The condition, computed once for all arrays that depend on it.

    XLA may recompute a condition for each array that is selected by it, with different rounding of
    the numbers compared. Where these are equal up to rounding, the arrays could be selected from
    different sides.
    """
    return materialise(condition.astype(jnp.float32)) > 0


# The largest number of products that are summed by one reduction. XLA turns larger sums into a
# library call, and does not compile a loop with a library call whole.
MAX_REDUCED = 3000


def contracted(A: Array, B: Array, axis: int) -> Array:
    """The sum of A B, broadcast, along an axis that both have. It is a reduction for small arrays:
    two operations to compile, and its users do not recompute it. For large arrays the sum is
    written out."""
    if math.prod(jnp.broadcast_shapes(A.shape, B.shape)) <= MAX_REDUCED:
        return jnp.sum(A * B, axis=axis)

    def at(x, i):
        return jax.lax.index_in_dim(x, i, axis, keepdims=False)

    return total(at(A, i) * at(B, i) for i in range(A.shape[axis]))


def contract(subscripts: str, A: Array, B: Array) -> Array:
    """`jnp.einsum(subscripts, A, B)` of small arrays, with one summed index, as in
    "cij,cj->ci". Both arrays have their axes in the order of the result."""
    operands, out = subscripts.split("->")
    own = operands.split(",")
    (summed,) = set("".join(own)) - set(out)
    orders = [out[:k] + summed + out[k:] for k in range(len(out) + 1)]
    (order,) = (x for x in orders if all(_kept(x, letters) == letters for letters in own))
    missing = [[k for k, x in enumerate(order) if x not in letters] for letters in own]
    A, B = (jnp.expand_dims(x, axes) for x, axes in zip((A, B), missing, strict=True))
    return contracted(A, B, order.index(summed))


def _kept(order: str, letters: str) -> str:
    return "".join(x for x in order if x in letters)


def sum_with_error(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b, and its rounding error if |a| is larger: (a + b) - a - b, which compilers would
    simplify to 0. The error is constant to derivatives."""
    x = materialise(a + b)
    return x, jax.lax.stop_gradient((x - a) - b)


def largest(x: Array) -> Array:
    """The largest of |x|, 0 if x is empty. NaN is passed over: `jnp.max` looks for it, which takes
    three times as long. Its derivative is 0."""
    zero = jnp.zeros((), x.dtype)
    x = jnp.abs(jax.lax.stop_gradient(x))
    return jax.lax.reduce(x, zero, lambda a, b: jnp.where(b > a, b, a), tuple(range(x.ndim)))


def total(terms: Iterable[Array]) -> Array:
    """The sum of `terms`, written out. Such a sum fuses with its neighbours, whereas a reduction or
    a batched matrix product would be a separate kernel."""
    return functools.reduce(operator.add, terms)

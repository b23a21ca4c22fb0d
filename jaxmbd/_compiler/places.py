"""Rows of an array at places that are known only at run time, in both modes of differentiation, and
tables of what is at a place."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float, Int, Shaped

from .loops import entry, loops_cost_nothing, replaced


def rows_at(x: Shaped[Array, "n *rest"], index: Int[Array, " k"]) -> Shaped[Array, "k *rest"]:
    """`x[index]`, for places within x. The derivative of a gather is a scatter, with which XLA
    compiles no loop whole. Here it is `sums_at`."""
    return _rows_at.bind(x, jnp.asarray(index, jnp.int32))


def sums_at(x: Float[Array, "k *rest"], index: Int[Array, " k"], n: int) -> Float[Array, "n *rest"]:
    """`zeros(n).at[index].add(x)`: on CPUs a loop that adds one row after the other."""
    return _sums_at.bind(x, jnp.asarray(index, jnp.int32), n=n)


def chains(
    places: int, n: int, place: Callable[[Array], Array], count: int | Int[Array, ""] | None = None
) -> tuple[Int[Array, " places"], Int[Array, " n"]]:
    """Enter the first `count` of n items, each at `place(item)`. Return the last item of each place
    and the one before each item at its place; -1 for none."""

    def enter(k, both):
        h = place(k)
        # In one array: of two, XLA would copy one for each item.
        return replaced(replaced(both, entry(both, h), places + k), k, h)

    end = jnp.asarray(n if count is None else count, jnp.int32)
    both = jnp.full(places + n, -1, jnp.int32)
    both = lax.fori_loop(jnp.int32(0), end, enter, both)
    return both[:places], both[places:]


def _gathered(x, index):
    return x.at[index].get(mode="promise_in_bounds")


def _added(x, index, *, n):
    total = jnp.zeros((n, *x.shape[1:]), x.dtype)
    if not loops_cost_nothing():
        return total.at[index].add(x)

    def add(k, total):
        i = entry(index, k)
        return replaced(total, entry(total, i) + entry(x, k), i)

    return lax.fori_loop(0, x.shape[0], add, total)


_rows_at, _sums_at = Primitive("rows_at"), Primitive("sums_at")
_rows_at.def_impl(jax.jit(_gathered))
_sums_at.def_impl(jax.jit(_added, static_argnames="n"))
_rows_at.def_abstract_eval(lambda x, i: ShapedArray((i.shape[0], *x.shape[1:]), x.dtype))
_sums_at.def_abstract_eval(lambda x, i, n: ShapedArray((n, *x.shape[1:]), x.dtype))
mlir.register_lowering(_rows_at, mlir.lower_fun(_gathered, multiple_results=False))
mlir.register_lowering(_sums_at, mlir.lower_fun(_added, multiple_results=False))


def _linear(primitive: Primitive) -> None:
    """Derivatives by the first operand of a function that is linear in it."""

    def jvp(operands, tangents, **params):
        out = primitive.bind(*operands, **params)
        # The places are constants, so the rule is only called for a tangent of the rows.
        return out, primitive.bind(tangents[0], operands[1], **params)

    ad.primitive_jvps[primitive] = jvp


def _transposed_rows(cotangent, x, index):
    if type(cotangent) is ad.Zero:
        return ad.Zero(x.aval), None
    return _sums_at.bind(cotangent, index, n=x.aval.shape[0]), None


def _transposed_sums(cotangent, x, index, *, n):
    del n
    if type(cotangent) is ad.Zero:
        return ad.Zero(x.aval), None
    return _rows_at.bind(cotangent, index), None


_linear(_rows_at)
_linear(_sums_at)
ad.primitive_transposes[_rows_at] = _transposed_rows
ad.primitive_transposes[_sums_at] = _transposed_sums


def _batched(primitive: Primitive, rows: Any):
    """With equal places in all samples, these are further columns; else samples follow one another
    as further rows, of which each has `rows(x, params)` in a sample."""

    def rule(operands, dims, **params):
        (x, index), (dx, di) = operands, dims
        if di is None:
            return primitive.bind(jnp.moveaxis(x, dx, 1), index, **params), 1
        index = jnp.moveaxis(index, di, 0)
        size = index.shape[0]
        x = jnp.broadcast_to(x, (size, *x.shape)) if dx is None else jnp.moveaxis(x, dx, 0)
        n = rows(x, params)
        index = index + n * jnp.arange(size, dtype=index.dtype)[:, None]
        params = {name: size * value for name, value in params.items()}
        out = primitive.bind(x.reshape(-1, *x.shape[2:]), index.ravel(), **params)
        return out.reshape(size, -1, *out.shape[1:]), 0

    batching.primitive_batchers[primitive] = rule


_batched(_rows_at, lambda x, params: x.shape[1])
_batched(_sums_at, lambda x, params: params["n"])

"""A program for several samples side by side, with the axis of the samples last.

The innermost loops of the compiled program then run over the samples, in contiguous memory, with
one sample in each lane of a vector instruction. `jax.vmap` puts the samples first. The innermost
loops then have strides, and a block of samples takes longer than the same samples one after the
other.
"""

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr
from jaxtyping import Array

from .._compiler import MAX_REDUCED
from .uniform import (
    Place,
    busy_branch,
    call_of,
    equations_of,
    holds_programs,
    is_literal,
    is_uniform,
    opened,
    scan_carry,
    scan_parts,
    varying,
    while_carry,
    while_parts,
)

# Samples side by side. Fewer fill the vector units less, more do not fit the L1 cache.
LANES = 16

# Bytes of the arrays of a sample. An innermost loop goes over its arrays again and again, so those
# of all lanes must fit the L1 cache. For a dense matrix of 20 rows they do not, and lanes are twice
# as slow. The arrays that a step stacks are read a few times only, but if they are large, little is
# gained: lanes are 2.7 times as fast for a chain of 5, twice for 10, and by a third for 20.
_INNERMOST = 3 * 1024
_STACKED = 8 * 1024


class _Value(NamedTuple):
    """An array, and whether its last axis counts the samples."""

    x: Any
    varies: bool


def in_lanes(
    program: ClosedJaxpr | Jaxpr, varies: Sequence[bool] | None = None, lanes: int = LANES
) -> Callable[..., list[Array]] | None:
    """`program` for as many samples as there are `lanes`. All outputs and the operands that vary
    have the axis of the samples last; by default all operands vary. `None` if samples are faster
    one after the other."""
    given = [True] * len(equations_of(program).invars) if varies is None else list(varies)
    if not is_uniform(program, given, _is_fast):
        return None

    def fn(*operands: Array) -> list[Array]:
        found = _evaluated(program, list(map(_Value, operands, given)), lanes)
        return [_spread(value, lanes) for value in found]

    return fn


def _evaluated(program: ClosedJaxpr | Jaxpr, operands: list[_Value], lanes: int) -> list[_Value]:
    known = dict(opened(program, operands, lambda x: _Value(x, False)))

    def read(v):
        return _Value(np.asarray(v.val, v.aval.dtype), False) if is_literal(v) else known[v]

    jaxpr = equations_of(program)
    for equation in jaxpr.eqns:
        values = list(map(read, equation.invars))
        call = call_of(equation, values)
        found = _evaluated(*call, lanes) if call else _of_equation(equation, values, lanes)
        known.update(zip(equation.outvars, found, strict=True))
    return list(map(read, jaxpr.outvars))


def _of_equation(equation, values: list[_Value], lanes: int) -> list[_Value]:
    varies = [value.varies for value in values]
    special = {"scan": _scan, "while": _while, "cond": _cond}.get(equation.primitive.name)
    if not any(varies):
        return [_Value(x, False) for x in _bound(equation, [x for x, _ in values])]
    if special is not None:
        return special(equation, values, lanes)
    if _has_rule(equation, varies):
        out = _RULES[equation.primitive.name](equation, values, lanes)
    else:
        out = _by_vmap(equation, values)
    return [_Value(x, True) for x in out]


def _bound(equation, operands, **parameters) -> list[Array]:
    out = equation.primitive.bind(*operands, **{**equation.params, **parameters})
    return list(out) if equation.primitive.multiple_results else [out]


def _by_vmap(equation, values):
    axes = [-1 if value.varies else None for value in values]
    fn = jax.vmap(lambda *x: _bound(equation, x), in_axes=axes, out_axes=-1)
    return fn(*(value.x for value in values))


def _spread(value: _Value, lanes: int) -> Array:
    """The array, with the axis of the samples."""
    x = jnp.asarray(value.x)
    if value.varies:
        return x
    return lax.broadcast_in_dim(x, (*x.shape, lanes), tuple(range(x.ndim)))


# --- loops and branches -------------------------------------------------------------------------


def _carried(values: list[_Value], varies: list[bool], lanes: int) -> list[_Value]:
    """The values as a carry of which some parts vary."""
    return [
        _Value(_spread(a, lanes) if many else jnp.asarray(a.x), many)
        for a, many in zip(values, varies, strict=True)
    ]


def _arrays(values: list[_Value]) -> list[Any]:
    return [value.x for value in values]


def _scan(equation, values, lanes):
    constants, carry, over = scan_parts(equation, values)
    carries = scan_carry(equation, [value.varies for value in values])
    parameters, outputs = equation.params, []

    def body(carry, x):
        operands = [*constants, *map(_Value, carry, carries)]
        operands += [_Value(a, value.varies) for a, value in zip(x, over, strict=True)]
        found = _evaluated(parameters["jaxpr"], operands, lanes)
        outputs[:] = [value.varies for value in found[len(carry) :]]
        return _arrays(_carried(found[: len(carry)], carries, lanes)), _arrays(found[len(carry) :])

    options = {name: parameters[name] for name in ("length", "reverse", "unroll")}
    first = _arrays(_carried(carry, carries, lanes))
    last, stacked = lax.scan(body, first, _arrays(over), **options)
    return [*map(_Value, last, carries), *map(_Value, stacked, outputs)]


def _while(equation, values, lanes):
    of_condition, of_body, carry = while_parts(equation, values)
    carries = while_carry(equation, [value.varies for value in values])
    parameters = equation.params

    def condition(carry):
        operands = [*of_condition, *map(_Value, carry, carries)]
        return _evaluated(parameters["cond_jaxpr"], operands, lanes)[0].x

    def body(carry):
        found = _evaluated(
            parameters["body_jaxpr"], [*of_body, *map(_Value, carry, carries)], lanes
        )
        return _arrays(_carried(found, carries, lanes))

    last = lax.while_loop(condition, body, _arrays(_carried(carry, carries, lanes)))
    return list(map(_Value, last, carries))


def _cond(equation, values, lanes):
    index, *operands = values
    given, programs = [value.varies for value in operands], equation.params["branches"]
    each = [varying(program, given) for program in programs]
    results = [any(varies) for varies in zip(*each, strict=True)]

    def branch(program, *arrays):
        return _arrays(
            _carried(_evaluated(program, list(map(_Value, arrays, given)), lanes), results, lanes)
        )

    branches = [functools.partial(branch, program) for program in programs]
    if not index.varies:
        out = lax.switch(index.x, branches, *_arrays(operands))
        return list(map(_Value, out, results))
    busy = busy_branch(equation)
    assert busy is not None, "`is_uniform` allows no other."
    results, here = [True] * len(results), index.x == busy

    def some(*arrays):
        done, idle = branches[busy](*arrays), branches[1 - busy](*arrays)
        return [jnp.where(here, a, b) for a, b in zip(done, idle, strict=True)]

    out = lax.cond(jnp.any(here), some, branches[1 - busy], *_arrays(operands))
    return list(map(_Value, out, results))


# --- operations ---------------------------------------------------------------------------------

# Each returns the outputs with the samples last. The axes before it keep their numbers.


def _elementwise(equation, values, lanes):
    shape = equation.outvars[0].aval.shape
    scalars = [v.aval.ndim == 0 for v in equation.invars]
    # Scalars among arrays stay scalars, unless one of them differs between samples.
    stay = not any(value.varies for value, scalar in zip(values, scalars, strict=True) if scalar)

    def operand(value, scalar):
        if not (scalar and shape):
            return _spread(value, lanes)
        if stay:
            return value.x
        return lax.broadcast_in_dim(_spread(value, lanes), (*shape, lanes), (len(shape),))

    return _bound(equation, map(operand, values, scalars))


def _along_axes(equation, values, lanes):
    return _bound(equation, _arrays(values))


def _unchanged(_, values, lanes):
    # Within one device every array is already where it must be.
    return [values[0].x]


def _reduce_sum(equation, values, lanes):
    x, axes = values[0].x, equation.params["axes"]
    if x.size <= MAX_REDUCED:
        return _bound(equation, [x])
    # XLA would make a library call of a larger sum.
    for axis in sorted(axes, reverse=True):
        terms = (lax.index_in_dim(x, i, axis, keepdims=False) for i in range(x.shape[axis]))
        x = functools.reduce(operator.add, terms)
    return [x]


def _broadcast(equation, values, lanes):
    shape, axes = (equation.params[k] for k in ("shape", "broadcast_dimensions"))
    return [lax.broadcast_in_dim(values[0].x, (*shape, lanes), (*axes, len(shape)))]


def _reshape(equation, values, lanes):
    return [lax.reshape(values[0].x, (*equation.params["new_sizes"], lanes))]


def _transpose(equation, values, lanes):
    axes = equation.params["permutation"]
    return [lax.transpose(values[0].x, (*axes, len(axes)))]


def _slice(equation, values, lanes):
    start, limit, strides = (
        equation.params[k] for k in ("start_indices", "limit_indices", "strides")
    )
    strides = None if strides is None else (*strides, 1)
    return [lax.slice(values[0].x, (*start, 0), (*limit, lanes), strides)]


def _pad(equation, values, lanes):
    config = equation.params["padding_config"]
    return [lax.pad(_spread(values[0], lanes), jnp.asarray(values[1].x), (*config, (0, 0, 0)))]


def _concatenate(equation, values, lanes):
    return [
        lax.concatenate([_spread(value, lanes) for value in values], equation.params["dimension"])
    ]


def _stack(equation, values, lanes):
    return [jnp.stack([_spread(value, lanes) for value in values], equation.params["axis"])]


def _unstack(equation, values, lanes):
    x, axis = values[0].x, equation.params["axis"]
    return [lax.index_in_dim(x, i, axis, keepdims=False) for i in range(len(equation.outvars))]


def _dynamic_slice(equation, values, lanes):
    x, *start = _arrays(values)
    sizes = (*equation.params["slice_sizes"], lanes)
    return [lax.dynamic_slice(x, _from_zero(start), sizes, allow_negative_indices=False)]


def _dynamic_update_slice(equation, values, lanes):
    x, update = (_spread(value, lanes) for value in values[:2])
    start = _from_zero(_arrays(values[2:]))
    return [lax.dynamic_update_slice(x, update, start, allow_negative_indices=False)]


def _from_zero(start):
    """The start of a slice, with that of the axis of the samples."""
    return [*start, np.zeros((), start[0].dtype)]


def _gather(equation, values, lanes):
    x, places = _arrays(values)
    parameters = dict(equation.params)
    numbers = parameters["dimension_numbers"]
    last = equation.outvars[0].aval.ndim
    parameters["dimension_numbers"] = numbers._replace(offset_dims=(*numbers.offset_dims, last))
    parameters["slice_sizes"] = (*parameters["slice_sizes"], lanes)
    return _bound(equation, [x, places], **parameters)


def _dot(equation, values, lanes):
    """As a sum of products: the operands become arrays (batch, left, right, summed, samples)."""
    (summed_a, summed_b), (batch_a, batch_b) = equation.params["dimension_numbers"]
    a, b = (_spread(value, lanes) for value in values)
    of_a = [i for i in range(a.ndim - 1) if i not in (*summed_a, *batch_a)]
    of_b = [i for i in range(b.ndim - 1) if i not in (*summed_b, *batch_b)]
    a = lax.transpose(a, (*batch_a, *of_a, *summed_a, a.ndim - 1))
    b = lax.transpose(b, (*batch_b, *of_b, *summed_b, b.ndim - 1))
    batch, left, right = len(batch_a), len(of_a), len(of_b)
    a = lax.expand_dims(a, range(batch + left, batch + left + right))
    b = lax.expand_dims(b, range(batch, batch + left))
    products = a * b
    for axis in reversed(range(batch + left + right, products.ndim - 1)):
        if not products.shape[axis]:
            products = lax.full_like(products, 0, shape=np.delete(products.shape, axis).tolist())
            continue
        terms = (
            lax.index_in_dim(products, i, axis, keepdims=False) for i in range(products.shape[axis])
        )
        products = functools.reduce(operator.add, terms)
    return [products.astype(equation.outvars[0].aval.dtype)]


_ELEMENTWISE = """
    abs acos add add_any and asin atan atan2 cbrt ceil convert_element_type copy cos cosh cross div
    empty2 eq erf exp exp2 expm1 floor ge gt integer_pow is_finite le log log1p logistic lt
    materialise materialise_cotangent max min mul name ne neg nextafter not or pow
    quaternion_product rem round rsqrt select_n sign sin sinh sqrt square stop_gradient sub tan tanh
    with_derivative_of xor
""".split()
_ALONG_AXES = """argmax argmin cumlogsumexp cummax cummin cumprod cumsum reduce reduce_and
    reduce_max reduce_min reduce_or reduce_prod rev split squeeze""".split()

_RULES: dict[str, Callable] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(_ALONG_AXES, _along_axes),
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenate,
    "dot_general": _dot,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "pad": _pad,
    "reduce_sum": _reduce_sum,
    "reshape": _reshape,
    "reshard": _unchanged,
    "slice": _slice,
    "stack": _stack,
    "transpose": _transpose,
    "unstack": _unstack,
}


def _is_fast(equation, varies: list[bool], place: Place) -> bool:
    """Whether an operation in a loop has a rule, and its arrays are small enough. Outside of loops
    operations cost little."""
    if place is Place.OUTSIDE:
        return not holds_programs(equation)
    size = max(math.prod(v.aval.shape) * v.aval.dtype.itemsize for v in equation.outvars)
    large = place is Place.INNERMOST and size > _INNERMOST
    large |= equation.primitive.name in ("concatenate", "stack") and size > _STACKED
    return _has_rule(equation, varies) and not large


def _has_rule(equation, varies: list[bool]) -> bool:
    name, operands = equation.primitive.name, equation.invars
    if name in ("dynamic_slice", "dynamic_update_slice", "gather", "pad", "reduce"):
        # Places, padding and the start of a reduction must be the same for all samples.
        return not any(varies[2 if name == "dynamic_update_slice" else 1 :])
    if name == "reshape":
        return equation.params["dimensions"] is None
    if name == "dot_general":
        # Large products are faster as library calls.
        (summed, _), _ = equation.params["dimension_numbers"]
        terms = math.prod(operands[0].aval.shape[i] for i in summed)
        return terms * math.prod(equation.outvars[0].aval.shape) <= MAX_REDUCED
    return name in _RULES

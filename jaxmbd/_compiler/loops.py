"""Loops: the loop over many equal steps, with checkpointing, saved outputs and a progress meter,
the loop over samples, and when a loop costs nothing."""

import math
from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.core import eval_jaxpr
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Bool, Int, PyTree

from .barrier import materialise_condition
from .concrete import is_concrete

# Up to this many steps, the start of each step is stored for the reverse pass: it takes too little
# memory for recomputation to pay.
_FLAT = 1024

# The name under which `jax.checkpoint` saves values.
_SAVED = "saved_for_reverse"


def loops_cost_nothing() -> bool:
    """Whether an inner loop costs no more than its arithmetic: true on CPUs, false on GPUs. This
    function alone decides between loops and parallel operations."""
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    if device is None:
        return jax.default_backend() == "cpu"
    return (device if isinstance(device, str) else device.platform) == "cpu"


# Indices in loops are never negative. Without this argument JAX would handle negative ones in each
# place. `A[k]` and `A.at[k].set(x)` also look whether k is within A: five times as many operations.


def entry(A: Array, k: Int[Array, ""] | int, axis: int = 0) -> Array:
    """A[k], or the k-th entry along another axis."""
    return jax.lax.dynamic_index_in_dim(A, k, axis, False, allow_negative_indices=False)


def replaced(A: Array, x: Array, k: Int[Array, ""] | int, axis: int = 0) -> Array:
    """A with A[k] replaced by x."""
    return jax.lax.dynamic_update_index_in_dim(A, x, k, axis, allow_negative_indices=False)


def cell(A: Array, i: Int[Array, ""], j: Int[Array, ""]) -> Array:
    """A[i, j] of a table of numbers."""
    return jax.lax.dynamic_slice(A, (i, j), (1, 1), allow_negative_indices=False)[0, 0]


def with_cell(A: Array, x: Array, i: Int[Array, ""], j: Int[Array, ""]) -> Array:
    """A table of numbers with A[i, j] replaced by x."""
    x = jnp.reshape(x, (1, 1))
    return jax.lax.dynamic_update_slice(A, x, (i, j), allow_negative_indices=False)


def only_if(condition: Bool[Array, ""], fn: Callable[[Any], Any], value: Any) -> Any:
    """`fn(value)` if the condition holds, else the value: by a loop of one turn or none, in which
    XLA copies no array, unlike in a `cond`. What `fn` computes from other arrays than the value may
    be moved in front of the loop, and then always runs. It has no derivative in reverse mode."""
    return jax.lax.fori_loop(0, condition.astype(jnp.int32), lambda _, x: fn(x), value)


def each(fn: Callable, xs: PyTree) -> PyTree:
    """`fn` of each of `xs`, stacked along a leading axis: by a loop where loops cost nothing, else
    as a batch."""
    return jax.lax.map(fn, xs) if loops_cost_nothing() else jax.vmap(fn)(xs)


def each_of_first(count: Int[Array, ""], fn: Callable, xs: PyTree) -> PyTree:
    """`fn` of each of the first `count` of `xs`, stacked along a leading axis, with zeros after
    them: by a loop that has no derivative in reverse mode."""
    at = lambda k: jax.tree.map(lambda x: entry(x, k), xs)  # noqa: E731
    n = jax.tree.leaves(xs)[0].shape[0]
    shapes = jax.eval_shape(lambda: fn(at(0)))
    found = jax.tree.map(lambda x: jnp.zeros((n, *x.shape), x.dtype), shapes)

    def one(k, found):
        return jax.tree.map(lambda all_, x: replaced(all_, x, k), found, fn(at(k)))

    return jax.lax.fori_loop(0, count, one, found)


def save_for_reverse(values: PyTree) -> PyTree:
    """The same values, marked to be saved by `checkpointed`: the reverse pass reads them instead of
    computing them again. Use it for few values that are expensive to compute."""
    return jax.tree.map(lambda x: checkpoint_name(x, _SAVED), values)


def stop_gradient(values: PyTree) -> PyTree:
    """The same values with `stop_gradient` on all arrays."""
    # Concrete arrays have no tangents. They would compile a program each.
    stop = lambda x: x if is_concrete(x) else jax.lax.stop_gradient(x)  # noqa: E731
    return jax.tree.map(lambda x: stop(x) if eqx.is_array(x) else x, values)


def without_tangents(fn: Callable, *operands: PyTree) -> Any:
    """`fn(*operands)` as a constant under differentiation, whatever it depends on: operands, and
    values that `fn`, or a function in the operands, closes over.

    The search for the root of an implicit function belongs in here. `stop_gradient` of its operands
    is not enough: it does not reach what a function closes over."""
    closed, shapes = jax.make_jaxpr(lambda: fn(*operands), return_shape=True)()
    out = eval_jaxpr(closed.jaxpr, stop_gradient(closed.consts))
    return jax.tree.unflatten(jax.tree.structure(shapes), out)


def tree_where(condition: bool | Bool[Array, ""], a: PyTree, b: PyTree) -> PyTree:
    """`jnp.where(condition, a, b)` for all arrays of two pytrees, all from the same side: the
    condition is computed once."""
    if not is_concrete(condition):
        condition = materialise_condition(jnp.asarray(condition))
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), a, b)


def any_of_batch(x: Bool[Array, ""]) -> Bool[Array, ""]:
    """x; under `vmap`, whether x is true in any sample. The result is the same for all samples, so
    that a `cond` on it stays a `cond`, where `vmap` would otherwise compute both branches."""
    return _any_of_batch(jax.lax.stop_gradient(x))


@jax.custom_batching.custom_vmap
def _any_of_batch(x):
    return x


@_any_of_batch.def_vmap
def _any_of_batch_rule(size, is_batched, x):
    del size
    return _any_of_batch(jnp.any(x, axis=0) if is_batched[0] else x), False


def one_by_one(fn: Callable, *operands: PyTree) -> PyTree:
    """`fn(*operands)`. Under `vmap` on CPUs the samples are computed one after the other: the steps
    of one sample are compiled whole, their data fits the L1 cache, and inner loops take only the
    iterations that this sample needs. Derivatives go through fn, for all samples together."""
    arrays, rest = eqx.partition(operands, eqx.is_array)
    closed, shapes = jax.make_jaxpr(lambda x: fn(*eqx.combine(x, rest)), return_shape=True)(arrays)
    # Arrays that fn computes from constants become operands too. `vmap` of a `cond` copies them for
    # all samples, which it cannot do for a function that closes over them.
    out = _one_by_one.bind(*closed.consts, *jax.tree.leaves(arrays), jaxpr=closed.jaxpr)
    return jax.tree.unflatten(jax.tree.structure(shapes), out)


# A primitive, not a `custom_jvp` around a `custom_vmap`. JAX assumes that the output of a
# derivative rule has its batch axis where the output of the function has it, but a scan inside
# moves this axis.
_one_by_one = Primitive("one_by_one")
_one_by_one.multiple_results = True


def _inlined(*operands, jaxpr):
    constants = len(jaxpr.constvars)
    return eval_jaxpr(jaxpr, operands[:constants], *operands[constants:])


def _one_by_one_jvp(operands, tangents, *, jaxpr):
    moving = [i for i, dx in enumerate(tangents) if type(dx) is not ad.Zero]

    def along(*moved):
        all_operands = list(operands)
        for i, x in zip(moving, moved, strict=True):
            all_operands[i] = x
        return _inlined(*all_operands, jaxpr=jaxpr)

    return jax.jvp(along, [operands[i] for i in moving], [tangents[i] for i in moving])


def _one_by_one_batched(operands, dims, *, jaxpr):
    leading = [
        x if d is None else jnp.moveaxis(x, d, 0) for x, d in zip(operands, dims, strict=True)
    ]
    batched = [d is not None for d in dims]

    if not loops_cost_nothing():
        axes = [0 if b else None for b in batched]
        out = jax.vmap(lambda *x: _inlined(*x, jaxpr=jaxpr), in_axes=axes)(*leading)
        return out, [0] * len(out)

    def alone(moving):
        moving = iter(moving)
        sample = [next(moving) if b else x for x, b in zip(leading, batched, strict=True)]
        return _one_by_one.bind(*sample, jaxpr=jaxpr)

    out = jax.lax.map(alone, [x for x, b in zip(leading, batched, strict=True) if b])
    return out, [0] * len(out)


def _one_by_one_shapes(*operands, jaxpr):
    del operands
    return [v.aval for v in jaxpr.outvars], jaxpr.effects


_one_by_one.def_impl(jax.jit(_inlined, static_argnames="jaxpr"))
_one_by_one.def_effectful_abstract_eval(_one_by_one_shapes)
ad.primitive_jvps[_one_by_one] = _one_by_one_jvp
batching.primitive_batchers[_one_by_one] = _one_by_one_batched
mlir.register_lowering(_one_by_one, mlir.lower_fun(_inlined, multiple_results=True))


def checkpointed(fn: Callable) -> Callable:
    """fn with checkpointing: only the arguments and the values marked by `save_for_reverse` are
    stored for the reverse pass."""
    policy = jax.checkpoint_policies.save_only_these_names(_SAVED)
    return jax.checkpoint(fn, prevent_cse=False, policy=policy)


def is_silent(meter: diffrax.AbstractProgressMeter) -> bool:
    """Whether a progress meter shows nothing."""
    return isinstance(meter, diffrax.NoProgressMeter)


def _chunk_length(n: int) -> int:
    """A divisor of n near its square root, if there is one; else the root, rounded up."""
    root = math.isqrt(n)
    for length in range(root, max(root // 4, 1), -1):
        if n % length == 0:
            return length
    return root + 1


def loop(
    body: Callable[[Any, PyTree], PyTree],
    carry: PyTree,
    steps: int | jax.Array,
    *,
    output: Callable[[PyTree], PyTree] | None = None,
    every: int = 1,
    checkpoint: bool = True,
    checkpoint_body: bool = True,
    meter: diffrax.AbstractProgressMeter,
) -> tuple[PyTree, PyTree]:
    """`carry = body(i, carry)` for i = 0 ... steps - 1, with `output(carry)` after every
    `every`-th step stacked along a leading axis.

    With `checkpoint` the carry is stored at O(sqrt(steps)) steps for the reverse pass, which
    recomputes the steps between them. Of each step only the start and the values marked by
    `save_for_reverse` are stored. Without `checkpoint_body` all values of a step are stored, except
    those that the body itself recomputes. `steps` may be a traced array in forward mode, without
    output and meter.
    """
    if isinstance(steps, jax.Array):
        return jax.lax.fori_loop(0, steps, body, carry), None
    if checkpoint and checkpoint_body:
        body = checkpointed(body)

    def unit(k, carry):
        def inner(carry, j):
            return body(k * every + j, carry), None

        if every == 1:
            carry = body(k, carry)
        else:
            carry, _ = _counted(inner, carry, 0, every)
        return carry, None if output is None else output(carry)

    units = steps // every
    watched = not is_silent(meter)
    if units <= _FLAT and not watched:
        carry, outputs = _counted(lambda c, k: unit(k, c), carry, 0, units)
    else:
        carry, outputs = _chunked(unit, carry, units, checkpoint, meter)
    if rest := steps - units * every:
        carry, _ = _counted(lambda c, i: (body(i, c), None), carry, units * every, rest)
    return carry, outputs


def _counted(
    body: Callable[[PyTree, Any], tuple[PyTree, PyTree]], carry: PyTree, first: Any, count: int
) -> tuple[PyTree, PyTree]:
    """`carry, output = body(carry, i)` for i = first ... first + count - 1. The i are counted, not
    scanned over: an array of them would be read in each step, and it would exceed the limit of
    bytes up to which XLA compiles a loop whole."""

    def step(state, _):
        i, carry = state
        carry, output = body(carry, i)
        return (i + 1, carry), output

    (_, carry), outputs = jax.lax.scan(step, (jnp.asarray(first), carry), None, length=count)
    return carry, outputs


def _chunked(unit, carry, units, checkpoint, meter):
    length = _chunk_length(units)
    chunks = -(-units // length)
    padded = chunks * length != units

    def guarded(carry, k):
        if not padded:
            return unit(k, carry)
        # Steps after the last one do nothing. They fill the last chunk, which is cheaper than
        # compiling a second loop.
        shapes = jax.eval_shape(unit, k, carry)[1]
        nothing = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        return jax.lax.cond(k < units, unit, lambda k, c: (c, nothing), k, carry)

    def chunk(carry, first):
        return _counted(guarded, carry, first, length)

    if checkpoint:
        chunk = jax.checkpoint(chunk, prevent_cse=False)

    def watched(state, first):
        carry, meter_state = state
        carry, outputs = chunk(carry, first)
        meter_state = meter.step(
            meter_state, jnp.minimum(1.0, (first + length).astype(float) / units)
        )
        return (carry, meter_state), outputs

    first = jnp.arange(chunks) * length
    (carry, meter_state), outputs = jax.lax.scan(watched, (carry, meter.init()), first)
    meter.close(meter_state)
    # The length is written out, since -1 is ambiguous for arrays without entries.
    flat = lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])  # noqa: E731
    outputs = jax.tree.map(lambda x: flat(x)[:units], outputs)
    return carry, outputs

"""A function that `jax.vmap` makes a kernel, for programs of the user's own."""

import functools
import warnings
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import ShapedArray, eval_jaxpr
from jax.extend.core import ClosedJaxpr, Primitive
from jax.interpreters import ad, batching, mlir

from .._compiler import is_concrete
from .._inputs import checked
from .._kernels import has_warp
from .kernels import INSTALL, kernel_or_reason


@checked
def kernel(fn: Callable, *, on_cpu: bool = False) -> Callable:
    """The same function, which on GPUs `jax.vmap` makes one kernel, for instance the step of an
    environment for reinforcement learning:

        step = mbd.rollout.kernel(lambda state, u: stepper.step(state, dt, u))
        states = jax.vmap(step)(states, us)

    XLA would launch a hundred kernels or more for each step, and in each iteration of a contact
    solver. `run` needs no such mark. It works in any `jax.jit`, in scans and on several devices.
    Without `vmap`, and on CPUs, nothing changes.

    Derivatives of the batch, in both modes, are a kernel of their own, which computes the function
    again from its operands: `jax.checkpoint` around it saves nothing more. XLA computes second
    derivatives, unless they are taken within `fn`.

    Errors that `fn` raises in compiled code, such as those of simulations without `throw=False`,
    are raised after the kernel, if some sample has one.

    **Arguments:**

    - `fn`: any function of pytrees, also with random keys. It may close over arrays, such as the
      weights of a policy, and have derivatives by them. If it can be no kernel, because it contains
      an operation that is not known, a warning says so and XLA computes it, slower than without the
      mark.
    - `on_cpu`: make a kernel on CPUs too, for tests. Nothing gets faster there.

    **Returns:** a function of the same arguments. Without the package warp-lang it warns and is
    `fn`; with `on_cpu` it raises `ImportError`.
    """

    @functools.wraps(fn)
    def called(*operands):
        if _device().platform == "cpu" and not on_cpu:
            return fn(*operands)
        if not has_warp():
            needed = f"kernels need the package warp-lang: {INSTALL}"
            if on_cpu:
                raise ImportError(f"{needed[0].upper()}{needed[1:]}.")
            _warn(needed)
            return fn(*operands)
        arrays, rest = eqx.partition(operands, eqx.is_array)
        leaves, structure = jax.tree.flatten(arrays)

        def on_leaves(*leaves):
            return fn(*eqx.combine(jax.tree.unflatten(structure, leaves), rest))

        # As on a CPU: in a kernel loops cost no more than their arithmetic.
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            closed, shapes = jax.make_jaxpr(on_leaves, return_shape=True)(*leaves)
        if closed.effects:
            _warn(f"kernels do not know effects of JAX: {', '.join(map(str, closed.effects))}")
            return fn(*operands)
        # What `fn` closes over becomes an operand if it is traced: it may belong to the batch.
        inputs = [*(x for x in closed.consts if not is_concrete(x)), *leaves]
        of_one = dict(size=None, batched=(False,) * len(inputs))
        of_one |= dict(summed=(False,) * len(closed.out_avals), along=())
        out = _marked.bind(*inputs, program=_Program(closed), kind="values", **of_one)
        return jax.tree.unflatten(jax.tree.structure(shapes), out)

    return called


def _device():
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    return jax.local_devices()[0] if device is None or isinstance(device, str) else device


class _Program:
    """A program of one sample, on its traced constants and its operands, and its derivatives. Both
    kinds of derivatives have more operands, in which they are linear: tangents of the inputs at the
    places `along`, or cotangents of the outputs that are numbers with derivatives."""

    def __init__(self, closed: ClosedJaxpr):
        variables = zip(closed.jaxpr.constvars, closed.consts, strict=True)
        constants = [v for v, x in variables if not is_concrete(x)]
        self.closed, self.count = closed, len(constants)
        self.inputs = [v.aval for v in (*constants, *closed.jaxpr.invars)]
        self.outputs = list(closed.out_avals)
        self.moving = [k for k, aval in enumerate(self.outputs) if _is_differentiable(aval)]

    def values(self, along, *inputs):
        del along
        traced = iter(inputs[: self.count])
        consts = [x if is_concrete(x) else next(traced) for x in self.closed.consts]
        return eval_jaxpr(self.closed.jaxpr, consts, *inputs[self.count :])

    def tangents(self, along, *operands):
        fn, at, moved = self.by(along, *operands)
        return jax.jvp(fn, at, moved)[1]

    def cotangents(self, along, *operands):
        fn, at, pulled = self.by(along, *operands)
        return list(jax.vjp(fn, *at)[1](pulled))

    def by(self, along, *operands):
        """The outputs with derivatives as a function of the inputs at `along`, these inputs, and
        the further operands."""
        inputs, linear = operands[: len(self.inputs)], operands[len(self.inputs) :]

        def fn(*moved):
            all_inputs = list(inputs)
            for k, x in zip(along, moved, strict=True):
                all_inputs[k] = x
            found = self.values(along, *all_inputs)
            return [found[k] for k in self.moving]

        return fn, [inputs[k] for k in along], list(linear)

    def results(self, kind: str, along) -> list:
        """Shapes and types."""
        if kind == "values":
            return self.outputs
        if kind == "tangents":
            return [self.outputs[k] for k in self.moving]
        return [self.inputs[k] for k in along]


# `kind` of a program, for one sample or a batch of `size` samples. `batched` tells which operands
# have an axis of samples, which is the first, and `summed` which results are sums over them.
_marked = Primitive("marked")
_marked.multiple_results = True

_TRANSPOSED = {"tangents": "cotangents", "cotangents": "tangents"}


def _by_xla(*operands, program, kind, along, size, batched, summed):
    fn = functools.partial(getattr(program, kind), along)
    if size is None:
        return fn(*operands)
    axes = [0 if b else None for b in batched]
    return _sums(jax.vmap(fn, axes, axis_size=size)(*operands), summed)


def _computed(*operands, size, batched, summed, **params):
    by_xla = functools.partial(_by_xla, size=size, batched=batched, summed=summed, **params)
    if size is None:
        return by_xla(*operands)
    of_one = [
        jax.ShapeDtypeStruct(x.shape[1:] if b else x.shape, x.dtype)
        for x, b in zip(operands, batched, strict=True)
    ]
    fn = functools.partial(getattr(params["program"], params["kind"]), params["along"])
    devices = jax.local_devices(backend=_device().platform)
    made = kernel_or_reason(fn, of_one, [not b for b in batched], size, devices)
    if isinstance(made, str):
        _warn(made)
        return by_xla(*operands)
    return _sums(made(size, *operands), summed)


def _sums(results, summed, axis=0):
    return [jnp.sum(x, axis) if s else x for x, s in zip(results, summed, strict=True)]


def _shapes(*operands, program, kind, along, size, batched, summed):
    del operands, batched
    samples = () if size is None else (size,)
    results = zip(program.results(kind, along), summed, strict=True)
    return [ShapedArray(x.shape if s else (*samples, *x.shape), x.dtype) for x, s in results]


def _batched(operands, dims, *, program, kind, along, size, batched, summed):
    (n,) = {x.shape[d] for x, d in zip(operands, dims, strict=True) if d is not None}
    params = dict(program=program, kind=kind, along=along, summed=(False,) * len(summed))
    flags = tuple(d is not None for d in dims)
    leading = [
        x if d is None else jnp.moveaxis(x, d, 0) for x, d in zip(operands, dims, strict=True)
    ]
    if size is None:
        out = _marked.bind(*leading, size=n, batched=flags, **params)
        return out, [0] * len(out)

    # A batch of batches is a larger batch.
    def joined(x, outer, inner):
        if not (outer or inner):
            return x
        x = x if outer else x[None]
        x = x if inner else x[:, None]
        return jnp.broadcast_to(x, (n, size, *x.shape[2:])).reshape(n * size, *x.shape[2:])

    together = map(joined, leading, flags, batched)
    both = tuple(a or b for a, b in zip(flags, batched, strict=True))
    out = _marked.bind(*together, size=n * size, batched=both, **params)
    out = [x.reshape(n, size, *x.shape[1:]) for x in out]
    return _sums(out, summed, axis=1), [0] * len(out)


def _jvp(operands, tangents, *, program, kind, along, size, batched, summed):
    params = dict(program=program, kind=kind, along=along, size=size, batched=batched)
    params |= dict(summed=summed)
    moving = tuple(k for k, dx in enumerate(tangents) if type(dx) is not ad.Zero)
    moved, count = [tangents[k] for k in moving], len(program.inputs)
    if kind != "values" and any(k < count for k in moving):  # second derivatives

        def fn(*at):
            all_operands = list(operands)
            for k, x in zip(moving, at, strict=True):
                all_operands[k] = x
            return _by_xla(*all_operands, **params)

        return jax.jvp(fn, [operands[k] for k in moving], moved)
    out = _marked.bind(*operands, **params)
    if kind != "values":
        linear = map(ad.instantiate_zeros, tangents[count:])
        return out, _marked.bind(*operands[:count], *linear, **params)
    params |= dict(kind="tangents", along=moving, summed=(False,) * len(program.moving))
    params |= dict(batched=(*batched, *(batched[k] for k in moving)))
    found = iter(_marked.bind(*operands, *moved, **params))
    return out, [
        next(found) if k in program.moving else ad.Zero(jax.typeof(x).to_tangent_aval())
        for k, x in enumerate(out)
    ]


def _transposed(cotangents, *operands, program, kind, along, size, batched, summed):
    count = len(program.inputs)
    pulled = map(ad.instantiate_zeros, cotangents)
    found = _marked.bind(
        *operands[:count],
        *pulled,
        program=program,
        kind=_TRANSPOSED[kind],
        along=along,
        size=size,
        batched=(*batched[:count], *(size is not None and not s for s in summed)),
        summed=tuple(size is not None and not b for b in batched[count:]),
    )
    linear = zip(operands[count:], found, strict=True)
    known = [None] * count
    return [*known, *(x if ad.is_undefined_primal(at) else None for at, x in linear)]


def _compiled(*operands, **params):
    return jax.jit(functools.partial(_computed, **params))(*operands)


_marked.def_impl(_compiled)
_marked.def_abstract_eval(_shapes)
ad.primitive_jvps[_marked] = _jvp
ad.primitive_transposes[_marked] = _transposed
batching.primitive_batchers[_marked] = _batched
mlir.register_lowering(_marked, mlir.lower_fun(_computed, multiple_results=True))


def _warn(reason: str) -> None:
    warnings.warn(f"`mbd.rollout.kernel` leaves the function to XLA, as {reason}.", stacklevel=3)


def _is_differentiable(aval) -> bool:
    return jnp.issubdtype(aval.dtype, jnp.inexact)

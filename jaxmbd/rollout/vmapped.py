"""A function that `jax.vmap` makes a kernel, for programs of the user's own."""

import functools
import warnings
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import eval_jaxpr
from jax.extend.core import ClosedJaxpr

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

    Reverse derivatives of the batch are a kernel of their own, which computes the function again
    from its operands: `jax.checkpoint` around it saves nothing more. There are none in forward
    mode; take those within `fn`.

    **Arguments:**

    - `fn`: any function of pytrees, also with random keys. It may close over arrays, such as the
      weights of a policy, and have derivatives by them. If it can be no kernel, because it contains
      an operation that is not known or raises errors in compiled code, a warning says so and XLA
      computes it, slower than without the mark.
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
        # What `fn` closes over becomes an operand if it is traced: it may belong to the batch.
        traced = [x for x in closed.consts if not is_concrete(x)]
        out = _vmapped(closed, len(traced))(*traced, *leaves)
        return jax.tree.unflatten(jax.tree.structure(shapes), out)

    return called


def _device():
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    return jax.local_devices()[0] if device is None or isinstance(device, str) else device


def _vmapped(closed: ClosedJaxpr, count: int) -> Callable:
    """A program on its traced constants, of which there are `count`, and its operands, with rules
    for batches and for derivatives in reverse mode."""
    traced = [
        v for v, x in zip(closed.jaxpr.constvars, closed.consts, strict=True) if not is_concrete(x)
    ]
    of_inputs = [_is_differentiable(v.aval) for v in (*traced, *closed.jaxpr.invars)]
    of_outputs = [_is_differentiable(aval) for aval in closed.out_avals]
    known = [x if is_concrete(x) else None for x in closed.consts]

    def program(*inputs):
        constants = iter(inputs[:count])
        consts = [next(constants) if x is None else x for x in known]
        return eval_jaxpr(closed.jaxpr, consts, *inputs[count:])

    def backward(inputs, cotangents):
        def differentiable(*moving):
            out = program(*_merged(of_inputs, moving, inputs))
            return _chosen(of_outputs, out)

        _, pull = jax.vjp(differentiable, *_chosen(of_inputs, inputs))
        return list(pull(cotangents))

    values, derivatives = _in_batches(program), _in_batches(backward)
    differentiated = jax.custom_vjp(values)

    def rule(inputs, cotangents):
        found = derivatives(inputs, _chosen(of_outputs, cotangents))
        return tuple(_merged(of_inputs, found, [None] * len(inputs)))

    differentiated.defvjp(lambda *inputs: (values(*inputs), inputs), rule)
    return differentiated


def _in_batches(fn: Callable) -> Callable:
    """`fn`, whose batches are kernels."""
    batched = jax.custom_batching.custom_vmap(fn)

    @batched.def_vmap
    def rule(size, is_batched, *operands):
        leaves, structure = jax.tree.flatten(operands)
        shared = [not x for x in jax.tree.leaves(is_batched)]
        of_one = [
            jax.ShapeDtypeStruct(x.shape if s else x.shape[1:], x.dtype)
            for x, s in zip(leaves, shared, strict=True)
        ]

        def on_leaves(*leaves):
            return fn(*jax.tree.unflatten(structure, leaves))

        devices = jax.local_devices(backend=_device().platform)
        made = kernel_or_reason(on_leaves, of_one, shared, size, devices)
        if isinstance(made, str):
            _warn(made)
            axes = [None if s else 0 for s in shared]
            out = jax.vmap(on_leaves, axes, axis_size=size)(*leaves)
        else:
            out = made(size, *leaves)
        return out, jax.tree.map(lambda _: True, out)

    return batched


def _warn(reason: str) -> None:
    warnings.warn(f"`mbd.rollout.kernel` leaves the function to XLA, as {reason}.", stacklevel=3)


def _is_differentiable(aval) -> bool:
    return jnp.issubdtype(aval.dtype, jnp.inexact)


def _chosen(which, xs) -> list:
    return [x for x, chosen in zip(xs, which, strict=True) if chosen]


def _merged(which, chosen, others) -> list:
    chosen = iter(chosen)
    return [next(chosen) if w else x for x, w in zip(others, which, strict=True)]

"""Concrete values, which are known while tracing. JAX compiles each operation outside of `jit` as a
program of its own, which takes ten milliseconds. So concrete values are computed in NumPy, or in
one program."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import get_opaque_trace_state

_Function = TypeVar("_Function", bound=Callable)

_NO_OPTIMISATION: dict[str, Any] = {"xla_backend_optimization_level": 0}
# XLA's newer generator of kernels takes milliseconds for each kernel, however small. Later versions
# may know only that one, and they refuse to compile with options that they do not know.
_OLDER_KERNELS: dict[str, Any] = {"xla_cpu_use_fusion_emitters": False}

# The import is not traced.
_UNTRACED = get_opaque_trace_state()


def is_concrete(x: Any) -> bool:
    """Whether `x` is concrete, not traced."""
    return not isinstance(x, Tracer)


def all_concrete(tree: Any) -> bool:
    """Whether all leaves of `tree` are concrete."""
    return all(map(is_concrete, jax.tree.leaves(tree)))


def numpy_if_concrete(*values: Any) -> Any:
    """NumPy if all values are concrete, since it compiles nothing; otherwise `jax.numpy`. Convert
    the result to a JAX array by `jnp.asarray` with a dtype. Without a dtype the conversion compiles
    a program too."""
    return np if all_concrete(values) else jnp


def as_one_program(fn: _Function) -> _Function:
    """Compile `fn`, a function of pytrees, as one program when all its arguments are concrete. With
    traced arguments `fn` is called as it is. An argument that is a number is one of the program's,
    so other numbers compile nothing."""
    compiled = eqx.filter_jit(fn)

    @functools.wraps(fn)
    def called(*args):
        if not all_concrete(args):
            return fn(*args)
        return compiled(*(jnp.asarray(x) if type(x) in (int, float) else x for x in args))

    return cast(_Function, called)


def compiled_quickly(fn: _Function) -> _Function:
    """`eqx.filter_jit` for programs that run for milliseconds. When nothing is traced, the compiler
    optimises nothing on a CPU, which takes a fifth of the time. A part of another program must not
    have options of its own, even if its arguments are concrete."""
    optimised = eqx.filter_jit(fn)

    @functools.cache
    def quick():
        return eqx.filter_jit(fn, compiler_options=_quick_options())  # type: ignore[call-overload]

    @functools.wraps(fn)
    def called(*args):
        untraced = get_opaque_trace_state() == _UNTRACED and all_concrete(args)
        brief = untraced and jax.default_backend() == "cpu"
        return (quick() if brief else optimised)(*args)

    return cast(_Function, called)


@functools.cache
def _quick_options() -> dict[str, Any]:
    both = _NO_OPTIMISATION | _OLDER_KERNELS
    try:
        jax.jit(lambda: np.zeros(()), compiler_options=both).lower().compile()
    except jax.errors.JaxRuntimeError:
        return _NO_OPTIMISATION
    return both

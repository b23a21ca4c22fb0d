"""Concrete values, which are known while tracing. JAX compiles each operation outside of `jit` as a
program of its own, which takes ten milliseconds. So concrete values are computed in NumPy, or in
one program."""

import functools
import inspect
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.interpreters.ad import JVPTracer
from jaxtyping import PyTree

from .._types import Convertible, DType, EitherArray

try:
    from jax.extend.core import get_opaque_trace_state
except ImportError:  # before JAX 0.10
    from jax.core import get_opaque_trace_state

_Function = TypeVar("_Function", bound=Callable)

_NO_OPTIMISATION: dict[str, Any] = {"xla_backend_optimization_level": 0}
# XLA's newer generator of kernels takes milliseconds for each kernel, however small. Later versions
# may know only that one, and they refuse to compile with options that they do not know.
_OLDER_KERNELS: dict[str, Any] = {"xla_cpu_use_fusion_emitters": False}

# The import is not traced.
_UNTRACED = get_opaque_trace_state()


def is_concrete(x: object) -> bool:
    """Whether `x` is concrete, not traced."""
    return not isinstance(x, Tracer)


def is_known(tree: PyTree) -> bool:
    """Whether all numbers in `tree` are known now, and none is traced."""
    return all(map(is_concrete, jax.tree.leaves(tree)))


def need_known(tree: PyTree, message: str) -> None:
    """**Raises:** `ValueError` with this message if any number in `tree` is traced."""
    if not is_known(tree):
        raise ValueError(message)


def proved(claim: Callable, *values: PyTree) -> bool:
    """Whether the values are known and the claim is true of all of them. `claim` gets NumPy
    arrays."""
    return is_known(values) and bool(np.all(claim(*map(np.asarray, values))))


def refuted(claim: Callable, *values: PyTree) -> bool:
    """Whether the values are known and the claim is not true of all of them. `claim` gets NumPy
    arrays. A check that raises an error by it does nothing for traced values."""
    return is_known(values) and not np.all(claim(*map(np.asarray, values)))


def is_traced() -> bool:
    """Whether JAX traces the code that calls, as within a user's `jax.jit`."""
    return get_opaque_trace_state() != _UNTRACED


def any_staged(tree: PyTree) -> bool:
    """Whether any leaf of `tree` is computed in a program that is being traced. What `grad`, `jvp`
    and `vmap` trace outside of `jit` is computed now."""
    return any(map(_is_staged, jax.tree.leaves(tree)))


def _is_staged(x: object) -> bool:
    while isinstance(x, Tracer):
        inner = getattr(x, "primal", getattr(x, "val", None))
        if inner is None or inner is x:
            return True
        x = inner
    return False


def array_namespace(*values: PyTree) -> ModuleType:
    """NumPy if all values are concrete, since it compiles nothing; otherwise `jax.numpy`. Convert
    the result to a JAX array by `to_jax`."""
    return np if is_known(values) else jnp


def to_jax(x: Convertible, dtype: DType | None = None, axes: int = 0) -> jax.Array:
    """`jnp.asarray` for numbers, lists and NumPy's arrays, and for what is traced, with further
    leading axes until there are `axes`. It compiles nothing, but for arrays of another dtype on a
    GPU, where they stay. `jnp.asarray` compiles a program for arrays without a dtype, for lists,
    and for numbers."""
    if not (isinstance(x, jax.Array) or is_known(x)):
        x = jnp.asarray(x, dtype)  # a list with traced numbers
    if isinstance(x, jax.Array):
        if dtype is None or (x.dtype == jax.dtypes.canonicalize_dtype(dtype) and not x.weak_type):
            return x if x.ndim >= axes else picked(x, (None,) * (axes - x.ndim))
        if not (_on_cpu(x) or (is_concrete(x) and x.weak_type)):
            return to_jax(jnp.asarray(x, dtype), axes=axes)
    x = np.asarray(x)
    dtype = jax.dtypes.canonicalize_dtype(x.dtype if dtype is None else dtype)
    return jnp.asarray(x.astype(dtype).reshape((1,) * (axes - x.ndim) + x.shape), dtype)


def floating_dtype(*values: PyTree) -> np.dtype:
    """The dtype of the floating-point arrays among `values`, which numbers and lists follow; JAX's
    default without any."""
    arrays = [x.dtype for x in values if isinstance(x, jax.Array | np.ndarray | np.floating)]
    floating = [dtype for dtype in arrays if jnp.issubdtype(dtype, jnp.floating)]
    return jnp.result_type(*floating) if floating else jnp.result_type(float)


def held(x: Convertible) -> jax.Array:
    """`jnp.asarray(x)` for a parameter. A Python float keeps its weak type: it takes the precision
    of what it meets. It compiles nothing."""
    return jax.device_put(x) if type(x) is float else to_jax(x)


def picked(x: EitherArray, at: Any) -> jax.Array:
    """`x[at]`. It compiles nothing for what is concrete, but on a GPU, where x stays."""
    if isinstance(x, jax.Array) and not _on_cpu(x):
        return x[at]
    return to_jax(np.asarray(x)[at])


def all_picked(x: jax.Array) -> list[jax.Array]:
    """All columns of x along its last axis, much faster than by `picked` one after the other."""
    if _on_cpu(x):
        return jax.device_put(list(np.moveaxis(np.asarray(x), -1, 0)))
    return [x[..., i] for i in range(x.shape[-1])]


def _on_cpu(x: jax.Array) -> bool:
    """Whether `x` is concrete and in the memory of the host."""
    return is_concrete(x) and all(device.platform == "cpu" for device in x.devices())


def reshaped(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """`x.reshape(shape)`. It compiles nothing for what is concrete, but on a GPU, where x stays."""
    return to_jax(np.asarray(x).reshape(shape)) if _on_cpu(x) else x.reshape(shape)


def broadcast(x: Convertible, shape: tuple[int, ...]) -> jax.Array:
    """`jnp.broadcast_to(x, shape)`. It compiles nothing for what is concrete."""
    xp = array_namespace(x)
    return to_jax(xp.broadcast_to(xp.asarray(x), shape))


def split(x: jax.Array, sizes: Sequence[int]) -> list[jax.Array]:
    """x in parts of these sizes along its last axis. It compiles nothing for what is concrete."""
    if not is_concrete(x):
        return list(jax.lax.split(x, sizes, axis=-1))
    ends = np.cumsum(sizes).tolist()
    return [picked(x, np.s_[..., end - n : end]) for end, n in zip(ends, sizes, strict=True)]


def stacked(xs: Sequence[Convertible]) -> jax.Array:
    """`jnp.stack(xs, axis=-1)`. It compiles nothing for what is concrete: a stack of hundreds of
    arrays would take long."""
    xp = array_namespace(xs)
    return jnp.asarray(xp.stack([xp.asarray(x) for x in xs], axis=-1), jnp.result_type(*xs))


def set_at(x: EitherArray, at: Any, by: Convertible) -> jax.Array:
    """`x.at[at].set(by)`. It compiles nothing for what is concrete."""
    if not is_known((x, by)):
        return jnp.asarray(x).at[at].set(by)
    x = np.array(x)
    x[at] = np.asarray(by)
    return to_jax(x)


def with_strong_types(tree: PyTree) -> PyTree:
    """The same with arrays of the dtype of the other numbers in place of Python floats, and of
    arrays made of them, whose types are weak. JAX compiles a program for each type, and for each
    value of a float."""

    leaves, treedef = jax.tree.flatten(tree)
    weak = list(map(_is_weak, leaves))
    if not any(weak):
        return tree
    others = [x for x, is_one in zip(leaves, weak, strict=True) if not is_one and _is_real_array(x)]
    dtype = np.result_type(*(x.dtype for x in others)) if others else jnp.result_type(float)

    def strong(x):
        if not jnp.issubdtype(jnp.result_type(x), jnp.floating):
            return x
        return to_jax(x, dtype)

    return treedef.unflatten(
        [strong(x) if is_one else x for x, is_one in zip(leaves, weak, strict=True)]
    )


def as_one_program(fn: _Function) -> _Function:
    """Compile `fn`, a function of pytrees, as one program when it is computed now, and so are its
    derivatives. In a program that is being traced, `fn` is called as it is. An argument that is a
    number is one of the program's, so other numbers compile nothing."""
    compiled = eqx.filter_jit(fn)
    signature = inspect.signature(fn)

    @functools.wraps(fn)
    def called(*args, **named):
        if named:
            args = signature.bind(*args, **named).args
        if any_staged(args):
            return fn(*args)
        args = [to_jax(x, int) if type(x) is int else x for x in args]
        return compiled(*(with_strong_types(args) if any(map(_is_weak, args)) else args))

    return cast(_Function, called)


def _is_real_array(x: object) -> bool:
    return isinstance(x, jax.Array | np.ndarray) and jnp.issubdtype(x.dtype, jnp.floating)


def _is_weak(x: object) -> bool:
    return isinstance(x, float) or (isinstance(x, jax.Array) and x.weak_type)


def compiled_quickly(fn: _Function) -> _Function:
    """`eqx.filter_jit` for programs that run for milliseconds. When they run now, the compiler
    optimises nothing on a CPU, which takes a fifth of the time. A part of another program must not
    have options of its own, even if its arguments are concrete, nor a program that JAX splits for
    the reverse mode."""
    optimised = eqx.filter_jit(fn)

    @functools.cache
    def quick():
        return eqx.filter_jit(fn, compiler_options=_quick_options())  # type: ignore[call-overload]

    @functools.wraps(fn)
    def called(*args):
        if jax.default_backend() != "cpu" or not _runs_now(args):
            return optimised(*args)
        try:
            return quick()(*args)
        except ValueError as error:
            # A function in `args` closes over values that the reverse mode follows.
            if "compiler_options" not in str(error):
                raise
            return optimised(*args)

    return cast(_Function, called)


def _runs_now(args: PyTree) -> bool:
    """Whether a program of these arguments runs now, with forward derivatives or without."""
    if not is_traced():
        return is_known(args)
    if any_staged(args) or any(map(_is_split, jax.tree.leaves(args))):
        return False
    # What concrete values give is traced within `jit`, and computed within `grad`.
    return is_concrete(jax.device_put(np.zeros((), np.int32)))


def _is_split(x: object) -> bool:
    """Whether the reverse mode follows `x`."""
    while isinstance(x, Tracer):
        if not (isinstance(x, JVPTracer) or hasattr(x, "batch_dim")):
            return True
        x = getattr(x, "primal", getattr(x, "val", None))
    return False


@functools.cache
def _quick_options() -> dict[str, Any]:
    both = _NO_OPTIMISATION | _OLDER_KERNELS
    try:
        jax.jit(lambda: np.zeros(()), compiler_options=both).lower().compile()
    except jax.errors.JaxRuntimeError:
        return _NO_OPTIMISATION
    return both

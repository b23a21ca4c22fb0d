"""Whether the samples of a run are computed by a kernel, and by which."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._kernels import Function, Unsupported, has_warp, lanes_for
from .once import Hashable, once
from .samples import Samples, compute

INSTALL = '`pip install "jaxmbd[gpu]"`'


class Way(NamedTuple):
    """How a run computes its samples: by a kernel, else by XLA, and that in words."""

    kernel: Callable | None  # arrays of the function and of all samples, key, index, rows
    words: str


XLA = Way(None, "XLA")


def chosen(
    one: Callable, samples: Samples, key, devices: Sequence[Any], count: int, kernel: bool | None
) -> Way:
    """The way for `count` samples on each device, as the user wants it.

    **Raises:** `ValueError` or `ImportError` if a kernel is demanded and there can be none."""
    if kernel is False or (kernel is None and on_cpu(devices)):
        return XLA
    if not has_warp():
        if kernel:
            raise ImportError(f"Kernels need the package warp-lang: {INSTALL}.")
        return Way(None, f"XLA, as kernels need the package warp-lang: {INSTALL}")
    arrays, rest = eqx.partition((one, samples.shared), eqx.is_array)
    row = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), samples.shapes(1))
    inputs = (rest, shapes_of(arrays), shapes_of(key), row)
    found = once(_made, *map(Hashable, inputs), tuple(devices), count)
    if not isinstance(found, str):
        each = "a thread" if found.lanes == 1 else f"{found.lanes} threads"
        return Way(found, f"a kernel with {each} for each sample")
    if kernel:
        raise ValueError(
            f"With `kernel=True` run must make a kernel of the function, but {found}. Leave "
            "the argument out, and XLA computes the samples."
        )
    return Way(None, f"XLA, as {found}")


@functools.lru_cache(maxsize=8)
def _made(rest, arrays, key, row, devices, count: int) -> Function | str:
    """The kernel, compiled for the devices, or the reason why there can be none."""

    def each(arrays, key, index, row):
        one, shared = eqx.combine(arrays, rest.tree)
        return compute(one, shared, key, index, row)

    index = jax.ShapeDtypeStruct((), jnp.result_type(int))
    operands = (arrays.tree, key.tree, index, row.tree)
    return kernel_or_reason(each, operands, [True, True, False, False], count, devices)


def kernel_or_reason(
    fn: Callable,
    operands: Sequence[PyTree],
    shared: Sequence[bool],
    count: int,
    devices: Sequence[Any],
) -> Function | str:
    """`fn` of one sample as a kernel for `count` samples at once, compiled for the devices, or the
    reason why there can be none. See `Function`."""
    try:
        function = Function(fn, operands, shared, lanes_for(count, devices[0]))
    except Unsupported as unknown:
        return f"kernels do not know {unknown}"
    try:
        function.load(devices)
    except Exception as error:  # Warp raises any, and XLA can compute the samples
        return f"NVIDIA Warp failed to compile it: {type(error).__name__}: {error}"
    return function


def shapes_of(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)


def on_cpu(devices: Sequence[Any] | np.ndarray) -> bool:
    return devices[0].platform == "cpu"

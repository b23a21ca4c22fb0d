"""What is known of operations on known arrays, by NumPy."""

from collections.abc import Callable
from typing import Any, SupportsIndex

import numpy as np

# NumPy returns scalars in place of arrays without axes.
_Known = np.ndarray | np.generic

# Larger arrays of known numbers are computed by the program.
_LARGEST = 4096


def folded(
    name: str, params: dict[str, Any], arrays: list[np.ndarray], dtype: np.dtype, size: int = 1
) -> np.ndarray | None:
    """The result of an operation, or `None` if it is left to the program."""
    fold = _FOLD.get(name)
    if fold is None or size > _LARGEST:
        return None
    with np.errstate(all="ignore"):
        value = fold(params, *arrays)
    return None if value is None else np.asarray(value, dtype)


def spread(x: np.ndarray, shape: tuple[int, ...], axes: tuple[SupportsIndex, ...]) -> np.ndarray:
    """`broadcast_in_dim`."""
    full = [1] * len(shape)
    for size, axis in zip(x.shape, axes, strict=True):
        full[axis] = size
    return np.broadcast_to(x.reshape(full), shape)


def _slices(p: dict[str, Any], x: np.ndarray) -> _Known:
    strides = p["strides"] or [1] * x.ndim
    bounds = zip(p["start_indices"], p["limit_indices"], strides, strict=True)
    return x[tuple(slice(*b) for b in bounds)]


def _iota(p: dict[str, Any]) -> _Known:
    n = p["shape"][p["dimension"]]
    return spread(np.arange(n, dtype=p["dtype"]), p["shape"], (p["dimension"],))


def _converted(p: dict[str, Any], x: np.ndarray) -> _Known | None:
    to = np.dtype(p["new_dtype"])
    # Of numbers that do not fit, NumPy and JAX make different integers.
    if x.dtype.kind == "f" and to.kind in "iu":
        return None
    return x.astype(to)


def _divided(_: dict[str, Any], a: np.ndarray, b: np.ndarray) -> _Known | None:
    return a / b if a.dtype.kind == "f" else None


def _remainder(_: dict[str, Any], a: np.ndarray, b: np.ndarray) -> _Known | None:
    return np.fmod(a, b) if a.dtype.kind in "iu" and np.all(b != 0) and np.all(b != -1) else None


def _chosen(_: dict[str, Any], which: np.ndarray, *cases: np.ndarray) -> _Known:
    return np.choose(np.clip(which.astype(int), 0, len(cases) - 1), cases)


_UFUNCS = {
    **dict(add=np.add, sub=np.subtract, mul=np.multiply, neg=np.negative, sign=np.sign),
    **dict(max=np.maximum, min=np.minimum, xor=np.bitwise_xor),
    **{"and": np.bitwise_and, "or": np.bitwise_or, "not": np.invert},
    **dict(lt=np.less, gt=np.greater, le=np.less_equal, ge=np.greater_equal),
    **dict(eq=np.equal, ne=np.not_equal),
}
_FOLD: dict[str, Callable[..., Any]] = {
    **{name: lambda _, *x, ufunc=ufunc: ufunc(*x) for name, ufunc in _UFUNCS.items()},
    "broadcast_in_dim": lambda p, x: spread(x, p["shape"], p["broadcast_dimensions"]),
    "concatenate": lambda p, *x: np.concatenate(x, p["dimension"]),
    "convert_element_type": _converted,
    "div": _divided,
    "iota": _iota,
    "rem": _remainder,
    "reshape": lambda p, x: x.reshape(p["new_sizes"]),
    "select_n": _chosen,
    "slice": _slices,
    "transpose": lambda p, x: x.transpose(p["permutation"]),
}


def sorted_known(params: dict[str, Any], arrays: list[np.ndarray]) -> list[np.ndarray]:
    axis = params["dimension"]
    # NumPy too has NaN last. The last key is the first that it sorts by.
    order = np.lexsort([x + 0 for x in arrays[: params["num_keys"]]][::-1], axis=axis)
    return [np.take_along_axis(x, order, axis) for x in arrays]

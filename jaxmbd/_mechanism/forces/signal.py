"""Inputs of forces that may vary in time: constants, functions of time, entries of the control."""

import abc
from collections.abc import Callable, Sequence
from typing import Annotated, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..._checks import with_dtype
from ..._compiler import clip, to_jax
from ..._extensible import Extensible
from ..._inputs import Numbers, at_least, checked, conform, finite
from ..._types import Convertible, DType, RealScalarLike

_T = TypeVar("_T")


class AbstractSignal(Extensible):
    """A value that depends on the time and the control. An argument of a force that takes a signal
    also takes a constant or a function of the time t [s]."""

    @abc.abstractmethod
    def __call__(self, t: RealScalarLike, u: PyTree) -> Convertible:
        """The value at the time t for the control u (`None` without one). A pure function."""


class FromControl(AbstractSignal):
    """`gear` times one or several entries of the control u.

        mbd.Torque("wheel", body, torque_body=mbd.FromControl((0, 1, 2)))
        mbd.PointForce("thrust", body, force_body=mbd.FromControl(3, gear=[0.0, 0.0, 20.0]))

    **Fields:**

    - `gear`: a number or a vector. A vector is the direction in which one entry acts, or a factor
      for each of several entries.
    - `index`: index of the entry of u, or a tuple of indices.
    """

    gear: Float[Array, ""] | Float[Array, " k"]
    index: int | tuple[int, ...] = eqx.field(static=True)

    @checked
    def __init__(self, index: int | tuple[int, ...], *, gear: Numbers = 1.0):
        """**Raises:** `ValueError` for an `index` that is not an index."""
        self.gear = to_jax(gear, float)
        what, one = "`index` of FromControl", Annotated[int, at_least(0)]
        many = isinstance(index, tuple) and index
        self.index = conform(what, index, Sequence[one] if many else one)

    def __call__(self, t, u):
        del t
        return self.gear * jnp.asarray(control_entry("FromControl", u, self.index), self.gear.dtype)


class Constant(AbstractSignal):
    """A constant value."""

    value: Array

    def __call__(self, t, u):
        del t, u
        return self.value


class OfTime(AbstractSignal):
    """A function of the time."""

    function: Callable[[RealScalarLike], Convertible]

    def __call__(self, t, u):
        del u
        return self.function(t)


# What an argument that takes a signal takes.
SignalLike: TypeAlias = Convertible | Callable[[RealScalarLike], Convertible] | AbstractSignal


def as_signal(
    what: str, value: SignalLike, dtype: DType, shape: tuple[int, ...] = ()
) -> AbstractSignal:
    """A constant, a function of the time or a signal, as a signal.

    **Raises:** `ValueError`, which begins with `what`, for a constant of the wrong shape."""
    if isinstance(value, AbstractSignal):
        return with_dtype(value, dtype)
    if callable(value):
        return OfTime(as_tree(value))
    return Constant(finite(what, value, dtype, shape))


def read(
    what: str,
    signal: AbstractSignal,
    t: RealScalarLike,
    u: PyTree,
    dtype: DType,
    shape: tuple[int, ...] = (),
) -> Array:
    """The value of a signal at the time t for the control u.

    **Raises:** `ValueError`, which begins with `what`, for the wrong shape, and for entries that
    the control does not have.
    """
    if isinstance(signal, FromControl):
        control_entry(what, u, signal.index)
    value = jnp.asarray(signal(t, u), dtype)
    if value.shape != shape:
        raise ValueError(f"{what} must have shape {shape}, but its value has {value.shape}.")
    return value


def control_entry(what: str, u: PyTree, index: int | tuple[int, ...]) -> Array:
    """One or several entries of the control.

    **Raises:** `ValueError`, which begins with `what`, for no control or an index beyond its end.
    JAX would return the last entry for such an index.
    """
    needed = max(_indices(index)) + 1
    if u is None:
        raise ValueError(
            f"{what} needs a control: pass `control=` to `simulate`, a function (t, q, v) -> u "
            f"with at least {needed} entries."
        )
    entries = jnp.atleast_1d(jnp.asarray(u))
    if entries.ndim != 1 or entries.shape[0] < needed:
        raise ValueError(
            f"{what} reads entry {needed - 1} of the control, counted from 0, so that u must be a "
            f"vector of at least {needed} entries, but it has shape {jnp.shape(u)}."
        )
    return jnp.stack([entries[i] for i in index]) if isinstance(index, tuple) else entries[index]


def as_tree(function: Callable[..., _T]) -> Callable[..., _T]:
    """A function as part of a pytree. A plain function has no leaves. The leaves of an `eqx.Module`
    are its parameters."""
    plain = jax.tree_util.all_leaves([function])
    return jax.tree_util.Partial(function) if plain else function


def _indices(index: int | tuple[int, ...]) -> tuple[int, ...]:
    return index if isinstance(index, tuple) else (index,)


def clipped(x: Array, limits: Float[Array, "2"] | None) -> Array:
    """x within its limits, if it has any."""
    return x if limits is None else clip(x, limits[0], limits[1])


# How long a state takes to return to what it follows at once [s]. Steps are far longer.
RETURN = 1e-6


def bounded(rate: Array, z: Array, lower: Array, upper: Array) -> Array:
    """z' of a state that stays within two limits: `rate`, or from beyond a limit back to it."""
    return clip(rate, (lower - z) / RETURN, (upper - z) / RETURN)

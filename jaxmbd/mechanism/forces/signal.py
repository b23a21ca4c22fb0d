"""Values that forces read while the mechanism moves: constants, functions of time, the control."""

import abc
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import with_dtype
from ..._inputs import Numbers, at_least, checked, conform, finite
from ..._types import RealScalarLike


class AbstractSignal(eqx.Module):
    """A value that depends on the time and the control. Wherever a force takes one, a constant, a
    function of the time t [s], and an object of a subclass of this will do."""

    @abc.abstractmethod
    def __call__(self, t: RealScalarLike, u: Any) -> Array:
        """The value at the time t for the control u (`None` without one); pure."""


class FromControl(AbstractSignal):
    """`gear` times one entry of the control u, or some entries.

        mbd.Torque("wheel", body, torque_body=mbd.FromControl((0, 1, 2)))
        mbd.PointForce("thrust", body, force_body=mbd.FromControl(3, gear=[0.0, 0.0, 20.0]))

    **Fields:**

    - `gear`: a number, or a vector: the direction in which one entry acts, or a factor for each of
      several.
    - `index`: which entry of u, or which ones.
    """

    gear: Float[Array, ""] | Float[Array, " k"]
    index: int | tuple[int, ...] = eqx.field(static=True)

    @checked
    def __init__(self, index: int | tuple[int, ...], *, gear: Numbers = 1.0):
        """**Raises:** `ValueError` for an index that is none."""
        self.gear = jnp.asarray(gear, float)
        what, one = "`index` of FromControl", Annotated[int, at_least(0)]
        many = isinstance(index, tuple) and index
        self.index = conform(what, index, Sequence[one] if many else one)

    def __call__(self, t, u):
        del t
        return self.gear * jnp.asarray(control_entry("FromControl", u, self.index), self.gear.dtype)


class Constant(AbstractSignal):
    """The same at all times."""

    value: Array

    def __call__(self, t, u):
        del t, u
        return self.value


class OfTime(AbstractSignal):
    """A function of the time."""

    function: Callable[..., Any]

    def __call__(self, t, u):
        del u
        return self.function(t)


def as_signal(what: str, value: Any, dtype: Any, shape: tuple[int, ...] = ()) -> AbstractSignal:
    """**Raises:** `ValueError`, which begins with `what`, for a constant of another shape."""
    if isinstance(value, AbstractSignal):
        return with_dtype(value, dtype)
    if callable(value):
        return OfTime(as_tree(value))
    return Constant(finite(what, value, dtype, shape))


def read(
    what: str, signal: AbstractSignal, t: Any, u: Any, dtype: Any, shape: tuple[int, ...] = ()
) -> Array:
    """The value of a signal now.

    **Raises:** `ValueError`, which begins with `what`, for another shape, and for entries that
    the control does not have.
    """
    if isinstance(signal, FromControl):
        control_entry(what, u, signal.index)
    value = jnp.asarray(signal(t, u), dtype)
    if value.shape != shape:
        raise ValueError(f"{what} must have shape {shape}, but its value has {value.shape}.")
    return value


def control_entry(what: str, u: Any, index: int | tuple[int, ...]) -> Array:
    """One entry of the control, or some.

    JAX reads beyond the end of an array the last entry; here that is an error.

    **Raises:** `ValueError`, which begins with `what`.
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


def as_tree(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that may be part of a pytree: a plain one without leaves, an `eqx.Module` with
    its parameters."""
    plain = jax.tree_util.all_leaves([function])
    return jax.tree_util.Partial(function) if plain else function


def _indices(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)

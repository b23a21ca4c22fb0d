"""Checks of the arguments before anything runs. Each error says what is wrong, names the value, and
gives the remedy."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ._compiler import broadcast, refuted, to_jax
from ._inputs import shown
from ._printed import counted
from ._system import AbstractSystem, has_internal
from ._types import Control


def expect_shape(what: str, value: Any, shape: tuple[int, ...], sizes: str):
    """Check that `value`, which a function of the user returned, is one floating-point array of
    this shape.

    **Raises:** `ValueError`."""
    _expect_reals(what, value)
    if value.shape != shape:
        raise ValueError(f"{what} must have shape {shape} for {sizes}, but has {value.shape}.")


def one_each(values: Array, count: int, name: str, of: str = "rows") -> Float[Array, " count"]:
    """Broadcast an argument that is a scalar or has one value for each of `count` things.

    **Raises:** `ValueError` for other shapes."""
    if values.ndim > 1 or values.shape not in ((), (1,), (count,)):
        raise ValueError(
            f"Argument `{name}` must be a scalar or have one value for each of the {count} {of}, "
            f"but has shape {values.shape}."
        )
    return broadcast(values, (count,))


def _expect_reals(what: str, value: Any):
    """Check that `value`, which a function of the user returned, is one floating-point array."""
    if not isinstance(value, jax.ShapeDtypeStruct | jax.Array | np.ndarray):
        raise ValueError(
            f"{what} must return one floating-point array, but returns {shown(value)}. Use "
            "`jnp.stack` or `jnp.concatenate`."
        )
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise ValueError(f"{what} must return floating-point numbers, but they are {value.dtype}.")


def check_system(
    system: AbstractSystem,
    control: Control | None,
    q,
    v,
    *,
    with_force: bool = True,
    with_internal: bool = False,
) -> None:
    """Check that the functions of the system return arrays of the right shapes. Nothing is
    computed. `with_internal`: whether the system may have internal states.

    **Raises:** `ValueError`.
    """
    if not isinstance(system, AbstractSystem):
        raise ValueError(f"Argument `system` must be an `mbd.AbstractSystem`, but is {system!r}.")
    for name, x in (("q", q), ("v", v)):
        if x.ndim != 1:
            raise ValueError(
                f"`{name}` must be a vector, but has shape {x.shape}. Use `jax.vmap` for batches."
            )
        if not jnp.issubdtype(x.dtype, jnp.floating):
            raise ValueError(f"`{name}` must be floating point, but is {x.dtype}.")
    if not with_internal:
        check_no_internal(system)
    nq, nv = q.shape[0], v.shape[0]
    sizes = f"nq = {nq}, nv = {nv}"
    t = jax.ShapeDtypeStruct((), q.dtype)

    def shape_of(fn, *args):
        return jax.eval_shape(fn, *args)

    for name, expected in (("nq", nq), ("nv", nv)):
        own = getattr(system.coordinates, name)
        if own is not None and own != expected:
            raise ValueError(
                f"`{name[1]}` has {expected} entries, but the coordinates "
                f"{system.coordinates!r} have {name} = {own}."
            )
    qdot = shape_of(system.qdot, q, v)
    expect_shape("`qdot(q, v)`", qdot, (nq,), sizes)
    if qdot.dtype != q.dtype or v.dtype != q.dtype:
        raise ValueError(
            f"`q`, `v` and `qdot(q, v)` must have one dtype, but have {q.dtype}, {v.dtype} and "
            f"{qdot.dtype}."
        )
    M = shape_of(system.mass_matrix, q)
    expect_shape("`mass_matrix(q)`", M, (nv, nv), sizes)
    if with_force:
        u = None if control is None else shape_of(control, t, q, v)
        expect_shape("`force(t, q, v, u)`", shape_of(system.force, t, q, v, u), (nv,), sizes)
    nonideal = shape_of(system.nonideal_force, q, v, t)
    expect_shape("`nonideal_force(q, v, t)`", nonideal, (nv,), sizes)
    for name, rows in (
        ("constraint(q, t)", shape_of(system.constraint, q, t)),
        ("nonholonomic(q, v, t)", shape_of(system.nonholonomic, q, v, t)),
    ):
        _expect_reals(f"`{name}`", rows)


def check_no_internal(system: AbstractSystem) -> None:
    """Check that the system has no internal states, where only q and v are known.

    **Raises:** `ValueError`."""
    if has_internal(system):
        raise ValueError(
            f"{type(system).__name__} has internal states, with which only `simulate` and "
            "`Stepper` deal so far, and what runs them: leave out the elements that have some, or "
            "replace them by a law of (t, q, v, u)."
        )


def check_gaps(system: AbstractSystem, q, v) -> None:
    """Check that `gap` and `slip` return arrays of the right shapes.

    **Raises:** `ValueError`."""
    t = jax.ShapeDtypeStruct((), q.dtype)
    gap = jax.eval_shape(system.gap, q, t)
    _expect_reals("`gap(q, t)`", gap)
    if gap.ndim != 1:
        raise ValueError(
            "`gap(q, t)` must return a vector, one gap for each contact, but has shape "
            f"{gap.shape}."
        )
    slip = jax.eval_shape(system.slip, q, v, t)
    _expect_reals("`slip(q, v, t)`", slip)
    if slip.ndim != 2 or slip.shape[0] != gap.shape[0] or slip.shape[1] > 2:
        raise ValueError(
            f"`slip(q, v, t)` must have shape ({gap.shape[0]}, tangents), with 0, 1 or 2 tangents "
            f"of each of the {gap.shape[0]} contacts, but has {slip.shape}."
        )
    rates = jax.eval_shape(system.friction_rates, q, v, t)
    _expect_reals("`friction_rates(q, v, t)`", rates)
    if rates.ndim != 1:
        raise ValueError(
            "`friction_rates(q, v, t)` must return a vector, one rate for each dry friction, but "
            f"has shape {rates.shape}."
        )


def contact_counts(system: AbstractSystem, q, v) -> tuple[int, int]:
    """The numbers of gaps and of dry frictions."""
    t = jax.ShapeDtypeStruct((), q.dtype)
    gaps = jax.eval_shape(system.gap, q, t)
    return gaps.size, jax.eval_shape(system.friction_rates, q, v, t).size


def check_no_frictions(system: AbstractSystem, q, v) -> None:
    """Check that the system has no dry friction, with which it rests in many poses.

    **Raises:** `ValueError`."""
    _, frictions = contact_counts(system, q, v)
    if frictions:
        raise ValueError(
            f"The system has {counted(frictions, 'dry friction')}, with which it rests in many "
            "poses: leave it out, or `simulate` from a start until it rests."
        )


def check_no_gaps(system: AbstractSystem, q, v, enforcement: str) -> None:
    """Check that the system has no gaps and no dry friction, since this method would ignore them.

    **Raises:** `ValueError`."""
    for count, what in zip(contact_counts(system, q, v), ("contact", "dry friction"), strict=True):
        if count:
            raise ValueError(
                f"The system has {counted(count, what)}, which `{enforcement}` ignores: use "
                "`mbd.ContactImpulse()`."
            )


def check_ordered(what: str, limits: Any) -> None:
    """**Raises:** `ValueError`, beginning with `what`, unless lower <= upper, if known. `limits`:
    one pair (lower, upper), or several along the first axis."""
    if refuted(lambda x: x[..., 0] <= x[..., 1], limits):
        raise ValueError(f"{what} must be lower <= upper, but are {np.asarray(limits).tolist()}.")


def check_no_nan(**arguments: Any) -> None:
    """Check that no array is complex and that no concrete array holds NaN. Traced arrays are
    checked at run time.

    **Raises:** `ValueError` naming the field.
    """
    for name, argument in arguments.items():
        for path, leaf in jax.tree_util.tree_leaves_with_path(argument):
            if not isinstance(leaf, jax.Array | np.ndarray | float | complex):
                continue
            if jnp.issubdtype(jnp.result_type(leaf), jnp.complexfloating):
                where = name + jax.tree_util.keystr(path)
                raise ValueError(
                    f"`{where}` must be real, but is {shown(leaf)}. Take its real and imaginary "
                    "part as two numbers."
                )
            real = jnp.issubdtype(jnp.result_type(leaf), jnp.floating)
            if real and refuted(lambda x: ~np.isnan(x), leaf):
                where = name + jax.tree_util.keystr(path)
                raise ValueError(f"`{where}` is NaN. Check how this input was made.")


def with_dtype(tree: PyTree, dtype) -> PyTree:
    """Convert all floating-point leaves to arrays of the dtype of the state. Python floats are
    converted too, since their values would be compiled in otherwise."""

    def convert(x):
        if isinstance(x, jax.Array) and x.dtype == dtype and not x.weak_type:
            return x  # even a conversion that changes nothing takes 0.2 ms
        if not (isinstance(x, float) or eqx.is_inexact_array(x)):
            return x
        return to_jax(x, dtype)

    return jax.tree.map(convert, tree)

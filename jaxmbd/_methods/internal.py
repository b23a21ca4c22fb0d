"""Internal states over a step, implicitly, so that they may be faster than the step."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._equations import AbstractEquations
from .._results import RESULTS
from .._roots import Change, Measure, Unknowns, solve_step
from .._types import Control, Coordinates, RealScalarLike, Velocity


def implicit_stage(
    of: AbstractEquations,
    control: Control | None,
    t: RealScalarLike,
    q: Coordinates,
    v: Velocity,
    known: Float[Array, " nz"],
    h: RealScalarLike,
) -> tuple[Float[Array, " nz"], RESULTS]:
    """z = known + h z'(t, q, v, z), and the verdict."""

    def residual(x):
        z = x.main
        return Unknowns(z - known - h * of.internal(control, t, q, v, z), ())

    given = jax.lax.stop_gradient(known)
    eps = jnp.finfo(known.dtype).eps

    def measure(d, x):
        size = _relative(d.main, x.main, given)
        return Change(size, jnp.full_like(size, 4 * eps), jnp.full_like(size, 100 * eps))

    (z, _), solved = solve_step(residual, Unknowns(known, ()), measure)
    return z, solved


def with_relative(measure: Measure, moves: Callable[[Unknowns, Unknowns], tuple]) -> Measure:
    """A measure of corrections of the motion, together with those of internal states:
    `moves(d, x)` are the corrections, the states, and those at the start."""

    def both(d, x):
        size, goal, rounding = measure(d, x)
        own = _relative(*jax.lax.stop_gradient(moves(d, x)))
        number = jnp.finfo(size.dtype)
        goal = goal + number.tiny
        size = jnp.maximum(size / goal, own / (4 * number.eps))
        return Change(size, jnp.ones_like(size), jnp.maximum(rounding / goal, 25.0))

    return both


def _relative(d: Array, z: Array, before: Array) -> Float[Array, ""]:
    """The size of corrections d. The states have different units, so each is measured by itself."""
    return jnp.max(jnp.abs(d) / (jnp.abs(z) + jnp.abs(before) + jnp.finfo(z.dtype).tiny))

"""What methods that solve equations in each step have in common: displacements, and when Newton's
method ends."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .._linalg import AbstractConstraintSolver
from .._roots import Change, Measure, Unknowns
from .._system import AbstractSystem, writes_own_qdot
from .._types import Coordinates, RealScalarLike, Rows, Velocity
from .base import SimulationProblem
from .point import point
from .state import StepperState


def moved(system: AbstractSystem, q: Coordinates, dp: Velocity) -> Coordinates:
    """q after the time 1 with the constant velocity dp, up to the third power of dp."""
    if writes_own_qdot(system):
        return q + system.qdot(q + system.qdot(q, dp / 2), dp)
    # Not `retract`, along which the velocities of a mechanism are not constant.
    return system.coordinates.retract(q, dp)


def rounding_of(
    h: RealScalarLike,
    q: Coordinates,
    v: Velocity,
    as_velocities: Callable[[Unknowns], tuple[Any, ...]] = lambda x: (x.main,),
) -> Measure:
    """The measure of corrections as velocities. Corrections below the rounding error of velocities
    are small enough. Corrections below the rounding error of positions, divided by h, end the
    search if they do not shrink: stiff forces magnify this error."""
    h, q, v = jax.lax.stop_gradient((h, q, v))
    eps = jnp.finfo(v.dtype).eps

    def largest(parts):
        return jnp.max(jnp.stack([jnp.max(jnp.abs(x), initial=0.0) for x in parts]))

    def measure(d, x):
        speed = largest([v, *as_velocities(x)])
        return Change(
            largest(as_velocities(d)), 4 * eps * speed, 100 * eps * (speed + largest([q]) / h)
        )

    return measure


def multipliers_at(
    problem: SimulationProblem, state: StepperState, solver: AbstractConstraintSolver
) -> Rows:
    """lam at a state, of the constrained acceleration there."""
    here = point(problem.equations, problem.control, state.t, state.q, state.v)
    return here.operator(solver).solve(here.f, here.rows.gamma)[1]

"""Angles whose turns are counted from step to step."""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from .._compiler import stop_gradient
from .._equations import AbstractStructuredSystem, Turning
from .._methods import SimulationProblem
from .._results import RESULTS
from .._system import AbstractSystem, State
from .._types import Coordinates, RealScalarLike, Velocity

# The largest advance of an angle in a step [rad].
_QUARTER = math.pi / 2


def with_angles(
    problem: SimulationProblem, angles: Float[Array, " angles"] | None
) -> SimulationProblem:
    """The same problem of the system `near` these angles."""
    if angles is None:
        return problem
    return eqx.tree_at(lambda p: p.system, problem, near(problem.system, angles))


def near(system: AbstractSystem, angles: Float[Array, " angles"] | None) -> AbstractSystem:
    """The system whose counted angles are within half a turn of these."""
    if angles is None:
        return system
    assert isinstance(system, AbstractStructuredSystem)
    return system.near(angles)


def turning(
    system: AbstractSystem,
    q: Coordinates,
    v: Velocity,
    angles: Float[Array, " angles"] | None = None,
) -> Turning | None:
    """The counted angles, within half a turn of `angles` or where a motion starts. They are
    constant in derivatives: a change by whole turns has none."""
    if not isinstance(system, AbstractStructuredSystem):
        return None
    system, q, v, angles = stop_gradient((system, q, v, angles))
    return near(system, angles).turning(q, v)  # pyright: ignore[reportAttributeAccessIssue]


def off_branch(system: AbstractSystem, state: State) -> Bool[ArrayLike, ""]:
    """Whether an angle whose turns are needed is more than half a turn from its `middle`, where a
    function of the pose alone would take it for another one."""
    there = turning(system, state.q, state.v)
    here = turning(system, state.q, state.v, state.angles)
    if here is None or there is None:
        return np.array(False)
    return jnp.any(here.needed & (jnp.abs(here.angle - there.angle) > math.pi))


def counted(
    system: AbstractSystem, state: State, h: RealScalarLike
) -> tuple[Float[Array, " angles"], RESULTS]:
    """The angles at a state, for a step of length h, and the verdict: whether no angle whose turns
    are needed has moved, or moves, by more than a quarter turn in a step."""
    here = turning(system, state.q, state.v, state.angles)
    assert here is not None and state.angles is not None
    most = jnp.maximum(jnp.abs(here.angle - state.angles), jnp.abs(h * here.rate))
    lost = jnp.any(here.needed & (most > _QUARTER))
    return here.angle, RESULTS.where(lost, RESULTS.turns_not_counted, RESULTS.successful)

"""What a step decides at its start: in which turn angles are, and which rows act."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from .._compiler import stop_gradient, tree_where
from .._equations import AbstractEquations, AbstractStructuredSystem, Turning, equations
from .._linalg import Automatic, ConstraintOperator
from .._methods import Projection, SimulationProblem, StepperState
from .._results import RESULTS, first_failure
from .._system import AbstractSystem, State
from .._types import Coordinates, RealScalarLike, Velocity

# The largest advance of an angle in a step [rad].
_QUARTER = math.pi / 2

# How the rows that begin to act are reached.
_TO_ROWS = Projection(iterations=4, velocity=False)


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


def is_switched(system: AbstractSystem, t: RealScalarLike, q: Coordinates, v: Velocity) -> bool:
    """Whether the system has a `switch`.

    **Raises:** `ValueError` if `switch` does not return a Boolean for each row."""
    none = jax.ShapeDtypeStruct((equations(system).row_count(t, q, v),), bool)
    t = jnp.asarray(t, q.dtype)
    active = eqx.filter_eval_shape(lambda *args: system.switch(*args), q, v, t, none)
    if active is None:
        return False
    if active.shape != none.shape or active.dtype != none.dtype:
        raise ValueError(
            f"`switch(q, v, t, active)` must return {none.shape[0]} truth values, one for each row "
            f"of `constraint` and then of `nonholonomic`, but returns {active}."
        )
    return True


def with_rows(problem: SimulationProblem, active: Bool[Array, " rows"] | None) -> SimulationProblem:
    """The same problem with these active rows."""
    if active is None:
        return problem
    return eqx.tree_at(lambda p: p.active, problem, active, is_leaf=lambda x: x is None)


def switched(
    problem: SimulationProblem, state: StepperState
) -> tuple[SimulationProblem, StepperState, RESULTS]:
    """The problem with the rows that act from `state` on, the state after the impact of the rows
    that begin to act, and the verdict on this impact. `problem` has all rows."""
    t, q, v, before = state.t, state.q, state.v, state.active
    assert before is not None
    active = problem.system.switch(q, v, t, before)
    assert active is not None
    acting = with_rows(problem, active)
    result = RESULTS.where(jnp.array(True), RESULTS.successful, RESULTS.nonfinite_state)
    if problem.enforcement.rigid:
        begins = active & ~before
        q, v, result = jax.lax.cond(
            jnp.any(begins),
            lambda: _impact(acting.equations, t, q, v, begins),
            lambda: (q, v, result),
        )
    fresh = problem.enforcement.anew(problem, state).memory
    changed = jnp.any(active != before)
    memory = tree_where(changed, fresh, state.memory)
    return acting, state.replace(q=q, v=v, active=active, memory=memory), result


def _impact(
    of: AbstractEquations,
    t: RealScalarLike,
    q: Coordinates,
    v: Velocity,
    begins: Bool[Array, " rows"],
) -> tuple[Coordinates, Velocity, RESULTS]:
    """The state after the plastic impact of the rows that begin to act. The velocities of the other
    rows do not change. Phi is not exactly 0 at the impact, since steps do not end where it is. A
    displacement removes the rest, along which the velocity is carried."""
    before = q
    q, projected = _TO_ROWS.project_position(of, t, q, v)
    v = of.system.carried(before, q, v)
    rows = of.rows(t, q, v)
    turned = of.tilt(q, v, rows.J, rows.phi)
    operator = ConstraintOperator(Automatic(), of.mass(q), rows.J, tilt=turned)
    change, _ = operator.correct(jnp.where(begins, -rows.velocity, 0.0), v)
    return q, v + change, first_failure(operator.result(), projected)


def begun(
    problem: SimulationProblem, state: StepperState, h: Array, *, anew: bool = False
) -> tuple[SimulationProblem, StepperState, list[RESULTS]]:
    """The problem and the state with what is decided at the start of a step, which turns and which
    rows count, and the verdicts on it. `anew`: with the memory of a start."""
    verdicts = []
    if state.angles is not None:
        angles, verdict = counted(problem.system, state, h)
        problem, state = with_angles(problem, angles), state.replace(angles=angles)
        verdicts.append(verdict)
    if state.active is not None:
        if anew:
            state = problem.enforcement.anew(problem, state)
        problem, state, verdict = switched(problem, state)
        verdicts.append(verdict)
    return problem, state, verdicts

"""Rows that begin and cease to act during a motion, for all methods."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from .._compiler import tree_where
from .._equations import AbstractEquations, equations
from .._linalg import Automatic, ConstraintOperator
from .._methods import Projection, SimulationProblem, StepperState
from .._results import RESULTS, first_failure
from .._system import AbstractSystem
from .._types import Coordinates, RealScalarLike, Velocity

_TO_ROWS = Projection(iterations=4, velocity=False)


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

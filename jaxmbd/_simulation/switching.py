"""Rows that begin and cease to act during a motion, for all methods."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from .._enforcement import Projection
from .._equations import AbstractEquations, equations
from .._linalg import Automatic, ConstraintOperator
from .._loop import tree_where
from .._results import RESULTS, first_failure
from .._system import AbstractSystem
from .._types import Coordinates, RealScalarLike, Velocity
from .state import StepperState
from .steps import AbstractSteps, at_start

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


def with_rows(steps: AbstractSteps, active: Bool[Array, " rows"] | None) -> AbstractSteps:
    """The same steps with these active rows."""
    if active is None:
        return steps
    return eqx.tree_at(lambda s: s.problem.active, steps, active, is_leaf=lambda x: x is None)


def switched(
    steps: AbstractSteps, state: StepperState
) -> tuple[AbstractSteps, StepperState, RESULTS]:
    """The steps with the rows that act from `state` on, the state after the impact of the rows that
    begin to act, and the verdict on this impact. `steps` have all rows."""
    t, q, v, before = state.t, state.q, state.v, state.active
    assert before is not None
    active = steps.system.switch(q, v, t, before)
    assert active is not None
    acting = with_rows(steps, active)
    result = RESULTS.where(jnp.array(True), RESULTS.successful, RESULTS.nonfinite_state)
    if steps.problem.enforcement.rigid:
        begins = active & ~before
        q, v, result = jax.lax.cond(
            jnp.any(begins),
            lambda: _impact(acting.equations, t, q, v, begins),
            lambda: (q, v, result),
        )
    fresh = at_start(steps.scheme, state).scheme
    changed = jnp.any(active != before)
    scheme = tree_where(changed, fresh, state.scheme)
    return acting, state.replace(q=q, v=v, active=active, scheme=scheme), result


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

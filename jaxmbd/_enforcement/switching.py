"""Rows that begin and cease to act during a motion, with any method."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from .._constraints import constraint_rows, mass_matrix, row_count, tilt
from .._linalg import Automatic, ConstraintOperator
from .._results import RESULTS, first_failure
from .._system import AbstractSystem, only
from .._types import Coordinates, RealScalarLike, Velocity
from .projection import Projection
from .stepping import AbstractStepper, Problem, Step

_TO_ROWS = Projection(iterations=4, velocity=False)


def is_switched(system: AbstractSystem, t: RealScalarLike, q: Coordinates, v: Velocity) -> bool:
    """Whether some rows do not always act.

    **Raises:** `ValueError` if `switch` does not return a truth value for each row."""
    none = jax.ShapeDtypeStruct((row_count(system, t, q, v),), bool)
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


class SwitchingStepper(AbstractStepper):
    """The steps of a method with the rows that act in each; y is that of the method, and then which
    rows acted in the step before."""

    inner: AbstractStepper

    @property
    def problem(self):
        return self.inner.problem

    @property
    def scheme(self):
        return self.inner.scheme

    @property
    def checkpoints(self):
        return self.inner.checkpoints

    @property
    def keeps_energy(self):
        return False  # rows begin to act by an impact

    def row_energy(self, t, y):
        return self._with(y[-1]).row_energy(t, y[:-1])

    def driving_power(self, t, y):
        return self._with(y[-1]).driving_power(t, y[:-1])

    def system(self, y):
        return only(self.problem.system, y[-1])

    def active(self, y):
        return y[-1]

    def start(self, t, h, q, v):
        system = self.problem.system
        none = jnp.zeros(row_count(system, t, q, v), bool)
        active = system.switch(q, v, t, none)
        y, scheme_state = self._with(active).start(t, h, q, v)
        return (*y, active), scheme_state

    def start_result(self, t, q, v, tolerance):
        return self.inner.start_result(t, q, v, tolerance)

    def end_result(self, t, y):
        return self.inner.end_result(t, y[:-1])

    def step(self, t0, t1, y, scheme_state):
        method, y, scheme_state, switched = self._switch(t0, t1 - t0, y, scheme_state)
        step = method.step(t0, t1, y[:-1], scheme_state)
        result = first_failure(switched, step.result)
        return Step((*step.y, y[-1]), step.scheme_state, result, step.start_phi)

    def between(self, t0, h, t, y):
        _, scheme_state = self.inner.start(t0, h, y[0], y[1])
        method, y, _, _ = self._switch(t0, h, y, scheme_state)
        return (*method.between(t0, h, t, y[:-1]), y[-1])

    def multipliers(self, t, y):
        return self._with(y[-1]).multipliers(t, y[:-1])

    def held(self, good, new, old):
        return (*self.inner.held(good, new[:-1], old[:-1]), jnp.where(good, new[-1], old[-1]))

    def contacts(self, y):
        return self.inner.contacts(y[:-1])

    def tally(self, y):
        return self.inner.tally(y[:-1])

    def with_tally(self, y, tally):
        return (*self.inner.with_tally(y[:-1], tally), y[-1])

    def _with(self, active: Bool[Array, " rows"] | None) -> AbstractStepper:
        """The method, for the system in which these rows act."""
        problem: Problem = self.inner.problem
        switched = eqx.tree_at(lambda p: p.system, problem, only(problem.system, active))
        return eqx.tree_at(lambda s: s.problem, self.inner, switched)

    def _switch(self, t: RealScalarLike, h: RealScalarLike, y: Any, scheme_state: Any) -> Any:
        """The method with the rows that act from t on, y and the scheme's state after the impact,
        and a verdict."""
        q, v, *rest, before = y
        active = self.problem.system.switch(q, v, t, before)
        method = self._with(active)
        result = RESULTS.where(jnp.array(True), RESULTS.successful, RESULTS.nonfinite_state)
        if self.problem.enforcement.rigid:
            begins = active & ~before
            system = method.problem.system
            q, v, result = jax.lax.cond(
                jnp.any(begins),
                lambda: _impact(system, t, q, v, begins),
                lambda: (q, v, result),
            )
        _, fresh = method.start(t, h, q, v)
        changed = jnp.any(active != before)
        scheme_state = jax.tree.map(
            lambda new, old: jnp.where(changed, new, old), fresh, scheme_state
        )
        return method, (q, v, *rest, active), scheme_state, result


def _impact(
    system: AbstractSystem,
    t: RealScalarLike,
    q: Coordinates,
    v: Velocity,
    begins: Bool[Array, " rows"],
) -> tuple[Coordinates, Velocity, RESULTS]:
    """The state after rows begin to act, plastically; the other ones keep their velocities. By how
    much Phi is not 0 there, since steps do not end when it is, a displacement takes back, without
    a velocity."""
    q, projected = _TO_ROWS.project_position(system, t, q, v)
    rows = constraint_rows(system, t, q, v)
    turned = tilt(system, q, v, rows.J, rows.phi)
    operator = ConstraintOperator(Automatic(), mass_matrix(system, q), rows.J, tilt=turned)
    change, _ = operator.correct(jnp.where(begins, -rows.velocity, 0.0), v)
    return q, v + change, first_failure(operator.result(), projected)

"""The public step."""

import functools
import typing
from typing import Annotated, Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import check_gaps, check_no_gaps, check_system, with_dtype
from .._concrete import all_concrete, as_one_program
from .._contact import ContactImpulse
from .._enforcement import (
    AbstractContinuousEnforcement,
    AbstractEnforcement,
    AbstractSplitEnforcement,
    GeneralisedAlpha,
    Projection,
    Variational,
)
from .._equations import equations, specialised
from .._fusion import materialise_condition
from .._inputs import checked, not_negative_or_infinite, positive, traced_in_range
from .._results import RESULTS, first_failure
from .._system import AbstractSystem, State
from .._types import RealScalarLike, Rows
from .alpha import AlphaScheme, AlphaSteps
from .contact import ContactSteps
from .continuous import ContinuousSteps
from .own import OwnScheme
from .schemes import RK4, prepared
from .split import SplitSteps
from .state import StepperState, finite
from .steps import AbstractSteps, SimulationProblem, at_start
from .switching import is_switched, switched, with_rows
from .turns import counted, near, turning, with_angles
from .variational import VariationalScheme, VariationalSteps


@checked
class Stepper(eqx.Module):
    """The step of `simulate`, for your own loops:

        stepper = mbd.Stepper(system, mbd.VelocityImpulse())
        state = stepper.init(mbd.State(0.0, q, v))
        state = stepper.step(state, dt, u)

    A step takes a `StepperState` and returns one of the same structure. So it works in
    `jax.lax.scan`, `jax.vmap`, `jax.jit` and both modes of differentiation. Called with concrete
    numbers, `init` and `step` compile themselves, once for all values of the same shapes.

    **Arguments:**

    - `system`, `enforcement`, `scheme`, `projection`: as in `simulate`.
    - `drift_tolerance`: the largest |Phi| at the start of a step, beyond which the step fails;
      default unlimited.

    **Raises:** `ValueError` for an unsuitable enforcement method or scheme.
    """

    system: AbstractSystem
    enforcement: AbstractEnforcement
    scheme: diffrax.AbstractSolver | None = None
    projection: Projection | None = None
    drift_tolerance: Annotated[RealScalarLike | None, not_negative_or_infinite] = None

    def __check_init__(self):
        _, own = _family(self.enforcement)
        check_scheme(self.scheme, self.enforcement if isinstance(own, OwnScheme) else None)

    @checked
    def init(
        self,
        state: State,
        *,
        start_tolerance: Annotated[RealScalarLike, not_negative_or_infinite] = 1e-3,
    ) -> StepperState:
        """The state for the first step.

        **Arguments:**

        - `state`: the start of the motion, from `assemble` or `State(t, q, v)`.
        - `start_tolerance`: the largest |Phi| and |Phi'| there, for rigid methods.

        **Returns:** a `StepperState`. Its `result` is the verdict on the start: whether it is
        consistent to the tolerance and finite, the mass matrix is symmetric, and the parameters are
        in their ranges.

        **Raises:** `ValueError` for functions of the system that return wrong shapes or types."""
        dtype = state.q.dtype
        t, tolerance = jnp.asarray(state.t, dtype), jnp.asarray(start_tolerance, dtype)
        allowed = traced_in_range(
            self.system, self.system.contact_law, self.enforcement, self.projection
        )
        start = state.q, state.v, tolerance, allowed, state.angles
        return _compiled_init(with_dtype(self, dtype), t, *start)

    def checked_init(self, t, q, v, tolerance, allowed=None, angles=None) -> StepperState:
        """`init` for arrays of one dtype, without the verdict of `start_result`, which the first
        step repeats. `allowed`: whether the parameters are in their ranges."""
        system, enforcement = self.system, self.enforcement
        check_system(system, None, q, v, with_force=False)
        if not equations(system).in_blocks:
            check_gaps(system, q, v)
        if not enforcement.unilateral:
            check_no_gaps(system, q, type(enforcement).__name__)
        start = self.unchecked_init(t, q, v, tolerance, angles)
        steps = self.active_steps(start, None)
        result = first_failure(_start_result(steps, start, tolerance), start.result)
        if allowed is not None:
            in_range = RESULTS.where(allowed, RESULTS.successful, RESULTS.invalid_parameter)
            result = first_failure(result, in_range)
        return start.replace(result=result)

    def unchecked_init(self, t, q, v, tolerance, angles=None) -> StepperState:
        """The state of `checked_init`, without the checks."""
        here = turning(self.system, q, v, angles)
        angles = None if here is None else here.angle
        system, active = near(self.system, angles), None
        if is_switched(system, t, q, v):
            active = system.switch(q, v, t, jnp.zeros(equations(system).row_count(t, q, v), bool))
        steps = with_rows(with_angles(self.steps(None, q.dtype), angles), active)
        start = steps.init(t, q, v).replace(active=active, angles=angles)
        return steps.allowing(start, tolerance)

    @checked
    def step(
        self, state: StepperState, dt: Annotated[RealScalarLike, positive], u: Any = None
    ) -> StepperState:
        """The state a time `dt` later.

        **Arguments:**

        - `state`: from `init`, or from the step before.
        - `dt`: the step [s], which may differ from step to step.
        - `u`: the argument of `force(t, q, v, u)`, constant in the step; or a control u(t, q, v),
          which is evaluated at the stages of the scheme.

        **Returns:** the new `StepperState`. If a step fails, `result` says why, also after all
        later steps. Then only t advances; all other fields stay at the last good state.
        """
        h, control = jnp.asarray(dt, state.q.dtype), as_control(u, state.q.dtype)
        if all_concrete((self, state, dt, u)):
            stepper = eqx.tree_at(lambda own: own.system, self, specialised(self.system))
            stepper = with_dtype(stepper, h.dtype)
            return _compiled_step(stepper, state, h, control, jnp.array(1))
        return self.advance(state, h, control)

    def advance(self, state: StepperState, h: Array, control: Any) -> StepperState:
        """`step` for an array h and a control."""
        steps, start, verdicts = self.steps(control, state.q.dtype), state, []
        if state.angles is not None:
            angles, verdict = counted(steps.system, state, h)
            steps, start = with_angles(steps, angles), state.replace(angles=angles)
            verdicts.append(verdict)
        if state.active is not None:
            steps, start, verdict = switched(steps, start)
            verdicts.append(verdict)
        t, lost = state.later(h)
        step = steps.step(start, t)
        verdicts.append(step.result)
        if self.drift_tolerance is not None:
            within = jnp.all(step.start_phi <= self.drift_tolerance)
            verdicts.append(RESULTS.where(within, RESULTS.successful, RESULTS.drift))
        new = step.state
        good = finite((new.q, new.v, new.multipliers, new.contacts))
        verdicts.append(RESULTS.where(good, RESULTS.successful, RESULTS.nonfinite_state))
        result = first_failure(state.result, *verdicts)
        good = materialise_condition(result == RESULTS.successful)
        return new.replace(lost=lost, result=result).held(good, state)

    def between(self, state: StepperState, h: Array, t: Array, control: Any) -> StepperState:
        """The state at a time t within the step of length h from `state`."""
        steps = self.steps(control, state.q.dtype)
        if state.angles is not None:
            angles, _ = counted(steps.system, state, h)
            steps, state = with_angles(steps, angles), state.replace(angles=angles)
        if state.active is not None:
            steps, state, _ = switched(steps, at_start(steps.scheme, state))
        return steps.between(state, h, t)

    @checked
    def end_result(self, state: StepperState) -> RESULTS:
        """The verdict on a state after the last step. It reports a failure that would otherwise
        show only in the next step: more overlapping contacts than `contact_budget` has room for,
        an angle whose turns are not counted."""
        steps = self.active_steps(state, None)
        result = steps.end_result(state)
        if state.angles is None:
            return result
        return first_failure(result, counted(steps.system, state, 0.0)[1])

    @checked
    def multipliers(self, state: StepperState, u: Any = None) -> Rows:
        """lam at a state, shape `(nc,)`, holonomic rows first; the generalised reaction is
        J^T lam. For velocity-level methods and contacts it is the mean over the step before. For
        continuous methods it is the value at this instant, with the control `u`."""
        control = as_control(u, state.q.dtype)
        return self.active_steps(state, control).multipliers(state)

    def checkpoints(self, dtype: Any) -> bool:
        """Whether a step has its own checkpoints for the reverse pass."""
        return self.steps(None, dtype).checkpoints

    def steps(self, control: Any, dtype: Any) -> AbstractSteps:
        """The steps of the method under a control, with all rows."""
        system = specialised(self.system)
        problem = SimulationProblem(system, self.enforcement, control, self.projection)
        return steps_of(with_dtype(problem, dtype), self.scheme, dtype)

    def active_steps(self, state: StepperState, control: Any) -> AbstractSteps:
        """The same with the rows that acted in the step before, near the angles there."""
        return with_rows(
            with_angles(self.steps(control, state.q.dtype), state.angles), state.active
        )


def steps_of(
    problem: SimulationProblem,
    scheme: diffrax.AbstractSolver | None,
    dtype: Any,
    controller: diffrax.AbstractStepSizeController | None = None,
) -> AbstractSteps:
    """The steps for a problem whose arrays are of this dtype."""
    kind, default = _family(problem.enforcement)
    if scheme is None:
        scheme = default if controller is None else diffrax.Tsit5()
    large = problem.equations.in_blocks
    return kind(problem, prepared(scheme, controller, dtype, large))


@functools.singledispatch
def _family(enforcement: Any) -> tuple[type[AbstractSteps], diffrax.AbstractSolver]:
    """The steps of the family of a method, and its default scheme."""
    raise ValueError(
        "Argument `enforcement` must be an enforcement method such as `mbd.UdwadiaKalaba()`, but "
        f"is {enforcement!r}."
    )


_family.register(AbstractContinuousEnforcement, lambda _: (ContinuousSteps, RK4()))
_family.register(AbstractSplitEnforcement, lambda _: (SplitSteps, diffrax.Euler()))
_family.register(ContactImpulse, lambda _: (ContactSteps, diffrax.Euler()))
_family.register(GeneralisedAlpha, lambda _: (AlphaSteps, AlphaScheme()))
_family.register(Variational, lambda _: (VariationalSteps, VariationalScheme()))


def check_scheme(scheme: diffrax.AbstractSolver | None, without: Any = None) -> None:
    """Check that the scheme integrates one vector field, and that there is none for the method
    `without`, which needs none.

    **Raises:** `ValueError`."""
    if scheme is not None and without is not None:
        raise ValueError(
            f"`{type(without).__name__}` has a step of its own: leave out `scheme`, which is "
            f"{type(scheme).__name__}."
        )
    structure = None if scheme is None else scheme.term_structure
    if isinstance(structure, tuple) or typing.get_origin(structure) is diffrax.MultiTerm:
        raise ValueError(
            f"Argument `scheme` must be of one vector field, but `{type(scheme).__name__}` splits "
            "it in two or adds noise: use e.g. `mbd.SemiImplicitEuler()` or `mbd.RK4()`."
        )


def as_control(u: Any, dtype: Any) -> Any:
    """A control u(t, q, v), from a control or from a constant value."""
    u = with_dtype(u, dtype)
    return u if u is None or callable(u) else jax.tree_util.Partial(_held, u)


def _held(u, t, q, v):
    del t, q, v
    return u


def _start_result(
    steps: AbstractSteps, start: StepperState, tolerance: Float[Array, ""]
) -> RESULTS:
    """The verdict on a start: whether it is finite, consistent to `tolerance`, and has a symmetric
    mass matrix."""
    of, t, q, v = steps.equations, start.t, start.q, start.v
    M = jax.tree.leaves(of.mass(q))[0]  # the array M, or the array of its blocks
    asymmetry = jnp.max(jnp.abs(M - jnp.swapaxes(M, 0, 1)))
    symmetric = asymmetry <= 1e-6 * jnp.max(jnp.abs(M))
    violation = jnp.concatenate(of.violation(t, q, v))
    rigid = steps.problem.enforcement.rigid
    consistent = jnp.all(jnp.abs(violation) <= tolerance) | (not rigid)
    return first_failure(
        RESULTS.where(finite((q, v, M, violation)), RESULTS.successful, RESULTS.nonfinite_state),
        RESULTS.where(symmetric, RESULTS.successful, RESULTS.mass_matrix_indefinite),
        RESULTS.where(consistent, RESULTS.successful, RESULTS.inconsistent_start),
    )


@as_one_program
def _compiled_init(stepper, t, q, v, tolerance, allowed, angles):
    start = stepper.checked_init(t, q, v, tolerance, allowed, angles)
    verdict = stepper.active_steps(start, None).start_result(start)
    return start.replace(result=first_failure(start.result, verdict))


@eqx.filter_jit
def _compiled_step(stepper, state, h, control, one):
    # XLA compiles a step whole if it is in a loop. This loop has one turn, but XLA does not know
    # that.
    return jax.lax.fori_loop(0, one, lambda _, state: stepper.advance(state, h, control), state)

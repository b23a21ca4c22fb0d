"""The public step."""

import typing
from typing import Annotated, Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._checks import check_gaps, check_no_gaps, check_system, with_dtype
from .._compiler import as_one_program, is_known
from .._equations import equations, specialised
from .._inputs import checked, not_negative_or_infinite, positive, traced_in_range
from .._methods import (
    AbstractEnforcement,
    AdditiveRungeKutta,
    Projection,
    SimulationProblem,
    StepperState,
    finite,
    prepared,
)
from .._results import RESULTS, first_failure
from .._system import AbstractSystem, State, has_internal
from .._types import Control, Coordinates, DType, RealScalarLike, Rows, Velocity
from .branches import begun, counted, is_switched, near, turning, with_angles, with_rows
from .sampled import of_state, of_step


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
        check_scheme(self.scheme, self.enforcement)
        check_internal(self.system, self.enforcement, self.scheme)

    @checked
    def init(
        self,
        state: State,
        *,
        start_tolerance: Annotated[RealScalarLike, not_negative_or_infinite] = 1e-3,
        check: bool = True,
    ) -> StepperState:
        """The state for the first step.

        **Arguments:**

        - `state`: the start of the motion, from `assemble` or `State(t, q, v)`.
        - `start_tolerance`: the largest |Phi| and |Phi'| there, for rigid methods.
        - `check`: without it the start has no verdict, as in a search whose iterates violate the
          constraints.

        **Returns:** a `StepperState`. Its `result` is the verdict on the start: whether it is
        consistent to the tolerance and finite, the mass matrix is symmetric, and the parameters are
        in their ranges.

        **Raises:** `ValueError` for functions of the system that return wrong shapes or types."""
        dtype = state.q.dtype
        t, tolerance = jnp.asarray(state.t, dtype), jnp.asarray(start_tolerance, dtype)
        start = t, state.q, state.v, tolerance, state.angles, state.z
        if not check:
            return _start(self, *start)
        system = self.system
        in_range = traced_in_range(system, system.contact_law, self.enforcement, self.projection)
        return _compiled_init(with_dtype(self, dtype), *start, in_range)

    @checked
    def step(
        self, state: StepperState, dt: Annotated[RealScalarLike, positive], u: PyTree = None
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
        if is_known((self, state, dt, u)):
            stepper = eqx.tree_at(lambda own: own.system, self, specialised(self.system))
            stepper = with_dtype(stepper, h.dtype)
            return _compiled_step(stepper, state, h, control, jnp.array(1))
        return _step(self, state, h, control)

    def between(
        self, state: StepperState, h: Array, t: Array, control: Control | None
    ) -> StepperState:
        """The state at a time t within the step of length h from `state`."""
        control, _ = of_step(control, state)
        problem, state, _ = begun(self._problem(control, state.q.dtype), state, h, anew=True)
        return problem.enforcement.between(problem, state, h, t)

    @checked
    def end_result(self, state: StepperState) -> RESULTS:
        """The verdict on a state after the last step. It reports a failure that would otherwise
        show only in the next step: more overlapping contacts than `contact_budget` has room for,
        an angle whose turns are not counted."""
        problem = self.problem(state)
        result = self.enforcement.end_result(problem, state)
        if state.angles is None:
            return result
        return first_failure(result, counted(problem.system, state, 0.0)[1])

    @checked
    def multipliers(self, state: StepperState, u: PyTree = None) -> Rows:
        """lam at a state, shape `(nc,)`, holonomic rows first; the generalised reaction is
        J^T lam. For velocity-level methods and contacts it is the mean over the step before. For
        continuous methods it is the value at this instant, with the control `u`."""
        problem = self.problem(state, as_control(u, state.q.dtype))
        return problem.enforcement.multipliers(problem, state)

    def has_checkpoints(self, dtype: DType) -> bool:
        """Whether a step has its own checkpoints for the reverse pass."""
        problem = self._problem(None, dtype)
        return problem.enforcement.has_checkpoints(problem)

    def problem(self, state: StepperState, control: Control | None = None) -> SimulationProblem:
        """The problem with the rows that acted in the step before, near the angles there."""
        control = of_state(control, state)
        problem = with_angles(self._problem(control, state.q.dtype), state.angles)
        return with_rows(problem, state.active).holding(state.z)

    def _problem(self, control: Control | None, dtype: DType) -> SimulationProblem:
        """The problem with all rows."""
        system, method = specialised(self.system), self.enforcement
        problem = SimulationProblem(system, method, control, self.projection)
        return with_scheme(with_dtype(problem, dtype), self.scheme, dtype)


def with_scheme(
    problem: SimulationProblem,
    scheme: diffrax.AbstractSolver | None,
    dtype: DType,
    controller: diffrax.AbstractStepSizeController | None = None,
) -> SimulationProblem:
    """The problem, whose arrays are of this dtype, with this scheme or the default of its method,
    set up for our loop or for diffrax."""
    if scheme is None:
        scheme = default_scheme(problem, adaptive=controller is not None)
    if scheme is None:
        return problem
    scheme = prepared(scheme, controller, dtype, problem.equations.in_blocks)
    return eqx.tree_at(lambda p: p.scheme, problem, scheme, is_leaf=lambda x: x is None)


def checked_start(
    stepper: Stepper,
    t: Array,
    q: Coordinates,
    v: Velocity,
    tolerance: Array,
    angles: Float[Array, " angles"] | None = None,
    z: Float[Array, " nz"] | None = None,
    in_range: Array | None = None,
) -> StepperState:
    """The start of a motion whose first step follows in the same program, for arrays of one dtype.
    The verdict lacks what this step judges itself. `in_range`: whether the parameters are in their
    ranges."""
    system, enforcement = stepper.system, stepper.enforcement
    check_system(system, None, q, v, with_force=False, with_internal=True)
    if not equations(system).in_blocks:
        check_gaps(system, q, v)
    if not enforcement.unilateral:
        check_no_gaps(system, q, v, type(enforcement).__name__)
    start = _start(stepper, t, q, v, tolerance, angles, z)
    result = first_failure(_start_result(stepper.problem(start), start, tolerance), start.result)
    if in_range is not None:
        allowed = RESULTS.where(in_range, RESULTS.successful, RESULTS.invalid_parameter)
        result = first_failure(result, allowed)
    return start.replace(result=result)


def _start(stepper: Stepper, t, q, v, tolerance, angles, z) -> StepperState:
    """The state at the start of a motion, unchecked."""
    here = turning(stepper.system, q, v, angles)
    angles = None if here is None else here.angle
    system, active = near(stepper.system, angles), None
    if is_switched(system, t, q, v):
        active = system.switch(q, v, t, jnp.zeros(equations(system).row_count(t, q, v), bool))
    problem = with_rows(with_angles(stepper._problem(None, q.dtype), angles), active)
    start = stepper.enforcement.init(problem, t, q, v).replace(active=active, angles=angles)
    z = initial_internal(system, z, q.dtype)
    if z is not None:
        start = stepper.enforcement.anew(problem, start.replace(z=z))
    return stepper.enforcement.with_start_tolerance(start, tolerance)


def _step(stepper: Stepper, state: StepperState, h: Array, control: Control | None) -> StepperState:
    control, sampling = of_step(control, state)
    problem = stepper._problem(control, state.q.dtype)
    problem, start, verdicts = begun(problem, state, h)
    t, lost = state.later(h)
    step = problem.enforcement.advance(problem, start, t)
    verdicts.append(step.result)
    if stepper.drift_tolerance is not None:
        within = jnp.all(step.start_phi <= stepper.drift_tolerance)
        verdicts.append(RESULTS.where(within, RESULTS.successful, RESULTS.drift))
    new = step.state
    good = finite((new.q, new.v, new.multipliers, new.contacts, new.z))
    verdicts.append(RESULTS.where(good, RESULTS.successful, RESULTS.nonfinite_state))
    result = first_failure(state.result, *verdicts)
    good = result == RESULTS.successful
    return new.replace(lost=lost, result=result, sampling=sampling).held(good, state)


def check_scheme(scheme: diffrax.AbstractSolver | None, enforcement: AbstractEnforcement) -> None:
    """Check that a scheme integrates one vector field, and that the method takes one.

    **Raises:** `ValueError`."""
    if scheme is not None and enforcement.default_scheme is None:
        raise ValueError(
            f"`{type(enforcement).__name__}` has a step of its own: leave out `scheme`, which is "
            f"{type(scheme).__name__}."
        )
    structure = None if scheme is None else scheme.term_structure
    if isinstance(structure, tuple) or typing.get_origin(structure) is diffrax.MultiTerm:
        raise ValueError(
            f"Argument `scheme` must be of one vector field, but `{type(scheme).__name__}` splits "
            "it in two or adds noise: use e.g. `mbd.methods.SemiImplicitEuler()` or `mbd.RK4()`."
        )


def check_internal(
    system: AbstractSystem,
    enforcement: AbstractEnforcement,
    scheme: diffrax.AbstractSolver | None,
) -> None:
    """Check that the method and the scheme suit the internal states of a system, or their absence.

    **Raises:** `ValueError`."""
    own = isinstance(scheme, AdditiveRungeKutta)
    if own and not enforcement.continuous:
        raise ValueError(
            f"`AdditiveRungeKutta` is a scheme for continuous methods, and "
            f"`{type(enforcement).__name__}` moves internal states by itself: leave out `scheme`."
        )
    if not has_internal(system):
        if own:
            raise ValueError(
                f"`AdditiveRungeKutta` treats internal states apart, but "
                f"{type(system).__name__} has none: leave out `scheme`."
            )
        return
    if not enforcement.takes_internal:
        raise ValueError(
            f"`{type(enforcement).__name__}` moves q and v only, but {type(system).__name__} has "
            "internal states: use e.g. `mbd.GeneralisedAlpha()` or `mbd.UdwadiaKalaba()`."
        )


def initial_internal(
    system: AbstractSystem, z: Float[Array, " nz"] | None, dtype: DType
) -> Float[Array, " nz"] | None:
    """The internal states z of a start, or by default those of the system.

    **Raises:** `ValueError` for a wrong number of them."""
    own = system.initial_internal
    if own is None:
        if z is not None:
            raise ValueError(
                f"The state has internal states `z`, but {type(system).__name__} has none."
            )
        return None
    own = jnp.asarray(own, dtype)
    if own.ndim != 1 or not own.size:
        raise ValueError(
            f"`initial_internal` of {type(system).__name__} must be a vector of at least one "
            f"number, or `None`, but has shape {own.shape}."
        )
    if z is None:
        return own
    if z.shape != own.shape:
        raise ValueError(
            f"`z` of the state must have shape {own.shape}, as `initial_internal` of "
            f"{type(system).__name__}, but has {z.shape}."
        )
    return z.astype(dtype)


def default_scheme(problem: SimulationProblem, adaptive: bool) -> diffrax.AbstractSolver | None:
    """The scheme of a method for this system."""
    default = problem.enforcement.default_scheme
    if problem.enforcement.continuous and has_internal(problem.system):
        return AdditiveRungeKutta()
    return diffrax.Tsit5() if adaptive else default


def as_control(u: PyTree, dtype: DType) -> Any:
    """A control u(t, q, v), from a control or from a constant value."""
    u = with_dtype(u, dtype)
    return u if u is None or callable(u) else jax.tree_util.Partial(_held, u)


def _held(u, t, q, v):
    del t, q, v
    return u


def _start_result(
    problem: SimulationProblem, start: StepperState, tolerance: Float[Array, ""]
) -> RESULTS:
    """The verdict on a start: whether it is finite, consistent to `tolerance`, and has a symmetric
    mass matrix."""
    of, t, q, v = problem.equations, start.t, start.q, start.v
    M = jax.tree.leaves(of.mass(q))[0]  # the array M, or the array of its blocks
    asymmetry = jnp.max(jnp.abs(M - jnp.swapaxes(M, 0, 1)))
    symmetric = asymmetry <= 1e-6 * jnp.max(jnp.abs(M))
    violation = jnp.concatenate(of.violation(t, q, v))
    rigid = problem.enforcement.rigid
    consistent = jnp.all(jnp.abs(violation) <= tolerance) | (not rigid)
    return first_failure(
        RESULTS.where(finite((q, v, M, violation)), RESULTS.successful, RESULTS.nonfinite_state),
        RESULTS.where(symmetric, RESULTS.successful, RESULTS.mass_matrix_indefinite),
        RESULTS.where(consistent, RESULTS.successful, RESULTS.inconsistent_start),
    )


@as_one_program
def _compiled_init(stepper, t, q, v, tolerance, angles, z, in_range):
    start = checked_start(stepper, t, q, v, tolerance, angles, z, in_range)
    verdict = stepper.enforcement.start_result(stepper.problem(start), start)
    return start.replace(result=first_failure(start.result, verdict))


@eqx.filter_jit
def _compiled_step(stepper, state, h, control, one):
    # XLA compiles a step whole if it is in a loop. This loop has one turn, but XLA does not know
    # that.
    return jax.lax.fori_loop(0, one, lambda _, state: _step(stepper, state, h, control), state)

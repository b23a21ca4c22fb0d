"""From the arguments of a simulation to its steps."""

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._checks import check_gaps, check_no_gaps, check_system, with_dtype
from ._constraints import AbstractStructuredSystem, mass_matrix, positions, velocities
from ._enforcement.base import AbstractContinuousEnforcement, AbstractEnforcement
from ._enforcement.projection import Projection
from ._enforcement.stepping import AbstractStepper, Problem, make_stepper
from ._enforcement.switching import SwitchingStepper, is_switched
from ._fixed import finite
from ._results import RESULTS, first_failure
from ._schemes import RK4, prepared
from ._system import AbstractSystem, State
from ._types import Control, RealScalarLike


def ready_stepper(
    system: AbstractSystem,
    enforcement: AbstractEnforcement,
    state: State,
    scheme: diffrax.AbstractSolver | None,
    control: Control | None,
    projection: Projection | None,
    controller: diffrax.AbstractStepSizeController | None = None,
) -> AbstractStepper:
    """What advances the state, all numbers in its dtype.

    **Raises:** `ValueError` for wrong shapes and for what does not go together.
    """
    problem = with_dtype(Problem(system, enforcement, control, projection), state.q.dtype)
    return stepper_of(problem, state, scheme, controller)


def stepper_of(
    problem: Problem,
    state: State,
    scheme: diffrax.AbstractSolver | None,
    controller: diffrax.AbstractStepSizeController | None,
) -> AbstractStepper:
    """The same, of numbers that are in the dtype of the state."""
    system, enforcement = problem.system, problem.enforcement
    check_system(system, problem.control, state.q, state.v)
    structured = isinstance(system, AbstractStructuredSystem)
    if not structured:
        check_gaps(system, state.q, state.v)
    if isinstance(enforcement, AbstractEnforcement) and not enforcement.unilateral:
        check_no_gaps(system, state.q, type(enforcement).__name__)
    if controller is not None and not isinstance(enforcement, AbstractContinuousEnforcement):
        raise ValueError(
            f"`{type(enforcement).__name__}` advances by an impulse a step and has no error "
            "estimate: leave out `stepsize_controller`, or use a continuous method such as "
            "`mbd.UdwadiaKalaba()`."
        )
    stepper = make_stepper(problem, scheme, RK4() if controller is None else diffrax.Tsit5())
    if controller is not None and not isinstance(stepper.scheme, diffrax.AbstractAdaptiveSolver):
        raise ValueError(
            f"`{type(stepper.scheme).__name__}` has no error estimate to adapt steps by: use e.g. "
            "`diffrax.Tsit5()`, or `diffrax.HalfSolver` around it."
        )
    scheme = prepared(stepper.scheme, controller, state.q.dtype, structured)
    stepper = eqx.tree_at(lambda s: s.scheme, stepper, scheme)
    if not is_switched(system, state.t, state.q, state.v):
        return stepper
    if controller is not None:
        raise ValueError(
            "A system with a `switch` needs fixed steps: leave out `stepsize_controller`."
        )
    return SwitchingStepper(inner=stepper)  # type: ignore


def judged_start(
    stepper: AbstractStepper, y: Any, t0: RealScalarLike, tolerance: Float[Array, ""]
) -> RESULTS:
    """Whether a motion can start with y: finite, consistent to `tolerance`, and with a symmetric
    mass matrix."""
    system, q, v = stepper.system(y), y[0], y[1]
    M = jax.tree.leaves(mass_matrix(system, q))[0]  # an array, or that of the blocks
    asymmetry = jnp.max(jnp.abs(M - jnp.swapaxes(M, 0, 1)))
    symmetric = asymmetry <= 1e-6 * jnp.max(jnp.abs(M))
    violation = jnp.concatenate([positions(system, t0, q), velocities(system, t0, q, v)])
    rigid = stepper.problem.enforcement.rigid
    consistent = jnp.all(jnp.abs(violation) <= tolerance) | (not rigid)
    return first_failure(
        RESULTS.where(finite((q, v, M, violation)), RESULTS.successful, RESULTS.nonfinite_state),
        RESULTS.where(symmetric, RESULTS.successful, RESULTS.mass_matrix_indefinite),
        RESULTS.where(consistent, RESULTS.successful, RESULTS.inconsistent_start),
        stepper.start_result(t0, q, v, tolerance),
    )

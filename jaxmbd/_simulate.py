"""`simulate`: from a system and a state to a motion."""

import functools
from typing import Annotated, Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp

from ._adaptive import integrate_adaptive, with_array_tolerances
from ._checks import check_no_nan, with_dtype
from ._constraints import positions, velocities
from ._enforcement.base import AbstractEnforcement
from ._enforcement.energy_account import AccountingStepper
from ._enforcement.projection import Projection
from ._enforcement.stepping import AbstractStepper, Problem
from ._fixed import integrate_fixed
from ._inputs import at_least, checked, not_negative_or_infinite, positive, traced_in_range
from ._loop import one_by_one
from ._progress import compiling
from ._raising import raise_failure
from ._results import RESULTS, first_failure
from ._saving import make_grid, make_saving
from ._setup import judged_start, stepper_of
from ._solution import ContactLoads, Solution
from ._system import AbstractSystem, State
from ._types import Control, RealScalarLike


@checked
def simulate(
    system: AbstractSystem,
    enforcement: AbstractEnforcement,
    state: State,
    t1: RealScalarLike | None = None,
    dt: Annotated[RealScalarLike | None, positive] = None,
    *,
    t0: float | None = None,
    num_steps: Annotated[int | None, at_least(1)] = None,
    scheme: diffrax.AbstractSolver | None = None,
    control: Control | None = None,
    projection: Projection | None = None,
    saveat: diffrax.SaveAt = diffrax.SaveAt(t1=True),
    stepsize_controller: diffrax.AbstractStepSizeController | None = None,
    adjoint: diffrax.AbstractAdjoint = diffrax.RecursiveCheckpointAdjoint(),
    progress: diffrax.AbstractProgressMeter = diffrax.NoProgressMeter(),
    start_tolerance: Annotated[RealScalarLike, not_negative_or_infinite] = 1e-3,
    drift_tolerance: Annotated[RealScalarLike | None, not_negative_or_infinite] = None,
    energy_tolerance: Annotated[RealScalarLike | None, not_negative_or_infinite] = None,
    max_steps: Annotated[int, at_least(1)] = 100_000,
    throw: bool = True,
) -> Solution:
    """Integrate

        M(q) v' = f(t, q, v, u) + J^T lam,    q' = N(q) v,    Phi(q, t) = 0,    Psi(q, v, t) = 0

    from `state` to `t1`, in steps of `dt`. The call compiles once for each combination of types
    and sizes; new values of parameters, states or controls cause no second compilation. It works
    inside `jax.jit`, `jax.vmap`, `jax.grad` and `jax.jacfwd`.

    **Arguments:**

    - `system`, `enforcement`: what moves, and how its constraints are enforced.
    - `state`: where it starts, from `assemble` or `State(t, q, v)`.
    - `t1`: final time [s]. `dt`: step [s], the first one if adaptive. The number of steps follows
      from them and must be known when tracing; with `num_steps` given instead of `t1`, `dt` may
      be a traced value.
    - `t0`: start time; only needed when `state.t` is traced, e.g. a state that came into a jitted
      function as an argument.
    - `scheme`: any `diffrax` solver of one vector field. Default `RK4()` for continuous methods,
      `diffrax.Tsit5()` if adaptive, `diffrax.Euler()` for v* of the velocity-level ones.
    - `control`: u = control(t, q, v), any pytree of arrays that is callable.
    - `projection`: a `Projection` after each step.
    - `saveat`: which times to keep: `t0`, `t1`, `ts`, `steps` (every, or every n-th), and `fn(t,
      state, system)` to keep something else than the states. Times between steps are reached by
      a shorter step from the grid, to full order; when adaptive, by the scheme's interpolation.
    - `stepsize_controller`: e.g. `diffrax.PIDController(rtol=..., atol=...)` for adaptive steps.
    - `adjoint`: `diffrax.RecursiveCheckpointAdjoint()` (default; at fixed steps it also supports
      forward mode), `diffrax.DirectAdjoint()` (no checkpoints: more memory, less time),
      `diffrax.ForwardMode()` (if nothing is saved between start and end, another number of steps
      compiles nothing anew).
    - `progress`: a diffrax progress meter, e.g. `diffrax.TqdmProgressMeter()`. With one, a line
      says that JAX compiles, and for how long.
    - `start_tolerance`: of |Phi| and |Phi'| at the start, for rigid methods.
    - `drift_tolerance`: of |Phi| at the start of each step; default unlimited. Beyond it the
      integration ends with `RESULTS.drift`.
    - `energy_tolerance`: [J] by how much `mechanical_energy` may be off from what the start had and
      the integral of `supplied_power` and of the power of moving constraints, by the trapezoidal
      rule over the steps. With contacts, rows that switch and compliant ones, which take energy,
      by how much it may have grown beyond that. Fixed steps only; costs about one evaluation of
      the system a step, and nothing by default.
    - `max_steps`: of an adaptive integration.
    - `throw`: raise when `result` is not successful; with `False` it is returned as data, one
      verdict for each sample of a batch. Within your own `jax.jit`, see `raise_if_failed`.

    **Returns:** a `Solution`.

    **Raises:** `ValueError` for wrong shapes, steps or options, for more steps than can be counted
    and more saved numbers than the memory holds, at trace time; a run-time error
    when the result is not successful and `throw` is true.
    """
    check_no_nan(system=system, control=control, enforcement=enforcement, state=state)
    controller = stepsize_controller
    if isinstance(controller, diffrax.ConstantStepSize):
        controller = None
    if energy_tolerance is not None and controller is not None:
        raise ValueError(
            "`energy_tolerance` needs fixed steps: leave out `stepsize_controller`, or look at "
            "`mbd.audit` of the solution."
        )
    start, dtype, adaptive = state.t if t0 is None else t0, state.q.dtype, controller is not None
    grid = make_grid(start, t1, dt, num_steps, dtype, adaptive=adaptive)
    saving = make_saving(saveat, grid)
    saving.check_fits(state, system, max_steps if adaptive else grid.steps)

    silent = isinstance(progress, diffrax.NoProgressMeter)
    # Reverse mode and places for what is saved on the way need a length that is compiled in.
    any_length = isinstance(adjoint, diffrax.ForwardMode) and saving.ends_only and silent

    def as_array(x):
        return None if x is None else jnp.asarray(x, dtype)

    with compiling("simulate", not silent):
        solution = _simulate(
            with_dtype(Problem(system, enforcement, control, projection), dtype),
            scheme,
            tuple(with_dtype(x, x.dtype) for x in (state.q, state.v)),
            grid.as_arrays(dtype, length=any_length),
            as_array(start_tolerance),
            as_array(drift_tolerance),
            as_array(energy_tolerance),
            saving,
            with_array_tolerances(controller, dtype),
            adjoint,
            progress,
            max_steps,
            traced_in_range(system, enforcement, projection),
        )
    return raise_failure(solution, solution.result) if throw else solution


@eqx.filter_jit
def _simulate(
    problem,
    scheme,
    start,
    grid,
    start_tolerance,
    drift_tolerance,
    energy_tolerance,
    saving,
    controller,
    adjoint,
    progress,
    max_steps,
    in_range,
):
    q, v = start
    # What the functions of the system return is looked at here, where it takes time but once.
    stepper: Any = stepper_of(problem, State(grid.t0, q, v), scheme, controller)
    if energy_tolerance is not None:
        stepper = AccountingStepper(stepper, energy_tolerance)  # pyright: ignore[reportCallIssue]
    y, scheme_state = stepper.start(grid.t0, grid.dt, q, v)
    at_start = judged_start(stepper, y, grid.t0, start_tolerance)
    if in_range is not None:
        allowed = RESULTS.where(in_range, RESULTS.successful, RESULTS.invalid_parameter)
        at_start = first_failure(at_start, allowed)
    if controller is None:
        fixed = functools.partial(integrate_fixed, adjoint=adjoint, progress=progress)
        operands = stepper, y, scheme_state, at_start, grid, drift_tolerance, saving
        if isinstance(progress, diffrax.NoProgressMeter):
            t, ys, result, stats = one_by_one(fixed, *operands)
        else:
            t, ys, result, stats = fixed(*operands)
    else:
        t, ys, result, stats = integrate_adaptive(
            stepper, y, grid, drift_tolerance, saving, controller, adjoint, progress, max_steps
        )
        result = first_failure(at_start, result)
    if saving.fn is None:
        return observed(stepper, t, ys, stats, result)
    return Solution(t, None, None, None, None, None, ys, stats, result)


def observed(stepper: AbstractStepper, t, ys, stats, result) -> Solution:
    """The solution with the states ys at the times t."""

    def largest(x):
        return jnp.max(jnp.abs(x), initial=0.0)

    def observe(t, y):
        system, q, v = stepper.system(y), y[0], y[1]
        phi, phidot = positions(system, t, q), velocities(system, t, q, v)
        return stepper.multipliers(t, y), largest(phi), largest(phidot)

    lam, phi_norm, phidot_norm = jax.vmap(observe)(t, ys)
    force, residual = stepper.contacts(ys)
    tally, loads = stepper.tally(ys), None
    if tally is not None:
        mean = jax.vmap(lambda tally: tally.mean())(tally)
        loads = ContactLoads(tally.impulse, mean, tally.peak)
    return Solution(
        t,
        ys[0],
        ys[1],
        lam,
        phi_norm,
        phidot_norm,
        None,
        stats,
        result,
        contact_force=force,
        contact_residual=residual,
        contact_loads=loads,
        active=stepper.active(ys),
    )

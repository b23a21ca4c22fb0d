"""`simulate`: the motion of a system from a given state."""

import functools
from typing import Annotated, Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._checks import check_no_nan, with_dtype
from .._compiler import compiled_quickly, is_known, is_silent, loop, one_by_one, refuted, tree_where
from .._equations import specialised
from .._inputs import at_least, checked, not_negative_or_infinite, positive, traced_in_range
from .._methods import AbstractEnforcement, Projection, StepperState
from .._progress import compiling, says_when_traced
from .._raising import error_if, raise_failure
from .._results import RESULTS, first_failure
from .._step import Sampled, Stepper, checked_start, turning
from .._system import AbstractSystem, State
from .._types import Control, Coordinates, RealScalarLike, Velocity
from .adaptive import check_adaptive, integrate_adaptive, with_array_tolerances
from .grid import Grid, LoopOptions, Saving, make_grid, make_saving
from .observers import EnergyAccount, RequestedTimes, Saved
from .solution import ContactLoads, PieceLoads, Solution

# Contacts that are named in a message.
_NAMED = 5


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

    - `system`, `enforcement`: the system, and the method that enforces its constraints.
    - `state`: the initial state, from `assemble` or `State(t, q, v)`.
    - `t1`: final time [s]. `dt`: step [s]; the first step if steps are adaptive. The number of
      steps follows from both and must be known when tracing. With `num_steps` in place of `t1`,
      `dt` may be traced.
    - `t0`: start time. It is needed only if `state.t` is traced, for instance if the state is an
      argument of a jitted function.
    - `scheme`: any `diffrax` solver of one vector field. Default `RK4()` for continuous methods,
      `diffrax.Tsit5()` if adaptive, `diffrax.Euler()` for v* of the velocity-level ones.
    - `control`: u = control(t, q, v), any pytree of arrays that is callable.
    - `projection`: a `Projection` after each step.
    - `saveat`: the times to save: `t0`, `t1`, `ts`, `steps` (every step, or every n-th); and `fn(t,
      state, system)`, a function to save in place of the states. Times between steps are reached by
      a shorter step from the grid, to full order. With adaptive steps they are interpolated by the
      scheme.
    - `stepsize_controller`: e.g. `diffrax.PIDController(rtol=..., atol=...)` for adaptive steps.
    - `adjoint`: `diffrax.RecursiveCheckpointAdjoint()` (default; at fixed steps it also supports
      forward mode), `diffrax.DirectAdjoint()` (no checkpoints: more memory, less time),
      `diffrax.ForwardMode()` (a new number of steps needs no compilation if nothing is saved
      between start and end).
    - `progress`: a diffrax progress meter, e.g. `diffrax.TqdmProgressMeter()`. It also shows a line
      while JAX compiles.
    - `start_tolerance`: the largest |Phi| and |Phi'| at the start, for rigid methods.
    - `drift_tolerance`: the largest |Phi| at the start of each step; default unlimited. Beyond it
      the integration ends with `RESULTS.drift`.
    - `energy_tolerance`: the largest error of the energy balance [J]; default unlimited.
      `mechanical_energy` is compared with its initial value plus the integral of `supplied_power`
      and of the power of moving constraints, by the trapezoidal rule over the steps. If there are
      contacts, rows that switch or compliant rows, which dissipate energy, then only a gain of
      energy counts as an error. For fixed steps only. It costs about one evaluation of the system
      per step.
    - `max_steps`: the largest number of adaptive steps.
    - `throw`: raise an error if `result` is not successful. With `False` the result is returned as
      data, one verdict for each sample of a batch. Inside your own `jax.jit`, see
      `raise_if_failed`.

    **Returns:** a `Solution`.

    **Raises:** at trace time, `ValueError` for wrong shapes, steps or options, for too many steps
    to count and for more saved numbers than fit into the memory; at run time, an error if the
    result is not successful and `throw` is true.
    """
    says_when_traced("simulate")
    check_no_nan(system=system, control=control, enforcement=enforcement, state=state)
    controller = stepsize_controller
    if isinstance(controller, diffrax.ConstantStepSize):
        controller = None
    if energy_tolerance is not None and controller is not None:
        raise ValueError(
            "`energy_tolerance` needs fixed steps: leave out `stepsize_controller`, or look at "
            "`mbd.reports.audit` of the solution."
        )
    start, dtype, adaptive = state.t if t0 is None else t0, state.q.dtype, controller is not None
    grid = make_grid(start, t1, dt, num_steps, dtype, adaptive=adaptive)
    saving = make_saving(saveat, grid)
    saving.check_fits(state, system, max_steps if adaptive else grid.steps)

    silent = is_silent(progress)
    # Reverse mode and arrays of saved data need a compiled-in length.
    any_length = isinstance(adjoint, diffrax.ForwardMode) and saving.ends_only and silent

    def as_array(x):
        return None if x is None else jnp.asarray(x, dtype)

    # Here the numbers of the system are known, unless they are differentiated.
    system = specialised(system)
    stepper = Stepper(system, enforcement, scheme, projection, as_array(drift_tolerance))
    if controller is not None:
        check_adaptive(stepper)
    if isinstance(control, Sampled):
        check_sampling(control, grid.dt, adaptive)
    if throw and state.angles is None:
        check_overlaps(system, enforcement, start, state.q, start_tolerance)
    with compiling("simulate", not silent):
        solution = _simulate(
            with_dtype(stepper, dtype),
            with_dtype(control, dtype),
            _Start(
                with_dtype(state.q, dtype),
                with_dtype(state.v, state.v.dtype),
                as_array(start_tolerance),
                with_dtype(state.angles, dtype),
                with_dtype(state.z, dtype),
                traced_in_range(system, system.contact_law, enforcement, projection),
            ),
            grid.as_arrays(dtype, length=any_length),
            saving,
            as_array(energy_tolerance),
            None if controller is None else with_array_tolerances(controller, dtype),
            LoopOptions(adjoint, progress, max_steps),
        )
    return raise_failure(solution, solution.result) if throw else solution


class _Start(NamedTuple):
    """Coordinates and velocities, to what tolerance they satisfy the constraints, the counted
    angles and the internal states, if they are given, and whether traced parameters are in their
    ranges."""

    q: Coordinates
    v: Velocity
    tolerance: Any
    angles: Float[Array, " angles"] | None
    z: Float[Array, " nz"] | None
    in_range: Array | None


@eqx.filter_jit
def _simulate(
    stepper: Stepper, control, start: _Start, grid, saving, energy_tolerance, controller, options
):
    state = checked_start(stepper, grid.t0, *start)
    if isinstance(control, Sampled):
        state = control.begun(state)
    if controller is None:
        fixed = functools.partial(integrate_fixed, options=options)
        if is_silent(options.progress):
            fixed = functools.partial(one_by_one, fixed)
        t, saved, result, stats = fixed(stepper, control, state, grid, saving, energy_tolerance)
    else:
        t, saved, result, stats = integrate_adaptive(
            stepper, control, state, grid, saving, controller, options
        )
    if saving.fn is None:
        return observed(stepper, control, saved, stats, result)
    return Solution(t, None, None, None, None, None, saved, stats, result)


class _Carry(NamedTuple):
    """The carry of the loop, with the number of good steps (`done`) and the states at requested
    times."""

    here: Saved
    account: EnergyAccount | None
    done: Array
    requested: Any


def integrate_fixed(
    stepper: Stepper,
    control: Control | None,
    start: StepperState,
    grid: Grid,
    saving: Saving,
    energy_tolerance: Float[Array, ""] | None,
    options: LoopOptions,
) -> tuple[Float[Array, " ns"], PyTree, RESULTS, dict[str, PyTree]]:
    """(saved times, saved outputs, result, statistics)."""
    whole, aligned, dt = grid.whole, grid.aligned, jnp.asarray(grid.dt)
    requested = RequestedTimes(saving, grid)

    def advanced(h, carry):
        old = carry.here.state
        state, account = stepper.step(old, h, control), carry.account
        if account is not None:
            problem = stepper.problem(state, control)
            account, verdict = account.after(problem, state, state.t - old.t, energy_tolerance)
            result = first_failure(state.result, verdict)
            good = result == RESULTS.successful
            state = state.replace(result=result).held(good, old)
            account = tree_where(good, account, carry.account)
        good = state.result == RESULTS.successful
        done = carry.done + jnp.where(good, 1, 0)
        return _Carry(carry.here.after(state, good), account, done, carry.requested)

    def arrived(i, carry):
        """Saving at grid point i, before the step from there."""
        kept = requested.remember(i, carry.here, carry.requested)
        here = carry.here.reset(requested.is_next(i))
        if saving.every:
            here = here.reset(i % saving.every == 0)
        return carry._replace(here=here, requested=kept)

    account = None
    if energy_tolerance is not None:
        account = EnergyAccount.initial(stepper.problem(start, control), start)
    first = Saved.initial(start)
    carry, on_the_way = loop(
        lambda i, carry: advanced(dt, arrived(i, carry)),
        _Carry(first, account, jnp.array(0), requested.room(first)),
        whole,
        output=(lambda carry: saving.output(stepper, carry.here)) if saving.every else None,
        every=max(saving.every, 1),
        checkpoint=not isinstance(options.adjoint, diffrax.DirectAdjoint | diffrax.ForwardMode),
        checkpoint_body=not stepper.has_checkpoints(start.q.dtype),
        meter=options.progress,
    )
    carry = arrived(whole, carry)
    if not aligned:
        carry = advanced(grid.t1 - carry.here.state.t, carry)
    end = carry.here.state
    result = first_failure(end.result, stepper.end_result(end))

    last = Saved(end.replace(t=grid.t1), carry.here.tally)
    pieces = []
    if saving.t0:
        pieces.append(_one(saving.output(stepper, first)))
    if saving.ts is not None:
        ys = requested.reach(stepper, control, carry.requested, result == RESULTS.successful)
        pieces.append(jax.vmap(lambda kept: saving.output(stepper, kept))(ys.at))
        # The last requested time has already counted the first part of its step. Do not count that
        # part twice.
        part = jax.tree.map(lambda x: x[-1], ys.part)
        last = last.reset(True).spanning(last, part)
    if saving.every:
        pieces.append(on_the_way)
    if saving.t1 and not (saving.every and aligned and whole % saving.every == 0):
        pieces.append(_one(saving.output(stepper, last)))
    t, ys = jax.tree.map(lambda *x: jnp.concatenate(x), *pieces)
    stats = {"num_steps": carry.done}
    if end.contacts is not None and end.contacts.unlocated is not None:
        stats["unlocated_steps"] = end.contacts.unlocated
    return t, ys, result, stats


def _one(tree: PyTree) -> PyTree:
    """The same arrays with a leading axis of length 1."""
    return jax.tree.map(lambda x: jnp.asarray(x)[None], tree)


def observed(stepper: Stepper, control: Control | None, saved: Saved, stats, result) -> Solution:
    """The solution with the saved states."""

    def largest(x):
        return jnp.max(jnp.abs(x), initial=0.0)

    def observe(state):
        problem = stepper.problem(state, control)
        phi = problem.equations.positions(state.t, state.q)
        phidot = problem.equations.velocities(state.t, state.q, state.v)
        here = turning(problem.system, state.q, state.v)
        angles = None if here is None else here.angle
        lam = problem.enforcement.multipliers(problem, state)
        return lam, largest(phi), largest(phidot), angles

    states, tally, loads, of_pieces = saved.state, saved.tally, None, None
    lam, phi_norm, phidot_norm, angles = jax.vmap(observe)(states)
    contacts = states.contacts
    if tally is not None:
        found = tally.impulse, jax.vmap(lambda tally: tally.mean())(tally), tally.peak
        if contacts is None or contacts.load is None:
            loads = ContactLoads(*found)
        else:
            of_pieces = PieceLoads(*(x[..., 0] for x in found))
    return Solution(
        states.t,
        states.q,
        states.v,
        lam,
        phi_norm,
        phidot_norm,
        None,
        stats,
        result,
        contact_force=None if contacts is None else contacts.force,
        contact_pairs=None if contacts is None else contacts.pairs,
        contact_residual=None if contacts is None else contacts.residual,
        contact_loads=loads,
        piece_loads=of_pieces,
        active=states.active,
        angles=angles,
        z=states.z,
    )


def check_sampling(control: Sampled, dt: Any, adaptive: bool) -> None:
    """**Raises:** `ValueError` for a sampled control that does not fit to the steps."""
    if adaptive:
        raise ValueError("A `Sampled` control needs fixed steps: leave out `stepsize_controller`.")

    def fits(period, dt):
        return np.abs(period / dt - np.round(period / dt)) < 1e-3

    if refuted(fits, control.period, dt):
        raise ValueError(
            f"The `period` of the Sampled control, {float(control.period):.6g} s, must be a whole "
            f"multiple of the step, which is {float(dt):.6g} s."
        )


def check_overlaps(
    system: AbstractSystem,
    enforcement: AbstractEnforcement,
    t: RealScalarLike,
    q: Array,
    tolerance: Any,
) -> None:
    """**Raises** an error that names the rigid contacts that overlap at a concrete start by more
    than the tolerance, among them limits of joints. A traced start is judged by the first step."""
    if not enforcement.unilateral or not is_known((system, t, q, tolerance)):
        return
    gap = _gap(system, np.asarray(t, q.dtype), q)
    if not is_known(gap):  # a caller is being traced
        return
    gap = np.asarray(gap)
    if not np.any(gap < -tolerance):  # NaN has a verdict of its own
        return
    said = system._overlaps(q, gap, float(tolerance))
    if not said:
        return
    more = f"; and {len(said) - _NAMED} more" if len(said) > _NAMED else ""
    message = (
        "In the initial state contacts overlap, or joints are outside of their limits, by more "
        f"than `start_tolerance`, {float(tolerance):.4g}: {'; '.join(said[:_NAMED])}{more}. Move "
        "the joints within their limits and the bodies apart (`mbd.place_bodies`), or raise "
        "`start_tolerance`: the first step then removes the overlap."
    )
    error_if(gap, True, 0, [message])


@compiled_quickly
def _gap(system, t, q):
    return system.gap(q, t)

"""`simulate`: from a system and a state to a motion."""

import math
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from ._checks import check_no_nan, check_positive, check_system, floats_to_arrays, is_concrete
from ._constraints import positions, velocities
from ._enforcement.base import AbstractContinuousEnforcement, AbstractEnforcement
from ._enforcement.projection import Projection
from ._enforcement.stepping import (
    AbstractStepper,
    Problem,
    constrained_field,
    corrected_step,
    make_stepper,
)
from ._loop import loop
from ._results import RESULTS, first_failure
from ._schemes import RK4, default_tolerances, with_tolerances
from ._solution import Solution
from ._system import AbstractSystem, State
from ._types import Control, RealScalarLike

# Times within this fraction of a step of a grid point are that grid point.
_ON_GRID = 1e-6


def simulate(
    system: AbstractSystem,
    enforcement: AbstractEnforcement,
    state: State,
    t1: RealScalarLike | None = None,
    dt: RealScalarLike | None = None,
    *,
    t0: float | None = None,
    num_steps: int | None = None,
    scheme: diffrax.AbstractSolver | None = None,
    control: Control | None = None,
    projection: Projection | None = None,
    saveat: diffrax.SaveAt = diffrax.SaveAt(t1=True),
    stepsize_controller: diffrax.AbstractStepSizeController | None = None,
    adjoint: diffrax.AbstractAdjoint = diffrax.RecursiveCheckpointAdjoint(),
    progress: diffrax.AbstractProgressMeter = diffrax.NoProgressMeter(),
    start_tolerance: ArrayLike = 1e-3,
    drift_tolerance: ArrayLike | None = None,
    max_steps: int = 100_000,
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
    - `scheme`: any `diffrax` solver for ordinary differential equations. Default `RK4()` for
      continuous methods, `diffrax.Euler()` for v* of the velocity-level ones.
    - `control`: u = control(t, q, v), any pytree of arrays that is callable.
    - `projection`: a `Projection` after each step.
    - `saveat`: which times to keep: `t0`, `t1`, `ts`, `steps` (every, or every n-th), and `fn(t,
      state, system)` to keep something else than the states. Times between steps are reached by
      a shorter step from the grid, to full order; when adaptive, by the scheme's interpolation.
    - `stepsize_controller`: e.g. `diffrax.PIDController(rtol=..., atol=...)` for adaptive steps.
    - `adjoint`: `diffrax.RecursiveCheckpointAdjoint()` (default; at fixed steps it also supports
      forward mode), `diffrax.DirectAdjoint()` (no checkpoints: more memory, less time),
      `diffrax.ForwardMode()`.
    - `progress`: a diffrax progress meter, e.g. `diffrax.TqdmProgressMeter()`.
    - `start_tolerance`: of |Phi| and |Phi'| at the start, for rigid methods.
    - `drift_tolerance`: of |Phi| at the start of each step; default unlimited.
    - `max_steps`: of an adaptive integration.
    - `throw`: raise when `result` is not successful; with `False` it is returned as data, one
      verdict for each sample of a batch.

    **Returns:** a `Solution`.

    **Raises:** `ValueError` for wrong shapes, steps or options, at trace time; a run-time error
    when the result is not successful and `throw` is true.
    """
    system = floats_to_arrays(system, state.q.dtype)
    check_system(system, control, state.q, state.v)
    check_no_nan(system=system, control=control, enforcement=enforcement, state=state)
    start, steps, dt, t1 = _grid(state, t1, dt, t0, num_steps)
    saving = _saving(saveat, start, t1)
    dtype = state.q.dtype
    rtol, atol = default_tolerances(dtype)
    if isinstance(stepsize_controller, diffrax.PIDController):
        rtol, atol = stepsize_controller.rtol, stepsize_controller.atol
    adaptive = not isinstance(stepsize_controller, diffrax.ConstantStepSize | None)
    problem = Problem(system, enforcement, control, projection)
    stepper = make_stepper(problem, scheme, RK4())
    stepper = eqx.tree_at(lambda s: s.scheme, stepper, with_tolerances(stepper.scheme, rtol, atol))
    if adaptive and not isinstance(enforcement, AbstractContinuousEnforcement):
        raise ValueError(
            f"`{type(enforcement).__name__}` advances by an impulse a step and has no error "
            "estimate: leave out `stepsize_controller`, or use a continuous method such as "
            "`mbd.UdwadiaKalaba()`."
        )
    limit = jnp.asarray(jnp.inf if drift_tolerance is None else drift_tolerance, dtype)
    return _simulate(
        stepper,
        (state.q, state.v),
        jnp.asarray(start, dtype),
        jnp.asarray(t1, dtype),
        jnp.asarray(dt, dtype),
        (jnp.asarray(start_tolerance, dtype), limit),
        saving,
        stepsize_controller if adaptive else None,
        steps,
        adjoint,
        progress,
        max_steps,
        throw,
    )


class _Saving(eqx.Module):
    """`SaveAt` in the terms of this module. `aligned`: t1 is a grid point."""

    t0: bool
    t1: bool
    ts: Any
    every: int
    fn: Any


def _grid(state, t1, dt, t0, num_steps):
    """(start, number of whole steps or None, dt, t1)."""
    start = state.t if t0 is None else t0
    if num_steps is None:
        if t1 is None or dt is None:
            raise ValueError("Give `t1` and `dt`, or `dt` and `num_steps`.")
        for name, x, remedy in (
            ("state.t", start, "pass `t0=` as a number, or `num_steps=` instead of `t1`"),
            ("t1", t1, "pass `num_steps=` instead"),
            ("dt", dt, "pass `num_steps=` instead of `t1`"),
        ):
            if not is_concrete(x):
                raise ValueError(
                    f"`{name}` is traced, so the number of steps is not known when compiling: "
                    f"{remedy}."
                )
        check_positive("dt", dt)
        if not float(t1) > float(start):
            raise ValueError(f"Argument `t1` must be after the start {start}, but is {t1}.")
        return start, (float(t1) - float(start)) / float(dt), dt, t1
    if t1 is not None or dt is None:
        raise ValueError("With `num_steps` give `dt` and leave out `t1`.")
    if num_steps < 1:
        raise ValueError(f"Argument `num_steps` must be at least 1, but is {num_steps}.")
    check_positive("dt", dt)
    return start, float(num_steps), dt, start + num_steps * dt


def _saving(saveat, start, t1) -> _Saving:
    if saveat.dense or saveat.solver_state or saveat.controller_state or saveat.made_jump:
        raise ValueError(
            "Of `diffrax.SaveAt`, simulate supports t0, t1, ts, steps and fn; for dense output "
            "save more times."
        )
    sub = saveat.subs
    if not isinstance(sub, diffrax.SubSaveAt):
        raise ValueError("`saveat` must save something, and not be a tree of `SubSaveAt`.")
    if sub.ts is not None and sub.steps:
        raise ValueError("Give either `ts` or `steps` to `SaveAt`, not both.")
    if sub.ts is not None and all(map(is_concrete, (sub.ts, start, t1))):
        ts = np.asarray(sub.ts)
        slack = 1e-6 * abs(float(t1) - float(start))
        if np.any(np.diff(ts) < 0) or ts[0] < start - slack or ts[-1] > t1 + slack:
            raise ValueError(
                f"`SaveAt(ts=...)` must increase within [{start}, {t1}], but runs from {ts[0]} to "
                f"{ts[-1]}."
            )
    fn = None if sub.fn is diffrax.SubSaveAt(t1=True).fn else sub.fn
    return _Saving(sub.t0, sub.t1, sub.ts, sub.steps, fn)


@eqx.filter_jit
def _simulate(
    stepper, start, t0, t1, dt, tolerances, saving, controller, steps, adjoint, progress, *rest
):
    max_steps, throw = rest
    q, v = start
    y, scheme_state = stepper.start(t0, dt, q, v)
    at_start = _judge_start(stepper.problem, t0, q, v, tolerances[0])

    if controller is not None:
        save, t, ys, result, stats = _adaptive(
            stepper, y, t0, t1, dt, saving, controller, adjoint, progress, max_steps
        )
        result = first_failure(at_start, result)
    else:
        save, t, ys, result, stats = _fixed(
            stepper, y, scheme_state, at_start, t0, t1, dt, tolerances[1], saving, steps,
            adjoint, progress,
        )  # fmt: skip
    solution = _solution(stepper, save, t, ys, stats, result)
    if throw:
        solution = result.error_if(solution, result != RESULTS.successful)
    return solution


def _judge_start(problem: Problem, t0, q, v, tolerance) -> RESULTS:
    M = problem.system.mass_matrix(q)
    symmetric = jnp.max(jnp.abs(M - M.T)) <= 1e-6 * jnp.max(jnp.abs(M))
    violation = jnp.concatenate(
        [positions(problem.system, t0, q), velocities(problem.system, t0, q, v)]
    )
    consistent = jnp.all(jnp.abs(violation) <= tolerance) | (not problem.enforcement.rigid)
    finite = jnp.all(jnp.isfinite(M)) & jnp.all(jnp.isfinite(violation)) & _finite((q, v))
    ok = RESULTS.successful
    return first_failure(
        RESULTS.where(finite, ok, RESULTS.nonfinite_state),
        RESULTS.where(symmetric, ok, RESULTS.mass_matrix_indefinite),
        RESULTS.where(consistent, ok, RESULTS.inconsistent_start),
    )


def _finite(tree) -> Any:
    leaves = jax.tree.leaves(tree)
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))


def _fixed(
    stepper: AbstractStepper, y, scheme_state, result, t0, t1, dt, limit, saving, steps, adjoint,
    progress,
):  # fmt: skip
    whole = math.floor(steps + _ON_GRID)
    aligned = abs(steps - whole) <= _ON_GRID
    save = _default_save if saving.fn is None else _user_save(stepper, saving.fn)

    # Times asked for are reached from the grid point before them. Each such point is kept in a
    # buffer as the loop comes by: `slot[i]` is its place, or one past the end.
    ts = saving.ts
    buffer, slot = None, None
    if ts is not None:
        ts = jnp.asarray(ts, dt.dtype)
        before = jnp.clip(jnp.floor((ts - t0) / dt + _ON_GRID), 0, whole).astype(jnp.int32)
        slot = (
            jnp.full(whole + 1, ts.shape[0], jnp.int32)
            .at[before]
            .set(jnp.arange(ts.shape[0], dtype=jnp.int32))
        )
        buffer = jax.tree.map(lambda x: jnp.zeros((ts.shape[0], *x.shape), x.dtype), y)

    def remember(i, y, buffer):
        if buffer is None:
            return None
        return jax.tree.map(lambda b, x: b.at[slot[i]].set(x, mode="drop"), buffer, y)

    def body(i, carry):
        y, scheme_state, result, done, buffer = carry
        buffer = remember(i, y, buffer)
        step = stepper.step(t0 + i * dt, t0 + (i + 1) * dt, y, scheme_state)
        within = jnp.all(step.start_phi <= limit)
        result = first_failure(
            result,
            step.result,
            RESULTS.where(within, RESULTS.successful, RESULTS.drift),
            RESULTS.where(_finite(step.y), RESULTS.successful, RESULTS.nonfinite_state),
        )
        good = result == RESULTS.successful
        y = jax.tree.map(lambda new, old: jnp.where(good, new, old), step.y, y)
        return y, step.scheme_state, result, done + good, buffer

    carry = (y, scheme_state, _as_array(result), jnp.array(0), buffer)
    carry, saved = loop(
        body,
        carry,
        whole,
        output=(lambda carry: carry[0]) if saving.every and saving.fn is None
        else (lambda carry: save(t0 + carry[3] * dt, carry[0])) if saving.every else None,
        every=max(saving.every, 1),
        checkpoint=not isinstance(adjoint, diffrax.DirectAdjoint | diffrax.ForwardMode),
        meter=progress,
    )  # fmt: skip
    last, scheme_state, result, done, buffer = carry
    end = last
    if not aligned:
        held = result == RESULTS.successful
        step = stepper.step(t0 + whole * dt, t1, last, scheme_state)
        end = jax.tree.map(lambda new, old: jnp.where(held, new, old), step.y, last)
        good = RESULTS.where(_finite(step.y), RESULTS.successful, RESULTS.nonfinite_state)
        result = first_failure(result, step.result, good)

    pieces = []
    if saving.t0:
        pieces.append(_single(t0, save(t0, y)))
    if ts is not None:
        buffer = remember(whole, last, buffer)

        def reach(t, k):
            y = jax.tree.map(lambda b: b[slot[k]], buffer)
            grid = t0 + k * dt
            ahead = (t - grid > _ON_GRID * dt) & (result == RESULTS.successful)
            moved = stepper.between(grid, dt, jnp.where(ahead, t, grid + 0.5 * dt), y)
            return save(t, jax.tree.map(lambda a, b: jnp.where(ahead, a, b), moved, y))

        pieces.append((ts, jax.vmap(reach)(ts, before)))
    if saving.every:
        times = t0 + dt * jnp.arange(saving.every, whole + 1, saving.every)
        pieces.append((times, saved))
    if saving.t1 and not (saving.every and aligned and whole % saving.every == 0):
        pieces.append(_single(t1, save(t1, end)))
    t, ys = jax.tree.map(lambda *x: jnp.concatenate(x), *pieces)
    return saving.fn, t, ys, result, {"num_steps": done + (not aligned)}


def _single(t, y):
    return jax.tree.map(lambda x: x[None], (t, y))


def _default_save(t, y):
    del t
    return y


def _user_save(stepper, fn):
    return lambda t, y: fn(t, State(t, y[0], y[1]), stepper.problem.system)


def _as_array(result: RESULTS) -> RESULTS:
    """The same member, as an array that a loop can carry."""
    return RESULTS.where(jnp.array(True), result, RESULTS.successful)


class _Corrected(diffrax.AbstractWrappedSolver):
    """`corrected_step` as a diffrax solver, for adaptive steps of any length."""

    solver: diffrax.AbstractSolver

    @property
    def term_structure(self):
        return self.solver.term_structure

    @property
    def interpolation_cls(self):  # pyright: ignore
        return self.solver.interpolation_cls

    @property
    def root_finder(self):
        return self.solver.root_finder  # pyright: ignore

    @property
    def root_find_max_steps(self):
        return self.solver.root_find_max_steps  # pyright: ignore

    def order(self, terms):
        return self.solver.order(terms)

    def error_order(self, terms):
        return self.solver.error_order(terms)

    def init(self, terms, t0, t1, y0, args):
        return self.solver.init(terms, t0, t1, y0, args)

    def func(self, terms, t0, y0, args):
        return self.solver.func(terms, t0, y0, args)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        del terms, made_jump
        problem, _ = args
        y, error, dense, solver_state, result, _ = corrected_step(
            problem, self.solver, t0, t1, y0, solver_state
        )
        # diffrax knows only its own members; which one of ours it was is found at the end.
        verdict = diffrax.RESULTS.where(
            result == RESULTS.successful,
            diffrax.RESULTS.successful,
            diffrax.RESULTS.internal_error,
        )
        return y, error, dense, solver_state, verdict


def _adaptive(stepper, y, t0, t1, dt, saving, controller, adjoint, progress, max_steps):
    problem = stepper.problem
    save = _default_save if saving.fn is None else _user_save(stepper, saving.fn)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(constrained_field),
        _Corrected(stepper.scheme),
        t0,
        t1,
        dt,
        y,
        (problem, jax.tree.map(jnp.zeros_like, y)),
        saveat=diffrax.SaveAt(
            t0=saving.t0,
            t1=saving.t1,
            ts=saving.ts,
            steps=saving.every,
            fn=lambda t, y, args: save(t, y),
        ),
        stepsize_controller=controller,
        adjoint=adjoint,
        progress_meter=progress,
        max_steps=max_steps,
        throw=False,
    )
    t, ys = solution.ts, solution.ys
    result = RESULTS.promote(solution.result)
    return saving.fn, t, ys, result, solution.stats


def _solution(stepper: AbstractStepper, fn, t, ys, stats, result) -> Solution:
    if fn is not None:
        return Solution(t, None, None, None, None, None, ys, stats, result)
    system = stepper.problem.system

    def observe(t, y):
        q, v = y[0], y[1]
        return (
            stepper.multipliers(t, y),
            _largest(positions(system, t, q)),
            _largest(velocities(system, t, q, v)),
        )

    lam, phi, phidot = jax.vmap(observe)(t, ys)
    return Solution(t, ys[0], ys[1], lam, phi, phidot, None, stats, result)


def _largest(x):
    return jnp.max(jnp.abs(x), initial=0.0)

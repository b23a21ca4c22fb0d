"""Integration with adaptive steps, by diffrax."""

from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._checks import with_dtype
from .._methods import (
    SimulationProblem,
    StepperState,
    constrained_field,
    corrected_step,
    point,
)
from .._results import RESULTS, first_failure, of_scheme
from .._step import Stepper, counted, near, with_scheme
from .._system import State
from .._types import Control, DType, RealScalarLike
from .grid import Grid, LoopOptions, Saving
from .observers import Saved


def check_adaptive(stepper: Stepper) -> None:
    """Check that the method and the scheme have an error estimate.

    **Raises:** `ValueError`."""
    enforcement, scheme = stepper.enforcement, stepper.scheme
    if not enforcement.continuous:
        raise ValueError(
            f"`{type(enforcement).__name__}` has no error estimate: leave out "
            "`stepsize_controller`, or use a continuous method such as `mbd.UdwadiaKalaba()`."
        )
    if scheme is not None and not isinstance(scheme, diffrax.AbstractAdaptiveSolver):
        raise ValueError(
            f"`{type(scheme).__name__}` has no error estimate to adapt steps by: use e.g. "
            "`diffrax.Tsit5()`, or `diffrax.HalfSolver` around it."
        )


class _Carried(NamedTuple):
    """What diffrax integrates: `motion`, which is (q, v) or (q, v, z), and the counted angles,
    `None` without any."""

    motion: Any
    angles: Float[Array, " angles"] | None


class _NearAngles(diffrax.AbstractLocalInterpolation):
    """The interpolation of the scheme, with the counted angles at the start of the step."""

    t0: RealScalarLike
    t1: RealScalarLike
    motion: Any
    angles: Float[Array, " angles"] | None

    def evaluate(self, t0, t1=None, left=True):
        motion = self.motion.evaluate(t0, t1, left)
        if t1 is None:
            return _Carried(motion, self.angles)
        return _Carried(motion, jax.tree.map(jnp.zeros_like, self.angles))


class _Corrected(diffrax.AbstractWrappedSolver):
    """`corrected_step` as a diffrax solver, so that the correction uses the actual step. It carries
    the counted angles too."""

    solver: diffrax.AbstractSolver

    @property
    def scan_kind(self):
        return self.solver.scan_kind  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def term_structure(self):
        return self.solver.term_structure

    @property
    def interpolation_cls(self):  # pyright: ignore[reportIncompatibleMethodOverride]
        def interpolation(*, t0, t1, motion, angles):
            inner = self.solver.interpolation_cls(t0=t0, t1=t1, **motion)
            return _NearAngles(t0, t1, inner, angles)

        return interpolation

    @property
    def root_finder(self):
        return self.solver.root_finder  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def root_find_max_steps(self):
        return self.solver.root_find_max_steps  # pyright: ignore[reportAttributeAccessIssue]

    def order(self, terms):
        return self.solver.order(terms)

    def error_order(self, terms):
        return self.solver.error_order(terms)

    def init(self, terms, t0, t1, y0, args):
        return self.solver.init(terms, t0, t1, y0.motion, args)

    def func(self, terms, t0, y0, args):
        return self.solver.func(terms, t0, y0.motion, args)

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        del terms, made_jump
        problem, _ = args
        start, angles = y0
        motion, error, dense, solver_state, result, _ = corrected_step(
            _near(problem, angles), self.solver, t0, t1, start, solver_state
        )
        unsolved = result == RESULTS.implicit_scheme_unsolved
        unsolved = unsolved | (result == RESULTS.dependents_unsolved)
        y, error = _Carried(motion, angles), _Carried(error, jax.tree.map(jnp.zeros_like, angles))
        dense = dict(motion=dense, angles=angles)
        if angles is not None:
            h: Any = t1 - t0
            angles, verdict = counted(problem.system, State(0.0, *motion[:2], angles=angles), h)
            y = _Carried(motion, angles)
            unsolved = unsolved | (verdict != RESULTS.successful)
        # A smaller step may succeed. Not all schemes report the failure to the controller.
        error = jax.tree.map(lambda x: jnp.where(unsolved, jnp.inf, x), error)
        # diffrax accepts only its own verdicts. `_verdict` finds our own reason at the end.
        divergence: Any = diffrax.RESULTS.nonlinear_divergence
        failure = diffrax.RESULTS.where(unsolved, divergence, diffrax.RESULTS.internal_error)
        verdict = diffrax.RESULTS.where(
            result == RESULTS.successful, diffrax.RESULTS.successful, failure
        )
        return y, error, dense, solver_state, verdict


def integrate_adaptive(
    stepper: Stepper,
    control: Control | None,
    start: StepperState,
    grid: Grid,
    saving: Saving,
    controller: diffrax.AbstractStepSizeController,
    options: LoopOptions,
) -> tuple[Float[Array, " ns"], PyTree, RESULTS, dict[str, PyTree]]:
    """(saved times, saved outputs, result, statistics). Times that were not reached have the last
    state."""
    if start.active is not None:
        raise ValueError(
            "A system with a `switch` needs fixed steps: leave out `stepsize_controller`."
        )
    problem = SimulationProblem(stepper.system, stepper.enforcement, control, stepper.projection)
    motion = (start.q, start.v) if start.z is None else (start.q, start.v, start.z)
    y, dtype = _Carried(motion, start.angles), start.q.dtype
    problem = with_scheme(with_dtype(problem, dtype), stepper.scheme, dtype, controller)
    drift_tolerance = stepper.drift_tolerance
    assert problem.scheme is not None

    def output(t, y, args):
        del args
        (q, v, *z), angles = y
        state = StepperState(t, q, v, angles=angles, z=z[0] if z else None)
        return saving.output(stepper, Saved(state, None))[1]

    wanted = diffrax.SubSaveAt(
        t0=saving.t0, t1=saving.t1, ts=saving.ts, steps=saving.every, fn=output
    )
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(_field),
        _Corrected(problem.scheme),
        grid.t0,
        grid.t1,
        grid.dt,
        y,
        (problem, jax.tree.map(jnp.zeros_like, motion[:2])),
        saveat=diffrax.SaveAt(subs=(wanted, diffrax.SubSaveAt(t1=True))),
        stepsize_controller=controller,
        adjoint=options.adjoint,
        event=None if drift_tolerance is None else _on_drift(problem, drift_tolerance),
        progress_meter=options.progress,
        max_steps=options.max_steps,
        throw=False,
    )
    (t, _), (ys, last) = solution.ts, solution.ys  # pyright: ignore[reportGeneralTypeIssues]
    end = jax.tree.map(lambda x: x[-1], last)
    final = output(grid.t1, end, None)

    def hold(saved, final):
        reached = jnp.isfinite(t).reshape(-1, *[1] * final.ndim)
        return jnp.where(reached, saved, final)

    ys = jax.tree.map(hold, ys, final)
    if saving.ts is not None:
        first = int(saving.t0)
        t = t.at[first : first + len(saving.ts)].set(jnp.asarray(saving.ts, t.dtype))
    if saving.fn is None:
        ys = Saved(ys.state.replace(t=t), None)
    result = first_failure(start.result, _verdict(problem, solution.result, grid.t1, *end))
    return t, ys, result, dict(solution.stats)


def _field(t, y, args):
    """The constrained field, for the motion and the counted angles. The scheme knows only the
    motion."""
    if not isinstance(y, _Carried):
        return constrained_field(t, y, args)
    rest = jax.tree.map(jnp.zeros_like, y.angles)
    return _Carried(constrained_field(t, y.motion, args), rest)


def _near(problem: SimulationProblem, angles: Float[Array, " angles"] | None) -> SimulationProblem:
    """The problem with its counted angles near these."""
    if angles is None:
        return problem
    return eqx.tree_at(lambda p: p.system, problem, near(problem.system, angles))


def with_array_tolerances(controller: Any, dtype: DType) -> Any:
    """The same controller with arrays as tolerances. Python numbers would be compiled in."""

    def has_tolerances(x):
        return isinstance(x, diffrax.PIDController)

    def convert(x):
        if not has_tolerances(x):
            return x
        tolerances = (jnp.asarray(x.rtol, dtype), jnp.asarray(x.atol, dtype))
        return eqx.tree_at(lambda c: (c.rtol, c.atol), x, tolerances)

    return jax.tree.map(convert, controller, is_leaf=has_tolerances)


def _on_drift(problem: SimulationProblem, tolerance: RealScalarLike) -> diffrax.Event:
    """The event that ends the integration after a step whose end has |Phi| beyond the tolerance."""

    def drifted(t, y, args, **kwargs):
        del args, kwargs
        (q, *_), angles = y
        return jnp.any(jnp.abs(_near(problem, angles).equations.positions(t, q)) > tolerance)

    return diffrax.Event(drifted)


def _verdict(problem, result, t, motion, angles) -> RESULTS:
    """The verdict on the integration. If one of our steps failed, which diffrax may report only as
    a retried step, the verdict is the reason that is found at the last state. Otherwise it is
    diffrax's result."""
    q, v, *z = motion
    problem = _near(problem, angles)
    problem = problem.holding(z[0]) if z else problem
    enforcement = problem.enforcement
    here = point(problem.equations, problem.control, t, q, v)
    factor = enforcement.factorise(here)
    correction = enforcement.correction(here, factor)
    solved = enforcement.result(here, factor, correction)
    reason = first_failure(problem.system.result(q), solved)
    ours = result == diffrax.RESULTS.internal_error
    verdict = RESULTS.where(ours, RESULTS.nonfinite_state, of_scheme(result))
    # The drift is the only event.
    stopped = result == diffrax.RESULTS.event_occurred
    verdict = RESULTS.where(stopped, RESULTS.drift, verdict)
    explained = (verdict != RESULTS.successful) & (reason != RESULTS.successful)
    return RESULTS.where(explained, reason, verdict)

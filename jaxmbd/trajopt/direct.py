"""Direct transcription, where both the motion and the controls are unknowns."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool

from .._checks import contact_counts
from .._compiler import is_known, need_known, to_jax
from .._equations import equations
from .._inputs import Refusal, checked, shown
from .._linalg import dense
from .._progress import says_when_compiling
from .._results import RESULTS, code
from .._step import is_switched, turning
from .guess import as_guess
from .motion import Trajectory
from .nlp import AbstractNLPSolver, Evaluator, NLPSolution, Uno
from .plan import Plan, make_plan
from .problem import Problem
from .transcribe import Transcribed, transcribe
from .transcriptions import AbstractTranscription, HermiteSimpson


def _pair(duration: Sequence[Any]) -> Sequence[Any]:
    numbers = is_known(duration) and not any(map(np.ndim, duration))
    if not (numbers and len(duration) == 2 and 0 < duration[0] <= duration[1] < np.inf):
        raise Refusal(
            "must be a pair of finite positive bounds, the lower one first, but is "
            f"{shown(duration)}."
        )
    return duration


@checked
@says_when_compiling("transcription")
def transcription(
    problem: Problem,
    guess: Any = None,
    method: AbstractTranscription = HermiteSimpson(),
    *,
    duration: Annotated[Sequence[ArrayLike], _pair] | None = None,
    solver: AbstractNLPSolver = Uno(),
    progress: bool = True,
) -> Plan:
    r"""Optimise the states at all points of the grid together with the controls, by a solver of
    nonlinear programs with sparse exact first and second derivatives. The equations of motion of
    each interval and the constraints Phi = 0, Phi' = 0, Psi = 0 are conditions of the program. So
    they need not hold during the search.

    Choose it for unstable motions, final and path conditions, bounds that are active most of the
    time, and free end times. The guess may be far from the solution, since no simulation has to
    succeed with it. Costs and conditions must be twice differentiable.

    Redundant rows are left out. They are found by the rank of J at the guess. Rows that a final
    condition implies are left out too. `phi_norm` of the plan includes all of these.

    All functions of the program are compiled once. Problems with other numbers in the system,
    start, bounds or duration need no compilation.

    **Arguments:**

    - `problem`: the problem to solve.
    - `guess`: the start of the search: a `Guess` from `mbd.trajopt.interpolated` or `simulated`; a
      `Plan`, also on another grid; or controls of shape `(steps, nu)` or `(nu,)`, or a callable
      (t, q, v) -> u, which are simulated. The default is a path from the start towards the final
      conditions, or the state at the start, repeated, if there are none.
    - `method`: `HermiteSimpson()` (default), `Trapezoidal()` or `DirectMultipleShooting()`.
    - `duration`: the bounds of a free duration [s], for instance `(0.1, 10.0)`. The search starts
      with the duration of the problem, and the grid stretches with it. `running_cost` = 1 gives a
      plan of least time. By default the duration of the problem is fixed.
    - `solver`: `Uno()` (default, needs the extra `trajopt`) or `SciPy()`.
    - `progress`: whether to show a bar.

    **Returns:** a `Plan` with `multipliers`. Its `cost` is the integral by the rule of the method.
    Its `control` is quadratic, linear or constant in each interval, depending on the method. After
    a failure, `result` gives the reason, and `message` gives it in the solver's words.
    Collocation counts no turns: an angle of a spring, a limit, an actuator or a coupling that
    passes half a turn from its `middle` gives `RESULTS.half_turn_passed`.

    For contacts and rows that switch use `DirectMultipleShooting()`, which simulates. Collocation
    has no instants at which velocities jump.

    **Raises:** `ValueError` for a guess or bounds of the wrong shape, and for collocation of a
    system with contacts or switches; `ImportError` if the solver is not installed.
    """
    _check_smooth(problem, method)
    bounds = _duration_bounds(problem, duration)
    transcribed = transcribe(problem, method, as_guess(problem, guess), bounds)
    evaluator = Evaluator(transcribed.program)
    start = evaluator.start
    if np.isfinite(evaluator.objective(start)) and np.isfinite(evaluator.rows(start)).all():
        found = _solve(transcribed, evaluator, solver, progress)
    else:
        message = "The guess has a cost or conditions that are not finite: choose another one."
        found = NLPSolution(start, np.nan, np.inf, 0, RESULTS.failed_start, message)
    return _plan(problem, method, transcribed, found)


def _solve(
    transcribed: Transcribed, evaluator: Evaluator, solver: AbstractNLPSolver, progress: bool
) -> NLPSolution:
    """Solve the program. Guard it against jumps only if necessary, because the guard is not convex
    and makes some searches fail."""
    found = solver.solve(transcribed.program, progress=progress)
    if transcribed.guarded is transcribed.program:
        return found
    jumped = np.any(evaluator.rows(found.x)[transcribed.jumps] > 0)
    if found.result == RESULTS.successful and not jumped:
        return found
    again = solver.solve(transcribed.guarded, progress=progress)
    if jumped or again.result == RESULTS.successful:
        return again
    return found


def _check_smooth(problem: Problem, method: AbstractTranscription) -> None:
    if not method.at_knots:
        return
    system, state = problem.system, problem.state
    contacts = sum(contact_counts(system, state.q, state.v))
    has = f"{contacts} contacts" if contacts else "rows that switch"
    if contacts or is_switched(system, state.t, state.q, state.v):
        raise ValueError(
            f"The system has {has}, at which velocities jump, and `{type(method).__name__}()` has "
            "no such instants: use `mbd.trajopt.DirectMultipleShooting()` with an `enforcement` "
            "for them, or `ilqr`."
        )


def _duration_bounds(problem: Problem, duration) -> tuple[float, float]:
    need_known(
        problem.duration,
        "`transcription` runs a solver that is no part of JAX: call it outside of `jax.jit`, "
        "`jax.vmap` and `jax.grad`.",
    )
    if duration is None:
        return float(problem.duration), float(problem.duration)
    low, high = (float(x) for x in duration)
    return low, high


def _plan(
    problem: Problem, method: AbstractTranscription, transcribed: Transcribed, found: NLPSolution
) -> Plan:
    variables, dtype = transcribed.variables, problem.state.q.dtype
    x = np.asarray(found.x, dtype)
    problem = eqx.tree_at(lambda p: p.duration, problem, jnp.asarray(x[0]))
    q, v, at_knots, lam = variables.split_knot(x[variables.knots()])
    own = variables.split_interval(x[variables.intervals()])
    control = method.control(problem.state.t, problem.dt, at_knots, own[0])
    u = at_knots if method.at_knots else np.concatenate([own[0], own[0][-1:]])
    if not method.at_knots:
        lam = transcribed.dynamics.all_multipliers(problem.times, q, v, u)
    motion = Trajectory(q, v, to_jax(u[:-1]), to_jax(True))
    objective = jnp.asarray(found.objective, dtype)
    plan, multipliers = _judge(
        problem,
        transcribed.dynamics,
        motion,
        lam,
        control,
        (found.result, to_jax(found.iterations)),
        method.at_knots,
    )
    # The cost is integrated by the rule of the method. The last point may have its own control.
    outside = np.maximum(np.asarray(problem.lower) - u, u - np.asarray(problem.upper))
    return dataclasses.replace(
        plan,
        cost=objective,
        bound_violation=jnp.asarray(np.max(outside, initial=0.0)),
        history=to_jax(np.array([found.objective], dtype)),
        multipliers=multipliers,
        message=found.message if int(code(plan.result)) == int(code(found.result)) else "",
    )


@eqx.filter_jit
def _judge(
    problem, dynamics, motion: Trajectory, lam, control, end, at_knots: bool
) -> tuple[Plan, Array]:
    """The plan, and the multipliers of all rows. These have the least norm among those with the
    same reactions J^T lam as the multipliers of the chosen rows."""

    def all_rows(t, q, v, lam):
        J = dense(equations(problem.system).rows(t, q, v).J)
        if J.shape[0] == lam.shape[0]:
            return lam
        return jnp.linalg.pinv(J.T) @ (J[dynamics.rows].T @ lam)

    multipliers = jax.vmap(all_rows)(problem.times, motion.q, motion.v, lam)
    result, iterations = end
    if at_knots:  # simulated intervals count turns themselves
        lost = loses_turns(problem, motion) & (result != RESULTS.failed_start)
        result = RESULTS.where(lost, RESULTS.half_turn_passed, result)
    plan = make_plan(problem, motion, control, result, iterations, jnp.zeros(1))
    return plan, multipliers


# Angles along a collocated motion whose turns its equations do not count.


# The largest advance of an angle between the points of the walk [rad], as in a step.
_QUARTER = math.pi / 2


def loses_turns(problem: Problem, path: Trajectory) -> Bool[ArrayLike, ""]:
    """Whether an angle whose turns are needed passes half a turn from its `middle`, where the
    equations take it for another angle, or moves too fast for its turns to be counted. The walk
    goes along the grid and the middles of its intervals, on the cubic of Hermite-Simpson
    collocation."""
    system, half = problem.system, problem.dt / 2
    start = turning(system, path.q[0], path.v[0])
    if start is None:
        return np.array(False)
    qdot = jax.vmap(system.qdot)(path.q, path.v)
    middles = (path.q[:-1] + path.q[1:]) / 2 + half / 4 * (qdot[:-1] - qdot[1:])
    between = jax.vmap(system.normalise)(middles), (path.v[:-1] + path.v[1:]) / 2
    later = jax.tree.map(
        lambda a, b: jnp.stack([a, b], axis=1).reshape(-1, a.shape[1]),
        between,
        (path.q[1:], path.v[1:]),
    )

    def onwards(angle, point):
        q, v = point
        here, alone = turning(system, q, v, angle), turning(system, q, v)
        assert here is not None and alone is not None
        off = jnp.abs(here.angle - alone.angle) > math.pi
        most = jnp.maximum(jnp.abs(here.angle - angle), jnp.abs(half * here.rate))
        return here.angle, jnp.any(here.needed & (off | (most > _QUARTER)))

    return jnp.any(jax.lax.scan(onwards, start.angle, later)[1])

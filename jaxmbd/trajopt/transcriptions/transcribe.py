"""From a problem and a transcription to a nonlinear program."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..._equations import equations
from ..._tangent_space import displaced
from ..guess import Guess
from ..motion import final_conditions, final_cost, path_conditions
from ..nlp import NonlinearProgram, Term
from ..problem import Problem
from .base import AbstractTranscription, Interval
from .dynamics import Dynamics
from .independent import implied, independent_rows
from .variables import Variables, split

# How much faster than this share of the velocity, and than this at rest [m/s, rad/s], no interval
# may move across the constraints.
_ACROSS, _AT_REST = 0.2, 0.01
# Finite, since solvers complain of rows without bounds.
_NEVER = 1e10


class _Part(eqx.Module):
    """What all functions of the program share."""

    problem: Problem
    transcription: AbstractTranscription
    dynamics: Dynamics
    variables: Variables = eqx.field(static=True)

    def time(self, duration, k):
        return self.problem.state.t + duration * k / self.problem.steps

    def knot(self, z):
        return self.variables.split_knot(z)

    def none(self, x):
        return jnp.zeros((), x.dtype)


class _Interval(_Part):
    """Cost, defects and path rows of one interval."""

    def __call__(self, x, k):
        size = sum(self.variables.knot)
        duration, begin, end, own = split(x, (1, size, size, x.shape[0] - 1 - 2 * size))
        t, h = self.time(duration[0], k), duration[0] / self.problem.steps
        own = self.variables.split_interval(own)
        interval = Interval(t, h, self.knot(begin), self.knot(end), own)
        equations = self.transcription.equations(self.problem, self.dynamics, interval)
        rows = [equations.defects, equations.path]
        if self.dynamics.holonomic.size:
            rows.append(_jump(interval, equations.across))
        return equations.cost, jnp.concatenate(rows)


def _jump(interval, across):
    """A motion may turn along with the constraints, but not jump across them: without this row the
    slack would take a pendulum from its lowest point to its highest in one interval. Of the
    velocity the slack is a small share, of second order in the step."""
    v0, v1 = interval.begin.v, interval.end.v
    allowed = _ACROSS**2 * (v0 @ v0 + v1 @ v1) / 2 + _AT_REST**2
    return (across @ across - allowed)[None]


class _Level(_Part):
    """Phi'' = 0 or Psi' = 0 at a grid point, which determines its multipliers."""

    def __call__(self, x, k):
        knot = self.knot(x[1:])
        return self.none(x), self.dynamics.at(self.time(x[0], k), *knot).level


class _Manifold(_Part):
    """Phi = 0, and Phi' = 0 or Psi = 0, at a grid point."""

    def __call__(self, x, k):
        q, v, *_ = self.knot(x[1:])
        return self.none(x), on_manifold(self.dynamics, self.time(x[0], k), q, v)


class _Path(_Part):
    """Path rows at a grid point, with the control after its unknowns if that is not among them."""

    def __call__(self, x, k):
        z, held = x[1 : 1 + sum(self.variables.knot)], x[1 + sum(self.variables.knot) :]
        q, v, u, _ = self.knot(z)
        u = u if self.transcription.at_knots else held
        return self.none(x), path_conditions(self.problem, self.time(x[0], k), q, v, u)


class _End(_Part):
    """Final cost, final conditions and the manifold at the end; of these, the chosen `rows`."""

    rows: Any

    def __call__(self, x, k):
        q, v, *_ = self.knot(x[1:])
        t = self.time(x[0], k)
        rows = jnp.concatenate(
            [final_conditions(self.problem, t, q, v), on_manifold(self.dynamics, t, q, v)]
        )
        return final_cost(self.problem, t, q, v), rows[self.rows]


def on_manifold(dynamics: Dynamics, t, q, v):
    """Phi, and Phi' or Psi, of the independent rows."""
    phi, velocity = equations(dynamics.system).violation(t, q, v)
    return jnp.concatenate([phi[dynamics.holonomic], velocity[dynamics.rows]])


class Transcribed(NamedTuple):
    """A program, and what its unknowns mean. `guarded`: the same with rows against jumps across the
    constraints, by bounds alone, so that it compiles nothing; `jumps`: those rows."""

    program: NonlinearProgram
    guarded: NonlinearProgram
    jumps: slice
    variables: Variables
    dynamics: Dynamics


def transcribe(
    problem: Problem,
    transcription: AbstractTranscription,
    guess: Guess,
    duration: tuple[Any, Any],
) -> Transcribed:
    """The program whose solution is the plan; `duration`: its bounds [s]."""
    q, v, u = guess
    t = problem.times
    holonomic, rows = independent_rows(problem.system, t, q, v)
    dynamics = Dynamics(problem.system, jnp.asarray(holonomic), jnp.asarray(rows))
    nu, nc = (problem.nu, len(rows)) if transcription.at_knots else (0, 0)
    own = transcription.own(problem, len(holonomic), len(rows))
    variables = Variables(problem.steps, (q.shape[1], v.shape[1], nu, nc), own)
    end = _rows_at_end(problem, dynamics, t[-1], q[-1], v[-1])
    terms = _terms(_Part(problem, transcription, dynamics, variables), end)
    lower, upper = _bounds(problem, transcription, variables, duration)
    start = np.clip(_start(problem, transcription, dynamics, variables, guess), lower, upper)
    guarded = NonlinearProgram(terms, start, lower, upper)
    if not len(holonomic):
        return Transcribed(guarded, guarded, slice(0, 0), variables, dynamics)
    rows = terms[0].lower.shape[0]
    upper = terms[0].upper.at[-1].set(_NEVER)
    program = eqx.tree_at(lambda p: p.terms[0].upper, guarded, upper)
    jumps = slice(rows - 1, rows * problem.steps, rows)
    return Transcribed(program, guarded, jumps, variables, dynamics)


def _terms(part: _Part, rows_at_end: np.ndarray) -> tuple[Term, ...]:
    problem, transcription, variables = part.problem, part.transcription, part.variables
    shared = (problem, transcription, part.dynamics, variables)
    dtype = problem.state.q.dtype
    knots = variables.with_duration(variables.knots())
    numbers = jnp.arange(problem.steps + 1, dtype=dtype)

    def term(fn, index, k, inequalities=0):
        """Rows: first those that are zero, then those that are not positive."""
        total = eqx.filter_eval_shape(fn, jnp.zeros(index.shape[1], dtype), numbers[0])[1].shape[0]
        zero = total - inequalities
        lower = np.concatenate([np.zeros(zero), np.full(inequalities, -np.inf)])
        return Term(fn, index, k, lower, np.zeros(total))

    path = _path_count(problem)
    inside = (path if transcription.holds_control else 0) + (part.dynamics.holonomic.size > 0)
    terms = [
        term(_Interval(*shared), variables.around_intervals(), numbers[:-1], inside),
        term(_End(*shared, jnp.asarray(rows_at_end)), knots[-1:], numbers[-1:]),
    ]
    if part.dynamics.rows.size:
        terms.append(term(_Manifold(*shared), knots[1:-1], numbers[1:-1]))
        if transcription.at_knots:
            terms.append(term(_Level(*shared), knots, numbers))
    if path and transcription.at_knots:
        terms.append(term(_Path(*shared), knots, numbers, path))
    elif path:
        last = np.concatenate([knots[-1:], variables.intervals()[-1:, : problem.nu]], axis=1)
        terms.append(term(_Path(*shared), last, numbers[-1:], path))
    return tuple(terms)


def _path_count(problem: Problem) -> int:
    state, u = problem.state, jnp.zeros(problem.nu, problem.state.q.dtype)
    return eqx.filter_eval_shape(path_conditions, problem, state.t, state.q, state.v, u).shape[0]


def _rows_at_end(problem: Problem, dynamics: Dynamics, t, q, v) -> np.ndarray:
    """Which of the final conditions and the rows of the manifold are kept at the end: a final
    condition on all coordinates repeats what the constraints say."""
    first = eqx.filter_eval_shape(final_conditions, problem, t, q, v).shape[0]
    if not first:
        return np.arange(len(dynamics.holonomic) + len(dynamics.rows))
    return implied(_at_end, 2 * v.shape[0], first, (problem, dynamics, t, q, v))


def _at_end(dx, data):
    problem, dynamics, t, q, v = data
    moved = displaced(problem.system, q, v, dx)
    return jnp.concatenate([final_conditions(problem, t, *moved), on_manifold(dynamics, t, *moved)])


def _bounds(problem, transcription, variables, duration) -> tuple[np.ndarray, np.ndarray]:
    bounds = []
    for value, limit in zip(duration, (problem.lower, problem.upper), strict=True):
        open_side = -np.inf if limit is problem.lower else np.inf
        x = np.full(variables.size, open_side)
        x[0] = value
        knots, own = variables.knots(), variables.intervals()
        nq, nv, nu, _ = variables.knot
        x[knots[0, : nq + nv]] = np.concatenate([problem.state.q, problem.state.v])
        x[knots[:, nq + nv : nq + nv + nu]] = np.asarray(limit)[:nu]
        if transcription.holds_control:
            x[own[:, : problem.nu]] = np.asarray(limit)
        bounds.append(x)
    return bounds[0], bounds[1]


def _start(problem, transcription, dynamics, variables, guess: Guess) -> np.ndarray:
    q, v, u = guess
    lam = dynamics.all_multipliers(problem.times, q, v, u)
    x = np.zeros(variables.size)
    x[0] = problem.duration
    parts = [q, v, u, lam] if transcription.at_knots else [q, v]
    x[variables.knots()] = np.concatenate(parts, axis=1)
    own = np.concatenate(transcription.own_guess(np.asarray(u), np.asarray(lam)), axis=1)
    x[variables.intervals()[:, : own.shape[1]]] = own
    return x

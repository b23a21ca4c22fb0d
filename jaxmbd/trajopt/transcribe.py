"""The nonlinear program of a problem and a transcription."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from .._assemble import assemble
from .._compiler import picked, set_at, to_jax
from .._equations import equations
from .._linalg import dense
from .._results import RESULTS
from .._search import redundancy
from .._system import AbstractSystem
from .._tangent_space import displaced
from .guess import Guess, nearest_root, value_and_slope
from .motion import final_conditions, final_cost, path_conditions
from .nlp import NonlinearProgram, Term
from .problem import Problem
from .transcriptions import AbstractTranscription, Dynamics, Interval, Knot, Variables, split

# The largest velocity across the constraints in an interval, as a share of the velocity, and at
# rest [m/s, rad/s].
_ACROSS, _AT_REST = 0.2, 0.01
# An upper bound that never acts. It is finite, because solvers reject rows without bounds.
_NEVER = 1e10


class _Part(eqx.Module):
    """The data that all functions of the program share."""

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
    """The cost, defects and path rows of one interval."""

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
    """The row that keeps a motion from jumping across the constraints. Without it, the slack could
    take a pendulum from its lowest point to its highest in one interval. In a motion without jumps
    the slack is a small share of the velocity, of second order in the step."""
    v0, v1 = interval.begin.v, interval.end.v
    allowed = _ACROSS**2 * (v0 @ v0 + v1 @ v1) / 2 + _AT_REST**2
    return (across @ across - allowed)[None]


class _AtKnot(_Part):
    """Rows at a grid point, `rows(dynamics, t, knot)`."""

    rows: Callable[[Dynamics, Array, Knot], Array]

    def __call__(self, x, k):
        return self.none(x), self.rows(self.dynamics, self.time(x[0], k), self.knot(x[1:]))


def _level(dynamics: Dynamics, t: Array, knot: Knot) -> Array:
    """Phi'' = 0 or Psi' = 0, which determine the multipliers of the point."""
    return dynamics.at(t, *knot).level


def _manifold(dynamics: Dynamics, t: Array, knot: Knot) -> Array:
    """Phi = 0, and Phi' = 0 or Psi = 0."""
    return on_manifold(dynamics, t, knot.q, knot.v)


class _Path(_Part):
    """The path rows at a grid point. If the control is not among its unknowns, it follows them."""

    def __call__(self, x, k):
        z, held = x[1 : 1 + sum(self.variables.knot)], x[1 + sum(self.variables.knot) :]
        q, v, u, _ = self.knot(z)
        u = u if self.transcription.at_knots else held
        return self.none(x), path_conditions(self.problem, self.time(x[0], k), q, v, u)


class _End(_Part):
    """The final cost, and the chosen `rows` of the final conditions and the manifold at the end."""

    rows: Int[Array, " kept"]

    def __call__(self, x, k):
        q, v, *_ = self.knot(x[1:])
        t = self.time(x[0], k)
        rows = jnp.concatenate(
            [final_conditions(self.problem, t, q, v), on_manifold(self.dynamics, t, q, v)]
        )
        return final_cost(self.problem, t, q, v), rows[self.rows]


def on_manifold(dynamics: Dynamics, t, q, v):
    """The values of Phi, and Phi' or Psi, of the independent rows."""
    phi, velocity = equations(dynamics.system).violation(t, q, v)
    return jnp.concatenate([phi[dynamics.holonomic], velocity[dynamics.rows]])


class Transcribed(NamedTuple):
    """A program, and the meaning of its unknowns. `guarded`: the program with rows against jumps
    across the constraints, which differs only in bounds and compiles nothing. `jumps`: the rows."""

    program: NonlinearProgram
    guarded: NonlinearProgram
    jumps: slice
    variables: Variables
    dynamics: Dynamics


def transcribe(
    problem: Problem,
    transcription: AbstractTranscription,
    guess: Guess,
    duration: tuple[float, float],
) -> Transcribed:
    """The program whose solution is the plan. `duration`: the bounds of the duration [s]."""
    q, v, _ = guess
    t = problem.times
    holonomic, rows = independent_rows(problem.system, t, q, v)
    dynamics = Dynamics(problem.system, to_jax(holonomic), to_jax(rows))
    nu, nc = (problem.nu, len(rows)) if transcription.at_knots else (0, 0)
    own = transcription.own(problem, len(holonomic), len(rows))
    variables = Variables(problem.steps, (q.shape[1], v.shape[1], nu, nc), own)
    end = _rows_at_end(problem, dynamics, *(picked(x, -1) for x in (t, q, v)))
    terms = _terms(_Part(problem, transcription, dynamics, variables), end)
    lower, upper = _bounds(problem, transcription, variables, duration)
    start = np.clip(_start(problem, transcription, dynamics, variables, guess), lower, upper)
    guarded = NonlinearProgram(terms, start, lower, upper)
    if not len(holonomic):
        return Transcribed(guarded, guarded, slice(0, 0), variables, dynamics)
    rows = terms[0].lower.shape[0]
    upper = set_at(terms[0].upper, -1, _NEVER)
    program = eqx.tree_at(lambda p: p.terms[0].upper, guarded, upper)
    jumps = slice(rows - 1, rows * problem.steps, rows)
    return Transcribed(program, guarded, jumps, variables, dynamics)


def _terms(part: _Part, rows_at_end: np.ndarray) -> tuple[Term, ...]:
    problem, transcription, variables = part.problem, part.transcription, part.variables
    shared = (problem, transcription, part.dynamics, variables)
    dtype = problem.state.q.dtype
    knots = variables.with_duration(variables.knots())
    numbers = np.arange(problem.steps + 1, dtype=dtype)

    def term(fn, index, k, inequalities=0):
        """The term of `fn`. Rows that must be zero come before those that must not be positive."""
        z, at = np.zeros(index.shape[1], dtype), np.zeros((), dtype)
        total = eqx.filter_eval_shape(fn, z, at)[1].shape[0]
        zero = total - inequalities
        lower = np.concatenate([np.zeros(zero), np.full(inequalities, -np.inf)])
        return Term(fn, index, to_jax(k), lower, np.zeros(total))

    path = _path_count(problem)
    inside = (path if transcription.holds_control else 0) + (part.dynamics.holonomic.size > 0)
    terms = [
        term(_Interval(*shared), variables.around_intervals(), numbers[:-1], inside),
        term(_End(*shared, to_jax(rows_at_end)), knots[-1:], numbers[-1:]),
    ]
    if part.dynamics.rows.size:
        terms.append(term(_AtKnot(*shared, _manifold), knots[1:-1], numbers[1:-1]))
        if transcription.at_knots:
            terms.append(term(_AtKnot(*shared, _level), knots, numbers))
    if path and transcription.at_knots:
        terms.append(term(_Path(*shared), knots, numbers, path))
    elif path:
        last = np.concatenate([knots[-1:], variables.intervals()[-1:, : problem.nu]], axis=1)
        terms.append(term(_Path(*shared), last, numbers[-1:], path))
    return tuple(terms)


def _path_count(problem: Problem) -> int:
    state, u = problem.state, np.zeros(problem.nu, problem.state.q.dtype)
    return eqx.filter_eval_shape(path_conditions, problem, state.t, state.q, state.v, u).shape[0]


def _rows_at_end(problem: Problem, dynamics: Dynamics, t, q, v) -> np.ndarray:
    """The final conditions and rows of the manifold that are kept at the end. Some rows are
    redundant: a final condition on all coordinates implies the constraints."""
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


# A solver of nonlinear programs needs independent gradients at the solution. So redundant rows are
# left out, which changes nothing as long as they follow from the others. At the end, the violation
# of a plan also includes the rows that were left out.


def independent(J: np.ndarray, first: int = 0) -> np.ndarray:
    """Indices of a largest set of independent rows of J, by the Gram-Schmidt method with pivoting.
    The first `first` rows are chosen before all others."""
    size = np.linalg.norm(J, axis=1)
    rest = J / np.where(size > 0, size, 1.0)[:, None]
    chosen: list[int] = []
    for group in (range(first), range(first, len(J))):
        while left := [i for i in group if i not in chosen]:
            best = max(left, key=lambda i: np.linalg.norm(rest[i]))
            length = np.linalg.norm(rest[best])
            if length <= redundancy(J.dtype):
                break
            chosen.append(best)
            direction = rest[best] / length
            rest = rest - np.outer(rest @ direction, direction)
    return np.array(sorted(chosen), int)


def independent_rows(system: AbstractSystem, t, q, v) -> tuple[np.ndarray, np.ndarray]:
    """Independent rows of Phi, and of (Phi, Psi) with those first. The rows are chosen where the
    rank is largest, among the states q, v (leading axis) and consistent states near the first one.
    So a start at a dead centre does not decide."""
    holonomic = jax.eval_shape(lambda: equations(system).positions(t[0], q[0])).shape[0]
    push = 0.05 * np.random.default_rng(0).normal(size=(3, v.shape[1]))
    J = np.asarray(_sampled(system, t, q, v, jnp.asarray(push, q.dtype)))
    rank, quality = -1, -1.0
    rows = np.zeros(0, int)
    for sample in J:
        candidate = independent(sample, first=holonomic)
        size = np.linalg.norm(sample[candidate], axis=1, keepdims=True)
        weakest = np.linalg.svd(sample[candidate] / size, compute_uv=False).min(initial=1.0)
        if (len(candidate), weakest) > (rank, quality):
            rank, quality, rows = len(candidate), weakest, candidate
    return rows[rows < holonomic], rows


@eqx.filter_jit
def _sampled(system, t, q, v, push):
    """J at the states, and at consistent states near the first one."""

    def near(dp):
        state = assemble(system, system.retract(q[0], dp), t=t[0], v=v[0], throw=False)
        return state.q, state.report.result == RESULTS.successful

    beside, found = jax.vmap(near)(push)
    count = push.shape[0]
    samples = jnp.concatenate([q, jnp.where(found[:, None], beside, q[:1])])
    times = jnp.concatenate([t, jnp.broadcast_to(t[:1], (count,))])
    speeds = jnp.concatenate([v, jnp.broadcast_to(v[:1], (count, v.shape[1]))])
    return jax.vmap(lambda *x: dense(equations(system).rows(*x).J))(times, samples, speeds)


def implied(
    rows: Callable, size: int, first: int, data: PyTree = None, displacement: float = 0.05
) -> np.ndarray:
    """Indices of rows that imply the others where all rows hold. They are independent, and the
    first `first` rows are chosen before others. A row is also kept if its gradient depends on the
    chosen ones there, but they do not imply it nearby. An example is y = 1, which touches a circle.

    - `rows`: the values as a function of a displacement of shape `(size,)` and of `data`.
    """
    solution = nearest_root(rows, np.zeros(size), data)
    J = np.asarray(value_and_slope(rows, solution, data)[1])
    chosen = independent(J, first)
    # The others must also hold at points near the solution where the chosen rows hold.
    along = np.linalg.svd(J[chosen])[2][len(chosen) :]
    push = np.random.default_rng(0).normal(size=len(along)) @ along
    beside = nearest_root(rows, solution + displacement * push, data, chosen)
    left = np.abs(np.asarray(value_and_slope(rows, beside, data)[0]))
    return np.union1d(chosen, np.flatnonzero(left > 1e-3 * displacement**2))

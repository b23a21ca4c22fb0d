"""Branches of equilibria along a parameter."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree

from .._checks import (
    check_no_frictions,
    check_no_nan,
    check_system,
    contact_counts,
    with_dtype,
)
from .._compiler import need_known, to_jax, without_tangents
from .._inputs import Numbers, Shape, at_least, checked, positive
from .._linalg import AbstractConstraintSolver, Automatic
from .._printed import in_a_line, judged, printed
from .._progress import progress_bar, says_when_compiling
from .._raising import raise_failure
from .._results import RESULTS, succeeded
from .._roots import linearised_by, newton_root, root
from .._step import as_control
from .._system import AbstractSystem, State
from .._types import Coordinates, RealScalarLike, Rows, Velocity
from .statics import Statics, no_negative

# Largest number of Newton steps of one correction, and of those with which the step may grow.
_NEWTON, _EASY = 12, 4
# Factors of the step; the smallest step, as a share of the largest.
_GROW, _SHRINK, _SMALLEST = 1.5, 0.5, 1e-6
# The largest turn of the tangent in one step, as its cosine.
_TURN = 0.95
# A correction of this size, in scaled variables, ends a step.
_LOST = 1e3
# Evaluations to locate a point within a step.
_LOCATING = 40


# The system at a value of the parameter, or the system and its inputs.
SystemFamily = Callable[[Array], AbstractSystem | tuple[AbstractSystem, PyTree]]


@printed
class BranchPoint(NamedTuple):
    """A special point of a branch.

    **Fields:** the `parameter` and the `state` there; the number of the point of the branch that it
    comes `after`; and the `direction` dp of the motion that becomes free, of length 1. The branch
    that crosses at a branch point begins along it."""

    parameter: float
    state: State
    after: int
    direction: Velocity

    def __str__(self) -> str:
        return f"at the parameter {self.parameter:.9g}, after point {self.after} of the branch"


@printed
class Branch(eqx.Module):
    """The result of `continuation`: n equilibria in the order in which they were found.

    **Fields:**

    - `parameter`: `(n,)`; `q`: `(n, nq)`; `multipliers`: `(n, nc)`.
    - `stiffness`: as in `EquilibriumReport`, `(n, nv)`.
    - `limit_points`: where the parameter turns back (folds).
    - `branch_points`: where other branches cross.
    - `t`: the time.
    - `result`: `RESULTS.successful` if the end or a bound was reached. Otherwise
      `RESULTS.continuation_stopped`; the points up to there are valid.
    """

    parameter: Float[Array, " n"]
    q: Float[Array, "n nq"]
    multipliers: Float[Array, "n nc"]
    stiffness: Float[Array, "n nv"]
    limit_points: tuple[BranchPoint, ...]
    branch_points: tuple[BranchPoint, ...]
    t: RealScalarLike
    result: RESULTS

    @property
    def stable(self) -> Bool[Array, " n"]:
        """Whether each equilibrium is stable, as in `EquilibriumReport`."""
        return no_negative(self.stiffness)

    def __str__(self) -> str:
        x, stable = np.asarray(self.parameter), np.asarray(self.stable)
        lines = [
            f"{len(x)} equilibria from {x[0]:.6g} to {x[-1]:.6g}, {stable.sum()} of them stable"
        ]
        points = [("limit point", p) for p in self.limit_points]
        points += [("branch point", p) for p in self.branch_points]
        for kind, point in sorted(points, key=lambda item: item[1].after):
            lines.append(f"{kind} at {point.parameter:.9g}, after point {point.after}")
        return "\n".join(lines)


class Family(eqx.Module):
    """The static problem of a family of systems."""

    family: SystemFamily
    u: PyTree
    t: Float[Array, ""]
    solver: AbstractConstraintSolver

    def statics(self, q: Coordinates, x: Array) -> Statics:
        return Statics(*self.member(x, q.dtype), self.t, self.solver)

    def member(self, x: Array, dtype: jnp.dtype) -> tuple[AbstractSystem, PyTree]:
        """The system at x and its inputs."""
        return with_dtype(_member(self.family, x, self.u), dtype)

    def rates(self, q: Coordinates, p: Velocity, x: Array) -> Velocity:
        """a + c after the displacement p from q."""
        return self.statics(q, x).rates(q, p)


class _Point(NamedTuple):
    """A point of the branch: coordinates, parameter, unit tangent (dp, dx) in scaled variables,
    multipliers, stiffness, a test function that changes its sign at branch points, the direction
    next to the tangent in which the equations are weakest, the number of Newton steps, whether they
    converged."""

    q: Coordinates
    x: Array
    tangent: Float[Array, " n"]
    multipliers: Rows
    stiffness: Float[Array, " nv"]
    crossing: Array
    direction: Velocity
    steps: Array
    ok: Array


@checked
@says_when_compiling("continuation")
def continuation(
    family: SystemFamily,
    state: State,
    start: float,
    end: float,
    u: PyTree = None,
    *,
    step: Annotated[float, positive] = 0.05,
    length: Annotated[float, positive] = 1.0,
    bounds: Annotated[Numbers, Shape([2])] | None = None,
    direction: Float[Array, " nv"] | None = None,
    max_points: Annotated[int, at_least(1)] = 500,
    solver: AbstractConstraintSolver = Automatic(),
    progress: bool = True,
    throw: bool = True,
) -> Branch:
    r"""Follow equilibria while a parameter x changes, also where it has to turn back.

    An equilibrium is a root of $G(q, x) = a + c$, as in `equilibrium`. Each step goes along the
    tangent of the curve $G = 0$ and then back to it, by Newton's method across the tangent
    (pseudo-arclength):

    $$ G = 0, \qquad \tau \cdot (y - y_0 - \tau\, ds) = 0, \qquad
       y = (p / \text{length},\; x / |x_1 - x_0|) . $$

    So limit points are points like others. The step adapts itself to the curvature.

    **Arguments:**

    - `family`: a function of the parameter that returns the system, or the system and its inputs u.
      For a load as the parameter: `lambda load: Truss(load)` or `lambda x: (system, x * pull)`.
    - `state`: an equilibrium at `start`, or a state close to one. Newton's method begins here, so
      the equilibrium may be unstable. From far away, call `equilibrium` first.
    - `start`, `end`: the parameter at the first point and where to stop.
    - `u`: the inputs, if `family` gives none.
    - `step`: the largest step in the scaled variables y.
    - `length`: the displacement [m or rad] that counts as much as all of `end - start`.
    - `bounds`: the smallest and the largest parameter, at which it stops too.
    - `direction`: dp of the first step, by default along the parameter towards `end`. Give that of
      a branch point to follow the branch that crosses there.
    - `max_points`: the largest number of points.
    - `throw`: raise if the branch ends before `end` or a bound is reached.

    **Returns:** a `Branch`. The function runs in Python and cannot be traced: use `limit_point` for
    derivatives of a limit load.

    Limit points are found by a change of sign of dx, and located by `limit_point` to rounding.
    Branch points are found by a change of sign of the determinant of the equations for the tangent,
    and located by bisection. A change of sign shows only an odd number of branches that cross.

    **Raises:** `ValueError` for arguments of wrong shape and for systems with contacts, for which
    there is `limit_load`; an error if the branch ends early and `throw` is true.

    Reference: Keller (1977), Numerical solution of bifurcation and nonlinear eigenvalue problems;
    Seydel (2010), Practical Bifurcation and Stability Analysis, chapters 4 and 5.
    """
    if start == end:
        raise ValueError(f"`end` of continuation must differ from `start`, but both are {start}.")
    need_known(
        (state, u),
        "`continuation` runs in Python and cannot be traced. Use `limit_point` for the derivatives "
        "of a limit load, and `equilibrium` for those of single states.",
    )
    problem, state = family_of(family, state, u, solver, "continuation")
    dtype, nv = state.q.dtype, state.v.shape[0]
    lower, upper = (-np.inf, np.inf) if bounds is None else map(float, np.asarray(bounds))
    if not lower <= start <= upper:
        raise ValueError(f"`start` must be within `bounds`, but is {start} for {lower}, {upper}.")
    scale = np.concatenate([np.full(nv, length), [abs(end - start)]]).astype(dtype)
    along = np.zeros(nv + 1, dtype)
    along[-1] = np.sign(end - start)

    def advanced(
        at: _Point, ds: float, row: ArrayLike | None = None, predicted: ArrayLike | None = None
    ) -> _Point:
        row = at.tangent if row is None else row
        predicted = ds * at.tangent if predicted is None else predicted
        return jax.device_get(_advance(problem, at.q, at.x, at.tangent, scale, row, predicted))

    x0, zero = to_jax(start, dtype), np.zeros(nv + 1, dtype)
    here = jax.device_get(_advance(problem, state.q, x0, along, scale, along, zero))
    if not here.ok:
        raise ValueError(
            "`state` of continuation is not close enough to an equilibrium at `start`: Newton's "
            "method did not converge from it. Call `equilibrium` first."
        )
    here = here._replace(x=x0)  # without rounding
    if direction is not None:
        first = np.concatenate([np.asarray(direction, dtype) / length, [0.0]])
        here = here._replace(tangent=(first / np.linalg.norm(first)).astype(dtype))
    points, folds, crossings = [here], [], []
    ds, reached = float(step), False
    with progress_bar(max_points, "continuation", progress) as bar:
        while len(points) < max_points and not reached:
            new = advanced(here, ds)
            # The first step along a crossing branch has no tangent to compare with.
            fresh = direction is not None and len(points) == 1
            turn = 1.0 if fresh else float(new.tangent @ here.tangent)
            if not new.ok or turn < _TURN:
                ds *= _SHRINK
                if ds < _SMALLEST * step:
                    break
                continue
            goal = _passed(float(here.x), float(new.x), end, lower, upper)
            if goal is not None:
                reached = True
                if goal == float(here.x):
                    break
                part = (goal - float(here.x)) / (float(new.x) - float(here.x))
                predicted = part * ds * np.asarray(here.tangent)
                predicted[-1] = (goal - float(here.x)) / scale[-1]
                new = advanced(here, ds, np.abs(along), predicted)
            if not new.ok:
                reached = False
                break
            span = float(_length(problem, here, new, scale))
            if not fresh:
                if float(new.tangent[-1]) * float(here.tangent[-1]) < 0:
                    fold = _located(
                        lambda s, here=here: advanced(here, s), span, lambda p: p.tangent[-1]
                    )
                    folds.append(_limit_of(problem, fold, len(points) - 1, state))
                elif float(new.crossing) * float(here.crossing) < 0:
                    cross = _located(
                        lambda s, here=here: advanced(here, s), span, lambda p: p.crossing
                    )
                    place = cross.x, cross.q, len(points) - 1, cross.direction
                    crossings.append(_special(state, *place))
            points.append(new)
            here = new
            bar.update(1)
            if int(new.steps) <= _EASY and turn > (1 + _TURN) / 2:
                ds = min(_GROW * ds, step)
    table = [np.stack([np.asarray(p[i]) for p in points]) for i in (1, 0, 3, 4)]
    result = RESULTS.successful if reached else RESULTS.continuation_stopped
    x, q, multipliers, stiffness = map(to_jax, table)
    branch = Branch(x, q, multipliers, stiffness, tuple(folds), tuple(crossings), state.t, result)
    return raise_failure(branch, result) if throw else branch


@checked
def limit_point(
    family: SystemFamily,
    state: State,
    parameter: RealScalarLike,
    u: PyTree = None,
    *,
    max_iterations: Annotated[int, at_least(1)] = 30,
    solver: AbstractConstraintSolver = Automatic(),
    throw: bool = True,
) -> "LimitPoint":
    r"""Find the limit point next to a state: where the parameter x of a branch of equilibria turns
    back, such as the load under which a truss snaps through. Newton's method on

    $$ G(q, x) = 0, \qquad G_p \varphi = 0, \qquad \varphi \cdot \varphi = 1 . $$

    **Arguments:** `family`, `u`, `solver`: as in `continuation`. `state`, `parameter`: where to
    begin, close to the limit point, such as from `Branch.limit_points` or the top of a curve.

    **Returns:** a `LimitPoint`. It can be differentiated with respect to all that `family` depends
    on, in both modes, under `jit` and `vmap`. At branch points it fails.

    **Raises:** `ValueError` for arguments of wrong shape and for systems with contacts; a run-time
    error if Newton's method does not converge and `throw` is true.

    Reference: Moore and Spence (1980), The calculation of turning points of nonlinear equations,
    SIAM J. Numer. Anal. 17, 567-576.
    """
    problem, state = family_of(family, state, u, solver, "limit_point")
    x = jnp.asarray(parameter, state.q.dtype)
    found = _limit_point(problem, state.q, state.v, x, max_iterations)
    return raise_failure(found, found.result) if throw else found


@printed
class LimitPoint(eqx.Module):
    """The result of `limit_point`: the `parameter` and the `state` there; the `direction` dp in
    which the system snaps, of length 1; and the `result`, `RESULTS.successful` or
    `RESULTS.limit_point_not_found`."""

    parameter: Float[Array, ""]
    state: State
    direction: Velocity
    result: RESULTS

    def __str__(self) -> str:
        found = f"limit point found, at the parameter {in_a_line(self.parameter)}"
        return judged(self.result, found, "no limit point found")


def _member(family: SystemFamily, x: Array, u: PyTree) -> tuple[Any, PyTree]:
    """What the family returns at x, not checked yet, and the inputs."""
    found = family(x)
    return found if isinstance(found, tuple) else (found, u)


def family_of(
    family: SystemFamily,
    state: State,
    u: PyTree,
    solver: AbstractConstraintSolver,
    caller: str,
    *,
    contacts: bool = False,
) -> tuple[Family, State]:
    """The family and the state at rest, after checks. `contacts`: whether they are allowed."""
    check_no_nan(state=state, u=u)
    dtype = state.q.dtype
    member, _ = eqx.filter_eval_shape(
        lambda x: _member(family, x, u), jax.ShapeDtypeStruct((), dtype)
    )
    if not isinstance(member, AbstractSystem):
        raise ValueError(
            f"`family` of {caller} must return a system, or a system and its inputs, but returns "
            f"{member!r}."
        )

    def checks(x):
        system, inputs = with_dtype(_member(family, x, u), dtype)
        check_system(system, as_control(inputs, dtype), state.q, state.v)
        check_no_frictions(system, state.q, state.v)
        gaps, _ = contact_counts(system, state.q, state.v)
        if gaps and not contacts:
            raise ValueError(
                f"`{caller}` does not look at contacts, and the system has some: use `limit_load`."
            )
        return x

    jax.eval_shape(checks, jax.ShapeDtypeStruct((), dtype))
    t = to_jax(state.t, dtype)
    state = State(state.t, state.q, to_jax(np.zeros(state.v.shape, dtype)))
    return Family(family, with_dtype(u, dtype), t, solver), state


@eqx.filter_jit
def _advance(problem: Family, q, x, before, scale, row, predicted) -> _Point:
    """Newton's method from the displacement `predicted` of scaled (p, x), across `row`. The new
    tangent has the orientation of the tangent `before`."""
    nv = scale.shape[0] - 1
    scale, row, predicted = map(jnp.asarray, (scale, row, predicted))

    def residual(y, d):
        z = (y + d) * scale
        rates = problem.rates(q, z[:nv], x + z[nv])
        return jnp.concatenate([rates, (row @ (y + d - predicted))[None]])

    slopes = linearised_by(residual, nv + 1)
    y, _, size, k = newton_root(slopes, predicted, jnp.add, max_iterations=_NEWTON, lost=_LOST)
    statics = problem.statics(q, x + scale[nv] * y[nv])
    q = statics.system.retract(q, y[:nv] * scale[:nv])
    x = x + scale[nv] * y[nv]
    origin = jnp.zeros_like(y)
    slope = jax.jacfwd(lambda y: problem.rates(q, y[:nv] * scale[:nv], x + scale[nv] * y[nv]))(
        origin
    )
    _, _, right = jnp.linalg.svd(slope, full_matrices=True)
    tangent = right[nv] * jnp.where(right[nv] @ before < 0, -1.0, 1.0)
    square = jnp.concatenate([slope, tangent[None]])
    _, values, weak = jnp.linalg.svd(square)
    crossing = jnp.linalg.slogdet(square)[0] * values[-1]
    # Of the weakest direction, the part across the tangent is the other branch.
    other = weak[-1] - (weak[-1] @ tangent) * tangent
    other = other[:nv] * scale[:nv]
    length = jnp.linalg.norm(other)
    rest = jnp.zeros(nv, q.dtype)
    stiffness = statics.at_rest(q, rest)[4]
    _, _, lam = statics.parts(q, rest)
    ok = (
        (size <= jnp.finfo(q.dtype).eps ** 0.7)
        & jnp.all(jnp.isfinite(y))
        & jnp.all(jnp.isfinite(tangent))
    )
    return _Point(
        q, x, tangent, lam, stiffness, crossing, other / jnp.where(length > 0, length, 1.0), k, ok
    )


def _passed(before: float, x: float, end: float, lower: float, upper: float) -> float | None:
    """The parameter at which to stop between two points, if there is one."""
    if before != end and (before - end) * (x - end) <= 0:
        return end
    return lower if x < lower else upper if x > upper else None


@eqx.filter_jit
def _length(problem: Family, here: _Point, there: _Point, scale: Float[ArrayLike, " n"]) -> Array:
    """The scaled distance along the branch from one point to another."""
    dp = problem.statics(here.q, here.x).system.difference(here.q, there.q)
    moved = jnp.concatenate([dp, (there.x - here.x)[None]]) / scale
    return (there.tangent + here.tangent) @ moved / 2


def _located(advanced: Callable, span: float, value: Callable) -> _Point:
    """The point within the step `span` at which a value vanishes."""

    def at(s):
        return float(value(advanced(s)))

    if at(0.0) * at(span) >= 0:  # within rounding of an end
        return advanced(span)
    accuracy: Any = dict(xtol=1e-14 * abs(span), maxiter=_LOCATING, disp=False)
    return advanced(scipy.optimize.brentq(at, 0.0, span, **accuracy))


def _limit_of(problem: Family, near: _Point, index: int, state: State) -> BranchPoint:
    still = to_jax(np.zeros_like(state.v))
    found = _limit_point(problem, near.q, still, near.x, 30)
    if succeeded(found.result):
        return _special(state, found.parameter, found.state.q, index, found.direction)
    dp = near.tangent[:-1]
    return _special(state, near.x, near.q, index, dp / np.linalg.norm(dp))


def _special(
    state: State, x: np.ndarray | Array, q: ArrayLike, index: int, direction: ArrayLike
) -> BranchPoint:
    there = State(state.t, to_jax(q), to_jax(np.zeros_like(state.v)))
    return BranchPoint(float(x), there, index, to_jax(direction))


@eqx.filter_jit
def _limit_point(given: Family, q, v, x, max_iterations) -> LimitPoint:
    nv, rest = v.shape[0], jnp.zeros_like(v)

    def snapping(at, d):
        q, x, phi = at
        x, phi = x + d[nv], phi + d[nv + 1 :]
        G, along = jax.jvp(lambda p: given.rates(q, p, x), (d[:nv],), (phi,))
        return jnp.concatenate([G, along, (phi @ phi - 1)[None] / 2])

    def moved(at, d):
        q, x, phi = at
        x = x + d[nv]
        return given.statics(q, x).system.retract(q, d[:nv]), x, phi + d[nv + 1 :]

    def size(at, d, _):
        _, x, phi = at
        return jnp.max(jnp.abs(d) / (1 + jnp.abs(jnp.concatenate([rest, x[None], phi]))))

    def weakest():
        """The weakest of the directions that the constraints admit."""
        T, K = given.statics(q, x).at_rest(q, rest)[2:4]
        far = 1e3 * (1 + jnp.linalg.norm(K))
        return jnp.linalg.svd(K + far * (jnp.eye(nv, dtype=q.dtype) - T))[2][-1]

    start = q, x, without_tangents(weakest)
    options: Any = dict(size=size, max_iterations=max_iterations)
    (q, x, phi), left = root(snapping, start, moved, 2 * nv + 1, **options)
    converged = left <= jnp.finfo(q.dtype).eps ** 0.7
    result = RESULTS.where(converged, RESULTS.successful, RESULTS.limit_point_not_found)
    return LimitPoint(x, State(given.t, q, rest), phi, result)

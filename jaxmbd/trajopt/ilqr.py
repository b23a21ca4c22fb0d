"""Iterative LQR of constrained motions, with bounds of the controls."""

import dataclasses
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from .._compiler import to_jax, tree_where
from .._inputs import at_least, checked, not_negative, positive
from .._progress import says_when_compiling
from .._results import RESULTS
from .._search import Monitor, Multipliers, iterate, largest_violation
from .._tangent_space import difference, displaced
from .._types import Control
from .controls import Feedback, Held, Sampled, Saturated, as_control, with_strong_types
from .guess import Guess, as_guess, constant_guess
from .linear_quadratic import (
    AbstractExpansion,
    Change,
    Model,
    SecondOrder,
    best_change,
    model,
    tangent_size,
)
from .motion import Trajectory, advance, augmented_cost, conditions, cost, follow, startable
from .plan import (
    MUCH_GROWTH,
    Plan,
    growth_to_end,
    make_plan,
    with_rounding,
    without_repetition,
)
from .problem import Problem

# The factor of growth, the smallest and the largest value of the regularisation.
_FACTOR, _LEAST, _MOST = 2.0, 1e-8, 1e10
_ARMIJO, _SHORTEST, _MOST_PENALTY = 1e-4, 0.5**12, 1e10
# The tolerance while conditions are violated: relative, and as a share of penalty * violation^2.
_LOOSE, _SHARE = 1e-5, 1e-3


class Options(eqx.Module):
    """Options of `ilqr`. `size` of the tangent space. `limit`: the limit of iterations.
    `otherwise`: what replaces a guess whose motion fails or is unstable."""

    tolerance: Float[Array, ""]
    condition_tolerance: Float[Array, ""]
    limit: Int[Array, ""]
    expansion: AbstractExpansion
    otherwise: Guess | None
    size: int = eqx.field(static=True)


class SearchState(NamedTuple):
    """The state of the search. `split`: whether the points of `path` are not one motion yet.
    `gains`: for (dp, dv), from the last change. `growth`: that of small deviations under these."""

    path: Trajectory
    split: Bool[Array, ""]
    value: Float[Array, ""]
    multipliers: Multipliers
    regularisation: Float[Array, ""]
    factor: Float[Array, ""]
    gains: Float[Array, "n nu nx"]
    growth: Float[Array, ""]
    violation: Float[Array, ""]
    iteration: Int[Array, ""]
    history: Float[Array, " iterations"]
    result: RESULTS
    done: Bool[Array, ""]


@checked
@says_when_compiling("iLQR")
def ilqr(
    problem: Problem,
    guess: Any = None,
    *,
    max_iterations: Annotated[int, at_least(1)] = 300,
    tolerance: Annotated[ArrayLike, not_negative] = 1e-9,
    condition_tolerance: Annotated[ArrayLike, not_negative] = 1e-6,
    penalty: Annotated[ArrayLike, positive] = 10.0,
    expansion: AbstractExpansion = SecondOrder(),
    progress: bool = True,
) -> Plan:
    r"""Minimise the cost of a `Problem` by iterative LQR. Each iteration linearises the discrete
    motion and expands the costs about the last motion,

    $$
    \xi_{k+1} = A_k \xi_k + B_k\,\delta u_k, \qquad
    J \approx \sum_k \text{quadratic}(\xi_k, \delta u_k),
    $$

    solves this problem by dynamic programming, and follows the resulting policy with a line search.
    The displacements xi are coordinates in the admissible tangent space: the changes of (q, v) that
    leave Phi, Phi' and Psi unchanged, in an orthonormal basis at each point of the grid. So loops,
    redundant rows and quaternions need no special treatment, and the time does not depend on the
    choice of coordinates.

    Each step of the dynamic programming satisfies the bounds of u by a small quadratic problem with
    bounds. Controls at a bound have no feedback. `final` and `path` become terms of the cost by the
    method of multipliers, see `mbd.trajopt.Multipliers`.

    The method takes few iterations and returns feedback gains. The time of an iteration grows with
    the cube of the number of admissible directions. With second derivatives of the motion, the
    default, it is Newton's method near the optimum, also called differential dynamic programming.

    **Arguments:**

    - `problem`: the problem to solve.
    - `guess`: controls of shape `(steps, nu)` or `(nu,)`, or a callable (t, q, v) -> u, such as the
      `control` of another plan. They are followed from the start. Or states with their controls: a
      `Guess`, as from `mbd.trajopt.interpolated(problem)`, or a `Plan`. These need not be one
      motion; the search closes the gaps between the points of the grid (multiple shooting). Choose
      them for unstable systems, where the motion under controls alone goes far astray. The default
      is zero controls. If small errors grow more than a hundred times under them, or the motion
      fails, it is the state at the start, repeated.
    - `max_iterations`: the largest number of linearisations in all.
    - `tolerance`: the relative change of the cost below which the search ends.
    - `condition_tolerance`: the tolerance of |final| and of positive entries of `path`.
    - `penalty`: rho of the first round of the method of multipliers. It grows tenfold after each
      round that gains little.
    - `expansion`: `mbd.trajopt.SecondOrder()` or `FirstOrder()`, see there.
    - `progress`: whether to show a bar. Without one, and inside of `jax.jit` and `jax.vmap`, the
      whole search is one compiled loop.

    **Returns:** a `Plan`. Its `control` is a `Feedback` along the motion.

    **Raises:** `ValueError` for a guess of the wrong shape.

    Reference: Tassa, Mansard and Todorov (2014), Control-limited differential dynamic programming,
    ICRA. Multipliers as in Howell, Jackson and Manchester (2019), ALTRO, IROS. Gaps as in Mastalli
    et al. (2020), Crocoddyl, ICRA.
    """
    problem = with_strong_types(problem)
    options = make_options(problem, tolerance, condition_tolerance, max_iterations, expansion)
    if guess is None:
        options = dataclasses.replace(options, otherwise=constant_guess(problem))
    penalty = jnp.asarray(penalty, problem.state.q.dtype)
    first = first_guess(problem, guess)
    state = first_state(problem, first, penalty, None, max_iterations + 1, guess is None)
    # One more iteration may replace the guess, and one computes the gains along the last motion.
    monitor = Monitor("iLQR", max_iterations + 2, _report) if progress else None
    state, _ = iterate(iteration, (problem, options), state, monitor)
    return without_repetition(_plan(problem, state))


def first_guess(problem: Problem, guess: Any) -> Guess | Control:
    """The user's guess as states and controls, or as a control to follow.

    **Raises:** `ValueError` for the wrong shape."""
    if isinstance(guess, Guess | Plan):
        return as_guess(problem, guess)
    return as_control(problem, guess)


def make_options(
    problem: Problem,
    tolerance: ArrayLike,
    condition_tolerance: ArrayLike,
    max_iterations: int,
    expansion: AbstractExpansion,
) -> Options:
    dtype = problem.state.q.dtype
    return Options(
        jnp.asarray(to_jax(tolerance), dtype),
        jnp.asarray(to_jax(condition_tolerance), dtype),
        to_jax(max_iterations),
        expansion,
        None,
        tangent_size(problem),
    )


def _report(state: SearchState) -> str:
    cost = float(state.history[state.iteration])
    return f"cost {cost:.6g}, conditions {float(state.violation):.1e}"


def policy(problem: Problem, state: SearchState) -> Feedback:
    """The feedback along the last motion."""
    path = state.path
    return Feedback(
        problem.system,
        jnp.asarray(problem.state.t),
        problem.dt,
        path.q,
        path.v,
        path.u,
        state.gains,
        problem.lower,
        problem.upper,
    )


@eqx.filter_jit
def _plan(problem: Problem, state: SearchState) -> Plan:
    control, path = policy(problem, state), state.path
    found = with_rounding(path, state.growth, jnp.zeros_like(state.growth))
    return make_plan(problem, path, control, state.result, state.iteration, state.history, found)


@eqx.filter_jit
def first_state(
    problem: Problem,
    guess: Guess | Control,
    penalty: Array,
    multipliers: Multipliers | None,
    room: int,
    replaceable: bool = False,
) -> SearchState:
    """The state before the first iteration. The guess is a control, or states and controls that
    need not be a motion. `multipliers`: those to start with, or `None`. `room`: the length of the
    history. `replaceable`: whether the first iteration replaces a guess that fails."""
    path, split = as_path(problem, guess)
    return state_along(problem, path, split, penalty, multipliers, room, replaceable)


@eqx.filter_jit
def as_path(problem: Problem, guess: Guess | Control) -> tuple[Trajectory, Bool[Array, ""]]:
    """The motion under a control, or the states and controls of a guess, from the start of the
    problem; and whether the latter need not be a motion."""
    if not isinstance(guess, Guess):
        control = Sampled(Saturated(guess, problem.lower, problem.upper))
        return follow(problem, control), jnp.array(False)
    q, v = guess.q.at[0].set(problem.state.q), guess.v.at[0].set(problem.state.v)
    u = jnp.clip(guess.u[:-1], problem.lower[None], problem.upper[None])
    good = startable(problem, problem.times[0], q[0], v[0])
    return Trajectory(q, v, u, good), jnp.array(True)


def state_along(
    problem: Problem,
    path: Trajectory,
    split: Bool[Array, ""],
    penalty: Array,
    multipliers: Multipliers | None,
    room: int,
    replaceable: bool = False,
) -> SearchState:
    """The state before the first iteration along a path, as `first_state` makes it."""
    c, d = conditions(problem, path)
    if multipliers is None:
        multipliers = Multipliers.zeros(c, d, penalty)
    value = augmented_cost(problem, multipliers, path)
    good = (path.good & jnp.isfinite(value)) | replaceable
    return SearchState(
        path=path,
        split=split,
        value=value,
        multipliers=multipliers,
        regularisation=jnp.zeros_like(value),
        factor=jnp.ones_like(value),
        gains=jnp.zeros((*path.u.shape, 2 * path.v.shape[1]), value.dtype),
        growth=jnp.zeros_like(value),
        violation=largest_violation(c, d),
        iteration=jnp.array(0),
        history=jnp.full(room, cost(problem, path)),
        result=RESULTS.where(good, RESULTS.max_iterations_reached, RESULTS.failed_start),
        done=~good,
    )


class _Attempt(NamedTuple):
    """A change of the controls and its effect. `bent`: whether the curvature of the motion is
    included (1 or 0). `concave`: whether the problem had a minimum only after the regularisation
    grew. `vain`: whether a line search failed."""

    change: Change
    path: Trajectory
    split: Bool[Array, ""]
    value: Float[Array, ""]
    regularisation: Float[Array, ""]
    factor: Float[Array, ""]
    bent: Float[Array, ""]
    concave: Bool[Array, ""]
    vain: Bool[Array, ""]
    improved: Bool[Array, ""]
    solved: Bool[Array, ""]


def iteration(args: tuple[Problem, Options], here: SearchState) -> SearchState:
    """Linearise, and improve the motion or replace the guess."""
    problem, options = args
    local = model(problem, here.multipliers, here.path, options.size, options.expansion, here.split)
    if options.otherwise is None:
        return _improved(problem, options, here, local)
    # A motion that has fallen may swing where it ended, and forget the errors that it began with.
    from_start = growth_to_end(jnp.swapaxes(local.A, 1, 2)[::-1])
    unstable = jnp.maximum(growth_to_end(local.A), from_start) > MUCH_GROWTH
    astray = (here.iteration == 0) & ~here.split & (~here.path.good | unstable)
    room = here.history.shape[0]
    again = problem, options.otherwise, here.multipliers.penalty, here.multipliers, room
    return jax.lax.cond(
        astray, lambda: first_state(*again), lambda: _improved(problem, options, here, local)
    )


def _improved(problem: Problem, options: Options, here: SearchState, local: Model) -> SearchState:
    """Change the controls, and adjust the multipliers at the end of a round. At the limit of
    iterations, compute only the gains along the last motion."""
    last = here.iteration >= options.limit
    met = here.violation <= options.condition_tolerance
    attempt = _attempt(problem, here, local, _tolerance(options, here, met), last)
    path, value = attempt.path, attempt.value
    # The round is over if it is solved or makes no more progress.
    stuck = ~attempt.improved & ~attempt.solved
    torn = stuck & here.split
    over = ~attempt.improved & ~last & ~torn

    c, d = conditions(problem, path)
    left = largest_violation(c, d)
    next_round = over & ~met
    multipliers = tree_where(next_round, here.multipliers.next_round(c, d), here.multipliers)
    value = jnp.where(next_round, augmented_cost(problem, multipliers, path), value)
    shrunk = _shrink(attempt.regularisation, attempt.factor)
    regularisation, factor = tree_where(next_round, (0.0, 1.0), shrunk)

    result = RESULTS.where(over & met, RESULTS.successful, here.result)
    result = RESULTS.where(over & met & stuck, RESULTS.stuck, result)
    infeasible = next_round & (multipliers.penalty > _MOST_PENALTY)
    result = RESULTS.where(infeasible, RESULTS.infeasible, result)
    result = RESULTS.where(torn, RESULTS.failed_start, result)
    gains = jnp.einsum("kim,kxm->kix", attempt.change.gains, local.basis[:-1])
    later = jnp.arange(here.history.shape[0]) > here.iteration
    return SearchState(
        path=path,
        split=attempt.split,
        value=value,
        multipliers=multipliers,
        regularisation=regularisation,
        factor=factor,
        # After a failed change keep the old gains, since regularisation has made the new ones tiny.
        gains=jnp.where(stuck & ~last, here.gains, gains),
        growth=growth_to_end(local.A + local.B @ attempt.change.gains),
        violation=left,
        iteration=here.iteration + jnp.where(last, 0, 1),
        history=jnp.where(later, cost(problem, path), here.history),
        result=result,
        done=last | (result != RESULTS.max_iterations_reached),
    )


def _tolerance(options: Options, here: SearchState, met) -> Array:
    """The tolerance of the expected decrease. While conditions are violated, a round need not be
    solved more accurately than they are met."""
    size = 1 + jnp.abs(here.value)
    missing = _SHARE * here.multipliers.penalty * here.violation**2
    loose = jnp.where(met, 0.0, jnp.minimum(_LOOSE * size, missing))
    return jnp.maximum(options.tolerance * size, loose)


def _attempt(problem: Problem, here: SearchState, local: Model, tolerance, last) -> _Attempt:
    """Try changes with more and more regularisation, until one improves the value or none is
    needed. The first ones include the curvature of the motion, the later ones do not.

    While the points are not one motion, the policy is that of the problem without bounds, and only
    the controls on the way are clipped. A control that is computed within its bounds has no
    feedback at a bound. Where errors grow, the motion that closes the gaps would not follow the
    points but fall."""
    u = here.path.u
    lower, upper = problem.lower[None] - u, problem.upper[None] - u
    room = jnp.where(here.split, -jnp.inf, lower), jnp.where(here.split, jnp.inf, upper)

    def body(old: _Attempt) -> _Attempt:
        change = best_change(local, room, here.path.u, old.regularisation, old.bent)
        small = (-(change.linear + change.quadratic) <= tolerance) & ~here.split
        plain = (old.regularisation == 0) | old.concave | old.vain
        solved = change.convex & ((small & plain & ~old.vain) | last)
        tries = change.convex & ~solved & ~small
        path, split, value, improved = _line_search(problem, here, local, change, tries)
        # The decrease may be small only because of the regularisation. Try again with less of it.
        shrink = change.convex & small & ~plain
        again = old.bent == 1
        grown = _grow(old.regularisation, old.factor)
        shrunk = _shrink(old.regularisation, old.factor)
        same = old.regularisation, old.factor
        regularisation, factor = tree_where(
            shrink, shrunk, tree_where(again | improved, same, grown)
        )
        return _Attempt(
            change=change,
            path=path,
            split=split,
            value=value,
            regularisation=jnp.where(solved, old.regularisation, regularisation),
            factor=factor,
            bent=jnp.where(shrink, old.bent, 0.0),
            concave=old.concave | (~change.convex & ~again),
            vain=old.vain | (change.convex & ~improved & ~solved & ~shrink & ~again),
            improved=improved,
            solved=solved,
        )

    def going(attempt: _Attempt):
        return ~attempt.improved & ~attempt.solved & (attempt.regularisation < _MOST)

    one, no = jnp.ones_like(here.value), jnp.array(False)
    m = local.basis.shape[2]
    nothing = Change(
        jnp.zeros_like(here.path.u),
        jnp.zeros((*here.path.u.shape, m), one.dtype),
        jnp.zeros_like(one),
        jnp.zeros_like(one),
        no,
        jnp.zeros_like(one),
    )
    regularisation = jnp.where(last, 0.0, here.regularisation)
    first = _Attempt(
        change=nothing,
        path=here.path,
        split=here.split,
        value=here.value,
        regularisation=regularisation,
        factor=here.factor,
        bent=one,
        concave=no,
        vain=no,
        improved=no,
        solved=no,
    )
    return jax.lax.while_loop(going, body, first)


def _line_search(
    problem: Problem, here: SearchState, local: Model, change: Change, tries: Array
) -> tuple[Trajectory, Array, Array, Array]:
    """Search for the first of the scales 1, 1/2, 1/4, ... that gives enough of the expected
    decrease. Return the motion, whether it is split, its value (or the old ones), and whether a
    scale was found.

    For a split motion, the sum of the gaps is added to the value, at twice the price at which it
    outweighs every change of the cost. So a short step along any change is a sufficient decrease.
    """
    gap = jnp.sum(jnp.abs(local.gaps))

    def going(state):
        scale, *_, improved = state
        return tries & ~improved & (scale >= _SHORTEST)

    def body(state):
        scale, *_ = state
        path = _follow(problem, here.path, local, change, scale)
        value = augmented_cost(problem, here.multipliers, path)
        smooth = -(scale * change.linear + scale**2 * change.quadratic)
        expected = jnp.where(here.split, scale * change.price * gap, smooth)
        gain = here.value - value + 2 * change.price * scale * gap
        enough = (gain >= _ARMIJO * expected) & (gain > 0)
        improved = enough & path.good & jnp.isfinite(value)
        path = tree_where(improved, path, here.path)
        # A full step closes all gaps.
        split = here.split & ~(improved & (scale == 1))
        return scale / 2, path, split, jnp.where(improved, value, here.value), improved

    no = jnp.array(False)
    first = (jnp.ones_like(here.value), here.path, here.split, here.value, no)
    return jax.lax.while_loop(going, body, first)[1:]


def _follow(
    problem: Problem, old: Trajectory, local: Model, change: Change, scale: Array
) -> Trajectory:
    """The motion under the policy of `change`, with the share `scale` of its open part taken and
    of the gaps closed (Mastalli et al. 2020, Crocoddyl, ICRA, equation 12)."""

    def body(carry, knot):
        q, v, good = carry
        t, q_old, v_old, u_old, Z, Z_next, gap, k, K = knot
        xi = Z.T @ difference(problem.system, (q_old, v_old), (q, v))
        u = jnp.clip(u_old + scale * k + K @ xi, problem.lower, problem.upper)
        q, v, reached = advance(problem, t, q, v, Held(u))
        q, v = displaced(problem.system, q, v, -(1 - scale) * (Z_next @ gap))
        return (q, v, good & reached), (q, v, u)

    state, Z = problem.state, local.basis
    knots = (problem.times[:-1], old.q[:-1], old.v[:-1], old.u, Z[:-1], Z[1:], local.gaps)
    (_, _, good), (q, v, u) = jax.lax.scan(
        body, (state.q, state.v, jnp.array(True)), (*knots, change.open, change.gains)
    )
    q, v = jnp.concatenate([state.q[None], q]), jnp.concatenate([state.v[None], v])
    return Trajectory(q, v, u, good)


def _grow(regularisation, factor):
    factor = jnp.maximum(_FACTOR, factor * _FACTOR)
    return jnp.maximum(regularisation * factor, _LEAST), factor


def _shrink(regularisation, factor):
    factor = jnp.minimum(1 / _FACTOR, factor / _FACTOR)
    regularisation = regularisation * factor
    return jnp.where(regularisation > _LEAST, regularisation, 0.0), factor

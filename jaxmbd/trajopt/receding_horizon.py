"""Model predictive control: plan ahead, apply one control, and plan again."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float

from .._checks import check_system, with_dtype
from .._inputs import at_least, checked, not_negative, positive
from .._progress import progress_bar, says_when_compiling
from .._results import RESULTS
from .._search import Multipliers, iterate, redundancy
from .._system import AbstractSystem, State
from .._tangent_space import displaced, state_jacobian, violations
from .controls import Feedback, Held, with_strong_types
from .guess import Guess, as_guess, constant_guess
from .ilqr import Options, as_path, first_guess, iteration, make_options, policy, state_along
from .linear_quadratic import (
    AbstractExpansion,
    SecondOrder,
    gradient_and_hessian,
    is_constrained,
    tangent,
)
from .motion import (
    Trajectory,
    advance,
    conditions,
    cost,
    cost_rate,
    final_conditions,
    final_cost,
    running_cost,
    startable,
)
from .problem import Problem
from .pursuit import Pursuit, Watch

# The limit of a search after another one has converged: so many times the iterations of that one,
# or so many iterations.
_LONGER, _LEAST = 2, 30
# Costs whose difference does not matter.
_EQUAL = 1e-4


class _Here(NamedTuple):
    """The state of the plant."""

    t: Array
    q: Array
    v: Array


class _Found(NamedTuple):
    """What a search found: a policy, unless it did not join the points of its guess. `ends`: the
    final costs of where the plan begins, and of where it ends."""

    policy: Feedback
    multipliers: Multipliers
    cost: Float[Array, ""]
    violation: Float[Array, ""]
    ends: tuple[Array, Array]
    split: Bool[Array, ""]
    result: RESULTS
    iteration: Array


class _Begin(NamedTuple):
    """The beginning of a search: a path, which need not be a motion if it is `split`, and the
    multipliers."""

    path: Trajectory
    split: Bool[Array, ""]
    multipliers: Multipliers


@checked
@says_when_compiling("receding horizon")
def receding_horizon(
    problem: Problem,
    periods: Annotated[int, at_least(1)],
    *,
    plant: AbstractSystem | None = None,
    guess: Any = None,
    max_iterations: Annotated[int, at_least(1)] = 5,
    first_iterations: Annotated[int, at_least(1)] = 300,
    tolerance: Annotated[ArrayLike, not_negative] = 1e-6,
    condition_tolerance: Annotated[ArrayLike, not_negative] = 1e-4,
    penalty: Annotated[ArrayLike, positive] = 10.0,
    expansion: AbstractExpansion = SecondOrder(),
    progress: bool = True,
) -> Pursuit:
    """Control a plant by solving `problem` again in each control interval, from the current state
    of the plant. The first control of each plan is applied for one interval.

    Each search is done by `ilqr`. It starts with the policy of the last plan, followed from the
    current state, with its last interval repeated. The controls alone would not follow an unstable
    motion and would lead the search astray. The horizon recedes with time: costs and conditions are
    functions of the actual time t, and those at the end apply `duration` ahead.

    A search may end in a plan that is far worse than another one, such as one in which a pendulum
    falls and swings about. So the first plan is the cheapest of several searches. They start with
    `guess`; with the start, repeated; with the goal, repeated; and with the motion without control.
    The goal is the state near the start that minimises the costs at the end. A search that starts
    with repeated states follows first the linear-quadratic regulator about them, within the bounds
    of u. If the cost of a later plan jumps, or its search fails, there are searches from several
    guesses again, and the cheapest plan is kept: from the states of the last plan, the state of the
    plant, and the goal. If no plan is found that comes back to the costs of before, the result is
    `RESULTS.astray`.

    **Arguments:**

    - `problem`: the problem at the start. `periods`: the number of periods of `problem.dt` each.
    - `plant`: the real system, with coordinates like `problem.system`; default
      `problem.system`. It is simulated with `problem.enforcement` and `scheme` too.
    - `guess`: the first guess for the first plan, as in `ilqr`; but the default is that of
      `transcription`.
    - `max_iterations`: the limit of each search. `first_iterations`: the limit of those for the
      first plan, and of those from several guesses. After one of them has converged, the others are
      ended at twice its iterations, or at 30.
    - others: as in `ilqr`.

    All searches share one compiled program.

    **Returns:** a `Pursuit`.

    **Raises:** `ValueError` if the plant does not fit the problem.

    Reference: Tassa, Erez and Todorov (2012), Synthesis and stabilization of complex behaviors
    through online trajectory optimization, IROS.
    """
    problem = with_strong_types(problem)
    state, dtype = problem.state, problem.state.q.dtype
    plant = problem.system if plant is None else with_dtype(plant, dtype)
    check_system(plant, Held(jnp.zeros(problem.nu, dtype)), state.q, state.v)
    first = make_options(problem, tolerance, condition_tolerance, first_iterations, expansion)
    options = make_options(problem, tolerance, condition_tolerance, max_iterations, expansion)
    penalty = jnp.asarray(penalty, dtype)
    allowed: Any = condition_tolerance

    def search(here: _Here, options: Options, begin: _Begin) -> _Found:
        return _search(problem, options, penalty, here, begin)

    def searched(here: _Here, begins: Sequence[_Begin], found: list[_Found]) -> list[_Found]:
        for x in begins:
            done = [int(plan.iteration) for plan in found if plan.result == RESULTS.successful]
            # A search that takes far longer than another one has seldom gone to a better minimum.
            limit = max(_LEAST, _LONGER * min(done)) if done else first_iterations
            limited = dataclasses.replace(first, limit=jnp.asarray(min(limit, first_iterations)))
            found = [*found, search(here, limited, x)]
        return found

    here, watch = _Here(jnp.asarray(state.t), state.q, state.v), Watch()
    of_goal = goal(problem, first.size)
    plan = None
    motion, told = [here], []
    with progress_bar(periods, "receding horizon", progress) as bar:
        for _ in range(periods):
            doubted = plan is None
            if plan is None:
                begins = _first_guesses(problem, guess, of_goal, penalty)
                found = searched(here, begins, [])
            else:
                begin = _shifted(problem, penalty, here, plan)
                found = [search(here, options, begin)]
                doubted = watch.doubts(*_told(found[0]))
                if doubted:
                    others = _other_guesses(problem, here, plan, of_goal, begin.multipliers)
                    found = searched(here, others, found)
            best = _cheapest(found, float(allowed))
            failed = best.result == RESULTS.failed_start
            # The policy of before leads on where no search found a motion.
            plan = best if plan is None or not failed else plan
            total, ends, result = _told(best)
            if watch.accept(total, ends, doubted) and not failed:
                result = RESULTS.astray
            here, u, paid, good = _move(problem, plant, here, plan.policy)
            iterations = sum(int(x.iteration) for x in found)
            motion.append(here)
            told.append((u, paid, good, best.cost, result, iterations, len(found)))
            bar.update()
            bar.set_postfix_str(f"{iterations} iterations")
    stack = lambda *x: jnp.asarray(np.stack(x))  # noqa: E731
    t, q, v = jax.tree.map(stack, *motion)
    u, paid, good, costs, result, iterations, searches = jax.tree.map(stack, *told)
    return Pursuit(t, q, v, u, jnp.sum(paid), costs, result, iterations, searches, jnp.all(good))


def _told(plan: _Found) -> tuple[float, tuple[float, float], RESULTS]:
    begins, finishes = plan.ends
    return float(plan.cost), (float(begins), float(finishes)), plan.result


def _cheapest(found: Sequence[_Found], tolerance: float) -> _Found:
    """The best plan: of those that are motions the cheapest that meets the conditions, or else the
    one that violates them least. One that converged is preferred to one that costs as much."""

    def rank(plan: _Found) -> tuple[bool, float, float]:
        total = float(plan.cost)
        failed = bool(plan.split | (plan.result == RESULTS.failed_start)) or not np.isfinite(total)
        return failed, max(float(plan.violation) - tolerance, 0.0), total

    def equal(plan: _Found) -> bool:
        *others, total = rank(plan)
        return tuple(others) == least[:2] and total <= least[2] + _EQUAL * abs(least[2])

    least = min(map(rank, found))
    converged = [x for x in found if equal(x) and x.result == RESULTS.successful]
    return min(converged or found, key=rank)


@eqx.filter_jit
def _search(
    problem: Problem, options: Options, penalty: Array, here: _Here, begin: _Begin
) -> _Found:
    """Plan from here."""
    problem = _from(problem, here)
    # The history is not needed.
    state = state_along(problem, begin.path, begin.split, penalty, begin.multipliers, 1)
    found, _ = iterate(iteration, (problem, options), state, None)
    q, v, end = found.path.q, found.path.v, problem.times[-1]
    ends = final_cost(problem, end, q[0], v[0]), final_cost(problem, end, q[-1], v[-1])
    return _Found(
        policy(problem, found),
        found.multipliers,
        cost(problem, found.path),
        found.violation,
        ends,
        found.split,
        found.result,
        found.iteration,
    )


def _from(problem: Problem, here: _Here) -> Problem:
    return eqx.tree_at(lambda p: p.state, problem, State(here.t, here.q, here.v))


def _first_guesses(problem: Problem, guess: Any, of_goal, penalty: Array) -> list[_Begin]:
    """The beginnings of the searches for the first plan."""
    usual = _usual_guesses(problem, of_goal, penalty)
    if guess is None and problem.final is None:
        return usual  # the default is the start, repeated
    guess = as_guess(problem, None) if guess is None else first_guess(problem, guess)
    path, split = as_path(problem, guess)
    return [_Begin(path, split, usual[0].multipliers), *usual]


@eqx.filter_jit
def _usual_guesses(problem: Problem, of_goal, penalty: Array) -> list[_Begin]:
    """The start, repeated; the goal, repeated; and the motion without control."""
    held = constant_guess(problem)
    paths = [as_path(problem, x) for x in (held, _held(problem, of_goal, held), Held(held.u[0]))]
    multipliers = Multipliers.zeros(*conditions(problem, paths[0][0]), penalty)
    return [_Begin(path, split, multipliers) for path, split in paths]


def _held(problem: Problem, of_goal, held: Guess) -> Guess:
    """The goal, repeated."""
    q, v = (jnp.broadcast_to(x, (problem.steps + 1, *x.shape)) for x in of_goal)
    return Guess(q, v, held.u)


@eqx.filter_jit
def _shifted(problem: Problem, penalty: Array, here: _Here, last: _Found) -> _Begin:
    """The motion under the last policy from here, with its last interval repeated."""
    path, split = as_path(_from(problem, here), last.policy)
    old = last.multipliers
    mu = jnp.concatenate([old.inequality[1:], old.inequality[-1:]])
    multipliers = Multipliers.zeros(old.equality, mu, penalty)
    multipliers = dataclasses.replace(multipliers, equality=old.equality, inequality=mu)
    return _Begin(path, split, multipliers)


@eqx.filter_jit
def _other_guesses(problem, here: _Here, last: _Found, of_goal, multipliers) -> list[_Begin]:
    """The beginnings of searches that may find what the last plan does not lead to: the states of
    the last plan, the state of the plant, and the goal, repeated."""
    problem = _from(problem, here)
    later = lambda x: jnp.concatenate([x[1:], x[-1:]])  # noqa: E731
    nominal = last.policy
    held = constant_guess(problem)
    u = later(nominal.u)
    states = Guess(later(nominal.q), later(nominal.v), jnp.concatenate([u, u[-1:]]))
    paths = [as_path(problem, x) for x in (states, held, _held(problem, of_goal, held))]
    return [_Begin(path, split, multipliers) for path, split in paths]


@eqx.filter_jit
def _move(
    problem: Problem, plant: AbstractSystem, here: _Here, control: Feedback
) -> tuple[_Here, Array, Array, Array]:
    """Move the plant by the first control of the plan."""
    u = control(*here)
    of_plant = eqx.tree_at(lambda p: p.system, problem, plant)
    good = startable(of_plant, *here)
    q, v, reached = advance(of_plant, *here, Held(u))
    paid = running_cost(problem, *here, u)
    return _Here(here.t + problem.dt, q, v), u, paid, good & reached


_ITERATIONS, _SHORTEST = 30, 0.5**8
# The weight of the final conditions, beside costs of the usual sizes.
_WEIGHT = 1e4
# Steps of Newton's method back onto the constraints.
_CORRECTIONS = 3


@eqx.filter_jit
def goal(problem: Problem, size: int) -> tuple[Array, Array]:
    r"""The coordinates and velocities near the start, at rest first, that minimise

    $$ \phi(t_1, q, v) + T \, \ell(t_1, q, v, u_0) + w\, |\mathrm{final}(t_1, q, v)|^2 $$

    on the constraints, with the control u_0 nearest to zero. It is for guesses only: there may be
    no control that holds the system there, and a nearer minimum may be another one.

    Newton's method with a line search, in the `size` admissible directions. Directions along which
    the sum is concave are descended too (Nocedal and Wright 2006, Numerical Optimization, section
    3.4), and those that do not matter are left alone.
    """
    system, t = problem.system, problem.times[-1]
    dtype = problem.state.q.dtype
    u = jnp.clip(jnp.zeros(problem.nu, dtype), problem.lower, problem.upper)

    def value(q, v):
        paid = final_cost(problem, t, q, v) + problem.duration * cost_rate(problem, t, q, v, u)
        return paid + _WEIGHT * jnp.sum(final_conditions(problem, t, q, v) ** 2)

    def corrected(q, v):
        if not is_constrained(problem):
            return q, v

        def back(_, x):
            inverse = jnp.linalg.pinv(state_jacobian(system, t, *x), rtol=redundancy(dtype))
            return displaced(system, x[0], x[1], -inverse @ violations(system, t, *x))

        return jax.lax.fori_loop(0, _CORRECTIONS, back, (q, v))

    def step(q, v):
        Z = tangent(problem, t, q, v, size).Z
        g, H, *_ = gradient_and_hessian(
            lambda xi: (value(*displaced(system, q, v, Z @ xi)), ()), jnp.zeros(size, dtype)
        )
        curvature, along = jnp.linalg.eigh((H + H.T) / 2)
        curvature = jnp.abs(curvature)
        matters = curvature > redundancy(dtype) * jnp.max(curvature, initial=0.0)
        slope = along.T @ g
        return -Z @ (along @ jnp.where(matters, slope / jnp.where(matters, curvature, 1.0), 0.0))

    def body(state):
        q, v, old, dx, scale, count = state
        moved = corrected(*displaced(system, q, v, scale * dx))
        new = value(*moved)
        better = new < old
        q, v = jax.tree.map(lambda a, b: jnp.where(better, a, b), moved, (q, v))
        old = jnp.where(better, new, old)
        dx = jax.lax.cond(better, lambda: step(q, v), lambda: dx)
        return q, v, old, dx, jnp.where(better, 1.0, scale / 2), count + 1

    def going(state):
        *_, scale, count = state
        return (scale > _SHORTEST) & (count < _ITERATIONS)

    q, v = corrected(problem.state.q, jnp.zeros_like(problem.state.v))
    one, nothing = jnp.ones((), dtype), jnp.zeros(2 * v.shape[0], dtype)
    # The first round stays in place and computes the first step.
    first = q, v, jnp.full((), jnp.inf, dtype), nothing, one, jnp.array(0)
    return jax.lax.while_loop(going, body, first)[:2]

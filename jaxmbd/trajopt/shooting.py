"""Direct single shooting: the controls are the unknowns, the motion follows from them."""

from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import ArrayLike

from .._inputs import at_least, checked, not_negative, positive
from .._loop import tree_where
from .._progress import progress_bar, says_when_compiling
from .bounds import AbstractBounds, Squash
from .controls import trainable
from .motion import conditions, cost, follow
from .multipliers import augmented_cost, first_multipliers, violation
from .optimising import AbstractSearch, as_search
from .plan import Plan, make_plan
from .problem import Problem
from .starting import as_control, with_strong_types
from .status import STATUS

_PENALTY_GROWTH = 10.0
# A round that leaves more than this share of the violation is followed by a larger penalty.
_ENOUGH = 0.25


@checked
@says_when_compiling("shooting")
def shooting(
    problem: Problem,
    guess: Any = None,
    optimiser: Any = None,
    *,
    bounds: AbstractBounds | None = None,
    max_iterations: Annotated[int, at_least(1)] = 1000,
    max_rounds: Annotated[int, at_least(1)] = 12,
    tolerance: Annotated[ArrayLike, not_negative] = 1e-6,
    condition_tolerance: Annotated[ArrayLike, not_negative] = 1e-4,
    penalty: Annotated[ArrayLike, positive] = 10.0,
    progress: bool = True,
) -> Plan:
    """Minimise the cost of a `Problem` over the numbers in a control, with gradients by reverse
    mode through the simulation; memory stays small, since few states are kept and the others are
    computed again.

    The control may be a table in time or a policy with parameters, such as a neural network: any
    pytree that is callable as (t, q, v) -> u. Its floating-point arrays are the unknowns.

    Bounds of u are kept by `bounds`. The conditions `final` and `path` become terms of the cost by
    the method of multipliers: each round minimises the cost with these terms, then adjusts them;
    see `mbd.trajopt.Multipliers`.

    It needs nothing but gradients, serves every policy and costs little memory. For controls in a
    table, `mbd.trajopt.ilqr` takes far fewer iterations.

    **Arguments:**

    - `problem`: what to optimise.
    - `guess`: controls of shape `(steps, nu)` or `(nu,)`, or a callable (t, q, v) -> u; zero by
      default.
    - `optimiser`: one of optax, such as `optax.adam(1e-2)` or `optax.lbfgs()`, or a minimiser of
      optimistix; default `optimistix.BFGS(rtol=1e-8, atol=1e-8)`.
    - `bounds`: `mbd.trajopt.Squash()` (default) or `Projected()`.
    - `max_iterations`: of each round. `max_rounds`: of the method of multipliers.
    - `tolerance`: an optimiser of optax ends when a step along the gradient would change no
      unknown by more; those of optimistix have their own.
    - `condition_tolerance`: of |final| and of positive entries of `path`.
    - `penalty`: rho of the first round; each round that gains little takes ten times more.
    - `progress`: show a bar.

    **Returns:** a `Plan`, whose `control` is the optimised one, with its bounds.

    **Raises:** `ValueError` for a guess of the wrong shape, an optimiser of no known kind, or
    bounds that do not suit the control.

    Reference: Nocedal and Wright (2006), Numerical Optimization, chapters 6, 7 and 17.
    """
    problem = with_strong_types(problem)
    control, search, bounds = _prepared(problem, guess, optimiser, bounds, tolerance)
    return _search(
        problem,
        control,
        search,
        bounds,
        (max_iterations, max_rounds, penalty, condition_tolerance),
        progress,
        batch=False,
    )


@checked
@says_when_compiling("shooting")
def multi_start(
    problem: Problem,
    guesses: Any,
    optimiser: Any = None,
    *,
    bounds: AbstractBounds | None = None,
    max_iterations: Annotated[int, at_least(1)] = 1000,
    max_rounds: Annotated[int, at_least(1)] = 12,
    tolerance: Annotated[ArrayLike, not_negative] = 1e-6,
    condition_tolerance: Annotated[ArrayLike, not_negative] = 1e-4,
    penalty: Annotated[ArrayLike, positive] = 10.0,
    progress: bool = True,
) -> Plan:
    """`shooting` from several guesses at once, in one batch; `mbd.trajopt.best` picks from them.

    **Arguments:** as of `shooting`, but

    - `guesses`: controls of shape `(starts, steps, nu)`, or a callable all of whose arrays have a
      leading axis of starts, as `eqx.filter_vmap` of its constructor makes it.

    **Returns:** a `Plan` whose every field has the leading axis.
    """
    if callable(guesses):
        leaves = jax.tree.leaves(eqx.filter(guesses, eqx.is_array))
        sizes = {x.shape[0] if x.ndim else None for x in leaves}
        if len(sizes) != 1 or None in sizes:
            raise ValueError(
                "Arrays of a callable in `guesses` must all have one leading axis of starts, but "
                f"have shapes {[x.shape for x in leaves]}."
            )
    elif np.ndim(guesses) != 3:
        raise ValueError(
            f"Argument `guesses` must have shape (starts, {problem.steps}, {problem.nu}), but has "
            f"{np.shape(guesses)}."
        )

    problem = with_strong_types(problem)

    def one(optimiser, guess):
        return _prepared(problem, guess, optimiser, bounds, tolerance)[0]

    _, search, bounds = _prepared(problem, None, optimiser, bounds, tolerance)
    controls = _over_starts(one)(optimiser, guesses)
    limits = max_iterations, max_rounds, penalty, condition_tolerance
    return _search(problem, controls, search, bounds, limits, progress, batch=True)


@checked
def best(plans: Plan) -> Plan:
    """The plan of lowest cost among those of a batch that converged, or if none did, the one that
    violates its conditions least."""
    if np.ndim(plans.cost) != 1:
        raise ValueError(
            "Argument `plans` of best must be a batch of plans, as `mbd.trajopt.multi_start` makes "
            f"it, but its costs have shape {np.shape(plans.cost)}."
        )
    wrong = np.maximum(np.asarray(plans.final_violation), np.asarray(plans.path_violation))
    converged = np.asarray(plans.status == STATUS.converged)
    costs = np.asarray(plans.cost)
    wrong, costs = (np.where(np.isfinite(x), x, np.inf) for x in (wrong, costs))
    if converged.any():
        index = int(np.argmin(np.where(converged, costs, np.inf)))
    else:
        index = int(np.lexsort((costs, wrong))[0])
    return jax.tree.map(lambda x: x[index], plans)


def _prepared(problem, guess, optimiser, bounds, tolerance):
    bounds = Squash() if bounds is None else bounds
    control = bounds.prepared(problem, as_control(problem, guess))
    optimiser = optx.BFGS(rtol=1e-8, atol=1e-8) if optimiser is None else optimiser
    return control, as_search(optimiser, jnp.asarray(tolerance, problem.dt.dtype)), bounds


class _Loss(eqx.Module):
    """The augmented cost of the unknowns, with (cost, violation) beside it."""

    def __call__(self, unknowns, args):
        problem, rest, multipliers = args
        path = follow(problem, eqx.combine(unknowns, rest))
        value = augmented_cost(problem, multipliers, path)
        return value, (cost(problem, path), violation(problem, path))


def _split(control):
    return eqx.partition(control, trainable(control))


def _first(common, control):
    problem, penalty = common
    path = follow(problem, control)
    value = cost(problem, path)
    return first_multipliers(problem, path, penalty), value, path.good & jnp.isfinite(value)


def _begin(common, varying):
    problem, search = common
    control, multipliers = varying
    unknowns, rest = _split(control)
    return search.begin(_Loss(), unknowns, (problem, rest, multipliers))


def _step(common, varying):
    """One step of the optimiser; of a sample that is done, nothing changes."""
    problem, search, bounds = common
    control, multipliers, state, aux, done = varying
    unknowns, rest = _split(control)

    def project(unknowns):
        return _split(bounds.projected(problem, eqx.combine(unknowns, rest)))[0]

    args = problem, rest, multipliers
    new, new_state, new_aux, now = search.step(_Loss(), unknowns, args, state, project)
    finite = jax.tree.map(lambda x: jnp.all(jnp.isfinite(x)), new)
    held = done | ~jax.tree.reduce(jnp.logical_and, finite, jnp.array(True))
    choose = lambda a, b: jnp.where(held, a, b) if eqx.is_array(a) else b  # noqa: E731
    unknowns, state, aux = jax.tree.map(choose, (unknowns, state, aux), (new, new_state, new_aux))
    return eqx.combine(unknowns, rest), state, aux, done | now | held


def _next_round(common, varying):
    problem, condition_tolerance = common
    control, multipliers, before = varying
    path = follow(problem, control)
    left = violation(problem, path)
    growth = jnp.where(left > _ENOUGH * before, _PENALTY_GROWTH, 1.0)
    updated = multipliers.updated(*conditions(problem, path), growth)
    met = left <= condition_tolerance
    multipliers = tree_where(met, multipliers, updated)
    return multipliers, left, met


def _finish(problem, varying):
    control, good, met, done, iterations, history = varying
    status = STATUS.where(met & done, STATUS.converged, STATUS.running)
    status = STATUS.where(good, status, STATUS.failed_start)
    return make_plan(problem, follow(problem, control), control, status, iterations, history)


def _over_starts(fn):
    return eqx.filter_vmap(fn, in_axes=(None, eqx.if_array(0)))


# Compiled once for all calls.
_PARTS: Any = (_first, _begin, _step, _next_round, _finish)
_SINGLE: Any = [eqx.filter_jit(fn) for fn in _PARTS]
_BATCH: Any = [eqx.filter_jit(_over_starts(fn)) for fn in _PARTS]


def _search(
    problem: Problem,
    control: Any,
    search: AbstractSearch,
    bounds: AbstractBounds,
    limits: tuple,
    progress: bool,
    batch: bool,
) -> Plan:
    max_iterations, max_rounds, penalty, condition_tolerance = limits
    dtype = problem.dt.dtype
    penalty, condition_tolerance = (jnp.asarray(x, dtype) for x in (penalty, condition_tolerance))
    first, begin, step, next_round, finish = _BATCH if batch else _SINGLE
    multipliers, value, good = first((problem, penalty), control)
    before = jnp.full_like(value, jnp.inf)
    history, total = [np.asarray(value)], 0
    met = done = jnp.zeros(good.shape, bool)
    with progress_bar(max_iterations * max_rounds, "shooting", progress) as bar:
        for _ in range(max_rounds):
            state = begin((problem, search), (control, multipliers))
            aux, done = (value, before), met | ~good
            for _ in range(max_iterations):
                control, state, aux, done = step(
                    (problem, search, bounds), (control, multipliers, state, aux, done)
                )
                total += 1
                history.append(np.asarray(aux[0]))
                bar.update()
                cost_now, left = (float(np.min(np.asarray(x))) for x in aux)
                bar.set_postfix_str(f"cost {cost_now:.6g}, conditions {left:.1e}")
                if np.all(np.asarray(done)):
                    break
            multipliers, before, met = next_round(
                (problem, condition_tolerance), (control, multipliers, before)
            )
            value = aux[0]
            if np.all(np.asarray(met | ~good)):
                break
    histories = jnp.asarray(np.moveaxis(np.stack(history), 0, -1))
    iterations = jnp.full(good.shape, total)
    return finish(problem, (control, good, met, done, iterations, histories))

"""Direct single shooting, where the controls are the unknowns and the motion follows from them."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree

from .._compiler import to_jax
from .._inputs import at_least, checked, not_negative, positive
from .._progress import says_when_compiling
from .._results import RESULTS
from .._search import (
    Iterate,
    Monitor,
    Multipliers,
    Optimiser,
    as_minimiser,
    first_iterate,
    iterate,
    largest_violation,
    next_iterate,
)
from .._types import Control
from .controls import AbstractBounded, Squashed, as_control, trainable, with_strong_types
from .motion import augmented_cost, conditions, cost, follow
from .plan import Plan, make_plan
from .problem import Problem

# A control within bounds, from a control and its bounds.
Bounds: TypeAlias = Callable[[Control, Array, Array], AbstractBounded]


class Starts(NamedTuple):
    """Several guesses from which `shooting` searches at once. `mbd.trajopt.best` selects the best
    plan.

    **Fields:** `guesses`: controls of shape `(starts, steps, nu)`, or a callable whose arrays all
    have a leading axis of starts, as made by `eqx.filter_vmap` of its constructor.
    """

    guesses: ArrayLike | Control

    def checked(self, problem: Problem) -> ArrayLike | Control:
        """The guesses. **Raises:** `ValueError` for a wrong shape."""
        if callable(self.guesses):
            leaves = jax.tree.leaves(eqx.filter(self.guesses, eqx.is_array))
            sizes = {x.shape[0] if x.ndim else None for x in leaves}
            if len(sizes) != 1 or None in sizes:
                raise ValueError(
                    "Arrays of a callable in `guesses` must all have one leading axis of starts, "
                    f"but have shapes {[x.shape for x in leaves]}."
                )
        elif np.ndim(self.guesses) != 3:
            raise ValueError(
                f"`guesses` of Starts must have shape (starts, {problem.steps}, {problem.nu}), but "
                f"has {np.shape(self.guesses)}."
            )
        return self.guesses


@checked
@says_when_compiling("shooting")
def shooting(
    problem: Problem,
    guess: Any = None,
    optimiser: Any = None,
    *,
    bounds: Bounds = Squashed,
    max_iterations: Annotated[int, at_least(1)] = 1000,
    max_rounds: Annotated[int, at_least(1)] = 12,
    tolerance: Annotated[ArrayLike, not_negative] = 1e-6,
    condition_tolerance: Annotated[ArrayLike, not_negative] = 1e-4,
    penalty: Annotated[ArrayLike, positive] = 10.0,
    progress: bool = True,
) -> Plan:
    """Minimise the cost of a `Problem` over the numbers in a control, with gradients by reverse
    mode through the simulation. Few states are stored and the others are recomputed, so it needs
    little memory.

    The control may be a table in time or a policy with parameters, such as a neural network: any
    pytree that is callable as (t, q, v) -> u. Its floating-point arrays are the unknowns.

    `bounds` keeps u within its bounds. The conditions `final` and `path` become terms of the cost
    by the method of multipliers: each round minimises the cost with these terms, then adjusts them;
    see `mbd.trajopt.Multipliers`.

    The method needs only gradients and works with every policy. For controls in a table,
    `mbd.trajopt.ilqr` takes far fewer iterations.

    **Arguments:**

    - `problem`: the problem to solve.
    - `guess`: controls of shape `(steps, nu)` or `(nu,)`, or a callable (t, q, v) -> u; default
      zero. Or several of them, as `Starts`.
    - `optimiser`: one of optax, such as `optax.adam(1e-2)` or `optax.lbfgs()`, or a minimiser of
      optimistix; default `optimistix.BFGS(rtol=1e-8, atol=1e-8)`.
    - `bounds`: the kind of control within the bounds, `mbd.trajopt.Squashed` (default) or
      `Saturated`.
    - `max_iterations`: the limit in each round. `max_rounds`: that of the method of multipliers.
    - `tolerance`: an optimiser of optax stops when a step along the gradient would change no
      unknown by more than this. Those of optimistix have their own.
    - `condition_tolerance`: the tolerance of |final| and of positive entries of `path`.
    - `penalty`: rho of the first round. It grows tenfold after each round that gains little.
    - `progress`: whether to show a bar.

    **Returns:** a `Plan` whose `control` is the optimised one, with its bounds. Of several starts
    every field has their axis first.

    **Raises:** `ValueError` for a guess of the wrong shape, an optimiser of no known kind, or
    bounds that do not suit the control.

    Reference: Nocedal and Wright (2006), Numerical Optimization, chapters 6, 7 and 17.
    """
    setting = Setting.of(problem, optimiser, bounds, (tolerance, condition_tolerance, penalty))
    limits = max_iterations, max_rounds
    if not isinstance(guess, Starts):
        return search(setting, setting.control(guess), limits, progress, SINGLE)
    controls = over_starts(Setting.control)(setting, guess.checked(problem))
    return search(setting, controls, limits, progress, BATCH)


@checked
def best(plans: Plan) -> Plan:
    """Select the plan of lowest cost among the ones of a batch that converged. If none converged,
    select the one with the smallest violation of the conditions."""
    if np.ndim(plans.cost) != 1:
        raise ValueError(
            "Argument `plans` of best must be a batch of plans, as `shooting` makes it from "
            f"`Starts`, but its costs have shape {np.shape(plans.cost)}."
        )
    wrong = np.maximum(np.asarray(plans.final_violation), np.asarray(plans.path_violation))
    converged = np.asarray(plans.result == RESULTS.successful)
    costs = np.asarray(plans.cost)
    wrong, costs = (np.where(np.isfinite(x), x, np.inf) for x in (wrong, costs))
    if converged.any():
        index = int(np.argmin(np.where(converged, costs, np.inf)))
    else:
        index = int(np.lexsort((costs, wrong))[0])
    return jax.tree.map(lambda x: x[index], plans)


class Setting(eqx.Module):
    """The data that all iterations share."""

    problem: Problem
    optimiser: Optimiser
    bounds: Bounds = eqx.field(static=True)
    tolerance: Float[Array, ""]
    condition_tolerance: Float[Array, ""]
    penalty: Float[Array, ""]

    @classmethod
    def of(
        cls, problem: Problem, optimiser: Optimiser | None, bounds: Bounds, numbers: tuple
    ) -> "Setting":
        """Make the data from the arguments of `shooting`."""
        problem = with_strong_types(problem)
        optimiser = optx.BFGS(rtol=1e-8, atol=1e-8) if optimiser is None else optimiser
        arrays = (jnp.asarray(x, problem.dt.dtype) for x in numbers)
        return cls(problem, optimiser, bounds, *arrays)

    def control(self, guess: Any) -> AbstractBounded:
        """The control to optimise."""
        problem = self.problem
        return self.bounds(as_control(problem, guess), problem.lower, problem.upper).start()

    def search(self, here: "_Round") -> tuple:
        """The minimiser of a round, the arguments of `_loss`, and the projection onto bounds."""

        def project(unknowns):
            control = eqx.combine(unknowns, here.rest).projected()
            return eqx.filter(control, trainable(control))

        minimiser = as_minimiser(self.optimiser, self.tolerance, project)
        return minimiser, (self.problem, here.rest, here.multipliers), project


class _Round(NamedTuple):
    """The state of a round: the search, the fixed part of the control, the multipliers, and whether
    the guess has a motion."""

    iterate: Iterate
    rest: PyTree
    multipliers: Multipliers
    good: Bool[Array, ""]

    @property
    def done(self) -> Bool[Array, "*batch"]:
        return self.iterate.done

    @property
    def control(self) -> Control:
        return eqx.combine(self.iterate.y, self.rest)


def _loss(unknowns, args):
    """The augmented cost, and (cost, violation) as auxiliary output."""
    problem, rest, multipliers = args
    path = follow(problem, eqx.combine(unknowns, rest))
    value = augmented_cost(problem, multipliers, path)
    return value, (cost(problem, path), largest_violation(*conditions(problem, path)))


def _first_round(setting: Setting, control: Control) -> _Round:
    path = follow(setting.problem, control)
    value = cost(setting.problem, path)
    multipliers = Multipliers.zeros(*conditions(setting.problem, path), setting.penalty)
    good = path.good & jnp.isfinite(value)
    unknowns, rest = eqx.partition(control, trainable(control))
    start = Iterate(unknowns, None, (value, multipliers.violation), ~good, jnp.array(True))
    return _restart(setting, _Round(start, rest, multipliers, good))


def _restart(setting: Setting, here: _Round) -> _Round:
    """The round with a new state of the minimiser."""
    minimiser, args, _ = setting.search(here)
    y, _, aux, done, sound = here.iterate
    start = first_iterate(minimiser, _loss, y, args, aux)
    return here._replace(iterate=start._replace(done=done, sound=sound))


def _step(setting: Setting, here: _Round) -> _Round:
    minimiser, args, project = setting.search(here)
    return here._replace(iterate=next_iterate(minimiser, _loss, args, here.iterate, project))


def _next_round(setting: Setting, here: _Round) -> _Round:
    """The next round, with new multipliers. If no condition is violated, the search is over."""
    c, d = conditions(setting.problem, follow(setting.problem, here.control))
    multipliers = here.multipliers.next_round(c, d)
    met = multipliers.violation <= setting.condition_tolerance
    sound = here.iterate.sound | ~met
    last = here.iterate._replace(done=met | ~here.good, sound=sound)
    return _restart(setting, _Round(last, here.rest, multipliers, here.good))


def _plan(setting: Setting, results: tuple) -> Plan:
    here, done, iterations, history = results
    met = here.multipliers.violation <= setting.condition_tolerance
    result = RESULTS.where(met & done, RESULTS.successful, RESULTS.max_iterations_reached)
    result = RESULTS.where(here.iterate.sound, result, RESULTS.stuck)
    result = RESULTS.where(here.good, result, RESULTS.failed_start)
    path = follow(setting.problem, here.control)
    return make_plan(setting.problem, path, here.control, result, iterations, history)


def over_starts(fn):
    """Map a function of a setting and a guess over a batch of guesses."""
    return eqx.filter_vmap(fn, in_axes=(None, eqx.if_array(0)))


# Compiled once for all calls.
_PARTS: Any = _first_round, _next_round, _plan
SINGLE: Any = (*map(eqx.filter_jit, _PARTS), _step)
BATCH: Any = (*(eqx.filter_jit(over_starts(fn)) for fn in _PARTS), over_starts(_step))


def search(
    setting: Setting, control: Control, limits: tuple[int, int], progress: bool, parts: Any
) -> Plan:
    """The plan that minimises the cost over the unknowns of a control, or of a batch of controls.
    `limits`: those of iterations in a round, and of rounds. `parts`: `SINGLE` or `BATCH`."""
    first_round, next_round, plan, step = parts
    max_iterations, max_rounds = limits
    here = first_round(setting, control)
    history, total = [np.asarray(here.iterate.aux[0])], 0

    def report(here: _Round) -> str:
        value, violation = map(np.asarray, here.iterate.aux)
        history.append(value)
        return f"cost {float(value.min()):.6g}, conditions {float(violation.min()):.1e}"

    for number in range(1, max_rounds + 1):
        monitor = Monitor(f"shooting, round {number}", max_iterations, report, progress)
        end, count = iterate(step, setting, here, monitor)
        here, total = next_round(setting, end), total + count
        if np.all(np.asarray(here.done)):
            break
    histories = to_jax(np.moveaxis(np.stack(history), 0, -1))
    iterations = to_jax(np.full(here.good.shape, total))
    return plan(setting, (here, end.done, iterations, histories))

"""Shooting by the method of multipliers, for one guess or a batch of them."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array, Bool, Float

from .._concrete import to_jax
from .._loop import tree_where
from .._search import (
    Iterate,
    Monitor,
    Multipliers,
    as_minimiser,
    first_iterate,
    iterate,
    largest_violation,
    next_iterate,
)
from .bounds import AbstractBounds, Squash
from .control_guess import as_control, with_strong_types
from .controls import trainable
from .motion import augmented_cost, conditions, cost, follow
from .plan import Plan, make_plan
from .problem import Problem
from .status import STATUS


class Setting(eqx.Module):
    """The data that all iterations share."""

    problem: Problem
    optimiser: Any
    bounds: AbstractBounds
    tolerance: Float[Array, ""]
    condition_tolerance: Float[Array, ""]
    penalty: Float[Array, ""]

    @classmethod
    def of(cls, problem: Problem, optimiser: Any, bounds: Any, numbers: tuple) -> "Setting":
        """Make the data from the arguments of `shooting`."""
        problem = with_strong_types(problem)
        optimiser = optx.BFGS(rtol=1e-8, atol=1e-8) if optimiser is None else optimiser
        arrays = (jnp.asarray(x, problem.dt.dtype) for x in numbers)
        return cls(problem, optimiser, Squash() if bounds is None else bounds, *arrays)

    def control(self, guess: Any) -> Any:
        """The control to optimise."""
        return self.bounds.prepared(self.problem, as_control(self.problem, guess))

    def search(self, here: "_Round") -> tuple:
        """The minimiser of a round, the arguments of `_loss`, and the projection onto bounds."""

        def project(unknowns):
            control = self.bounds.projected(self.problem, eqx.combine(unknowns, here.rest))
            return eqx.filter(control, trainable(control))

        minimiser = as_minimiser(self.optimiser, self.tolerance, project)
        return minimiser, (self.problem, here.rest, here.multipliers), project


class _Round(NamedTuple):
    """The state of a round: the search, the fixed part of the control, the multipliers, the largest
    violation after the previous round, and whether the guess has a motion."""

    iterate: Iterate
    rest: Any
    multipliers: Multipliers
    violation: Float[Array, ""]
    good: Bool[Array, ""]

    @property
    def done(self) -> Bool[Array, "*batch"]:
        return self.iterate.done

    @property
    def control(self) -> Any:
        return eqx.combine(self.iterate.y, self.rest)


def _loss(unknowns, args):
    """The augmented cost, and (cost, violation) as auxiliary output."""
    problem, rest, multipliers = args
    path = follow(problem, eqx.combine(unknowns, rest))
    value = augmented_cost(problem, multipliers, path)
    return value, (cost(problem, path), largest_violation(*conditions(problem, path)))


def _first_round(setting: Setting, control: Any) -> _Round:
    path = follow(setting.problem, control)
    value = cost(setting.problem, path)
    multipliers = Multipliers.zeros(*conditions(setting.problem, path), setting.penalty)
    good = path.good & jnp.isfinite(value)
    unknowns, rest = eqx.partition(control, trainable(control))
    infinite = jnp.full_like(value, jnp.inf)
    start = Iterate(unknowns, None, (value, infinite), ~good, jnp.array(True))
    return _restart(setting, _Round(start, rest, multipliers, infinite, good))


def _restart(setting: Setting, here: _Round) -> _Round:
    """The round with a new state of the minimiser."""
    minimiser, args, _ = setting.search(here)
    y, _, aux, done, finite = here.iterate
    start = first_iterate(minimiser, _loss, y, args, aux)
    return here._replace(iterate=start._replace(done=done, finite=finite))


def _step(setting: Setting, here: _Round) -> _Round:
    minimiser, args, project = setting.search(here)
    return here._replace(iterate=next_iterate(minimiser, _loss, args, project, here.iterate))


def _next_round(setting: Setting, here: _Round) -> _Round:
    """The next round, with new multipliers. If no condition is violated, the search is over."""
    c, d = conditions(setting.problem, follow(setting.problem, here.control))
    violation = largest_violation(c, d)
    met = violation <= setting.condition_tolerance
    multipliers = here.multipliers.next_round(c, d, here.violation)
    multipliers = tree_where(met, here.multipliers, multipliers)
    finite = here.iterate.finite | ~met
    last = here.iterate._replace(done=met | ~here.good, finite=finite)
    return _restart(setting, _Round(last, here.rest, multipliers, violation, here.good))


def _plan(setting: Setting, results: tuple) -> Plan:
    here, done, iterations, history = results
    met = here.violation <= setting.condition_tolerance
    status = STATUS.where(met & done, STATUS.converged, STATUS.running)
    status = STATUS.where(here.iterate.finite, status, STATUS.stuck)
    status = STATUS.where(here.good, status, STATUS.failed_start)
    path = follow(setting.problem, here.control)
    return make_plan(setting.problem, path, here.control, status, iterations, history)


def over_starts(fn):
    """Map a function of a setting and a guess over a batch of guesses."""
    return eqx.filter_vmap(fn, in_axes=(None, eqx.if_array(0)))


# Compiled once for all calls.
_PARTS: Any = _first_round, _next_round, _plan
SINGLE: Any = (*map(eqx.filter_jit, _PARTS), _step)
BATCH: Any = (*(eqx.filter_jit(over_starts(fn)) for fn in _PARTS), over_starts(_step))


def search(
    setting: Setting, control: Any, limits: tuple[int, int], progress: bool, parts: Any
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

"""A motion step by step, its derivative likewise in reverse, and the points within a step."""

from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._concrete import picked, to_jax
from .._methods import SimulationProblem, StepperState, finite, without_past
from .._results import RESULTS
from .._simulate import LoopOptions, Saved, Saving, Solution, integrate_fixed, observed
from .._step import Stepper
from .._types import Control
from .terms import At, entries_not_finite, numbers, pulled

_EVERY_STEP = Saving(t0=True, t1=True, ts=None, every=1, fn=None, on_grid=False, moving=False)


class StepwiseMotion(NamedTuple):
    """All states of a motion, the number of good steps (`done`), and the verdict."""

    stepper: Stepper
    control: Control | None
    saved: Saved
    done: Any
    result: RESULTS

    @property
    def states(self) -> StepperState:
        return self.saved.state

    def at(self, i: int) -> StepperState:
        return jax.tree.map(lambda x: picked(x, i), self.states)

    def problem(self, i: int) -> SimulationProblem:
        """The problem with the rows that act in state i."""
        return self.stepper.problem(self.at(i), self.control)

    def points(self, visited: "VisitedPoints", i: int) -> list[At]:
        """The points at which step i evaluates the equations, its start first."""
        visited.points.clear()
        state = self.at(i)
        if i + 1 < len(self.states.t):
            t = np.asarray(self.states.t)
            h = to_jax(t[i + 1] - t[i])
            watched = Watched(self.control, visited)
            jax.block_until_ready(_stepped(self.stepper, watched, state, h))
            jax.effects_barrier()
        start = At(state.t, state.q, state.v)
        later = sorted(visited.points, key=lambda at: float(at.t))
        return [start, *(at for at in later if not entries_not_finite((at.q, at.v)))]


class VisitedPoints:
    """A list of points. It equals only itself, so no compiled step writes into another call's."""

    def __init__(self):
        self.points: list[At] = []


class Watched(eqx.Module):
    """A control that records the points at which it is evaluated: the stages of each step."""

    control: Control | None
    visited: VisitedPoints = eqx.field(static=True)

    def __call__(self, t, q, v):
        jax.debug.callback(lambda *at: self.visited.points.append(At(*at)), t, q, v)
        return None if self.control is None else self.control(t, q, v)


@eqx.filter_jit
def run(stepper: Stepper, control: Control | None, q, v, grid, tolerance) -> StepwiseMotion:
    _, saved, result, stats = integrate_fixed(
        stepper,
        control,
        stepper.checked_start(grid.t0, q, v, tolerance),
        grid,
        _EVERY_STEP,
        None,
        LoopOptions(diffrax.ForwardMode(), diffrax.NoProgressMeter()),
    )
    return StepwiseMotion(stepper, control, saved, stats["num_steps"], result)


@eqx.filter_jit
def _stepped(stepper, control, state, h) -> StepperState:
    """Take the step from a saved state."""
    begun = without_past(state.t, state.q, state.v)
    problem = stepper.problem(state, control)
    state = problem.enforcement.anew(problem, state)
    state = state.replace(lost=begun.lost, result=begun.result)
    return stepper.step(state, h, control).bare()


@eqx.filter_jit
def solution_of(motion: StepwiseMotion) -> Solution:
    stats = {"num_steps": motion.done}
    return observed(motion.stepper, motion.control, motion.saved, stats, motion.result)


@eqx.filter_jit
def seeds_of(motion: StepwiseMotion, loss) -> tuple[Any, StepwiseMotion]:
    """The loss, and its derivative with respect to the numbers of the motion."""

    def fn(motion):
        return loss(solution_of(motion))

    return fn(motion), pulled(fn, motion)[0]


@eqx.filter_jit
def reversed_sweep(
    motion: StepwiseMotion, seeds: StepwiseMotion
) -> tuple[Any, Any, StepwiseMotion]:
    """Differentiate in reverse, step by step. Return for each step whether the derivatives are
    finite after its reverse pass and how large they were before it; and the derivatives with
    respect to the stepper, the control and the state at the start."""
    parts, rest = eqx.partition((motion.stepper, motion.control), eqx.is_inexact_array)
    before = jax.tree.map(lambda x: x[:-1], motion.states)
    moving, fixed = eqx.partition(before, eqx.is_inexact_array)

    def back(carry, given):
        by_end, by_parts = carry
        h, moving, fixed, seed = given

        def step(parts, moving):
            stepper, control = eqx.combine(parts, rest)
            return numbers(_stepped(stepper, control, eqx.combine(moving, fixed), h))

        _, pull = jax.vjp(step, parts, moving)
        more, by_start = pull(by_end)
        by_start, by_parts = jax.tree.map(jnp.add, (by_start, by_parts), (seed, more))
        size = jnp.max(jnp.abs(jnp.concatenate([by_end.q, by_end.v])))
        return (by_start, by_parts), (finite((by_start, more)), size)

    last = jax.tree.map(lambda x: x[-1], seeds.states)
    earlier = jax.tree.map(lambda x: x[:-1], seeds.states)
    given = (jnp.diff(motion.states.t), moving, fixed, earlier)
    carry = (last, (seeds.stepper, seeds.control))
    (by_start, (stepper, control)), (good, sizes) = jax.lax.scan(back, carry, given, reverse=True)
    total = StepwiseMotion(stepper, control, Saved(by_start, None), None, motion.result)
    return good, sizes, total

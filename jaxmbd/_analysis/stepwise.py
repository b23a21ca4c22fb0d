"""A motion step by step, its derivative likewise in reverse, and the points inside of a step."""

from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._enforcement.stepping import AbstractStepper, Problem
from .._fixed import finite, integrate_fixed
from .._results import RESULTS
from .._saving import Saving
from .._setup import judged_start
from .._simulate import observed
from .._solution import Solution
from .._types import Control
from .terms import At, entries_not_finite, numbers, pulled

_EVERY_STEP = Saving(t0=True, t1=True, ts=None, every=1, fn=None, on_grid=False)


class Motion(NamedTuple):
    """All states, the number of good steps, and the verdict."""

    stepper: AbstractStepper
    t: Float[Array, " ns"]
    ys: Any
    done: Any
    result: RESULTS

    def at(self, i: int) -> Any:
        return jax.tree.map(lambda x: x[i], self.ys)

    def problem(self, i: int) -> Problem:
        """With the rows that act in the state i."""
        system = self.stepper.system(self.at(i))
        return eqx.tree_at(lambda p: p.system, self.stepper.problem, system)

    def points(self, watching: AbstractStepper, i: int) -> list[At]:
        """At which the step i evaluates the equations, its start first."""
        watched = watching.problem.control.record.points  # pyright: ignore
        watched.clear()
        y = self.at(i)
        if i + 1 < len(self.t):
            jax.block_until_ready(_step(watching, self.t[i], self.t[i + 1], y))
            jax.effects_barrier()
        start = At(self.t[i], y[0], y[1])
        later = sorted(watched, key=lambda at: float(at.t))
        return [start, *(at for at in later if not entries_not_finite((at.q, at.v)))]


class Record:
    """Equal to itself only, so that no compiled step writes into the record of another call."""

    def __init__(self):
        self.points: list[At] = []


class Watched(eqx.Module):
    """A control that writes down where it is asked: at the stages of each step."""

    control: Control | None
    record: Record = eqx.field(static=True)

    def __call__(self, t, q, v):
        jax.debug.callback(lambda *at: self.record.points.append(At(*at)), t, q, v)
        return None if self.control is None else self.control(t, q, v)


@eqx.filter_jit
def run(stepper, q, v, grid, tolerance) -> Motion:
    y, scheme_state = stepper.start(grid.t0, grid.dt, q, v)
    t, ys, result, stats = integrate_fixed(
        stepper,
        y,
        scheme_state,
        judged_start(stepper, y, grid.t0, tolerance),
        grid,
        jnp.asarray(jnp.inf, q.dtype),
        _EVERY_STEP,
        diffrax.ForwardMode(),
        diffrax.NoProgressMeter(),
    )
    return Motion(stepper, t, ys, stats["num_steps"], result)


@eqx.filter_jit
def _step(stepper, t, t_next, y):
    _, scheme_state = stepper.start(t, t_next - t, y[0], y[1])
    return stepper.step(t, t_next, y, scheme_state).y


def solution_of(motion: Motion) -> Solution:
    stats = {"num_steps": motion.done}
    return observed(motion.stepper, motion.t, motion.ys, stats, motion.result)


@eqx.filter_jit
def seeds_of(motion: Motion, loss) -> tuple[Any, Motion]:
    """The loss, and its derivative by the numbers of the motion."""

    def fn(motion):
        return loss(solution_of(motion))

    return fn(motion), pulled(fn, motion)[0]


@eqx.filter_jit
def reversed_sweep(motion: Motion, seeds: Motion) -> tuple[Any, Any, Motion]:
    """Reverse mode, step by step: whether derivatives are finite after each step, how large they
    were before, and those by the stepper and by the state at the start."""
    parts, rest = eqx.partition(motion.stepper, eqx.is_inexact_array)
    before = jax.tree.map(lambda x: x[:-1], motion.ys)
    moving, fixed = eqx.partition(before, eqx.is_inexact_array)

    def back(carry, given):
        by_end, by_parts = carry
        t, t_next, moving, fixed, seed = given

        def step(parts, moving):
            stepper = eqx.combine(parts, rest)
            return numbers(_step(stepper, t, t_next, eqx.combine(moving, fixed)))

        _, pull = jax.vjp(step, parts, moving)
        more, by_start = pull(by_end)
        by_start, by_parts = jax.tree.map(jnp.add, (by_start, by_parts), (seed, more))
        size = jnp.max(jnp.stack([jnp.max(jnp.abs(x)) for x in jax.tree.leaves(by_end[:2])]))
        return (by_start, by_parts), (finite((by_start, more)), size)

    last = jax.tree.map(lambda x: x[-1], seeds.ys)
    earlier = jax.tree.map(lambda x: x[:-1], seeds.ys)
    given = (motion.t[:-1], motion.t[1:], moving, fixed, earlier)
    end, (good, sizes) = jax.lax.scan(back, (last, seeds.stepper), given, reverse=True)
    return good, sizes, Motion(end[1], seeds.t, end[0], None, motion.result)

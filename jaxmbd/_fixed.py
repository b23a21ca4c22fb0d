"""Integration at fixed steps: one loop, and what is saved on the way."""

from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ._enforcement.stepping import AbstractStepper
from ._fusion import decided, once
from ._loop import loop
from ._results import RESULTS, first_failure
from ._saving import ON_GRID, Grid, Saving
from ._types import RealScalarLike


def integrate_fixed(
    stepper: AbstractStepper,
    y: PyTree,
    scheme_state: PyTree,
    result: RESULTS,
    grid: Grid,
    drift_tolerance: Float[Array, ""] | None,
    saving: Saving,
    adjoint: diffrax.AbstractAdjoint,
    progress: diffrax.AbstractProgressMeter,
) -> tuple[Float[Array, " ns"], PyTree, RESULTS, dict[str, Any]]:
    """(saved times, saved outputs, result, statistics). After a failure the state is held."""
    t0, dt = jnp.asarray(grid.t0), jnp.asarray(grid.dt)
    whole, aligned = grid.whole, grid.aligned

    def time(i):
        return once(t0 + jnp.asarray(i, t0.dtype) * dt)

    def output(t, y):
        return saving.output(stepper.system(y), t, y)

    def advance(t, t_next, y, scheme_state, result):
        return advanced(stepper, t, t_next, y, scheme_state, result, drift_tolerance)

    requested = _RequestedTimes(saving, t0, dt, whole)

    def body(i, carry):
        y, scheme_state, result, done, kept = carry
        kept = requested.remember(i, y, kept)
        y = begun(stepper, y, requested.is_next(i))
        if saving.every:
            y = begun(stepper, y, i % saving.every == 0)
        y, scheme_state, result = advance(time(i), time(i + 1), y, scheme_state, result)
        return (
            y,
            scheme_state,
            result,
            done + jnp.where(result == RESULTS.successful, 1, 0),
            kept,
            i + 1,
        )

    def saved_output(carry):
        return output(time(carry[5]), carry[0])

    # A result that a loop can carry is an array.
    result = RESULTS.where(jnp.array(True), result, RESULTS.successful)
    start = (y, scheme_state, result, jnp.array(0), requested.room(y), jnp.array(0))
    end, on_the_way = loop(
        lambda i, carry: body(i, carry[:5]),
        start,
        whole,
        output=saved_output if saving.every else None,
        every=max(saving.every, 1),
        checkpoint=not isinstance(adjoint, diffrax.DirectAdjoint | diffrax.ForwardMode),
        checkpoint_body=not stepper.checkpoints,
        meter=progress,
    )
    y1, scheme_state, result, done, kept, _ = end
    kept = requested.remember(whole, y1, kept)
    y1 = begun(stepper, y1, requested.is_next(whole))
    if saving.every:
        y1 = begun(stepper, y1, whole % saving.every == 0)
    if not aligned:
        y1, _, result = advance(time(whole), grid.t1, y1, scheme_state, result)
        done = done + jnp.where(result == RESULTS.successful, 1, 0)
    result = first_failure(result, stepper.end_result(grid.t1, y1))

    pieces = []
    if saving.t0:
        pieces.append((t0[None], jax.tree.map(lambda x: x[None], output(t0, y))))
    if saving.ts is not None:
        good = result == RESULTS.successful
        ys = requested.reach(stepper, kept, good)
        pieces.append((requested.ts, jax.vmap(output)(requested.ts, ys.at)))
        # What the last of them has counted of a step, the end has not to count again.
        y1 = spanning(stepper, begun(stepper, y1, True), y1, jax.tree.map(lambda x: x[-1], ys.part))
    if saving.every:
        times = time(jnp.arange(saving.every, whole + 1, saving.every))
        pieces.append((times, on_the_way))
    if saving.t1 and not (saving.every and aligned and whole % saving.every == 0):
        t1 = jnp.asarray(grid.t1, t0.dtype)
        pieces.append((t1[None], jax.tree.map(lambda x: x[None], output(t1, y1))))
    t, ys = jax.tree.map(lambda *x: jnp.concatenate(x), *pieces)
    return t, ys, result, {"num_steps": done}


def advanced(
    stepper: AbstractStepper,
    t: RealScalarLike,
    t_next: RealScalarLike,
    y: PyTree,
    scheme_state: PyTree,
    result: RESULTS,
    drift_tolerance: Float[Array, ""] | None,
) -> tuple[PyTree, PyTree, RESULTS]:
    """One step, as (y, scheme state, result) after it; y is held if the result is a failure."""
    step = stepper.step(t, t_next, y, scheme_state)
    verdicts = [step.result]
    if drift_tolerance is not None:
        within = jnp.all(step.start_phi <= drift_tolerance)
        verdicts.append(RESULTS.where(within, RESULTS.successful, RESULTS.drift))
    verdicts.append(RESULTS.where(finite(step.y), RESULTS.successful, RESULTS.nonfinite_state))
    result = first_failure(result, *verdicts)
    good = decided(result == RESULTS.successful)
    return stepper.held(good, step.y, y), step.scheme_state, result


def begun(stepper: AbstractStepper, y: PyTree, anew: Any) -> PyTree:
    """y, with an empty tally if `anew`."""
    tally = stepper.tally(y)
    return y if tally is None else stepper.with_tally(y, tally.begun(anew))


def spanning(stepper: AbstractStepper, y: PyTree, steps: PyTree, less: PyTree) -> PyTree:
    """y, whose tally is of a part of a step, with those of the whole `steps` before it and `less`
    that of the part before these."""
    tally = stepper.tally(y)
    if tally is None:
        return y
    return stepper.with_tally(y, tally.spanning(stepper.tally(steps), stepper.tally(less)))


def finite(tree: PyTree) -> Any:
    """Whether every number in `tree` is finite."""
    leaves = jax.tree.leaves(tree)
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves]))


class _Reached(NamedTuple):
    """States at given times, and the same with tallies of the parts of steps to them only."""

    at: PyTree
    part: PyTree


class _RequestedTimes:
    """States at given times. The loop keeps the grid state before each of them as it comes by;
    afterwards all are reached at once, by one shorter step each."""

    def __init__(self, saving, t0, dt, whole):
        self.ts = ts = saving.ts
        if ts is None:
            return
        self.on_grid = saving.on_grid
        self.t0, self.dt = t0, dt
        self.ts = ts = jnp.asarray(ts, t0.dtype)
        steps = (ts - t0) / dt
        steps = jnp.round(steps) if self.on_grid else jnp.floor(steps + ON_GRID)
        self.before = jnp.clip(steps, 0, whole).astype(jnp.int32)
        # Where the state at a grid point is kept; one past the end if it is not needed.
        places = jnp.arange(ts.shape[0], dtype=jnp.int32)
        self.place = jnp.full(whole + 1, ts.shape[0], jnp.int32).at[self.before].set(places)

    def room(self, y):
        if self.ts is None:
            return None
        return jax.tree.map(lambda x: jnp.zeros((self.ts.shape[0], *x.shape), x.dtype), y)

    def remember(self, i, y, kept):
        if self.ts is None:
            return None
        place = self.place[i]
        return jax.tree.map(lambda room, x: room.at[place].set(x, mode="drop"), kept, y)

    def is_next(self, i):
        """Whether the state at i was remembered."""
        return False if self.ts is None else self.place[i] < self.ts.shape[0]

    def reach(self, stepper, kept, good):
        def from_grid(i):
            return jax.tree.map(lambda room: room[self.place[i]], kept)

        def one(t, i):
            y = begun(stepper, from_grid(i), True)
            if self.on_grid:
                return y
            grid = self.t0 + i.astype(t.dtype) * self.dt
            ahead = (t - grid > ON_GRID * self.dt) & good
            t_safe = jnp.where(ahead, t, grid + 0.5 * self.dt)
            moved = stepper.between(grid, self.dt, t_safe, y)
            return jax.tree.map(lambda a, b: jnp.where(ahead, a, b), moved, y)

        def spanned(part, i, less, again):
            return spanning(stepper, part, begun(stepper, from_grid(i), again), less)

        part = jax.vmap(one)(self.ts, self.before)
        first = jax.tree.map(lambda x: jnp.zeros_like(x[:1]), part)
        less = jax.tree.map(lambda x, y: jnp.concatenate([x, y[:-1]]), first, part)
        # Several times after the same grid point: its steps count for the first one.
        again = jnp.diff(self.before, prepend=-1) == 0
        return _Reached(jax.vmap(spanned)(part, self.before, less, again), part)

"""Integration with fixed steps: the loop, and saving."""

from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._loop import loop, stop_gradient, tree_where
from .._methods import StepperState
from .._results import RESULTS, first_failure
from .._step import Stepper
from .._types import Control
from .energy_account import EnergyAccount
from .saving import ON_GRID, Grid, LoopOptions, Saving
from .tally import ContactTally


class Saved(NamedTuple):
    """The data that are saved: a state, and the tally of contacts since the previous saved time."""

    state: StepperState
    tally: ContactTally | None

    @staticmethod
    def initial(state: StepperState) -> "Saved":
        return Saved(state, ContactTally.none(state))

    def reset(self, anew: Any) -> "Saved":
        """The same state, with an empty tally if `anew`."""
        return self if self.tally is None else Saved(self.state, self.tally.reset(anew))

    def after(self, state: StepperState, good: Any = True) -> "Saved":
        """The data after a step, or a part of a step; `good` tells whether it counts."""
        if self.tally is None:
            return Saved(state, None)
        assert state.contacts is not None
        tally = self.tally.add(state.t - self.state.t, state.contacts.force)
        return Saved(state, tree_where(good, tally, self.tally))

    def spanning(self, steps: "Saved", less: "Saved") -> "Saved":
        """The data after a part of a step, with the tally of the whole `steps` before it added, and
        with that of the part before these, `less`, subtracted."""
        if self.tally is None or steps.tally is None or less.tally is None:
            return self
        return Saved(self.state, self.tally.spanning(steps.tally, less.tally))


class _Carry(NamedTuple):
    """The carry of the loop, with the number of good steps (`done`) and the states at requested
    times."""

    here: Saved
    account: EnergyAccount | None
    done: Array
    requested: Any


def integrate_fixed(
    stepper: Stepper,
    control: Control | None,
    start: StepperState,
    grid: Grid,
    saving: Saving,
    energy_tolerance: Float[Array, ""] | None,
    options: LoopOptions,
) -> tuple[Float[Array, " ns"], PyTree, RESULTS, dict[str, Any]]:
    """(saved times, saved outputs, result, statistics)."""
    whole, aligned, dt = grid.whole, grid.aligned, jnp.asarray(grid.dt)
    requested = _RequestedTimes(saving, grid)

    def advanced(h, carry):
        old = carry.here.state
        state, account = stepper.step(old, h, control), carry.account
        if account is not None:
            problem = stepper.problem(state, control)
            account, verdict = account.after(problem, state, state.t - old.t, energy_tolerance)
            result = first_failure(state.result, verdict)
            good = result == RESULTS.successful
            state = state.replace(result=result).held(good, old)
            account = tree_where(good, account, carry.account)
        good = state.result == RESULTS.successful
        done = carry.done + jnp.where(good, 1, 0)
        return _Carry(carry.here.after(state, good), account, done, carry.requested)

    def arrived(i, carry):
        """Saving at grid point i, before the step from there."""
        kept = requested.remember(i, carry.here, carry.requested)
        here = carry.here.reset(requested.is_next(i))
        if saving.every:
            here = here.reset(i % saving.every == 0)
        return carry._replace(here=here, requested=kept)

    account = None
    if energy_tolerance is not None:
        account = EnergyAccount.initial(stepper.problem(start, control), start)
    first = Saved.initial(start)
    carry, on_the_way = loop(
        lambda i, carry: advanced(dt, arrived(i, carry)),
        _Carry(first, account, jnp.array(0), requested.room(first)),
        whole,
        output=(lambda carry: saving.output(stepper, carry.here)) if saving.every else None,
        every=max(saving.every, 1),
        checkpoint=not isinstance(options.adjoint, diffrax.DirectAdjoint | diffrax.ForwardMode),
        checkpoint_body=not stepper.has_checkpoints(start.q.dtype),
        meter=options.progress,
    )
    carry = arrived(whole, carry)
    if not aligned:
        carry = advanced(grid.t1 - carry.here.state.t, carry)
    end = carry.here.state
    result = first_failure(end.result, stepper.end_result(end))

    last = Saved(end.replace(t=grid.t1), carry.here.tally)
    pieces = []
    if saving.t0:
        pieces.append(_one(saving.output(stepper, first)))
    if saving.ts is not None:
        ys = requested.reach(stepper, control, carry.requested, result == RESULTS.successful)
        pieces.append(jax.vmap(lambda kept: saving.output(stepper, kept))(ys.at))
        # The tally of the end must not count the part of a step again that the last requested time
        # has counted.
        part = jax.tree.map(lambda x: x[-1], ys.part)
        last = last.reset(True).spanning(last, part)
    if saving.every:
        pieces.append(on_the_way)
    if saving.t1 and not (saving.every and aligned and whole % saving.every == 0):
        pieces.append(_one(saving.output(stepper, last)))
    t, ys = jax.tree.map(lambda *x: jnp.concatenate(x), *pieces)
    stats = {"num_steps": carry.done}
    if end.contacts is not None and end.contacts.unlocated is not None:
        stats["unlocated_steps"] = end.contacts.unlocated
    return t, ys, result, stats


def _bare(here: Saved) -> Saved:
    return here._replace(state=here.state.bare())


def _one(tree: PyTree) -> PyTree:
    """The same arrays with a leading axis of length 1."""
    return jax.tree.map(lambda x: jnp.asarray(x)[None], tree)


class _Reached(NamedTuple):
    """States at the requested times (`at`), and the same states with the tallies of only the parts
    of steps that lead to them (`part`)."""

    at: Saved
    part: Saved


class _RequestedTimes:
    """States at requested times. The loop stores the grid state before each of these times. After
    the loop all of them are reached as one batch, by one shorter step each."""

    def __init__(self, saving: Saving, grid: Grid):
        self.ts = saving.ts
        if self.ts is None:
            return
        self.on_grid, self.moving = saving.on_grid, saving.moving
        self.dt = jnp.asarray(grid.dt)
        self.ts = ts = jnp.asarray(self.ts, jnp.result_type(grid.t0))
        steps = (ts - grid.t0) / grid.dt
        steps = jnp.round(steps) if self.on_grid else jnp.floor(steps + ON_GRID)
        self.before = jnp.clip(steps, 0, grid.whole).astype(jnp.int32)
        # The index at which the state at a grid point is stored; one past the end if it is not
        # needed.
        places = jnp.arange(ts.shape[0], dtype=jnp.int32)
        self.place = jnp.full(grid.whole + 1, ts.shape[0], jnp.int32).at[self.before].set(places)

    def room(self, here: Saved) -> Any:
        if self.ts is None:
            return None
        n = self.ts.shape[0]
        return jax.tree.map(lambda x: jnp.zeros((n, *x.shape), x.dtype), _bare(here))

    def remember(self, i: Any, here: Saved, kept: Any) -> Any:
        if self.ts is None:
            return None
        place = self.place[i]
        return jax.tree.map(lambda room, x: room.at[place].set(x, mode="drop"), kept, _bare(here))

    def is_next(self, i: Any) -> Any:
        """Whether the state at grid point i is stored."""
        return False if self.ts is None else self.place[i] < self.ts.shape[0]

    def reach(self, stepper: Stepper, control: Any, kept: Any, good: Any) -> _Reached:
        def from_grid(i):
            return jax.tree.map(lambda room: room[self.place[i]], kept)

        def near(state, ahead):
            """The state that is no time `ahead`: only the derivatives by this time are not 0."""

            def moved(t):
                later = stepper.between(stop_gradient(state), self.dt, t, control)
                return later.q, later.v

            soon = state.t + self.dt * float(jnp.finfo(state.t.dtype).eps) ** (1 / 3)
            _, rates = jax.jvp(moved, (soon,), (jnp.ones_like(soon),))
            dq, dv = jax.lax.stop_gradient(rates)
            return state.replace(q=state.q + ahead * dq, v=state.v + ahead * dv)

        def one(t, i):
            here = from_grid(i).reset(True)
            if self.on_grid:
                return Saved(here.state.replace(t=t), here.tally)
            grid = here.state.t
            ahead = (t - grid > ON_GRID * self.dt) & good
            t_safe = jnp.where(ahead, t, grid + 0.5 * self.dt)
            moved = _bare(here.after(stepper.between(here.state, self.dt, t_safe, control)))
            found = tree_where(ahead, moved, here)
            if self.moving:
                past = jnp.where(good, t - grid, 0.0)  # a state that is held goes nowhere
                found = tree_where(ahead, moved, here._replace(state=near(here.state, past)))
            return Saved(found.state.replace(t=t), found.tally)

        def spanned(part, i, less, again):
            return part.spanning(from_grid(i).reset(again), less)

        part = jax.vmap(one)(self.ts, self.before)
        first = jax.tree.map(lambda x: jnp.zeros_like(x[:1]), part)
        less = jax.tree.map(lambda x, y: jnp.concatenate([x, y[:-1]]), first, part)
        # If several times follow the same grid point, the steps before it count for the first of
        # them.
        again = jnp.diff(self.before, prepend=-1) == 0
        return _Reached(jax.vmap(spanned)(part, self.before, less, again), part)

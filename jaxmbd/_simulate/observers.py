"""What is noted along a motion: the loads of contacts between saved times, the energy balance, and
the states at requested times."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from .._compiler import stop_gradient, tree_where
from .._equations import inputs
from .._methods import ContactMemory, SimulationProblem, StepperState, finite
from .._results import RESULTS
from .._step import Stepper
from .._types import Control, RealScalarLike
from .grid import ON_GRID, Grid, Saving


class ContactTally(NamedTuple):
    """Since the last saved time: the duration [s], the impulse of each contact [N s], and its force
    in the step in which its normal force was the largest [N]. Where contacts have no fixed place,
    it counts the normal forces on pieces instead, as contacts with one component."""

    duration: Float[Array, ""]
    impulse: Float[Array, "contacts d"]
    peak: Float[Array, "contacts d"]

    @staticmethod
    def none(state: StepperState) -> "ContactTally | None":
        """An empty tally; `None` for a motion without contacts."""
        if state.contacts is None:
            return None
        nothing = jnp.zeros_like(ContactTally.counted(state.contacts))
        return ContactTally(jnp.zeros((), nothing.dtype), nothing, nothing)

    @staticmethod
    def counted(contacts: ContactMemory) -> Float[Array, "contacts d"]:
        """The forces in the last step that are counted."""
        return contacts.force if contacts.load is None else contacts.load[:, None]

    def reset(self, anew: bool | Bool[Array, ""]) -> "ContactTally":
        """An empty tally if `anew`, else this one."""
        return jax.tree.map(lambda x: jnp.where(anew, 0, x), self)

    def add(self, h: RealScalarLike, force: Float[Array, "contacts d"]) -> "ContactTally":
        """The tally after a further time h with these mean forces."""
        peak = _stronger(self.peak, force)
        return ContactTally(self.duration + h, self.impulse + h * force, peak)

    def spanning(self, steps: "ContactTally", less: "ContactTally") -> "ContactTally":
        """The tally of whole `steps` and of the part of a step after them that is counted here,
        without the part `less` of a step before them that belongs to the previous saved time."""
        return ContactTally(
            steps.duration - less.duration + self.duration,
            steps.impulse - less.impulse + self.impulse,
            _stronger(steps.peak, self.peak),
        )

    def mean(self) -> Float[Array, "contacts d"]:
        """The mean force over the duration [N]; 0 if there is none."""
        lasts = self.duration > 0
        return jnp.where(lasts, self.impulse / jnp.where(lasts, self.duration, 1.0), 0.0)


def _stronger(a: Float[Array, "contacts d"], b: Float[Array, "contacts d"]) -> Array:
    """For each contact the forces with the larger normal force."""
    return jnp.where(b[:, :1] > a[:, :1], b, a)


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
        counted = ContactTally.counted(state.contacts)
        tally = self.tally.add(state.t - self.state.t, counted)
        return Saved(state, tree_where(good, tally, self.tally))

    def spanning(self, steps: "Saved", less: "Saved") -> "Saved":
        """The data after a part of a step, with the tally of the whole `steps` before it added, and
        the tally of the part before these, `less`, subtracted."""
        if self.tally is None or steps.tally is None or less.tally is None:
            return self
        return Saved(self.state, self.tally.spanning(steps.tally, less.tally))


def _bare(here: Saved) -> Saved:
    return here._replace(state=here.state.bare())


class _Reached(NamedTuple):
    """States at the requested times (`at`), and the same states with the tallies of only the parts
    of steps that lead to them (`part`)."""

    at: Saved
    part: Saved


class RequestedTimes:
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

    def remember(self, i: Any, here: Saved, kept: PyTree) -> Any:
        if self.ts is None:
            return None
        place = self.place[i]
        return jax.tree.map(lambda room, x: room.at[place].set(x, mode="drop"), kept, _bare(here))

    def is_next(self, i: Any) -> Any:
        """Whether the state at grid point i is stored."""
        return False if self.ts is None else self.place[i] < self.ts.shape[0]

    def reach(self, stepper: Stepper, control: Control | None, kept: PyTree, good: Any) -> _Reached:
        def from_grid(i):
            return jax.tree.map(lambda room: room[self.place[i]], kept)

        def near(state, ahead):
            """The state that is no time `ahead`: only the derivatives by this time are not 0."""

            def moved(t):
                later = stepper.between(stop_gradient(state), self.dt, t, control)
                return later.q, later.v, later.z

            soon = state.t + self.dt * float(jnp.finfo(state.t.dtype).eps) ** (1 / 3)
            _, rates = jax.jvp(moved, (soon,), (jnp.ones_like(soon),))
            dq, dv, dz = jax.lax.stop_gradient(rates)
            z = None if dz is None else state.z + ahead * dz
            return state.replace(q=state.q + ahead * dq, v=state.v + ahead * dv, z=z)

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


class EnergyAccount(NamedTuple):
    """The energy balance of a motion. E - W should be constant, where E is the energy and W the
    supplied work. `start`, `lowest`: E - W at the start and its lowest value [J]; `work`: W [J];
    `power`: the supplied power after the last step [W]."""

    start: Float[Array, ""]
    lowest: Float[Array, ""]
    work: Float[Array, ""]
    power: Float[Array, ""]

    @staticmethod
    def initial(problem: SimulationProblem, state: StepperState) -> "EnergyAccount":
        """The account at the start of a motion."""
        energy, power = _balance(problem, state)
        return EnergyAccount(energy, energy, jnp.zeros_like(energy), power)

    def after(
        self, problem: SimulationProblem, state: StepperState, h: RealScalarLike, tolerance: Array
    ) -> tuple["EnergyAccount", RESULTS]:
        """The account after a step of length h, and the verdict: the step fails if the balance
        differs by more than the tolerance [J]. The power is integrated by the trapezoidal rule."""
        energy, power = _balance(problem, state)
        work = self.work + 0.5 * h * (self.power + power)
        kept = energy - work
        lowest = jnp.minimum(self.lowest, kept)
        # Rows begin to act with an impact, which dissipates energy.
        exact = problem.enforcement.keeps_energy and state.active is None
        off = jnp.abs(kept - self.start) if exact else kept - lowest
        verdict = RESULTS.where(off > tolerance, RESULTS.energy_balance, RESULTS.successful)
        verdict = RESULTS.where(finite((work, kept)), verdict, RESULTS.nonfinite_state)
        return EnergyAccount(self.start, lowest, work, power), verdict


def _balance(
    problem: SimulationProblem, state: StepperState
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The energy [J], and its rate according to the supplied power [W]. They are constant in
    derivatives, since only a verdict depends on them."""
    problem, state = stop_gradient((problem, state))
    system, control, method = problem.system, problem.control, problem.enforcement
    t, q, v = state.t, state.q, state.v
    energy = system.mechanical_energy(t, q, v) + method.row_energy(problem, state)
    given = inputs(control, t, q, v)
    power = system.supplied_power(t, q, v, *given) + system.nonideal_force(q, v, t) @ v
    power = power + method.driving_power(problem, state)
    return jnp.asarray(energy, q.dtype), jnp.asarray(power, q.dtype)

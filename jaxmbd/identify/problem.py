"""The residuals and their data, made from the arguments of `fit`."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from .._checks import check_no_internal, check_system
from .._compiler import as_one_program, compiled_quickly, picked, to_jax
from .._equations import equations
from .._inputs import Numbers, conform, finite
from .._methods import AbstractEnforcement
from .._results import succeeded
from .._search import Multipliers
from .._simulate import simulate
from .._sizes import check_steps
from .._system import AbstractSystem, State
from .._tangent_space import violations
from .guide import guide_of, still
from .least_squares import TracedLeastSquares, traced_least_squares
from .parameters import Parameters
from .record import Record, as_records
from .residuals import AbstractLoss, Data, PartSimulation, Residuals, Squares
from .rig import Rig, check_uncounted, reaches, without_ends
from .sensors import Sensor, SensorsGiven
from .shooting import (
    AbstractShooting,
    Partition,
    Parts,
    SingleShooting,
    UnknownStart,
    admissible,
    consistent,
    control_of,
    partition,
)

# Residuals of so many times the noise that the weights state may be those of a local minimum.
DOUBTFUL = 3.0

# A start is consistent if its rows are violated by no more than this times the rounding error of 1.
_ROUNDED = 100


class SimulationOptions(NamedTuple):
    """The options of the simulations, as in `fit`."""

    dt: float
    enforcement: AbstractEnforcement
    scheme: diffrax.AbstractSolver | None
    # Whether there are no measurements yet: columns are what sensors give, and sensors round.
    measuring: bool = False


class FitProblem(eqx.Module):
    """The least-squares problem of a fit.

    - `residuals`, `data`: r(z, data) with z of `size` numbers, zero at the guesses.
    - `count`: the number of measured numbers. `scale`: the root mean square of their weighted
      deviations from the means, which is the unit of the search.
    - `bounds`: the lower and upper bounds of z.
    - `partition`: the places of the parts in `records`.
    - `names` of the sensors; `sizes`: how many columns each gives; `labels` of all columns.
    """

    residuals: Residuals
    data: Data
    bounds: tuple[np.ndarray, np.ndarray]
    partition: Partition = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    sizes: tuple[int, ...] = eqx.field(static=True)
    labels: tuple[str, ...] = eqx.field(static=True)
    size: int = eqx.field(static=True)
    records: tuple[Record, ...]
    dt: float
    count: int = eqx.field(static=True)
    scale: Array

    @property
    def states_noise(self) -> bool:
        """Whether the weights say how large the noise is."""
        weights = np.concatenate([record.weights.ravel() for record in self.records])
        return bool(np.any((weights != 0) & (weights != 1)))

    def times_noise(self, residuals: ArrayLike) -> float:
        """The root mean square of the weighted residuals if the weights state the noise, else 0."""
        r = np.asarray(residuals)[: self.data.parts.measured.size]
        return float(np.linalg.norm(r)) / np.sqrt(self.count) if self.states_noise else 0.0

    def search(
        self, z: Array, data: Data, max_iterations: int, tolerance: float
    ) -> TracedLeastSquares:
        """`traced_least_squares` from z."""
        options = self.bounds, data, self.scale, max_iterations, tolerance
        return traced_least_squares(self.residuals, z, *options)


def make_problem(
    model: Any,
    parameters: Any,
    records: Record | Sequence[Record],
    sensors: SensorsGiven | None,
    options: SimulationOptions,
    start: UnknownStart | None = None,
    shooting: AbstractShooting = SingleShooting(),
    loss: AbstractLoss = Squares(),
) -> FitProblem:
    """The problem of a fit. **Raises:** `ValueError` for arguments that do not match, see `fit`."""
    records = as_records(records)
    if not records:
        raise ValueError("There is nothing to compare with: `records` is empty.")
    rig = Rig(model, sensors, records)
    parameters = Parameters(rig.parameters(parameters))
    values = as_one_program(parameters.values) if parameters.size else parameters.values
    system, named, _ = rig(values(to_jax(np.zeros(parameters.size))))
    begin = _common_start(records)
    parts, places = partition(records, shooting)
    states = _states(records, places, system, shooting, options)
    of_sensors = _labels(named, system, parts, states[0])
    labels = tuple(label for each in of_sensors for label in each)
    sizes = tuple(map(len, of_sensors))
    if not options.measuring:
        _check_columns(labels, parts)
        reach = reaches(named, sizes)
        if reach.any() or rig.places:
            records = without_ends(records, shooting, reach)
            parts, places = partition(records, shooting)
    if places.links:
        check_uncounted(named)
    data, free = _data(parts, places, states, system, start)
    rows = equations(system).row_count(*_point(states[0]))
    simulation = PartSimulation(
        rig,
        parameters,
        begin,
        options.enforcement,
        options.scheme,
        _steps(parts, options.dt),
        constrained=rows > 0,
        follows=begin is None and _follows(rig, parameters, states[0]),
        rounded=options.measuring,
    )
    size = parameters.size + free
    count, scale = sum(record.count for record in records), jnp.asarray(_scale(records))
    any_start = np.full(free, np.inf)
    lower, upper = parameters.bounds
    return FitProblem(
        Residuals(simulation, loss),
        data,
        (np.append(lower, -any_start), np.append(upper, any_start)),
        places,
        tuple(named),
        sizes,
        labels,
        size,
        tuple(records),
        options.dt,
        count,
        scale,
    )


def with_guide(problem: FitProblem) -> FitProblem:
    """The same problem, in which the measurements pull.

    **Raises:** `ValueError` if no sensor can."""
    simulation, data = problem.residuals.simulation, problem.data
    parameters = simulation.parameters
    system, named, _ = simulation.rig(
        as_one_program(parameters.values)(to_jax(np.zeros(parameters.size)))
    )
    q, v = (picked(x, 0) for x in data.starts)
    start = State(picked(data.parts.t0, 0), q, v)
    guide = guide_of(system, named, problem.sizes, control_of(data.parts, jnp.array(0)), start)
    place = lambda p: p.residuals.simulation.guide  # noqa: E731
    return eqx.tree_at(place, problem, guide, is_leaf=lambda x: x is None)


def _check_columns(labels: tuple[str, ...], parts: Parts) -> None:
    columns = parts.measured.shape[2]
    if len(labels) != columns:
        raise ValueError(
            f"The sensors give {len(labels)} numbers, {list(labels)}, but the records have "
            f"{columns} columns: give one for each, in the same order."
        )


def _scale(records: list[Record]) -> float:
    off = []
    for record in records:
        w = record.weights
        mean = (w * record.measured).sum(0) / np.maximum(w.sum(0), 1e-300)
        off.append((w * (record.measured - mean)).ravel())
    size = float(np.sqrt(np.mean(np.concatenate(off) ** 2)))
    return size if size > 0 else 1.0


def _steps(parts: Parts, dt: float) -> int:
    steps = float(np.max(np.asarray(parts.t1) - np.asarray(parts.t0))) / dt
    check_steps(steps)
    return max(1, math.ceil(steps - 1e-6))


def _common_start(records: list[Record]) -> Callable[[AbstractSystem], State] | None:
    """The function that gives the start of all records; `None` if each of them has a state."""
    starts = [None if isinstance(record.start, State) else record.start for record in records]
    if any(start is not starts[0] for start in starts):
        raise ValueError(
            "Records that are fitted together start each from a `State`, or all from one function "
            "of the system."
        )
    return starts[0]


def _states(
    records, places: Partition, system, shooting, options: SimulationOptions
) -> list[State]:
    """The guess of the state at the start of each part."""
    found = []
    for k, record in enumerate(records):
        rows = [begin for owner, (begin, _) in zip(*places[:2], strict=True) if owner == k]
        state = _given_start(system, record)
        state = _consistent(system, State(record.time[0], state.q, state.v), record)
        found.append(state)
        if len(rows) == 1:
            continue
        check_no_internal(system)
        if shooting.starts is None:
            guesses = _simulated(system, state, record, record.time[rows[1:]], options)
        else:
            guesses = [shooting.starts(record, row) for row in rows[1:]]
        for row, guess in zip(rows[1:], guesses, strict=True):
            here = State(record.time[row], guess.q, guess.v)
            found.append(_consistent(system, here, record))
    return found


def _simulated(system, state, record, times, options: SimulationOptions) -> list[State]:
    """The states at some of the times of a record."""
    sol: Any = simulate(
        system,
        options.enforcement,
        state,
        t1=float(times[-1]),
        dt=options.dt,
        t0=float(record.time[0]),
        control=record.control,
        scheme=options.scheme,
        saveat=diffrax.SaveAt(ts=to_jax(times)),
        throw=False,
    )
    return [State(t, picked(sol.q, k), picked(sol.v, k)) for k, t in enumerate(times)]


def _point(state: State) -> tuple:
    return to_jax(state.t, state.q.dtype), state.q, state.v


def _given_start(system: AbstractSystem, record: Record) -> State:
    state = record.start if isinstance(record.start, State) else record.start(system)
    what = f'`start` of Record "{record.name}"'
    state = conform(what, state, State)
    for x in (state.q, state.v):
        finite(what, x, shape=None)
    check_system(system, record.control, state.q, state.v, with_internal=True)
    if state.z is not None:
        raise ValueError(
            f"{what} has internal states `z`: give them as `initial_internal` of the system, whose "
            "parameters they then are."
        )
    return state


_violations = compiled_quickly(violations)


def _consistent(system: AbstractSystem, state: State, record: Record) -> State:
    off = np.abs(_violations(system, *_point(state)))
    # Nothing to assemble, and nothing to compile for it.
    if np.max(off, initial=0.0) <= _ROUNDED * np.finfo(state.q.dtype).eps:
        return State(state.t, state.q, state.v)
    state, result = consistent(system, state, constrained=True)
    if not succeeded(result):
        raise ValueError(
            f'"{record.name}" cannot start at t = {state.t:g} s from the state given: {result}'
        )
    return state


def _follows(rig: Rig, parameters: Parameters, state: State) -> bool:
    """Whether the constraints at a given state depend on the parameters."""

    def rows(z):
        return violations(rig(parameters.values(z)).system, *_point(state))

    # A derivative may vanish at the guess by chance, so it is also computed nearby.
    if parameters.size == 0:
        return False
    near = 0.01 * np.random.default_rng(0).normal(size=parameters.size)
    slopes = jax.jit(jax.vmap(jax.jacfwd(rows)))(to_jax(np.stack([np.zeros_like(near), near])))
    return bool(np.any(np.asarray(slopes)))


def _data(parts: Parts, partition: Partition, states, system, start) -> tuple[Data, int]:
    """The data, and the number of free numbers of the starts."""
    count, links = len(states), np.array(partition.links, int)
    unknown = start is not None
    begins = np.ones(count, bool)
    begins[links + 1] = False
    none = np.zeros((len(states[0].v), 0))
    moving = unknown or not begins.all()
    directions = [admissible(system, state) if moving else none for state in states]
    dof = directions[0].shape[1]
    if any(each.shape[1] != dof for each in directions):
        raise ValueError(
            "The states in which parts begin have different degrees of freedom, "
            f"{[each.shape[1] for each in directions]}: one of them is a singular pose. Move it."
        )
    free = ~begins if not unknown else np.ones(count, bool)
    places = np.full((count, 2 * dof), free.sum() * 2 * dof)
    places[free] = np.arange(free.sum() * 2 * dof).reshape(free.sum(), 2 * dof)
    scale, prior = np.ones((count, 2 * dof)), np.zeros((count, 2 * dof))
    if unknown:
        halves = slice(0, dof), slice(dof, None)
        given = (start.position, start.sigma_position), (start.velocity, start.sigma_velocity)
        for half, (natural, sigma) in zip(halves, given, strict=True):
            scale[:, half] = natural
            if sigma is not None:
                prior[begins, half] = natural / sigma
    state_size = len(states[0].q) + len(states[0].v)
    data = Data(
        parts,
        (to_jax(np.stack([s.q for s in states])), to_jax(np.stack([s.v for s in states]))),
        to_jax(begins),
        jnp.asarray(np.stack(directions), states[0].q.dtype),
        to_jax(scale),
        to_jax(prior),
        to_jax(places),
        to_jax(links),
        Multipliers(*map(to_jax, (np.zeros((len(links), state_size)), np.zeros(0), 1.0, np.inf))),
    )
    return data, int(free.sum()) * 2 * dof


def _labels(
    named: Mapping[str, Sensor], system: AbstractSystem, parts: Parts, state: State
) -> list[tuple[str, ...]]:
    """A name for each number that each sensor gives."""

    def read(name, member):
        control = control_of(parts, jnp.array(0))
        t, q, v = _point(state)
        here = still(system, control, t, q, v, system.initial_internal)
        return conform(f'reading of sensor "{name}"', member(here), Numbers)

    found = []
    for name, member in named.items():
        out = jax.eval_shape(lambda name=name, member=member: jnp.asarray(read(name, member)))
        numbers = range(out.size) if out.size != 1 else [None]
        what = name or "reading"
        found.append(tuple(what if i is None else f"{what}[{i}]" for i in numbers))
    return found

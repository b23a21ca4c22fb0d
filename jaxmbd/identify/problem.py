"""From the arguments of `fit` to residuals and their data."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import check_system
from .._enforcement import AbstractEnforcement, UdwadiaKalaba
from .._equations import equations
from .._inputs import Numbers, conform, finite
from .._results import RESULTS
from .._simulation import simulate
from .._sizes import check_steps
from .._system import AbstractSystem, State
from .leaves import Leaves
from .losses import AbstractLoss
from .parameters import Parameters
from .record import Record
from .residuals import Data, Residuals
from .sensors import Sample, Sensors
from .shooting import AbstractShooting, Layout, Parts, control_of, cut
from .start import AbstractStart, UnknownStart, admissible, consistent


class FitProblem(eqx.Module):
    """A fit, ready to be searched.

    - `residuals`, `data`: r(z, data) with z of `size` numbers, zero at the guesses.
    - `count`: how many numbers were measured; `scale`: their size, weighted, about their means, in
      whose units the search goes.
    - `bounds`: least and largest z.
    - `layout`: which part stands where in `records`. `labels`: of the columns that `sensors` give.
    """

    residuals: Residuals
    data: Data
    bounds: tuple[np.ndarray, np.ndarray]
    layout: Layout = eqx.field(static=True)
    labels: tuple[str, ...] = eqx.field(static=True)
    size: int = eqx.field(static=True)
    records: tuple[Record, ...]
    sensors: Any
    dt: float
    count: int = eqx.field(static=True)
    scale: Array


def make_problem(
    model: Any,
    parameters: Any,
    records: list[Record],
    sensors: Any,
    dt: float,
    enforcement: AbstractEnforcement | None,
    scheme: diffrax.AbstractSolver | None,
    start: AbstractStart,
    shooting: AbstractShooting,
    loss: AbstractLoss,
) -> FitProblem:
    """**Raises:** `ValueError` for what does not go together; see `fit`."""
    if not records:
        raise ValueError("There is nothing to compare with: `records` is empty.")
    if isinstance(model, AbstractSystem):
        model = Leaves(model)
        parameters = model.parameters(parameters)
    parameters = Parameters(conform("`parameters` of fit", parameters, Mapping))
    system = model(parameters.values(jnp.zeros(parameters.size)))
    if not isinstance(system, AbstractSystem):
        raise ValueError(f"`model` must return an `mbd.AbstractSystem`, but returns {system!r}.")
    enforcement = UdwadiaKalaba() if enforcement is None else enforcement
    begin = _common_start(records)
    parts, layout = cut(records, shooting)
    how = dict(enforcement=enforcement, scheme=scheme)
    states = _states(records, layout, system, shooting, dt, how)
    data, free = _data(parts, layout, states, system, start)
    rows = _rows(system, states[0])
    sensor, names = _sensor(sensors)
    labels = _labels(sensor, names, system, parts, states[0])
    if len(labels) != parts.measured.shape[2]:
        raise ValueError(
            f"The sensors give {len(labels)} numbers, {list(labels)}, but the records have "
            f"{parts.measured.shape[2]} columns: give one for each, in the same order."
        )
    residuals = Residuals(
        model,
        parameters,
        sensor,
        loss,
        begin,
        enforcement,
        scheme,
        _steps(parts, dt),
        constrained=rows > 0,
        following=begin is None and _follows(model, parameters, states[0]),
    )
    size = parameters.size + free
    count, scale = sum(record.count for record in records), jnp.asarray(_scale(records))
    any_start = np.full(free, np.inf)
    lower, upper = parameters.bounds
    return FitProblem(
        residuals,
        data,
        (np.append(lower, -any_start), np.append(upper, any_start)),
        layout,
        labels,
        size,
        tuple(records),
        sensors,
        dt,
        count,
        scale,
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
    steps = float(jnp.max(parts.t1 - parts.t0)) / dt
    check_steps(steps)
    return max(1, math.ceil(steps - 1e-6))


def _common_start(records: list[Record]) -> Callable[[AbstractSystem], State] | None:
    """The function from which all records start; `None` if they have a state each."""
    starts = [None if isinstance(record.start, State) else record.start for record in records]
    if any(start is not starts[0] for start in starts):
        raise ValueError(
            "Records that are fitted together start each from a `State`, or all from one function "
            "of the system."
        )
    return starts[0]


def _states(records, layout: Layout, system, shooting, dt, how) -> list[State]:
    """The guess of the state at the begin of each part."""
    found = []
    for k, record in enumerate(records):
        rows = [begin for owner, (begin, _) in zip(layout.record, layout.slices) if owner == k]
        state = _started(system, record)
        state = _consistent(system, State(record.time[0], state.q, state.v), record)
        found.append(state)
        if len(rows) == 1:
            continue
        times = record.time[rows]
        if shooting.starts is not None:
            guesses = [shooting.starts(record, row) for row in rows[1:]]
            found += [
                _consistent(system, State(t, guess.q, guess.v), record)
                for t, guess in zip(times[1:], guesses, strict=True)
            ]
            continue
        sol: Any = simulate(
            system,
            how["enforcement"],
            state,
            t1=float(times[-1]),
            dt=dt,
            t0=float(times[0]),
            control=record.control,
            scheme=how["scheme"],
            saveat=diffrax.SaveAt(ts=times[1:]),
            throw=False,
        )
        found += [
            _consistent(system, State(t, q, v), record)
            for t, q, v in zip(times[1:], sol.q, sol.v, strict=True)
        ]
    return found


def _started(system: AbstractSystem, record: Record) -> State:
    state = record.start if isinstance(record.start, State) else record.start(system)
    what = f'`start` of Record "{record.name}"'
    state = conform(what, state, State)
    for x in (state.q, state.v):
        finite(what, x, shape=None)
    check_system(system, record.control, state.q, state.v)
    return state


def _consistent(system: AbstractSystem, state: State, record: Record) -> State:
    state, result = consistent(system, state, _rows(system, state) > 0)
    if result != RESULTS.successful:
        raise ValueError(
            f'"{record.name}" cannot start at t = {state.t:g} s from the state given: {result}'
        )
    return state


def _rows(system: AbstractSystem, state: State) -> int:
    t = jax.ShapeDtypeStruct((), state.q.dtype)
    holonomic = jax.eval_shape(system.constraint, state.q, t).size
    return holonomic + jax.eval_shape(system.nonholonomic, state.q, state.v, t).size


def _follows(model, parameters: Parameters, state: State) -> bool:
    """Whether the constraints at a given state depend on the parameters."""
    t = jnp.asarray(state.t, state.q.dtype)

    def rows(z):
        system = model(parameters.values(z))
        return jnp.concatenate(equations(system).violation(t, state.q, state.v))

    # Beside the guess too, where a derivative that vanishes at it does not.
    if parameters.size == 0:
        return False
    near = 0.01 * np.random.default_rng(0).normal(size=parameters.size)
    slopes = [jax.jit(jax.jacfwd(rows))(jnp.asarray(z)) for z in (np.zeros_like(near), near)]
    return any(bool(jnp.any(slope != 0)) for slope in slopes)


def _data(parts: Parts, layout: Layout, states, system, start) -> tuple[Data, int]:
    """And how many numbers of the starts are free."""
    count, links = len(states), np.array(layout.links, int)
    unknown = isinstance(start, UnknownStart)
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
        (jnp.stack([s.q for s in states]), jnp.stack([s.v for s in states])),
        jnp.asarray(begins),
        jnp.asarray(np.stack(directions), states[0].q.dtype),
        jnp.asarray(scale),
        jnp.asarray(prior),
        jnp.asarray(places),
        jnp.asarray(links),
        jnp.zeros((len(links), state_size)),
        jnp.ones(()),
    )
    return data, int(free.sum()) * 2 * dof


def _sensor(sensors: Any) -> tuple[Any, tuple[str, ...]]:
    if isinstance(sensors, Mapping):
        if not sensors:
            raise ValueError("There is nothing to compare with: `sensors` is empty.")
        for name, sensor in sensors.items():
            conform(f'`sensors["{name}"]` of fit', sensor, Callable)
        return Sensors(tuple(sensors.values())), tuple(sensors)
    return sensors, ("",)


def _labels(sensor, names, system, parts: Parts, state) -> tuple[str, ...]:
    """A name for each number that the sensors give."""
    members = sensor.members if isinstance(sensor, Sensors) and names != ("",) else (sensor,)

    def read(name, member):
        control = control_of(parts, jnp.array(0))
        t = jnp.asarray(state.t, state.q.dtype)
        value = member(Sample(system, control, t, state.q, state.v))
        return conform(f'reading of sensor "{name}"', value, Numbers)

    found = []
    for name, member in zip(names, members, strict=True):
        out = jax.eval_shape(lambda name=name, member=member: jnp.asarray(read(name, member)))
        if out.size == 1:
            found.append(name or "reading")
        else:
            found += [f"{name or 'reading'}[{i}]" for i in range(out.size)]
    return tuple(found)

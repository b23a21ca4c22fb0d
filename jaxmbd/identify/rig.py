"""A system with its sensors and the clocks of its records, as functions of the parameters."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._compiler import with_strong_types
from .._inputs import conform
from .._system import AbstractSystem
from .instruments import Delayed, LowPass, SecondOrderLowPass, Unwrapped, chain, reach_of
from .leaves import Leaves, as_parameter, leaves, leaves_below, not_alone, owner, walk
from .parameters import Parameter
from .record import Clock, Record
from .sensors import IMU, Sensor, Sensors, SensorsGiven
from .shooting import AbstractShooting
from .transforms import AbstractTransform, Bounded, Free, Positive, UnitVector, is_entrywise

# Clocks drift by seconds a day.
_TYPICAL_DRIFT = 1e-4


class Rigged(NamedTuple):
    """A system and its sensors by name; offset, drift and first time of the clock of each record,
    `None` if all clocks agree."""

    system: AbstractSystem
    named: dict[str, Sensor]
    clocks: Float[Array, "records 3"] | None

    @property
    def sensors(self) -> Sensors:
        """All sensors as one."""
        return Sensors(tuple(self.named.values()))


class Rig(eqx.Module):
    """values -> `Rigged`.

    - `model`: values -> system, or the pair of a system and its sensors.
    - `heads`: what the paths of the parameters of a sensor or clock begin with, and `nodes`: these
      sensors and clocks. Sensors come first.
    - `names` of the sensors, `None` if the model makes them.
    - `places`: the record of each clock. `begins`: the first time of each record.
    """

    model: Callable[[dict[str, PyTree]], Any]
    nodes: tuple[PyTree, ...]
    heads: tuple[str, ...] = eqx.field(static=True)
    names: tuple[str, ...] | None = eqx.field(static=True)
    places: tuple[int, ...] = eqx.field(static=True)
    begins: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, model: Any, sensors: SensorsGiven | None, records: Sequence[Record]):
        """**Raises:** `ValueError` for sensors that are none."""
        model = with_strong_types(model)
        self.model = Leaves(model) if isinstance(model, AbstractSystem) else model
        given = {} if sensors is None else named(sensors)
        self.names = None if sensors is None else tuple(given)
        self.places = tuple(i for i, record in enumerate(records) if record.clock is not None)
        self.nodes = (*given.values(), *(records[i].clock for i in self.places))
        self.heads = (
            *(f"sensors[{name}]" if name else "sensors" for name in given),
            *(_clock(records[i]) for i in self.places),
        )
        self.begins = tuple(float(record.time[0]) for record in records)

    def __call__(self, values: Mapping[str, PyTree]) -> Rigged:
        nodes, rest = list(self.nodes), {}
        for path, value in values.items():
            k = self._node(path)
            if k is None:
                rest[path] = value
            else:
                below = path[len(self.heads[k]) + 1 :]
                nodes[k] = eqx.tree_at(lambda node, x=below: walk(node, x), nodes[k], value)
        built = self.model(rest)
        system, sensors = built if isinstance(built, tuple) else (built, None)
        if not isinstance(system, AbstractSystem):
            raise ValueError(
                f"`model` must return an `mbd.AbstractSystem`, but returns {system!r}."
            )
        if (sensors is None) == (self.names is None):
            raise ValueError(
                "Give the sensors once: as `sensors` of fit, or by a model that returns "
                "`(system, sensors)`."
            )
        if self.names is None:
            made = cast(SensorsGiven, sensors)
            return Rigged(system, dict(named(made)), self._clocks(nodes))
        members = zip(self.names, nodes[: len(self.names)], strict=True)
        return Rigged(system, dict(members), self._clocks(nodes[len(self.names) :]))

    def _clocks(self, clocks: Sequence[Clock]) -> Float[Array, "records 3"] | None:
        if not self.places:
            return None
        of = dict(zip(self.places, clocks, strict=True))
        rows = [
            [of[i].offset, of[i].drift, begin] if i in of else [0.0, 0.0, begin]
            for i, begin in enumerate(self.begins)
        ]
        return jnp.stack([jnp.stack([jnp.asarray(x, float) for x in row]) for row in rows])

    def _node(self, path: str) -> int | None:
        """The sensor or clock that a parameter belongs to; `None` if it belongs to the model."""
        return next((k for k, head in enumerate(self.heads) if path.startswith(head + ".")), None)

    def parameters(self, chosen: Any) -> dict[str, Any]:
        """The chosen parameters, in their order. Those of sensors and clocks need no guess.

        **Raises:** `ValueError` for a path that leads to no number, and for numbers that cannot
        change one by one."""
        if callable(chosen):
            return self._of_model(chosen)
        paths = [chosen] if isinstance(chosen, str) else list(chosen)
        choices = chosen if isinstance(chosen, Mapping) else dict.fromkeys(paths)
        own = {path: self._own(path, choices[path]) for path in paths if self._is_own(path)}
        rest = [path for path in paths if path not in own]
        if isinstance(chosen, Mapping) or not rest:
            rest = {path: choices[path] for path in rest}
        found = self._of_model(rest)
        return {path: own[path] if path in own else found[path] for path in paths}

    def _of_model(self, chosen: Any) -> dict[str, Any]:
        if isinstance(self.model, Leaves):
            return self.model.parameters(chosen)
        return dict(conform("`parameters` of fit", chosen, Mapping))

    def _is_own(self, path: str) -> bool:
        """Whether a path is one of a sensor or a clock, or would be if it were right."""
        of_model = isinstance(self.model, Leaves) and path in leaves(self.model.system)
        return path.startswith(("sensors[", "sensors.", "records[")) and not of_model

    def _own(self, path: str, choice: Any) -> Parameter:
        k = self._node(path)
        known = {
            f"{head}.{below}": x
            for head, node in zip(self.heads, self.nodes, strict=True)
            for below, x in leaves_below("", node).items()
        }
        if k is None or path not in known:
            raise ValueError(
                f"There is no parameter `{path}` of sensors or of clocks of records, whose "
                f"parameters are {sorted(known)}."
            )
        if self.heads.count(self.heads[k]) > 1:
            raise ValueError(f"Several records have the name in `{path}`: give each its own.")
        head, field = owner(path[len(self.heads[k]) + 1 :])
        whole = walk(self.nodes[k], head)
        if choice is None or not isinstance(choice, Parameter | AbstractTransform):
            choice = Parameter(known[path] if choice is None else choice, _natural(whole, field))
        found = as_parameter(known[path], choice)
        entrywise = is_entrywise(found.transform)
        remedy = not_alone(whole, field, found.guess, entrywise)
        if remedy:
            raise ValueError(f"`{path}` cannot be found by `{found.transform!r}`: {remedy}.")
        shapes = np.shape(known[path]), np.shape(found.guess)
        if shapes[0] != shapes[1]:
            raise ValueError(f"`{path}` has the shape {shapes[0]}, but its guess has {shapes[1]}.")
        return found


def _clock(record: Record) -> str:
    """The path of its clock."""
    return f"records[{record.name}].clock"


def with_clocks(records: Sequence[Record], values: Mapping[str, PyTree]) -> list[Record]:
    """The records, with the clocks to which values are given."""
    found = []
    for record in records:
        head = _clock(record) + "."
        for path, value in values.items():
            if record.clock is not None and path.startswith(head):
                field = path.removeprefix(head)
                record = eqx.tree_at(lambda r, x=field: walk(r.clock, x), record, value)
        found.append(record)
    return found


def named(sensors: SensorsGiven) -> Mapping[str, Sensor]:
    """Sensors by name. **Raises:** `ValueError` for none, and for what cannot be called."""
    found = sensors if isinstance(sensors, Mapping) else {"": sensors}
    if not found:
        raise ValueError("There is nothing to compare with: `sensors` is empty.")
    for name, sensor in found.items():
        conform(f'`sensors["{name}"]` of fit' if name else "`sensors` of fit", sensor, Callable)
    return found


def _natural(owner: Any, field: str) -> AbstractTransform:
    """The transform of a number of a sensor or clock to which the user gives none."""
    if isinstance(owner, Delayed) and field == "delay":
        return Bounded(owner.shortest, owner.longest)
    if isinstance(owner, Clock):
        largest = owner.largest
        return Bounded(-largest, largest) if field == "offset" else Free(_TYPICAL_DRIFT)
    if isinstance(owner, SecondOrderLowPass) and field == "damping":
        return Bounded(0.01, 0.99)
    if isinstance(owner, LowPass | SecondOrderLowPass) and field in ("time_constant", "frequency"):
        return Positive()
    if isinstance(owner, IMU) and field == "orientation":
        return UnitVector()
    return Free()


def without_ends(
    records: Sequence[Record], shooting: AbstractShooting, reach: Float[np.ndarray, "2 m"]
) -> list[Record]:
    """The records without what sensors, or a clock that is off, may have seen before the start or
    after the end of a simulation. `reach`: how far back and ahead each column reaches [s].

    **Raises:** `ValueError` if nothing of a column is left."""
    found = []
    for record in records:
        before, after = reach + (0.0 if record.clock is None else record.clock.largest)
        weights = record.weights.copy()
        rows = shooting.cuts(record)
        for begin, end in zip(rows, [*rows[1:], None], strict=True):
            time = record.time[begin:end, None]
            last = record.time[-1 if end is None else end]
            # Times are rounded.
            slack = 1e-9 * (last - time[0])
            weights[begin:end] *= (time - time[0] >= before - slack) & (
                last - time >= after - slack
            )
        lost = weights.any(0) < record.weights.any(0)
        if np.any(lost):
            k = int(np.argmax(lost))
            raise ValueError(
                f'All samples of column {k} of "{record.name}" come less than {before[k]:g} s '
                f"after a start or {after[k]:g} s before an end, and may be of another motion: "
                "lower `longest`, `settling` or `largest`, or take longer parts."
            )
        found.append(eqx.tree_at(lambda r: r.weights, record, weights))
    return found


def reaches(named: Mapping[str, Sensor], sizes: Sequence[int]) -> Float[np.ndarray, "2 m"]:
    """How long before and after a reading the motion may matter to it [s], for each column."""
    return np.repeat([reach_of(sensor) for sensor in named.values()], sizes, axis=0).T


def check_uncounted(named: Mapping[str, Sensor]) -> None:
    """**Raises:** `ValueError` if a sensor counts the turns of a whole record, of which a part in
    multiple shooting does not know the earlier ones."""
    for name, sensor in named.items():
        if any(isinstance(each, Unwrapped) for each in chain(sensor)):
            raise ValueError(
                f'The sensor "{name}" counts turns from the start of a record, which parts of '
                "multiple shooting do not know: use `SingleShooting()`, or compare angles within "
                "half a turn."
            )

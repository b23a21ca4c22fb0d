"""Elements of one kind as a structure of arrays: one trace and one vectorised evaluation."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .._compiler import is_concrete
from .._coordinates import AbstractCoordinates
from .coordinates import each

_Element = TypeVar("_Element")

# Static fields in which elements of one kind may differ.
_NAMES = ("name", "body_a", "body_b", "bodies", "names")


class Stack(eqx.Module, Generic[_Element]):
    """Elements that differ only in names and numbers.

    - `leaves`: of the pytrees of the elements. Arrays have the element axis last.
    - `names`: of the elements.
    - `places`: of the elements in the sequence given.
    - `kept`: of joints in a plane, the rows that act there, see `in_plane.py`; `None` for all.
    """

    leaves: list[Any]
    structures: tuple[Any, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    places: tuple[int, ...] = eqx.field(static=True)
    kept: Any = eqx.field(static=True, default=None)

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, i: int) -> _Element:
        """Element i."""
        leaves = [one_of(x, i) if eqx.is_array(x) else x for x in self.leaves]
        return jax.tree.unflatten(self.structures[i], leaves)

    @property
    def together(self) -> _Element:
        """One element with the numbers of all, with the element axis last."""
        return jax.tree.unflatten(self.structures[0], self.leaves)

    def outlines(self) -> list[_Element]:
        """The elements without their numbers."""
        return [jax.tree.unflatten(s, [None] * len(self.leaves)) for s in self.structures]

    def map(self, fn: Callable[..., PyTree], *tables: PyTree[Array]) -> PyTree:
        """Apply fn(element, columns...) to all, with the element axis last. All elements have the
        names of the first one inside `fn`."""
        arrays, rest = eqx.partition(self.leaves, eqx.is_array)

        def one(arrays, *columns):
            leaves = eqx.combine(arrays, rest)
            return fn(jax.tree.unflatten(self.structures[0], leaves), *columns)

        return each(one)(arrays, *tables)


def stack(
    elements: Sequence[Any], places: Iterable[int] | None = None, kept: Any = None
) -> Stack[Any]:
    """One `Stack` of named elements of one kind."""
    flat = [jax.tree.flatten(element) for element in elements]
    columns = zip(*(leaves for leaves, _ in flat), strict=True)
    places = range(len(elements)) if places is None else places
    return Stack(
        [_stacked(column) for column in columns],
        tuple(structure for _, structure in flat),
        tuple(element.name for element in elements),
        tuple(places),
        kept,
    )


def stacks(elements: Sequence[Any], kept: Sequence[Any] | None = None) -> tuple[Stack[Any], ...]:
    """A `Stack` for each kind among the elements, in the order in which the kinds first appear.
    Elements of which other rows are `kept` are of another kind."""
    kept = [None] * len(elements) if kept is None else kept
    kinds: dict[Any, list[int]] = {}
    for i, (element, rows) in enumerate(zip(elements, kept, strict=True)):
        kinds.setdefault((_kind(element), rows), []).append(i)
    return tuple(
        stack([elements[i] for i in places], places, rows) for (_, rows), places in kinds.items()
    )


def one_of(table: Array, i: int) -> Array:
    """Column i."""
    if is_concrete(table):
        return jnp.asarray(np.asarray(table)[..., i], table.dtype)
    return table[..., i]


def _stacked(column):
    if not eqx.is_array_like(column[0]) or isinstance(column[0], bool):
        return column[0]
    if all(map(is_concrete, column)):
        # Concatenating hundreds of arrays is slow to compile.
        table = np.stack([np.asarray(x) for x in column], axis=-1)
        return jnp.asarray(table, jnp.result_type(*column))
    return jnp.stack([jnp.asarray(x) for x in column], axis=-1)


def _kind(element: Any):
    key: list[Any] = [type(element)]
    for field in dataclasses.fields(element):
        if field.name in _NAMES:
            continue
        value = getattr(element, field.name)
        if field.metadata.get("static", False):
            key.append((field.name, value))
            continue
        leaves, structure = jax.tree.flatten(value)
        numbers = [eqx.is_array_like(x) and not isinstance(x, bool) for x in leaves]
        key.append(
            (
                structure,
                *(
                    (jnp.shape(x), jnp.result_type(x)) if number else x
                    for x, number in zip(leaves, numbers, strict=True)
                ),
            )
        )
    return tuple(key)


# Largest number of lines for each group, since a chain may have hundreds.
_MOST = 30


def listing(
    coordinates: AbstractCoordinates,
    bodies: Stack,
    joints: Sequence[tuple[Stack, int]],
    forces: Sequence[Stack],
    contacts: Sequence[Stack],
    switches: Iterable[str],
) -> str:
    """List the bodies with their masses, and what connects them, one line each. `joints` holds each
    kind with its number of holonomic rows, and again with its number of nonholonomic rows."""
    rows: dict[str, int] = {}
    for kind, number in joints:
        for name in kind.names:
            rows[name] = rows.get(name, 0) + number
    groups = {
        "bodies": [f'"{name}"{_mass(bodies, i)}' for i, name in enumerate(bodies.names)],
        "joints": _connections([kind for kind, _ in joints], rows),
        "forces": _connections(forces),
        "contacts": _connections(contacts),
        "switches": [f'"{name}"' for name in switches],
    }
    known = {what: lines for what, lines in groups.items() if lines}
    lines = [
        f"Mechanism of {', '.join(_count(len(lines), what) for what, lines in known.items())}: "
        f"{coordinates.nq} coordinates, {coordinates.nv} velocities, {sum(rows.values())} rows"
    ]
    for what, members in known.items():
        lines.append(f"{what}:")
        lines += [f"  {member}" for member in members[:_MOST]]
        if len(members) > _MOST:
            lines.append(f"  ... and {len(members) - _MOST} more")
    return "\n".join(lines)


def _mass(bodies: Stack, i: int) -> str:
    mass = bodies[i].inertia.mass
    return f", {float(mass):.6g} kg" if is_concrete(mass) and jnp.ndim(mass) == 0 else ""


def _connections(kinds: Sequence[Stack], rows: dict[str, int] | None = None) -> list[str]:
    found = {}
    for kind in kinds:
        for place, element in zip(kind.places, kind.outlines(), strict=True):
            line = f'{type(element).__name__} "{element.name}": {" - ".join(element.bodies)}'
            if rows is not None:
                line += f", {_count(rows[element.name], 'rows')}"
            found[place] = line
    return [found[place] for place in sorted(found)]


def _count(number: int, nouns: str) -> str:
    singular = {"bodies": "body", "switches": "switch"}.get(nouns, nouns[:-1])
    return f"{number} {singular if number == 1 else nouns}"

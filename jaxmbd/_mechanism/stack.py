"""Elements of one kind as a structure of arrays: one trace and one vectorised evaluation."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .._compiler import all_picked, is_known, picked, stacked
from .._coordinates import AbstractCoordinates
from .._linalg import columns
from .coordinates import each
from .element import AbstractFramed, replaced
from .joints import AbstractJoint, AbstractJointReader, each_reader, readers

_Element = TypeVar("_Element")

# Static fields in which elements of one kind may differ, as may the joints and coordinates in them.
_NAMES = ("name", "body_a", "body_b", "bodies", "names", "joint_name", "pressed_by")


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

    def each(self) -> list[_Element]:
        """All elements."""
        n = len(self)
        columns = [all_picked(x) if eqx.is_array(x) else [x] * n for x in self.leaves]
        rows = zip(*columns, strict=True) if columns else [()] * n
        both = zip(self.structures, rows, strict=True)
        return [jax.tree.unflatten(structure, row) for structure, row in both]

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


def stacks(
    elements: Sequence[Any],
    kept: Sequence[Any] | None = None,
    resolved: Sequence[Any] | None = None,
) -> tuple[Stack[Any], ...]:
    """A `Stack` for each kind among the elements, in the order in which the kinds first appear.
    Elements of which other rows are `kept` are of another kind, and those that read joints of
    another kind, which are in the `resolved` elements."""
    kept = [None] * len(elements) if kept is None else kept
    resolved = elements if resolved is None else resolved
    kinds: dict[Any, list[int]] = {}
    for i, (element, rows, whole) in enumerate(zip(elements, kept, resolved, strict=True)):
        kind = _kind(element), None if whole is element else _kind(whole), rows
        kinds.setdefault(kind, []).append(i)
    return tuple(
        stack([elements[i] for i in places], places, rows) for (*_, rows), places in kinds.items()
    )


def filled(kind: Stack, joints: Sequence[Stack]) -> Stack:
    """The elements of a kind with the joints that they name."""
    named = _named(kind.structures)
    if not named:
        return kind
    read = [_chosen(joints, names, limits) for names, limits in named]

    def with_joints(element, held):
        held = iter(held)
        return each_reader(
            element, lambda part: part if part.joint is not None else part.holding(next(held))
        )

    together = with_joints(kind.together, [joint for joint, _ in read])
    structures = (
        jax.tree.structure(with_joints(_numbered(structure), held))
        for structure, *held in zip(kind.structures, *(each for _, each in read), strict=True)
    )
    return replaced(kind, leaves=jax.tree.leaves(together), structures=tuple(structures))


@functools.lru_cache
def _named(structures: tuple[Any, ...]) -> list[tuple[tuple[str, ...], bool]]:
    """For each part of one element that names a joint: of all elements the names, and whether it
    reads the limits of the joint."""
    parts = [[x for x in readers(_numbered(s)) if x.joint is None] for s in structures]
    return [
        (tuple(part.joint_name for part in column), column[0].reads_limits)
        for column in zip(*parts, strict=True)
    ]


def _numbered(structure: Any) -> Any:
    """An element with the index of each leaf instead of it."""
    return jax.tree.unflatten(structure, range(structure.num_leaves))


def _chosen(
    joints: Sequence[Stack], names: Sequence[str], limits: bool
) -> tuple[AbstractJoint, list[AbstractJoint]]:
    """The joints of these names as one with the numbers of all, and each without its numbers. They
    are of one kind, but for `limits`, of which some may have none."""

    def without_limits(joint):
        return joint if limits else replaced(joint, limits=None)

    places = [
        next((k, kind.names.index(x)) for k, kind in enumerate(joints) if x in kind.names)
        for x in names
    ]
    kinds = sorted({k for k, _ in places})
    begins = {k: sum(len(joints[i]) for i in kinds if i < k) for k in kinds}
    index = np.array([begins[k] + i for k, i in places])
    together = [jax.tree.flatten(without_limits(joints[k].together)) for k in kinds]
    leaves = [_columns(column, index) for column in zip(*(x for x, _ in together), strict=True)]
    each = [without_limits(_numbered(joints[k].structures[i])) for k, i in places]
    return jax.tree.unflatten(together[0][1], leaves), each


def _columns(tables: Sequence[Any], index: np.ndarray) -> Any:
    """Of tables side by side these columns."""
    if not eqx.is_array(tables[0]):
        return tables[0]
    if len(tables) == 1 and np.array_equal(index, np.arange(tables[0].shape[-1])):
        return tables[0]
    if is_known(tables):
        # No program is compiled for known numbers.
        table = np.concatenate([np.asarray(x) for x in tables], axis=-1)[..., index]
        return jnp.asarray(table, tables[0].dtype)
    return columns(tables[0] if len(tables) == 1 else jnp.concatenate(tables, axis=-1), index)


def one_of(table: Array, i: int) -> Array:
    """Column i."""
    return picked(table, np.s_[..., i])


def _stacked(column):
    if not eqx.is_array_like(column[0]) or isinstance(column[0], bool):
        return column[0]
    return stacked(column)


def _kind(element: Any) -> Any:
    """What elements that are evaluated together have in common: all but names and numbers."""
    key: list[Any] = [type(element)]
    for field in dataclasses.fields(element):
        if field.name in _NAMES:
            continue
        value = getattr(element, field.name)
        if field.metadata.get("static", False):
            key.append((field.name, value))
            continue
        leaves, structure = jax.tree.flatten(value, is_leaf=_is_framed)
        key.append((structure, *map(_kind_of_leaf, leaves)))
    return tuple(key)


def _kind_of_leaf(x: Any) -> Any:
    if _is_framed(x):
        return _kind(x)
    if eqx.is_array_like(x) and not isinstance(x, bool):
        return jnp.shape(x), jnp.result_type(x)
    return x


def _is_framed(x: Any) -> bool:
    return isinstance(x, AbstractFramed | AbstractJointReader)


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
    return f", {float(mass):.6g} kg" if is_known(mass) and jnp.ndim(mass) == 0 else ""


def _connections(kinds: Sequence[Stack], rows: dict[str, int] | None = None) -> list[str]:
    found = {}
    for kind in kinds:
        for place, element in zip(kind.places, kind.outlines(), strict=True):
            bodies = element.bodies
            if len(bodies) > _MOST:
                bodies = [f"{_count(len(set(bodies)), 'bodies')}"]
            line = f'{type(element).__name__} "{element.name}": {" - ".join(bodies)}'
            if rows is not None:
                line += f", {_count(rows[element.name], 'rows')}"
            found[place] = line
    return [found[place] for place in sorted(found)]


def _count(number: int, nouns: str) -> str:
    singular = {"bodies": "body", "switches": "switch"}.get(nouns, nouns[:-1])
    return f"{number} {singular if number == 1 else nouns}"

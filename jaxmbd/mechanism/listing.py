"""The parts of a mechanism, in words."""

from collections.abc import Iterable, Sequence

import jax.numpy as jnp

from .._concrete import is_concrete
from .._coordinates import AbstractCoordinates
from .stack import Stack

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

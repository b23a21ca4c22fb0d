"""What a mechanism consists of, in words."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax.numpy as jnp

from .._concrete import is_concrete
from .stack import Stack

if TYPE_CHECKING:
    from .mechanism import Mechanism

# Of each group; a chain of hundreds is not worth as many lines.
_MOST = 30


def listing(mechanism: "Mechanism") -> str:
    """Bodies with their masses, and what connects them: one line each."""
    counts = mechanism.coordinates
    rows: dict[str, int] = {}
    for joints, number in mechanism.row_counts():
        for name in joints.names:
            rows[name] = rows.get(name, 0) + number
    groups = {
        "bodies": [
            f'"{name}"{_mass(mechanism, i)}' for i, name in enumerate(mechanism.body_stack.names)
        ],
        "joints": _connections(mechanism.joint_stacks, rows),
        "forces": _connections(mechanism.force_stacks),
        "contacts": _connections(mechanism.contact_stacks),
        "switches": [f'"{name}"' for name in mechanism.switches],
    }
    known = {what: lines for what, lines in groups.items() if lines}
    lines = [
        f"Mechanism of {', '.join(_count(len(lines), what) for what, lines in known.items())}: "
        f"{counts.nq} coordinates, {counts.nv} velocities, {sum(rows.values())} rows"
    ]
    for what, members in known.items():
        lines.append(f"{what}:")
        lines += [f"  {member}" for member in members[:_MOST]]
        if len(members) > _MOST:
            lines.append(f"  ... and {len(members) - _MOST} more")
    return "\n".join(lines)


def _mass(mechanism: "Mechanism", i: int) -> str:
    mass = mechanism.body_stack[i].inertia.mass
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

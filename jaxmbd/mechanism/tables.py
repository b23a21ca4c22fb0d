"""Vectors of a mechanism as tables with a column for each body."""

import functools
from collections.abc import Callable, Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._linalg import BlockRows, columns
from .body import GROUND
from .coordinates import Bodies
from .placed import Configuration, Placed
from .stack import Stack


class BodyTables(NamedTuple):
    """q and v of the bodies `names` as tables with a column for each body. Some have the ground as
    a last column. Elements find the columns of their bodies here."""

    names: tuple[str, ...]

    @property
    def body_count(self) -> int:
        """Number of bodies."""
        return len(self.names)

    @property
    def coordinates(self) -> Bodies:
        return Bodies(self.body_count)

    @property
    def sizes(self) -> str:
        """Required sizes of q and v, in words."""
        return f"for each of {self.body_count} bodies 7 in q and 6 in v"

    def column(self, name: str) -> int:
        """Column of the body `name`; the ground is the last one.

        **Raises:** `ValueError` for an unknown name."""
        names = (*self.names, GROUND)
        if name not in names:
            raise ValueError(f'There is no body "{name}" among {list(names)}.')
        return names.index(name)

    def part(self, x: Float[Array, "*batch n"], name: str) -> Float[Array, "*batch components"]:
        """Components of q or v of the body `name`. Those of the ground are constant."""
        return _part(x, self.body_count, self.column(name))

    def table(self, x: Array | Placed) -> Float[Array, "components bodies"]:
        """q or v of one sample as a table.

        **Raises:** `ValueError` for a wrong size, and for leading axes."""
        if isinstance(x, Placed):
            return x.table
        sizes = (self.coordinates.nq, self.coordinates.nv)
        if x.ndim != 1 or x.shape[0] not in sizes:
            raise ValueError(
                f"`q` and `v` must be vectors of {sizes[0]} and {sizes[1]} entries, {self.sizes}, "
                f"but one has shape {x.shape}. Use `jax.vmap` for batches."
            )
        return x.reshape(-1, self.body_count)

    def with_ground(self, x: Array | Placed) -> Float[Array, "components columns"]:
        """The table of q (7 components) or v (6), with the ground as the last column."""
        table = self.table(x)
        # A constant, so that XLA sees that all tables of one q are the same.
        ground = ground_column(table.shape[0])[:, None]
        return jnp.concatenate([table, jnp.asarray(ground, x.dtype)], axis=1)

    def kinematics(self, q: Configuration) -> Placed:
        return q if isinstance(q, Placed) else Placed.of(self.table(q))

    def kinematics_with_ground(self, q: Configuration) -> Placed:
        """`kinematics`, with the ground as the last column."""
        here = self.kinematics(q)
        ground = Placed.of(jnp.asarray(ground_column(7)[:, None], q.dtype))
        return jax.tree.map(lambda x, y: jnp.concatenate([x, y], axis=-1), here, ground)

    # --- elements between the bodies ------------------------------------------------------------

    def ends(self, elements: Stack) -> list[np.ndarray]:
        """Columns of the bodies that the elements connect, for each of their frames."""
        column = {name: i for i, name in enumerate((*self.names, GROUND))}
        ends = [[column[name] for name in outline.bodies] for outline in elements.outlines()]
        return list(np.array(ends).T)

    def moving(self, elements: Stack) -> list[bool]:
        """For each frame, whether it is on a body, and not the ground, in any of the elements."""
        return [bool(np.any(end < self.body_count)) for end in self.ends(elements)]

    def map(self, elements: Stack, fn: Callable[..., PyTree], *vectors: Array | Placed) -> PyTree:
        """Apply fn(element, qs, ...) to all elements of one kind, with the element axis last. For
        each of the `vectors`, q or v, fn gets a tuple of what the element's bodies have of it:
        `Placed` of q, and six components of v."""
        ends = self.ends(elements)
        k = len(ends)

        def one(element, *bodies):
            return fn(element, *(bodies[i : i + k] for i in range(0, len(bodies), k)))

        tables = [
            self.kinematics_with_ground(x)
            if isinstance(x, Placed) or x.shape == (self.coordinates.nq,)
            else self.with_ground(x)
            for x in vectors
        ]
        of_bodies = lambda table, end: jax.tree.map(lambda x: columns(x, end), table)  # noqa: E731
        return elements.map(one, *(of_bodies(table, end) for table in tables for end in ends))


def merged_rows(
    tables: BodyTables, parts: Iterable[tuple[list[Array], list[np.ndarray]]], independent: bool
) -> BlockRows:
    """Merge J and the bodies at each end of all kinds."""
    parts = list(parts)
    J, ends = [blocks for blocks, _ in parts], [bodies for _, bodies in parts]
    return BlockRows.merged(J, ends, tables.body_count, 6, independent)


def ground_column(components: int) -> np.ndarray:
    """The 7 coordinates or 6 velocities of the ground: no displacement, no rotation, at rest."""
    return np.eye(7)[3] if components == 7 else np.zeros(components)


@functools.partial(jax.jit, static_argnums=(1, 2), inline=True)
def _part(x: Float[Array, "*batch n"], count: int, column: int) -> Array:
    table = x.reshape(*x.shape[:-1], x.shape[-1] // count, count)
    if column < count:
        return table[..., column]
    shape = table.shape[:-1]
    return jnp.broadcast_to(jnp.asarray(ground_column(shape[-1]), x.dtype), shape)

"""Vectors of a mechanism as tables with a column for each body, and the angles of its elements."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._compiler import array_namespace, is_known, proved, to_jax
from .._equations import Turning
from .._linalg import BlockRows, columns
from .._types import Coordinates, Velocity
from .batching import batched
from .body import GROUND
from .coordinates import Bodies, Configuration, FlatBodies, Placed, PlacedFlat
from .element import AbstractFramed
from .linearise import frame_poses, frame_twists
from .plane import Flat
from .pose import PoseWithAxes, Twist
from .stack import Stack


class BodyTables(NamedTuple):
    """q and v of the bodies `names` as tables with a column for each body. Some have the ground as
    a last column. Elements find the columns of their bodies here.

    Elements know poses and twists in space only. In a plane, `flat` is how the bodies lie in it.
    """

    names: tuple[str, ...]
    flat: Flat | None = None

    @property
    def body_count(self) -> int:
        """Number of bodies."""
        return len(self.names)

    @property
    def coordinates(self) -> Bodies | FlatBodies:
        return (Bodies if self.flat is None else FlatBodies)(self.body_count)

    @property
    def size(self) -> int:
        """Number of velocities of a body."""
        return 6 if self.flat is None else 3

    @property
    def sizes(self) -> str:
        """Required sizes of q and v, in words."""
        each = "7 in q and 6 in v" if self.flat is None else "3 in q and 3 in v"
        return f"for each of {self.body_count} bodies {each}"

    def column(self, name: str) -> int:
        """Column of the body `name`; the ground is the last one.

        **Raises:** `ValueError` for an unknown name."""
        names = (*self.names, GROUND)
        if name not in names:
            raise ValueError(f'There is no body "{name}" among {list(names)}.')
        return names.index(name)

    def pose(self, q: Float[Array, "*batch nq"], name: str) -> Float[Array, "*batch 7"]:
        """Position and quaternion of the body `name`, constant for the ground."""
        return self._in_space(q, name, 7)

    def twist(self, v: Float[Array, "*batch nv"], name: str) -> Float[Array, "*batch 6"]:
        """Velocity and angular velocity of the body `name`, 0 for the ground."""
        return self._in_space(v, name, 6)

    def _in_space(self, x: Float[Array, "*batch n"], name: str, size: int) -> Array:
        column = self.column(name)
        if column == self.body_count:
            ground = jnp.asarray(ground_column(size), x.dtype)
            return jnp.broadcast_to(ground, (*x.shape[:-1], size))
        part = _part(x, self.body_count, column)
        if self.flat is None:
            return part
        one = self.flat.one(column)
        return batched(one.poses if size == 7 else one.twists, (part, 1))

    def table(self, x: Array | Placed | PlacedFlat) -> Float[Array, "components bodies"]:
        """q or v of one sample as a table.

        **Raises:** `ValueError` for a wrong size, and for leading axes."""
        if isinstance(x, Placed | PlacedFlat):
            return x.table
        sizes = (self.coordinates.nq, self.coordinates.nv)
        if x.ndim != 1 or x.shape[0] not in sizes:
            raise ValueError(
                f"`q` and `v` must be vectors of {sizes[0]} and {sizes[1]} entries, {self.sizes}, "
                f"but one has shape {x.shape}. Use `jax.vmap` for batches."
            )
        return x.reshape(-1, self.body_count)

    def poses(self, q: Configuration) -> Float[Array, "7 bodies"]:
        """Positions and quaternions of all bodies."""
        if self.flat is None:
            return self.table(q)
        half = (q.half_cos, q.half_sin) if isinstance(q, PlacedFlat) else None
        return self.flat.poses(self.table(q), half)

    def twists(self, v: Velocity) -> Float[Array, "6 bodies"]:
        """Velocities and angular velocities of all bodies."""
        return self.table(v) if self.flat is None else self.flat.twists(self.table(v))

    def poses_with_ground(self, q: Configuration) -> Float[Array, "7 columns"]:
        """`poses`, with the ground as the last column."""
        return with_ground(self.poses(q))

    def twists_with_ground(self, v: Velocity) -> Float[Array, "6 columns"]:
        """`twists`, with the ground as the last column."""
        return with_ground(self.twists(v))

    def restricted(self, J: Array, axis: int) -> Array:
        """Covectors for the velocities of a body, from those for its six spatial ones along an
        axis."""
        return J if self.flat is None else self.flat.restricted(J, axis)

    def kinematics(self, q: Configuration) -> Any:
        """`Placed`, or `PlacedFlat` in a plane."""
        if isinstance(q, Placed | PlacedFlat):
            return q
        return (Placed if self.flat is None else PlacedFlat).of(self.table(q))

    def kinematics_with_ground(self, q: Configuration) -> Placed:
        """Positions and axes of all bodies in space, with the ground as the last column."""
        here = self.kinematics(q)
        if self.flat is not None:
            position, orientation = jnp.split(self.poses(here), [3])
            here = Placed(position, orientation, self.flat.axes(*here.cos_sin))
        ground = Placed.of(jnp.asarray(ground_column(7)[:, None], q.dtype))
        return jax.tree.map(lambda x, y: jnp.concatenate([x, y], axis=-1), here, ground)

    # --- elements between the bodies ------------------------------------------------------------

    def columns_of(self, element: AbstractFramed) -> list[int]:
        """Columns of the bodies of an element."""
        return [self.column(name) for name in element.bodies]

    def frames(
        self, element: AbstractFramed, q: Configuration, columns: Sequence[int | Array]
    ) -> tuple[PoseWithAxes, ...]:
        """World poses of the frames of an element on the bodies in these columns."""
        table = self.poses_with_ground(q)
        return frame_poses(element, [table[:, i] for i in columns])

    def frame_twists(
        self, element: AbstractFramed, q: Configuration, v: Velocity, columns: Sequence[int | Array]
    ) -> tuple[Twist, ...]:
        """World twists of the frames of an element on the bodies in these columns."""
        poses, twists = self.poses_with_ground(q), self.twists_with_ground(v)
        return frame_twists(
            element, [poses[:, i] for i in columns], [twists[:, i] for i in columns]
        )

    def ends(self, elements: Stack) -> list[np.ndarray]:
        """Columns of the bodies that the elements connect, for each of their frames."""
        column = {name: i for i, name in enumerate((*self.names, GROUND))}
        ends = [[column[name] for name in outline.bodies] for outline in elements.outlines()]
        return list(np.array(ends).T)

    def moving(self, elements: Stack) -> list[bool]:
        """For each frame, whether it is on a body, and not the ground, in any of the elements."""
        return [bool(np.any(end < self.body_count)) for end in self.ends(elements)]

    def map(
        self,
        elements: Stack,
        fn: Callable[..., PyTree],
        q: Configuration,
        *vs: Velocity,
        own: Sequence[Array] = (),
    ) -> PyTree:
        """Apply fn(element, qs, vs, ..., *own) to all elements of one kind, with the element axis
        last. For q fn gets a tuple with the `Placed` of each body of the element, and for each v a
        tuple with their twists. `own`: arrays with the element axis last."""
        ends = self.ends(elements)
        k = len(ends)
        count = k * (1 + len(vs))

        def one(element, *columns):
            bodies, own = columns[:count], columns[count:]
            return fn(element, *(bodies[i : i + k] for i in range(0, count, k)), *own)

        tables = [self.kinematics_with_ground(q), *map(self.twists_with_ground, vs)]
        of_bodies = lambda table, end: jax.tree.map(lambda x: columns(x, end), table)  # noqa: E731
        moving = (of_bodies(table, end) for table in tables for end in ends)
        return elements.map(one, *moving, *own)


def merged_rows(
    tables: BodyTables,
    parts: Iterable[tuple[list[Array], list[np.ndarray]]],
    closing: Iterable[int] = (),
) -> BlockRows:
    """Merge J and the bodies at each end of all kinds. The rows of the elements `closing` may
    depend on others."""
    parts = list(parts)
    J, ends = [blocks for blocks, _ in parts], [bodies for _, bodies in parts]
    return BlockRows.merged(J, ends, tables.body_count, tables.size, closing)


def with_ground(table: Float[Array, "components bodies"]) -> Float[Array, "components columns"]:
    """A table of poses (7 components) or twists (6), with the ground as the last column."""
    # A constant, so that XLA sees that all tables of one q are the same.
    ground = ground_column(table.shape[0])[:, None]
    return jnp.concatenate([table, jnp.asarray(ground, table.dtype)], axis=1)


def ground_column(components: int) -> np.ndarray:
    """The 7 coordinates or 6 velocities of the ground: no displacement, no rotation, at rest."""
    return np.eye(7)[3] if components == 7 else np.zeros(components)


def _part(x: Float[Array, "*batch n"], count: int, column: int) -> Array:
    return (_any_column if is_known(x) else _column)(x, count, column)


def _of_body(x: Array, count: int, column: int | Array) -> Array:
    return x.reshape(*x.shape[:-1], x.shape[-1] // count, count)[..., column]


_column = jax.jit(_of_body, static_argnums=(1, 2), inline=True)
_any_column = jax.jit(_of_body, static_argnums=1)  # one program for all bodies


def may_need(kind: Stack) -> bool:
    """Whether an element of this kind may need the turns of its angles."""
    if not kind.together.angle_count:
        return False
    needed = kind.together.needs_turns
    return not proved(np.logical_not, needed)


def turning(
    tables: BodyTables,
    kinds: Sequence[Stack],
    counted: Sequence[bool],
    q: Coordinates,
    v: Velocity,
) -> Turning | None:
    """The angles of all elements, kind by kind, 0 for kinds that are not `counted`; `None` without
    any angles."""

    def of_element(element, qs, vs):
        poses, twists = frame_poses(element, qs), frame_twists(element, qs, vs)
        moving = tuple(pose.rate(twist) for pose, twist in zip(poses, twists, strict=True))
        angles = lambda poses: jnp.stack(element.counted_angles(poses))  # noqa: E731
        angle, rate = jax.jvp(angles, (poses,), (moving,))
        return angle, rate, jnp.broadcast_to(jnp.asarray(element.needs_turns), angle.shape)

    def of_kind(kind, counts):
        size = kind.together.angle_count * len(kind)
        if not counts:
            none = jnp.zeros(size, q.dtype)
            return Turning(none, none, jnp.zeros(size, bool))
        return Turning(*(x.ravel() for x in tables.map(kind, of_element, q, v)))

    pairs = zip(kinds, counted, strict=True)
    found = [of_kind(kind, counts) for kind, counts in pairs if kind.together.angle_count]
    return jax.tree.map(lambda *x: jnp.concatenate(x), *found) if found else None


def near(
    kinds: Sequence[Stack], counted: Sequence[bool], angles: Float[Array, " angles"]
) -> tuple[Stack, ...]:
    """The elements whose angles are within half a turn of these, in the order of `turning`."""
    given = array_namespace(angles).asarray(angles)
    sizes = [kind.together.angle_count * len(kind) for kind in kinds]
    ends = np.cumsum(sizes).tolist()
    return tuple(
        _near(kind, given[end - size : end].reshape(-1, len(kind))) if counts else kind
        for kind, counts, size, end in zip(kinds, counted, sizes, ends, strict=True)
    )


def _near(
    kind: Stack, angles: Float[Array, "k elements"] | Float[np.ndarray, "k elements"]
) -> Stack:
    leaves = jax.tree.leaves(kind.together.near(tuple(map(to_jax, angles))))
    return Stack(leaves, kind.structures, kind.names, kind.places, kind.kept)

"""Rows of the joints of a mechanism. `pair_rows.py` evaluates lower pairs of all kinds together."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from .._coordinates import algebra, apply_matrix, body_axes
from .._equations import ConstraintRows
from .._linalg import columns
from .._types import RealScalarLike, Velocity
from .coordinates import Configuration, PlacedFlat
from .element import Groups
from .joints import AbstractConstraint, AbstractJoint, AbstractPair
from .linearise import Linearised, along, frame_poses, frame_twists, linearised
from .pair_rows import NAMES, Ends, FlatEnds, Pairs
from .pose import Pose
from .stack import Stack
from .tables import BodyTables, merged_rows

# In a plane, offsets along the axis of frame a and across it are evaluated as others, see
# `in_plane.py`.
_ALONG = {"along": "x", "across": "y"}


class JointRows(NamedTuple):
    """The rows of joints between bodies. Lower pairs of all kinds are evaluated at once,
    see `Pairs`."""

    tables: BodyTables
    kinds: tuple[Stack[AbstractConstraint], ...]

    def constraint(self, q: Configuration, t: RealScalarLike) -> Float[Array, " nh"]:
        return _flat(self._constraints(q, t), q.dtype)

    def nonholonomic(
        self, q: Configuration, v: Velocity, t: RealScalarLike
    ) -> Float[Array, " rows"]:
        return _flat(self._nonholonomics(q, v, t), q.dtype)

    def linearised(
        self, t: RealScalarLike, q: Configuration, v: Velocity, *, ground: bool = False
    ) -> ConstraintRows:
        """All rows. With `ground`, J has blocks for the ground as for a body there."""
        t = jnp.asarray(t, q.dtype)
        phi: list[Array] = []
        # Rows of each kind with J, its bodies and the joints that close loops, holonomic and then
        # nonholonomic.
        levels: tuple[list, list] = [], []
        pairs = self._linearised_pairs(q, v)
        for joints, closes in zip(self.kinds, self._closes(), strict=True):
            bodies = self.tables.ends(joints)
            moving = [moves or ground for moves in self.tables.moving(joints)]

            def of_joint(joint, qs, vs, joints=joints, moving=moving):
                equations = joint.equations, joint.velocity_equations
                return self._left(joints, linearised(joint, *equations, qs, vs, t, moving))

            rows = pairs.pop(0) if _is_pair(joints) else self.tables.map(joints, of_joint, q, v)
            phi.append(rows.phi)
            nh = rows.phi.shape[0]
            for level, part in enumerate((slice(nh), slice(nh, None))):
                own = jax.tree.map(lambda x, part=part: x[part], rows[1:])
                if own[0].shape[0]:
                    levels[level].append((*own, bodies, closes))
        found = [*levels[0], *levels[1]]
        closing = np.flatnonzero(np.concatenate([[], *(closes for *_, closes in found)]))
        return ConstraintRows(
            _flat(phi, q.dtype),
            _flat([velocity for velocity, *_ in found], q.dtype),
            merged_rows(self.tables, (x[2:4] for x in found), closing.tolist()),
            -_flat([drift for _, drift, *_ in found], q.dtype),
        )

    def row_map(
        self, t: RealScalarLike, q: Configuration, v: Velocity
    ) -> Callable[[Velocity], Float[Array, " rows"]]:
        """J at (t, q, v), as a function that multiplies by it."""
        at_pairs = self._pairs(q) if self._pair_kinds else None
        none = jnp.zeros((0, 0), q.dtype)

        def of_kind(joints, x):
            def of_joint(joint, qs, vs, changes):
                found = along(joint, qs, vs, changes, t)
                return tuple(_left(joints, level, rows) for level, rows in enumerate(found))

            return self.tables.map(joints, of_joint, q, v, x)

        def rows(x):
            pairs = [] if at_pairs is None else self._rates_of_pairs(at_pairs, x)
            levels = zip(
                *(
                    (pairs.pop(0), none) if _is_pair(joints) else of_kind(joints, x)
                    for joints in self.kinds
                ),
                strict=True,
            )
            return _flat([table for tables in levels for table in tables], q.dtype)

        return rows

    def counts(
        self, q: jax.ShapeDtypeStruct, v: jax.ShapeDtypeStruct
    ) -> list[tuple[Stack[AbstractConstraint], int]]:
        """The kinds of joints with the number of rows of one joint, holonomic and then
        nonholonomic, for q and v of these shapes."""
        levels = (
            jax.eval_shape(self._constraints, q, 0.0),
            jax.eval_shape(self._nonholonomics, q, v, 0.0),
        )
        return [
            (joints, table.shape[0])
            for tables in levels
            for joints, table in zip(self.kinds, tables, strict=True)
        ]

    # --- inside ---------------------------------------------------------------------------------

    def _constraints(self, q: Configuration, t: RealScalarLike) -> list[Array]:
        """Phi of each kind of joint, shape `(rows, count)`."""

        def of_kind(joints):
            def of_joint(joint, qs):
                return _left(joints, 0, joint.equations(frame_poses(joint, qs), t))

            return self.tables.map(joints, of_joint, q)

        pairs = self._values_of_pairs(q)
        return [pairs.pop(0) if _is_pair(joints) else of_kind(joints) for joints in self.kinds]

    def _nonholonomics(self, q: Configuration, v: Velocity, t: RealScalarLike) -> list[Array]:
        """Psi of each kind of joint, shape `(rows, count)`."""

        def of_kind(joints):
            def of_joint(joint, qs, vs):
                poses, twists = frame_poses(joint, qs), frame_twists(joint, qs, vs)
                return _left(joints, 1, joint.velocity_equations(poses, twists, t))

            return self.tables.map(joints, of_joint, q, v)

        none = jnp.zeros((0, 0), q.dtype)
        return [none if _is_pair(joints) else of_kind(joints) for joints in self.kinds]

    def _left(self, joints: Stack, rows: Linearised) -> Linearised:
        """The rows that are left, for the velocities of the bodies."""
        nh = rows.phi.shape[0]

        def left(x):
            if joints.kept is None:
                return x
            return jnp.concatenate([_left(joints, 0, x[:nh]), _left(joints, 1, x[nh:])])

        J = [self.tables.restricted(left(block), 1) for block in rows.J]
        phi = _left(joints, 0, rows.phi)
        return Linearised(phi, left(rows.velocity), left(rows.drift), J)

    def _closes(self) -> list[list[bool]]:
        """For each joint of each kind, whether its rows may depend on others. The rows of
        the other joints are independent, since each joint's own are and these joints form trees.
        Joints with few rows close the loops."""
        outlines = [kind.outlines() for kind in self.kinds]
        closes, groups = [[True] * len(kind) for kind in outlines], Groups()
        joints = [
            (-joint.rows, kind, i)
            for kind, joints in enumerate(self.kinds)
            for i in range(len(joints))
            if isinstance(joint := joints.together, AbstractJoint)
        ]
        for _, kind, i in sorted(joints):
            closes[kind][i] = not groups.join(*outlines[kind][i].bodies)
        return closes

    # --- lower pairs ----------------------------------------------------------------------------

    @property
    def _pair_kinds(self) -> list[Stack]:
        return [joints for joints in self.kinds if _is_pair(joints)]

    def _pairs(self, q: Configuration) -> Pairs:
        held = {name for joints in self._pair_kinds for name in _names(joints)}
        names = tuple(name for name in NAMES if name in held)
        if self.tables.flat is not None:
            return self._flat_pairs(names, self.tables.kinematics(q))
        here = self.tables.kinematics_with_ground(q)
        ends = [
            Ends(
                columns(here.position, body),
                columns(here.axes, body),
                columns(here.orientation, body),
                frame.position,
                body_axes(frame.orientation),
                frame.orientation,
            )
            for body, frame in self._ends_of_pairs()
        ]
        return Pairs.at(names, *ends)

    def _flat_pairs(self, names: tuple[str, ...], here: PlacedFlat) -> Pairs:
        assert self.tables.flat is not None
        flat, (a, b) = self.tables.flat.with_ground(), self._ends_of_pairs()
        # The ground is the last body.
        table = jnp.concatenate([here.table[:2], here.half_cos[None], here.half_sin[None]])
        ground = jnp.asarray(np.array([[0.0, 0.0, 1.0, 0.0]]).T, here.dtype)
        table = jnp.concatenate([table, ground], axis=1)

        def end(body, frame):
            place = columns(table, body)
            position = apply_matrix(columns(flat.own, body)[:2], frame.position)
            return FlatEnds(place[:2], place[2:], position)

        axis = between = None
        along = [np.full(len(x), not _ALONG.keys().isdisjoint(x.kept)) for x in self._pair_kinds]
        along = np.concatenate(along)[None]
        if np.any(along):
            z = body_axes(a[1].orientation)[:, 2]
            axis = apply_matrix(columns(flat.own, a[0])[:2], z)
            axis = jnp.where(along, axis, jnp.asarray([[1.0], [0.0]], axis.dtype))
        if "turn_z" in names:
            p, q = (
                algebra.quaternion_product(columns(flat.still, body), frame.orientation)
                for body, frame in (a, b)
            )
            between = flat.plane.half_turn(p, q)
        return Pairs.in_plane(names, end(*a), end(*b), axis, between)

    def _ends_of_pairs(self) -> list[tuple[np.ndarray, Pose]]:
        """Bodies and frames of all pairs, at both ends."""
        kinds = self._pair_kinds
        bodies = [np.concatenate(ends) for ends in zip(*map(self.tables.ends, kinds), strict=True)]
        together = [joints.together for joints in kinds]
        frames = [_joined([x.frame_a for x in together]), _joined([x.frame_b for x in together])]
        return list(zip(bodies, frames, strict=True))

    def _by_kind(self, names: tuple[str, ...], table: Float[Array, "names *_ k"]) -> list[Array]:
        """Split a table of the rows of all pairs into one for each kind."""
        found, start = [], 0
        for joints in self._pair_kinds:
            rows = np.array([names.index(name) for name in _names(joints)], int)
            own = table[..., start : start + len(joints)]
            found.append(jnp.moveaxis(columns(jnp.moveaxis(own, 0, -1), rows), -1, 0))
            start += len(joints)
        return found

    def _values_of_pairs(self, q: Configuration) -> list[Float[Array, "rows joints"]]:
        if not self._pair_kinds:
            return []
        pairs = self._pairs(q)
        return self._by_kind(pairs.names, pairs.values())

    def _rates_of_pairs(self, pairs: Pairs, v: Velocity) -> list[Float[Array, "rows joints"]]:
        return self._by_kind(pairs.names, pairs.rates(*self._of_pairs(v)))

    def _of_pairs(self, v: Velocity) -> list[Float[Array, "size k"]]:
        """Velocities of the bodies at both ends of all pairs."""
        table = self.tables.table(v)
        table = jnp.concatenate([table, jnp.zeros_like(table[:, :1])], axis=1)
        ends = zip(*map(self.tables.ends, self._pair_kinds), strict=True)
        return [columns(table, np.concatenate(end)) for end in ends]

    def _linearised_pairs(self, q: Configuration, v: Velocity) -> list[Linearised]:
        if not self._pair_kinds:
            return []
        pairs, velocities = self._pairs(q), self._of_pairs(v)
        motion = pairs.rates(*velocities), pairs.drift(*velocities)
        tables = (pairs.values(), *motion, *pairs.jacobian())
        kinds = zip(*(self._by_kind(pairs.names, x) for x in tables), strict=True)
        return [
            Linearised(value, rate, drift, [J_a, J_b]) for value, rate, drift, J_a, J_b in kinds
        ]


def _is_pair(joints: Stack[AbstractConstraint]) -> bool:
    # A subclass that overrides the rows is evaluated by its own.
    kind, own = type(joints[0]), ("constraint", "equations", "nonholonomic", "velocity_equations")
    return issubclass(kind, AbstractPair) and all(
        getattr(kind, name) is getattr(AbstractPair, name) for name in own
    )


def _names(joints: Stack[Any]) -> tuple[str, ...]:
    """What the pairs of a kind hold."""
    held = joints[0].holds if joints.kept is None else joints.kept
    return tuple(_ALONG[name] if name in _ALONG else name for name in held)


def _left(joints: Stack, level: int, rows: Array) -> Array:
    """Of the holonomic rows (level 0) or the nonholonomic ones (level 1) of a joint, those that act
    in the plane."""
    if joints.kept is None or len(joints.kept[level]) == rows.shape[0]:
        return rows
    return rows[np.array(joints.kept[level], int)]


def _joined(frames: list[Pose]) -> Pose:
    """Frames of several kinds, with the element axis last."""
    return jax.tree.map(lambda *x: jnp.concatenate(x, axis=-1), *frames)


def _flat(tables: list[Array], dtype: DTypeLike) -> Float[Array, " rows"]:
    if not tables:
        return jnp.zeros(0, dtype)
    return jnp.concatenate([table.ravel() for table in tables])

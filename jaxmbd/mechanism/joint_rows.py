"""Rows of the joints of a mechanism; those of all pairs are evaluated at once.

In world axes frame a has the axes e1, e2, e3 and frame b has z1, z2, z3. d is the vector from the
origin of a to that of b, and (w, u) the relative quaternion. A pair constrains some of

    e_i . d   (x, y, z),    e1 . z3, e2 . z3   (tilt),    e1 . z2   (arms),    2 u_i   (turn).

Vectors y fixed to a body rotate by y' = omega x y. With the relative angular velocity omega in
frame a, u' = (w omega + omega x u) / 2. So each row changes at the rate

    L . (v_b - v_a) + A . (omega_b - omega_a)

where v_a and v_b are the velocities of the points of both bodies at the origin of frame b. L and A
follow without differentiation: L = e_i for an offset, A = z x e for a product of axes, and A is a
combination of the e for a turn. The Jacobian transforms them to the origins of the bodies, as
forces are transformed. The drift, the derivative of the rates at constant velocities, is in closed
form as well.

In a plane e1 and e2 are in the plane, and e3 is its normal. Pairs there have rows x, y and turn_z
only, see `in_plane.py`, and the same formulas with vectors of two components.

Arrays have the three components of vectors first and one entry for each joint last: `(3, rows, k)`
for rows that are evaluated together.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiler import contracted
from .._coordinates import algebra, apply_matrix, body_axes, components
from .._equations import ConstraintRows
from .._linalg import columns
from .._types import RealScalarLike, Velocity
from .coordinates import Configuration, PlacedFlat
from .element import Groups
from .joints import AbstractConstraint, AbstractJoint, AbstractPair
from .linearise import Linearised, along, frame_poses, frame_twists, linearised
from .plane import turned
from .pose import Pose
from .stack import Stack
from .tables import BodyTables, merged_rows

# In the order of evaluation.
NAMES = ("x", "y", "z", "tilt_x", "tilt_y", "arms", "turn_x", "turn_y", "turn_z")

_AXES = {"tilt_x": (0, 2), "tilt_y": (1, 2), "arms": (0, 1)}

# In a plane, offsets along the axis of frame a and across it are evaluated as others, see
# `in_plane.py`.
_ALONG = {"along": "x", "across": "y"}


class Ends(NamedTuple):
    """All pairs at one end: positions of the bodies, their axes (as columns) and quaternions, and
    position, axes and quaternion of the frames on them."""

    position: Float[Array, "3 k"]
    axes: Float[Array, "3 3 k"]
    orientation: Float[Array, "4 k"]
    frame_position: Float[Array, "3 k"]
    frame_axes: Float[Array, "3 3 k"]
    frame_orientation: Float[Array, "4 k"]


class FlatEnds(NamedTuple):
    """The same in a plane: positions of the bodies, cosine and sine of half their angles, and
    positions of the frames on them."""

    position: Float[Array, "2 k"]
    half: Float[Array, "2 k"]
    frame_position: Float[Array, "2 k"]

    @property
    def angle(self) -> Float[Array, "2 k"]:
        """Cosine and sine of the angles."""
        c, s = components(self.half)
        return jnp.stack([c * c - s * s, 2 * c * s])


class Pairs(NamedTuple):
    """Pairs at one q, with the components `names`, in space (d = 3) or in a plane (d = 2).

    - `e`, `z`: axes of the frames, as columns; no `z` in a plane.
    - `apart`: the vector d. `arm_a`, `arm_b`: from the origins of the bodies to that of frame b.
    - `turn`: (w, u) with w >= 0, if needed; in a plane, u along its normal.
    """

    names: tuple[str, ...]
    e: Float[Array, "d d k"]
    z: Float[Array, "d axes k"]
    apart: Float[Array, "d k"]
    arm_a: Float[Array, "d k"]
    arm_b: Float[Array, "d k"]
    turn: Float[Array, "n k"]

    @classmethod
    def at(cls, names: tuple[str, ...], a: Ends, b: Ends) -> "Pairs":
        """Build the pairs from both ends, with `names` in the order of `NAMES`."""
        e, z = (algebra.matrix_product(end.axes, end.frame_axes) for end in (a, b))
        own_a, arm_b = (apply_matrix(x.axes, x.frame_position) for x in (a, b))
        arm_a = b.position + arm_b - a.position
        turn = jnp.zeros_like(a.orientation)
        if any(name.startswith("turn") for name in names):
            p, q = (algebra.quaternion_product(x.orientation, x.frame_orientation) for x in (a, b))
            turn = algebra.quaternion_product(algebra.quaternion_conjugate(p), q)
            turn = turn / jnp.sqrt(jnp.sum(turn * turn, axis=0))[None]
        return cls(names, e, z, arm_a - own_a, arm_a, arm_b, _shorter(turn))

    @classmethod
    def in_plane(
        cls,
        names: tuple[str, ...],
        a: FlatEnds,
        b: FlatEnds,
        axis: Float[Array, "2 k"] | None,
        between: Float[Array, "2 k"] | None,
    ) -> "Pairs":
        """The same in a plane. `axis`: the first one of frame a in the axes of body a, whose axes
        are those of the frame for `None`. `between`: cosine and sine of half the angle from frame a
        to frame b when both bodies are at angle 0, if needed."""
        angle = a.angle
        own_a, arm_b = turned(angle, a.frame_position), turned(b.angle, b.frame_position)
        arm_a = b.position + arm_b - a.position
        c, s = components(angle if axis is None else turned(angle, axis))
        e = jnp.stack([jnp.stack([c, -s]), jnp.stack([s, c])])
        turn = a.half
        if between is not None:
            back = a.half * jnp.asarray([[1], [-1]], turn.dtype)
            turn = turned(between, turned(back, b.half))
        return cls(names, e, e[:, :0], arm_a - own_a, arm_a, arm_b, _shorter(turn))

    @property
    def _planar(self) -> bool:
        return self.e.shape[0] == 2

    @property
    def _shifts(self) -> list[int]:
        return [i for i, name in enumerate("xyz") if name in self.names]

    @property
    def _turns(self) -> list[int]:
        axes = "z" if self._planar else "xyz"
        return [i for i, axis in enumerate(axes) if f"turn_{axis}" in self.names]

    def _axes(self) -> tuple[Float[Array, "d rows k"], Float[Array, "d rows k"]]:
        """e and z of the products of axes."""
        pairs = [_AXES[name] for name in self.names if name in _AXES]
        return _columns(self.e, [i for i, _ in pairs]), _columns(self.z, [j for _, j in pairs])

    def _cross(self, w: Array, r: Float[Array, "d k"]) -> Float[Array, "d k"]:
        """w x r."""
        if not self._planar:
            return algebra.cross(w, r)
        x, y = components(r)
        return w * jnp.stack([-y, x])

    def _twice_u(self) -> Float[Array, "turns k"]:
        return 2 * _columns(self.turn[None, 1:], self._turns)[0]

    def values(self) -> Float[Array, "names k"]:
        """The components, shape `(names, k)`."""
        offsets = _dot(_columns(self.e, self._shifts), self.apart[:, None])
        return jnp.concatenate([offsets, _dot(*self._axes()), self._twice_u()])

    def _levers(self) -> tuple[Float[Array, "d shifts k"], Float[Array, "_ others k"]]:
        """L of the offsets, and A of all others."""
        L, turns, w = _columns(self.e, self._shifts), self._turns, self.turn[None, :1]
        if self._planar:
            return L, w[:, : len(turns)]
        e, z = self._axes()
        A = algebra.cross(z, e)
        if turns:
            # w e_i + u_k e_j - u_j e_k, with (i, j, k) cyclic.
            after, before = ([(i + n) % 3 for i in turns] for n in (1, 2))
            u = self.turn[None, 1:]
            of_turns = (
                w * _columns(self.e, turns)
                + _columns(u, before) * _columns(self.e, after)
                - _columns(u, after) * _columns(self.e, before)
            )
            A = jnp.concatenate([A, of_turns], axis=1)
        return L, A

    def _point_b(self, v_a: Float[Array, "n k"], v_b: Float[Array, "n k"]) -> Float[Array, "d k"]:
        """The velocity of the origin of frame b relative to that of body a."""
        d = self.e.shape[0]
        return v_b[:d] + self._cross(v_b[d:], self.arm_b) - v_a[:d]

    def rates(self, v_a: Float[Array, "n k"], v_b: Float[Array, "n k"]) -> Float[Array, "names k"]:
        """J v."""
        (L, A), d = self._levers(), self.e.shape[0]
        of_points = self._point_b(v_a, v_b) - self._cross(v_a[d:], self.arm_a)
        spin = v_b[d:] - v_a[d:]
        return jnp.concatenate([_dot(L, of_points[:, None]), _dot(A, spin[:, None])])

    def drift(self, v_a: Float[Array, "n k"], v_b: Float[Array, "n k"]) -> Float[Array, "names k"]:
        """J' v at constant velocities v."""
        (L, A), d, cross = self._levers(), self.e.shape[0], self._cross
        omega_a, omega_b = v_a[d:], v_b[d:]
        # L' = omega_a x L, and the arm of a changes at the rate of `_point_b`.
        bent = cross(omega_b, cross(omega_b, self.arm_b)) + cross(
            omega_a, cross(omega_a, self.arm_a) - 2 * self._point_b(v_a, v_b)
        )
        spin = (omega_b - omega_a)[:, None]
        # A rotates with a, and by the spin s as the components do:
        # (e . z)'' = (s . e) (s . z) - s^2 e . z, and u'' = - s^2 u / 4, both at constant s.
        square = _dot(spin, spin)
        turns = -square / 4 * self._twice_u()
        if self._planar:
            return jnp.concatenate([_dot(L, bent[:, None]), turns])
        e, z = self._axes()
        tilts = _dot(e, spin) * _dot(z, spin) - square * _dot(e, z)
        others = jnp.concatenate([tilts, turns]) - _dot(A, cross(omega_a, omega_b)[:, None])
        return jnp.concatenate([_dot(L, bent[:, None]), others])

    def jacobian(self) -> list[Float[Array, "names n k"]]:
        """J for the velocities of a, and for those of b."""
        L, A = self._levers()
        still = jnp.zeros((len(L), *A.shape[1:]), A.dtype)
        found = []
        for sign, arm in ((-1, self.arm_a), (1, self.arm_b)):
            arm = arm[:, None]
            if self._planar:
                tilts = (arm[0] * L[1] - arm[1] * L[0])[None]
            else:
                tilts = algebra.cross(arm, L)
            rows = [jnp.concatenate([L, tilts]), jnp.concatenate([still, A])]
            found.append(sign * jnp.swapaxes(jnp.concatenate(rows, axis=1), 0, 1))
        return found


def _shorter(turn: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """The same rotation, by at most half a turn."""
    return jnp.where(turn[:1] < 0, -turn, turn)


def _columns(x: Float[Array, "m n k"], index: Sequence[int]) -> Float[Array, "m rows k"]:
    if list(index) == list(range(x.shape[1])):
        return x
    return jnp.concatenate([x[:, i : i + 1] for i in index] or [x[:, :0]], axis=1)


def _dot(a: Float[Array, "3 rows k"], b: Float[Array, "3 #rows k"]) -> Float[Array, "rows k"]:
    return contracted(a, b, 0)


class JointRows(NamedTuple):
    """The rows of joints between bodies. Those of lower pairs of all kinds are evaluated at once,
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
        """All rows. With `ground`, the blocks of J for the ground are those of a body there."""
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

    def counts(self, q: Any, v: Any) -> list[tuple[Stack[AbstractConstraint], int]]:
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
        """For each joint of each kind, whether its rows may depend on those of others. The rows of
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
        if isinstance(here := self.tables.kinematics(q), PlacedFlat):
            return self._flat_pairs(names, here)
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
        """Split a table of the rows of all pairs into those of each kind."""
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


def _flat(tables: list[Array], dtype: Any) -> Float[Array, " rows"]:
    if not tables:
        return jnp.zeros(0, dtype)
    return jnp.concatenate([table.ravel() for table in tables])

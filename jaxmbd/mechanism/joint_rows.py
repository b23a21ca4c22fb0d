"""Rows of the joints of a mechanism, kind by kind."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._coordinates import algebra, body_axes
from .._equations import ConstraintRows
from .._linalg import columns
from .._types import RealScalarLike, Velocity
from .groups import Groups
from .joints import AbstractConstraint, AbstractJoint, AbstractPair
from .linearise import Linearised, along, frame_poses, frame_twists, linearised
from .pairs import NAMES, Ends, Pairs
from .placed import Configuration, Placed
from .pose import Pose
from .stack import Stack
from .tables import BodyTables, merged_rows


class JointRows(NamedTuple):
    """The rows of joints between bodies. Those of lower pairs of all kinds are evaluated at once,
    see `pairs.py`."""

    tables: BodyTables
    kinds: tuple[Stack[AbstractConstraint], ...]

    def constraint(self, q: Configuration, t: RealScalarLike) -> Float[Array, " nh"]:
        return _flat(self._constraints(q, t), q.dtype)

    def nonholonomic(
        self, q: Configuration, v: Velocity, t: RealScalarLike
    ) -> Float[Array, " rows"]:
        return _flat(self._nonholonomics(q, v, t), q.dtype)

    def linearised(self, t: RealScalarLike, q: Configuration, v: Velocity) -> ConstraintRows:
        t = jnp.asarray(t, q.dtype)
        phi: list[Array] = []
        # Rows of each kind with J and its bodies, holonomic and then nonholonomic.
        levels: tuple[list, list] = [], []
        pairs = self._linearised_pairs(q, v)
        for joints in self.kinds:
            bodies = self.tables.ends(joints)

            def of_joint(joint, qs, vs, moving=self.tables.moving(joints)):
                equations = joint.equations, joint.velocity_equations
                return linearised(joint, *equations, qs, vs, t, moving)

            rows = pairs.pop(0) if _is_pair(joints) else self.tables.map(joints, of_joint, q, v)
            phi.append(rows.phi)
            nh = rows.phi.shape[0]
            for level, part in enumerate((slice(nh), slice(nh, None))):
                own = jax.tree.map(lambda x, part=part: x[part], rows[1:])
                if own[0].shape[0]:
                    levels[level].append((*own, bodies))
        found = [*levels[0], *levels[1]]
        return ConstraintRows(
            _flat(phi, q.dtype),
            _flat([velocity for velocity, *_ in found], q.dtype),
            merged_rows(self.tables, (x[2:] for x in found), self._independent),
            -_flat([drift for _, drift, *_ in found], q.dtype),
        )

    def row_map(
        self, t: RealScalarLike, q: Configuration, v: Velocity
    ) -> Callable[[Velocity], Float[Array, " rows"]]:
        """J at (t, q, v), as a function that multiplies by it."""
        at_pairs = self._pairs(q) if self._pair_kinds else None
        none = jnp.zeros((0, 0), q.dtype)

        def of_joint(joint, qs, vs, changes):
            return along(joint, qs, vs, changes, t)

        def rows(x):
            pairs = [] if at_pairs is None else self._rates_of_pairs(at_pairs, x)
            levels = zip(
                *(
                    (pairs.pop(0), none)
                    if _is_pair(joints)
                    else self.tables.map(joints, of_joint, q, v, x)
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

        def of_joint(joint, qs):
            return joint.equations(frame_poses(joint, qs), t)

        pairs = self._values_of_pairs(q)
        return [
            pairs.pop(0) if _is_pair(joints) else self.tables.map(joints, of_joint, q)
            for joints in self.kinds
        ]

    def _nonholonomics(self, q: Configuration, v: Velocity, t: RealScalarLike) -> list[Array]:
        """Psi of each kind of joint, shape `(rows, count)`."""

        def of_joint(joint, qs, vs):
            poses, twists = frame_poses(joint, qs), frame_twists(joint, qs, vs)
            return joint.velocity_equations(poses, twists, t)

        none = jnp.zeros((0, 0), q.dtype)
        return [
            none if _is_pair(joints) else self.tables.map(joints, of_joint, q, v)
            for joints in self.kinds
        ]

    @property
    def _independent(self) -> bool:
        """Whether the structure makes the rows independent: the joints form trees, and the rows of
        each joint are independent."""
        groups = Groups()
        for kind in self.kinds:
            for joint in kind.outlines():
                if not isinstance(joint, AbstractJoint) or not groups.join(*joint.bodies):
                    return False
        return True

    # --- lower pairs ----------------------------------------------------------------------------

    @property
    def _pair_kinds(self) -> list[Stack]:
        return [joints for joints in self.kinds if _is_pair(joints)]

    def _pairs(self, q: Configuration) -> Pairs:
        here = self.tables.kinematics_with_ground(q)
        kinds = self._pair_kinds
        bodies = [np.concatenate(ends) for ends in zip(*map(self.tables.ends, kinds), strict=True)]
        together = [joints.together for joints in kinds]
        frames = [_joined([x.frame_a for x in together]), _joined([x.frame_b for x in together])]
        held = {name for joints in kinds for name in joints[0].holds}
        ends = [
            Ends(
                columns(here.position, body),
                columns(here.axes, body),
                columns(here.orientation, body),
                frame.position,
                body_axes(frame.orientation),
                frame.orientation,
            )
            for body, frame in zip(bodies, frames, strict=True)
        ]
        return Pairs.at(tuple(name for name in NAMES if name in held), *ends)

    def _by_kind(self, names: tuple[str, ...], table: Float[Array, "names *_ k"]) -> list[Array]:
        """Split a table of the rows of all pairs into those of each kind."""
        found, start = [], 0
        for joints in self._pair_kinds:
            rows = np.array([names.index(name) for name in joints[0].holds])
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

    def _of_pairs(self, v: Velocity) -> list[Float[Array, "6 k"]]:
        """Velocities of the bodies at both ends of all pairs."""
        table = self.tables.with_ground(v)
        ends = zip(*map(self.tables.ends, self._pair_kinds), strict=True)
        return [columns(table, np.concatenate(end)) for end in ends]

    def _linearised_pairs(self, q: Configuration, v: Velocity) -> list[Linearised]:
        if not self._pair_kinds:
            return []
        pairs, velocities = self._pairs(q), self._of_pairs(v)
        here, v_table = self.tables.kinematics(q), self.tables.table(v)
        moving = Placed(
            v_table[:3],
            algebra.quaternion_rate(here.orientation, v_table[3:]),
            algebra.cross(v_table[3:][:, None], here.axes),
        )
        rate, drift = jax.jvp(lambda q: self._pairs(q).rates(*velocities), (here,), (moving,))
        tables = (pairs.values(), rate, drift, *pairs.jacobian())
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


def _joined(frames: list[Pose]) -> Pose:
    """Frames of several kinds, with the element axis last."""
    return jax.tree.map(lambda *x: jnp.concatenate(x, axis=-1), *frames)


def _flat(tables: list[Array], dtype: Any) -> Float[Array, " rows"]:
    if not tables:
        return jnp.zeros(0, dtype)
    return jnp.concatenate([table.ravel() for table in tables])

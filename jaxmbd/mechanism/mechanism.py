"""Bodies and joints as one system."""

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, PyTree

from .._concrete import as_one_program, numpy_if_concrete
from .._contact.rows import ContactRows
from .._coordinates import body_axes
from .._coordinates.algebra import cross, quaternion_rate
from .._equations import AbstractStructuredSystem, ConstraintRows
from .._fusion import materialise
from .._inputs import Vector, at_least, checked
from .._linalg import BlockDiagonal, BlockRows, CoupledBlocks
from .._linalg.blocks import accumulated, columns
from .._system import State
from .._types import Coordinates, RealScalarLike, Scalar, Velocity
from . import energy
from .batching import batched, with_last_axis
from .body import GROUND, Body
from .collisions import ContactPoints
from .contact_rows import contact_gaps, contact_rows, names_of_points, touching
from .contacts import AbstractContact
from .coordinates import Bodies, BodyIndices
from .element import AbstractElement
from .forces import AbstractForceElement
from .joints import AbstractConstraint, AbstractJoint, AbstractPair
from .linearise import Linearised, along, frame_poses, frame_twists, holonomic, nonholonomic
from .listing import listing
from .pairs import NAMES, Ends, Pairs
from .placed import Configuration, Placed
from .pose import Pose, Twist
from .stack import Stack, stack, stacks


class Mechanism(AbstractStructuredSystem):
    """Rigid bodies, joints and forces between them, in maximal coordinates: an `AbstractSystem` for
    every enforcement method and scheme.

        mechanism = mbd.Mechanism([crank, rod], [hinge, pin], gravity=[0.0, 0.0, -9.81])
        sol = mbd.simulate(mechanism, mbd.UdwadiaKalaba(), mechanism.state(), t1=1.0, dt=1e-3)
        mechanism.pose(sol.q, "rod").position

    q and v are tables with a column for each body, flattened row by row: with n bodies first all n
    x coordinates, then all y, all z, and all w, x, y, z of the orientations; likewise v for the
    velocities and the angular velocities. `pose`, `twist` and `indices` find a body's by its name.
    `print` shows what there is.

    Every number in it is a parameter: build the mechanism inside of a function to differentiate
    it. Elements of one kind are kept as a structure of arrays and evaluated together, in one trace.

    Rows of constraints come kind by kind, in the order in which the kinds first appear among the
    joints; within a kind first the first equation of all joints, then the second, and so on;
    nonholonomic rows follow in the same manner. `rows` tells which are a joint's.
    """

    body_stack: Stack[Body]
    joint_stacks: tuple[Stack[AbstractConstraint], ...]
    force_stacks: tuple[Stack[AbstractForceElement], ...]
    contact_stacks: tuple[Stack[AbstractContact], ...]
    gravity: Float[Array, "3"]
    switches: dict[str, Callable[..., Any]]
    contact_budget: int | None = eqx.field(static=True)

    @checked
    def __init__(
        self,
        bodies: Sequence[Body],
        joints: Sequence[AbstractConstraint] = (),
        forces: Sequence[AbstractForceElement] = (),
        contacts: Sequence[AbstractContact] = (),
        *,
        gravity: Vector = (0.0, 0.0, -9.81),
        switches: Mapping[str, Any] | None = None,
        contact_budget: Annotated[int | None, at_least(1)] = None,
    ):
        """**Arguments:**

        - `bodies`, `joints`, `forces`, `contacts`.
        - `gravity`: acceleration, shape `(3,)` [m/s^2].
        - `switches`: for joints that do not always act, by name, a function `(mechanism, q, v, t,
          active)` that says whether the joint does in the step from there; `active`: whether it did
          in the step before, at first not. When it begins to, the velocities jump by the plastic
          impact law; close it near its Phi = 0.
        - `contact_budget`: how many points between shapes are solved for in a step, those with the
          smallest gaps; default all. If another one overlaps, the result says so.

        **Raises:** `ValueError` for no bodies, for names that are used twice, for joints, forces or
        contacts between unknown bodies, for switches of unknown joints, and for a budget that is
        not positive."""
        if not bodies:
            raise ValueError("A mechanism needs at least one body, but `bodies` is empty.")
        groups = (("bodies", bodies), ("joints", joints), ("forces", forces))
        for what, members in (*groups, ("contacts", contacts)):
            names = Counter(member.name for member in members)
            twice = [name for name, count in names.items() if count > 1]
            if twice:
                raise ValueError(f"Names of {what} must differ, but {twice} are used twice.")
        known = {GROUND, *(body.name for body in bodies)}
        for element in (*joints, *forces, *contacts):
            for name in element.bodies:
                if name not in known:
                    raise ValueError(
                        f'{type(element).__name__} "{element.name}" connects the body "{name}", '
                        f"which is not among {sorted(known)}."
                    )
        self.body_stack = stack(bodies)
        self.joint_stacks, self.force_stacks = stacks(joints), stacks(forces)
        self.contact_stacks = stacks(contacts)
        self.switches = dict(switches or {})
        for name, function in self.switches.items():
            self.joint(name)
            if not callable(function):
                raise ValueError(
                    f'The switch of the joint "{name}" must be a function of (mechanism, q, v, t, '
                    f"active), but is {function!r}."
                )
        self.contact_budget = contact_budget
        dtype = jnp.result_type(*(body.inertia.mass.dtype for body in bodies))
        self.gravity = jnp.asarray(gravity, dtype)

    @property
    def bodies(self) -> tuple[Body, ...]:
        """The bodies, in the order given."""
        return _members([self.body_stack])

    @property
    def _bodies(self) -> Body:
        """All as one, whose numbers have the body axis at the end."""
        return self.body_stack.together

    @property
    def joints(self) -> tuple[AbstractConstraint, ...]:
        """The joints, in the order given."""
        return _members(self.joint_stacks)

    @property
    def forces(self) -> tuple[AbstractForceElement, ...]:
        """The forces, in the order given."""
        return _members(self.force_stacks)

    @property
    def contacts(self) -> tuple[AbstractContact, ...]:
        """The contacts, in the order given."""
        return _members(self.contact_stacks)

    @property
    def coordinates(self) -> Bodies:
        return Bodies(len(self.body_stack))

    def __repr__(self) -> str:
        return listing(self)

    # --- states ---------------------------------------------------------------------------------

    def state(self, t: RealScalarLike = 0.0) -> State:
        """The state in which the bodies were given, for `simulate` or `assemble`."""

        def vector(pair):
            xp = numpy_if_concrete(*pair)
            return jnp.asarray(xp.concatenate(pair).ravel(), pair[0].dtype)

        return State(t, vector(self._bodies.pose), vector(self._bodies.twist))

    def pose(self, q: Float[ArrayLike, "*batch nq"], name: str) -> Pose:
        """Pose of the body `name`, or of the "ground"; leading axes of q are kept.

        **Raises:** `ValueError` for a name that is no body, and for another number of
        coordinates."""
        return Pose.of(self._part(self.checked_q(q), name))

    def twist(self, v: Float[ArrayLike, "*batch nv"], name: str) -> Twist:
        """Twist of the body `name`, or of the "ground"; leading axes of v are kept.

        **Raises:** as `pose`."""
        return Twist.of(self._part(self.checked_v(v), name))

    def indices(self, name: str) -> BodyIndices:
        """Where the numbers of the body `name` stand in q and v, for arguments that go by
        components, such as `fixed` and `weights` of `assemble`, and for what has them along an
        axis, such as `Mobility.motions`:

            crank = mechanism.indices("crank")
            state.q[crank.orientation], state.v[crank.linear]
            mbd.assemble(mechanism, state.q, fixed=crank.v)
            weights = jnp.ones(18).at[crank.v].set(100.0)

        **Raises:** `ValueError` for a name that is no body, and for the ground, which has none."""
        column = self._column(name)
        if column == len(self.body_stack):
            raise ValueError(f'"{name}" never moves, so it has no numbers in q and v.')
        return self.coordinates.indices(column)

    def contact_points(self, q: Float[Array, "*batch nq"]) -> ContactPoints:
        """Where shapes touch, all points, in the order of `contact_names`; leading axes of q are
        kept."""
        return batched(lambda q: touching(self, q), (self.checked_q(q), 1))

    @property
    def contact_names(self) -> tuple[str, ...]:
        """The contact that each contact point, and then each other gap, belongs to: the order of
        `Solution.contact_force`."""
        return names_of_points(self)

    def joint_coordinates(
        self, q: Float[Array, "*batch nq"], name: str
    ) -> Float[Array, "*batch k"]:
        """Coordinates of the joint `name`: see its class."""
        joint = self.joint(name)
        if not isinstance(joint, AbstractJoint):
            raise ValueError(f'{type(joint).__name__} "{name}" has no joint coordinates.')

        q = self.checked_q(q)
        return _coordinates(joint, [self._part(q, body) for body in joint.bodies])

    def checked_q(self, q: ArrayLike) -> Float[Array, "*batch nq"]:
        """q as an array. **Raises:** `ValueError` for another number of coordinates."""
        return with_last_axis("`q`", q, self.coordinates.nq, self._sizes)

    def checked_v(self, v: ArrayLike) -> Float[Array, "*batch nv"]:
        """v as an array. **Raises:** `ValueError` for another number of velocities."""
        return with_last_axis("`v`", v, self.coordinates.nv, self._sizes)

    @property
    def _sizes(self) -> str:
        return f"for each of {len(self.body_stack)} bodies 7 in q and 6 in v"

    # --- elements -------------------------------------------------------------------------------

    def body(self, name: str) -> Body:
        """The body `name`. **Raises:** `ValueError` if there is none."""
        return _find("body", [self.body_stack], name)

    def joint(self, name: str) -> AbstractConstraint:
        """The joint `name`. **Raises:** `ValueError` if there is none."""
        return _find("joint", self.joint_stacks, name)

    def force_element(self, name: str) -> AbstractForceElement:
        """The force `name`. **Raises:** `ValueError` if there is none."""
        return _find("force", self.force_stacks, name)

    def contact(self, name: str) -> AbstractContact:
        """The contact `name`. **Raises:** `ValueError` if there is none."""
        return _find("contact", self.contact_stacks, name)

    def frames(self, element: AbstractElement, q: Coordinates) -> tuple[Pose, ...]:
        """World poses of the frames of an element."""
        table = self.with_ground(q)
        return frame_poses(element, [table[:, self._column(name)] for name in element.bodies])

    def frame_twists(
        self, element: AbstractElement, q: Coordinates, v: Velocity
    ) -> tuple[Twist, ...]:
        """World twists of the frames of an element."""
        q_table, v_table = self.with_ground(q), self.with_ground(v)
        bodies = [self._column(name) for name in element.bodies]
        return frame_twists(
            element, [q_table[:, i] for i in bodies], [v_table[:, i] for i in bodies]
        )

    def map_elements(
        self, elements: Stack, fn: Callable[..., PyTree], *vectors: Array | Placed
    ) -> PyTree:
        """fn(element, qs, ...) for all elements of one kind, the element axis last: for each of the
        `vectors`, q or v, a tuple with the components of the bodies that the element connects."""
        ends = self.ends(elements)
        k = len(ends)

        def one(element, *bodies):
            return fn(element, *(bodies[i : i + k] for i in range(0, len(bodies), k)))

        tables = [self.with_ground(x) for x in vectors]
        return elements.map(one, *(columns(table, end) for table in tables for end in ends))

    # --- AbstractSystem -------------------------------------------------------------------------

    def kinematics(self, q: Configuration) -> Placed:
        return q if isinstance(q, Placed) else Placed.of(self.table(q))

    def retract(self, q: Configuration, dp: Velocity) -> Coordinates:
        here = self.kinematics(q)
        return self._bodies.retract(here.table, self.table(dp), here.axes).ravel()

    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        return self._bodies.difference(self.table(q0), self.table(q1)).ravel()

    def carried(self, q0: Configuration, q1: Coordinates, v: Velocity) -> Velocity:
        axes = self.kinematics(q0).axes, self.kinematics(q1).axes
        return self._bodies.carried(*axes, self.table(v)).ravel()

    def mass_matrix(self, q: Coordinates) -> Float[Array, "nv nv"]:
        return self.mass_blocks(q).dense()

    def mass_blocks(self, q: Configuration) -> BlockDiagonal | CoupledBlocks:
        bodies, axes = self._bodies, self.kinematics(q).axes
        M = BlockDiagonal(
            bodies.mass_matrix(axes),
            bodies.root(axes),
            bodies.inertia.positive_definite,
        )
        shared = self._shared_inertia(q)
        return M if shared is None else CoupledBlocks(M, *shared)

    def inertia(self, q: Configuration, a: Velocity) -> Float[Array, " nv"]:
        f = self._bodies.momentum_of(self.kinematics(q).axes, self.table(a)).ravel()
        if (shared := self._shared_inertia(q)) is None:
            return f
        R, weights = shared
        return f + (weights * (R @ a)) @ R

    def reach(self, J: BlockRows) -> Float[Array, " rows"]:
        # A joint that is open by phi lets its bodies turn by phi / arm; where the arm is nothing,
        # their radius of gyration counts.
        def gyration(body):
            return jnp.trace(body.inertia.tensor) / (2 * body.inertia.mass)

        square = self.body_stack.map(gyration)
        weights = jnp.stack([square] * 3 + [jnp.ones_like(square)] * 3)
        return jnp.sqrt(J.squares(weights))

    def force(self, t: RealScalarLike, q: Coordinates, v: Velocity, u: Any) -> Float[Array, " nv"]:
        return self.inertial_force(q, v) + self.external_force(t, q, v, u)

    def inertial_force(
        self, q: Configuration, v: Velocity, h: RealScalarLike | None = None
    ) -> Float[Array, " nv"]:
        bodies, axes, omega = self._bodies, self.kinematics(q).axes, self.table(v)[3:]
        if h is None:
            return bodies.inertial_force(axes, omega, self.gravity).ravel()
        return bodies.mean_inertial_force(axes, omega, self.gravity, h).ravel()

    def external_force(
        self, t: RealScalarLike, q: Configuration, v: Velocity, u: Any
    ) -> Float[Array, " nv"]:
        n = len(self.body_stack)
        f = jnp.zeros((6, n + 1), q.dtype)  # and on the ground
        for forces in self.force_stacks:

            def on_bodies(force, qs, vs):
                poses, twists = frame_poses(force, qs), frame_twists(force, qs, vs)
                wrenches = force.wrenches(poses, twists, t, u)
                return tuple(
                    jnp.concatenate([w.force, w.torque_about(pose.position - x[:3])])
                    for w, pose, x in zip(wrenches, poses, qs, strict=True)
                )

            wrenches = self.map_elements(forces, on_bodies, q, v)
            for wrench, i in zip(wrenches, self.ends(forces), strict=True):
                f = accumulated(f, i, wrench)
        for weight, rotor, ends in self._rotors(q, v):
            for J, i in zip(rotor.J, ends, strict=True):
                f = accumulated(f, i, -J[0] * (weight * rotor.drift[0])[None])
        return f[:, :n].ravel()

    def mechanical_energy(self, t: RealScalarLike, q: Coordinates, v: Velocity) -> Scalar:
        """Of all bodies and force elements, rotors included [J]."""
        return energy.total_energy(self, q, v, t)

    def supplied_power(self, t: RealScalarLike, q: Coordinates, v: Velocity, u: Any) -> Scalar:
        """What force elements give beyond what they had stored [W]."""
        elements = energy.powers(self, q, v, t, u).values()
        return -sum((x.lost for x in elements), jnp.zeros((), q.dtype))

    def constraint(self, q: Configuration, t: RealScalarLike) -> Float[Array, " nh"]:
        return _flat(self._constraints(q, t), q.dtype)

    def nonholonomic(
        self, q: Configuration, v: Velocity, t: RealScalarLike
    ) -> Float[Array, " rows"]:
        return _flat(self._nonholonomics(q, v, t), q.dtype)

    def gap(self, q: Coordinates, t: RealScalarLike) -> Float[Array, " contacts"]:
        return contact_gaps(self, t, q)

    def switch(
        self, q: Coordinates, v: Velocity, t: RealScalarLike, active: Bool[Array, " rows"]
    ) -> Bool[Array, " rows"] | None:
        if not self.switches:
            return None
        acts = jnp.ones_like(active)
        for name, function in self.switches.items():
            rows = self.rows(name)
            acts = acts.at[rows].set(function(self, q, v, t, active[rows[0]]))
        return acts

    def contact_rows(self, t: RealScalarLike, q: Coordinates) -> ContactRows:
        return contact_rows(self, t, q)

    def linearised(self, t: RealScalarLike, q: Configuration, v: Velocity) -> ConstraintRows:
        n, t = len(self.body_stack), jnp.asarray(t, q.dtype)
        parts: tuple[list[Linearised], list[Linearised]] = [], []
        ends: tuple[list, list] = [], []
        pairs = self._linearised_pairs(q, v)
        for joints in self.joint_stacks:
            bodies = self.ends(joints)
            if self._is_pair(joints):
                parts[0].append(pairs.pop(0))
                ends[0].append(bodies)
                continue
            moving = [bool(np.any(body < n)) for body in bodies]

            def of_joint(joint, qs, vs, moving=moving):
                return (
                    holonomic(joint, joint.equations, qs, vs, t, moving),
                    nonholonomic(joint, joint.velocity_equations, qs, vs, t, moving),
                )

            for level, rows in enumerate(self.map_elements(joints, of_joint, q, v)):
                if rows.value.shape[0]:
                    parts[level].append(rows)
                    ends[level].append(bodies)
        every = [*parts[0], *parts[1]]
        J = self._block_rows(
            list(zip((rows.J for rows in every), [*ends[0], *ends[1]], strict=True)),
            self._independent,
        )
        return ConstraintRows(
            _flat([rows.value for rows in parts[0]], q.dtype),
            _flat([rows.velocity for rows in every], q.dtype),
            J,
            -_flat([rows.drift for rows in every], q.dtype),
        )

    def row_map(
        self, t: RealScalarLike, q: Configuration, v: Velocity
    ) -> Callable[[Velocity], Float[Array, " rows"]]:
        at_pairs = self._pairs(q) if self._pair_stacks else None
        none = jnp.zeros((0, 0), q.dtype)

        def of_joint(joint, qs, vs, changes):
            return along(joint, qs, vs, changes, t)

        def rows(x):
            pairs = [] if at_pairs is None else self._rates_of_pairs(at_pairs, x)
            levels = zip(
                *(
                    (pairs.pop(0), none)
                    if self._is_pair(joints)
                    else self.map_elements(joints, of_joint, q, v, x)
                    for joints in self.joint_stacks
                ),
                strict=True,
            )
            return _flat([table for tables in levels for table in tables], q.dtype)

        return rows

    def rows(self, name: str) -> np.ndarray:
        """Indices of the rows of the joint `name` in constraints and multipliers, its holonomic
        ones first. **Raises:** `ValueError` if there is none."""
        self.joint(name)
        found, start = [], 0
        for joints, rows in self.row_counts():
            if name in joints.names:
                found.append(start + joints.names.index(name) + len(joints) * np.arange(rows))
            start += rows * len(joints)
        return np.concatenate(found)

    @property
    def row_count(self) -> int:
        """Number of all rows of constraints, and so of multipliers."""
        return sum(rows * len(joints) for joints, rows in self.row_counts())

    def row_counts(self) -> list[tuple[Stack[AbstractConstraint], int]]:
        """The kinds of joints with the number of rows of each one: holonomic, then nonholonomic."""
        state = jax.eval_shape(self.state)
        levels = (
            jax.eval_shape(self._constraints, state.q, 0.0),
            jax.eval_shape(self._nonholonomics, state.q, state.v, 0.0),
        )
        return [
            (joints, table.shape[0])
            for tables in levels
            for joints, table in zip(self.joint_stacks, tables, strict=True)
        ]

    # --- inside ---------------------------------------------------------------------------------

    def _constraints(self, q: Configuration, t: RealScalarLike) -> list[Array]:
        """Phi of each kind of joint, shape `(rows, count)`."""

        def of_joint(joint, qs):
            return joint.equations(frame_poses(joint, qs), t)

        pairs = self._values_of_pairs(q)
        return [
            pairs.pop(0) if self._is_pair(joints) else self.map_elements(joints, of_joint, q)
            for joints in self.joint_stacks
        ]

    def _nonholonomics(self, q: Configuration, v: Velocity, t: RealScalarLike) -> list[Array]:
        """Psi of each kind of joint, shape `(rows, count)`."""

        def of_joint(joint, qs, vs):
            poses, twists = frame_poses(joint, qs), frame_twists(joint, qs, vs)
            return joint.velocity_equations(poses, twists, t)

        none = jnp.zeros((0, 0), q.dtype)
        return [
            none if self._is_pair(joints) else self.map_elements(joints, of_joint, q, v)
            for joints in self.joint_stacks
        ]

    # --- lower pairs, all kinds at once: see `pairs.py` -----------------------------------------

    @staticmethod
    def _is_pair(joints: Stack[AbstractConstraint]) -> bool:
        # A subclass with rows of its own is evaluated by these.
        kind, own = (
            type(joints[0]),
            ("constraint", "equations", "nonholonomic", "velocity_equations"),
        )
        return issubclass(kind, AbstractPair) and all(
            getattr(kind, name) is getattr(AbstractPair, name) for name in own
        )

    @property
    def _pair_stacks(self) -> list[Stack]:
        return [joints for joints in self.joint_stacks if self._is_pair(joints)]

    def _pairs(self, q: Configuration) -> Pairs:
        here, still = self.kinematics(q), Placed.of(jnp.asarray(_ground(7)[:, None], q.dtype))
        here = Placed(*(jnp.concatenate(x, axis=-1) for x in zip(here, still, strict=True)))
        stacks = self._pair_stacks
        bodies = [np.concatenate(ends) for ends in zip(*map(self.ends, stacks), strict=True)]
        together = [joints.together for joints in stacks]
        frames = [_joined([x.frame_a for x in together]), _joined([x.frame_b for x in together])]
        held = {name for joints in stacks for name in joints[0].holds}
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
        """The rows of each kind of pair, of a table with those of all."""
        found, start = [], 0
        for joints in self._pair_stacks:
            rows = np.array([names.index(name) for name in joints[0].holds])
            own = table[..., start : start + len(joints)]
            found.append(jnp.moveaxis(columns(jnp.moveaxis(own, 0, -1), rows), -1, 0))
            start += len(joints)
        return found

    def _values_of_pairs(self, q: Configuration) -> list[Float[Array, "rows joints"]]:
        if not self._pair_stacks:
            return []
        pairs = self._pairs(q)
        return self._by_kind(pairs.names, pairs.values())

    def _rates_of_pairs(self, pairs: Pairs, v: Velocity) -> list[Float[Array, "rows joints"]]:
        return self._by_kind(pairs.names, pairs.rates(*self._of_pairs(v)))

    def _of_pairs(self, v: Velocity) -> list[Float[Array, "6 k"]]:
        """Velocities of the bodies at both ends of all pairs."""
        table = self.with_ground(v)
        ends = zip(*map(self.ends, self._pair_stacks), strict=True)
        return [columns(table, np.concatenate(end)) for end in ends]

    def _linearised_pairs(self, q: Configuration, v: Velocity) -> list[Linearised]:
        if not self._pair_stacks:
            return []
        pairs, velocities = self._pairs(q), self._of_pairs(v)
        here, v_table = self.kinematics(q), self.table(v)
        moving = Placed(
            v_table[:3],
            quaternion_rate(here.orientation, v_table[3:]),
            cross(v_table[3:][:, None], here.axes),
        )
        rate, drift = jax.jvp(lambda q: self._pairs(q).rates(*velocities), (here,), (moving,))
        tables = (pairs.values(), rate, drift, *pairs.jacobian())
        kinds = zip(*(self._by_kind(pairs.names, x) for x in tables), strict=True)
        return [
            Linearised(value, rate, drift, [J_a, J_b]) for value, rate, drift, J_a, J_b in kinds
        ]

    def _shared_inertia(self, q: Configuration) -> tuple[BlockRows, Array] | None:
        """R and w of rotors, whose part of M is R^T diag(w) R; `None` without any."""
        rotors = self._rotors(q, jnp.zeros(self.coordinates.nv, q.dtype))
        if not rotors:
            return None
        R = self._block_rows([(rotor.J, ends) for _, rotor, ends in rotors], independent=True)
        return R, jnp.concatenate([weight for weight, _, _ in rotors])

    def _rotors(self, q: Configuration, v: Velocity) -> list[tuple[Array, Linearised, list]]:
        """Of each kind of force with an inertance: it, its rate, one row each, and its bodies."""
        found = []
        for forces in self.force_stacks:
            if forces[0].inertance is None:
                continue
            ends = self.ends(forces)
            moving = [bool(np.any(end < len(self.body_stack))) for end in ends]

            def of_rotor(force, qs, vs, moving=moving):
                def rate(poses, twists, t):
                    del t
                    return force.rate(poses, twists)[None]

                still = jnp.zeros((), q.dtype)
                return force.inertance, nonholonomic(force, rate, qs, vs, still, moving)

            found.append((*self.map_elements(forces, of_rotor, q, v), ends))
        return found

    def _block_rows(
        self, parts: Sequence[tuple[list[Array], list[np.ndarray]]], independent: bool
    ) -> BlockRows:
        """From J and the bodies at each end, kind by kind."""
        J = [[materialise(x) for x in J] for J, _ in parts]
        ends = [ends for _, ends in parts]
        return BlockRows.merged(J, ends, len(self.body_stack), 6, independent)

    @property
    def _independent(self) -> bool:
        """Whether the rows are independent by structure: the joints form trees, and each one's own
        rows are independent."""
        parent = {name: name for name in (*self.body_stack.names, GROUND)}

        def root(name):
            while parent[name] != name:
                name = parent[name]
            return name

        for joints in self.joint_stacks:
            for joint in joints.outlines():
                if not isinstance(joint, AbstractJoint):
                    return False
                a, b = (root(name) for name in joint.bodies)
                if a == b:
                    return False
                parent[a] = b
        return True

    def _part(self, x: Float[Array, "*batch n"], name: str) -> Float[Array, "*batch components"]:
        """Those components of q or v that are the body's; of the ground, constants."""
        return _part_of(x, len(self.body_stack), self._column(name))

    def _column(self, name: str) -> int:
        """Which column of a table belongs to the body `name`; the ground is the last."""
        names = (*self.body_stack.names, GROUND)
        if name not in names:
            raise ValueError(f'There is no body "{name}" among {list(names)}.')
        return names.index(name)

    def ends(self, elements: Stack) -> list[np.ndarray]:
        """Columns of the bodies that the elements connect, for each of their frames."""
        column = {name: i for i, name in enumerate((*self.body_stack.names, GROUND))}
        ends = [[column[name] for name in outline.bodies] for outline in elements.outlines()]
        return list(np.array(ends).T)

    def table(self, x: Array | Placed) -> Float[Array, "components bodies"]:
        """q or v of one sample with a column for each body.

        **Raises:** `ValueError` for another number of them, and for leading axes."""
        if isinstance(x, Placed):
            return x.table
        sizes = (self.coordinates.nq, self.coordinates.nv)
        if x.ndim != 1 or x.shape[0] not in sizes:
            raise ValueError(
                f"`q` and `v` must be vectors of {sizes[0]} and {sizes[1]} entries, {self._sizes}, "
                f"but one has shape {x.shape}. Use `jax.vmap` for batches."
            )
        return x.reshape(-1, len(self.body_stack))

    def with_ground(self, x: Array | Placed) -> Float[Array, "components columns"]:
        """The table of q (7 components) or v (6), with the ground as the last column."""
        table = self.table(x)
        # A constant, not computed: XLA then sees that all tables of one q are the same.
        ground = _ground(table.shape[0])[:, None]
        return jnp.concatenate([table, jnp.asarray(ground, x.dtype)], axis=1)


@functools.partial(jax.jit, static_argnums=(1, 2), inline=True)
def _part_of(x: Float[Array, "*batch n"], count: int, column: int) -> Array:
    table = x.reshape(*x.shape[:-1], x.shape[-1] // count, count)
    if column < count:
        return table[..., column]
    shape = table.shape[:-1]
    return jnp.broadcast_to(jnp.asarray(_ground(shape[-1]), x.dtype), shape)


@as_one_program
def _coordinates(joint: AbstractJoint, bodies: list[Array]) -> Float[Array, "*batch k"]:
    return batched(
        lambda *bodies: joint.coordinates(*frame_poses(joint, bodies)), *((x, 1) for x in bodies)
    )


def _ground(components: int) -> np.ndarray:
    """The 7 coordinates or 6 velocities of the ground: the pose without shift and turn, at rest."""
    return np.eye(7)[3] if components == 7 else np.zeros(components)


def _joined(frames: Sequence[Pose]) -> Pose:
    """Frames of several kinds, the element axis last."""
    return jax.tree.map(lambda *x: jnp.concatenate(x, axis=-1), *frames)


def _flat(tables: Sequence[Array], dtype: Any) -> Float[Array, " rows"]:
    if not tables:
        return jnp.zeros(0, dtype)
    return jnp.concatenate([table.ravel() for table in tables])


def _members(kinds: Sequence[Stack]) -> tuple:
    places = {place: kind[i] for kind in kinds for i, place in enumerate(kind.places)}
    return tuple(places[i] for i in range(len(places)))


def _find(what: str, kinds: Sequence[Stack], name: str) -> Any:
    for kind in kinds:
        if name in kind.names:
            return kind[kind.names.index(name)]
    names = [name for kind in kinds for name in kind.names]
    raise ValueError(f'There is no {what} "{name}" among {names}.')

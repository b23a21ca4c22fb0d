"""Bodies and joints as one system."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from .._checks import expect_shape
from .._compiler import array_namespace, as_one_program, proved, reshaped, to_jax
from .._contact import ContactRows
from .._equations import AbstractStructuredSystem, ConstraintRows, Turning
from .._inputs import Vector, at_least, checked
from .._linalg import BlockDiagonal, BlockRows, CoupledBlocks, accumulated
from .._system import State
from .._types import Coordinates, DType, RealScalarLike, Scalar, Velocity
from . import energy
from .batching import batched, with_last_axis
from .body import GROUND, Body
from .body_dynamics import AbstractBodyDynamics, PlanarDynamics, SpatialDynamics
from .collisions import ContactPoints
from .contact_rows import ContactSet
from .contacts import AbstractContact, DryFriction
from .coordinates import Bodies, BodyIndices, Configuration, FlatBodies
from .couplings import CoordinateConstraint
from .element import AbstractFramed, replaced, unnamed
from .forces import AbstractCoordinateForce, AbstractForceElement
from .in_plane import check_motion, kept_rows
from .joint_rows import JointRows
from .joints import (
    AbstractConstraint,
    AbstractJoint,
    each_reader,
    named,
    others_read,
    readers,
    resolved,
)
from .linearise import frame_poses, frame_twists, linearised_rate
from .plane import Flat, Plane
from .pose import Pose, Twist, Wrench
from .stack import Stack, filled, listing, stack, stacks
from .tables import BodyTables, may_need, merged_rows, near, turning
from .transmission import transmission

_Framed = TypeVar("_Framed", bound=AbstractFramed)


class Mechanism(AbstractStructuredSystem):
    """Rigid bodies with joints and forces between them, in maximal coordinates: an `AbstractSystem`
    for every enforcement method and scheme.

        mechanism = mbd.Mechanism([crank, rod], [hinge, pin], gravity=[0.0, 0.0, -9.81])
        sol = mbd.simulate(mechanism, mbd.UdwadiaKalaba(), mechanism.state(), t1=1.0, dt=1e-3)
        mechanism.pose(sol.q, "rod").position

    q and v are tables with a column for each body, flattened row by row. With n bodies q holds
    first all n x coordinates, then all y, all z, and all w, x, y, z of the orientations. v likewise
    holds velocities and angular velocities. `pose`, `twist` and `indices` select those of a body by
    its name. `print` lists the mechanism.

    All numbers are parameters: build the mechanism inside a function to differentiate it. Elements
    of one kind are kept as a structure of arrays and evaluated together, in one trace.

    In a plane, the rows of q are x, y and the angle of all bodies, and the rows of v their rates:

        mechanism = mbd.Mechanism([crank, rod], [hinge, pin], plane=mbd.Plane([0.0, -1.0, 0.0]))

    Rows of constraints are ordered by kind, in the order in which the kinds first appear among the
    joints. Within a kind the first equation of all joints comes first, then the second, and so on.
    Nonholonomic rows follow in the same order. `rows` returns the rows of a joint.
    """

    body_stack: Stack[Body]
    # Elements name the joints that they read, so that the numbers of a joint stand here once. Those
    # that are only read, and give no rows, are apart.
    own_joints: tuple[Stack[AbstractConstraint], ...]
    own_read: tuple[Stack[AbstractJoint], ...]
    own_forces: tuple[Stack[AbstractForceElement], ...]
    own_contacts: tuple[Stack[AbstractContact], ...]
    gravity: Float[Array, "3"]
    flat: Flat | None
    switches: dict[str, Callable[..., Any]]
    # The pairs of `NearContacts` within a step; `None` for those that are near at each q.
    _pairs: Int[Array, "contacts 3"] | None
    contact_budget: int | None = eqx.field(static=True)
    # Whether the frames of all bodies are known to be at their centres of mass.
    _centred: bool = eqx.field(static=True)
    # Which kinds of elements may need the turns of their angles; `None` for all that have some.
    _counted: tuple[bool, ...] | None = eqx.field(static=True)

    @checked
    def __init__(
        self,
        bodies: Sequence[Body],
        joints: Sequence[AbstractConstraint] = (),
        forces: Sequence[AbstractForceElement] = (),
        contacts: Sequence[AbstractContact] = (),
        *,
        gravity: Vector = (0.0, 0.0, -9.81),
        plane: Plane | None = None,
        switches: Mapping[str, Any] | None = None,
        contact_budget: Annotated[int | None, at_least(1)] = None,
    ):
        """**Arguments:**

        - `bodies`, `joints`, `forces`, `contacts`.
        - `gravity`: acceleration, shape `(3,)` [m/s^2].
        - `plane`: a `Plane`, for bodies that move only in it, with three coordinates each.
        - `switches`: for joints that do not always act, by name, a function `(mechanism, q, v, t,
          active)` that returns whether the joint acts in the step from there. `active` is whether
          it acted in the step before, at first false. When the joint begins to act, the velocities
          jump by the plastic impact law; switch it on near Phi = 0.
        - `contact_budget`: number of points between shapes that are solved for in a step, those
          with the smallest gaps; by default all. If another point overlaps, the result says so.

        Couplings, limits, and forces along coordinates of joints read the joint of this mechanism
        that has the name of the joint they were built of. A joint that is not among the `joints` is
        only read, and gives no rows.

        **Raises:** `ValueError` for no bodies, for names that are used twice, for joints, forces or
        contacts between unknown bodies, for elements that read unknown joints, for switches of
        unknown joints, and for a budget that is not positive."""
        if not bodies:
            raise ValueError("A mechanism needs at least one body, but `bodies` is empty.")
        groups = (("bodies", bodies), ("joints", joints), ("forces", forces))
        for what, members in (*groups, ("contacts", contacts)):
            names = Counter(member.name for member in members)
            twice = [name for name, count in names.items() if count > 1]
            if twice:
                raise ValueError(f"Names of {what} must differ, but {twice} are used twice.")
        known = {GROUND, *(body.name for body in bodies)}
        of_name = {joint.name: joint for joint in joints}

        def with_joints(members: Sequence[_Framed]) -> list[_Framed]:
            return [resolved(element, of_name, of_name.__getitem__) for element in members]

        joints, forces = with_joints(joints), with_joints(forces)
        contacts = with_joints(contacts)
        only_read = others_read((*joints, *forces, *contacts), of_name)
        for element in (*joints, *forces, *contacts):
            for name in element.bodies:
                if name not in known:
                    raise ValueError(
                        f'{type(element).__name__} "{element.name}" connects the body "{name}", '
                        f"which is not among {sorted(known)}."
                    )
        self.body_stack = stack(bodies)
        self.flat, kept = None, None
        if plane is not None:
            self.flat = Flat.of(plane, self._bodies.pose)
            check_motion(plane, bodies)
            kept = kept_rows(joints, self.flat, self.body_stack.names)
        self.own_joints, self.own_forces, self.own_contacts = (
            stacks(list(map(named, members)), rows, members)
            for members, rows in ((joints, kept), (forces, None), (contacts, None))
        )
        self.own_read = stacks(only_read)
        _check_pressers(contacts, joints, forces)
        self.switches = dict(switches or {})
        self._pairs = None
        for name, function in self.switches.items():
            self.joint(name)
            if not callable(function):
                raise ValueError(
                    f'The switch of the joint "{name}" must be a function of (mechanism, q, v, t, '
                    f"active), but is {function!r}."
                )
        self.contact_budget, self._centred, self._counted = contact_budget, False, None
        dtype = jnp.result_type(*(body.inertia.mass.dtype for body in bodies))
        self.gravity = to_jax(gravity, dtype)

    @property
    def bodies(self) -> tuple[Body, ...]:
        """The bodies, in the order given."""
        return _members([self.body_stack])

    @property
    def _bodies(self) -> Body:
        """All bodies as one, whose arrays have the body axis at the end."""
        return self.body_stack.together

    @property
    def joints(self) -> tuple[AbstractConstraint, ...]:
        """The joints, in the order given."""
        return tuple(map(self._filled, _members(self.own_joints)))

    @property
    def read_joints(self) -> tuple[AbstractJoint, ...]:
        """Joints that give no rows, but that elements read."""
        return _members(self.own_read)

    @property
    def forces(self) -> tuple[AbstractForceElement, ...]:
        """The forces, in the order given."""
        return tuple(map(self._filled, _members(self.own_forces)))

    @property
    def contacts(self) -> tuple[AbstractContact, ...]:
        """The contacts, in the order given."""
        return tuple(map(self._filled, _members(self.own_contacts)))

    @property
    def joint_stacks(self) -> tuple[Stack[AbstractConstraint], ...]:
        """The joints kind by kind, with the joints that they read."""
        return self._with_read(self.own_joints)

    @property
    def force_stacks(self) -> tuple[Stack[AbstractForceElement], ...]:
        """The forces kind by kind, with the joints that they read."""
        return self._with_read(self.own_forces)

    @property
    def contact_stacks(self) -> tuple[Stack[AbstractContact], ...]:
        """The contacts kind by kind, with the joints that they read."""
        return self._with_read(self.own_contacts)

    def _with_read(self, kinds: Sequence[Stack]) -> tuple[Stack, ...]:
        return tuple(filled(kind, (*self.own_joints, *self.own_read)) for kind in kinds)

    @property
    def coordinates(self) -> Bodies | FlatBodies:
        return self.tables.coordinates

    @property
    def plane(self) -> Plane | None:
        """The plane of a planar mechanism."""
        return None if self.flat is None else self.flat.plane

    @property
    def tables(self) -> BodyTables:
        """q and v as tables with a column for each body."""
        return BodyTables(self.body_stack.names, self.flat)

    @property
    def _dynamics(self) -> AbstractBodyDynamics:
        kind = SpatialDynamics if self.flat is None else PlanarDynamics
        return kind(self.body_stack, self.tables, self._centred)

    @property
    def contact_set(self) -> ContactSet:
        """The contacts between the bodies."""
        return ContactSet(self.tables, self.contact_stacks, self.contact_budget, self._pairs)

    @property
    def _joint_rows(self) -> JointRows:
        return JointRows(self.tables, self.joint_stacks)

    def __repr__(self) -> str:
        connections = self.force_stacks, self.contact_stacks, self.switches
        return listing(self.coordinates, self.body_stack, self.row_counts(), *connections)

    # --- states ---------------------------------------------------------------------------------

    def state(self, t: RealScalarLike = 0.0) -> State:
        """The state in which the bodies were given, for `simulate` or `assemble`."""

        def table(pair):
            xp = array_namespace(*pair)
            return jnp.asarray(xp.concatenate(pair), pair[0].dtype)

        return State(t, *self.coordinates_of(table(self._bodies.pose), table(self._bodies.twist)))

    def coordinates_of(
        self, poses: Float[Array, "7 bodies"], twists: Float[Array, "6 bodies"]
    ) -> tuple[Coordinates, Velocity]:
        """q and v of bodies with these positions and quaternions, and these velocities and angular
        velocities, as tables with a column for each body. In a plane, what points out of it is left
        out."""
        if self.flat is not None:
            return _flattened(self.flat, poses, twists)
        xp = array_namespace(poses, twists)
        q, v = (jnp.asarray(xp.ravel(xp.asarray(x)), x.dtype) for x in (poses, twists))
        return q, v

    def pose_table(self, q: Float[ArrayLike, "*batch nq"]) -> Float[Array, "*batch 7 bodies"]:
        """Positions and quaternions of all bodies. Leading axes of q are kept."""
        q = self.checked_q(q)
        if self.tables.flat is None:
            return reshaped(q, (*q.shape[:-1], 7, -1))
        return _poses(self.tables, q)

    def pose(self, q: Float[ArrayLike, "*batch nq"], name: str) -> Pose:
        """Pose of the body `name`, or of the "ground". Leading axes of q are kept.

        **Raises:** `ValueError` for an unknown name, and for a wrong number of coordinates."""
        return Pose.of(self.tables.pose(self.checked_q(q), name))

    def twist(self, v: Float[ArrayLike, "*batch nv"], name: str) -> Twist:
        """Twist of the body `name`, or of the "ground". Leading axes of v are kept.

        **Raises:** as `pose`."""
        return Twist.of(self.tables.twist(self.checked_v(v), name))

    def indices(self, name: str) -> BodyIndices:
        """Indices of the components of the body `name` in q and v. They serve for arguments by
        components, such as `fixed` and `weights` of `assemble`, and for arrays with such an axis,
        such as `Mobility.motions`:

            crank = mechanism.indices("crank")
            state.q[crank.orientation], state.v[crank.linear]
            mbd.assemble(mechanism, state.q, fixed=crank.v)
            weights = jnp.ones(18).at[crank.v].set(100.0)

        **Raises:** `ValueError` for an unknown name, and for the ground, which has no
        components."""
        column = self.tables.column(name)
        if column == self.tables.body_count:
            raise ValueError(f'"{name}" never moves, so it has no numbers in q and v.')
        return self.coordinates.indices(column)

    def contact_points(self, q: Float[ArrayLike, "*batch nq"]) -> ContactPoints:
        """All contact points between shapes, in the order of `contact_names`. Leading axes of q are
        kept."""
        return _contact_points(self.contact_set, self.checked_q(q))

    @property
    def contact_names(self) -> tuple[str, ...]:
        """Name of the contact of each contact point, and then of each other gap and dry friction:
        the order of `Solution.contact_force`."""
        return self.contact_set.names

    def joint_coordinates(
        self, q: Float[ArrayLike, "*batch nq"], name: str
    ) -> Float[Array, "*batch k"]:
        """Coordinates of the joint `name`: see its class."""
        joint = self.joint(name)
        if not isinstance(joint, AbstractJoint):
            raise ValueError(f'{type(joint).__name__} "{name}" has no joint coordinates.')
        q, columns = self.checked_q(q), self.tables.columns_of(joint)
        return _coordinates(unnamed(joint), self.tables, q, *columns)

    def checked_q(self, q: ArrayLike) -> Float[Array, "*batch nq"]:
        """Return q as an array. **Raises:** `ValueError` for a wrong number of coordinates."""
        return with_last_axis("`q`", q, self.coordinates.nq, self.tables.sizes)

    def checked_v(self, v: ArrayLike) -> Float[Array, "*batch nv"]:
        """Return v as an array. **Raises:** `ValueError` for a wrong number of velocities."""
        return with_last_axis("`v`", v, self.coordinates.nv, self.tables.sizes)

    # --- elements -------------------------------------------------------------------------------

    def body(self, name: str) -> Body:
        """The body `name`. **Raises:** `ValueError` if there is none."""
        return _find("body", [self.body_stack], name)

    def joint(self, name: str) -> AbstractConstraint:
        """The joint `name`. **Raises:** `ValueError` if there is none."""
        return self._filled(_find("joint", self.own_joints, name))

    def force_element(self, name: str) -> AbstractForceElement:
        """The force `name`. **Raises:** `ValueError` if there is none."""
        return self._filled(_find("force", self.own_forces, name))

    def contact(self, name: str) -> AbstractContact:
        """The contact `name`. **Raises:** `ValueError` if there is none."""
        return self._filled(_find("contact", self.own_contacts, name))

    def resolved(self, element: _Framed) -> _Framed:
        """An element or a scalar coordinate with the joints of this mechanism that it names.

        **Raises:** `ValueError` for an unknown joint, and for one that does not fit."""
        if not readers(element):
            return element
        kinds = (*self.own_joints, *self.own_read)
        return resolved(element, [name for kind in kinds for name in kind.names], self._read)

    def _read(self, name: str) -> Any:
        return _find("joint", (*self.own_joints, *self.own_read), name)

    def _filled(self, element: _Framed) -> _Framed:
        """An element of the mechanism with the joints that it names."""
        return each_reader(
            element,
            lambda x: x if x.joint is not None else x.holding(self._read(x.joint_name)),
        )

    @as_one_program
    def frames(self, element: AbstractFramed, q: Coordinates) -> tuple[Pose, ...]:
        """World poses of the frames of an element or a scalar coordinate."""
        element = self.resolved(element)
        poses = self.tables.frames(element, q, self.tables.columns_of(element))
        return tuple(Pose(*pose) for pose in poses)

    @as_one_program
    def frame_twists(
        self, element: AbstractFramed, q: Coordinates, v: Velocity
    ) -> tuple[Twist, ...]:
        """World twists of the frames of an element or a scalar coordinate."""
        element = self.resolved(element)
        return self.tables.frame_twists(element, q, v, self.tables.columns_of(element))

    # --- AbstractSystem -------------------------------------------------------------------------

    def specialised(self, on: bool = True) -> "Mechanism":
        center = self._bodies.inertia.center
        centred = on and (self._centred or proved(np.logical_not, center))
        counted = self._counted
        if on and counted is None:
            # Rows that hold modulo a period are counted too, for derivatives by their ratio.
            joints = (kind.together.angle_count > 0 for kind in self.joint_stacks)
            counted = (*joints, *map(may_need, (*self.force_stacks, *self.contact_stacks)))
        elif not on:
            counted = None
        # Joints are filled in once, and not in each step.
        own = self._with_elements(self.element_stacks) if on else self
        if (centred, counted) == (self._centred, self._counted) and own is self:
            return self
        return replaced(own, _centred=centred, _counted=counted)

    def _with_elements(self, stacks: Sequence[Stack]) -> "Mechanism":
        """The mechanism with other numbers of its elements, or with the joints that they read."""
        own = (*self.own_joints, *self.own_forces, *self.own_contacts)
        if all(new is old for new, old in zip(stacks, own, strict=True)):
            return self
        joints, forces = len(self.own_joints), len(self.own_forces)
        return replaced(
            self,
            own_joints=tuple(stacks[:joints]),
            own_forces=tuple(stacks[joints : joints + forces]),
            own_contacts=tuple(stacks[joints + forces :]),
        )

    def _counting(self) -> tuple[bool, ...]:
        """Which kinds of elements count turns."""
        if self._counted is not None:
            return self._counted
        return tuple(kind.together.angle_count > 0 for kind in self.element_stacks)

    def turning(self, q: Coordinates, v: Velocity) -> Turning | None:
        """The angles whose turns a simulation counts, those of scalar coordinates, torsion springs
        and joint limits, in the order of `Solution.angles`; `None` without any. At q alone each is
        within half a turn of its `middle`. After `specialised`, 0 where turns make no difference,
        as for dampers and motors."""
        return turning(self.tables, self.element_stacks, self._counting(), q, v)

    def near(self, angles: Float[Array, " angles"]) -> "Mechanism":
        """The mechanism whose counted angles are within half a turn of these [rad]. It evaluates
        forces and energies of a saved state with the turns made until then:

            mechanism.near(sol.angles[-1]).mechanical_energy(sol.t[-1], sol.q[-1], sol.v[-1])
        """
        own = (*self.own_joints, *self.own_forces, *self.own_contacts)
        return self._with_elements(near(own, self._counting(), angles))

    def among(self, pairs: Int[Array, "contacts 3"]) -> "Mechanism":
        """The mechanism whose `NearContacts` are of these pairs, as in `Solution.contact_pairs`,
        wherever the pieces are."""
        return replaced(self, _pairs=pairs)

    def pieces_of(self, pairs: Int[Array, "contacts 3"]) -> tuple[Int[Array, "contacts 2"], int]:
        return self.contact_set.pieces_of(pairs)

    @property
    def element_stacks(self) -> tuple[Stack[Any], ...]:
        """All elements between bodies, kind by kind."""
        return (*self.joint_stacks, *self.force_stacks, *self.contact_stacks)

    def kinematics(self, q: Configuration) -> Any:
        return self.tables.kinematics(q)

    @as_one_program
    def retract(self, q: Configuration, dp: Velocity) -> Coordinates:
        return self._dynamics.retract(q, dp)

    @as_one_program
    def difference(self, q0: Coordinates, q1: Coordinates) -> Velocity:
        return self._dynamics.difference(q0, q1)

    def carried(self, q0: Configuration, q1: Coordinates, v: Velocity) -> Velocity:
        return self._dynamics.carried(q0, q1, v)

    @as_one_program
    def mass_matrix(self, q: Coordinates) -> Float[Array, "nv nv"]:
        return self.mass_blocks(q).dense()

    def mass_blocks(self, q: Configuration) -> BlockDiagonal | CoupledBlocks:
        M, shared = self._dynamics.mass_blocks(q), self._shared_inertia(q)
        return M if shared is None else CoupledBlocks(M, *shared)

    def inertia(self, q: Configuration, a: Velocity) -> Float[Array, " nv"]:
        f = self._dynamics.momentum_of(q, a)
        if (shared := self._shared_inertia(q)) is None:
            return f
        R, weights = shared
        return f + (weights * (R @ a)) @ R

    def reach(self, J: BlockRows) -> Float[Array, " rows"]:
        # A joint that is open by phi lets its bodies rotate by phi / arm. Without an arm, the
        # radius of gyration counts.
        return jnp.sqrt(J.squares(self._dynamics.reach_weights()))

    @as_one_program
    def force(
        self,
        t: RealScalarLike,
        q: Coordinates,
        v: Velocity,
        u: PyTree,
        z: Float[Array, " nz"] | None = None,
    ) -> Float[Array, " nv"]:
        """`z`: internal states, by default the initial ones."""
        return self.inertial_force(q, v) + self.external_force(t, q, v, u, z)

    def inertial_force(
        self, q: Configuration, v: Velocity, h: RealScalarLike | None = None
    ) -> Float[Array, " nv"]:
        return self._dynamics.inertial_force(q, v, self.gravity, h)

    def external_force(
        self,
        t: RealScalarLike,
        q: Configuration,
        v: Velocity,
        u: PyTree,
        z: Float[Array, " nz"] | None = None,
    ) -> Float[Array, " nv"]:
        n = len(self.body_stack)
        f = jnp.zeros((self.tables.size, n + 1), q.dtype)  # the last column is the ground
        for forces, own in zip(self.force_stacks, self.internal_parts(z, q.dtype), strict=True):

            def on_bodies(force, qs, vs, *z):
                poses, twists = frame_poses(force, qs), frame_twists(force, qs, vs)
                wrenches = force.wrenches(poses, twists, t, u, *z)
                on_origins = (
                    jnp.concatenate([w.force, w.torque_about(pose.position - body.position)])
                    for w, pose, body in zip(wrenches, poses, qs, strict=True)
                )
                return tuple(self.tables.restricted(f, 0) for f in on_origins)

            wrenches = self.tables.map(forces, on_bodies, q, v, own=own)
            for wrench, i in zip(wrenches, self.tables.ends(forces), strict=True):
                f = accumulated(f, i, wrench)
        for weight, rows, drift, ends in self._rotors(q, v):
            for row, i in zip(rows, ends, strict=True):
                f = accumulated(f, i, -row * (weight * drift)[None])
        return f[:, :n].ravel()

    @as_one_program
    def mechanical_energy(self, t: RealScalarLike, q: Coordinates, v: Velocity) -> Scalar:
        """Energy of all bodies and force elements [J], rotors included."""
        return energy.total_energy(self, State(t, q, v))

    @as_one_program
    def supplied_power(
        self, t: RealScalarLike, q: Coordinates, v: Velocity, u: PyTree, *z: Float[Array, " nz"]
    ) -> Scalar:
        """Power [W] of the force elements beyond what they release from storage."""
        elements = energy.powers(self, State(t, q, v, z=z[0] if z else None), u).values()
        return -sum((x.lost for x in elements), jnp.zeros((), q.dtype))

    @as_one_program
    def constraint(self, q: Configuration, t: RealScalarLike) -> Float[Array, " nh"]:
        return self._joint_rows.constraint(q, t)

    @as_one_program
    def nonholonomic(
        self, q: Configuration, v: Velocity, t: RealScalarLike
    ) -> Float[Array, " rows"]:
        return self._joint_rows.nonholonomic(q, v, t)

    @as_one_program
    def gap(self, q: Coordinates, t: RealScalarLike) -> Float[Array, " contacts"]:
        return self.contact_set.gap(t, q) if self.contact_stacks else jnp.zeros(0, q.dtype)

    @as_one_program
    def friction_rates(
        self, q: Coordinates, v: Velocity, t: RealScalarLike
    ) -> Float[Array, " frictions"]:
        del t
        return self.contact_set.friction_rates(q, v)

    def friction_bounds(
        self,
        q: Coordinates,
        v: Velocity,
        t: RealScalarLike,
        multipliers: Float[Array, " nc"],
        u: PyTree,
        *z: Float[Array, " nz"],
    ) -> Float[Array, " frictions"]:
        def load(friction):
            name = friction.presser
            size = (lambda x: x) if friction.directed else jnp.abs
            if not any(name in kind.names for kind in self.own_joints):
                return size(self._force_along(name, t, q, v, u, *z))
            joint, own = self.joint(name), multipliers[self.rows(name)]
            if isinstance(joint, CoordinateConstraint):
                return size(own[0])
            point, choice = self.frames(joint, q)[-1].position, (name, joint.bodies[-1], None)
            return friction.load(Wrench(*transmission(self, choice, t, q, v, point)(own)))

        return self.contact_set.friction_bounds(t, q, v, u, load)

    def _force_along(self, name, t, q, v, u, z=None) -> Scalar:
        """The force of the law `name` along its coordinate."""
        element = self.force_element(name)
        assert isinstance(element, AbstractCoordinateForce)
        own = ()
        if element.internal_names:
            own = (self.internal_of(self.initial_internal if z is None else z, name),)
        return element.along(self.frames(element, q), self.frame_twists(element, q, v), t, u, *own)

    def _overlaps(self, q: Coordinates, gap: np.ndarray, tolerance: float) -> list[str]:
        return self.contact_set.overlaps(q, gap, tolerance)

    def switch(
        self, q: Coordinates, v: Velocity, t: RealScalarLike, active: Bool[Array, " rows"]
    ) -> Bool[Array, " rows"] | None:
        if not self.switches:
            return None
        acts = jnp.ones_like(active)
        for name, function in self.switches.items():
            rows = self.rows(name)
            on = function(self.specialised(False), q, v, t, active[rows[0]])
            acts = acts.at[rows].set(on)
        return acts

    def contact_rows(self, t: RealScalarLike, q: Coordinates) -> ContactRows:
        return self.contact_set.rows(t, q)

    def linearised(self, t: RealScalarLike, q: Configuration, v: Velocity) -> ConstraintRows:
        return self._joint_rows.linearised(t, q, v)

    def jacobian_with_ground(
        self, t: RealScalarLike, q: Configuration, v: Velocity
    ) -> list[tuple[Stack[AbstractConstraint], Float[Array, "ends rows size joints"]]]:
        """J of each kind of rows, for the bodies at all ends, the ground included."""
        kinds = [kind for kind, rows in self.row_counts() if rows]
        pieces = self._joint_rows.linearised(t, q, v, ground=True).J.by_kind()
        return list(zip(kinds, pieces, strict=True))

    def row_map(
        self, t: RealScalarLike, q: Configuration, v: Velocity
    ) -> Callable[[Velocity], Float[Array, " rows"]]:
        return self._joint_rows.row_map(t, q, v)

    def rows(self, name: str) -> np.ndarray:
        """Indices of the rows of the joint `name` in constraints and multipliers, holonomic ones
        first. **Raises:** `ValueError` if there is no such joint."""
        self.joint(name)
        found, start = [], 0
        for joints, rows in self.row_counts():
            if name in joints.names:
                found.append(start + joints.names.index(name) + len(joints) * np.arange(rows))
            start += rows * len(joints)
        return np.concatenate(found)

    @property
    def row_count(self) -> int:
        """Number of rows of all constraints, which is the number of multipliers."""
        return sum(rows * len(joints) for joints, rows in self.row_counts())

    def row_counts(self) -> list[tuple[Stack[AbstractConstraint], int]]:
        """The kinds of joints with the number of rows of one joint: holonomic, then
        nonholonomic."""
        state = jax.eval_shape(self.state)
        return self._joint_rows.counts(state.q, state.v)

    # --- internal states of force elements -------------------------------------------------------

    @property
    def internal_names(self) -> tuple[str, ...]:
        """The internal states in the order of `Solution.z`, such as "motor.current"."""
        return tuple(
            f"{name}.{state}"
            for kind in self.own_forces
            for state in _internal_names(kind)
            for name in kind.names
        )

    def internal_of(
        self, z: Float[ArrayLike, "*batch nz"] | None, name: str
    ) -> Float[Array, "*batch k"]:
        """The internal states of the force `name` in z, such as `sol.z`. Leading axes are kept.

        **Raises:** `ValueError` if there is no such force, or if it has none."""
        self.force_element(name)
        found = [i for i, x in enumerate(self.internal_names) if x.rpartition(".")[0] == name]
        if not found or z is None:
            raise ValueError(f'"{name}" has no internal states: those are {self.internal_names}.')
        return to_jax(array_namespace(z).asarray(z)[..., np.array(found)])

    @property
    def initial_internal(self) -> Float[Array, " nz"] | None:
        if not self._has_internal:
            return None
        parts = (_initial_internal(kind) for kind in self.force_stacks)
        return jnp.concatenate([x.ravel() for part in parts for x in part])

    @property
    def _has_internal(self) -> bool:
        """Told by the names, so that nothing is computed."""
        return any(map(_internal_names, self.own_forces))

    def internal(
        self,
        t: RealScalarLike,
        q: Coordinates,
        v: Velocity,
        u: PyTree,
        z: Float[Array, " nz"],
    ) -> Float[Array, " nz"]:
        def of_element(element, qs, vs, z):
            poses, twists = frame_poses(element, qs), frame_twists(element, qs, vs)
            rate = element.internal(poses, twists, t, u, z)
            expect_shape(
                f"`internal` of {type(element).__name__}",
                rate,
                z.shape,
                f"the states {element.internal_names}",
            )
            return rate

        parts = zip(self.force_stacks, self.internal_parts(z, q.dtype), strict=True)
        found = (self.tables.map(kind, of_element, q, v, own=own) for kind, own in parts if own)
        return jnp.concatenate([x.ravel() for x in found])

    def internal_parts(
        self, z: Float[Array, " nz"] | None, dtype: DType
    ) -> list[tuple[Float[Array, "k elements"], ...]]:
        """For each kind of force its internal states in z, by default the initial ones: one array
        with the element axis last, or none."""
        found, start = [], 0
        for kind in self.force_stacks:
            size = len(_internal_names(kind)) * len(kind)
            if z is None:
                found.append(tuple(x.astype(dtype) for x in _initial_internal(kind)))
            else:
                own = z[start : start + size].reshape(-1, len(kind))
                found.append((own,) if size else ())
            start += size
        return found

    # --- rotors -----------------------------------------------------------------------------------

    def _shared_inertia(self, q: Configuration) -> tuple[BlockRows, Array] | None:
        """R and w of rotors, which add R^T diag(w) R to M; `None` without rotors."""
        rotors = self._rotors(q, jnp.zeros(self.coordinates.nv, q.dtype))
        if not rotors:
            return None
        blocks = (([row[None] for row in rows], ends) for _, rows, _, ends in rotors)
        R = merged_rows(self.tables, blocks)
        return R, jnp.concatenate([weight for weight, *_ in rotors])

    def _rotors(self, q: Configuration, v: Velocity) -> list[tuple[Array, Any, Array, list]]:
        """For each kind of force with an inertance: this, R and R' v of its rate R v, and its
        bodies."""

        def of_rotor(force, qs, vs):
            R, drift = linearised_rate(force.rate, force, qs, vs)
            return force.inertance, [self.tables.restricted(row, 0) for row in R], drift

        return [
            (*self.tables.map(forces, of_rotor, q, v), self.tables.ends(forces))
            for forces in self.force_stacks
            if forces[0].inertance is not None
        ]


def _check_pressers(
    contacts: Sequence[Any],
    joints: Sequence[AbstractConstraint],
    forces: Sequence[AbstractForceElement],
) -> None:
    """**Raises:** `ValueError` for dry friction by the load of something unknown."""
    along = {x.name for x in forces if isinstance(x, AbstractCoordinateForce)}
    directed = along | {x.name for x in joints if isinstance(x, CoordinateConstraint)}
    every = along | {x.name for x in joints}
    for contact in contacts:
        name = contact.pressed_by if isinstance(contact, DryFriction) else None
        if name in every and name not in directed and contact.directed:
            raise ValueError(
                f'DryFriction "{contact.name}" has a `backward_coefficient`, but "{name}" is no '
                "coupling of coordinates, and its load has no direction."
            )
        if name is not None and name not in every:
            raise ValueError(
                f'DryFriction "{contact.name}" is `pressed_by` "{name}", which is not among the '
                f"joints {sorted(every - along)} and the forces along coordinates {sorted(along)}."
            )


@as_one_program
def _flattened(flat: Flat, poses: Array, twists: Array) -> tuple[Coordinates, Velocity]:
    return flat.flattened(poses).ravel(), flat.flattened_twists(twists).ravel()


@as_one_program
def _coordinates(
    joint: AbstractJoint, tables: BodyTables, q: Float[Array, "*batch nq"], *columns: Any
) -> Float[Array, "*batch k"]:
    return batched(lambda q: joint.coordinates(*tables.frames(joint, q, columns)), (q, 1))


def _internal_names(kind: Stack) -> tuple[str, ...]:
    return kind.outlines()[0].internal_names


def _initial_internal(kind: Stack) -> tuple[Float[Array, "k elements"], ...]:
    """One array, or none for a kind without internal states."""
    names = _internal_names(kind)
    if not names:
        return ()
    found = kind.map(lambda element: element.initial_internal)
    expect_shape(
        f"`initial_internal` of {type(kind.outlines()[0]).__name__}",
        found,
        (len(names), len(kind)),
        f"the states {names} of {len(kind)} elements",
    )
    return (found,)


def _members(kinds: Sequence[Stack]) -> tuple:
    places = {
        place: element
        for kind in kinds
        for place, element in zip(kind.places, kind.each(), strict=True)
    }
    return tuple(places[i] for i in range(len(places)))


def _find(what: str, kinds: Sequence[Stack], name: str) -> Any:
    for kind in kinds:
        if name in kind.names:
            return kind[kind.names.index(name)]
    names = [name for kind in kinds for name in kind.names]
    raise ValueError(f'There is no {what} "{name}" among {names}.')


@as_one_program
def _poses(tables: BodyTables, q: Array) -> Array:
    return batched(tables.poses, (q, 1))


@as_one_program
def _contact_points(contacts: Any, q: Array) -> ContactPoints:
    return batched(contacts.points, (q, 1))

"""Bodies and joints as one system."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._coordinates import AbstractCoordinates, cross
from .._results import RESULTS
from .._system import AbstractSystem, State
from .._types import Coordinates, RealScalarLike, Velocity
from .body import BODY_COORDINATES, GROUND, Body
from .connector import AbstractConnector
from .forces import AbstractForce
from .joints import AbstractJoint
from .pose import Pose, Twist


def _each(fn):
    """One body's function over all bodies, with the component axis first and the body axis last:
    the structure of arrays in which XLA's code is fastest."""
    return jax.vmap(fn, in_axes=-1, out_axes=-1)


class Bodies(AbstractCoordinates):
    """Kinematic map of `count` free bodies. q is a (7, count) array and v a (6, count) array, both
    flattened: component by component, each for all bodies."""

    count: int = eqx.field(static=True)

    @property
    def nq(self) -> int:
        return 7 * self.count

    @property
    def nv(self) -> int:
        return 6 * self.count

    def qdot(self, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nq"]:
        return _each(BODY_COORDINATES.qdot)(self._table(q), self._table(v)).ravel()

    def retract(self, q: Float[Array, " nq"], dp: Float[Array, " nv"]) -> Float[Array, " nq"]:
        return _each(BODY_COORDINATES.retract)(self._table(q), self._table(dp)).ravel()

    def normalise(self, q: Float[Array, " nq"]) -> Float[Array, " nq"]:
        return _each(BODY_COORDINATES.normalise)(self._table(q)).ravel()

    def result(self, q: Float[Array, " nq"]) -> RESULTS:
        norm2 = jnp.sum(self._table(q)[3:] ** 2, axis=0)
        usable = jnp.all((norm2 > 0.25) & (norm2 < 4))  # False for NaN
        return RESULTS.where(usable, RESULTS.successful, RESULTS.invalid_coordinates)

    def _table(self, x: Float[Array, " n"]) -> Float[Array, "components count"]:
        return x.reshape(-1, self.count)


class Mechanism(AbstractSystem):
    """Rigid bodies, joints and forces between them, in maximal coordinates: an `AbstractSystem` for
    every enforcement method and scheme.

        mechanism = mbd.Mechanism([crank, rod], [hinge, pin], gravity=[0.0, 0.0, -9.81])
        sol = mbd.simulate(mechanism, mbd.UdwadiaKalaba(), mechanism.state(), t1=1.0, dt=1e-3)
        mechanism.pose(sol.q, "rod").position

    **Fields:**

    - `bodies`, `joints`, `forces`: in the order given.
    - `gravity`: acceleration, shape `(3,)` [m/s^2].

    Every number in them is a parameter: build the mechanism inside of a function to differentiate
    it. Joints of one kind are evaluated together, in one trace.
    """

    bodies: tuple[Body, ...]
    joints: tuple[AbstractJoint, ...]
    forces: tuple[AbstractForce, ...]
    gravity: Float[Array, "3"]

    def __init__(
        self,
        bodies: Sequence[Body],
        joints: Sequence[AbstractJoint] = (),
        forces: Sequence[AbstractForce] = (),
        *,
        gravity: Any = (0.0, 0.0, -9.81),
    ):
        """**Raises:** `ValueError` for no bodies, for names that are used twice, and for joints or
        forces between unknown bodies."""
        self.bodies, self.joints, self.forces = tuple(bodies), tuple(joints), tuple(forces)
        if not self.bodies:
            raise ValueError("A mechanism needs at least one body, but `bodies` is empty.")
        groups = {"bodies": self.bodies, "joints": self.joints, "forces": self.forces}
        for what, members in groups.items():
            names = Counter(member.name for member in members)
            twice = [name for name, count in names.items() if count > 1]
            if twice:
                raise ValueError(f"Names of {what} must differ, but {twice} are used twice.")
        known = {GROUND, *(body.name for body in self.bodies)}
        for connector in (*self.joints, *self.forces):
            for name in (connector.body_a, connector.body_b):
                if name not in known:
                    raise ValueError(
                        f'{type(connector).__name__} "{connector.name}" connects the body '
                        f'"{name}", which is not among {sorted(known)}.'
                    )
        dtype = jnp.result_type(*(body.inertia.mass.dtype for body in self.bodies))
        self.gravity = jnp.asarray(gravity, dtype)
        if self.gravity.shape != (3,):
            raise ValueError(f"`gravity` must have shape (3,), but has {self.gravity.shape}.")

    @property
    def coordinates(self) -> Bodies:
        return Bodies(len(self.bodies))

    # --- states ---------------------------------------------------------------------------------

    def state(self, t: RealScalarLike = 0.0) -> State:
        """The state in which the bodies were given, for `simulate` or `assemble`."""
        q = [jnp.concatenate(body.pose) for body in self.bodies]
        v = [jnp.concatenate(body.twist) for body in self.bodies]
        return State(t, jnp.stack(q, axis=-1).ravel(), jnp.stack(v, axis=-1).ravel())

    def pose(self, q: Float[Array, "*batch nq"], name: str) -> Pose:
        """Pose of the body `name`; leading axes of q are kept."""
        table = q.reshape(*q.shape[:-1], 7, len(self.bodies))[..., self._index(name)]
        return Pose(table[..., :3], table[..., 3:])

    def twist(self, v: Float[Array, "*batch nv"], name: str) -> Twist:
        """Twist of the body `name`; leading axes of v are kept."""
        table = v.reshape(*v.shape[:-1], 6, len(self.bodies))[..., self._index(name)]
        return Twist(table[..., :3], table[..., 3:])

    def joint_coordinates(
        self, q: Float[Array, "*batch nq"], name: str
    ) -> Float[Array, "*batch k"]:
        """Coordinates of the joint `name`: see its class."""
        joint = self._joint(name)

        def one(q):
            return joint.coordinates(*self._frames(joint, q))

        for _ in range(q.ndim - 1):
            one = jax.vmap(one)
        return one(q)

    # --- AbstractSystem -------------------------------------------------------------------------

    def mass_matrix(self, q: Coordinates) -> Float[Array, "nv nv"]:
        n = len(self.bodies)
        blocks = self._each_body(lambda body, p: body.mass_matrix(p), q.reshape(7, n)[3:])
        M = jnp.zeros((6, n, 6, n), q.dtype)
        i = np.arange(n)
        return M.at[:, i, :, i].set(jnp.moveaxis(blocks, -1, 0)).reshape(6 * n, 6 * n)

    def force(self, t: RealScalarLike, q: Coordinates, v: Velocity, u: Any) -> Float[Array, " nv"]:
        n = len(self.bodies)

        def of_body(body, p, omega):
            weight = body.mass_matrix(p)[:, :3] @ self.gravity
            return body.gyroscopic_force(p, omega) + weight

        f = self._each_body(of_body, q.reshape(7, n)[3:], v.reshape(6, n)[3:])
        f = jnp.append(f, jnp.zeros((6, 1), q.dtype), axis=1)  # and on the ground

        def of_connector(force, qa, qb, va, vb):
            a, b = _frames_of(force, qa, qb)
            arm_a, arm_b = a.position - qa[:3], b.position - qb[:3]
            twist_a, twist_b = (
                Twist(Twist(x[:3], x[3:]).at(arm), x[3:]) for x, arm in ((va, arm_a), (vb, arm_b))
            )
            F, T = force.wrench(a, b, twist_a, twist_b, t, u)
            # On a the opposite acts at the same point, the origin of frame b.
            on_a = jnp.concatenate([-F, -T - cross(b.position - qa[:3], F)])
            return jnp.stack([on_a, jnp.concatenate([F, T + cross(arm_b, F)])])

        q_all, v_all = self._with_ground(q, 7), self._with_ground(v, 6)
        for members in _kinds(self.forces):
            forces = [self.forces[i] for i in members]
            ia, ib = self._ends(forces)
            wrenches = _together(
                forces, of_connector, q_all[:, ia], q_all[:, ib], v_all[:, ia], v_all[:, ib]
            )
            f = f.at[:, ia].add(wrenches[0]).at[:, ib].add(wrenches[1])
        return f[:, :n].ravel()

    def constraint(self, q: Coordinates, t: RealScalarLike) -> Float[Array, " nh"]:
        """The rows of all joints, one joint after the other."""
        table = self._with_ground(q, 7)
        pieces: list[Any] = [None] * len(self.joints)
        for members in _kinds(self.joints):
            joints = [self.joints[i] for i in members]
            ia, ib = self._ends(joints)
            rows = _together(
                joints,
                lambda joint, a, b: joint.constraint(*_frames_of(joint, a, b), t),
                table[:, ia],
                table[:, ib],
            )
            for column, i in enumerate(members):
                pieces[i] = rows[:, column]
        return jnp.concatenate(pieces) if pieces else jnp.zeros(0, q.dtype)

    # --- inside ---------------------------------------------------------------------------------

    def _index(self, name: str) -> int:
        names = [*(body.name for body in self.bodies), GROUND]
        if name not in names:
            raise ValueError(f'There is no body "{name}" among {names}.')
        return names.index(name)

    def _joint(self, name: str) -> AbstractJoint:
        for joint in self.joints:
            if joint.name == name:
                return joint
        raise ValueError(f'There is no joint "{name}" among {[j.name for j in self.joints]}.')

    def _with_ground(self, x: Float[Array, " n"], components: int) -> Array:
        """The table of q (7 components) or v (6), with the ground as the last column."""
        ground = jnp.zeros((components, 1), x.dtype)
        if components == 7:
            ground = ground.at[3].set(1.0)
        return jnp.append(x.reshape(components, -1), ground, axis=1)

    def _ends(self, connectors: Sequence[AbstractConnector]) -> tuple[np.ndarray, np.ndarray]:
        """Columns of the bodies a and of the bodies b."""
        a = [self._index(connector.body_a) for connector in connectors]
        b = [self._index(connector.body_b) for connector in connectors]
        return np.array(a), np.array(b)

    def _frames(self, connector: AbstractConnector, q: Coordinates) -> tuple[Pose, Pose]:
        """World poses of its frames."""
        table = self._with_ground(q, 7)
        (a,), (b,) = self._ends([connector])
        return _frames_of(connector, table[:, a], table[:, b])

    def _each_body(self, fn, *tables: Array) -> Array:
        """fn(body, component vectors...) of all bodies, with the body axis last."""
        return _together(self.bodies, fn, *tables)


def _frames_of(connector: AbstractConnector, a: Array, b: Array) -> tuple[Pose, Pose]:
    return (
        Pose(a[:3], a[3:]).compose(connector.frame_a),
        Pose(b[:3], b[3:]).compose(connector.frame_b),
    )


_NAMES = ("name", "body_a", "body_b")


def _kinds(members: Sequence[AbstractConnector]) -> list[list[int]]:
    """Indices of members that differ in names and numbers only."""
    kinds: dict[Any, list[int]] = {}
    for i, member in enumerate(members):
        static = [
            (field.name, getattr(member, field.name))
            for field in dataclasses.fields(member)
            if field.metadata.get("static", False) and field.name not in _NAMES
        ]
        leaves = [(jnp.shape(leaf), jnp.asarray(leaf).dtype) for leaf in jax.tree.leaves(member)]
        kinds.setdefault((type(member), tuple(static), tuple(leaves)), []).append(i)
    return list(kinds.values())


def _together(members: Sequence[Any], fn, *tables: Array) -> Array:
    """fn(member, columns...) of members that differ in names and numbers only, in one `vmap` with
    the member axis last. To `fn` all have the names of the first."""
    structure = jax.tree.structure(members[0])
    leaves = [jax.tree.leaves(member) for member in members]
    stacked = [jnp.stack(column, axis=-1) for column in zip(*leaves, strict=True)]

    def one(leaves, *columns):
        return fn(jax.tree.unflatten(structure, leaves), *columns)

    return _each(one)(stacked, *tables)

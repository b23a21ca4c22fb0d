"""What a file of a model holds, as a mechanism and its surroundings."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PyTree

from .._compiler import array_namespace, as_one_program, is_known, to_jax
from .._coordinates import algebra, cross, quaternion_conjugate, quaternion_rotate
from .._mechanism import (
    GROUND,
    AbstractConstraint,
    AbstractJoint,
    AbstractScalarCoordinate,
    Mechanism,
    OfJoint,
    Pose,
    Twist,
    batched,
    frame_poses,
    frame_twists,
    joint_rates,
    within_half_a_turn,
)
from .._mechanism.appearance import Visual
from .._system import State
from ..identify import AbstractSensor
from .turns import counted_angles


def pose(position: PyTree = (0, 0, 0), orientation: PyTree = (1, 0, 0, 0)) -> Pose:
    """A pose in NumPy, whose methods compile nothing."""
    return Pose(np.array(position, float), np.array(orientation, float))  # pyright: ignore[reportArgumentType]


class ScalarReading(AbstractSensor):
    """A scalar coordinate, such as the length of a tendon, or its rate. It has frames of its own,
    which a fit of the mechanism does not change; of a joint, read `Loaded.reading`.

    **Fields:** `coordinate`, `rate`: whether its rate is read."""

    coordinate: AbstractScalarCoordinate
    rate: bool = eqx.field(static=True, default=False)

    def __call__(self, sample):
        along = self.coordinate
        poses = sample.mechanism.frames(along, sample.q)
        if not self.rate:
            return along.value(poses)
        return along.rate(poses, sample.mechanism.frame_twists(along, sample.q, sample.v))


class JointReading(AbstractSensor):
    """The position of a hinge or slide with the zero of the file, or its rate. It reads the joint
    of the mechanism, so it stays right where a fit changes the frames of the joint.

    **Fields:** `joint`: its name in the mechanism; `number` of the coordinate; `zero`: the reading
    where the coordinate is 0; `middle`: angles are within half a turn of it, `None` for a
    displacement; `rate`: whether the rate is read."""

    joint: str = eqx.field(static=True)
    number: int = eqx.field(static=True)
    zero: float
    middle: float | None
    rate: bool = eqx.field(static=True, default=False)

    def __call__(self, sample):
        if self.rate:
            return joint_rates(sample.mechanism, sample, self.joint)[self.number]
        x = sample.mechanism.joint_coordinates(sample.q, self.joint)[self.number] + self.zero
        if self.middle is None:
            return x
        return self.middle + within_half_a_turn(x - self.middle)


class InFrame(AbstractSensor):
    """The reading of a sensor of a body, in the axes of a frame on it.

    **Fields:** `sensor`, `orientation` of the frame on the body."""

    sensor: AbstractSensor
    orientation: Float[Array, "4"]

    def __call__(self, sample):
        return quaternion_rotate(quaternion_conjugate(self.orientation), self.sensor(sample))


class FrameReading(AbstractSensor):
    """The orientation or the velocity of a frame on a body.

    **Fields:** `body`; `frame`; `kind`: "quaternion", "velocity" or "angular" in world axes, or
    "velocimeter", the velocity in the axes of the frame."""

    body: str = eqx.field(static=True)
    frame: Pose
    kind: str = eqx.field(static=True)

    def __call__(self, sample):
        body = sample.mechanism.pose(sample.q, self.body)
        twist = sample.mechanism.twist(sample.v, self.body)
        if self.kind == "quaternion":
            return body.compose(self.frame).orientation
        if self.kind == "angular":
            return twist.angular
        velocity = twist.linear + cross(twist.angular, body.direction(self.frame.position))
        if self.kind == "velocity":
            return velocity
        return body.compose(self.frame).local_direction(velocity)


class Control(NamedTuple):
    """An entry of the control, which an actuator of the file reads.

    **Fields:** `name` of the actuator; `lower`, `upper`: bounds, infinite without any.
    """

    name: str
    lower: float
    upper: float


class HeldControl(eqx.Module):
    """A control that is constant.

    **Fields:** `value`, shape `(nu,)`.
    """

    value: Float[Array, " nu"]

    def __call__(self, t, q, v):
        del t, q, v
        return self.value


class FileJoint(NamedTuple):
    """A joint of the file, and where its coordinates are.

    **Fields:**

    - `name`; `kind`: "free", "ball", "hinge" or "slide"; `body`: the body that it moves.
    - `qpos`, `qvel`: the first of its entries.
    - `joint`: name of the joint of the mechanism, `None` for a free body, and `number` of its
      coordinate there.
    - `axis`, `anchor` [m]: in the frame of that joint on the parent, with all coordinates 0.
    - `zero`: the entry of qpos where the coordinate is 0; `middle`: angles are within half a turn
      of it.
    """

    name: str
    kind: str
    body: str
    qpos: int
    qvel: int
    joint: str | None = None
    number: int = 0
    axis: np.ndarray = np.zeros(3)
    anchor: np.ndarray = np.zeros(3)
    zero: float = 0.0
    middle: float = 0.0

    def coordinate(self, joint: AbstractConstraint) -> OfJoint:
        """The coordinate of a hinge or slide, of `joint` of the mechanism."""
        assert isinstance(joint, AbstractJoint)
        return OfJoint(joint, self.number, offset=self.zero, middle=self.middle)


def reading_of(member: FileJoint, rate: bool) -> JointReading:
    """The sensor of a hinge or a slide."""
    if member.joint is None or member.kind not in ("hinge", "slide"):
        raise ValueError(f'The joint "{member.name}" is no hinge or slide, but {member.kind}.')
    middle = member.middle if member.kind == "hinge" else None
    return JointReading(member.joint, member.number, member.zero, middle, rate)


class Branch(NamedTuple):
    """A body of the tree, the body that carries it, and the joint between them."""

    body: str
    parent: str
    joint: str | None
    swapped: bool  # the first body of the joint is the one that is carried
    members: tuple[FileJoint, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Loaded:
    """A model from a file.

    **Fields:**

    - `mechanism`, and `state` in which it starts.
    - `controls`: the entries of the control, in order.
    - `dropped`: what has no counterpart, one line each.
    - `joints`: the joints of the file.
    - `visuals`: shapes to draw.
    - `frames`: name of each body and site of the file -> the body of the mechanism it is fixed to
      and its pose there. Bodies without joints are part of the body that carries them.
    - `keyframes`: name -> start of the motion. `key_controls`: name -> control.
    - `sensors`: name -> sensor of `mbd.identify`.
    - `dt`: time step of the file [s].
    - `source`: path of the file.
    """

    mechanism: Mechanism
    state: State
    controls: tuple[Control, ...] = ()
    dropped: tuple[str, ...] = ()
    joints: tuple[FileJoint, ...] = ()
    branches: tuple[Branch, ...] = ()
    visuals: tuple[Visual, ...] = ()
    frames: dict[str, tuple[str, Pose]] = dataclasses.field(default_factory=dict)
    keyframes: dict[str, State] = dataclasses.field(default_factory=dict)
    key_controls: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    sensors: dict[str, Callable[..., Any]] = dataclasses.field(default_factory=dict)
    dt: float = 1e-3
    source: str = ""

    def __repr__(self) -> str:
        parts = f"{len(self.joints)} joints in the file, {len(self.controls)} controls"
        dropped = f", {len(self.dropped)} things dropped" if self.dropped else ""
        return f"{self.source}: {parts}{dropped}\n{self.mechanism!r}"

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of entries of qpos and qvel."""
        nq = sum({"free": 7, "ball": 4}.get(joint.kind, 1) for joint in self.joints)
        nv = sum({"free": 6, "ball": 3}.get(joint.kind, 1) for joint in self.joints)
        return nq, nv

    def control(self, u: Sequence[float] | Float[ArrayLike, " nu"] | None = None):
        """A control that is constant, for `simulate`: `u`, by default all 0."""
        value = np.zeros(len(self.controls)) if u is None else u
        value = to_jax(value, self.mechanism.gravity.dtype)
        if value.shape != (len(self.controls),):
            raise ValueError(
                f"`u` must have one entry for each of the {len(self.controls)} controls "
                f"{[control.name for control in self.controls]}, but has shape {value.shape}."
            )
        return HeldControl(value)

    def coordinate(self, name: str) -> OfJoint:
        """The coordinate of a hinge or slide, with the zero of the file: for springs and actuators
        of yours.

        **Raises:** `ValueError` if there is none of this name."""
        for member in self.joints:
            if member.name == name and member.kind in ("hinge", "slide"):
                return member.coordinate(self.mechanism.joint(str(member.joint)))
        if not self.joints and name in {joint.name for joint in self.mechanism.joints}:
            joint = self.mechanism.joint(name)
            assert isinstance(joint, AbstractJoint)
            return OfJoint(joint)
        known = [member.name for member in self.joints if member.kind in ("hinge", "slide")]
        raise ValueError(f'There is no hinge or slide "{name}" among {known}.')

    def reading(self, name: str, *, rate: bool = False) -> JointReading:
        """The sensor of a hinge or slide, or of its `rate`, for `mbd.identify`.

        **Raises:** `ValueError` if there is none of this name."""
        for member in self.joints:
            if member.name == name:
                return reading_of(member, rate)
        raise ValueError(
            f'There is no hinge or slide "{name}" among {[member.name for member in self.joints]}.'
        )

    def state_from(
        self,
        qpos: Sequence[float] | Float[ArrayLike, " nqpos"],
        qvel: Sequence[float] | Float[ArrayLike, " nqvel"] | None = None,
        *,
        t: float = 0.0,
        mechanism: Mechanism | None = None,
    ) -> State:
        """The state at joint coordinates in the order and with the meaning of MuJoCo, with the
        whole turns of hinges that springs, limits and couplings read. The bodies are placed along
        the tree. Loops that are not closed there stay open; `mbd.assemble` closes
        them.

        **Arguments:** `qpos`, `qvel`: as in `MjData`, `qvel` 0 by default. `mechanism`: the one
        whose dimensions count, such as one with other link lengths; by default `self.mechanism`.

        **Raises:** `ValueError` for a wrong number of entries."""
        mechanism = self.mechanism if mechanism is None else mechanism
        nq, nv = self.sizes
        qvel = np.zeros(nv) if qvel is None else qvel
        for what, given, size in (("qpos", qpos, nq), ("qvel", qvel, nv)):
            if np.shape(given) != (size,):
                raise ValueError(
                    f"`{what}` must have {size} entries, for the joints "
                    f"{[joint.name for joint in self.joints]}, but has shape {np.shape(given)}."
                )
        concrete = is_known((qpos, qvel, mechanism))
        if concrete:
            qpos, qvel = np.asarray(qpos, float), np.asarray(qvel, float)
        else:
            qpos, qvel = jnp.asarray(qpos), jnp.asarray(qvel)
        placed: dict[str, _Moving] = {GROUND: (pose(), Twist(_ZERO, _ZERO))}
        for branch in self.branches:
            joint = None if branch.joint is None else mechanism.joint(branch.joint)
            placed[branch.body] = _placed(branch, joint, placed[branch.parent], qpos, qvel)
        bodies = [placed[name] for name in mechanism.body_stack.names]
        xp = array_namespace(bodies)
        dtype = mechanism.gravity.dtype
        tables = (
            jnp.asarray(xp.stack([xp.concatenate(body[i]) for body in bodies], axis=-1), dtype)
            for i in (0, 1)
        )
        q, v = mechanism.coordinates_of(*tables)
        return State(t, q, v, angles=counted_angles(mechanism, self.joints, qpos, q, v))

    def qpos_qvel(
        self, state: Any, *, mechanism: Mechanism | None = None
    ) -> tuple[Float[Array, "*batch nqpos"], Float[Array, "*batch nqvel"]]:
        """The joint coordinates and velocities of a state, in the order and with the meaning of
        MuJoCo: the inverse of `state_from`. Leading axes are kept, so that `state` may also be a
        `Solution`. Angles are within half a turn of the middle of their limits, or of 0.

        **Raises:** `ValueError` for a wrong number of entries of `state.q` and `state.v`."""
        mechanism = self.mechanism if mechanism is None else mechanism
        q, v = mechanism.checked_q(state.q), mechanism.checked_v(state.v)

        @as_one_program
        def every(mechanism, q, v):
            return batched(lambda q, v: _read(self, mechanism, q, v), (q, 1), (v, 1))

        return every(mechanism, q, v)


_Moving: TypeAlias = tuple[Pose, Twist]
_ZERO: Any = np.zeros(3)
_NONE: Any = np.eye(4)[0]  # no rotation


def _placed(
    branch: Branch, joint: AbstractConstraint | None, parent: _Moving, qpos: Any, qvel: Any
) -> _Moving:
    """Where a body is and how it moves, after the body that carries it."""
    if joint is None:
        (member,) = branch.members
        i, j = member.qpos, member.qvel
        at = Pose(qpos[i : i + 3], _unit(qpos[i + 3 : i + 7]))
        return at, Twist(qvel[j : j + 3], at.direction(qvel[j + 3 : j + 6]))
    ends = [Pose(*map(array_namespace(*end).asarray, end)) for end in joint.frames]
    on_parent, on_child = reversed(ends) if branch.swapped else ends
    frame = _carried(parent, on_parent)
    for member in branch.members:
        i, j = member.qpos, member.qvel
        if member.kind == "slide":
            at, twist = _carried(frame, Pose((qpos[i] - member.zero) * member.axis, _NONE))
            frame = at, Twist(twist.linear + qvel[j] * at.direction(member.axis), twist.angular)
            continue
        at, twist = _carried(frame, pose(member.anchor))
        if member.kind == "hinge":
            turn = algebra.quaternion_about(member.axis, qpos[i] - member.zero)
            spin = qvel[j] * at.direction(member.axis)
        else:
            turn = _unit(qpos[i : i + 4])
            spin = at.direction(algebra.quaternion_rotate(turn, qvel[j : j + 3]))
        turned = Pose(at.position, algebra.quaternion_product(at.orientation, turn))
        frame = _carried((turned, Twist(twist.linear, twist.angular + spin)), pose(-member.anchor))
    return _carried(frame, on_child.inverse())


def _carried(carrier: _Moving, frame: Pose) -> _Moving:
    """A frame that another one carries."""
    at, twist = carrier
    return at.compose(frame), twist.moved(at.direction(frame.position))


def _unit(p: Any) -> Any:
    return p / (p * p).sum() ** 0.5


def _read(loaded: Loaded, mechanism: Mechanism, q: Array, v: Array) -> tuple[Array, Array]:
    """qpos and qvel of one sample."""
    nq, nv = loaded.sizes
    coordinates, rates, columns = [], [], {}
    count = 0
    for kind in mechanism.joint_stacks:
        first = kind[0]
        if not first.count():
            continue

        def values(joint, qs, vs):
            poses, twists = frame_poses(joint, qs), frame_twists(joint, qs, vs)
            return joint.coordinates(*poses), joint.rates(*poses, *twists)

        x, rate = mechanism.tables.map(kind, values, q, v)
        for k, name in enumerate(kind.names):
            columns[name] = count + k + len(kind) * np.arange(x.shape[0])
        coordinates.append(x.ravel())
        rates.append(rate.ravel())
        count += x.size
    count_q = count_v = count
    zeros, middles, turns = np.zeros(nq), np.zeros(nq), np.zeros(nq, bool)
    at_q, at_v = np.zeros(nq, int), np.zeros(nv, int)
    for member in loaded.joints:
        i, j = member.qpos, member.qvel
        if member.kind in ("hinge", "slide"):
            at_q[i] = at_v[j] = columns[member.joint][member.number]
            zeros[i], middles[i], turns[i] = member.zero, member.middle, member.kind == "hinge"
            continue
        own, speed = _free(mechanism, member, q, v)
        at_q[i : i + own.shape[0]] = count_q + np.arange(own.shape[0])
        at_v[j : j + speed.shape[0]] = count_v + np.arange(speed.shape[0])
        coordinates.append(own)
        rates.append(speed)
        count_q, count_v = count_q + own.shape[0], count_v + speed.shape[0]
    if nq == 0:
        return jnp.zeros(0, q.dtype), jnp.zeros(0, q.dtype)
    qpos = jnp.concatenate(coordinates)[at_q] + zeros.astype(q.dtype)
    beyond = qpos - middles.astype(q.dtype)
    wrapped = middles.astype(q.dtype) + jnp.arctan2(jnp.sin(beyond), jnp.cos(beyond))
    return jnp.where(turns, wrapped, qpos), jnp.concatenate(rates)[at_v]


def _free(mechanism: Mechanism, member: FileJoint, q: Array, v: Array) -> tuple[Array, Array]:
    """The entries of qpos and qvel of a free or a ball joint."""
    if member.joint is None:
        at, twist = mechanism.pose(q, member.body), mechanism.twist(v, member.body)
        spin = at.local_direction(twist.angular)
        return jnp.concatenate(at), jnp.concatenate([twist.linear, spin])
    joint = mechanism.joint(member.joint)
    (a, b), (before, after) = mechanism.frames(joint, q), mechanism.frame_twists(joint, q, v)
    return a.relative(b).orientation, b.local_direction(after.angular - before.angular)


def parts(model: Mechanism | Loaded) -> tuple[Mechanism, Loaded | None]:
    """The mechanism, and all that its file held if it was loaded."""
    return (model.mechanism, model) if isinstance(model, Loaded) else (model, None)

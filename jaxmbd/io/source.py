"""A compiled model of MuJoCo, with names, the bodies that move, and scalar coordinates."""

from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import PyTree

from .._mechanism import (
    GROUND,
    AbstractConstraint,
    AbstractScalarCoordinate,
    OfJoint,
    PathLength,
    Pose,
    WeightedSum,
)
from .loaded import FileJoint, pose

# Classes of MuJoCo, which need not be installed, and whose fields pyright does not know.
MjModel: TypeAlias = Any
MjSpec: TypeAlias = Any

# The number of an element, as Python or MuJoCo give it.
Number: TypeAlias = int | np.integer

# Kinds of elements: how the names of their fields start, and their list in a model that is not
# compiled, where its lines are known.
KINDS = {
    "body": ("body", "bodies"),
    "joint": ("jnt", "joints"),
    "geom": ("geom", "geoms"),
    "site": ("site", "sites"),
    "tendon": ("tendon", "tendons"),
    "actuator": ("actuator", "actuators"),
    "equality": ("eq", "equalities"),
    "sensor": ("sensor", "sensors"),
    "pair": ("pair", "pairs"),
    "key": ("key", ""),
    "camera": ("cam", ""),
    "flex": ("flex", ""),
}

# Options of MuJoCo that switch something off.
_DISABLED = (
    *("constraint", "equality", "frictionloss", "limit", "contact", "spring", "damper"),
    *("gravity", "actuation"),
)


class Source:
    """A compiled model `m` with its file.

    - `names`: unique names of the elements, by kind and number.
    - `owner`: for each body the moving body that carries it, 0 for the ground, and `rest`, its pose
      there.
    - `off`: what the options switch off, or is not to be read.
    - `drawn`: another model of the same bodies with shapes that are only drawn, or `None`.
    - `dropped`: collects what has no counterpart.
    - `lags`: whether the activation of actuators is read.
    - `acts`: where the compiled model has internal states of elements: name, state, number of the
      activation, and a factor and a summand for it.
    """

    def __init__(self, mujoco: ModuleType, spec: MjSpec, m: MjModel, path: str):
        self.mujoco, self.m, self.path = mujoco, m, path
        self.dropped: list[str] = []
        self.lags = False
        self.acts: list[tuple[str, str, int, float, float]] = []
        self.drawn: Source | None = None
        self._noted: set[str] = set()
        self._places = _places(spec)
        self._names: dict[str, list[str]] = {}
        for kind, (prefix, _) in KINDS.items():
            self._names[kind] = _unique(self, kind, prefix)
        flags = mujoco.mjtDisableBit
        self.off = {
            name
            for name in _DISABLED
            if m.opt.disableflags & getattr(flags, f"mjDSBL_{name.upper()}")
        }
        if "constraint" in self.off:
            self.off |= {"equality", "frictionloss", "limit", "contact"}
        self.owner, self.rest = [0], [pose()]
        for b in range(1, m.nbody):
            parent = int(m.body_parentid[b])
            if m.body_jntnum[b]:
                self.owner.append(b)
                self.rest.append(pose())
            else:
                self.owner.append(self.owner[parent])
                self.rest.append(self.rest[parent].compose(self.fixed(b)))

    def fixed(self, b: Number) -> Pose:
        """Pose of body b in its parent, before its joints."""
        return pose(self.m.body_pos[b], self.m.body_quat[b])

    def count(self, kind: str) -> int:
        """The number of elements of a kind."""
        return len(self._names[kind])

    def name(self, kind: str, i: Number) -> str:
        """The unique name of an element."""
        return self._names[kind][i]

    def body(self, b: Number) -> str:
        """Name of the moving body that carries body b."""
        owner = self.owner[b]
        return GROUND if owner == 0 else self.name("body", owner)

    def on(self, b: Number, position: PyTree, orientation: PyTree = (1, 0, 0, 0)) -> Pose:
        """The pose of a frame of body b in the moving body that carries it."""
        return self.rest[b].compose(pose(position, orientation))

    def drop(self, kind: str, i: Number, why: str) -> None:
        """Note that something of an element has no counterpart."""
        place = self._places.get((kind, int(i)), "")
        where = f" ({place})" if place else ""
        self._note(f'{kind} "{self.name(kind, i)}"{where}: {why}')

    def drop_option(self, what: str, why: str) -> None:
        """Note that an option of the file has no counterpart."""
        self._note(f"option {what}: {why}")

    def _note(self, line: str) -> None:
        if line not in self._noted:
            self._noted.add(line)
            self.dropped.append(line)


def _unique(source: Source, kind: str, prefix: str) -> list[str]:
    """Names of all elements of a kind. Elements without a name get one of their body or their
    number."""
    m, given = source.m, []
    for i in range(getattr(m, f"n{prefix}")):
        address = getattr(m, f"name_{prefix}adr")[i]
        given.append(m.names[address : m.names.index(b"\0", address)].decode())
    taken = set(filter(None, given)) | {GROUND}
    names = []
    for i, name in enumerate(given):
        if not name or name == GROUND:
            stem = f"{name or kind}{i}"
            if kind == "joint" and m.jnt_type[i] == 0:
                stem = f"{source.name('body', int(m.jnt_bodyid[i]))} free"
            elif kind == "joint":
                stem = f"{source.name('body', int(m.jnt_bodyid[i]))} joint"
            name, k = stem, 1
            while name in taken:
                k += 1
                name = f"{stem} {k}"
            taken.add(name)
        names.append(name)
    return names


def _places(spec: MjSpec) -> dict[tuple[str, int], str]:
    """Where the file states each element, such as "line 12"."""
    return {
        (kind, element.id): str(element.info)
        for kind, (_, group) in KINDS.items()
        for element in (getattr(spec, group) if group else ())
        if element.id >= 0 and element.info
    }


class Coordinates:
    """The scalar coordinates of a compiled model, made once each."""

    def __init__(self, source: Source, joints: list[AbstractConstraint], members: list[FileJoint]):
        self.source = source
        self._joints = {joint.name: joint for joint in joints}
        self._members = {member.name: member for member in members}

    def member(self, j: int) -> FileJoint:
        """Joint j of the file."""
        return self._members[self.source.name("joint", j)]

    def joint(self, j: int) -> OfJoint | None:
        """The coordinate of a hinge or a slide; `None` for other joints."""
        member = self.member(j)
        if member.kind not in ("hinge", "slide") or member.joint is None:
            return None
        return member.coordinate(self._joints[member.joint])

    def tendon(self, k: int) -> AbstractScalarCoordinate | None:
        """The length of a tendon; `None` if it wraps round geoms."""
        source, m = self.source, self.source.m
        wraps = range(m.tendon_adr[k], m.tendon_adr[k] + m.tendon_num[k])
        kinds = [source.mujoco.mjtWrap(m.wrap_type[i]).name.removeprefix("mjWRAP_") for i in wraps]
        if set(kinds) == {"JOINT"}:
            terms = [self.joint(int(m.wrap_objid[i])) for i in wraps]
            return WeightedSum(
                [term for term in terms if term is not None],
                np.array([m.wrap_prm[i] for i in wraps]),
            )
        if not set(kinds) <= {"SITE", "PULLEY"}:
            return None
        bodies, frames, weights = [], [], []
        divisor, after_pulley = 1.0, True
        for i, kind in zip(wraps, kinds, strict=True):
            if kind == "PULLEY":
                divisor, after_pulley = float(m.wrap_prm[i]), True
                continue
            site = int(m.wrap_objid[i])
            b = int(m.site_bodyid[site])
            if bodies:
                weights.append(0.0 if after_pulley else 1 / divisor)
            after_pulley = False
            bodies.append(source.body(b))
            frames.append(source.on(b, m.site_pos[site]))
        if len(set(bodies)) < 2:
            return None
        # Without weights, a spring between two sites is smooth where they meet.
        fully = all(weight == 1 for weight in weights)
        return PathLength(bodies, frames, weights=None if fully else np.array(weights))

"""Bodies and joints of a compiled model."""

import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from ..mechanism import (
    GROUND,
    AbstractConstraint,
    Inertia,
    Prismatic,
    Revolute,
    Serial,
    Spherical,
)
from . import rigid
from .loaded import Branch, FileJoint
from .rigid import Transform
from .source import Source, pose

_KINDS = ("free", "ball", "slide", "hinge")


class Tree(NamedTuple):
    """The bodies with their joints."""

    inertias: dict[str, Inertia]
    joints: list[AbstractConstraint]
    branches: list[Branch]
    members: list[FileJoint]


def tree(source: Source) -> Tree:
    """The bodies that move, and the joints that carry them.

    **Raises:** `ValueError` for joints of one body that have no counterpart together."""
    m = source.m
    inertias, joints, branches, members = {}, [], [], []
    for b in range(1, m.nbody):
        if source.owner[b] != b:
            continue
        inertias[source.name("body", b)] = _inertia(source, b)
        joint, branch = _carried(source, b)
        branches.append(branch)
        members += branch.members
        if joint is not None:
            joints.append(joint)
    members.sort(key=lambda member: member.qpos)
    return Tree(inertias, joints, branches, members)


def _inertia(source: Source, owner: int) -> Inertia:
    """Mass, centre of mass and tensor of a body with all that is fixed to it."""
    m = source.m
    parts = [b for b in range(1, m.nbody) if source.owner[b] == owner and m.body_mass[b] > 0]
    masses = [float(m.body_mass[b]) for b in parts]
    frames = [source.on(b, m.body_ipos[b], m.body_iquat[b]) for b in parts]
    mass = sum(masses)
    if not mass > 0:
        raise ValueError(
            f'{source.path}: the moving body "{source.name("body", owner)}" has no mass: give it '
            "an `inertial`, or geoms with a density."
        )
    center = sum(part * frame.position for part, frame in zip(masses, frames, strict=True)) / mass
    tensor = np.zeros((3, 3))
    for b, part, frame in zip(parts, masses, frames, strict=True):
        R, d = rigid.matrix(frame.orientation), frame.position - center
        tensor += (R * m.body_inertia[b]) @ R.T + part * (d @ d * np.eye(3) - np.outer(d, d))
    return Inertia(mass, (tensor + tensor.T) / 2, center)


def _carried(source: Source, b: int) -> tuple[AbstractConstraint | None, Branch]:
    """The joint that carries body b."""
    m = source.m
    first = int(m.body_jntadr[b])
    numbers = list(range(first, first + int(m.body_jntnum[b])))
    kinds = [_KINDS[m.jnt_type[j]] for j in numbers]
    child, parent = source.name("body", b), int(m.body_parentid[b])
    carrier = source.body(parent)
    if kinds == ["free"]:
        branch = Branch(child, GROUND, None, False, (_free(source, numbers[0], child),))
        return None, branch
    names = [source.name("joint", j) for j in numbers]
    name = "+".join(names)
    start = source.rest[parent].compose(source.fixed(b))
    axes = [m.jnt_axis[j].copy() for j in numbers]
    points = [m.jnt_pos[j].copy() for j in numbers]
    turning = [p for p, kind in zip(points, kinds, strict=True) if kind != "slide"]
    meet = all(np.linalg.norm(p - turning[0]) < 1e-12 for p in turning)
    if len(kinds) == 1:
        local = Transform(points[0], np.eye(4)[0] if kinds == ["ball"] else rigid.along(axes[0]))
        axes, points = [np.eye(3)[2]], [np.zeros(3)]
    else:
        local = Transform(turning[0] if turning and meet else np.zeros(3), np.eye(4)[0])
        points = [p - local.position for p in points]
    frames: dict[str, Any] = {"frame_a": pose(start.compose(local)), "frame_b": pose(local)}
    if kinds == ["hinge"]:
        stops = _limits(source, numbers[0])
        joint, order, swapped = Revolute(name, carrier, child, limits=stops, **frames), [0], False
    elif kinds == ["slide"]:
        stops = _limits(source, numbers[0])
        joint, order, swapped = Prismatic(name, carrier, child, limits=stops, **frames), [0], False
    elif kinds == ["ball"]:
        joint, order, swapped = Spherical(name, carrier, child, **frames), [0], False
    else:
        joint, order, swapped = _serial(
            source, name, (carrier, child), frames, kinds, axes, None if meet else points
        )
    found = []
    for k, j in enumerate(numbers):
        zero = float(m.qpos0[m.jnt_qposadr[j]]) if kinds[k] in ("hinge", "slide") else 0.0
        low, high = m.jnt_range[j]
        limited = m.jnt_limited[j] and kinds[k] == "hinge" and high - low < 2 * math.pi
        found.append(
            FileJoint(
                names[k],
                kinds[k],
                child,
                int(m.jnt_qposadr[j]),
                int(m.jnt_dofadr[j]),
                name,
                order[k],
                axes[k],
                points[k],
                zero,
                float(low + high) / 2 if limited else 0.0,
            )
        )
    return joint, Branch(child, carrier, name, swapped, tuple(found))


def _limits(source: Source, j: int) -> Any:
    """Limits of the coordinate of a hinge or slide, which is 0 where the file starts."""
    m = source.m
    return m.jnt_range[j] - m.qpos0[m.jnt_qposadr[j]] if m.jnt_limited[j] else None


def _free(source: Source, j: int, child: str) -> FileJoint:
    m = source.m
    return FileJoint(
        source.name("joint", j),
        "free",
        child,
        int(m.jnt_qposadr[j]),
        int(m.jnt_dofadr[j]),
        None,
        0,
        np.zeros(3),
        np.zeros(3),
        0.0,
        0.0,
    )


def _serial(source, name, bodies, frames, kinds, axes, points):
    """Several joints of one body as one joint, with the index of each coordinate, and whether the
    bodies are swapped."""
    slides = [k for k, kind in enumerate(kinds) if kind == "slide"]
    turns = [k for k, kind in enumerate(kinds) if kind != "slide"]
    ball = "ball" in kinds
    first = not slides or not turns or max(slides) < min(turns)
    last = bool(slides) and bool(turns) and min(slides) > max(turns)
    if not first and not last and len(turns) == 1:
        # A slide along the axis of the turn may come before or after it.
        axis = axes[turns[0]]
        late = [axes[k] for k in slides if k > turns[0]]
        first = all(np.linalg.norm(np.cross(axis, s)) < 1e-9 for s in late)
    parallel = any(
        np.linalg.norm(np.cross(axes[i], axes[k])) < 1e-3 for i, k in itertools.pairwise(turns)
    )
    if (ball and (len(turns) > 1 or last)) or len(turns) > 3 or parallel or not (first or last):
        raise ValueError(
            f'{source.path}: the joints "{name}" of one body, {kinds}, have no counterpart '
            "together: put a body with some mass between them."
        )
    order = [0] * len(kinds)
    rows = [axes[k] for k in turns]
    if ball:
        for i, k in enumerate(slides):
            order[k] = i
        order[turns[0]] = len(slides)
        rows, points = list(np.eye(3)), None
        joint = Serial(
            name,
            *bodies,
            slides=np.array([axes[k] for k in slides]),
            axes=np.array(rows),
            **frames,
        )
        return joint, order, False
    if first:
        for i, k in enumerate([*slides, *turns]):
            order[k] = i
        joint = Serial(
            name,
            *bodies,
            slides=np.array([axes[k] for k in slides]).reshape(-1, 3),
            axes=np.array(rows).reshape(-1, 3),
            anchors=None if points is None or not turns else np.array([points[k] for k in turns]),
            **frames,
        )
        return joint, order, False
    # Seen from the child, the slides come first, and all moves are opposite.
    for i, k in enumerate([*slides, *reversed(turns)]):
        order[k] = i
    joint = Serial(
        name,
        *reversed(bodies),
        slides=-np.array([axes[k] for k in slides]),
        axes=-np.array(rows)[::-1],
        anchors=None if points is None else np.array([points[k] for k in reversed(turns)]),
        frame_a=frames["frame_b"],
        frame_b=frames["frame_a"],
    )
    return joint, order, True

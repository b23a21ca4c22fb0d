"""Bodies and joints of a compiled model."""

import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from .._coordinates import algebra
from .._mechanism import (
    GROUND,
    AbstractConstraint,
    Inertia,
    Pose,
    Prismatic,
    Revolute,
    Serial,
    Spherical,
)
from .loaded import Branch, FileJoint, pose
from .source import Source

_KINDS = ("free", "ball", "slide", "hinge")
# Joints that are alone on their body.
_ALONE = {"ball": Spherical, "slide": Prismatic, "hinge": Revolute}


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
        R, d = algebra.quaternion_to_matrix(frame.orientation), frame.position - center
        tensor += (R * m.body_inertia[b]) @ R.T + part * (d @ d * np.eye(3) - np.outer(d, d))
    return Inertia(mass, (tensor + tensor.T) / 2, center)


def _carried(source: Source, b: int) -> tuple[AbstractConstraint | None, Branch]:
    """The joint that carries body b."""
    m = source.m
    first = int(m.body_jntadr[b])
    numbers = range(first, first + int(m.body_jntnum[b]))
    kinds = [_KINDS[m.jnt_type[j]] for j in numbers]
    names = [source.name("joint", j) for j in numbers]
    child, parent = source.name("body", b), int(m.body_parentid[b])
    places = [int(m.jnt_qposadr[j]) for j in numbers], [int(m.jnt_dofadr[j]) for j in numbers]
    if kinds == ["free"]:
        (qpos,), (qvel,) = places
        member = FileJoint(names[0], "free", child, qpos, qvel)
        return None, Branch(child, GROUND, None, False, (member,))
    name, carrier = "+".join(names), source.body(parent)
    axes = [m.jnt_axis[j].copy() for j in numbers]
    points = [m.jnt_pos[j].copy() for j in numbers]
    turning = [p for p, kind in zip(points, kinds, strict=True) if kind != "slide"]
    meet = all(np.linalg.norm(p - turning[0]) < 1e-12 for p in turning)
    if len(kinds) == 1:
        local = pose(points[0])
        if kinds != ["ball"]:
            local = pose(points[0], algebra.quaternion_along(axes[0]))
        axes, points = [np.eye(3)[2]], [np.zeros(3)]
    else:
        local = pose(turning[0] if turning and meet else np.zeros(3))
        points = [p - local.position for p in points]
    start = source.rest[parent].compose(source.fixed(b)).compose(local)
    zeros = [
        float(m.qpos0[qpos]) if kind in ("hinge", "slide") else 0.0
        for qpos, kind in zip(places[0], kinds, strict=True)
    ]
    if len(kinds) == 1:
        ends: dict[str, Any] = {"frame_a": start, "frame_b": local}
        if kinds != ["ball"] and m.jnt_limited[first]:
            # The coordinate is 0 where the file starts.
            ends["limits"] = m.jnt_range[first] - zeros[0]
        joint, order, swapped = _ALONE[kinds[0]](name, carrier, child, **ends), [0], False
    else:
        joint, order, swapped = _serial(
            source, name, ((carrier, start), (child, local)), kinds, axes, None if meet else points
        )
    found = []
    for k, j in enumerate(numbers):
        low, high = m.jnt_range[j]
        limited = m.jnt_limited[j] and kinds[k] == "hinge" and high - low < 2 * math.pi
        found.append(
            FileJoint(
                names[k],
                kinds[k],
                child,
                places[0][k],
                places[1][k],
                name,
                order[k],
                axes[k],
                points[k],
                zeros[k],
                float(low + high) / 2 if limited else 0.0,
            )
        )
    return joint, Branch(child, carrier, name, swapped, tuple(found))


def _serial(
    source: Source,
    name: str,
    ends: tuple[tuple[str, Pose], tuple[str, Pose]],
    kinds: list[str],
    axes: list[np.ndarray],
    points: list[np.ndarray] | None,
) -> tuple[Serial, list[int], bool]:
    """Several joints of one body as one joint, with the index of each coordinate, and whether the
    bodies are swapped: seen from the child, slides that follow the turns come first, and all moves
    are opposite."""
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
    sign, turns = (1, turns) if first else (-1, turns[::-1])
    (a, frame_a), (b, frame_b) = ends if first else reversed(ends)
    order = [[*slides, *turns].index(k) for k in range(len(kinds))]
    rows = np.eye(3) if ball else np.array([axes[k] for k in turns]).reshape(-1, 3)
    anchors = None
    if points is not None and turns and not ball:
        anchors = np.array([points[k] for k in turns])
    joint = Serial(
        name,
        a,
        b,
        slides=sign * np.array([axes[k] for k in slides]).reshape(-1, 3),
        axes=sign * rows,
        anchors=anchors,
        frame_a=frame_a,
        frame_b=frame_b,
    )
    return joint, order, not first

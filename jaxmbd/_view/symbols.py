"""Solids and stretching lines that show joints, springs and supports."""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..mechanism import (
    GROUND,
    AbstractConstraint,
    AbstractElement,
    AbstractForceElement,
    Bushing,
    Cylindrical,
    Distance,
    Fixed,
    Mechanism,
    Motor,
    Planar,
    PointOnLine,
    PointOnPlane,
    Prismatic,
    Revolute,
    Screw,
    Spherical,
    Spring,
    TorsionSpring,
    Universal,
)
from ..mechanism.pictures import (
    FORCE,
    GROUND_EDGE,
    INK,
    Frames,
    element_frames,
    matrices,
    spiral,
    unit,
)
from .solids import Color, Solid, bar, rgb

_INK, _FORCE, _SUPPORT, _GUIDE = rgb(INK), rgb(FORCE), rgb(GROUND_EDGE), (154, 161, 171)
# Turns of the coil of a spring, and points of a turn.
_TURNS, _POINTS = 7, 14


@dataclass(frozen=True)
class Link:
    """A line that stretches between a point of one body and a point of another.

    - `ends`: for each of the two the name of the body, and the point in its frame [m].
    - `template`: points `(n, 3)`: the fraction of the way, and two offsets across it [m].
    """

    whose: str
    ends: tuple[tuple[str, np.ndarray], tuple[str, np.ndarray]]
    template: np.ndarray
    color: Color
    thickness: float


Symbols = list[Solid | Link]


def joint_symbols(
    mechanism: Mechanism, bodies: dict[str, Frames], size: float, down: np.ndarray
) -> Symbols:
    """The symbols of all joints, with supports where they are on the ground. `bodies` are the
    frames of the bodies in all pictures."""
    found: Symbols = []
    for joint in mechanism.joints:
        found += _joint(joint, element_frames(joint, bodies), 0.3 * size)
        for name, pose in zip(joint.bodies, joint.frames, strict=True):
            if name == GROUND:
                found.append(_support(joint.name, np.asarray(pose.position, float), size, down))
    return found


def force_symbols(mechanism: Mechanism, bodies: dict[str, Frames], size: float) -> Symbols:
    """The symbols of springs, motors, and forces between separate points."""
    found: Symbols = []
    for force in mechanism.forces:
        found += _force(force, element_frames(force, bodies), size)
    return found


def _joint(of: AbstractConstraint, frames: list[Frames], r: float) -> Symbols:
    name, last = of.name, len(of.bodies) - 1
    if isinstance(of, Distance):
        return [_link(of, _straight(), _INK, 0.3 * r)]
    if isinstance(of, Revolute):
        return [_at(of, last, "cylinder", (0.8 * r, 1.3 * r), _INK)]
    if isinstance(of, Fixed):
        return [_at(of, last, "box", (0.7 * r, 0.7 * r, 0.7 * r), _INK)]
    if isinstance(of, Universal):
        a, b = of.frames
        arms = ((of.bodies[0], a, 0), (of.bodies[1], b, 1))
        return [_arm(name, body, frame, axis, r) for body, frame, axis in arms]
    if isinstance(of, Prismatic | Cylindrical | Screw):
        kind, sizes = "cylinder", (1.1 * r, 1.8 * r)
        if isinstance(of, Prismatic):
            kind, sizes = "box", (0.9 * r, 0.9 * r, 1.8 * r)
        return [*_guide(of, frames, r), _at(of, last, kind, sizes, _INK)]
    if isinstance(of, PointOnLine):
        return [*_guide(of, frames, r), _at(of, last, "sphere", (0.8 * r,), _INK)]
    if isinstance(of, Planar | PointOnPlane):
        sheet = _at(of, 0, "box", (3 * r, 3 * r, 0.05 * r), _GUIDE, opacity=0.4)
        marker = ("box", (0.6 * r,) * 3) if isinstance(of, Planar) else ("sphere", (0.8 * r,))
        return [sheet, _at(of, last, *marker, _INK)]
    found: Symbols = [_at(of, last, "sphere", (0.9 * r,), _INK)]
    if not isinstance(of, Spherical) and last == 1 and _apart(frames, r):
        found.append(_link(of, _straight(), _GUIDE, 0.2 * r))
    return found


def _force(of: AbstractForceElement, frames: list[Frames], size: float) -> Symbols:
    if isinstance(of, Spring):
        return [_link(of, _coil(0.28 * size), _FORCE, 0.08 * size)]
    if isinstance(of, TorsionSpring):
        turns = spiral(0.35 * size, 0.7 * size, 2.5)[::3]
        at, axes = np.asarray(of.frames[0].position, float), _axes(of.frames[0])
        points = at + turns @ axes.T
        pieces = itertools.pairwise(points)
        return [bar(of.bodies[0], of.name, a, b, 0.05 * size, _FORCE) for a, b in pieces]
    if isinstance(of, Motor):
        return [_at(of, 0, "cylinder", (0.42 * size, 0.2 * size), _FORCE, opacity=0.5)]
    if isinstance(of, Bushing):
        return [_at(of, 0, "sphere", (0.35 * size,), _FORCE, opacity=0.5)]
    if len(frames) == 2 and _apart(frames, size):
        return [_link(of, _straight(), _FORCE, 0.06 * size)]
    return []


def _axes(frame: Any) -> np.ndarray:
    return matrices(np.asarray(frame.orientation, float)[None])[0]


def _at(of: AbstractElement, i: int, kind: str, size: tuple, color: Color, opacity=1.0) -> Solid:
    """A solid at frame `i` of an element."""
    frame = of.frames[i]
    place = np.asarray(frame.position, float), np.asarray(frame.orientation, float)
    return Solid(of.bodies[i], of.name, kind, size, color, *place, opacity=opacity)


def _arm(name: str, body: str, frame: Any, axis: int, r: float) -> Solid:
    at, along = np.asarray(frame.position, float), _axes(frame)[:, axis]
    return bar(body, name, at - 1.4 * r * along, at + 1.4 * r * along, 0.35 * r, _INK)


def _guide(of: AbstractElement, frames: list[Frames], r: float) -> Symbols:
    """The axis of frame a, as far as frame b moves along it."""
    a, b = frames
    along = np.einsum("ti,ti->t", a.axis(2), b.origin - a.origin)
    at, z = np.asarray(of.frames[0].position, float), _axes(of.frames[0])[:, 2]
    # Not much longer than other symbols, if b slides far away.
    low, high = (float(np.clip(x, -10 * r, 10 * r)) for x in (along.min(), along.max()))
    low, high = min(low, 0.0) - 2.8 * r, max(high, 0.0) + 2.8 * r
    return [bar(of.bodies[0], of.name, at + low * z, at + high * z, 0.3 * r, _GUIDE)]


def _apart(frames: list[Frames], r: float) -> bool:
    return bool(np.max(np.abs(frames[0].origin - frames[-1].origin)) > 1e-2 * r)


def _support(name: str, at: np.ndarray, size: float, down: np.ndarray) -> Solid:
    """A pyramid under a point of the ground."""
    side = unit(np.cross(down, np.eye(3)[int(np.argmin(np.abs(down)))]))
    other = np.cross(down, side)
    foot, half = at + 0.8 * size * down, 0.4 * size
    corners = [
        foot + half * (a * side + b * other) for a, b in ((1, 1), (-1, 1), (-1, -1), (1, -1))
    ]
    vertices = np.array([at, *corners])
    faces = np.array([[0, 1, 2], [0, 2, 3], [0, 3, 4], [0, 4, 1], [1, 3, 2], [1, 4, 3]])
    mesh: Any = dict(vertices=vertices, faces=faces)
    return Solid(GROUND, name, "mesh", (), _SUPPORT, opacity=0.7, **mesh)


def _link(of: AbstractElement, template: np.ndarray, color: Color, thickness: float) -> Link:
    a, b = ((of.bodies[i], np.asarray(of.frames[i].position, float)) for i in (0, -1))
    return Link(of.name, (a, b), template, color, thickness)


def _straight() -> np.ndarray:
    return np.array([[0.0, 0, 0], [1, 0, 0]])


def _coil(radius: float) -> np.ndarray:
    s = np.linspace(0, 1, _TURNS * _POINTS + 1)
    angle = 2 * np.pi * _TURNS * s
    coil = np.stack([0.12 + 0.76 * s, radius * np.sin(angle), radius * np.cos(angle)], axis=1)
    return np.concatenate([[[0, 0, 0], [0.12, 0, 0]], coil, [[0.88, 0, 0], [1, 0, 0]]])

"""Symbols of joints, forces, bodies and the ground: lines, areas and marks in the world."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..body import Body
from ..forces import AbstractForceElement, CoordinateActuator, CoordinateSpring
from ..frame_coordinates import Angle, PathLength, TwistAngle
from ..joints import (
    AbstractConstraint,
    Cylindrical,
    Distance,
    Fixed,
    Planar,
    PointOnLine,
    PointOnPlane,
    Prismatic,
    Revolute,
    Screw,
    Universal,
)
from .geometry import (
    Frames,
    View,
    across,
    between,
    circle,
    lines,
    prism,
    spiral,
    unit,
)

INK = "#2b2f36"
_GUIDE = "#9aa1ab"
GROUND_EDGE = "#70757d"
GROUND_FILL = "#dfe2e7"
FORCE = "#b0413e"
_AXES = ("#d0453b", "#3f9b52", "#3b6ea8")
BODIES = (
    "#3b6ea8", "#e08a3c", "#4f9d69", "#c8504f", "#7d6bb0", "#4aa5b8", "#9a7b5c", "#d183b4",
)  # fmt: skip


@dataclass
class Stroke:
    """A polyline in all pictures, `(pictures, points, 3)`; an area if it has a `fill`; or marks.
    `style` is for matplotlib's lines. `whose` is the name of the element drawn. An area may have
    several polygons, with gaps between them. Limits are set around strokes that are `framed`."""

    points: np.ndarray
    whose: str
    style: dict[str, Any] = field(default_factory=dict)
    fill: str | None = None
    alpha: float = 1.0
    framed: bool = True

    @property
    def several(self) -> bool:
        """Whether there are gaps in any picture."""
        return bool(np.any(np.isnan(self.points)))


def line(whose: str, points: np.ndarray, color=INK, width=1.4, z=3.0, **style: Any) -> Stroke:
    ends = dict(solid_capstyle="round", solid_joinstyle="round")
    return Stroke(points, whose, dict(color=color, linewidth=width, zorder=z) | ends | style)


def mark(whose: str, points: np.ndarray, marker, size, color=INK, edge=INK, z=4.0) -> Stroke:
    style = dict(
        marker=marker,
        markersize=size,
        markerfacecolor=color,
        markeredgecolor=edge,
        markeredgewidth=1.2,
        linestyle="none",
        zorder=z,
    )
    return Stroke(points, whose, style)


def area(whose: str, points: np.ndarray, fill="white", edge=INK, z=4.0, alpha=1.0) -> Stroke:
    return Stroke(points, whose, dict(color=edge, linewidth=1.2, zorder=z), fill, alpha)


def triad(whose: str, frame: Frames, size: float) -> list[Stroke]:
    """The axes x, y, z in red, green, blue."""
    ends = [frame.origin + 0.7 * size * frame.axis(i) for i in range(3)]
    return [
        line(whose, between(frame.origin, end), color, 1.1, z=6)
        for end, color in zip(ends, _AXES, strict=True)
    ]


def body(
    of: Body, frame: Frames, attachments: list[np.ndarray], color: str, size: float, skeleton: bool
) -> list[Stroke]:
    """Draw bars from the centre of mass to the attachments. A `skeleton`, a body without shapes,
    gets an area for three or more attachments, and the box with the same inertia for at most
    one."""
    center = frame.at(of.inertia.center)[:, 0]
    strokes = []
    if skeleton and len(attachments) >= 3:
        strokes.append(area(of.name, _around(attachments), color, color, z=1, alpha=0.18))
    if skeleton and len(attachments) <= 1:
        faces = [
            area(of.name, frame.at(face), color, color, z=1, alpha=0.16)
            for face in _box(of, 0.15 * size)
        ]
        strokes += faces
    for point in attachments:
        strokes.append(line(of.name, between(center, point), color, 5.0, z=2))
    return [
        *strokes,
        mark(of.name, center[:, None], "o", 8, "white", z=5),
        mark(of.name, center[:, None], _quarters(), 8, INK, "none", z=5.1),
    ]


def _quarters() -> Any:
    """The dark quarters of the symbol of a centre of mass."""
    from matplotlib.path import Path

    return Path.make_compound_path(Path.wedge(0, 90), Path.wedge(180, 270))


def _around(points: list[np.ndarray]) -> np.ndarray:
    """The points in order around their mean, as in the first picture."""
    table = np.stack(points, axis=1)
    x = table[0] - table[0].mean(axis=0)
    _, _, (e1, e2, _) = np.linalg.svd(np.vstack([x, np.zeros((3, 3))]))
    return table[:, np.argsort(np.arctan2(x @ e2, x @ e1))]


def _box(of: Body, least: float) -> list[np.ndarray]:
    """Faces of the box with the inertia of the body."""
    half, axes = equal_box(of, least)
    center = np.asarray(of.inertia.center)
    return [center + (face * half) @ axes.T for face in prism(np.sqrt(2), 1.0, 4)]


def equal_box(of: Body, least: float) -> tuple[np.ndarray, np.ndarray]:
    """Half the edges of the box with the inertia of the body, each edge at least `least` [m], and
    its axes as columns of a rotation matrix."""
    moments, axes = np.linalg.eigh(np.asarray(of.inertia.tensor))
    squares = 6 * (moments.sum() - 2 * moments) / float(of.inertia.mass)
    half = np.maximum(np.sqrt(np.maximum(squares, 0)) / 2, least / 2)
    axes[:, 2] = np.cross(axes[:, 0], axes[:, 1])  # eigenvectors may be left-handed
    return half, axes


def ground(
    whose: str, frame: Frames, view: View, size: float, down: np.ndarray | None = None
) -> list[Stroke]:
    """Draw a hatched support under a frame on the ground."""
    down = view.down if down is None else down
    foot = frame.origin + 0.95 * size * down
    if view.flat:
        side = np.cross(np.cross(view.right, view.up), down)
        tip = 0.55 * size
        corners = [foot - tip * side, foot + tip * side]
        bar = [foot - 1.6 * tip * side, foot + 1.6 * tip * side]
        hatch = []
        for x in np.linspace(-1.3, 1.6, 7) * tip:
            top = foot + x * side
            hatch.append(between(top, top + 0.4 * size * down - 0.3 * size * side))
        return [
            line(whose, lines(*hatch), GROUND_EDGE, 0.9, z=0.5),
            area(whose, between(frame.origin, *corners), "#eceef1", INK, z=1.5),
            line(whose, between(*bar), INK, 1.6, z=1.6),
        ]
    e1 = across(np.broadcast_to(down, foot.shape), np.broadcast_to(view.right, foot.shape))
    e2 = np.cross(down, e1)
    r = 0.8 * size
    corners = [foot + r * (a * e1 + b * e2) for a, b in ((1, 1), (-1, 1), (-1, -1), (1, -1))]
    small = [foot + 0.5 * r * (c - foot) / r for c in corners]
    hatch = []
    for x in np.linspace(-0.75, 0.75, 4):
        # Diagonals of the square, all in one direction.
        a, b = (-1, 2 * x + 1) if x < 0 else (2 * x - 1, 1)
        hatch.append(between(foot + r * (a * e1 - b * e2), foot + r * (b * e1 - a * e2)))
    return [
        area(whose, between(*corners), GROUND_FILL, GROUND_EDGE, z=0.4, alpha=0.8),
        line(whose, lines(*hatch), GROUND_EDGE, 0.7, z=0.5),
        line(whose, lines(*(between(frame.origin, c) for c in small)), GROUND_EDGE, 1.2, z=0.6),
    ]


def arrows(
    whose: str, tails: np.ndarray, vectors: np.ndarray, view: View, size: float
) -> list[Stroke]:
    """Draw arrows from points `(pictures, n, 3)`, with heads up to a `size`, and dots at their
    tails. NaN stands for missing arrows."""
    length = np.linalg.norm(vectors, axis=2, keepdims=True)
    along = unit(vectors)
    head = np.minimum(size, 0.4 * length)
    count, n = vectors.shape[:2]
    hint = np.broadcast_to(np.cross(view.right, view.up), (count * n, 3))
    side = across(np.nan_to_num(along).reshape(-1, 3), hint).reshape(count, n, 3)
    tips = tails + vectors
    foot = tips - head * along
    gap = np.full_like(tips, np.nan)

    def polylines(*points):
        """Join points, `(pictures, n, 3)` each, into one polyline after another."""
        return np.stack([*points, gap], axis=2).reshape(count, -1, 3)

    heads = polylines(foot + 0.4 * head * side, tips, foot - 0.4 * head * side)
    return [
        line(whose, polylines(tails, foot), FORCE, 1.6, z=6.5),
        Stroke(heads, whose, dict(color=FORCE, linewidth=0.3, zorder=6.5), FORCE),
        mark(whose, tails, "o", 4.5, FORCE, "white", z=6.6),
    ]


# --- joints -------------------------------------------------------------------------------------


def joint(of: AbstractConstraint, frames: list[Frames], size: float) -> list[Stroke]:
    """The symbol of a joint, by its type."""
    name, r = of.name, 0.3 * size
    if isinstance(of, Distance):
        a, b = frames
        rod = line(name, between(a.origin, b.origin), INK, 2.0, z=2.5)
        return [rod, *(mark(name, x.origin[:, None], "o", 6, "white") for x in frames)]
    if isinstance(of, Revolute):
        a, b = frames
        axis = line(name, b.at([[0, 0, -2 * r], [0, 0, 2 * r]]), INK, 1.6, z=3.9)
        return [axis, area(name, b.at(circle(r)))]
    if isinstance(of, Fixed):
        return [area(name, frames[1].at(face), INK) for face in prism(0.9 * r, 0.64 * r, 4)]
    if isinstance(of, Universal):
        a, b = frames
        arm = 1.4 * r
        first, second = a.at([[-arm, 0, 0], [arm, 0, 0]]), b.at([[0, -arm, 0], [0, arm, 0]])
        tips = np.concatenate([first, second], axis=1)
        return [line(name, lines(first, second), INK, 2.0, z=4), mark(name, tips, "o", 4, "white")]
    if isinstance(of, Prismatic | Cylindrical | Screw):
        a, b = frames
        sleeve = Frames(b.origin, a.axes)
        faces = prism(1.2 * r, 1.8 * r, 4 if isinstance(of, Prismatic) else 12)
        strokes = [_guide(name, a, b.origin, 2.8 * r)]
        strokes += [area(name, sleeve.at(face), z=3.5, edge=INK) for face in faces]
        if isinstance(of, Screw):
            phi = np.linspace(0, 6 * np.pi, 60)
            helix = np.stack([np.cos(phi), np.sin(phi), 1.5 * (phi / (3 * np.pi) - 1)], axis=1)
            strokes.append(line(name, sleeve.at(1.2 * r * helix), INK, 1.0, z=4))
        return strokes
    if isinstance(of, PointOnLine):
        a, b = frames
        return [_guide(name, a, b.origin, 2.8 * r), mark(name, b.origin[:, None], "o", 7)]
    if isinstance(of, Planar | PointOnPlane):
        a, b = frames
        inside = np.einsum("tji,tj->ti", a.axes, b.origin - a.origin)
        inside[:, 2] = 0
        under = Frames(a.origin + np.einsum("tij,tj->ti", a.axes, inside), a.axes)
        sheet = under.at(2.4 * r * np.array([[1, 1, 0], [-1, 1, 0], [-1, -1, 0], [1, -1, 0]]))
        marker = "s" if isinstance(of, Planar) else "o"
        return [
            area(name, sheet, "#cfd6e0", _GUIDE, z=1.2, alpha=0.6),
            mark(name, b.origin[:, None], marker, 7),
        ]
    # A ball for joints that hold points together, such as `Spherical`; links for separate points.
    points = np.stack([x.origin for x in frames], axis=1)
    strokes = [mark(name, points[:, -1:], "o", 9, INK, "white")]
    if np.max(np.abs(points - points[:, :1])) > 1e-3 * size:
        strokes = [
            line(name, points, _GUIDE, 1.0, z=2.5, linestyle=":"),
            mark(name, points, "D", 5, "white"),
        ]
    return strokes


def _guide(name: str, a: Frames, to: np.ndarray, beyond: float) -> Stroke:
    """The axis of a, from its origin to a point and a little beyond both."""
    along = np.einsum("ti,ti->t", a.axis(2), to - a.origin)[:, None] * a.axis(2)
    direction = np.where(np.sum(along * a.axis(2), axis=1, keepdims=True) < 0, -1, 1) * a.axis(2)
    ends = between(a.origin - beyond * direction, a.origin + along + beyond * direction)
    return line(name, ends, _GUIDE, 1.6, z=1.1)


# --- forces -------------------------------------------------------------------------------------


def force(of: AbstractForceElement, frames: list[Frames], view: View, size: float) -> list[Stroke]:
    """The symbol of a force, by its type."""
    name = of.name
    if isinstance(of, CoordinateSpring) and isinstance(of.coordinate, TwistAngle):
        return [line(name, frames[0].at(spiral(0.25 * size, 0.65 * size, 2.5)), FORCE, 1.1, z=3.2)]
    if isinstance(of, CoordinateActuator) and isinstance(of.coordinate, Angle):
        arc = circle(0.6 * size)[:19]
        tip, back = arc[-1], arc[-3]
        wings = [back + 0.16 * size * s * arc[-3] / np.linalg.norm(arc[-3]) for s in (1, -1)]
        head = np.array([wings[0], tip, wings[1]])
        return [line(name, lines(frames[0].at(arc), frames[0].at(head)), FORCE, 1.6, z=3.2)]
    ends = [frame.origin for frame in frames]
    if isinstance(of, CoordinateSpring) and isinstance(of.coordinate, PathLength):
        return [line(name, _coil(ends[0], ends[-1], view, 0.28 * size), FORCE, 1.3, z=3.2)]
    apart = any(np.max(np.abs(x - ends[0])) > 1e-3 * size for x in ends)
    if not apart:
        return [mark(name, ends[0][:, None], "x", 6, FORCE, FORCE)]
    return [line(name, between(*ends), FORCE, 1.2, z=3.2, linestyle=(0, (4, 2)))]


def _coil(a: np.ndarray, b: np.ndarray, view: View, radius: float, turns: int = 6) -> np.ndarray:
    """A zigzag in flat pictures, a helix in the others."""
    d = b - a
    e1 = across(unit(d), np.broadcast_to(np.cross(view.right, view.up), d.shape))
    e2 = np.cross(unit(d), e1)
    if view.flat:
        s = np.concatenate([[0], np.arange(2 * turns) + 0.5, [2 * turns]]) / (2 * turns)
        x = np.concatenate([[0], np.resize([1.0, -1.0], 2 * turns), [0]])
        y = np.zeros_like(x)
    else:
        s = np.linspace(0, 1, 16 * turns + 1)
        x, y = np.sin(2 * np.pi * turns * s), 1 - np.cos(2 * np.pi * turns * s)
        y = y - 1
        x[[0, -1]] = y[[0, -1]] = 0
    s = np.concatenate([[0], 0.15 + 0.7 * s, [1]])
    x, y = (np.concatenate([[0], radius * c, [0]]) for c in (x, y))
    points = a[:, None] + s[:, None] * d[:, None] + x[:, None] * e1[:, None]
    return points + y[:, None] * e2[:, None]

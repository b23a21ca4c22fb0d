"""Glyphs of joints and forces, bodies and the ground: lines, areas and marks in the world."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..appearance import (
    FORCE,
    GROUND_EDGE,
    GROUND_FILL,
    GUIDE,
    INK,
    WorldFrames,
    across,
    are_apart,
    equal_box,
    helix,
    spiral,
    unit,
)
from ..body import Body
from ..element import AbstractElement
from ..glyphs import Glyph
from .polylines import View, between, circle, lines, prism

_AXES = ("#d0453b", "#3f9b52", "#3b6ea8")


@dataclass
class Stroke:
    """A polyline in all pictures, `(pictures, points, 3)`; an area if it has a `fill`; or marks.
    `style` is for matplotlib's lines. An area may have several polygons, with gaps between them.
    Limits are set around strokes that are `framed`."""

    points: np.ndarray
    style: dict[str, Any] = field(default_factory=dict)
    fill: str | None = None
    alpha: float = 1.0
    framed: bool = True

    @property
    def several(self) -> bool:
        """Whether there are gaps in any picture."""
        return bool(np.any(np.isnan(self.points)))


def line(points: np.ndarray, color=INK, width=1.4, z=3.0, **style: object) -> Stroke:
    ends = dict(solid_capstyle="round", solid_joinstyle="round")
    return Stroke(points, dict(color=color, linewidth=width, zorder=z) | ends | style)


def mark(
    points: np.ndarray, marker: object, size: int | float, color=INK, edge=INK, z=4.0
) -> Stroke:
    colors = dict(markerfacecolor=color, markeredgecolor=edge, markeredgewidth=1.2)
    return Stroke(points, dict(marker=marker, markersize=size, linestyle="none", zorder=z) | colors)


def area(points: np.ndarray, fill="white", edge=INK, z=4.0, alpha=1.0, width=1.2) -> Stroke:
    return Stroke(points, dict(color=edge, linewidth=width, zorder=z), fill, alpha)


def triad(frame: WorldFrames, size: float) -> list[Stroke]:
    """The axes x, y, z in red, green, blue."""
    ends = frame.at(0.7 * size * np.eye(3))
    return [
        line(between(frame.origin, ends[:, i]), color, 1.1, z=6) for i, color in enumerate(_AXES)
    ]


def body(
    of: Body,
    frame: WorldFrames,
    attachments: np.ndarray,
    color: str,
    size: float,
    skeleton: bool,
    marked: bool,
) -> list[Stroke]:
    """Draw bars from the centre of mass to attachments `(points, 3)` in the frame. A `skeleton`, a
    body without shapes, gets an area for three or more attachments, and the box with the same
    inertia for at most one. The centre of mass is `marked`."""
    center, ends = frame.at(of.inertia.center), frame.at(attachments)
    strokes = []
    if skeleton and len(attachments) >= 3:
        x = ends[0] - ends[0].mean(axis=0)
        _, _, (e1, e2, _) = np.linalg.svd(np.vstack([x, np.zeros((3, 3))]))
        around = np.argsort(np.arctan2(x @ e2, x @ e1))  # as in the first picture
        strokes.append(area(ends[:, around], color, color, z=1, alpha=0.18))
    if skeleton and len(attachments) <= 1:
        half, axes = equal_box(of, 0.15 * size)
        for face in prism(np.sqrt(2), 1.0, 4):
            corners = np.asarray(of.inertia.center) + (face * half) @ axes.T
            strokes.append(area(frame.at(corners), color, color, z=1, alpha=0.16))
    bars = [line(between(center[:, 0], x), color, 5.0, z=2) for x in np.moveaxis(ends, 1, 0)]
    if not marked:
        return [*strokes, *bars]
    marks = [mark(center, "o", 8, "white", z=5), mark(center, _quarters(), 8, INK, "none", z=5.1)]
    return [*strokes, *bars, *marks]


def _quarters() -> object:
    """The dark quarters of the symbol of a centre of mass."""
    from matplotlib.path import Path

    return Path.make_compound_path(Path.wedge(0, 90), Path.wedge(180, 270))


def ground(
    frame: WorldFrames, view: View, size: float, down: np.ndarray | None = None
) -> list[Stroke]:
    """Draw a hatched support under a frame on the ground."""
    down = view.down if down is None else down
    foot = frame.origin + 0.95 * size * down
    if view.flat:
        side = np.cross(view.depth, down)
        tip = 0.55 * size
        hatch = []
        for x in np.linspace(-1.3, 1.6, 7) * tip:
            top = foot + x * side
            hatch.append(between(top, top + 0.4 * size * down - 0.3 * size * side))
        bar = between(foot - 1.6 * tip * side, foot + 1.6 * tip * side)
        triangle = between(frame.origin, foot - tip * side, foot + tip * side)
        return [
            line(lines(*hatch), GROUND_EDGE, 0.9, z=0.5),
            area(triangle, "#eceef1", INK, z=1.5),
            line(bar, INK, 1.6, z=1.6),
        ]
    e1 = across(np.broadcast_to(down, foot.shape), np.broadcast_to(view.right, foot.shape))

    def spots(*places) -> list[np.ndarray]:
        return [foot + 0.8 * size * (a * e1 + b * np.cross(down, e1)) for a, b in places]

    square = [(1, 1), (-1, 1), (-1, -1), (1, -1)]
    legs = [between(frame.origin, x) for x in spots(*((a / 2, b / 2) for a, b in square))]
    # Diagonals of the square, all in one direction.
    cuts = [(-1, 2 * x + 1) if x < 0 else (2 * x - 1, 1) for x in np.linspace(-0.75, 0.75, 4)]
    hatch = [between(*spots((a, -b), (b, -a))) for a, b in cuts]
    return [
        area(between(*spots(*square)), GROUND_FILL, GROUND_EDGE, z=0.4, alpha=0.8),
        line(lines(*hatch), GROUND_EDGE, 0.7, z=0.5),
        line(lines(*legs), GROUND_EDGE, 1.2, z=0.6),
    ]


def arrows(tails: np.ndarray, vectors: np.ndarray, view: View, size: float) -> list[Stroke]:
    """Draw arrows from points `(pictures, n, 3)`, with heads up to a `size`, and dots at their
    tails. NaN stands for missing arrows."""
    along = unit(vectors)
    head = np.minimum(size, 0.4 * np.linalg.norm(vectors, axis=2, keepdims=True))
    side = across(np.nan_to_num(along), view.depth)
    tips = tails + vectors
    foot = tips - head * along

    def polylines(*points: np.ndarray) -> np.ndarray:
        """Join points, `(pictures, n, 3)` each, into one polyline after another."""
        gap = np.full_like(tips, np.nan)
        return np.stack([*points, gap], axis=2).reshape(len(tips), -1, 3)

    heads = polylines(foot + 0.4 * head * side, tips, foot - 0.4 * head * side)
    return [
        line(polylines(tails, foot), FORCE, 1.6, z=6.5),
        area(heads, FORCE, FORCE, z=6.5, width=0.3),
        mark(tails, "o", 4.5, FORCE, "white", z=6.6),
    ]


def element(
    of: AbstractElement, frames: list[WorldFrames], view: View, size: float
) -> list[Stroke]:
    """The glyphs of an element at its frames."""
    return [stroke for glyph in of.glyphs for stroke in _strokes(glyph, frames, view, size)]


def _strokes(glyph: Glyph, frames: list[WorldFrames], view: View, size: float) -> list[Stroke]:
    a, b, r = frames[0], frames[-1], 0.3 * size
    points, apart = between(*(x.origin for x in frames)), are_apart(frames, size)
    first, last, sleeve = points[:, :1], points[:, -1:], WorldFrames(b.origin, a.axes)
    match glyph:
        case Glyph.BALL if apart:
            tie = line(points, GUIDE, 1.0, z=2.5, linestyle=":")
            return [tie, mark(points, "D", 5, "white")]
        case Glyph.BALL:
            return [mark(last, "o", 9, INK, "white")]
        case Glyph.BEAD | Glyph.PAD:
            return [mark(last, "o" if glyph is Glyph.BEAD else "s", 7)]
        case Glyph.BLOCK:
            return [area(b.at(face), INK) for face in prism(0.9 * r, 0.64 * r, 4)]
        case Glyph.PIN:
            axis = line(b.at([[0, 0, -2 * r], [0, 0, 2 * r]]), INK, 1.6, z=3.9)
            return [axis, area(b.at(circle(r)))]
        case Glyph.CROSS:
            arm = 1.4 * r
            arms = a.at([[-arm, 0, 0], [arm, 0, 0]]), b.at([[0, -arm, 0], [0, arm, 0]])
            tips = mark(np.concatenate(arms, axis=1), "o", 4, "white")
            return [line(lines(*arms), INK, 2.0, z=4), tips]
        case Glyph.RAIL:
            reach = a.local(last - first)[:, 0, 2:]
            beyond = np.where(reach < 0, -2.8 * r, 2.8 * r)
            ends = (a.origin + x * a.axis(2) for x in (-beyond, reach + beyond))
            return [line(between(*ends), GUIDE, 1.6, z=1.1)]
        case Glyph.SLIDER | Glyph.SLEEVE:
            faces = prism(1.2 * r, 1.8 * r, 4 if glyph is Glyph.SLIDER else 12)
            return [area(sleeve.at(face), z=3.5) for face in faces]
        case Glyph.THREAD:
            phi = np.linspace(0, 6 * np.pi, 60)
            turns = np.stack([np.cos(phi), np.sin(phi), 1.5 * (phi / (3 * np.pi) - 1)], axis=1)
            return [line(sleeve.at(1.2 * r * turns), INK, 1.0, z=4)]
        case Glyph.SHEET:
            corners = 2.4 * r * np.array([[1, 1, 0], [-1, 1, 0], [-1, -1, 0], [1, -1, 0]])
            corners = a.local(last - first) * [1, 1, 0] + corners
            sheet = first + np.einsum("tij,tnj->tni", a.axes, corners)
            return [area(sheet, "#cfd6e0", GUIDE, z=1.2, alpha=0.6)]
        case Glyph.ROD:
            return [line(points, INK, 2.0, z=2.5), mark(points, "o", 6, "white")]
        case Glyph.COIL:
            return [line(_coil(a.origin, b.origin, view, 0.28 * size), FORCE, 1.3, z=3.2)]
        case Glyph.SPIRAL:
            return [line(a.at(spiral(0.25 * size, 0.65 * size, 2.5)), FORCE, 1.1, z=3.2)]
        case Glyph.TURN:
            arc = circle(0.6 * size)[:19]
            tip, back = arc[-1], arc[-3]
            wing = 0.16 * size * unit(back)
            head = a.at([back + wing, tip, back - wing])
            return [line(lines(a.at(arc), head), FORCE, 1.6, z=3.2)]
        case Glyph.PULL | Glyph.CUSHION if apart:
            return [line(points, FORCE, 1.2, z=3.2, linestyle=(0, (4, 2)))]
        case Glyph.PULL | Glyph.CUSHION:
            return [mark(first, "x", 6, FORCE, FORCE)]


def _coil(a: np.ndarray, b: np.ndarray, view: View, radius: float, turns: int = 6) -> np.ndarray:
    """A zigzag in flat pictures, a helix in the others."""
    template = helix(radius, turns)
    if view.flat:
        s = np.concatenate([[0], np.arange(2 * turns) + 0.5, [2 * turns]]) / (2 * turns)
        x = radius * np.concatenate([[0], np.resize([1.0, -1.0], 2 * turns), [0]])
        zigzag = np.stack([0.15 + 0.7 * s, x, 0 * x], axis=1)
        template = np.concatenate([template[:1], zigzag, template[-1:]])
    d = b - a
    e1 = across(unit(d), view.depth)
    axes = np.stack([d, e1, np.cross(unit(d), e1)], axis=1)
    return a[:, None] + np.einsum("nk,tki->tni", template, axes)

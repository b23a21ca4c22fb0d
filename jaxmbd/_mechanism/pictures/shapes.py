"""Drawings of contact shapes: solids with some of their edges, and the ground."""

import itertools
from collections.abc import Callable

import numpy as np

from ..appearance import GROUND_EDGE, GROUND_FILL, Placed, WorldFrames, farthest, hull, surface
from ..shapes import (
    AbstractShape,
    Box,
    Capsule,
    ConvexPoints,
    Cylinder,
    Disc,
    Ellipsoid,
    HalfSpace,
    HeightField,
    Sphere,
)
from .polylines import View, circle, lines, prism, split
from .symbols import Stroke, area, line

# Number of directions of outlines in flat pictures, a multiple of 8 so that boxes are exact.
_DIRECTIONS = 96
# Largest number of lines drawn along each axis of a height field.
_WIRES = 24

# --- solids -------------------------------------------------------------------------------------


def solid(of: Placed, color: str, view: View) -> list[Stroke]:
    """The outline, or in perspective the faces, and some edges that show rotation."""
    faces, edges = mesh_of(of.shape)
    if view.flat:
        strokes = [area(_outline(of, view), color, color, z=1, alpha=0.2)]
    else:
        # Without edges, which would fill round shapes with lines.
        strokes = [area(of.frame.at(split(*faces)), color, color, z=1, alpha=0.2, width=0.0)]
    if edges:
        strokes.append(line(of.frame.at(split(*edges)), color, 0.8, z=1.2, alpha=0.6))
    return strokes


def _outline(of: Placed, view: View) -> np.ndarray:
    """The farthest points in all directions of the picture, `(pictures, directions, 3)`."""
    phi = 2 * np.pi * np.arange(_DIRECTIONS) / _DIRECTIONS
    d = np.cos(phi)[:, None] * view.right + np.sin(phi)[:, None] * view.up
    points = farthest(of.shape, of.frame.local(d[None]))
    return of.frame.origin[:, None] + np.einsum("tij,tkj->tki", of.frame.axes, points)


Mesh = tuple[list[np.ndarray], list[np.ndarray]]


def mesh_of(shape: AbstractShape) -> Mesh:
    """Faces and edges in the frame of the shape, each `(corners, 3)`."""
    return _MESHES.get(type(shape), lambda s: (hull(s), []))(shape)


def _ball(axes: np.ndarray) -> Mesh:
    phi = np.linspace(-np.pi / 2, np.pi / 2, 13)
    ring = circle(1.0, sides=48)
    great = [ring, ring[:, [0, 2, 1]], ring[:, [2, 0, 1]]]
    faces = _revolved(np.stack([np.cos(phi), np.sin(phi)], axis=1))
    return [axes * face for face in faces], [axes * edge for edge in great]


def _box(half: np.ndarray) -> Mesh:
    faces = [face * half for face in prism(np.sqrt(2), 1.0, 4)]
    return faces, [_closed(faces[0]), _closed(faces[-1]), *(f[[0, 3]] for f in faces[1:-1])]


def _cylinder(radius: float, half: float) -> Mesh:
    ends = [edge for z in (-half, half) for edge in _wheel(radius, z)]
    along = [np.stack([low, low * [1, 1, -1]]) for low in circle(radius, half, 4)[:-1]]
    return prism(radius, half, 32), [*ends, *along]


def _capsule(radius: float, half: float) -> Mesh:
    phi = np.linspace(0, np.pi / 2, 7)
    cap = np.stack([radius * np.cos(phi), half + radius * np.sin(phi)], axis=1)
    profile = np.concatenate([cap[::-1] * [1, -1], cap])
    over = np.concatenate([profile, profile[::-1] * [-1, 1]])
    o = np.zeros(len(over))
    meridians = [np.stack([over[:, 0], o, over[:, 1]], 1), np.stack([o, *over.T], 1)]
    return _revolved(profile), [circle(radius, -half), circle(radius, half), *meridians]


# Those of other shapes are their hulls, without edges.
_MESHES: dict[type, Callable] = {
    Sphere: lambda s: _ball(np.asarray(s.radius)),
    Ellipsoid: lambda s: _ball(np.asarray(s.semiaxes)),
    Box: lambda s: _box(np.asarray(s.size) / 2),
    Cylinder: lambda s: _cylinder(float(s.radius), float(s.length) / 2),
    Disc: lambda s: ([circle(float(s.radius), 0.0, 48)], _wheel(float(s.radius), 0.0)),
    Capsule: lambda s: _capsule(float(s.radius), float(s.length) / 2),
    ConvexPoints: lambda s: (hull(s), [_closed(face) for face in hull(s)]),
}


def _closed(points: np.ndarray) -> np.ndarray:
    return np.concatenate([points, points[:1]])


def _wheel(radius: float, height: float) -> list[np.ndarray]:
    """A circle and two diameters."""
    ring = circle(radius, height, 48)
    return [ring, ring[[0, 24]], ring[[12, 36]]]


def _revolved(profile: np.ndarray, sides: int = 24) -> list[np.ndarray]:
    """Faces of the surface of revolution of points (r, z) about the z axis."""
    rings = [circle(r, z, sides) for r, z in profile]
    return [
        np.array([low[i], low[i + 1], high[i + 1], high[i]])
        for low, high in itertools.pairwise(rings)
        for i in range(sides)
    ]


# --- ground -------------------------------------------------------------------------------------


def grounds(places: list[Placed], cloud: np.ndarray, view: View) -> list[Stroke]:
    """Draw half-spaces and height fields, under and around `(pictures, points, 3)` of the rest."""
    # Planes extend to each other where they confine the points.
    feet = [_foot(place.frame, cloud) for place in places if isinstance(place.shape, HalfSpace)]
    cloud = np.concatenate([cloud, *feet], axis=1)
    size = extent(cloud)
    found = []
    for place in places:
        if isinstance(place.shape, HeightField):
            found += _height_field(place.frame, surface(place.shape), size, view)
        else:
            found += _half_space(place.frame, cloud, size, view)
    return found


def extent(points: np.ndarray) -> float:
    """Longest side of the box around the points, or 1."""
    points = points.reshape(-1, 3)
    size = np.max(np.nanmax(points, axis=0) - np.nanmin(points, axis=0))
    return size if size > 0 else 1.0


def _foot(frame: WorldFrames, cloud: np.ndarray) -> np.ndarray:
    normal = frame.axis(2)[:, None]
    height = np.sum((cloud - frame.origin[:, None]) * normal, axis=2, keepdims=True)
    return cloud - height * normal


def _half_space(frame: WorldFrames, cloud: np.ndarray, size: float, view: View) -> list[Stroke]:
    up, from_it = frame.axis(2), cloud - frame.origin[:, None]
    if not view.flat or np.max(np.abs(up @ view.depth)) >= 1e-3:
        low, high = _widened(frame.local(from_it)[..., :2], size)
        corners = [(low[0], low[1]), (high[0], low[1]), (high[0], high[1]), (low[0], high[1])]
        sheet = frame.at([(x, y, 0.0) for x, y in corners])
        return [area(sheet, GROUND_FILL, GROUND_EDGE, z=0.4, alpha=0.4)]
    along = np.cross(view.depth, up)  # to the left where the normal is up
    along = along / np.linalg.norm(along, axis=1, keepdims=True)
    (low,), (high,) = _widened(np.einsum("tni,ti->tn", from_it, along)[..., None], size)
    tick = 0.022 * size
    count = max(int(np.ceil((high - low) / (1.3 * tick))), 2)
    at = low + (high - low) * (np.arange(count) + 0.5) / count

    def seen(x: np.ndarray, y: float) -> np.ndarray:
        """World positions of points at x along the line and y above it."""
        return frame.origin[:, None] + x[None, :, None] * along[:, None] + y * up[:, None]

    ticks = np.stack([seen(at, 0.0), seen(at + 0.75 * tick, -tick)], axis=2)
    return [
        line(lines(*np.moveaxis(ticks, 1, 0)), GROUND_EDGE, 0.9, z=0.5),
        line(seen(np.array([low, high]), 0.0), GROUND_EDGE, 1.6, z=0.6),
    ]


def _widened(points: np.ndarray, size: float) -> tuple[np.ndarray, np.ndarray]:
    """Limits beyond all points, with a minimal distance between them."""
    points = points.reshape(-1, points.shape[-1])
    low, high = np.nanmin(points, axis=0), np.nanmax(points, axis=0)
    half = np.maximum((high - low) / 2 + 0.1 * size, 0.18 * size)
    return (low + high) / 2 - half, (low + high) / 2 + half


def _height_field(frame: WorldFrames, field: np.ndarray, size: float, view: View) -> list[Stroke]:
    rows, columns = (np.linspace(0, n - 1, min(n, _WIRES)).astype(int) for n in field.shape[:2])
    wires = [*field[rows], *np.moveaxis(field, 1, 0)[columns]]
    seen = np.abs(frame.axes[0].T @ view.depth)  # alignment of each axis with the line of sight
    if view.flat and seen[2] < 1e-3 and max(seen[:2]) > 1 - 1e-3:
        # Seen along an axis of the grid: the highest line, with ground below it.
        across, heights = int(np.argmax(seen[:2])), field[..., 2]
        top = field.max(axis=across)
        bottom = np.full(len(top), heights.min() - 0.06 * size)
        ground = np.concatenate([top, np.column_stack([top[::-1, :2], bottom])])
        top[:, across] = ground[:, across] = 0.0
        found = [
            area(frame.at(ground), GROUND_FILL, GROUND_FILL, z=0.4),
            line(frame.at(top), GROUND_EDGE, 1.6, z=0.6),
        ]
        if np.max(np.ptp(heights, axis=across)) > 1e-9 * size:
            others = frame.at(split(*(w for w in wires if np.ptp(w[:, across]) == 0)))
            found.append(line(others, GROUND_EDGE, 0.5, z=0.5, alpha=0.4))
        return found
    cells = [
        np.array([field[i, j], field[k, j], field[k, m], field[i, m]])
        for i, k in itertools.pairwise(rows)
        for j, m in itertools.pairwise(columns)
    ]
    sheet = area(frame.at(split(*cells)), GROUND_FILL, GROUND_FILL, z=0.4, alpha=0.7, width=0.0)
    return [sheet, line(frame.at(split(*wires)), GROUND_EDGE, 0.6, z=0.5, alpha=0.6)]

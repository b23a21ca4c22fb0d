"""Drawings of contact shapes: solids with some of their edges, and the ground."""

import itertools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..contacts import Contact
from ..mechanism import Mechanism
from ..shapes import (
    AbstractConvexShape,
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
from .geometry import Frames, View, circle, element_frames, lines, prism, rotated, split
from .symbols import GROUND_EDGE, GROUND_FILL, Stroke, area, line

# Number of directions of outlines in flat pictures, a multiple of 8 so that boxes are exact.
_DIRECTIONS = 96
# Largest number of lines drawn along each axis of a height field.
_WIRES = 24


class Placed(NamedTuple):
    """A shape on a body, and its frame in all pictures."""

    body: str
    shape: AbstractShape
    frame: Frames


def placed_shapes(mechanism: Mechanism, bodies: dict[str, Frames]) -> list[Placed]:
    """The shapes of all contacts, without repetition."""
    found = {}
    for contact in mechanism.contacts:
        if not isinstance(contact, Contact):
            continue
        ends = zip(
            contact.bodies,
            (contact.shape_a, contact.shape_b),
            contact.frames,
            element_frames(contact, bodies),
            strict=True,
        )
        for name, shape, pose, frame in ends:
            numbers = tuple(np.asarray(x).tobytes() for x in jax.tree.leaves((shape, pose)))
            found.setdefault((name, type(shape), numbers), Placed(name, shape, frame))
    return list(found.values())


def is_ground(shape: AbstractShape) -> bool:
    """Whether the shape is unbounded, so that its picture depends on the others."""
    return isinstance(shape, HalfSpace | HeightField)


# --- solids -------------------------------------------------------------------------------------


def solid(of: Placed, color: str, view: View) -> list[Stroke]:
    """The outline, or in perspective the faces, and some edges that show rotation."""
    faces, edges = mesh_of(of.shape)
    if view.flat:
        strokes = [area(of.body, _outline(of, view), color, color, z=1, alpha=0.2)]
    else:
        # Without edges, which would fill round shapes with lines.
        look = dict(color=color, linewidth=0.0, zorder=1)
        strokes = [Stroke(of.frame.at(split(*faces)), of.body, look, color, 0.2)]
    if edges:
        strokes.append(line(of.body, of.frame.at(split(*edges)), color, 0.8, z=1.2, alpha=0.6))
    return strokes


def _outline(of: Placed, view: View) -> np.ndarray:
    """The farthest points in all directions of the picture, `(pictures, directions, 3)`."""
    phi = 2 * np.pi * np.arange(_DIRECTIONS) / _DIRECTIONS
    d = np.cos(phi)[:, None] * view.right + np.sin(phi)[:, None] * view.up
    d = np.einsum("tji,kj->tki", of.frame.axes, d)
    shape = of.shape
    if isinstance(shape, AbstractConvexShape):
        points = _support(shape, d) + float(shape.margin) * d
    else:
        points = _each(_feet, shape, d)
    return of.frame.origin[:, None] + np.einsum("tij,tkj->tki", of.frame.axes, points)


def _support(shape: AbstractConvexShape, d: np.ndarray) -> np.ndarray:
    return _each(_farthest, shape, d)


def _each(fn: Any, shape: AbstractShape, d: np.ndarray) -> np.ndarray:
    dtype = jnp.result_type(*jax.tree.leaves(shape))
    table = fn(shape, d.reshape(-1, 3).astype(dtype))
    return np.asarray(table, float).reshape(d.shape)


@eqx.filter_jit
def _farthest(shape: AbstractConvexShape, d: Any) -> Any:
    return jax.vmap(shape.support)(d)


@eqx.filter_jit
def _feet(shape: Any, d: Any) -> Any:
    return jax.vmap(lambda d: shape.feet(d)[0])(d)


def mesh_of(shape: AbstractShape) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Faces and edges in the frame of the shape, each `(corners, 3)`."""
    if isinstance(shape, Sphere | Ellipsoid):
        axes = np.asarray(shape.semi_axes if isinstance(shape, Ellipsoid) else shape.radius)
        phi = np.linspace(-np.pi / 2, np.pi / 2, 13)
        faces = _revolved(np.stack([np.cos(phi), np.sin(phi)], axis=1))
        ring = circle(1.0, sides=48)
        great = [ring, ring[:, [0, 2, 1]], ring[:, [2, 0, 1]]]
        return [axes * face for face in faces], [axes * edge for edge in great]
    if isinstance(shape, Box):
        faces = [face * np.asarray(shape.half_sizes) for face in prism(np.sqrt(2), 1.0, 4)]
        return faces, [_closed(faces[0]), _closed(faces[-1]), *(f[[0, 3]] for f in faces[1:-1])]
    if isinstance(shape, Cylinder):
        radius, half = float(shape.radius), float(shape.half_length)
        ends = [edge for z in (-half, half) for edge in _wheel(radius, z)]
        return prism(radius, half, 32), [*ends, *_along(radius, half)]
    if isinstance(shape, Disc):
        wheel = _wheel(float(shape.radius), 0.0)
        return wheel[:1], wheel
    if isinstance(shape, Capsule):
        radius, half = float(shape.radius), float(shape.half_length)
        phi = np.linspace(0, np.pi / 2, 7)
        cap = np.stack([radius * np.cos(phi), half + radius * np.sin(phi)], axis=1)
        profile = np.concatenate([cap[::-1] * [1, -1], cap])
        over = np.concatenate([profile, profile[::-1] * [-1, 1]])
        o = np.zeros(len(over))
        meridians = [np.stack([over[:, 0], o, over[:, 1]], 1), np.stack([o, *over.T], 1)]
        return _revolved(profile), [circle(radius, -half), circle(radius, half), *meridians]
    if isinstance(shape, ConvexPoints):
        faces = _hull(np.asarray(shape.points, float))
        return faces, [_closed(face) for face in faces]
    if isinstance(shape, AbstractConvexShape):
        d = np.random.default_rng(0).normal(size=(300, 3))
        d /= np.linalg.norm(d, axis=1, keepdims=True)
        return _hull(_support(shape, d) + float(shape.margin) * d), []
    raise ValueError(f"There is no picture of the shape {type(shape).__name__}.")


def _closed(points: np.ndarray) -> np.ndarray:
    return np.concatenate([points, points[:1]])


def _wheel(radius: float, height: float) -> list[np.ndarray]:
    """A circle and two diameters."""
    ring = circle(radius, height, 48)
    return [ring, ring[[0, 24]], ring[[12, 36]]]


def _along(radius: float, half: float) -> list[np.ndarray]:
    return [np.stack([low, low * [1, 1, -1]]) for low in circle(radius, half, 4)[:-1]]


def _revolved(profile: np.ndarray, sides: int = 24) -> list[np.ndarray]:
    """Faces of the surface of revolution of points (r, z) about the z axis."""
    phi = np.linspace(0, 2 * np.pi, sides + 1)
    rings = [np.stack([r * np.cos(phi), r * np.sin(phi), 0 * phi + z], 1) for r, z in profile]
    return [
        np.array([low[i], low[i + 1], high[i + 1], high[i]])
        for low, high in itertools.pairwise(rings)
        for i in range(sides)
    ]


def _hull(points: np.ndarray) -> list[np.ndarray]:
    """Faces of the convex hull, also of points in a plane or on a line."""
    from scipy.spatial import ConvexHull  # a dependency of JAX

    middle = points.mean(axis=0)
    _, spread, axes = np.linalg.svd(points - middle, full_matrices=False)
    rank = int(np.sum(spread > 1e-9 * max(spread[0], 1e-300)))
    inside = (points - middle) @ axes.T
    if rank <= 1:
        return [points[[np.argmin(inside[:, 0]), np.argmax(inside[:, 0])]]]
    if rank == 2:
        return [points[ConvexHull(inside[:, :2]).vertices]]
    hull = ConvexHull(points)
    # Triangles in one plane form one face.
    faces: dict[tuple, set] = {}
    for plane, corners in zip(hull.equations, hull.simplices, strict=True):
        faces.setdefault(tuple(np.round(plane / [1, 1, 1, spread[0]], 6)), set()).update(corners)
    return [_around(points[sorted(corners)], np.array(key[:3])) for key, corners in faces.items()]


def _around(points: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """Corners of a convex face in order."""
    x = points - points.mean(axis=0)
    e1 = x[0] / np.linalg.norm(x[0])
    return points[np.argsort(np.arctan2(x @ np.cross(normal, e1), x @ e1))]


# --- ground -------------------------------------------------------------------------------------


def grounds(places: list[Placed], cloud: np.ndarray, view: View) -> list[Stroke]:
    """Draw half-spaces and height fields, under and around `(pictures, points, 3)` of the rest."""
    planes = [place.frame for place in places if isinstance(place.shape, HalfSpace)]
    # Planes extend to each other where they confine the points.
    feet = [_foot(frame, cloud) for frame in planes]
    cloud = np.concatenate([cloud, *feet], axis=1)
    size = extent(cloud)
    found = []
    for place in places:
        if isinstance(place.shape, HeightField):
            found += _height_field(place, place.shape, size, view)
        else:
            found += _half_space(place, cloud, size, view)
    return found


def extent(points: np.ndarray) -> float:
    """Longest side of the box around the points, or 1."""
    points = points.reshape(-1, 3)
    size = np.max(np.nanmax(points, axis=0) - np.nanmin(points, axis=0))
    return size if size > 0 else 1.0


def _foot(frame: Frames, cloud: np.ndarray) -> np.ndarray:
    normal = frame.axis(2)[:, None]
    height = np.sum((cloud - frame.origin[:, None]) * normal, axis=2, keepdims=True)
    return cloud - height * normal


def _half_space(place: Placed, cloud: np.ndarray, size: float, view: View) -> list[Stroke]:
    frame = place.frame
    local = rotated(frame, cloud - frame.origin[:, None])
    depth = np.cross(view.right, view.up)
    edge_on = view.flat and np.max(np.abs(frame.axis(2) @ depth)) < 1e-3
    if not edge_on:
        low, high = _widened(local[..., :2], size)
        corners = [(low[0], low[1]), (high[0], low[1]), (high[0], high[1]), (low[0], high[1])]
        sheet = frame.at([(x, y, 0.0) for x, y in corners])
        return [area(place.body, sheet, GROUND_FILL, GROUND_EDGE, z=0.4, alpha=0.4)]
    along = np.cross(depth, frame.axis(2))  # to the left where the normal is up
    along = along / np.linalg.norm(along, axis=1, keepdims=True)
    reach = np.einsum("tni,ti->tn", cloud - frame.origin[:, None], along)[..., None]
    (low,), (high,) = _widened(reach, size)
    tick = 0.022 * size
    count = max(int(np.ceil((high - low) / (1.3 * tick))), 2)
    at = low + (high - low) * (np.arange(count) + 0.5) / count

    def seen(x, y):
        """World positions of points at x along the line and y above it."""
        x, y = np.broadcast_arrays(np.asarray(x, float), y)
        plane = x[None, :, None] * along[:, None] + y[None, :, None] * frame.axis(2)[:, None]
        return frame.origin[:, None] + plane

    ticks = np.stack([seen(at, 0.0), seen(at + 0.75 * tick, -tick)], axis=2)
    hatch = lines(*np.moveaxis(ticks, 1, 0))
    return [
        line(place.body, hatch, GROUND_EDGE, 0.9, z=0.5),
        line(place.body, seen([low, high], 0.0), GROUND_EDGE, 1.6, z=0.6),
    ]


def _widened(points: np.ndarray, size: float) -> tuple[np.ndarray, np.ndarray]:
    """Limits beyond all points, with a minimal distance between them."""
    points = points.reshape(-1, points.shape[-1])
    low, high = np.nanmin(points, axis=0), np.nanmax(points, axis=0)
    half = np.maximum((high - low) / 2 + 0.1 * size, 0.18 * size)
    return (low + high) / 2 - half, (low + high) / 2 + half


def _height_field(place: Placed, of: HeightField, size: float, view: View) -> list[Stroke]:
    heights, spacing = np.asarray(of.heights, float), np.asarray(of.spacing, float)
    x, y = (s * (np.arange(n) - (n - 1) / 2) for s, n in zip(spacing, heights.shape, strict=True))
    surface = np.stack([*np.meshgrid(x, y, indexing="ij"), heights], axis=-1)
    rows, columns = (np.linspace(0, n - 1, min(n, _WIRES)).astype(int) for n in heights.shape)
    wires = [*surface[rows], *np.moveaxis(surface, 1, 0)[columns]]
    frame, depth = place.frame, np.cross(view.right, view.up)
    seen = np.abs(frame.axes[0].T @ depth)  # alignment of each axis with the line of sight
    if view.flat and seen[2] < 1e-3 and max(seen[:2]) > 1 - 1e-3:
        # Seen along an axis of the grid: the highest line, with ground below it.
        across = int(np.argmax(seen[:2]))
        top = surface.max(axis=across)
        bottom = np.full(len(top), heights.min() - 0.06 * size)
        ground = np.concatenate([top, np.column_stack([top[::-1, :2], bottom])])
        top[:, across] = ground[:, across] = 0.0
        found = [
            area(place.body, frame.at(ground), GROUND_FILL, GROUND_FILL, z=0.4),
            line(place.body, frame.at(top), GROUND_EDGE, 1.6, z=0.6),
        ]
        others = [w for w in wires if np.ptp(w[:, across]) == 0]
        if np.max(np.ptp(heights, axis=across)) > 1e-9 * size:
            wire = frame.at(split(*others))
            found.append(line(place.body, wire, GROUND_EDGE, 0.5, z=0.5, alpha=0.4))
        return found
    cells = [
        np.array([surface[i, j], surface[k, j], surface[k, m], surface[i, m]])
        for i, k in itertools.pairwise(rows)
        for j, m in itertools.pairwise(columns)
    ]
    look = dict(color=GROUND_FILL, linewidth=0.0, zorder=0.4)
    wire = line(place.body, frame.at(split(*wires)), GROUND_EDGE, 0.6, z=0.5, alpha=0.6)
    return [Stroke(frame.at(split(*cells)), place.body, look, GROUND_FILL, 0.7), wire]

"""The solids by which bodies, joints, springs and supports are shown."""

import dataclasses
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..mechanism import (
    GROUND,
    AbstractConstraint,
    AbstractElement,
    AbstractForceElement,
    Angle,
    Body,
    Box,
    Bushing,
    Capsule,
    CoordinateActuator,
    CoordinateSpring,
    Cylinder,
    Cylindrical,
    Disc,
    Distance,
    Ellipsoid,
    Fixed,
    HalfSpace,
    HeightField,
    Mechanism,
    PathLength,
    Planar,
    PointOnLine,
    PointOnPlane,
    Prismatic,
    Revolute,
    Screw,
    Sphere,
    Spherical,
    TwistAngle,
    Universal,
)
from ..mechanism.pictures import (
    BODIES,
    FORCE,
    GROUND_EDGE,
    GROUND_FILL,
    INK,
    Frames,
    element_frames,
    equal_box,
    matrices,
    mesh_of,
    placed_shapes,
    spiral,
    unit,
)

Color = tuple[int, int, int]


@dataclass(frozen=True)
class Solid:
    """A shape fixed to a body.

    - `body`: its name, or "ground". `whose`: the name of the element that it shows.
    - `kind`: "box", "sphere", "ellipsoid", "cylinder", "capsule", "plane" or "mesh".
    - `size`: half edges; radius; semi-axes; radius and half length along z; nothing [m].
    - `unbounded`: whether it is the surface of the ground.
    - `position` [m] and `orientation` (w, x, y, z) of its frame in the frame of the body.
    """

    body: str
    whose: str
    kind: str
    size: tuple[float, ...]
    color: Color
    position: np.ndarray = field(default_factory=lambda: np.zeros(3))
    orientation: np.ndarray = field(default_factory=lambda: np.array([1.0, 0.0, 0.0, 0.0]))
    opacity: float = 1.0
    vertices: np.ndarray | None = None
    faces: np.ndarray | None = None
    unbounded: bool = False

    def shrunk(self, factor: float) -> "Solid":
        """The same about its origin, smaller by a factor."""
        vertices = None if self.vertices is None else factor * self.vertices
        size = tuple(factor * x for x in self.size)
        return dataclasses.replace(self, size=size, vertices=vertices)

    def corners(self) -> np.ndarray:
        """The corners of a box around it, along its axes, in the frame of the body, shape `(8, 3)`
        [m]."""
        if self.vertices is not None and len(self.vertices):
            low, high = self.vertices.min(axis=0), self.vertices.max(axis=0)
        else:
            high = np.zeros(3)
            if self.kind == "sphere":
                high = np.full(3, self.size[0])
            elif self.kind in ("cylinder", "capsule"):
                radius, half = self.size
                high = np.array([radius, radius, half + radius * (self.kind == "capsule")])
            elif len(self.size) == 3:
                high = np.array(self.size)
            low = -high
        ends = np.stack([low, high])
        local = np.stack(np.meshgrid(*ends.T), axis=-1).reshape(-1, 3)
        return self.position + local @ matrices(self.orientation[None])[0].T


def rgb(text: str) -> Color:
    """The numbers of a colour "#rrggbb"."""
    r, g, b = (int(text[i : i + 2], 16) for i in (1, 3, 5))
    return r, g, b


def body_colors(mechanism: Mechanism) -> dict[str, Color]:
    """Colours of the bodies, those of `mbd.plots.draw`."""
    colors = {b.name: rgb(BODIES[i % len(BODIES)]) for i, b in enumerate(mechanism.bodies)}
    return colors | {GROUND: rgb(GROUND_EDGE)}


def body_solids(mechanism: Mechanism, visuals: Iterable[Any], size: float) -> list[Solid]:
    """The shapes of all bodies: their `visuals`, else their contact shapes, else bars from the
    centre of mass to the joints, or the box with the same inertia. `size` is that of symbols."""
    colors = body_colors(mechanism)
    found = _of_visuals(tuple(visuals), colors)
    drawn = {solid.body for solid in found}
    floor = any(solid.unbounded for solid in found)
    for solid in _contact_solids(mechanism, colors):
        if solid.body not in drawn or (solid.unbounded and not floor):
            found.append(solid)
    drawn |= {solid.body for solid in found}
    for body in mechanism.bodies:
        if body.name not in drawn:
            found += _skeleton(mechanism, body, colors[body.name], size)
    return found


def _of_visuals(visuals: tuple, colors: dict[str, Color]) -> list[Solid]:
    """The shapes of a file: those of groups 0 to 2, and all of bodies that have no others."""
    kinds = ("sphere", "capsule", "cylinder", "ellipsoid", "box", "plane", "mesh")
    for x in visuals:
        if x.body not in colors or x.kind not in kinds:
            raise ValueError(
                f"Argument `visuals` must have bodies of the mechanism and kinds among {kinds}, "
                f'but has a {x.kind} on "{x.body}".'
            )
    shown = {x.body for x in visuals if x.group <= 2}
    return [
        Solid(
            x.body,
            x.body,
            x.kind,
            tuple(float(s) for s in x.size),
            colors[x.body] if _is_unpainted(x) else _byte_color(x.rgba),
            np.asarray(x.position, float),
            np.asarray(x.orientation, float),
            float(x.rgba[3]),
            x.vertices,
            x.faces,
            x.kind == "plane",
        )
        for x in visuals
        if (x.group <= 2 or x.body not in shown) and x.rgba[3] > 0
    ]


def _is_unpainted(visual: Any) -> bool:
    """Whether it has the grey of shapes without a colour."""
    return visual.kind != "plane" and np.allclose(visual.rgba, (0.5, 0.5, 0.5, 1.0))


def _byte_color(rgba: Any) -> Color:
    r, g, b = (round(255 * min(max(float(x), 0.0), 1.0)) for x in rgba[:3])
    return r, g, b


def turned(axes: np.ndarray) -> np.ndarray:
    """Quaternion (w, x, y, z) of a rotation matrix."""
    from scipy.spatial.transform import Rotation

    return Rotation.from_matrix(axes).as_quat()[[3, 0, 1, 2]]


def bar(body: str, whose: str, a: np.ndarray, b: np.ndarray, radius: float, color: Color) -> Solid:
    """A cylinder between two points of a body."""
    d = b - a
    length = float(np.linalg.norm(d))
    z = d / length
    x = np.cross(z, np.eye(3)[int(np.argmin(np.abs(z)))])
    x /= np.linalg.norm(x)
    axes = np.stack([x, np.cross(z, x), z], axis=1)
    return Solid(body, whose, "cylinder", (radius, length / 2), color, (a + b) / 2, turned(axes))


def _skeleton(mechanism: Mechanism, body: Body, color: Color, size: float) -> list[Solid]:
    center = np.asarray(body.inertia.center, float)
    points: list[np.ndarray] = []
    for element in (*mechanism.joints, *mechanism.forces):
        for name, pose in zip(element.bodies, element.frames, strict=True):
            point = np.asarray(pose.position, float)
            if name == body.name and all(np.linalg.norm(point - p) > 1e-3 * size for p in points):
                points.append(point)
    bars = [
        bar(body.name, body.name, center, point, 0.14 * size, color)
        for point in points
        if np.linalg.norm(point - center) > 1e-3 * size
    ]
    if len(points) > 1 and bars:
        return [*bars, Solid(body.name, body.name, "sphere", (0.2 * size,), color, center)]
    half, axes = equal_box(body, 0.3 * size)
    x, y, z = (float(h) for h in half)
    return [Solid(body.name, body.name, "box", (x, y, z), color, center, turned(axes))]


def _contact_solids(mechanism: Mechanism, colors: dict[str, Color]) -> list[Solid]:
    still = Frames(np.zeros((1, 3)), np.eye(3)[None])
    local = dict.fromkeys(colors, still)
    found = []
    for place in placed_shapes(mechanism, local):
        shape: Any = place.shape
        kind, size, vertices, faces = "mesh", (), None, None
        if isinstance(shape, Sphere):
            kind, size = "sphere", (shape.radius,)
        elif isinstance(shape, Ellipsoid):
            kind, size = "ellipsoid", np.asarray(shape.semi_axes)
        elif isinstance(shape, Box):
            kind, size = "box", np.asarray(shape.half_sizes)
        elif isinstance(shape, Cylinder | Capsule):
            kind = "cylinder" if isinstance(shape, Cylinder) else "capsule"
            size = (shape.radius, shape.half_length)
        elif isinstance(shape, Disc):
            kind, size = "cylinder", (shape.radius, 0.02 * shape.radius)
        elif isinstance(shape, HalfSpace):
            kind = "plane"
        elif isinstance(shape, HeightField):
            vertices, faces = _surface(shape)
        else:
            vertices, faces = _triangles(mesh_of(shape)[0])
        unbounded = isinstance(shape, HalfSpace | HeightField)
        color = rgb(GROUND_FILL) if unbounded else colors[place.body]
        origin, axes = place.frame.origin[0], place.frame.axes[0]
        size = tuple(float(x) for x in size)
        given: Any = dict(vertices=vertices, faces=faces, unbounded=unbounded)
        found.append(
            Solid(place.body, place.body, kind, size, color, origin, turned(axes), **given)
        )
    return found


def _triangles(faces: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and triangles of convex faces, each `(corners, 3)`."""
    starts = np.cumsum([0, *(len(face) for face in faces)])
    fans = [
        start + np.array([[0, i, i + 1] for i in range(1, len(face) - 1)])
        for start, face in zip(starts, faces, strict=False)
        if len(face) > 2
    ]
    return np.concatenate(faces), np.concatenate(fans)


def _surface(of: HeightField) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and triangles of a height field, which divides its cells from the corner of least x
    and y."""
    heights, spacing = np.asarray(of.heights, float), np.asarray(of.spacing, float)
    nx, ny = heights.shape
    x, y = (s * (np.arange(n) - (n - 1) / 2) for s, n in zip(spacing, (nx, ny), strict=True))
    vertices = np.stack([*np.meshgrid(x, y, indexing="ij"), heights], axis=-1).reshape(-1, 3)
    i = (np.arange(nx - 1)[:, None] * ny + np.arange(ny - 1)).ravel()
    near, far = [i, i + ny, i + ny + 1], [i, i + ny + 1, i + 1]
    return vertices, np.concatenate([np.stack(near, axis=1), np.stack(far, axis=1)])


# Solids and stretching lines that show joints, springs and supports.


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
    if isinstance(of, CoordinateSpring) and isinstance(of.coordinate, PathLength):
        return [_link(of, _coil(0.28 * size), _FORCE, 0.08 * size)]
    if isinstance(of, CoordinateSpring) and isinstance(of.coordinate, TwistAngle):
        turns = spiral(0.35 * size, 0.7 * size, 2.5)[::3]
        at, axes = np.asarray(of.frames[0].position, float), _axes(of.frames[0])
        points = at + turns @ axes.T
        pieces = itertools.pairwise(points)
        return [bar(of.bodies[0], of.name, a, b, 0.05 * size, _FORCE) for a, b in pieces]
    if isinstance(of, CoordinateActuator) and isinstance(of.coordinate, Angle):
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

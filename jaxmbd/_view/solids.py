"""The shapes by which bodies are shown."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..mechanism import (
    GROUND,
    Body,
    Box,
    Capsule,
    Cylinder,
    Disc,
    Ellipsoid,
    HalfSpace,
    HeightField,
    Mechanism,
    Sphere,
)
from ..mechanism.pictures import (
    BODIES,
    GROUND_EDGE,
    GROUND_FILL,
    Frames,
    equal_box,
    matrices,
    mesh_of,
    placed_shapes,
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

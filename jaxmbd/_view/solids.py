"""The solids and lines by which bodies, joints, springs and supports are shown."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import ArrayLike

from .._mechanism import (
    GROUND,
    AbstractElement,
    Body,
    Box,
    Capsule,
    Cylinder,
    Disc,
    Ellipsoid,
    Glyph,
    HalfSpace,
    HeightField,
    Mechanism,
    Pose,
    Sphere,
)
from .._mechanism.appearance import (
    FORCE,
    GROUND_EDGE,
    GROUND_FILL,
    GUIDE,
    INK,
    Visual,
    WorldFrames,
    across,
    are_apart,
    attachments,
    body_colors,
    element_frames,
    equal_box,
    helix,
    hull,
    matrices,
    placed_shapes,
    spiral,
    surface,
)

Color = tuple[float, float, float, float]


def solid(
    body: str,
    name: str,
    kind: str,
    size: Sequence[ArrayLike],
    color: Color,
    position: ArrayLike,
    orientation: ArrayLike,
) -> Visual:
    """A shape of another kind than "mesh" on a body, which shows the element `name`."""
    sizes = tuple(float(x) for part in size for x in np.ravel(np.asarray(part, float)))
    place = np.asarray(position, float), np.asarray(orientation, float)
    return Visual(name, body, kind, sizes, None, None, *place, color, 0)


def is_surface(of: Visual) -> bool:
    """Whether it is a ground without an end."""
    return of.kind in ("plane", "field")


def shrunk(of: Visual, factor: float) -> Visual:
    """The same about its origin, smaller by a factor."""
    vertices = None if of.vertices is None else factor * of.vertices
    return of._replace(size=tuple(factor * x for x in of.size), vertices=vertices)


def corners(of: Visual) -> np.ndarray:
    """The corners of a box around it, along its axes, in the frame of the body, shape `(8, 3)`
    [m]."""
    high = np.zeros(3)
    if of.kind in ("box", "ellipsoid", "sphere"):
        high[:] = of.size
    elif of.kind in ("cylinder", "capsule"):
        radius, half = of.size
        high[:] = radius, radius, half + radius * (of.kind == "capsule")
    ends = np.stack([-high, high])
    if of.vertices is not None and len(of.vertices):
        ends = np.stack([of.vertices.min(axis=0), of.vertices.max(axis=0)])
    local = np.stack(np.meshgrid(*ends.T), axis=-1).reshape(-1, 3)
    return of.position + local @ matrices(of.orientation).T


class Link(NamedTuple):
    """A line that stretches between a point of one body and a point of another.

    - `name`: of the element that it shows.
    - `ends`: for each of the two the name of the body, and the point in its frame [m].
    - `template`: points `(n, 3)`: the fraction of the way, and two offsets across it [m].
    """

    name: str
    ends: tuple[tuple[str, np.ndarray], tuple[str, np.ndarray]]
    template: np.ndarray
    rgba: Color
    thickness: float


def rgba(text: str, opacity: float = 1.0) -> Color:
    """The numbers from 0 to 1 of a colour "#rrggbb"."""
    r, g, b = (x / 255 for x in bytes.fromhex(text[1:]))
    return r, g, b, opacity


def turned(axes: np.ndarray) -> np.ndarray:
    """Quaternion (w, x, y, z) of a rotation matrix."""
    from scipy.spatial.transform import Rotation

    return Rotation.from_matrix(axes).as_quat()[[3, 0, 1, 2]]


def bar(body: str, name: str, a: np.ndarray, b: np.ndarray, radius: float, color: Color) -> Visual:
    """A cylinder between two points of a body."""
    length = float(np.linalg.norm(b - a))
    z = (b - a) / length
    x = across(z, np.eye(3)[int(np.argmin(np.abs(z)))])
    place = (a + b) / 2, turned(np.stack([x, np.cross(z, x), z], axis=1))
    return solid(body, name, "cylinder", (radius, length / 2), color, *place)


# --- bodies -------------------------------------------------------------------------------------


def body_solids(mechanism: Mechanism, visuals: Iterable[Visual], size: float) -> list[Visual]:
    """The shapes of all bodies: their `visuals`, else their contact shapes, else bars from the
    centre of mass to the joints, or the box with the same inertia. `size` is that of symbols."""
    colors = {name: rgba(color) for name, color in body_colors(mechanism).items()}
    found = _of_visuals(tuple(visuals), colors)
    drawn, floor = {x.body for x in found}, any(map(is_surface, found))
    found += [
        x
        for x in _contact_solids(mechanism, colors)
        if x.body not in drawn or (is_surface(x) and not floor)
    ]
    drawn |= {x.body for x in found}
    points = attachments(mechanism, size)
    for body in mechanism.bodies:
        if body.name not in drawn:
            found += _skeleton(body, points[body.name], colors[body.name], size)
    return found


def _of_visuals(visuals: tuple[Visual, ...], colors: dict[str, Color]) -> list[Visual]:
    """The shapes of a file: groups 0 to 2, and all shapes of bodies that have no others."""
    kinds = ("sphere", "capsule", "cylinder", "ellipsoid", "box", "plane", "mesh")
    for x in visuals:
        if x.body not in colors or x.kind not in kinds:
            raise ValueError(
                f"Argument `visuals` must have bodies of the mechanism and kinds among {kinds}, "
                f'but has a {x.kind} on "{x.body}".'
            )
    shown = {x.body for x in visuals if x.group <= 2}

    def color(of: Visual) -> Color:
        # Shapes without a colour are grey.
        unpainted = of.kind != "plane" and np.allclose(of.rgba, (0.5, 0.5, 0.5, 1.0))
        return colors[of.body] if unpainted else of.rgba

    return [
        x._replace(name=x.body, rgba=color(x))
        for x in visuals
        if (x.group <= 2 or x.body not in shown) and x.rgba[3] > 0
    ]


def _skeleton(body: Body, points: list[np.ndarray], color: Color, size: float) -> list[Visual]:
    center, name = np.asarray(body.inertia.center, float), body.name
    bars = [
        bar(name, name, center, point, 0.14 * size, color)
        for point in points
        if np.linalg.norm(point - center) > 1e-3 * size
    ]
    if len(points) > 1 and bars:
        return [*bars, solid(name, name, "sphere", (0.2 * size,), color, center, np.eye(4)[0])]
    half, axes = equal_box(body, 0.3 * size)
    return [solid(name, name, "box", (half,), color, center, turned(axes))]


# The kinds and sizes of shapes that are no meshes.
_KINDS: dict[type, Callable[[Any], tuple]] = {
    Sphere: lambda s: ("sphere", s.radius),
    Ellipsoid: lambda s: ("ellipsoid", s.semiaxes),
    Box: lambda s: ("box", np.asarray(s.size) / 2),
    Cylinder: lambda s: ("cylinder", s.radius, np.asarray(s.length) / 2),
    Capsule: lambda s: ("capsule", s.radius, np.asarray(s.length) / 2),
    Disc: lambda s: ("cylinder", s.radius, 0.02 * s.radius),
    HalfSpace: lambda _: ("plane",),
    HeightField: lambda _: ("field",),
}


def _contact_solids(mechanism: Mechanism, colors: dict[str, Color]) -> Iterator[Visual]:
    still = WorldFrames(np.zeros((1, 3)), np.eye(3)[None])
    for body, shape, frame in placed_shapes(mechanism, dict.fromkeys(colors, still)):
        kind, *size = _KINDS.get(type(shape), lambda _: ("mesh",))(shape)
        of = solid(body, body, kind, size, colors[body], frame.origin[0], turned(frame.axes[0]))
        if is_surface(of):
            of = of._replace(rgba=rgba(GROUND_FILL))
        if kind in ("field", "mesh"):
            mesh = _halved_cells(surface(shape)) if kind == "field" else _triangles(hull(shape))
            of = of._replace(vertices=mesh[0], faces=mesh[1])
        yield of


def _triangles(faces: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and triangles of convex faces, each `(corners, 3)`."""
    starts = np.cumsum([0, *(len(face) for face in faces)])
    fans = [
        (start, start + i, start + i + 1)
        for start, face in zip(starts, faces, strict=False)
        for i in range(1, len(face) - 1)
    ]
    return np.concatenate(faces), np.reshape(fans, (-1, 3)).astype(int)


def _halved_cells(field: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and triangles of a height field, which divides its cells from the corner of least x
    and y."""
    nx, ny, _ = field.shape
    i = (np.arange(nx - 1)[:, None] * ny + np.arange(ny - 1)).ravel()
    near, far = [i, i + ny, i + ny + 1], [i, i + ny + 1, i + 1]
    return field.reshape(-1, 3), np.concatenate([np.stack(near, 1), np.stack(far, 1)])


# --- elements -----------------------------------------------------------------------------------

_INK, _FORCE, _GUIDE = rgba(INK), rgba(FORCE), rgba(GUIDE)
_STRAIGHT = np.array([[0.0, 0, 0], [1, 0, 0]])

# All sizes are multiples of the radius r of joints. A solid at a frame of the element: its kind and
# size, the number of the frame, and the colour.
_SOLIDS: dict[Glyph, tuple[str, tuple[float, ...], int, Color]] = {
    Glyph.BALL: ("sphere", (0.9,), -1, _INK),
    Glyph.BEAD: ("sphere", (0.8,), -1, _INK),
    Glyph.PAD: ("box", (0.6, 0.6, 0.6), -1, _INK),
    Glyph.BLOCK: ("box", (0.7, 0.7, 0.7), -1, _INK),
    Glyph.PIN: ("cylinder", (0.8, 1.3), -1, _INK),
    Glyph.SLIDER: ("box", (0.9, 0.9, 1.8), -1, _INK),
    Glyph.SLEEVE: ("cylinder", (1.1, 1.8), -1, _INK),
    Glyph.SHEET: ("box", (3.0, 3.0, 0.05), 0, rgba(GUIDE, 0.4)),
    Glyph.TURN: ("cylinder", (1.4, 0.67), 0, rgba(FORCE, 0.5)),
    Glyph.CUSHION: ("sphere", (1.17,), 0, rgba(FORCE, 0.5)),
}
# A line between the frames: the offsets of its template, the colour, the thickness, and whether it
# is there although the frames coincide.
_LINKS: dict[Glyph, tuple[np.ndarray, Color, float, bool]] = {
    Glyph.ROD: (_STRAIGHT, _INK, 0.3, True),
    Glyph.COIL: (helix(0.93), _FORCE, 0.27, True),
    Glyph.PULL: (_STRAIGHT, _FORCE, 0.2, False),
    Glyph.BALL: (_STRAIGHT, _GUIDE, 0.2, False),
}


def symbols(
    elements: Sequence[AbstractElement], bodies: dict[str, WorldFrames], size: float
) -> list[Visual | Link]:
    """The glyphs of elements, where `bodies` are the frames of the bodies in all pictures."""
    return [
        thing
        for element in elements
        for glyph in element.glyphs
        for thing in _shown(glyph, element, element_frames(element, bodies), 0.3 * size)
    ]


def _shown(
    glyph: Glyph, of: AbstractElement, frames: list[WorldFrames], r: float
) -> Iterator[Visual | Link]:
    places = [np.asarray(frame.position, float) for frame in of.frames]
    if glyph in _SOLIDS:
        kind, size, i, color = _SOLIDS[glyph]
        size = tuple(r * x for x in size)
        place = places[i], of.frames[i].orientation
        yield solid(of.bodies[i], of.name, kind, size, color, *place)
    if glyph in _LINKS:
        template, color, thickness, always = _LINKS[glyph]
        if always or (len(frames) == 2 and are_apart(frames, r)):
            ends = (of.bodies[0], places[0]), (of.bodies[-1], places[-1])
            yield Link(of.name, ends, template * [1, r, r], color, r * thickness)

    def along(i: int, axis: int, low: float, high: float, radius: float, color: Color) -> Visual:
        e = matrices(np.asarray(of.frames[i].orientation))[:, axis]
        ends = places[i] + low * e, places[i] + high * e
        return bar(of.bodies[i], of.name, *ends, radius * r, color)

    if glyph is Glyph.CROSS:
        yield along(0, 0, -1.4 * r, 1.4 * r, 0.35, _INK)
        yield along(-1, 1, -1.4 * r, 1.4 * r, 0.35, _INK)
    if glyph is Glyph.RAIL:
        a, b = frames
        reach = np.einsum("ti,ti->t", a.axis(2), b.origin - a.origin)
        # Not much longer than other symbols, if b slides far away.
        reach = np.clip([0, reach.min(), reach.max()], -10 * r, 10 * r)
        yield along(0, 2, reach.min() - 2.8 * r, reach.max() + 2.8 * r, 0.3, _GUIDE)
    if glyph is Glyph.SPIRAL:
        turns = spiral(1.17 * r, 2.33 * r, 2.5)[::3]
        points = places[0] + turns @ matrices(np.asarray(of.frames[0].orientation)).T
        for a, b in itertools.pairwise(points):
            yield bar(of.bodies[0], of.name, a, b, 0.17 * r, _FORCE)


def supports(mechanism: Mechanism, size: float, down: np.ndarray) -> list[Visual]:
    """Pyramids under the joints on the ground."""
    side = across(down, np.eye(3)[int(np.argmin(np.abs(down)))])
    square = np.array([(1, 1), (-1, 1), (-1, -1), (1, -1)]) @ [side, np.cross(down, side)]
    pyramid = np.concatenate([np.zeros((1, 3)), 0.8 * size * down + 0.4 * size * square])
    faces = np.array([[0, 1, 2], [0, 2, 3], [0, 3, 4], [0, 4, 1], [1, 3, 2], [1, 4, 3]])
    color, upright = rgba(GROUND_EDGE, 0.7), np.eye(4)[0]
    return [
        Visual(joint.name, GROUND, "mesh", (), pyramid, faces, np.asarray(x), upright, color, 0)
        for joint in mechanism.joints
        for x in (pose.position for pose in _on_ground(joint))
    ]


def _on_ground(of: AbstractElement) -> list[Pose]:
    return [x for name, x in zip(of.bodies, of.frames, strict=True) if name == GROUND]

"""The nodes of a scene: bodies with their shapes, symbols, labels and the ground."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .._mechanism import GROUND, Mechanism
from .._mechanism.appearance import (
    BODIES,
    GROUND_FILL,
    Visual,
    WorldFrames,
    body_frames,
    element_frames,
    matrices,
    symbol_size,
    unit,
)
from .solids import (
    Color,
    Link,
    body_solids,
    corners,
    is_surface,
    rgba,
    shrunk,
    supports,
    symbols,
    turned,
)

if TYPE_CHECKING:
    from viser import MeshSkinnedHandle, SceneApi, ViserServer

# Everything that moves is below this node, so that the page can move the world past the camera.
WORLD = "/world"
_OVERLAY = 0.45
# Overlaid shapes are a little smaller, since coinciding surfaces would flicker.
_SHRUNK = 0.97
_FIELD_OF_VIEW = 0.7
# The camera sees what is within this many sizes of the first picture.
_REACH = 1.5
# So many pictures of a motion are looked at for it.
_PICTURES = 60
# Room around what the first camera sees.
_ROOM = 1.1


@dataclass
class Figure:
    """The nodes of one mechanism in a scene.

    - `root`: their common parent. `bodies`: name -> node of each body.
    - `links`: node and `Link` of each stretching line.
    - `owners`: node that can be clicked -> name of the element that it shows.
    - `groups`: what can be hidden, such as "joints" -> its nodes.
    - `size`: of symbols [m]. `floor`: whether the ground has a plane or a height field.
    """

    root: str
    size: float
    floor: bool = False
    bodies: dict[str, str] = field(default_factory=dict)
    links: list[tuple[str, Link]] = field(default_factory=list)
    owners: dict[str, str] = field(default_factory=dict)
    groups: dict[str, list[str]] = field(default_factory=dict)


class Extent:
    """The box around centres of mass and joints in all pictures, without what leaves the
    neighbourhood of the first one; the upward direction, and the size of symbols."""

    def __init__(self, pairs: Sequence[tuple[Mechanism, np.ndarray]]):
        points = []
        for mechanism, q in pairs:
            bodies = body_frames(mechanism, q)
            points += [bodies[b.name].at(b.inertia.center)[:, 0] for b in mechanism.bodies]
            for element in (*mechanism.joints, *mechanism.forces):
                points += [frame.origin for frame in element_frames(element, bodies)]
        first = np.concatenate([x[:1] for x in points])
        self.size = symbol_size([first])
        low, high = first.min(axis=0), first.max(axis=0)
        reach = _REACH * max(float(np.linalg.norm(high - low)), 6 * self.size)
        cloud = np.concatenate(points)
        cloud = cloud[np.all(np.isfinite(cloud), axis=1)]
        # What flies away would make the rest too small to be seen.
        self._near = (low + high) / 2, reach
        cloud = cloud[self._is_near(cloud)]
        self.low, self.high = cloud.min(axis=0), cloud.max(axis=0)
        gravity = np.asarray(pairs[0][0].gravity, float)
        strength = np.linalg.norm(gravity)
        self.up = -gravity / strength if strength > 0 else np.array([0.0, 0.0, 1.0])
        self.cloud = self.seen = cloud

    def _is_near(self, points: np.ndarray) -> np.ndarray:
        middle, reach = self._near
        return np.all(np.abs(points - middle) <= reach, axis=-1)

    def include(self, mechanism: Mechanism, q: np.ndarray, visuals: Iterable[Visual]) -> None:
        """Widen the box by the shapes of the bodies in the first picture, and in the others where
        they stay near."""
        some = np.unique(np.linspace(0, len(q) - 1, min(len(q), _PICTURES)).astype(int))
        frames = body_frames(mechanism, q[some])
        solids = [
            frames[solid.body].at(corners(solid))
            for solid in body_solids(mechanism, visuals, self.size)
            if not is_surface(solid)
        ]
        first = np.concatenate([self.seen[:0], *(points[0] for points in solids)])
        if len(first):
            low, high = first.min(axis=0), first.max(axis=0)
            reach = max(self._near[1], _REACH * float(np.linalg.norm(high - low)))
            self._near = self._near[0], reach
        later = [points[1:][self._is_near(points[1:])] for points in solids]
        found = [self.seen, first, *later]
        self.seen = np.concatenate(found)
        self.low, self.high = self.seen.min(axis=0), self.seen.max(axis=0)

    @property
    def length(self) -> float:
        """The diagonal of the box, not less than some symbols [m]."""
        return max(float(np.linalg.norm(self.high - self.low)), 6 * self.size)

    @property
    def middle(self) -> np.ndarray:
        return (self.low + self.high) / 2

    def frame(self) -> np.ndarray:
        """World axes turned so that z is up, as columns."""
        up = self.up
        if up[2] > 1 - 1e-9:
            return np.eye(3)
        x = np.cross(np.eye(3)[int(np.argmin(np.abs(up)))], up)
        x /= np.linalg.norm(x)
        return np.stack([x, np.cross(up, x), up], axis=1)

    def aim(self, server: "ViserServer") -> None:
        """Set the first camera, so that it sees everything, in the direction of
        `mbd.plots.draw`."""
        azimuth, elevation = np.deg2rad(-58), np.deg2rad(22)
        flat = np.cos(elevation) * np.array([np.cos(azimuth), np.sin(azimuth), 0.0])
        direction = self.frame() @ (flat + np.array([0.0, 0.0, np.sin(elevation)]))
        # All points are in the picture, also in a square one.
        up = self.up - (self.up @ direction) * direction
        up /= np.linalg.norm(up)
        points = self.seen - self.middle
        aside = np.abs(np.stack([points @ up, points @ np.cross(up, direction)])).max(axis=0)
        away = np.max(aside / np.tan(_FIELD_OF_VIEW / 2) + points @ direction)
        away = max(_ROOM * away, self.length / 2)
        server.initial_camera.fov = _FIELD_OF_VIEW
        server.initial_camera.up = self.up
        server.initial_camera.position = tuple(self.middle + away * direction)
        server.initial_camera.look_at = tuple(self.middle)
        server.initial_camera.near = 0.01 * self.length
        server.initial_camera.far = 100.0 * self.length


def build(
    scene: "SceneApi",
    root: str,
    mechanism: Mechanism,
    q: np.ndarray,
    visuals: Iterable[Visual],
    extent: Extent,
    overlay: str | None = None,
) -> Figure:
    """Add the nodes of a mechanism to a viser scene, at the first of the coordinates
    `(pictures, nq)`. An `overlay` is a colour for all bodies, which are then translucent and
    without symbols of joints."""
    figure, size = Figure(root, extent.size), extent.size
    frames = body_frames(mechanism, q)
    for i, name in enumerate(frames):
        figure.bodies[name] = node = f"{root}/b{i}"
        origin, axes = frames[name].origin[0], frames[name].axes[0]
        scene.add_frame(node, show_axes=False, position=origin, wxyz=turned(axes))
    solids = body_solids(mechanism, visuals, size)
    if overlay is not None:
        solids = [x for x in solids if x.body != GROUND]
    figure.floor = any(x.body == GROUND and is_surface(x) for x in solids)
    things: list[tuple[str, Visual | Link]]
    things = [("ground" if x.body == GROUND else "bodies", x) for x in solids]
    if overlay is None:
        things += [("joints", x) for x in symbols(mechanism.joints, frames, size)]
        things += [("joints", x) for x in supports(mechanism, size, -extent.up)]
    things += [("springs", x) for x in symbols(mechanism.forces, frames, size)]
    _add(scene, figure, things, frames, extent, overlay)
    if overlay is None:
        _annotate(scene, figure, mechanism)
    return figure


def _add(
    scene: "SceneApi",
    figure: Figure,
    things: Iterable[tuple[str, Visual | Link]],
    frames: dict[str, WorldFrames],
    extent: Extent,
    overlay: str | None,
) -> None:
    for i, (group, thing) in enumerate(things):
        color = thing.rgba if overlay is None else rgba(overlay, _OVERLAY * thing.rgba[3])
        if isinstance(thing, Link):
            node = f"{figure.root}/link{i}"
            ends = np.array([frames[name].at(point)[0, 0] for name, point in thing.ends])
            length = float(np.linalg.norm(ends[1] - ends[0]))
            vertices, faces, weights = tube(thing.template, length, thing.thickness / 2)
            handle = scene.add_mesh_skinned(
                node,
                vertices,
                faces,
                color=_bytes(color),
                bone_wxyzs=np.array([[1.0, 0, 0, 0]] * 2),
                bone_positions=np.array([[0.0, 0, 0], [0, 0, 1]]),
                skin_weights=weights,
            )
            stretch(handle, *ends)
            figure.links.append((node, thing))
        else:
            node = f"{figure.bodies[thing.body]}/s{i}"
            small = thing if overlay is None else shrunk(thing, _SHRUNK)
            add_solid(scene, node, small._replace(rgba=color), extent)
        if thing.name != GROUND:
            figure.owners[node] = thing.name
        figure.groups.setdefault(group, []).append(node)


def _annotate(scene: "SceneApi", figure: Figure, mechanism: Mechanism) -> None:
    """Add hidden labels and axes to the bodies."""
    for body in mechanism.bodies:
        node, center = figure.bodies[body.name], np.asarray(body.inertia.center, float)
        scene.add_label(f"{node}/label", body.name, position=center, visible=False)
        scene.add_frame(
            f"{node}/axes",
            axes_length=0.8 * figure.size,
            axes_radius=0.05 * figure.size,
            origin_radius=0.08 * figure.size,
            visible=False,
        )
        figure.groups.setdefault("names", []).append(f"{node}/label")
        figure.groups.setdefault("axes", []).append(f"{node}/axes")


def tube(
    template: np.ndarray, length: float, radius: float, sides: int = 6
) -> tuple[np.ndarray, ...]:
    """Vertices and triangles of a tube around a template, between (0, 0, 0) and (0, 0, 1), and the
    weights of its two bones there. When the bones move to the ends of the link, `length` apart at
    first, and turn along it, the tube stretches, and its offsets across stay as they are."""
    points = template[:, [1, 2, 0]]
    along = unit(np.gradient(points * [1, 1, max(length, 4 * radius)], axis=0))
    first = np.array([1.0, 0, 0]) if abs(along[0, 0]) < 0.9 else np.array([0.0, 1, 0])
    rings, angles = [], 2 * np.pi * np.arange(sides) / sides
    for point, z in zip(points, along, strict=True):
        first = unit(first - (first @ z) * z)
        second = np.cross(z, first)
        circle = np.outer(np.cos(angles), first) + np.outer(np.sin(angles), second)
        rings.append(point + radius * circle)
    i = np.arange((len(points) - 1) * sides)
    k = i - i % sides + (i + 1) % sides  # the next vertex of the ring
    faces = np.stack([i, k, k + sides, i, k + sides, i + sides], axis=1).reshape(-1, 3)
    s = np.repeat(template[:, 0], sides)
    weights = np.stack([1 - s, s], axis=1).astype(np.float32)
    return np.concatenate(rings).astype(np.float32), faces.astype(np.uint32), weights


def toward(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Quaternion that turns z into the direction from a to b, by the smallest angle. `page.js` does
    the same."""
    d = b - a
    length = np.linalg.norm(d)
    x, y, z = d / length if length > 0 else np.array([0.0, 0.0, 1.0])
    if z < -1 + 1e-9:
        return np.array([0.0, 1.0, 0.0, 0.0])
    p = np.array([1 + z, -y, x, 0.0])
    return p / np.linalg.norm(p)


def stretch(handle: "MeshSkinnedHandle", a: np.ndarray, b: np.ndarray) -> None:
    """Move the bones of a link to its ends."""
    for bone, end in zip(handle.bones, (a, b), strict=True):
        bone.position, bone.wxyz = tuple(end), tuple(toward(a, b))


def add_solid(scene: "SceneApi", node: str, of: Visual, extent: Extent) -> None:
    """Add a shape as a node."""
    place: dict[str, Any] = dict(position=of.position, wxyz=of.orientation)
    opacity = None if of.rgba[3] >= 1 else of.rgba[3]
    look: dict[str, Any] = dict(color=_bytes(of.rgba), opacity=opacity, **place)
    match of.kind, *of.size:
        case "box", x, y, z:
            scene.add_box(node, dimensions=(2 * x, 2 * y, 2 * z), **look)
        case "sphere", r:
            scene.add_icosphere(node, radius=r, **look)
        case "ellipsoid", x, y, z:
            scene.add_icosphere(node, radius=1.0, scale=(x, y, z), **look)
        case "cylinder", r, half:
            scene.add_cylinder(node, radius=r, height=2 * half, **look)
        case "capsule", r, half:
            from trimesh.creation import capsule  # viser imports it

            mesh = capsule(height=2 * half, radius=r, count=(32, 16))
            scene.add_mesh_simple(node, mesh.vertices, mesh.faces, **look)
        case "plane", *_:
            if of.body == GROUND:
                # It has no end, so its middle may be under the middle of the scene.
                normal = matrices(of.orientation)[:, 2]
                height = (extent.middle - of.position) @ normal
                place["position"] = extent.middle - height * normal
            sheet: Any = dict(plane_color=_bytes(rgba(GROUND_FILL)), plane_opacity=0.6)
            lines = dict(cell_thickness=0.6, section_thickness=0.8)
            _add_grid(scene, node, extent, 3 * extent.length, **place, **sheet, **lines)
        case _:
            mesh = np.asarray(of.vertices, np.float32), np.asarray(of.faces, np.uint32)
            scene.add_mesh_simple(node, *mesh, flat_shading=True, side="double", **look)


def _bytes(color: Color) -> tuple[int, int, int]:
    r, g, b = np.round(255 * np.clip(color[:3], 0, 1)).astype(int).tolist()
    return r, g, b


def add_ground(scene: "SceneApi", extent: Extent, given: bool) -> None:
    """Add a grid under everything, unless a ground is `given`."""
    if given:
        return
    below = (extent.cloud @ extent.up).min() - 1.2 * extent.size
    place = dict(
        position=extent.middle + (below - extent.middle @ extent.up) * extent.up,
        wxyz=turned(extent.frame()),
    )
    look: Any = dict(cell_color=(225, 228, 233), section_color=(200, 204, 210))
    fade = dict(fade_distance=3 * extent.length)
    _add_grid(scene, f"{WORLD}/grid", extent, 2 * extent.length, **place, **look, **fade)


def _add_grid(scene: "SceneApi", node: str, extent: Extent, width: float, **look: Any) -> None:
    cell = _round(extent.length / 20)
    sizes = dict(width=width, height=width, cell_size=cell, section_size=5 * cell)
    scene.add_grid(node, **sizes, **look)


def _round(x: float) -> float:
    """The nearest of 1, 2, 5 times a power of ten."""
    power = 10 ** np.floor(np.log10(x))
    return float(power * min((1, 2, 5, 10), key=lambda k: abs(k - x / power)))


def overlay_color(i: int) -> str:
    """The colour of run `i` where several are overlaid."""
    return BODIES[(i + 1) % len(BODIES)]

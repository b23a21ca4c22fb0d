"""Shapes of files: to draw, in contact, and convex hulls of meshes with few corners."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from .._contact import ContactLaw
from .._inputs import Number
from .._mechanism import (
    GROUND,
    AbstractShape,
    Box,
    Capsule,
    Contact,
    Cylinder,
    Ellipsoid,
    HalfSpace,
    Pose,
    Sphere,
)
from .loaded import Visual
from .source import MjModel, Source

# The shape of each kind of `Visual`; its fields, and how long they are in the units of
# `Visual.size`, which has half lengths.
_SOLIDS: dict[str, tuple[Callable[..., AbstractShape], dict[str, int]]] = {
    "sphere": (Sphere, {"radius": 1}),
    "capsule": (Capsule, {"radius": 1, "length": 2}),
    "cylinder": (Cylinder, {"radius": 1, "length": 2}),
    "ellipsoid": (Ellipsoid, {"semiaxes": 1}),
    "box": (Box, {"size": 2}),
}
_SIZES = {"sphere": 1, "capsule": 2, "cylinder": 2, "ellipsoid": 3, "box": 3, "plane": 2, "mesh": 0}


def touching(kind: str, size: Sequence[float]) -> AbstractShape | None:
    """The shape that others touch, of a kind and size of `Visual`; `None` without a counterpart."""
    if kind == "plane":
        return HalfSpace()
    if kind not in _SOLIDS:
        return None
    made, fields = _SOLIDS[kind]
    given = size if len(fields) == len(size) else [np.array(size)]
    return made(**{name: k * x for (name, k), x in zip(fields.items(), given, strict=True)})


def kind_and_size(shape: AbstractShape) -> tuple[str, list[float]] | None:
    """The inverse of `touching` for solids; `None` for other shapes."""
    for kind, (made, fields) in _SOLIDS.items():
        if type(shape) is made:
            values = [np.ravel(getattr(shape, name)) / k for name, k in fields.items()]
            return kind, np.concatenate(values).tolist()
    return None


class Side(NamedTuple):
    """One side of a contact: a shape, and its pose on a body.

    **Fields:** `body`, `shape`, `frame`; `velocity` of its surface in the frame, linear and
    angular, `None` at rest."""

    body: str
    shape: AbstractShape
    frame: Pose
    velocity: np.ndarray | None = None


def ground_first(a: Side, b: Side) -> tuple[Side, Side]:
    """Two sides in the order in which normals point away from the ground."""
    return (b, a) if b.body == GROUND and a.body != GROUND else (a, b)


def contact(
    name: str, a: Side, b: Side, law: ContactLaw, margin: Number | None = None
) -> Contact | None:
    """A contact; `None` for shapes that cannot touch each other."""
    try:
        return Contact(
            name,
            a.body,
            b.body,
            a.shape,
            b.shape,
            frame_a=a.frame,
            frame_b=b.frame,
            law=law,
            margin=margin,
            surface_velocity_a=a.velocity,
            surface_velocity_b=b.velocity,
        )
    except ValueError:
        return None


def kind_of(source: Source, g: int) -> str:
    """The kind of a geom, such as "capsule"."""
    return str(source.mujoco.mjtGeom(source.m.geom_type[g]).name).removeprefix("mjGEOM_").lower()


def size_of(source: Source, g: int, kind: str) -> tuple[float, ...]:
    """The numbers that a geom of this kind has, as in `Visual`."""
    return tuple(float(x) for x in source.m.geom_size[g][: _SIZES.get(kind, 0)])


def visuals(source: Source) -> tuple[Visual, ...]:
    """All geoms, and the shapes that are only drawn."""
    m, found = source.m, []
    if source.drawn is not None:
        found += visuals(source.drawn)
    for g in range(m.ngeom):
        kind, vertices, faces = kind_of(source, g), None, None
        if kind == "hfield":
            kind = "mesh"
            vertices, faces = _height_field(m, int(m.geom_dataid[g]))
        elif kind in ("mesh", "sdf"):
            kind = "mesh"
            vertices, faces = mesh(m, int(m.geom_dataid[g]))
        frame = source.on(m.geom_bodyid[g], m.geom_pos[g], m.geom_quat[g])
        found.append(
            Visual(
                source.name("geom", g),
                source.body(m.geom_bodyid[g]),
                kind,
                size_of(source, g, kind),
                vertices,
                faces,
                np.asarray(frame.position),
                np.asarray(frame.orientation),
                _colour(m, g),
                int(m.geom_group[g]),
            )
        )
    return tuple(found)


def mesh(m: MjModel, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and faces of mesh k."""
    vertices = m.mesh_vert[m.mesh_vertadr[k] :][: m.mesh_vertnum[k]]
    faces = m.mesh_face[m.mesh_faceadr[k] :][: m.mesh_facenum[k]]
    return vertices.astype(float), faces.astype(int)


def heights(m: MjModel, k: int) -> np.ndarray:
    """z of the nodes of height field k [m], x along the first axis."""
    rows, columns = int(m.hfield_nrow[k]), int(m.hfield_ncol[k])
    data = m.hfield_data[m.hfield_adr[k] :][: rows * columns].reshape(rows, columns)
    return data.T.astype(float) * m.hfield_size[k][2]


def _height_field(m: MjModel, k: int) -> tuple[np.ndarray, np.ndarray]:
    z = heights(m, k)
    nx, ny = z.shape
    x, y = (
        np.linspace(-half, half, n) for half, n in zip(m.hfield_size[k][:2], (nx, ny), strict=True)
    )
    vertices = np.stack([*np.meshgrid(x, y, indexing="ij"), z], axis=-1).reshape(-1, 3)
    node = np.arange(nx * ny).reshape(nx, ny)
    a, b, c, d = node[:-1, :-1], node[1:, :-1], node[1:, 1:], node[:-1, 1:]
    faces = np.concatenate([np.stack([a, b, c], -1), np.stack([a, c, d], -1)]).reshape(-1, 3)
    return vertices, faces


def _colour(m: MjModel, g: int) -> tuple[float, float, float, float]:
    own = m.geom_rgba[g]
    if m.geom_matid[g] >= 0 and np.allclose(own, (0.5, 0.5, 0.5, 1.0)):
        own = m.mat_rgba[m.geom_matid[g]]
    red, green, blue, opacity = (float(x) for x in own)
    return red, green, blue, opacity


# So many points are looked at for the next corner.
_CANDIDATES = 64


def few_corners(points: np.ndarray, count: int) -> tuple[np.ndarray, int, float]:
    """At most `count` corners of the convex hull of points, chosen so that little of it is missing:
    from a tetrahedron on, each is the point of the hull that is farthest from the hull of those
    before.

    **Returns:** the corners, the number of corners of the whole hull, and the largest distance of
    one of these from the hull of the chosen ones [m]."""
    from scipy.spatial import ConvexHull, QhullError

    try:
        points = points[ConvexHull(points).vertices]
    except QhullError:
        return _of_flat(points, count)
    if len(points) <= count:
        return points, len(points), 0.0
    chosen = _tetrahedron(points)
    while True:
        hull = ConvexHull(points[chosen])
        above = np.max(points @ hull.equations[:, :3].T + hull.equations[:, 3], axis=1)
        triangles = points[chosen][hull.simplices]
        if len(chosen) >= count:
            beyond = points[above > 0]
            return (
                points[chosen],
                len(points),
                float(_distances(beyond, triangles).max(initial=0.0)),
            )
        # The distance is at least that from the plane of a face, so few points matter.
        some = np.argsort(-above)[:_CANDIDATES]
        chosen.append(int(some[np.argmax(_distances(points[some], triangles))]))


def _tetrahedron(points: np.ndarray) -> list[int]:
    """Indices of four points that span much of a hull."""
    first = int(np.argmax(np.linalg.norm(points - points.mean(axis=0), axis=1)))
    chosen, spanned = [first], np.zeros((0, 3))
    for _ in range(3):
        apart = points - points[first]
        apart = apart - apart @ spanned.T @ spanned
        distance = np.linalg.norm(apart, axis=1)
        chosen.append(int(np.argmax(distance)))
        spanned = np.vstack([spanned, apart[chosen[-1]] / distance[chosen[-1]]])
    return chosen


def _distances(points: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    """Distances of points from the nearest of some triangles."""
    normal = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    p = points[:, None]
    over = np.ones((len(points), len(triangles)), bool)
    nearest = np.full(over.shape, np.inf)
    for k in range(3):
        corner = triangles[:, k]
        side = triangles[:, (k + 1) % 3] - corner
        arm = p - corner
        along = np.clip(np.sum(arm * side, axis=-1) / np.sum(side * side, axis=-1), 0, 1)
        nearest = np.minimum(nearest, np.sum((arm - along[..., None] * side) ** 2, axis=-1))
        over &= np.sum(np.cross(side, arm) * normal, axis=-1) >= 0
    height = np.sum((p - triangles[:, 0]) * normal, axis=-1)
    return np.sqrt(np.min(np.where(over, height**2, nearest), axis=1, initial=np.inf))


def _of_flat(points: np.ndarray, count: int) -> tuple[np.ndarray, int, float]:
    """The same of points in a plane, by distances from the nearest corner, which is not less."""
    points = np.unique(points, axis=0)
    chosen = [int(np.argmax(np.linalg.norm(points - points.mean(axis=0), axis=1)))]
    distance = np.linalg.norm(points - points[chosen[0]], axis=1)
    while len(chosen) < count and distance.max() > 0:
        chosen.append(int(np.argmax(distance)))
        distance = np.minimum(distance, np.linalg.norm(points - points[chosen[-1]], axis=1))
    return points[chosen], len(points), float(distance.max())

"""The shapes of a compiled model, to draw."""

from typing import Any

import numpy as np

from .loaded import Visual
from .source import Source

_SIZES = {"sphere": 1, "capsule": 2, "cylinder": 2, "ellipsoid": 3, "box": 3, "plane": 2, "mesh": 0}


def kind_of(source: Source, g: int) -> str:
    """The kind of a geom, such as "capsule"."""
    return str(source.mujoco.mjtGeom(source.m.geom_type[g]).name).removeprefix("mjGEOM_").lower()


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
                tuple(float(x) for x in m.geom_size[g][: _SIZES[kind]]),
                vertices,
                faces,
                frame.position,
                frame.orientation,
                _colour(m, g),
                int(m.geom_group[g]),
            )
        )
    return tuple(found)


def mesh(m: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and faces of mesh k."""
    vertices = m.mesh_vert[m.mesh_vertadr[k] :][: m.mesh_vertnum[k]]
    faces = m.mesh_face[m.mesh_faceadr[k] :][: m.mesh_facenum[k]]
    return vertices.astype(float), faces.astype(int)


def heights(m: Any, k: int) -> np.ndarray:
    """z of the nodes of height field k [m], x along the first axis."""
    rows, columns = int(m.hfield_nrow[k]), int(m.hfield_ncol[k])
    data = m.hfield_data[m.hfield_adr[k] :][: rows * columns].reshape(rows, columns)
    return data.T.astype(float) * m.hfield_size[k][2]


def _height_field(m: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
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


def _colour(m: Any, g: int) -> tuple[float, float, float, float]:
    own = m.geom_rgba[g]
    if m.geom_matid[g] >= 0 and np.allclose(own, (0.5, 0.5, 0.5, 1.0)):
        own = m.mat_rgba[m.geom_matid[g]]
    red, green, blue, opacity = (float(x) for x in own)
    return red, green, blue, opacity

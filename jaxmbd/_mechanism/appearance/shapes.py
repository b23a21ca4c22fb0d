"""Shapes of contacts and bodies."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..body import Body
from ..contacts import Contact, NearContacts
from ..mechanism import Mechanism
from ..shapes import AbstractConvexShape, AbstractShape, ConvexPoints, HalfSpace, HeightField
from .frames import WorldFrames, element_frames


class Visual(NamedTuple):
    """A shape to draw on a body.

    **Fields:**

    - `name`; `body`: name of the body it is fixed to, or "ground".
    - `kind`: "sphere", "capsule", "cylinder", "ellipsoid", "box", "plane" or "mesh".
    - `size` [m]: (radius,) of a sphere; (radius, half length along z) of a capsule or cylinder; the
      three semi-axes; the three half edges; half the edges of a plane, 0 for endless; () of a mesh.
    - `vertices`, `faces` of a mesh, shapes `(n, 3)` and `(m, 3)`, otherwise `None`.
    - `position` [m], `orientation` (quaternion w, x, y, z) in the frame of the body.
    - `rgba`: colour and opacity from 0 to 1.
    - `group`: the group of the file. By custom 0 to 2 are shown, and 3 and above are for contacts.
    """

    name: str
    body: str
    kind: str
    size: tuple[float, ...]
    vertices: np.ndarray | None
    faces: np.ndarray | None
    position: np.ndarray
    orientation: np.ndarray
    rgba: tuple[float, float, float, float]
    group: int


class Placed(NamedTuple):
    """A shape on a body, and its frame in all pictures."""

    body: str
    shape: AbstractShape
    frame: WorldFrames

    @property
    def unbounded(self) -> bool:
        """Whether the shape is ground, so that its picture depends on the others."""
        return isinstance(self.shape, HalfSpace | HeightField)


def placed_shapes(mechanism: Mechanism, bodies: dict[str, WorldFrames]) -> list[Placed]:
    """The shapes of all contacts, without repetition."""
    found = {}
    for contact in mechanism.contacts:
        if isinstance(contact, Contact | NearContacts):
            shapes, frames = contact.shapes_of_frames, element_frames(contact, bodies)
            for end in zip(contact.bodies, shapes, contact.frames, frames, strict=True):
                name, shape, pose, frame = end
                numbers = tuple(np.asarray(x).tobytes() for x in jax.tree.leaves((shape, pose)))
                found.setdefault((name, type(shape), numbers), Placed(name, shape, frame))
    return list(found.values())


def surface(of: AbstractShape) -> np.ndarray:
    """Points of a height field, shape `(nx, ny, 3)`."""
    assert isinstance(of, HeightField)
    heights, spacing = np.asarray(of.heights, float), np.asarray(of.spacing, float)
    x, y = (s * (np.arange(n) - (n - 1) / 2) for s, n in zip(spacing, heights.shape, strict=True))
    return np.stack([*np.meshgrid(x, y, indexing="ij"), heights], axis=-1)


def farthest(shape: AbstractShape, d: np.ndarray) -> np.ndarray:
    """Farthest points of a shape in directions d, `(..., 3)`, in the frame of the shape."""
    dtype = jnp.result_type(*jax.tree.leaves(shape))
    table = _farthest(shape, d.reshape(-1, 3).astype(dtype))
    return np.asarray(table, float).reshape(d.shape)


@eqx.filter_jit
def _farthest(shape, d):
    if isinstance(shape, AbstractConvexShape):
        return jax.vmap(shape.support)(d) + shape.margin * d
    return jax.vmap(lambda d: shape.feet(d)[0])(d)


def hull(shape: AbstractShape) -> list[np.ndarray]:
    """Faces of a convex shape, each `(corners, 3)`, in the frame of the shape; of points in a plane
    one face, and of points on a line their ends.

    **Raises:** `ValueError` for a shape that is not convex."""
    from scipy.spatial import ConvexHull  # a dependency of JAX

    if not isinstance(shape, AbstractConvexShape):
        raise ValueError(f"There is no picture of the shape {type(shape).__name__}.")
    if isinstance(shape, ConvexPoints):
        points = np.asarray(shape.points, float)
    else:
        d = np.random.default_rng(0).normal(size=(300, 3))
        points = farthest(shape, d / np.linalg.norm(d, axis=1, keepdims=True))
    middle = points.mean(axis=0)
    _, spread, axes = np.linalg.svd(points - middle, full_matrices=False)
    rank = int(np.sum(spread > 1e-9 * max(spread[0], 1e-300)))
    inside = (points - middle) @ axes.T
    if rank <= 1:
        return [points[[np.argmin(inside[:, 0]), np.argmax(inside[:, 0])]]]
    if rank == 2:
        return [points[ConvexHull(inside[:, :2]).vertices]]
    found = ConvexHull(points)
    # Triangles in one plane form one face.
    faces: dict[tuple, set] = {}
    for plane, corners in zip(found.equations, found.simplices, strict=True):
        faces.setdefault(tuple(np.round(plane / [1, 1, 1, spread[0]], 6)), set()).update(corners)
    return [_around(points[sorted(corners)], np.array(key[:3])) for key, corners in faces.items()]


def _around(points: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """Corners of a convex face in order."""
    x = points - points.mean(axis=0)
    e1 = x[0] / np.linalg.norm(x[0])
    return points[np.argsort(np.arctan2(x @ np.cross(normal, e1), x @ e1))]


def equal_box(of: Body, least: float) -> tuple[np.ndarray, np.ndarray]:
    """Half the edges of the box with the inertia of the body, each edge at least `least` [m], and
    its axes as columns of a rotation matrix."""
    moments, axes = np.linalg.eigh(np.asarray(of.inertia.tensor))
    squares = 6 * (moments.sum() - 2 * moments) / float(of.inertia.mass)
    half = np.maximum(np.sqrt(np.maximum(squares, 0)) / 2, least / 2)
    axes[:, 2] = np.cross(axes[:, 0], axes[:, 1])  # eigenvectors may be left-handed
    return half, axes

"""Frames of bodies and elements, and points in them."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import ArrayLike, PyTree

from ..._compiler import is_known
from ..._coordinates import algebra
from ..body import GROUND
from ..element import AbstractFramed
from ..mechanism import Mechanism

_X, _Y, _Z = np.eye(3)


class WorldFrames(NamedTuple):
    """World positions `(pictures, 3)` of a frame, and its axes as columns of `(pictures, 3, 3)`."""

    origin: np.ndarray
    axes: np.ndarray

    def at(self, points: PyTree) -> np.ndarray:
        """World positions `(pictures, points, 3)` of points of the frame, `(points, 3)`."""
        local = np.atleast_2d(np.asarray(points, float))
        return self.origin[:, None] + np.einsum("tij,nj->tni", self.axes, local)

    def axis(self, i: int) -> np.ndarray:
        return self.axes[:, :, i]

    def local(self, vectors: np.ndarray) -> np.ndarray:
        """World vectors `(pictures, n, 3)` in the axes of the frame."""
        return np.einsum("tji,tnj->tni", self.axes, vectors)


def body_frames(mechanism: Mechanism, q: np.ndarray) -> dict[str, WorldFrames]:
    """Frames of all bodies and of the ground, for q of shape `(pictures, nq)`."""
    table = np.asarray(mechanism.pose_table(q), float)
    found = {
        name: WorldFrames(table[:, :3, i], matrices(table[:, 3:, i]))
        for i, name in enumerate(mechanism.body_stack.names)
    }
    found[GROUND] = WorldFrames(np.zeros((len(q), 3)), np.tile(np.eye(3), (len(q), 1, 1)))
    return found


def element_frames(element: AbstractFramed, bodies: dict[str, WorldFrames]) -> list[WorldFrames]:
    """World frames of an element."""
    found = []
    for name, pose in zip(element.bodies, element.frames, strict=True):
        body, local = bodies[name], matrices(np.asarray(pose.orientation))
        found.append(WorldFrames(body.at(pose.position)[:, 0], body.axes @ local))
    return found


def attachments(mechanism: Mechanism, size: float) -> dict[str, list[np.ndarray]]:
    """The points of each body where joints and forces are attached, in its frame. Points are
    distinct by a thousandth of the `size` of symbols."""
    found: dict[str, list[np.ndarray]] = {
        name: [] for name in (*mechanism.body_stack.names, GROUND)
    }
    for element in (*mechanism.joints, *mechanism.forces):
        for name, pose in zip(element.bodies, element.frames, strict=True):
            x = np.asarray(pose.position, float)
            if all(np.linalg.norm(x - y) > 1e-3 * size for y in found[name]):
                found[name].append(x)
    return found


def are_apart(frames: list[WorldFrames], size: float) -> bool:
    """Whether the frames do not coincide in all pictures, seen beside symbols of this size."""
    return any(np.max(np.abs(x.origin - frames[0].origin)) > 1e-3 * size for x in frames)


def matrices(p: np.ndarray) -> np.ndarray:
    """Rotation matrices `(..., 3, 3)` of quaternions w, x, y, z, `(..., 4)`, of any length."""
    unit = np.moveaxis(p / np.linalg.norm(p, axis=-1, keepdims=True), -1, 0)
    return np.moveaxis(np.asarray(algebra.quaternion_to_matrix(unit)), (0, 1), (-2, -1))


def symbol_size(points: Iterable[np.ndarray]) -> float:
    """Size of symbols [m] in a picture of these points."""
    cloud = np.concatenate([x.reshape(-1, 3) for x in points])
    extent = np.max(np.nanmax(cloud, axis=0) - np.nanmin(cloud, axis=0))
    return 0.09 * extent if extent > 0 else 0.3


def unit(x: np.ndarray) -> np.ndarray:
    """Vectors of length 1 along vectors `(..., 3)`; z for those of length 0."""
    length = np.linalg.norm(x, axis=-1, keepdims=True)
    return np.where(length > 0, x / np.where(length > 0, length, 1.0), _Z)


def across(direction: np.ndarray, hint: np.ndarray) -> np.ndarray:
    """Unit vectors perpendicular to `direction`, `(..., 3)`, along `hint` x direction."""
    normal = np.cross(hint, direction)
    small = np.linalg.norm(normal, axis=-1, keepdims=True) < 1e-6
    spare = np.cross(np.where(np.abs(direction[..., :1]) < 0.9, _X, _Y), direction)
    normal = np.where(small, spare, normal)
    return normal / np.linalg.norm(normal, axis=-1, keepdims=True)


def spiral(inner: float, outer: float, turns: float) -> np.ndarray:
    """Points of an Archimedean spiral around the z axis."""
    phi = np.linspace(0, 2 * np.pi * turns, int(24 * turns))
    r = np.linspace(inner, outer, len(phi))
    return np.stack([r * np.cos(phi), r * np.sin(phi), np.zeros_like(phi)], axis=1)


def helix(radius: float, turns: int = 6) -> np.ndarray:
    """Points `(n, 3)` of a coil between two points: the fraction of the way, and two offsets across
    it [m]. The ends are straight."""
    s = np.linspace(0, 1, 16 * turns + 1)
    x, y = np.sin(2 * np.pi * turns * s), -np.cos(2 * np.pi * turns * s)
    y[[0, -1]] = 0
    table = np.stack([0.15 + 0.7 * s, radius * x, radius * y], axis=1)
    return np.concatenate([[[0, 0, 0]], table, [[1, 0, 0]]])


def concrete(x: ArrayLike) -> np.ndarray:
    """Return x as a NumPy array. **Raises:** `ValueError` for traced values, inside `jax.jit`."""
    if not is_known(x):
        raise ValueError("Pictures need known numbers: make them outside of `jax.jit`.")
    return np.asarray(x)

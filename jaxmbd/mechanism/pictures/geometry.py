"""Frames, polylines and point forces in all pictures, in NumPy. The leading axis is the picture."""

from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from ..._compiler import need_known, to_jax
from ..._coordinates import algebra
from ..body import GROUND
from ..element import AbstractElement
from ..mechanism import Mechanism
from ..reports import no_force

_X, _Y, _Z = np.eye(3)
# Separates polylines that are kept as one.
_GAP = np.full(3, np.nan)


class Frames(NamedTuple):
    """World positions `(pictures, 3)` of a frame, and its axes as columns of `(pictures, 3, 3)`."""

    origin: np.ndarray
    axes: np.ndarray

    def at(self, points: Any) -> np.ndarray:
        """World positions `(pictures, points, 3)` of points of the frame, `(points, 3)`."""
        return self.origin[:, None] + np.einsum("tij,nj->tni", self.axes, np.atleast_2d(points))

    def axis(self, i: int) -> np.ndarray:
        return self.axes[:, :, i]


class View(NamedTuple):
    """The view of the pictures: unit vectors to the right and up, and down along gravity. `flat`
    pictures show the plane of right and up; the others are drawn in perspective."""

    right: np.ndarray
    up: np.ndarray
    down: np.ndarray
    flat: bool


def body_frames(mechanism: Mechanism, q: np.ndarray) -> dict[str, Frames]:
    """Frames of all bodies and of the ground, for q of shape `(pictures, nq)`."""
    table = np.asarray(mechanism.pose_table(q), float)
    found = {
        name: Frames(table[:, :3, i], matrices(table[:, 3:, i]))
        for i, name in enumerate(mechanism.body_stack.names)
    }
    found[GROUND] = Frames(np.zeros((len(q), 3)), np.tile(np.eye(3), (len(q), 1, 1)))
    return found


def element_frames(element: AbstractElement, bodies: dict[str, Frames]) -> list[Frames]:
    """World frames of an element."""
    found = []
    for name, pose in zip(element.bodies, element.frames, strict=True):
        body, local = bodies[name], matrices(np.asarray(pose.orientation)[None])[0]
        found.append(Frames(body.at(pose.position)[:, 0], body.axes @ local))
    return found


def matrices(p: np.ndarray) -> np.ndarray:
    """Rotation matrices `(n, 3, 3)` of quaternions `(n, 4)`, which are normalised."""
    unit = p / np.linalg.norm(p, axis=1, keepdims=True)
    return np.moveaxis(np.asarray(algebra.quaternion_to_matrix(unit.T)), -1, 0)


def lines(*pieces: np.ndarray) -> np.ndarray:
    """Join polylines `(pictures, points, 3)` into one, with gaps."""
    gap = np.broadcast_to(_GAP, (len(pieces[0]), 1, 3))
    return np.concatenate([x for piece in pieces for x in (piece, gap)][:-1], axis=1)


def split(*pieces: np.ndarray) -> np.ndarray:
    """Join polylines `(points, 3)` of one frame into one, with gaps."""
    return lines(*(piece[None] for piece in pieces))[0]


def pieces(points: np.ndarray) -> list[np.ndarray]:
    """Parts between the gaps of a polyline `(points, 3)` or `(points, 2)`."""
    gaps = np.flatnonzero(np.isnan(points[:, 0]))
    parts = np.split(points, gaps)
    found = [part[np.isfinite(part[:, 0])] for part in parts]
    return [part for part in found if len(part)]


def rotated(frame: Frames, vectors: np.ndarray) -> np.ndarray:
    """World vectors `(pictures, n, 3)` in the axes of the frame."""
    return np.einsum("tji,tnj->tni", frame.axes, vectors)


def between(*points: np.ndarray) -> np.ndarray:
    """The polyline through points `(pictures, 3)`."""
    return np.stack(points, axis=1)


def across(direction: np.ndarray, hint: np.ndarray) -> np.ndarray:
    """Unit vectors perpendicular to `direction`, `(pictures, 3)`, along `hint` x direction."""
    normal = np.cross(hint, direction)
    small = np.linalg.norm(normal, axis=1, keepdims=True) < 1e-6
    spare = np.cross(np.where(np.abs(direction[:, :1]) < 0.9, _X, _Y), direction)
    normal = np.where(small, spare, normal)
    return normal / np.linalg.norm(normal, axis=1, keepdims=True)


def unit(x: np.ndarray) -> np.ndarray:
    length = np.linalg.norm(x, axis=-1, keepdims=True)
    return np.where(length > 0, x / np.where(length > 0, length, 1.0), _Z)


def circle(radius: float, height: float = 0.0, sides: int = 24) -> np.ndarray:
    """Points `(sides + 1, 3)` of a circle around the z axis."""
    phi = np.linspace(0, 2 * np.pi, sides + 1)
    return np.stack([radius * np.cos(phi), radius * np.sin(phi), np.full_like(phi, height)], axis=1)


def spiral(inner: float, outer: float, turns: float) -> np.ndarray:
    """Points of an Archimedean spiral around the z axis."""
    phi = np.linspace(0, 2 * np.pi * turns, int(24 * turns))
    r = np.linspace(inner, outer, len(phi))
    return np.stack([r * np.cos(phi), r * np.sin(phi), np.zeros_like(phi)], axis=1)


def prism(radius: float, half: float, sides: int) -> list[np.ndarray]:
    """Faces of a prism around the z axis, each `(corners, 3)`."""
    turn = np.pi / sides if sides == 4 else 0.0
    phi = turn + np.linspace(0, 2 * np.pi, sides + 1)
    ring = radius * np.stack([np.cos(phi), np.sin(phi), 0 * phi], axis=1)
    low, high = ring - half * _Z, ring + half * _Z
    sheets = [np.array([low[i], low[i + 1], high[i + 1], high[i]]) for i in range(sides)]
    return [low[:-1], *sheets, high[:-1]]


def concrete(x: Any) -> np.ndarray:
    """Return x as a NumPy array. **Raises:** `ValueError` for traced values, inside `jax.jit`."""
    need_known(x, "Pictures need known numbers: make them outside of `jax.jit`.")
    return np.asarray(x)


class PointForces(NamedTuple):
    """World positions [m] of contact points and forces [N] there, `(pictures, points, 3)`; which
    are idle, `(pictures, points)`; and the length of arrows [m/N], or `None` to choose it."""

    at: np.ndarray
    force: np.ndarray
    idle: np.ndarray
    scale: float | None


def point_forces(
    mechanism: Mechanism, q: np.ndarray, world: np.ndarray, scale: float | None
) -> PointForces:
    """Forces on b, or on a if b is the ground, from coordinates `(pictures, nq)` and world forces
    on b, `(pictures, points, 3)`.

    **Raises:** `ValueError` for a scale that is not positive."""
    if scale is not None and not scale > 0:
        raise ValueError(f"Argument `force_scale` must be positive, but is {scale}.")
    at = np.asarray(_positions(mechanism, to_jax(q)), float)
    names = mechanism.contact_names[: at.shape[1]]
    sign = np.array([-1.0 if mechanism.contact(n).bodies[-1] == GROUND else 1.0 for n in names])
    force = sign[:, None] * np.asarray(world, float)
    size = np.linalg.norm(force, axis=2)
    idle = size <= no_force(q.dtype) * np.max(size, initial=0.0)
    return PointForces(at, force, idle, scale)


@eqx.filter_jit
def _positions(mechanism, q):
    return mechanism.contact_points(q).position


def mean_forces(t: np.ndarray, force: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Means since the previous picture, of forces `(saved times, points, 3)` that are themselves
    means since the previous saved time."""
    if len(t) < 2 or len(times) < 2:
        return np.broadcast_to(force[:1], (len(times), *force.shape[1:]))
    lasted = force[1:] * np.diff(t)[:, None, None]
    impulse = np.concatenate([np.zeros_like(force[:1]), np.cumsum(lasted, axis=0)])
    columns = impulse.reshape(len(t), -1).T
    at = np.array([np.interp(times, t, column) for column in columns]).reshape(-1, len(times)).T
    means = np.diff(at, axis=0) / np.diff(times)[:, None]
    # The first picture has none before it, and shows the mean of the next.
    return np.concatenate([means[:1], means]).reshape(len(times), *force.shape[1:])

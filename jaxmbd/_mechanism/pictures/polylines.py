"""Polylines in all pictures, in NumPy. The leading axis is the picture."""

from typing import NamedTuple

import numpy as np

_Z = np.eye(3)[2]
# Separates polylines that are kept as one.
_GAP = np.full(3, np.nan)


class View(NamedTuple):
    """The view of the pictures: unit vectors to the right and up, and down along gravity. `flat`
    pictures show the plane of right and up; the others are drawn in perspective."""

    right: np.ndarray
    up: np.ndarray
    down: np.ndarray
    flat: bool

    @property
    def depth(self) -> np.ndarray:
        """Unit vector along the line of sight."""
        return np.cross(self.right, self.up)


def lines(*pieces: np.ndarray) -> np.ndarray:
    """Join polylines `(pictures, points, 3)` into one, with gaps."""
    gap = np.broadcast_to(_GAP, (len(pieces[0]), 1, 3))
    return np.concatenate([x for piece in pieces for x in (piece, gap)][:-1], axis=1)


def split(*pieces: np.ndarray) -> np.ndarray:
    """Join polylines `(points, 3)` of one frame into one, with gaps."""
    return lines(*(piece[None] for piece in pieces))[0]


def pieces(points: np.ndarray) -> list[np.ndarray]:
    """Parts between the gaps of a polyline `(points, 3)` or `(points, 2)`."""
    parts = np.split(points, np.flatnonzero(np.isnan(points[:, 0])))
    found = [part[np.isfinite(part[:, 0])] for part in parts]
    return [part for part in found if len(part)]


def between(*points: np.ndarray) -> np.ndarray:
    """The polyline through points `(pictures, 3)`."""
    return np.stack(points, axis=1)


def circle(radius: float, height: float = 0.0, sides: int = 24) -> np.ndarray:
    """Points `(sides + 1, 3)` of a circle around the z axis."""
    phi = np.linspace(0, 2 * np.pi, sides + 1)
    return np.stack([radius * np.cos(phi), radius * np.sin(phi), np.full_like(phi, height)], axis=1)


def prism(radius: float, half: float, sides: int) -> list[np.ndarray]:
    """Faces of a prism around the z axis, each `(corners, 3)`."""
    turn = np.pi / sides if sides == 4 else 0.0
    phi = turn + np.linspace(0, 2 * np.pi, sides + 1)
    ring = radius * np.stack([np.cos(phi), np.sin(phi), 0 * phi], axis=1)
    low, high = ring - half * _Z, ring + half * _Z
    sheets = [np.array([low[i], low[i + 1], high[i + 1], high[i]]) for i in range(sides)]
    return [low[:-1], *sheets, high[:-1]]

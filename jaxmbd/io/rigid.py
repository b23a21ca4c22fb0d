"""Rigid transforms of vectors and unit quaternions, in NumPy where all numbers are concrete."""

from typing import Any, NamedTuple

import numpy as np

from .._compiler import numpy_if_concrete


def product(p: Any, q: Any) -> Any:
    """The quaternion p q."""
    xp = numpy_if_concrete(p, q)
    (a, b, c, d), (w, x, y, z) = p, q
    return xp.stack(
        [
            a * w - b * x - c * y - d * z,
            a * x + b * w + c * z - d * y,
            a * y - b * z + c * w + d * x,
            a * z + b * y - c * x + d * w,
        ]
    )


def conjugate(p: Any) -> Any:
    """The inverse of a unit quaternion."""
    return p * np.array([1.0, -1.0, -1.0, -1.0])


def cross(a: Any, b: Any) -> Any:
    """a x b."""
    xp = numpy_if_concrete(a, b)
    (x, y, z), (u, v, w) = a, b
    return xp.stack([y * w - z * v, z * u - x * w, x * v - y * u])


def rotate(p: Any, r: Any) -> Any:
    """r turned by p."""
    twice = 2 * cross(p[1:], r)
    return r + p[0] * twice + cross(p[1:], twice)


def turn(axis: Any, angle: Any) -> Any:
    """The quaternion of a rotation by `angle` about the unit vector `axis`."""
    xp = numpy_if_concrete(axis, angle)
    return xp.concatenate([xp.cos(angle / 2)[None], xp.sin(angle / 2) * axis])


def matrix(p: Any) -> np.ndarray:
    """The rotation matrix of a known quaternion."""
    return np.stack([rotate(np.asarray(p), e) for e in np.eye(3)], axis=1)


class Transform(NamedTuple):
    """The pose of a frame in another: its position and the quaternion of its orientation."""

    position: Any
    orientation: Any

    @classmethod
    def identity(cls) -> "Transform":
        return cls(np.zeros(3), np.eye(4)[0])

    def point(self, r: Any) -> Any:
        """The point r of the frame, in the other one."""
        return self.position + rotate(self.orientation, r)

    def compose(self, other: "Transform") -> "Transform":
        """The pose of a frame that is given in this one."""
        return Transform(self.point(other[0]), product(self.orientation, other[1]))

    def inverse(self) -> "Transform":
        """The pose of the other frame in this one."""
        back = conjugate(self.orientation)
        return Transform(-rotate(back, self.position), back)


def along(axis: np.ndarray) -> np.ndarray:
    """The shortest rotation of the z axis into a known unit vector."""
    x, y, z = axis
    s = 1 + abs(z)
    p = np.array([s, -y, x, 0.0]) if z >= 0 else np.array([-y, s, 0.0, x])
    return p / np.linalg.norm(p)

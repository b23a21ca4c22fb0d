"""The plane of a planar mechanism, and how its bodies lie in it."""

from collections.abc import Sequence
from types import ModuleType
from typing import Annotated

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiler import array_namespace, is_known, to_jax
from .._coordinates import algebra, components
from .._inputs import Numbers, Refusal, checked
from .._types import EitherArray
from .pose import Pose
from .relative import polar_angle
from .stack import one_of

# Unit vectors and right angles, typed with six digits.
_ROUNDING = 1e-5


def _known_direction(value: Numbers) -> np.ndarray:
    if not is_known(value):
        raise Refusal("must be known, and not traced: it decides which rows a joint has.")
    x = np.asarray(value, float)
    if x.shape != (3,) or not abs(np.linalg.norm(x) - 1) < _ROUNDING:
        raise Refusal(f"must be a unit vector of shape (3,), but is {x.tolist()}.")
    return x / np.linalg.norm(x)


class Plane(eqx.Module):
    """The plane in which the bodies of a planar `Mechanism` move. Its axes and its normal are
    right-handed: the positive angle turns the x axis into the y axis.

    **Fields:** `x_axis`, `y_axis`, `normal`: unit vectors in world axes.
    """

    x_axis: tuple[float, float, float] = eqx.field(static=True)
    y_axis: tuple[float, float, float] = eqx.field(static=True)
    normal: tuple[float, float, float] = eqx.field(static=True)

    @checked
    def __init__(
        self,
        normal: Annotated[Numbers, _known_direction] = (0.0, 0.0, 1.0),
        x_axis: Annotated[Numbers, _known_direction] | None = None,
    ):
        """**Arguments:**

        - `normal`: unit vector, shape `(3,)`.
        - `x_axis`: unit vector in the plane; by default along the x axis of the world, as seen in
          the plane, or along its y axis if the normal is its x axis.

        **Raises:** `ValueError` for other than unit vectors, for an `x_axis` that is not in the
        plane, and for traced ones.
        """
        n = np.asarray(normal)
        if x_axis is None:
            start = np.eye(3)[1 if abs(n[0]) > 0.999 else 0]
            x = start - n * (n @ start)
        else:
            x = np.asarray(x_axis)
            if not abs(n @ x) < _ROUNDING:
                raise ValueError(
                    f"Argument `x_axis` of Plane must be at right angles to the normal "
                    f"{n.tolist()}, but is {x.tolist()}."
                )
            x = x - n * (n @ x)
        x = x / np.linalg.norm(x)
        self.x_axis, self.y_axis, self.normal = (_numbers(axis) for axis in (x, np.cross(n, x), n))

    @property
    def axes(self) -> np.ndarray:
        """x axis, y axis and normal, as rows."""
        return np.array([self.x_axis, self.y_axis, self.normal])

    def spanned(self, v: Float[Array, "3 *rest"]) -> Float[Array, "6 *rest"]:
        """Velocities and angular velocities in world axes of (velocity along x, along y, angular
        velocity about the normal), or likewise forces and torques."""
        x, y, rate = components(v)
        none = jnp.zeros_like(x)
        rows = self.axes.T.tolist()
        parts = [_along(row, (x, y, none)) for row in rows]
        return jnp.stack([*parts, *(_along(row, (none, none, rate)) for row in rows)])

    def half_turn(self, p: Float[Array, "4 k"], q: Float[Array, "4 k"]) -> Float[Array, "2 k"]:
        """Cosine and sine of half the angle about the normal from the orientation p to q."""
        w, *u = components(algebra.quaternion_product(q, algebra.quaternion_conjugate(p)))
        z = _along(self.normal, u)
        size = jnp.sqrt(w * w + z * z)
        return jnp.stack([w / size, z / size])

    def __repr__(self) -> str:
        return f"Plane(normal={list(self.normal)}, x_axis={list(self.x_axis)})"


def _numbers(axis: np.ndarray) -> tuple[float, float, float]:
    # Without the signs of zeros, so that equal planes compare equal.
    x, y, z = (float(a) + 0.0 for a in axis)
    return x, y, z


class Flat(eqx.Module):
    """How bodies lie in a plane. A body has the coordinates (x, y, angle): the components of the
    position of its origin along the axes of the plane, and its rotation about the normal from where
    it lies at angle 0.

    - `height`: of the origins along the normal [m].
    - `still`, `turned`: orientations p at angle 0, and (0, n) p for the normal n. At another angle
      the orientation is cos(angle / 2) p + sin(angle / 2) (0, n) p.
    - `own`: x axis, y axis and normal of the plane, as rows, in the axes of the body at angle 0.

    Arrays have the body axis last.
    """

    plane: Plane
    height: Float[Array, "*bodies"]
    still: Float[Array, "4 *bodies"]
    turned: Float[Array, "4 *bodies"]
    own: Float[Array, "3 3 *bodies"]

    @classmethod
    def of(cls, plane: Plane, pose: Pose) -> "Flat":
        """Bodies that start in this pose. A body that is only turned about the normal has the axes
        of the world at angle 0."""
        x, p = pose
        xp = array_namespace(x, p)
        x, p, axes = xp.asarray(x), xp.asarray(p), np.asarray(plane.axes, x.dtype)
        w, z = p[0], xp.tensordot(axes[2], p[1:], 1)
        size = xp.sqrt(w * w + z * z)
        # Half a turn about an axis in the plane has no part about the normal.
        part = size > _ROUNDING
        c, s = (xp.where(part, a / xp.where(part, size, 1.0), b) for a, b in ((w, 1.0), (z, 0.0)))
        still = c[None] * p - s[None] * _normal_times(axes[2], p, xp)
        turned = _normal_times(axes[2], still, xp)
        own = xp.einsum("ij,jk...->ik...", axes, rotation(still))
        height = xp.tensordot(axes[2], x, 1)
        return cls(
            plane, *(jnp.asarray(a, pose.position.dtype) for a in (height, still, turned, own))
        )

    def with_ground(self) -> "Flat":
        """With the ground as the last body."""
        dtype = self.height.dtype
        n = np.concatenate([[0.0], self.plane.axes[2]])
        ground = (np.zeros(1), np.eye(4)[:, :1], n[:, None], self.plane.axes[:, :, None])
        own = (self.height, self.still, self.turned, self.own)
        xp = array_namespace(*own)
        return Flat(
            self.plane,
            *(
                to_jax(xp.concatenate([xp.asarray(x), xp.asarray(g, dtype)], axis=-1))
                for x, g in zip(own, ground, strict=True)
            ),
        )

    def one(self, i: int) -> "Flat":
        """Body number i."""
        return Flat(
            self.plane, *(one_of(x, i) for x in (self.height, self.still, self.turned, self.own))
        )

    # --- between the plane and space --------------------------------------------------------------

    def poses(
        self, q: Float[Array, "3 *bodies"], half: tuple[Array, Array] | None = None
    ) -> Float[Array, "7 *bodies"]:
        """Positions and quaternions. `half`: cosine and sine of half the angles, if known."""
        x, y, angle = components(q)
        cos, sin = (jnp.cos(angle / 2), jnp.sin(angle / 2)) if half is None else half
        position = self._spanned((x, y, self.height))
        return jnp.concatenate([position, cos[None] * self.still + sin[None] * self.turned])

    def axes(self, cos: Float[Array, "*bodies"], sin: Float[Array, "*bodies"]) -> Array:
        """Axes of bodies at these angles in world axes, as columns, shape `(3, 3, *bodies)`."""
        x, y, n = components(self.own)
        turned = (cos[None] * x - sin[None] * y, sin[None] * x + cos[None] * y, n)
        return self._spanned(turned)

    def twists(self, v: Float[Array, "3 *bodies"]) -> Float[Array, "6 *bodies"]:
        """Velocities and angular velocities in world axes."""
        return self.plane.spanned(v)

    def flattened(self, pose: Float[Array, "7 *bodies"]) -> Float[Array, "3 *bodies"]:
        """(x, y, angle) of poses, angles within half a turn; the inverse of `poses`."""
        conjugate = jnp.concatenate([self.still[:1], -self.still[1:]])
        w, *u = components(algebra.quaternion_product(pose[3:], conjugate))
        z = _along(self.plane.normal, u)
        angle = polar_angle(w * w - z * z, 2 * w * z)
        return jnp.stack([*self._in_plane(components(pose[:3])), angle])

    def flattened_twists(self, v: Float[Array, "6 *bodies"]) -> Float[Array, "3 *bodies"]:
        """(velocity along x and y, angular velocity about the normal) of twists."""
        return self.restricted(v, 0)

    def restricted(self, J: Array, axis: int) -> Array:
        """Covectors of planar motions from those of spatial ones: of the six components along an
        axis, the velocities along x and y and the rotation about the normal are left."""
        parts = components(J, axis)
        return jnp.stack(
            [*self._in_plane(parts[:3]), _along(self.plane.normal, parts[3:])], axis=axis
        )

    def _in_plane(self, vector: Sequence[Array]) -> list[Array]:
        return [_along(axis, vector) for axis in (self.plane.x_axis, self.plane.y_axis)]

    def _spanned(self, parts: Sequence[Array]) -> Float[Array, "3 *bodies"]:
        """The vector with these components along x, y and the normal."""
        return jnp.stack([_along(row, parts) for row in self.plane.axes.T.tolist()])


def turned(angle: Float[Array, "2 *rest"], r: Float[Array, "2 *rest"]) -> Float[Array, "2 *rest"]:
    """r, turned in the plane by an angle with this cosine and sine."""
    (c, s), (x, y) = components(angle), components(r)
    return jnp.stack([c * x - s * y, s * x + c * y])


def _along(axis: Sequence[float], vector: Sequence[Array]) -> Array:
    """The scalar product, without terms that are 0 for every vector."""
    first, *others = (x if a == 1 else a * x for a, x in zip(axis, vector, strict=True) if a)
    return sum(others, first)


def _normal_times(n: np.ndarray, p: EitherArray, xp: ModuleType) -> EitherArray:
    """(0, n) p."""
    w, x, y, z = p
    a, b, c = (float(i) for i in n)
    return xp.stack(
        [
            -a * x - b * y - c * z,
            a * w + b * z - c * y,
            b * w + c * x - a * z,
            c * w + a * y - b * x,
        ]
    )


def rotation(p: EitherArray) -> EitherArray:
    """The rotation matrix of a unit quaternion, by NumPy if it is known."""
    xp = array_namespace(p)
    w, x, y, z = xp.asarray(p)
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    return xp.stack([xp.stack(row) for row in rows])

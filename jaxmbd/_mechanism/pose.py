"""Position, orientation and velocity of a frame."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiler import array_namespace, is_known, refuted, split, to_jax
from .._coordinates import (
    AnyArray,
    QuaternionWorld,
    SameArray,
    algebra,
    components,
    cross,
    quaternion_from_matrix,
    quaternion_to_matrix,
)
from .._inputs import Refusal, finite
from .._types import DType
from .batching import over_leading_axes

# Tolerance for unit quaternions and rotation matrices. Numbers typed with six digits pass.
_ROUNDING = 1e-5


class Pose(NamedTuple):
    """Position [m] of a frame in world axes, and its orientation as a unit quaternion (w, x, y, z),
    from its own to world axes. A frame on a body has a pose relative to the body's frame.

    All methods accept leading axes, for example of saved times, and broadcast them: one vector
    for all poses, or one for each. Single poses and vectors in NumPy stay in NumPy."""

    position: Float[Array, "*batch 3"]
    orientation: Float[Array, "*batch 4"]

    @classmethod
    def identity(cls, dtype: DType) -> "Pose":
        """Pose at the origin, with the axes of the other frame."""
        return cls(to_jax(np.zeros(3), dtype), to_jax(np.eye(4)[0], dtype))

    @classmethod
    def of(cls, q: Float[Array, "*batch 7"]) -> "Pose":
        """Pose from the coordinates of a body."""
        return cls(*split(q, (3, 4)))

    @over_leading_axes
    def point(self, r: Float[AnyArray, "*#batch 3"]) -> Float[SameArray, "*batch 3"]:
        """World position of the point r of this frame."""
        return self.position + self.direction(r)

    @over_leading_axes
    def direction(self, d: Float[AnyArray, "*#batch 3"]) -> Float[SameArray, "*batch 3"]:
        """World components of the direction d of this frame."""
        return algebra.quaternion_rotate(self.orientation, d)

    @over_leading_axes
    def local_point(self, r: Float[AnyArray, "*#batch 3"]) -> Float[SameArray, "*batch 3"]:
        """Components in this frame of the world position r."""
        return self.local_direction(r - self.position)

    @over_leading_axes
    def local_direction(self, d: Float[AnyArray, "*#batch 3"]) -> Float[SameArray, "*batch 3"]:
        """Components in this frame of the world direction d."""
        return algebra.quaternion_rotate(algebra.quaternion_conjugate(self.orientation), d)

    @over_leading_axes
    def compose(self, frame: "Pose") -> "Pose":
        """World pose of a `frame` that is given relative to this one."""
        orientation = algebra.quaternion_product(self.orientation, frame.orientation)
        return Pose(self.point(frame.position), orientation)

    @over_leading_axes
    def inverse(self) -> "Pose":
        """The pose of the world in this frame."""
        inverse = algebra.quaternion_conjugate(self.orientation)
        return Pose(algebra.quaternion_rotate(inverse, -self.position), inverse)

    @over_leading_axes
    def rate(self, twist: "Twist") -> "Pose":
        """Time derivative of position and quaternion, for a frame that moves with `twist`."""
        return Pose(twist.linear, QuaternionWorld().qdot(self.orientation, twist.angular))

    @property
    def axes(self) -> tuple[Array, Array, Array]:
        """World components of the x, y and z axes, shape `(*batch, 3)` each."""
        return _axes(self)

    @over_leading_axes
    def relative(self, other: "Pose") -> "Pose":
        """The pose `other` relative to this frame; the inverse of `compose`."""
        inverse = algebra.quaternion_conjugate(self.orientation)
        orientation = algebra.quaternion_product(inverse, other.orientation)
        return Pose(self.local_point(other.position), orientation)


@jax.tree_util.register_pytree_node_class
class PoseWithAxes(Pose):
    """A pose that keeps the axes of the frame, for joints, forces and contacts at work. Their rate
    is omega x axis, so derivatives of vectors that the frame carries need none of a quaternion."""

    _axes: tuple[Array, Array, Array]

    def __new__(cls, position, orientation, axes):
        self = super().__new__(cls, position, orientation)
        self._axes = axes
        return self

    def tree_flatten(self):
        return (*self, self._axes), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)

    @property
    def axes(self):
        return self._axes

    @over_leading_axes
    def direction(self, d):
        return algebra.combined(self._axes, d)

    @over_leading_axes
    def local_direction(self, d):
        return algebra.along_axes(self._axes, d)

    @over_leading_axes
    def rate(self, twist):
        _, orientation = super().rate(twist)
        turning = tuple(algebra.cross(twist.angular, e) for e in self._axes)
        return PoseWithAxes(twist.linear, orientation, turning)


def with_axes(pose: Pose) -> PoseWithAxes:
    """The same pose, which keeps its axes."""
    return PoseWithAxes(*pose, pose.axes)


class Twist(NamedTuple):
    """Velocity [m/s] of the origin of a frame and its angular velocity [rad/s], in world axes. All
    methods accept leading axes, as in `Pose`."""

    linear: Float[Array, "*batch 3"]
    angular: Float[Array, "*batch 3"]

    @classmethod
    def of(cls, v: Float[Array, "*batch 6"]) -> "Twist":
        """Twist from the velocities of a body."""
        return cls(*split(v, (3, 3)))

    @over_leading_axes
    def at(self, arm: Float[AnyArray, "*#batch 3"]) -> Float[SameArray, "*batch 3"]:
        """Velocity of the point of the body at `arm` (world axes) from the origin."""
        return self.linear + algebra.cross(self.angular, arm)

    @over_leading_axes
    def moved(self, arm: Float[AnyArray, "*#batch 3"]) -> "Twist":
        """Twist of a frame of the body whose origin is at `arm` (world axes)."""
        return Twist(self.at(arm), self.angular)


class Wrench(NamedTuple):
    """Force [N] and torque [N m] on a frame, about its origin, in world axes."""

    force: Float[Array, "3"]
    torque: Float[Array, "3"]

    @classmethod
    def of_force(cls, force: Float[Array, "3"]) -> "Wrench":
        """A force at the origin. Its torque is zero already at trace time, so nothing is computed
        with it."""
        return cls(force, np.zeros(3, force.dtype))  # type: ignore[arg-type]

    @classmethod
    def of_torque(cls, torque: Float[Array, "3"]) -> "Wrench":
        """A pure torque. Its force is zero already at trace time."""
        return cls(np.zeros(3, torque.dtype), torque)  # type: ignore[arg-type]

    def times(self, factor: Float[Array, ""]) -> "Wrench":
        """The wrench times a number."""
        return Wrench(*(x if _nothing(x) else factor * x for x in self))

    def torque_about(self, arm: Float[Array, "3"]) -> Float[Array, "3"]:
        """The torque about another point, with `arm` from that point to the origin of the frame."""
        if _nothing(self.force):
            return self.torque
        moment = cross(arm, self.force)
        return moment if _nothing(self.torque) else self.torque + moment


def _nothing(x: Any) -> bool:
    """Whether it is zero at trace time."""
    return isinstance(x, np.ndarray) and not x.any()


def directions(rate: Callable[..., Float[Array, ""]], poses: Sequence[Pose]) -> tuple[Wrench, ...]:
    """The derivatives of a rate(poses, twists), which is linear in the twists, by the twists: the
    force and the torque on each frame that do the work of a unit force along the rate."""
    zero = jnp.zeros_like(poses[0].position)
    still = tuple(Twist(zero, zero) for _ in poses)
    _, transposed = jax.vjp(lambda twists: rate(poses, twists), still)
    (found,) = transposed(jnp.ones_like(zero[0]))
    return tuple(Wrench(*twist) for twist in found)


@over_leading_axes
def _axes(pose: Pose) -> tuple[Array, Array, Array]:
    x, y, z = components(quaternion_to_matrix(pose.orientation), axis=1)
    return x, y, z


def unit_quaternion(what: str, orientation: Any, dtype: DType) -> Float[Array, "4"]:
    """Return `orientation`, a quaternion or a rotation matrix, as a unit quaternion.

    **Raises:** `ValueError`, which begins with `what`, for any other known value.
    """
    value = finite(what, orientation, dtype, shape=None)
    if value.shape not in ((4,), (3, 3)):
        raise ValueError(
            f"{what} must be a quaternion, shape (4,), or a rotation matrix, shape (3, 3), but has "
            f"shape {value.shape}."
        )
    if is_known(value):
        x = np.asarray(value)
        if x.ndim == 1:
            proper = abs(np.linalg.norm(x) - 1) < _ROUNDING
        else:
            proper = np.all(np.abs(x @ x.T - np.eye(3)) < _ROUNDING) and np.linalg.det(x) > 0
        if not proper:
            raise ValueError(
                f"{what} must be a unit quaternion (w, x, y, z) or a right-handed rotation matrix, "
                f"but is {x.tolist()}."
            )
    p = quaternion_from_matrix(value) if value.ndim == 2 else value
    return normalised(p)


def normalised(x: Float[Array, " n"]) -> Float[Array, " n"]:
    """x / |x|."""
    xp = array_namespace(x)
    y = xp.asarray(x)
    return jnp.asarray(y / xp.sqrt(xp.sum(y * y)), x.dtype)


def _frame(pose: Pose) -> Pose:
    position, orientation = pose
    for name, x, size in (("position", position, 3), ("orientation", orientation, 4)):
        if np.shape(x) != (size,):
            raise Refusal(f"must have a `{name}` of shape ({size},), but it has {np.shape(x)}.")
        if refuted(np.isfinite, x):
            raise Refusal(f"must have a finite `{name}`, but it is {np.asarray(x).tolist()}.")
    if refuted(lambda p: abs(np.linalg.norm(p) - 1) <= _ROUNDING, orientation):
        raise Refusal(
            "must have a unit quaternion as `orientation`, but it has length "
            f"{np.linalg.norm(np.asarray(orientation)):.6g}. Divide by it."
        )
    return Pose(to_jax(position), to_jax(orientation))


# Pose of a frame on a body, as an argument.
Frame: TypeAlias = Annotated[Pose, _frame]

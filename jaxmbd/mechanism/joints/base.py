"""What a joint is: equations between a frame on one body and a frame on another."""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._checks import is_concrete
from ..._coordinates import quaternion_conjugate, quaternion_product
from ..._types import RealScalarLike
from ..body import GROUND, Body
from ..pose import Pose, unit_quaternion


class AbstractJoint(eqx.Module):
    """Equations Phi(A, B, t) = 0 between the world poses A and B of a frame on body a and of one on
    body b. The z axis of the frames is the axis of the joint.

    **Fields:**

    - `name`: by which reports know the joint.
    - `body_a`, `body_b`: names of the bodies.
    - `frame_a`, `frame_b`: poses of the frames relative to their bodies.

    A new kind of joint is a subclass that writes `constraint`, and says the number of its `rows`
    and whether it is `directed`.
    """

    name: str = eqx.field(static=True)
    body_a: str = eqx.field(static=True)
    body_b: str = eqx.field(static=True)
    frame_a: Pose
    frame_b: Pose

    rows: eqx.AbstractClassVar[int]
    # Whether it has an axis, so that one must be given.
    directed: eqx.AbstractClassVar[bool]

    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        point: Any = None,
        axis: Any = None,
        orientation: Any = None,
        frame_a: Pose | None = None,
        frame_b: Pose | None = None,
    ):
        """The frames are given in one of two ways:

        - both at once, in world axes, where the bodies are now (`Body.pose`): the `point` of
          the joint [m], and its unit `axis` or its whole `orientation` (unit quaternion or
          rotation matrix, whose third axis is that of the joint); `a` and `b` are then bodies or
          "ground";
        - one by one, relative to the bodies: `frame_a` and `frame_b`; here names will do.

        **Raises:** `ValueError` if something is missing, said twice, or no unit vector.
        """
        if not isinstance(name, str) or not name:
            raise ValueError(f"A joint needs a name, but `name` is {name!r}.")
        self.name = name
        self.body_a, self.body_b = _name_of(a, name), _name_of(b, name)
        if self.body_a == self.body_b:
            raise ValueError(f'Joint "{name}" must join two bodies, but both are "{self.body_a}".')
        if (frame_a is None) != (frame_b is None) or (frame_a is None) == (point is None):
            raise ValueError(
                f'Joint "{name}" needs either `point` (with `axis` or `orientation`), in the '
                "world, or both `frame_a` and `frame_b`, relative to the bodies."
            )
        if frame_a is not None and frame_b is not None:
            if axis is not None or orientation is not None:
                raise ValueError(
                    f'Joint "{name}" has frames, whose z axis is that of the joint: `axis` and '
                    "`orientation` say it twice."
                )
            self.frame_a, self.frame_b = frame_a, frame_b
            return
        if self.directed and axis is None and orientation is None:
            raise ValueError(
                f'{type(self).__name__} "{name}" has an axis: give `axis` or `orientation`.'
            )
        world = _world_frame(name, point, axis, orientation, _dtype_of(a, b))
        self.frame_a = _pose_of(a, name, world).relative(world)
        self.frame_b = _pose_of(b, name, world).relative(world)

    @abc.abstractmethod
    def constraint(self, a: Pose, b: Pose, t: RealScalarLike) -> Float[Array, " rows"]:
        """Phi at the world poses of the two frames [m, or 1 for angles], pure."""

    def coordinates(self, a: Pose, b: Pose) -> Float[Array, " freedoms"]:
        """Joint coordinates, as far as they have names: displacements [m], then angles [rad]
        within half a turn. Default: none."""
        del b
        return jnp.zeros(0, a.position.dtype)


# --- typical equations, over components ---------------------------------------------------------


def offset(a: Pose, b: Pose) -> Float[Array, "3"]:
    """Position of the origin of b in frame a [m]."""
    return a.local_point(b.position)


def tilt(a: Pose, b: Pose) -> Float[Array, "2"]:
    """Components of the axis of b across that of a: 0 where they are parallel."""
    return a.local_direction(z_axis(b))[:2]


def misaligned(a: Pose, b: Pose) -> Float[Array, "3"]:
    """Twice the vector part of the relative quaternion, to first order the small rotation from a to
    b: 0 for aligned frames, and for no other orientation."""
    p = quaternion_product(quaternion_conjugate(a.orientation), b.orientation)
    return jnp.where(p[0] < 0, -2 * p[1:], 2 * p[1:])


def x_axis(frame: Pose) -> Float[Array, "3"]:
    """World components of the x axis."""
    w, x, y, z = frame.orientation
    return jnp.stack([1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)])


def y_axis(frame: Pose) -> Float[Array, "3"]:
    """World components of the y axis."""
    w, x, y, z = frame.orientation
    return jnp.stack([2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x)])


def z_axis(frame: Pose) -> Float[Array, "3"]:
    """World components of the z axis."""
    w, x, y, z = frame.orientation
    return jnp.stack([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)])


def angle(a: Pose, b: Pose) -> Float[Array, ""]:
    """Angle [rad] from the x axis of a to that of b about the axis of a, in (-pi, pi]."""
    x, y, _ = a.local_direction(x_axis(b))
    return jnp.arctan2(y, x)


def unit_vector(what: str, value: Any, dtype: Any) -> Float[Array, "3"]:
    """**Raises:** `ValueError`, which begins with `what`, unless |value| = 1, if that is known."""
    value = jnp.asarray(value, dtype)
    if value.shape != (3,):
        raise ValueError(f"{what} must have shape (3,), but has {value.shape}.")
    if is_concrete(value) and not abs(np.linalg.norm(np.asarray(value)) - 1) < 1e-5:
        raise ValueError(
            f"{what} must be a unit vector, but {np.asarray(value).tolist()} has length "
            f"{np.linalg.norm(np.asarray(value)):.6g}. Divide by it."
        )
    return value / jnp.sqrt(jnp.sum(value * value))


def orientation_along(axis: Float[Array, "3"]) -> Float[Array, "4"]:
    """The shortest rotation that turns the z axis into the unit vector `axis`, or, for one that
    points downwards, the shortest one from -z after half a turn about x."""
    x, y, z = axis
    down = z < 0
    s = 1 + jnp.abs(z)  # 2 cos^2 of half the angle, at least 1
    o = jnp.zeros_like(s)
    # (s, -y, x, 0) turns z into the axis; (s, y, -x, 0) (0, 1, 0, 0) = (-y, s, 0, x) does below.
    p = jnp.where(down, jnp.stack([-y, s, o, x]), jnp.stack([s, -y, x, o]))
    return p / jnp.sqrt(2 * s)


def _name_of(body: Body | str, joint: str) -> str:
    if isinstance(body, Body):
        return body.name
    if isinstance(body, str) and body:
        return body
    raise ValueError(
        f'Joint "{joint}" must join bodies, given as `Body` or by name, or "{GROUND}", but got '
        f"{body!r}."
    )


def _pose_of(body: Body | str, joint: str, like: Pose) -> Pose:
    if isinstance(body, Body):
        return body.pose
    if body != GROUND:
        raise ValueError(
            f'Joint "{joint}" is given in the world, so where "{body}" is must be known: give the '
            "`Body` instead of its name, or `frame_a` and `frame_b`."
        )
    identity = jnp.array([1.0, 0.0, 0.0, 0.0], like.orientation.dtype)
    return Pose(jnp.zeros_like(like.position), identity)


def _dtype_of(*bodies: Body | str) -> Any:
    dtypes = [body.pose.position.dtype for body in bodies if isinstance(body, Body)]
    return jnp.result_type(*dtypes) if dtypes else jnp.result_type(float)


def _world_frame(name: str, point: Any, axis: Any, orientation: Any, dtype: Any) -> Pose:
    point = jnp.asarray(point, dtype)
    if point.shape != (3,):
        raise ValueError(f'`point` of joint "{name}" must have shape (3,), but has {point.shape}.')
    if axis is not None and orientation is not None:
        raise ValueError(f'Joint "{name}" needs `axis` or `orientation`, not both.')
    if orientation is not None:
        what = f'`orientation` of joint "{name}"'
        return Pose(point, unit_quaternion(what, orientation, dtype))
    if axis is None:
        axis = (0.0, 0.0, 1.0)
    return Pose(point, orientation_along(unit_vector(f'`axis` of joint "{name}"', axis, dtype)))

"""Rows of one element and their derivatives along the motions of its bodies.

Each column of a Jacobian is one directional derivative of one pose, the others being constants:
XLA shares what all have in common. Columns are taken at the frames of the element and carried over
to the bodies, whose tilts also shift the frames.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._coordinates import components
from .._types import RealScalarLike
from .body import BODY_COORDINATES
from .element import AbstractElement
from .pose import Pose, Twist

# A body's coordinates (position, quaternion) and its velocities, for each end of an element.
_Bodies = Sequence[Float[Array, "7"]]
_Velocities = Sequence[Float[Array, "6"]]


class Linearised(NamedTuple):
    """Rows of one element: `value` (Phi or Psi), `velocity` (Phi' or Psi), its time derivative
    `drift` at constant velocities, and for each end the columns `J`, shape `(rows, 6)`."""

    value: Float[Array, " rows"]
    velocity: Float[Array, " rows"]
    drift: Float[Array, " rows"]
    J: list[Float[Array, "rows 6"]]


def frame_poses(element: AbstractElement, qs: _Bodies) -> tuple[Pose, ...]:
    """World poses of its frames from those of its bodies."""
    return tuple(Pose.of(q).compose(frame) for q, frame in zip(qs, element.frames, strict=True))


def frame_twists(element: AbstractElement, qs: _Bodies, vs: _Velocities) -> tuple[Twist, ...]:
    """World twists of its frames."""
    return tuple(
        Twist.of(v).moved(arm)
        for v, arm in zip(vs, _arms(frame_poses(element, qs), qs), strict=True)
    )


def holonomic(
    element: AbstractElement,
    phi: Callable,
    qs: _Bodies,
    vs: _Velocities,
    t: RealScalarLike,
    moving: Sequence[bool],
) -> Linearised:
    """Of Phi(poses, t). Ends that are not `moving`, all on the ground, have no columns."""
    poses = frame_poses(element, qs)

    def along(qs, t):
        return phi(frame_poses(element, qs), t)

    def velocity(qs, t):
        return jax.jvp(along, (qs, t), (_rates(qs, vs), jnp.ones_like(t)))[1]

    def column(end, i):
        x, p = poses[end]
        if i < 3:
            return _derivative(lambda x: phi(_replaced(poses, end, Pose(x, p)), t), x, _unit(x, i))
        direction = 0.5 * _tilted(p, i - 3)
        return _derivative(lambda p: phi(_replaced(poses, end, Pose(x, p)), t), p, direction)

    # At constant velocities q'' follows from q' = N(q) v: `velocity` is differentiated whole.
    rate, drift = jax.jvp(velocity, (qs, t), (_rates(qs, vs), jnp.ones_like(t)))
    value = phi(poses, t)
    return Linearised(value, rate, drift, _columns(column, _arms(poses, qs), moving, value))


def nonholonomic(
    element: AbstractElement,
    psi: Callable,
    qs: _Bodies,
    vs: _Velocities,
    t: RealScalarLike,
    moving: Sequence[bool],
) -> Linearised:
    """Of Psi(poses, twists, t)."""
    poses, twists = frame_poses(element, qs), frame_twists(element, qs, vs)

    def along(qs, t):
        return psi(frame_poses(element, qs), frame_twists(element, qs, vs), t)

    def column(end, i):
        v, w = twists[end]
        if i < 3:
            replace, x = (lambda v: Twist(v, w)), v
        else:
            replace, x = (lambda w: Twist(v, w)), w
        moved = lambda x: psi(poses, _replaced(twists, end, replace(x)), t)  # noqa: E731
        return _derivative(moved, x, _unit(x, i % 3))

    value, drift = jax.jvp(along, (qs, t), (_rates(qs, vs), jnp.ones_like(t)))
    return Linearised(value, value, drift, _columns(column, _arms(poses, qs), moving, value))


def _columns(
    column: Callable, arms: Sequence[Array], moving: Sequence[bool], like: Array
) -> list[Float[Array, "rows 6"]]:
    """Derivatives along shifts and tilts of each frame, `column(end, i)`, carried over to the
    bodies: a tilt d of the body shifts the frame by d x arm."""
    J = []
    for end, (arm, moves) in enumerate(zip(arms, moving, strict=True)):
        if not moves:
            J.append(jnp.zeros((like.shape[0], 6), like.dtype))
            continue
        columns = [column(end, i) for i in range(6)]
        (x, y, z), (a, b, c) = components(arm), columns[:3]
        carried = [y * c - z * b, z * a - x * c, x * b - y * a]
        tilts = [tilt + more for tilt, more in zip(columns[3:], carried, strict=True)]
        J.append(jnp.stack([*columns[:3], *tilts], axis=1))
    return J


def _arms(poses: Sequence[Pose], qs: _Bodies) -> list[Float[Array, "3"]]:
    return [pose.position - Pose.of(q).position for pose, q in zip(poses, qs, strict=True)]


def _derivative(fn: Callable, x: Array, direction: Array) -> Array:
    return jax.jvp(fn, (x,), (direction,))[1]


def _unit(like: Float[Array, "3"], i: int) -> Float[Array, "3"]:
    return jnp.eye(3, dtype=like.dtype)[i]


def _replaced(items, i, item):
    return (*items[:i], item, *items[i + 1 :])


def _tilted(p: Float[Array, "4"], i: int) -> Float[Array, "4"]:
    """Quaternion product of the unit vector number i with p."""
    w, x, y, z = components(p)
    return jnp.stack([(-x, w, -z, y), (-y, z, w, -x), (-z, -y, x, w)][i])


def _rates(qs: _Bodies, vs: _Velocities) -> tuple[Float[Array, "7"], ...]:
    """q' = N(q) v."""
    return tuple(BODY_COORDINATES.qdot(q, v) for q, v in zip(qs, vs, strict=True))

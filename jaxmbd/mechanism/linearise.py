"""Rows of one element and their derivatives along the motions of its bodies.

A Jacobian is taken along the six unit twists of each frame at once, by one program. Then it is
transformed to the bodies, whose rotations also shift the frames.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._coordinates import components, cross, dot, quaternion_rotate
from .._fusion import materialise
from .._types import RealScalarLike
from .element import AbstractElement, AbstractFramed
from .joints import AbstractConstraint
from .pose import Pose, Twist

# Coordinates (position, quaternion) and velocities of the body at each end of an element.
_Bodies = Sequence[Float[Array, "7"]]
_Velocities = Sequence[Float[Array, "6"]]


class Linearised(NamedTuple):
    """Rows of one element: `value` (Phi or Psi), `velocity` (Phi' or Psi), the time derivative
    `drift` of that at constant velocities, and `J` for the velocities of the body at each end."""

    value: Float[Array, " rows"]
    velocity: Float[Array, " rows"]
    drift: Float[Array, " rows"]
    J: list[Float[Array, "rows 6"]]


def frame_poses(element: AbstractFramed, qs: _Bodies) -> tuple[Pose, ...]:
    """World poses of the frames of an element, from those of its bodies."""
    poses = [Pose.of(q).compose(frame) for q, frame in zip(qs, element.frames, strict=True)]
    # Positions are kept apart from orientations, since many elements need only one of them.
    positions, orientations = (
        materialise(jnp.concatenate(parts)) for parts in zip(*poses, strict=True)
    )
    places = jax.lax.split(positions, [3] * len(poses))
    turns = jax.lax.split(orientations, [4] * len(poses))
    return tuple(map(Pose, places, turns))


def frame_twists(element: AbstractFramed, qs: _Bodies, vs: _Velocities) -> tuple[Twist, ...]:
    """World twists of the frames of an element."""
    return _moved(vs, _arms(element, qs))


def holonomic(
    element: AbstractElement,
    phi: Callable,
    qs: _Bodies,
    vs: _Velocities,
    t: RealScalarLike,
    moving: Sequence[bool],
) -> Linearised:
    """Linearise Phi(poses, t). Ends that are not `moving`, all on the ground, have J = 0."""
    poses, arms = frame_poses(element, qs), _arms(element, qs)
    twists = _moved(vs, arms)
    rates = _pose_rates(poses, twists)
    # At constant velocities arm'' = w x (w x arm), and p' = w p / 2 gives p'' = -w^2 p / 4.
    bent = tuple(
        Pose(cross(w, cross(w, arm)), -dot(w, w) / 4 * p)
        for (_, w), (_, p), arm in zip(twists, poses, arms, strict=True)
    )
    one = jnp.ones_like(t)

    def velocity(poses, rates, t):
        return jax.jvp(phi, (poses, t), (rates, one))[1]

    def derivative(end, twist):
        moved = lambda pose: phi(_replaced(poses, end, pose), t)  # noqa: E731
        return _derivative(moved, poses[end], poses[end].rate(twist))

    rate, drift = jax.jvp(velocity, (poses, rates, t), (rates, bent, one))
    value = phi(poses, t)
    return Linearised(value, rate, drift, _columns(derivative, arms, moving, value))


def nonholonomic(
    element: AbstractElement,
    psi: Callable,
    qs: _Bodies,
    vs: _Velocities,
    t: RealScalarLike,
    moving: Sequence[bool],
) -> Linearised:
    """Linearise Psi(poses, twists, t)."""
    poses, arms = frame_poses(element, qs), _arms(element, qs)
    twists = _moved(vs, arms)
    if jax.eval_shape(psi, poses, twists, t).shape == (0,):
        none = jnp.zeros(0, qs[0].dtype)
        return Linearised(none, none, none, [jnp.zeros((0, 6), none.dtype) for _ in arms])

    def derivative(end, twist):
        moved = lambda x: psi(poses, _replaced(twists, end, x), t)  # noqa: E731
        return _derivative(moved, twists[end], twist)

    bent = tuple(
        Twist(cross(w, cross(w, arm)), jnp.zeros_like(w))
        for (_, w), arm in zip(twists, arms, strict=True)
    )
    motion = (_pose_rates(poses, twists), bent, jnp.ones_like(t))
    value, drift = jax.jvp(psi, (poses, twists, t), motion)
    return Linearised(value, value, drift, _columns(derivative, arms, moving, value))


def along(
    element: AbstractConstraint,
    qs: _Bodies,
    vs: _Velocities,
    changes: _Velocities,
    t: RealScalarLike,
) -> tuple[Float[Array, " rows"], Float[Array, " velocity_rows"]]:
    """J times changes of the velocities of the bodies, for holonomic and nonholonomic rows, by one
    directional derivative."""
    poses, arms = frame_poses(element, qs), _arms(element, qs)
    twists, by = _moved(vs, arms), _moved(changes, arms)
    shifts = _pose_rates(poses, by)
    _, position = jax.jvp(lambda poses: element.equations(poses, t), (poses,), (shifts,))
    psi = lambda twists: element.velocity_equations(poses, twists, t)  # noqa: E731
    _, velocity = jax.jvp(psi, (twists,), (by,))
    return position, velocity


def _columns(
    derivative: Callable, arms: Sequence[Array], moving: Sequence[bool], like: Array
) -> list[Float[Array, "rows 6"]]:
    """`derivative(end, twist)` along unit twists of each frame, transformed to the bodies. A
    rotation d of the body shifts the frame by d x arm."""
    J = []
    for end, (arm, moves) in enumerate(zip(arms, moving, strict=True)):
        if not moves or like.shape[0] == 0:
            J.append(jnp.zeros((like.shape[0], 6), like.dtype))
            continue
        units = jnp.eye(6, dtype=like.dtype)
        columns = components(materialise(jax.vmap(lambda d: derivative(end, Twist.of(d)))(units)))
        (x, y, z), (a, b, c) = components(arm), columns[:3]
        carried = [y * c - z * b, z * a - x * c, x * b - y * a]
        tilts = [tilt + more for tilt, more in zip(columns[3:], carried, strict=True)]
        J.append(jnp.stack([*columns[:3], *tilts], axis=1))
    return J


def _arms(element: AbstractFramed, qs: _Bodies) -> list[Float[Array, "3"]]:
    """Vectors from the origins of the bodies to those of the frames, in world axes.

    Between steps the norm s = |p| of a quaternion is not exactly 1, and it turns r into
    s^2 R r + (1 - s^2) r. Only the first part moves with the body, since p' = w p / 2 keeps s. With
    this part as the arm, rates and J are the exact derivatives of Phi as computed. The violation is
    then thirty times smaller."""

    def arm(q, r):
        _, p = Pose.of(q)
        w, x, y, z = components(p)
        return quaternion_rotate(p, r) + (w * w + x * x + y * y + z * z - 1) * r

    return [arm(q, frame.position) for q, frame in zip(qs, element.frames, strict=True)]


def _moved(vs: _Velocities, arms: Sequence[Float[Array, "3"]]) -> tuple[Twist, ...]:
    return tuple(Twist.of(v).moved(arm) for v, arm in zip(vs, arms, strict=True))


def _pose_rates(poses: Sequence[Pose], twists: Sequence[Twist]) -> tuple[Pose, ...]:
    return tuple(pose.rate(twist) for pose, twist in zip(poses, twists, strict=True))


def _derivative(fn: Callable, x: Pose | Twist, direction: Pose | Twist) -> Float[Array, " rows"]:
    return jax.jvp(fn, (x,), (direction,))[1]


def _replaced(items, i, item):
    return (*items[:i], item, *items[i + 1 :])

"""Rows of one element and their derivatives along the motions of its bodies.

A Jacobian is taken along the six unit twists of each frame at once, by one program. Then it is
transformed to the bodies, whose rotations also shift the frames.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._compiler import materialise
from .._coordinates import (
    apply_matrix,
    body_axes,
    components,
    cross,
    dot,
    matrix_product,
    quaternion_product,
)
from .._types import RealScalarLike
from .coordinates import Placed
from .element import AbstractElement, AbstractFramed
from .joints import AbstractConstraint
from .pose import Pose, PoseWithAxes, Twist, directions

# Coordinates and velocities of the body at each end of an element.
_Bodies = Sequence[Placed | Float[Array, "7"]]
_Velocities = Sequence[Float[Array, "6"]]


class Linearised(NamedTuple):
    """Rows of one element: `phi` (Phi), `velocity` (Phi' and then Psi), the time derivative `drift`
    of that at constant velocities, and `J` for the velocities of the body at each end."""

    phi: Float[Array, " nh"]
    velocity: Float[Array, " rows"]
    drift: Float[Array, " rows"]
    J: list[Float[Array, "rows 6"]]


def frame_poses(element: AbstractFramed, qs: _Bodies) -> tuple[PoseWithAxes, ...]:
    """World poses of the frames of an element, from its bodies."""
    return poses_on(qs, element.frames)


def poses_on(qs: _Bodies, frames: Sequence[Pose]) -> tuple[PoseWithAxes, ...]:
    """World poses of a frame on each of the bodies."""
    positions, orientations, axes = [], [], []
    for body, frame in zip(map(_placed, qs), frames, strict=True):
        positions.append(body.position + apply_matrix(body.axes, frame.position))
        orientations.append(quaternion_product(body.orientation, frame.orientation))
        axes.append(matrix_product(body.axes, body_axes(frame.orientation)))
    # Each apart, since many elements need only one of them.
    x, p, R = (materialise(jnp.stack(parts)) for parts in (positions, orientations, axes))
    return tuple(
        PoseWithAxes(x, p, tuple(components(R, axis=1)))
        for x, p, R in zip(*map(components, (x, p, R)), strict=True)
    )


def frame_twists(element: AbstractFramed, qs: _Bodies, vs: _Velocities) -> tuple[Twist, ...]:
    """World twists of the frames of an element."""
    return _moved(vs, _arms(element, qs))


def linearised(
    element: AbstractElement,
    phi: Callable,
    psi: Callable,
    qs: _Bodies,
    vs: _Velocities,
    t: RealScalarLike,
    moving: Sequence[bool],
) -> Linearised:
    """Linearise Phi(poses, t) and Psi(poses, twists, t), of which one may be `no_rows`. Ends that
    are not `moving`, all on the ground, have J = 0."""
    poses, arms = frame_poses(element, qs), _arms(element, qs)
    twists = _moved(vs, arms)
    rates = _pose_rates(poses, twists)
    # At constant velocities p' = w p / 2 gives p'' = -w^2 p / 4.
    speeding = _speeding(twists, arms)
    bent = tuple(
        PoseWithAxes(
            lift.linear,
            -dot(w, w) / 4 * pose.orientation,
            tuple(cross(w, cross(w, e)) for e in pose.axes),
        )
        for lift, (_, w), pose in zip(speeding, twists, poses, strict=True)
    )
    one = jnp.ones_like(t)

    def velocity(poses, rates, twists, t):
        _, holonomic = jax.jvp(phi, (poses, t), (rates, one))
        return jnp.concatenate([holonomic, psi(poses, twists, t)])

    def derivative(end, twist):
        at = lambda pose: phi(_replaced(poses, end, pose), t)  # noqa: E731
        of = lambda x: psi(poses, _replaced(twists, end, x), t)  # noqa: E731
        holonomic = _derivative(at, poses[end], poses[end].rate(twist))
        return jnp.concatenate([holonomic, _derivative(of, twists[end], twist)])

    rate, drift = jax.jvp(velocity, (poses, rates, twists, t), (rates, bent, speeding, one))
    return Linearised(phi(poses, t), rate, drift, _columns(derivative, arms, moving, rate))


def linearised_rate(
    rate: Callable[..., Float[Array, ""]],
    element: AbstractFramed,
    qs: _Bodies,
    vs: _Velocities,
) -> tuple[list[Float[Array, "6"]], Float[Array, ""]]:
    """For a rate(poses, twists) = R v of an element that is linear in the twists: R for the
    velocities of the body at each end, and R' v."""
    poses, arms = frame_poses(element, qs), _arms(element, qs)
    twists = _moved(vs, arms)
    changes = _pose_rates(poses, twists), _speeding(twists, arms)
    _, drift = jax.jvp(rate, (poses, twists), changes)
    R = [
        jnp.concatenate([f, m + cross(arm, f)])
        for (f, m), arm in zip(directions(rate, poses), arms, strict=True)
    ]
    return R, drift


def no_rows(poses: tuple[Pose, ...], *_: Any) -> Float[Array, "0"]:
    """The equations of an element without rows of one level."""
    return jnp.zeros(0, poses[0].position.dtype)


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
        columns = components(
            materialise(jax.vmap(lambda d, end=end: derivative(end, Twist.of(d)))(units))
        )
        (x, y, z), (a, b, c) = components(arm), columns[:3]
        carried = [y * c - z * b, z * a - x * c, x * b - y * a]
        tilts = [tilt + more for tilt, more in zip(columns[3:], carried, strict=True)]
        J.append(jnp.stack([*columns[:3], *tilts], axis=1))
    return J


def _placed(body: Placed | Float[Array, "7"]) -> Placed:
    return body if isinstance(body, Placed) else Placed.of(body)


def _arms(element: AbstractFramed, qs: _Bodies) -> list[Float[Array, "3"]]:
    """Vectors from the origins of the bodies to the frames, in world axes."""
    return [
        apply_matrix(_placed(body).axes, frame.position)
        for body, frame in zip(qs, element.frames, strict=True)
    ]


def _moved(vs: _Velocities, arms: Sequence[Float[Array, "3"]]) -> tuple[Twist, ...]:
    return tuple(Twist.of(v).moved(arm) for v, arm in zip(vs, arms, strict=True))


def _speeding(twists: Sequence[Twist], arms: Sequence[Float[Array, "3"]]) -> tuple[Twist, ...]:
    """Rates of the twists at constant velocities of the bodies: arm'' = w x (w x arm)."""
    return tuple(
        Twist(cross(w, cross(w, arm)), jnp.zeros_like(w))
        for (_, w), arm in zip(twists, arms, strict=True)
    )


def _pose_rates(poses: Sequence[Pose], twists: Sequence[Twist]) -> tuple[Pose, ...]:
    return tuple(pose.rate(twist) for pose, twist in zip(poses, twists, strict=True))


def _derivative(fn: Callable, x: Pose | Twist, direction: Pose | Twist) -> Float[Array, " rows"]:
    return jax.jvp(fn, (x,), (direction,))[1]


def _replaced(items, i, item):
    return (*items[:i], item, *items[i + 1 :])

"""What a joint exerts on its bodies, from its multipliers."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._coordinates import cross
from .._types import Coordinates, RealScalarLike, Velocity
from .body import BODY_COORDINATES
from .pose import Pose, Twist

if TYPE_CHECKING:  # `mechanism` imports this module
    from .mechanism import Mechanism


def transmission(
    mechanism: "Mechanism",
    choice: tuple[str, str, str | None],
    t: RealScalarLike,
    q: Coordinates,
    v: Velocity,
    point: Float[Array, "3"],
) -> Callable[[Float[Array, " rows"]], tuple[Float[Array, "3"], Float[Array, "3"]]]:
    """The linear map from the multipliers of a joint to the force and the torque about the point,
    on one of its bodies. `choice`: the names of the joint and the body, and that of the body in
    whose frame of the joint the components are, or `None` for those in world axes."""
    name, on, frame = choice
    joint = mechanism.joint(name)
    if mechanism.plane is not None:
        pull = _planar_transmission(mechanism, joint, on, t, q, v, point)
        return _in_frame(pull, mechanism, joint, frame, q)
    poses, twists = mechanism.frames(joint, q), mechanism.frame_twists(joint, q, v)
    moves = [body == on for body in joint.bodies]

    def equations(shift, tilt):
        displaced, faster = [], []
        for pose, twist, yes in zip(poses, twists, moves, strict=True):
            at = jnp.concatenate(pose)
            along = jnp.concatenate([shift + cross(tilt, pose.position - point), tilt])
            at = at + BODY_COORDINATES.qdot(at, along) if yes else at
            displaced.append(Pose(at[:3], at[3:]))
            moving = Twist(twist.linear + along[:3], twist.angular + along[3:])
            faster.append(moving if yes else twist)
        holonomic = joint.equations(tuple(displaced), t)
        return jnp.concatenate([holonomic, joint.velocity_equations(poses, tuple(faster), t)])

    o = jnp.zeros_like(point)
    _, pull = jax.vjp(equations, o, o)
    return _in_frame(pull, mechanism, joint, frame, q)


def _planar_transmission(mechanism, joint, on, t, q, v, point) -> Callable:
    """In a plane only the rows that act there have multipliers. What the plane carries is 0."""
    end, normal = joint.bodies.index(on), jnp.asarray(mechanism.plane.axes[2], q.dtype)
    J = jnp.concatenate(
        [
            piece[end, :, :, kind.names.index(joint.name)]
            for kind, piece in mechanism.jacobian_with_ground(t, q, v)
            if joint.name in kind.names
        ]
    )
    arm = mechanism.pose(q, on).position - point

    def pull(lam):
        # Forces have the same components along the axes of the plane as velocities.
        wrench = mechanism.plane.spanned(jnp.sum(lam[:, None] * J, axis=0))
        force, torque = wrench[:3], wrench[3:]
        return force, torque + jnp.sum(normal * cross(arm, force)) * normal

    return pull


def _in_frame(pull, mechanism, joint, frame, q) -> Callable:
    """The components in the frame on the body `frame`, `None` for those in world axes."""
    if frame is None:
        return pull
    of = mechanism.frames(joint, q)[joint.bodies.index(frame)]
    return lambda lam: tuple(of.local_direction(x) for x in pull(lam))

"""Forces of all joints along a motion."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..mechanism import Mechanism
from ..mechanism.pictures.geometry import body_frames


class JointLoad(NamedTuple):
    """What a joint exerts on one of its bodies: the name of the body, the point of the joint in the
    frame of the body [m], force [N] and torque about the point [N m] in world axes,
    `(times, 3)`."""

    body: str
    point: np.ndarray
    force: np.ndarray
    torque: np.ndarray


def joint_loads(mechanism: Mechanism, t: Array, q: Array, v: Array, lam: Array) -> dict:
    """The `JointLoad` of each joint, on its last body that moves: those of `mbd.reports.reactions`,
    from J^T lam of all joints in one program."""
    names = mechanism.body_stack.names
    axes = _orientations(mechanism, np.asarray(q))
    total: dict[str, JointLoad] = {}
    kinds = [joints for joints, rows in mechanism.row_counts() if rows]
    if not kinds:
        return total
    outlines = {joint.name: joint for joint in mechanism.joints}
    for joints, piece in zip(kinds, _transmitted(mechanism, t, q, v, lam), strict=True):
        piece = np.asarray(piece, float)  # (times, ends, 6, joints)
        for k, name in enumerate(joints.names):
            joint = outlines[name]
            moving = [i for i, body in enumerate(joint.bodies) if body in names]
            if len(set(joint.bodies)) < len(joint.bodies):
                continue  # the two ends of a body are added up, so neither is known
            end = moving[-1]
            body = joint.bodies[end]
            point = np.asarray(joint.frames[end].position, float)
            arm = np.einsum("tij,j->ti", axes[body], point)
            force = piece[:, end, :3, k]
            torque = piece[:, end, 3:, k] - np.cross(arm, force)
            if name in total:  # nonholonomic rows of the same joint
                force, torque = force + total[name].force, torque + total[name].torque
            total[name] = JointLoad(body, point, force, torque)
    return total


def _orientations(mechanism: Mechanism, q: np.ndarray) -> dict[str, np.ndarray]:
    return {name: frame.axes for name, frame in body_frames(mechanism, q).items()}


@eqx.filter_jit
def _transmitted(mechanism, t, q, v, lam):
    def one(t, q, v, lam):
        found, start = [], 0
        for piece in mechanism.linearised(t, q, v).J.pieces:
            _, rows, _, count = piece.shape
            own = lam[start : start + rows * count].reshape(rows, count)
            found.append(jnp.einsum("ersk,rk->esk", piece, own))
            start += rows * count
        return found

    return jax.vmap(one)(t, q, v, lam)

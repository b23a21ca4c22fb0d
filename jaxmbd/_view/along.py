"""What is plotted and drawn along a motion, in one program. To compile one for each report would
take longer than the rest of the page."""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..mechanism import (
    AbstractJoint,
    Mechanism,
    frame_poses,
    frame_twists,
    gravitational_energies,
    kinetic_energies,
    rotor_energies,
    stored_energies,
    with_turns,
)
from ..mechanism.pictures import body_frames


class JointLoad(NamedTuple):
    """What a joint exerts on one of its bodies: the name of the body, the point of the joint in the
    frame of the body [m], force [N] and torque about the point [N m] in world axes,
    `(times, 3)`."""

    body: str
    point: np.ndarray
    force: np.ndarray
    torque: np.ndarray


class Along(NamedTuple):
    """Numbers at the saved times.

    - `coordinates`: of each joint, `(times, coordinates)`, as `mbd.reports.joint_path`.
    - `loads`: the `JointLoad` of each joint on its last body that moves, as
      `mbd.reports.reactions`. Joints that have two frames on one body are left out.
    - `energies`: "kinetic", "gravity" and "stored" [J].
    """

    coordinates: dict[str, np.ndarray]
    loads: dict[str, JointLoad]
    energies: dict[str, np.ndarray]


def along(mechanism: Mechanism, t: Any, q: Any, v: Any, lam: Any) -> Along:
    """Evaluate a motion. Without multipliers, `None`, there are no loads."""
    found = jax.tree.map(np.asarray, _table(mechanism, t, q, v, lam))
    paths, transmitted, energies = found
    joints = {joint.name: joint for joint in mechanism.joints}
    coordinates = {}
    for kind, x in zip(_with_coordinates(mechanism), paths, strict=True):
        for k, name in enumerate(kind.names):
            coordinates[name] = x[..., k]
    loads = {} if lam is None else _loads(mechanism, joints, np.asarray(q), transmitted)
    ordered = {name: coordinates[name] for name in joints if name in coordinates}
    return Along(ordered, {name: loads[name] for name in joints if name in loads}, energies)


@eqx.filter_jit
def _table(mechanism, t, q, v, lam):
    def one(t, q, v, lam):
        def of_joint(joint, qs, vs):
            poses, twists = frame_poses(joint, qs), frame_twists(joint, qs, vs)
            return joint.coordinates(*poses), joint.rates(*poses, *twists)

        moves = [mechanism.tables.map(kind, of_joint, q, v) for kind in kinds]
        return moves, _transmitted(mechanism, t, q, v, lam), _energies(mechanism, t, q, v)

    kinds = _with_coordinates(mechanism)
    moves, transmitted, energies = jax.vmap(one)(t, q, v, lam)
    paths = []
    for kind, (x, rates) in zip(kinds, moves, strict=True):
        count = functools.partial(with_turns, t.astype(x.dtype), angles=kind[0].angles)
        paths.append(jax.vmap(count, in_axes=-1, out_axes=-1)(x, rates))
    return paths, transmitted, energies


def _with_coordinates(mechanism: Mechanism) -> list[Any]:
    def has(joint: Any) -> bool:
        return isinstance(joint, AbstractJoint) and joint.count() > 0

    return [kind for kind in mechanism.joint_stacks if has(kind[0])]


def _transmitted(mechanism, t, q, v, lam):
    """J^T lam of each joint on each of its bodies, `(ends, 6, joints)` for each kind of rows."""
    found, start = [], 0
    if lam is None:
        return found
    for piece in mechanism.linearised(t, q, v).J.by_kind():
        _, rows, _, count = piece.shape
        own = lam[start : start + rows * count].reshape(rows, count)
        load = jnp.einsum("ersk,rk->esk", piece, own)
        if mechanism.flat is not None:
            # Forces have the same components along the axes of the plane as velocities.
            load = jnp.moveaxis(mechanism.flat.plane.spanned(jnp.moveaxis(load, 1, 0)), 0, 1)
        found.append(load)
        start += rows * count
    return found


def _energies(mechanism, t, q, v):
    def total(table):
        return sum(table.values(), jnp.zeros((), q.dtype))

    moving = total(kinetic_energies(mechanism, q, v)) + total(rotor_energies(mechanism, q, v))
    return {
        "kinetic": moving,
        "gravity": total(gravitational_energies(mechanism, q)),
        "stored": total(stored_energies(mechanism, q, t)),
    }


def _loads(
    mechanism: Mechanism, joints: dict[str, Any], q: np.ndarray, transmitted: list[np.ndarray]
) -> dict[str, JointLoad]:
    moving = mechanism.body_stack.names
    frames = body_frames(mechanism, q)
    kinds = [kind for kind, rows in mechanism.row_counts() if rows]
    found: dict[str, JointLoad] = {}
    for kind, piece in zip(kinds, transmitted, strict=True):
        for k, name in enumerate(kind.names):
            joint = joints[name]
            if len(set(joint.bodies)) < len(joint.bodies):
                continue  # J has the sum of both ends
            end = max(i for i, body in enumerate(joint.bodies) if body in moving)
            body = joint.bodies[end]
            point = np.asarray(joint.frames[end].position, float)
            arm = np.einsum("tij,j->ti", frames[body].axes, point)
            force = piece[:, end, :3, k]
            torque = piece[:, end, 3:, k] - np.cross(arm, force)
            if mechanism.plane is not None:  # the plane carries the rest
                normal = mechanism.plane.axes[2]
                torque = np.outer(torque @ normal, normal)
            if name in found:  # its nonholonomic rows come after the others
                force, torque = force + found[name].force, torque + found[name].torque
            found[name] = JointLoad(body, point, force, torque)
    return found

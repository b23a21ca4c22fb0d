"""Motions at equally spaced times, and what is plotted and drawn along them."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._compiler import picked
from .._results import succeeded
from .._simulate import Solution
from .._system import State
from ..mechanism import (
    AbstractJoint,
    Mechanism,
    contact_forces,
    frame_poses,
    frame_twists,
    gravitational_energies,
    kinetic_energies,
    rotor_energies,
    stored_energies,
    with_turns,
)
from ..mechanism.pictures import PointForces, body_frames, mean_forces, one_motion, point_forces
from ..mechanism.reports import over_intervals


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
    """Evaluate a motion, in one program: to compile one for each report would take longer than the
    rest of the page. Without multipliers, `None`, there are no loads."""
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
        return moves, _transmitted(mechanism, t, q, v, lam), _summed_energies(mechanism, t, q, v)

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


def _summed_energies(mechanism, t, q, v):
    def total(table):
        return sum(table.values(), jnp.zeros((), q.dtype))

    state = State(t, q, v)
    moving = total(kinetic_energies(mechanism, state)) + total(rotor_energies(mechanism, state))
    return {
        "kinetic": moving,
        "gravity": total(gravitational_energies(mechanism, state)),
        "stored": total(stored_energies(mechanism, state)),
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


# A short motion is shown by this many pictures, if there are as many saved times.
_LEAST_PICTURES = 240
_MOST_PICTURES = 20_000


@dataclass(frozen=True)
class Curve:
    """Values of an element in all pictures. `kind` is the label of the axis, with the unit."""

    kind: str
    name: str
    values: np.ndarray


@dataclass(frozen=True)
class Run:
    """One motion, at the times of the pictures."""

    name: str
    mechanism: Mechanism
    q: np.ndarray
    curves: list[Curve] = field(default_factory=list)
    loads: dict[str, JointLoad] = field(default_factory=dict)
    contacts: PointForces | None = None


def runs_of(
    mechanism: Mechanism, motions: Any, fps: float, forces: bool
) -> tuple[np.ndarray, list[Run]]:
    """The times of the pictures, and the runs. `motions` is a solution, a state, `None` for the
    pose in which the bodies were given, or name -> one of these or a pair with another mechanism.

    **Raises:** `ValueError` for batches, for solutions without states, and for solutions that end
    at their first saved time."""
    named = motions if isinstance(motions, Mapping) else {"motion": motions}
    if not named:
        raise ValueError("There is no motion to view: the mapping of names to solutions is empty.")
    pairs = {
        str(name): x if isinstance(x, tuple) and len(x) == 2 else (mechanism, x)
        for name, x in named.items()
    }
    for name, (owner, motion) in pairs.items():
        _check(name, owner, motion)
    pairs = {name: (owner, _while_good(motion)) for name, (owner, motion) in pairs.items()}
    solutions = [motion for _, motion in pairs.values() if isinstance(motion, Solution)]
    times = _times([np.asarray(sol.t, float) for sol in solutions], fps)
    return times, [_run(name, *pair, times, forces) for name, pair in pairs.items()]


def _check(name: str, mechanism: Any, motion: Any) -> None:
    if not isinstance(mechanism, Mechanism):
        raise ValueError(
            f'The motion "{name}" must belong to a `Mechanism`, but was given with '
            f"{type(mechanism).__name__}."
        )
    if motion is None:
        return
    if not isinstance(motion, Solution | State):
        raise ValueError(
            f'The motion "{name}" must be a `Solution` or a `State`, or a pair (mechanism, '
            f"solution), but is {type(motion).__name__}."
        )
    if isinstance(motion, Solution):
        sol = one_motion(motion)
        if len(sol.t) < 2:
            raise ValueError(
                f'The solution "{name}" has only one saved time, so there is no motion to view. '
                "Simulate with `saveat=diffrax.SaveAt(t0=True, steps=True)` or with times `ts`, or "
                "give `solution.state()` to view the pose."
            )
    q: Any = motion.q
    mechanism.checked_q(q)


def _times(saved: list[np.ndarray], fps: float) -> np.ndarray:
    """Equally spaced times over all motions, `fps` per second, and not much more of them than saved
    times."""
    if not saved:
        return np.zeros(1)
    start, end = min(t[0] for t in saved), max(t[-1] for t in saved)
    most = max(len(t) for t in saved) - 1
    even = all(np.ptp(np.diff(t)) <= 1e-6 * (end - start) for t in saved)
    count = max(round((end - start) * fps), min(most, _LEAST_PICTURES))
    count = min(count, most) if even else count
    return np.linspace(start, end, int(np.clip(count, 1, _MOST_PICTURES)) + 1)


def _run(name: str, mechanism: Mechanism, motion: Any, times: np.ndarray, forces: bool) -> Run:
    if not isinstance(motion, Solution):
        state = mechanism.state() if motion is None else motion
        return Run(name, mechanism, np.repeat(np.asarray(state.q, float)[None], len(times), axis=0))
    sol: Any = motion
    t = np.asarray(sol.t, float)

    def sampled(values: np.ndarray) -> np.ndarray:
        return _between(t, np.asarray(values, float), times)

    q = _between_poses(mechanism, t, np.asarray(sol.q, float), times)
    found = along(mechanism, sol.t, sol.q, sol.v, sol.multipliers if forces else None)
    curves, contacts = _coordinates(mechanism, found.coordinates, sampled), None
    loads = {
        joint: JointLoad(x.body, x.point, sampled(x.force), sampled(x.torque))
        for joint, x in found.loads.items()
    }
    for joint, x in loads.items():
        curves.append(Curve("joint force [N]", joint, np.linalg.norm(x.force, axis=1)))
    for joint, x in loads.items():
        curves.append(Curve("joint torque [N m]", joint, np.linalg.norm(x.torque, axis=1)))
    if forces and sol.contact_force is not None and sol.contact_force.shape[1]:
        contacts = _contacts(mechanism, sol, times, q)
        curves += _contact_curves(mechanism, contacts)
    curves += _energies(found.energies, sampled)
    return Run(name, mechanism, q, curves, loads, contacts)


def _while_good(sol: Any) -> Any:
    """The part of a motion before its failure: after it the times go on, and the state is held."""
    if not isinstance(sol, Solution) or succeeded(sol.result):
        return sol
    moves = np.any(np.diff(np.asarray(sol.q), axis=0) != 0, axis=1)
    count = int(np.max(np.flatnonzero(moves), initial=-1)) + 2
    names = ("t", "q", "v", "multipliers", "contact_force", "contact_loads")

    def saved(solution):
        return [getattr(solution, name) for name in names]

    cut = jax.tree.map(lambda x: picked(x, slice(count)), saved(sol))
    return eqx.tree_at(saved, sol, cut, is_leaf=lambda x: x is None)


def _between(t: np.ndarray, values: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Linear interpolation along the first axis, held before and after."""
    if values.ndim == 1:
        return np.interp(times, t, values)
    flat = values.reshape(len(t), -1)
    columns = [np.interp(times, t, column) for column in flat.T]
    return np.stack(columns, axis=1).reshape(len(times), *values.shape[1:])


def _between_poses(
    mechanism: Mechanism, t: np.ndarray, q: np.ndarray, times: np.ndarray
) -> np.ndarray:
    """Coordinates at the times: positions, angles and quaternions interpolated, the latter
    normalised."""
    if mechanism.plane is not None:
        return _between(t, q, times)
    table = q.reshape(len(t), 7, -1).copy()
    p = table[:, 3:]
    sign = np.sign(np.sum(p[1:] * p[:-1], axis=1))
    p[1:] *= np.cumprod(np.where(sign < 0, -1.0, 1.0), axis=0)[:, None]
    found = _between(t, table, times)
    found[:, 3:] /= np.linalg.norm(found[:, 3:], axis=1, keepdims=True)
    return found.reshape(len(times), -1)


def _coordinates(mechanism: Mechanism, paths: dict[str, np.ndarray], sampled: Any) -> list[Curve]:
    curves = []
    for name, values in paths.items():
        joint: Any = mechanism.joint(name)
        first_angle = values.shape[1] - joint.angles
        for i, column in enumerate(values.T):
            kind = "angle [rad]" if i >= first_angle else "displacement [m]"
            same = joint.angles if i >= first_angle else first_angle
            curves.append(Curve(kind, name if same == 1 else f"{name} {i + 1}", sampled(column)))
    return curves


def _contacts(mechanism: Mechanism, sol: Any, times: np.ndarray, q: np.ndarray) -> PointForces:
    world = np.asarray(contact_forces(mechanism, over_intervals(sol)))
    forces = mean_forces(np.asarray(sol.t), world, times)
    return point_forces(mechanism, np.asarray(q, sol.q.dtype), forces, None)


def _contact_curves(mechanism: Mechanism, contacts: PointForces) -> list[Curve]:
    owner = np.asarray(mechanism.contact_names[: contacts.force.shape[1]])
    return [
        Curve(
            "contact force [N]",
            name,
            np.linalg.norm(contacts.force[:, owner == name].sum(axis=1), axis=1),
        )
        for name in dict.fromkeys(owner.tolist())
    ]


def _energies(parts: dict[str, np.ndarray], sampled: Any) -> list[Curve]:
    parts = {name: x for name, x in parts.items() if np.any(x != 0)}
    total = {"total": np.sum(list(parts.values()), axis=0)} if parts else {}
    return [Curve("energy [J]", name, sampled(x)) for name, x in (parts | total).items()]

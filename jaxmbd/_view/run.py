"""Motions at equally spaced times, and what is plotted and drawn along them."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike

from .._compiler import picked
from .._mechanism import (
    AbstractConstraint,
    Mechanism,
    Stack,
    frame_poses,
    frame_twists,
    gravitational_energies,
    kinetic_energies,
    rotor_energies,
    stored_energies,
    with_turns,
)
from .._mechanism.appearance import (
    PointForces,
    body_frames,
    contact_arrows,
    coordinates_between,
    has_coordinates,
    interpolated,
    joint_curves,
    one_motion,
)
from .._results import succeeded
from .._simulate import Solution
from .._system import State


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


def along(
    mechanism: Mechanism, t: ArrayLike, q: ArrayLike, v: ArrayLike, lam: ArrayLike | None
) -> Along:
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


def _with_coordinates(mechanism: Mechanism) -> list[Stack]:
    return [kind for kind in mechanism.joint_stacks if has_coordinates(kind[0])]


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
    mechanism: Mechanism,
    joints: dict[str, AbstractConstraint],
    q: np.ndarray,
    transmitted: list[np.ndarray],
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
    mechanism: Mechanism, motions: object, fps: float, forces: bool
) -> tuple[np.ndarray, list[Run]]:
    """The times of the pictures, and the runs. `motions` is a solution, a state, `None` for the
    pose in which the bodies were given, or name -> one of these or a pair with another mechanism.

    **Raises:** `ValueError` for batches, for solutions without states, and for solutions that end
    at their first saved time."""
    named = motions if isinstance(motions, Mapping) else {"motion": motions}
    if not named:
        raise ValueError("There is no motion to view: the mapping of names to solutions is empty.")
    checked = {}
    for name, x in named.items():
        owner, motion = x if type(x) is tuple and len(x) == 2 else (mechanism, x)
        checked[str(name)] = owner, _checked(name, owner, motion)
    solutions = [motion for _, motion in checked.values() if not isinstance(motion, np.ndarray)]
    times = _times([np.asarray(sol.t, float) for sol in solutions], fps)
    return times, [
        _run(name, owner, motion, times, forces) for name, (owner, motion) in checked.items()
    ]


def _checked(name: str, mechanism: Mechanism, motion: object) -> Solution | np.ndarray:
    """A motion until its failure, or the coordinates of a pose."""
    if not isinstance(mechanism, Mechanism):
        raise ValueError(
            f'The motion "{name}" must belong to a `Mechanism`, but was given with '
            f"{type(mechanism).__name__}."
        )
    motion = mechanism.state() if motion is None else motion
    if isinstance(motion, Solution):
        sol = one_motion(motion)
        mechanism.checked_q(sol.q)
        if len(sol.t) < 2:
            raise ValueError(
                f'The solution "{name}" has only one saved time, so there is no motion to view. '
                "Simulate with `saveat=diffrax.SaveAt(t0=True, steps=True)` or with times `ts`, or "
                "give `solution.state()` to view the pose."
            )
        return sol if succeeded(sol.result) else _while_good(sol)
    if not isinstance(motion, State):
        raise ValueError(
            f'The motion "{name}" must be a `Solution` or a `State`, or a pair (mechanism, '
            f"solution), but is {type(motion).__name__}."
        )
    return np.asarray(mechanism.checked_q(motion.q))


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


def _run(
    name: str, mechanism: Mechanism, motion: Solution | np.ndarray, times: np.ndarray, forces: bool
) -> Run:
    if isinstance(motion, np.ndarray):
        return Run(name, mechanism, np.repeat(motion[None], len(times), axis=0))
    sol = one_motion(motion)
    t = np.asarray(sol.t, float)

    def sampled(values: np.ndarray) -> np.ndarray:
        return interpolated(t, np.asarray(values, float), times)

    q = coordinates_between(mechanism, t, np.asarray(sol.q), times)
    found = along(mechanism, sol.t, sol.q, sol.v, sol.multipliers if forces else None)
    curves = []
    for joint, x in found.coordinates.items():
        for kind, label, column in joint_curves(mechanism, joint, x):
            curves.append(Curve(kind, label, sampled(column)))
    loads = {
        joint: JointLoad(x.body, x.point, sampled(x.force), sampled(x.torque))
        for joint, x in found.loads.items()
    }
    for kind, part in (("joint force [N]", "force"), ("joint torque [N m]", "torque")):
        for joint, x in loads.items():
            curves.append(Curve(kind, joint, np.linalg.norm(getattr(x, part), axis=1)))
    contacts = contact_arrows(mechanism, sol, times, q) if forces else None
    if contacts is not None:
        curves += _contact_curves(mechanism, contacts)
    energies = {name: x for name, x in found.energies.items() if np.any(x != 0)}
    if energies:
        energies["total"] = np.sum(list(energies.values()), axis=0)
    curves += [Curve("energy [J]", name, sampled(x)) for name, x in energies.items()]
    return Run(name, mechanism, q, curves, loads, contacts)


def _while_good(sol: Solution) -> Solution:
    """The part of a motion before its failure: after it the times go on, and the state is held."""
    moves = np.any(np.diff(np.asarray(sol.q), axis=0) != 0, axis=1)
    count = int(np.max(np.flatnonzero(moves), initial=-1)) + 2
    names = ("t", "q", "v", "multipliers", "contact_force", "contact_loads", "contact_pairs")

    def saved(solution):
        return [getattr(solution, name) for name in names]

    cut = jax.tree.map(lambda x: picked(x, slice(count)), saved(sol))
    return eqx.tree_at(saved, sol, cut, is_leaf=lambda x: x is None)


def _contact_curves(mechanism: Mechanism, contacts: PointForces) -> list[Curve]:
    owner = np.asarray(mechanism.contact_names[: contacts.force.shape[1]])
    sums = {name: contacts.force[:, owner == name].sum(axis=1) for name in dict.fromkeys(owner)}
    return [
        Curve("contact force [N]", str(name), np.linalg.norm(force, axis=1))
        for name, force in sums.items()
    ]

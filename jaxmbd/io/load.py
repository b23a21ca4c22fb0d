"""Loading of models from files."""

import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np

from .._compiler import to_jax
from .._inputs import at_least, checked
from .._mechanism import AbstractElement, Body, Mechanism, Pose, replaced
from .._system import State
from .bodies import tree
from .compiled import compiled
from .constraints import contacts as contacts_of
from .constraints import equalities
from .constraints import limits as limits_of
from .fields import tell
from .forces import actuators, passive_forces, with_dry_friction
from .loaded import Loaded
from .save import read_exactly
from .sdf import read_sdf
from .sensors import sensors
from .shapes import visuals
from .source import Coordinates, Source
from .turns import counted_angles

_Element = TypeVar("_Element", bound=AbstractElement)


@checked
def load(
    path: Any,
    *,
    contacts: bool = True,
    limits: bool = True,
    floating: bool = False,
    model: str | Sequence[str] | None = None,
    corners: Annotated[int, at_least(4)] = 32,
    sticking: bool = False,
    activation: bool = False,
) -> Loaded:
    """Load a model of a mechanism from a file:

        loaded = mbd.load("robot.xml")
        sol = mbd.simulate(
            loaded.mechanism, mbd.ContactImpulse(), loaded.state, t1=1.0, dt=loaded.dt,
            control=loaded.control(),
        )

    MJCF and URDF are read with MuJoCo (`pip install "jaxmbd[io]"`), so that defaults, units, frames
    and the inertia of geoms are those of MuJoCo. A file of `mbd.save` (`.json`) is read as it was,
    and SDFormat (`.sdf`, `.world`) with its loops, without MuJoCo.
    Bodies, joints and actuators keep their names; several joints of one body are one
    `Serial` joint, named "first+second". An actuator whose joint has a spring
    and the same name is "name actuator". What has no counterpart is told in one warning, and is
    listed in `Loaded.dropped`.

    **Arguments:**

    - `path`: of the file, or a `mujoco.MjSpec`. The `<visual>` shapes of URDF, and what is told of
      its transmissions, need the file.
    - `contacts`, `limits`: whether to take over contacts between geoms, and limits of joints.
    - `corners`: how many corners of the convex hull of a mesh count for contacts. What is missing
      is told. A mesh on a floor has a contact point for each.
    - `sticking`: whether `frictionloss` of hinges, slides and tendons is `contacts.DryFriction`,
      which sticks and needs `ContactImpulse`, and not smoothed in a `CoordinateSpring`.
    - `activation`: whether what actuators remember is read, as internal states of the mechanism:
      the time constant with which they follow the control (`filter`, `filterexact`), integrals
      (`intvelocity`, `pid`), current, heat and bristles of a `dcmotor`. What is left out without
      it is told.
    - `floating`: whether bodies that the file fixes to the world are free, as the base of a walking
      robot in URDF.
    - `model`: name or names of the models to load from a world in SDFormat, by default all. Static
      ones are part of the ground.

    **Raises:** `ValueError` of one line for a file that cannot be read, and for joints of one body
    that have no counterpart together; `ImportError` without MuJoCo."""
    suffix = Path(path).suffix.lower() if isinstance(path, str | Path) else ""
    if suffix == ".json":
        return read_exactly(Path(path))
    if suffix in (".sdf", ".world"):
        return _told(read_sdf(Path(path), contacts=contacts, limits=limits, model=model))
    if model is not None:
        raise ValueError(
            f"`model` chooses from a world in SDFormat, so it must be None for {path}, but is "
            f"{model!r}."
        )
    source = compiled(path, floating)
    source.off |= {
        what for what, is_read in (("contact", contacts), ("limit", limits)) if not is_read
    }
    source.lags = activation
    tell(source)
    parts = tree(source)
    along = Coordinates(source, parts.joints, parts.members)
    drives, controls = actuators(source, along)
    passive = passive_forces(source, along, parts.joints)
    named = distinct(drives, passive, "actuator")
    forces = [*passive, *named]
    rows = [] if "equality" in source.off else equalities(source, along)
    joints = [*parts.joints, *distinct(rows, parts.joints, "equality")]
    stops = limits_of(source, along)
    gaps = [*stops, *distinct(contacts_of(source, corners), stops, "contact")]
    if sticking:
        passive, frictions = with_dry_friction(passive)
        gaps += distinct(frictions, gaps, "friction")
        forces = [*passive, *named]
    bodies = [Body(name, inertia) for name, inertia in parts.inertias.items()]
    if not bodies:
        raise ValueError(f"{source.path} has no body that can move: give one a joint.")
    m = source.m
    gravity = np.zeros(3) if "gravity" in source.off else np.array(m.opt.gravity)
    mechanism = Mechanism(bodies, parts.joints, gravity=gravity)
    members, qpos = tuple(parts.members), np.array(m.qpos0)
    draft = Loaded(mechanism, mechanism.state(), joints=members, branches=tuple(parts.branches))
    # The bodies where the file starts.
    table = np.asarray(mechanism.pose_table(draft.state_from(qpos).q))
    bodies = [
        Body(name, inertia, position=table[:3, i], orientation=table[3:, i])
        for i, (name, inertia) in enumerate(parts.inertias.items())
    ]
    mechanism = Mechanism(bodies, joints, forces, gaps, gravity=mechanism.gravity)
    begin = mechanism.state()
    angles = counted_angles(mechanism, members, qpos, begin.q, begin.v)
    keys = {source.name("key", k): k for k in range(m.nkey)}
    names = {drive.name: found.name for drive, found in zip(drives, named, strict=True)}
    loaded = dataclasses.replace(
        draft,
        mechanism=mechanism,
        state=State(begin.t, begin.q, begin.v, angles=angles),
        controls=tuple(controls),
        visuals=visuals(source),
        frames=_frames(source),
        keyframes={
            name: _with_activation(
                draft.state_from(
                    np.array(m.key_qpos[k]),
                    np.array(m.key_qvel[k]),
                    t=float(m.key_time[k]),
                    mechanism=mechanism,
                ),
                mechanism,
                source,
                k,
                names,
            )
            for name, k in keys.items()
        },
        key_controls={name: np.array(m.key_ctrl[k]) for name, k in keys.items()},
        sensors=sensors(source, along),
        dropped=tuple(source.dropped),
        dt=float(m.opt.timestep),
        source=source.path,
    )
    return _told(loaded)


def _with_activation(
    state: State, mechanism: Mechanism, source: Source, k: int, names: dict[str, str]
) -> State:
    """The state of keyframe k with its internal states. `names`: of elements now."""
    if not source.acts:
        return state
    of = mechanism.internal_names  # all of them of actuators
    z = np.zeros(len(of))
    for element, internal, act, factor, summand in source.acts:
        z[of.index(f"{names[element]}.{internal}")] = factor * source.m.key_act[k, act] + summand
    z = to_jax(z, mechanism.gravity.dtype)
    return State(state.t, state.q, state.v, angles=state.angles, z=z)


def _told(loaded: Loaded) -> Loaded:
    """The model, after a warning of what it is without."""
    if loaded.dropped:
        warnings.warn(summary(loaded), stacklevel=4)  # beyond `checked`
    return loaded


def distinct(
    elements: Sequence[_Element], others: Sequence[AbstractElement], kind: str
) -> list[_Element]:
    """The elements, with the `kind` added to names that the others have too. In files, names differ
    only within one kind."""
    taken = {other.name for other in others}
    found = []
    for element in elements:
        if element.name in taken:
            element = replaced(element, name=f"{element.name} {kind}")
        found.append(element)
    return found


def summary(loaded: Loaded) -> str:
    """What a file holds that has no counterpart, with equal reasons on one line."""
    groups: dict[tuple[str, str], list[str]] = {}
    for line in loaded.dropped:
        head, _, why = line.partition(": ")
        kind, _, name = head.partition(" ")
        groups.setdefault((kind, why), []).append(name)
    lines = []
    for (kind, why), names in groups.items():
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        lines.append(f"  {kind} {', '.join(names[:4])}{more}: {why}")
    return "\n".join([f"{Path(loaded.source).name} holds what has no counterpart here:", *lines])


def _frames(source: Source) -> dict[str, tuple[str, Pose]]:
    """Name of each site and body -> the moving body that carries it, and the pose there."""
    m = source.m
    found = {
        source.name("site", i): (
            source.body(m.site_bodyid[i]),
            source.on(m.site_bodyid[i], m.site_pos[i], m.site_quat[i]),
        )
        for i in range(m.nsite)
    }
    return found | {
        source.name("body", b): (source.body(b), source.rest[b]) for b in range(1, m.nbody)
    }

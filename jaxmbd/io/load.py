"""Loading of models from files."""

import copy
import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from .._inputs import at_least, checked
from .._system import State
from ..mechanism import Body, Mechanism
from .bodies import Tree, tree
from .compiled import compiled
from .constraints import contacts as contacts_of
from .constraints import equalities
from .constraints import limits as limits_of
from .fields import Reads, tell
from .forces import actuators, passive_forces
from .loaded import Loaded
from .save import read_exactly
from .sdf import read_sdf
from .sensors import sensors
from .shapes import visuals
from .source import Coordinates, Source, pose
from .turns import counted_angles


@checked
def load(
    path: Any,
    *,
    contacts: bool = True,
    limits: bool = True,
    floating: bool = False,
    model: str | Sequence[str] | None = None,
    corners: Annotated[int, at_least(4)] = 32,
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
    Names of bodies, joints and actuators are those of the file; several joints of one body are one
    `Serial` joint, named "first+second". An actuator whose joint has a spring
    and the same name is "name actuator". What has no counterpart is told in one warning, and is
    listed in `Loaded.dropped`.

    **Arguments:**

    - `path`: of the file, or a `mujoco.MjSpec`. The `<visual>` shapes of URDF, and what is told of
      its transmissions, need the file.
    - `contacts`, `limits`: whether to take over contacts between geoms, and limits of joints.
    - `corners`: how many corners of the convex hull of a mesh count for contacts. What is missing
      is told. A mesh on a floor has a contact point for each.
    - `floating`: whether bodies that the file fixes to the world are free, as the base of a walking
      robot in URDF.
    - `model`: name or names of the models to load from a world in SDFormat, by default all. Static
      ones are part of the ground.

    **Raises:** `ValueError` of one line for a file that cannot be read, and for joints of one body
    that have no counterpart together; `ImportError` without MuJoCo."""
    if (
        isinstance(path, str | Path)
        and Path(path).suffix.lower() == ".json"
        and Path(path).is_file()
    ):
        return read_exactly(Path(path))
    if isinstance(path, str | Path) and Path(path).suffix.lower() in (".sdf", ".world"):
        return _told(read_sdf(Path(path), contacts=contacts, limits=limits, model=model))
    if model is not None:
        raise ValueError(
            f"`model` chooses from a world in SDFormat, so it must be None for {path}, but is "
            f"{model!r}."
        )
    source = compiled(path, floating)
    tell(source, Reads(contacts, limits))
    parts = tree(source)
    along = Coordinates(source, parts.joints, parts.members)
    drives, controls = actuators(source, along)
    passive = passive_forces(source, along, parts.joints)
    forces = [*passive, *distinct(drives, passive, "actuator")]
    rows = [] if "equality" in source.off else equalities(source, along)
    joints = [*parts.joints, *distinct(rows, parts.joints, "equality")]
    stops = limits_of(source, along) if limits else []
    gaps = [*stops, *distinct(contacts_of(source, corners) if contacts else [], stops, "contact")]
    bodies = [Body(name, inertia) for name, inertia in parts.inertias.items()]
    if not bodies:
        raise ValueError(f"{source.path} has no body that can move: give one a joint.")
    gravity = np.zeros(3) if "gravity" in source.off else np.array(source.m.opt.gravity)
    mechanism = Mechanism(bodies, parts.joints, gravity=gravity)
    draft = Loaded(
        mechanism=mechanism,
        state=mechanism.state(),
        controls=tuple(controls),
        dropped=(),
        joints=tuple(parts.members),
        branches=tuple(parts.branches),
        visuals=visuals(source),
        frames=_frames(source),
        keyframes={},
        key_controls={},
        sensors=sensors(source, along),
        dt=float(source.m.opt.timestep),
        source=source.path,
    )
    loaded = _at_start(source, draft, parts, joints, forces, gaps)
    return _told(loaded)


def _told(loaded: Loaded) -> Loaded:
    """The model, after a warning of what it is without."""
    if loaded.dropped:
        warnings.warn(summary(loaded), stacklevel=4)  # beyond `checked`
    return loaded


def distinct(elements: Sequence[Any], others: Sequence[Any], kind: str) -> list[Any]:
    """The elements, with the `kind` added to names that the others have too. In files, names differ
    only within one kind."""
    taken = {other.name for other in others}
    found = []
    for element in elements:
        if element.name in taken:
            element, name = copy.copy(element), f"{element.name} {kind}"
            object.__setattr__(element, "name", name)
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


def _at_start(
    source: Source, draft: Loaded, parts: Tree, joints: Any, forces: Any, gaps: Any
) -> Loaded:
    """The model with its bodies where the file starts, and its keyframes."""
    m = source.m
    start = draft.state_from(np.array(m.qpos0))
    table = np.asarray(draft.mechanism.pose_table(start.q))
    bodies = [
        Body(name, inertia, position=table[:3, i], orientation=table[3:, i])
        for i, (name, inertia) in enumerate(parts.inertias.items())
    ]
    mechanism = Mechanism(bodies, joints, forces, gaps, gravity=draft.mechanism.gravity)
    begin = mechanism.state()
    angles = counted_angles(mechanism, draft.joints, np.array(m.qpos0), begin.q, begin.v)
    begin = State(begin.t, begin.q, begin.v, angles=angles)
    loaded = dataclasses.replace(draft, mechanism=mechanism, state=begin)
    keys = {source.name("key", k): k for k in range(m.nkey)}
    return dataclasses.replace(
        loaded,
        dropped=tuple(source.dropped),
        keyframes={
            name: loaded.state_from(
                np.array(m.key_qpos[k]), np.array(m.key_qvel[k]), t=float(m.key_time[k])
            )
            for name, k in keys.items()
        },
        key_controls={name: np.array(m.key_ctrl[k]) for name, k in keys.items()},
    )


def _frames(source: Source) -> dict[str, Any]:
    """Name of each site and body -> the moving body that carries it, and the pose there."""
    m = source.m
    found = {
        source.name("site", i): (
            source.body(m.site_bodyid[i]),
            pose(source.on(m.site_bodyid[i], m.site_pos[i], m.site_quat[i])),
        )
        for i in range(m.nsite)
    }
    return found | {
        source.name("body", b): (source.body(b), pose(source.rest[b])) for b in range(1, m.nbody)
    }

"""Springs, friction and actuators of a compiled model."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import PyTree

from .._coordinates import algebra
from .._mechanism import (
    AbstractConstraint,
    AbstractForceElement,
    AbstractScalarCoordinate,
    Bushing,
    CoordinateActuator,
    CoordinateSpring,
    Drag,
    DryFriction,
    FromControl,
    PointForce,
    Torque,
    TurningFriction,
    replaced,
)
from .._mechanism.joints import AbstractJoint
from .drives import REMEDY, Drive, dc_motor, inputs, pid
from .loaded import Control, pose
from .source import Coordinates, Source

# The shortest time constant of an activation [s], that of MuJoCo.
_SHORTEST = 1e-15
# What acts with each gain.
_SIMPLE = ("none", "integrator", "filter", "filterexact")
_DYNAMICS = {"pid": ("none", "pid"), "dcmotor": ("dcmotor",)}
_BIASES = {"pid": ("affine",), "dcmotor": ("dcmotor",)}
# How the fields of what an actuator moves start, by its transmission.
_TARGETS = {"tendon": "tendon", "joint": "jnt", "jointinparent": "jnt"}
_LIMIT_OF_ALL = "the limit of the sum of the forces of several actuators"
# Dry friction is smoothed below this rate [m/s or rad/s].
_SLOW = 1e-2


def passive_forces(
    source: Source, along: Coordinates, joints: Sequence[AbstractConstraint]
) -> list[AbstractForceElement]:
    """Springs, dampers, dry friction and armature of joints and tendons, and the compensation of
    weight."""
    m, found = source.m, list[AbstractForceElement]()
    by_name = {joint.name: joint for joint in joints}
    for j in range(m.njnt):
        kind, dof = along.member(j).kind, int(m.jnt_dofadr[j])
        numbers = _passive(source, "joint", j, dof)
        if kind in ("hinge", "slide"):
            coordinate = along.joint(j)
            rest = float(m.qpos_spring[m.jnt_qposadr[j]])
            if coordinate is not None and any(numbers.values()):
                found.append(_spring(source.name("joint", j), coordinate, numbers, rest))
        elif any(numbers.values()):
            found += _of_rotation(source, along, j, numbers, by_name)
    for k in range(m.ntendon):
        numbers = _passive(source, "tendon", k, k)
        if not any(numbers.values()):
            continue
        coordinate = along.tendon(k)
        if coordinate is None:
            source.drop("tendon", k, "its spring and friction: it wraps round geoms")
            continue
        low, high = map(float, m.tendon_lengthspring[k])
        rest = low if low == high else (low, high)
        found.append(_spring(source.name("tendon", k), coordinate, numbers, rest))
    _told_gravcomp(source)
    for b in range(1, m.nbody):
        weight = float(m.body_gravcomp[b] * m.body_mass[b])
        if weight and source.owner[b] and "gravity" not in source.off:
            name = f"{source.name('body', b)} gravcomp"
            frame = source.on(b, m.body_ipos[b])
            lift = -weight * np.array(m.opt.gravity)
            found.append(PointForce(name, source.body(b), frame=frame, force_world=lift))
    return found


def with_dry_friction(
    forces: Sequence[AbstractForceElement],
) -> tuple[list[AbstractForceElement], list[DryFriction]]:
    """The forces with dry friction of coordinates taken out, and this as it is."""
    smooth, frictions = [], []
    for force in forces:
        if isinstance(force, CoordinateSpring) and force.dry is not None and float(force.dry):
            frictions.append(DryFriction(force.name, force.coordinate, dry=force.dry))
            force = replaced(force, dry=None)
        smooth.append(force)
    return smooth, frictions


def _told_gravcomp(source: Source) -> None:
    """Note joints at which an actuator compensates weight, with less than all of the force."""
    m = source.m
    # Bodies that carry a body whose weight is compensated, and these bodies.
    carries = set()
    for b in np.flatnonzero(m.body_gravcomp):
        while b > 0:
            carries.add(int(b))
            b = m.body_parentid[b]
    idle = not m.nactuator or "actuation" in source.off
    for j in map(int, np.flatnonzero(m.jnt_actgravcomp)):
        if int(m.jnt_bodyid[j]) not in carries or "gravity" in source.off:
            continue
        if idle:
            source.drop("joint", j, "that its weight stays without actuators: it is compensated")
        elif m.jnt_actfrclimited[j]:
            source.drop("joint", j, "that the limit of its force holds for its weight too")


def _passive(source: Source, kind: str, i: int, dof: int) -> dict[str, float]:
    """The coefficients of a joint or tendon, less what the options switch off."""
    m = source.m
    of, by = ("dof", "jnt") if kind == "joint" else ("tendon", "tendon")
    damping = getattr(m, f"{of}_damping")[dof] * ("damper" not in source.off)
    stiffness = getattr(m, f"{by}_stiffness")[i] * ("spring" not in source.off)
    dry = getattr(m, f"{of}_frictionloss")[dof] * ("frictionloss" not in source.off)
    speed = _SLOW
    if dry:
        # With a file's time step an explicit scheme must not jump over the smoothed part.
        mobility = getattr(m, f"{of}_invweight0")[dof]
        speed = max(_SLOW, float(dry * mobility * m.opt.timestep))
    return {
        "stiffness": float(stiffness),
        "damping": float(damping),
        "dry": float(dry),
        "armature": float(getattr(m, f"{of}_armature")[dof]),
        "speed": speed if dry else 0.0,
    }


def _spring(
    name: str, coordinate: AbstractScalarCoordinate, numbers: dict[str, float], rest: PyTree
) -> CoordinateSpring:
    return CoordinateSpring(
        name,
        coordinate,
        stiffness=numbers["stiffness"],
        rest=np.array(rest),
        damping=numbers["damping"],
        dry=numbers["dry"],
        speed=numbers["speed"] or _SLOW,
        armature=numbers["armature"] or None,
    )


def _of_rotation(
    source: Source,
    along: Coordinates,
    j: int,
    numbers: dict[str, float],
    joints: dict[str, AbstractConstraint],
) -> list[AbstractForceElement]:
    """Spring and friction of a free or a ball joint."""
    m, member, found = source.m, along.member(j), []
    if numbers["armature"]:
        source.drop("joint", j, "its armature, which only hinges and slides have")
    if member.joint is None:
        if numbers["stiffness"]:
            source.drop("joint", j, "its stiffness, which a free joint has not")
        if numbers["dry"]:
            source.drop("joint", j, "its frictionloss, which a free joint has not")
        if numbers["damping"]:
            frame = pose()
            damping = numbers["damping"]
            found.append(
                Drag(member.name, member.body, linear=damping, angular=damping, frame=frame)
            )
        return found
    joint = joints[member.joint]
    assert isinstance(joint, AbstractJoint)
    ends = joint.body_a, joint.body_b
    if numbers["stiffness"]:
        # The spring is at rest where the orientation of the file is `springref`.
        i = int(m.jnt_qposadr[j])
        at_rest = pose((0, 0, 0), np.array(m.qpos_spring[i : i + 4]))
        start = pose(*joint.frame_a).compose(at_rest)
        found.append(
            Bushing(
                f"{member.name} spring",
                *ends,
                stiffness=np.array([0.0, 0.0, 0.0] + 3 * [numbers["stiffness"]]),
                frame_a=start,
                frame_b=joint.frame_b,
            )
        )
    if numbers["damping"] or numbers["dry"]:
        for axis, vector in zip("xyz", np.eye(3), strict=True):
            turned = pose((0, 0, 0), algebra.quaternion_along(vector))
            frames = [pose(*frame).compose(turned) for frame in (joint.frame_a, joint.frame_b)]
            coefficients: dict[str, Any] = {
                "viscous": numbers["damping"],
                "dry": numbers["dry"],
                "speed": numbers["speed"] or _SLOW,
            }
            name = f"{member.name} {axis}"
            a, b = frames
            found.append(TurningFriction(name, *ends, **coefficients, frame_a=a, frame_b=b))
    return found


# --- actuators -----------------------------------------------------------------------------------


def actuators(
    source: Source, along: Coordinates
) -> tuple[list[AbstractForceElement], list[Control]]:
    """The actuators, and the entries of the control."""
    m, found = source.m, []
    controls = [Control(f"control {i}", -math.inf, math.inf) for i in range(m.nu)]
    for i in range(m.nactuator):
        entry = int(m.actuator_ctrladr[i])
        name, count = source.name("actuator", i), int(m.actuator_ctrlnum[i])
        names = [name] if count == 1 else [f"{name} {x}" for x in inputs(source, i)]
        if len(names) != count:
            source.drop("actuator", i, f"it reads {count} entries of the control")
            continue
        for k, of in enumerate(names, entry):
            low, high = map(float, m.actuator_ctrlrange[k])
            limited = m.actuator_ctrllimited[k]
            controls[k] = Control(of, low if limited else -math.inf, high if limited else math.inf)
        if "actuation" in source.off or m.opt.disableactuator & (1 << int(m.actuator_group[i])):
            source.drop("actuator", i, "switched off by an option")
            continue
        found += _actuator(source, along, i, name, entry)
    return found, controls


def _actuator(
    source: Source, along: Coordinates, i: int, name: str, entry: int
) -> list[AbstractForceElement]:
    m, mujoco = source.m, source.mujoco
    if m.actuator_plugin[i] >= 0:
        source.drop("actuator", i, "its plugin, and so all of it")
        return []
    dynamics = mujoco.mjtDyn(m.actuator_dyntype[i]).name.removeprefix("mjDYN_").lower()
    gain = mujoco.mjtGain(m.actuator_gaintype[i]).name.removeprefix("mjGAIN_").lower()
    bias = mujoco.mjtBias(m.actuator_biastype[i]).name.removeprefix("mjBIAS_").lower()
    kind = mujoco.mjtTrn(m.actuator_trntype[i]).name.removeprefix("mjTRN_").lower()
    for what, value, known in (
        ("gain", gain, ("fixed", "affine", "pid", "dcmotor")),
        ("dynamics", dynamics, _DYNAMICS.get(gain, _SIMPLE)),
        ("bias", bias, _BIASES.get(gain, ("none", "affine"))),
    ):
        if value not in known:
            source.drop("actuator", i, f'its {what} "{value}", and so all of it')
            return []
    memory: dict[str, Any] = {}
    if dynamics in _SIMPLE and dynamics != "none":
        if source.lags and kind != "site":
            memory = _activation(source, i, name, dynamics)
        elif dynamics == "integrator":
            remedy = "" if kind == "site" else REMEDY
            source.drop("actuator", i, f'its dynamics "integrator", and so all of it{remedy}')
            return []
        else:
            remedy = "" if kind == "site" else "; load(activation=True) reads it"
            source.drop("actuator", i, f"its activation: it follows the control at once{remedy}")
    gains = np.zeros(3)
    count = 1 if gain == "fixed" else 3
    gains[:count] = m.actuator_gainprm[i][:count]
    biases = np.array(m.actuator_biasprm[i][:3]) if bias == "affine" else np.zeros(3)
    gear, target = np.array(m.actuator_gear[i]), int(m.actuator_trnid[i][0])
    if kind == "site" and gain in ("fixed", "affine"):
        return _at_site(source, i, name, entry, gains, biases, target)
    coordinate = None
    if kind in ("joint", "jointinparent"):
        coordinate = along.joint(target)
    elif kind == "tendon":
        coordinate = along.tendon(target)
    if coordinate is None:
        what = "a tendon round geoms" if kind == "tendon" else f'the transmission "{kind}"'
        what = "a free or ball joint" if kind in ("joint", "jointinparent") else what
        source.drop("actuator", i, f"it acts by {what}, and so all of it")
        return []
    limits = _force_limits(source, i, kind, target, float(gear[0]))
    found: list[AbstractForceElement] = []
    if gain in ("pid", "dcmotor"):
        law = pid if gain == "pid" else dc_motor
        if gear[0]:
            found = law(Drive(source, i, name, coordinate, float(gear[0]), limits))
        if len(found) > 1 and getattr(m, f"{_TARGETS[kind]}_actfrclimited")[target]:
            source.drop("actuator", i, _LIMIT_OF_ALL)
    else:
        found.append(
            CoordinateActuator(
                name,
                coordinate,
                index=entry,
                gear=float(gear[0]),
                gain=gains,
                bias=biases,
                limits=limits,
                **memory,
            )
        )
    damping, armature = float(m.actuator_damping[i]), float(m.actuator_armature[i])
    if damping or armature:
        # Both refer to the rate of the actuator, which is gear times that of the coordinate.
        square = float(gear[0]) ** 2
        found.append(
            CoordinateSpring(
                f"{name} drive",
                coordinate,
                damping=square * damping,
                armature=square * armature or None,
            )
        )
    return found


def _activation(source: Source, i: int, name: str, dynamics: str) -> dict[str, Any]:
    """How an actuator follows its control."""
    m = source.m
    source.acts.append((name, "activation", int(m.actuator_actadr[i]), 1.0, 0.0))
    found: dict[str, Any] = {"integrates": True}
    if dynamics != "integrator":
        found = {"lag": max(float(m.actuator_dynprm[i][0]), _SHORTEST)}
    if m.actuator_actlimited[i]:
        found["activation_limits"] = np.array(m.actuator_actrange[i])
    return found


def _force_limits(source: Source, i: int, kind: str, target: int, gear: float) -> np.ndarray | None:
    """Limits of the force of an actuator before its gear, or `None`."""
    m = source.m
    low, high = -math.inf, math.inf
    if m.actuator_forcelimited[i]:
        low, high = (float(x) for x in m.actuator_forcerange[i])
    of = _TARGETS[kind]
    if getattr(m, f"{of}_actfrclimited")[target]:
        same = np.isin(m.actuator_trntype, m.actuator_trntype[i]) & (
            m.actuator_trnid[:, 0] == target
        )
        if np.sum(same) > 1 or not gear:
            source.drop("actuator", i, _LIMIT_OF_ALL)
        else:
            ends = np.sort(getattr(m, f"{of}_actfrcrange")[target] / gear)
            low, high = max(low, float(ends[0])), min(high, float(ends[1]))
    return None if math.isinf(low) and math.isinf(high) else np.array([low, high])


def _at_site(source, i, name, entry, gains, biases, site):
    """A thruster: a force and a torque in the axes of a site."""
    m = source.m
    if np.any(biases) or np.any(gains[1:]) or m.actuator_trnid[i][1] >= 0:
        source.drop("actuator", i, "it measures a site, and so all of it")
        return []
    if m.actuator_forcelimited[i]:
        source.drop("actuator", i, "the limits of its force")
    b = int(m.site_bodyid[site])
    if source.owner[b] == 0:
        return []
    frame = source.on(b, m.site_pos[site], m.site_quat[site])
    found, gear = [], gains[0] * np.array(m.actuator_gear[i])
    if np.any(gear[:3]):
        force = FromControl(entry, gear=gear[:3])
        found.append(PointForce(name, source.body(b), force_body=force, frame=frame))
    if np.any(gear[3:]):
        torque = FromControl(entry, gear=gear[3:])
        found.append(Torque(f"{name} torque", source.body(b), torque_body=torque, frame=frame))
    return found

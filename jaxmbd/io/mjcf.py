"""Mechanisms as MJCF.

Each element of a mechanism is written by the method that a table at the end names for its class;
what no table has is told. A force, a limit or a coupling along a scalar coordinate belongs to the
hinge or slide of the file with this coordinate.
"""

import warnings
import xml.etree.ElementTree as xml
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._mechanism import (
    GROUND,
    AbstractConstraint,
    AbstractElement,
    AbstractJoint,
    AbstractScalarCoordinate,
    AbstractShape,
    Angle,
    Contact,
    ConvexPoints,
    CoordinateActuator,
    CoordinateConstraint,
    CoordinateLimit,
    CoordinateSpring,
    DCMotor,
    Displacement,
    Distance,
    Fixed,
    FromControl,
    HalfSpace,
    JointLimit,
    LuGreFriction,
    Mechanism,
    OfJoint,
    PathLength,
    PIDController,
    PointForce,
    Pose,
    Prismatic,
    Revolute,
    Serial,
    Spherical,
    Torque,
    TwistAngle,
)
from .loaded import Loaded, pose
from .mjcf_drives import Driving, at_the_start, is_cogging, stated
from .mjcf_moves import MOVES, moves
from .shapes import kind_and_size

# The joint with the axis of a scalar coordinate of two frames.
_AXES = {Displacement: Prismatic, Angle: Revolute, TwistAngle: Revolute}


def write_mjcf(model: Mechanism | Loaded, path: Path) -> None:
    """Write a mechanism as MJCF. What MJCF cannot say is told in one warning."""
    loaded = model if isinstance(model, Loaded) else Loaded(model, model.state(), dt=0.0)
    writer = _Writer(loaded.mechanism, loaded.dt)
    path.write_text(writer.text() + "\n")
    if writer.dropped:
        lines = "\n".join(f"  {line}" for line in writer.dropped)
        warnings.warn(f"MJCF cannot say all of it. {path.name} is without:\n{lines}", stacklevel=4)


def _numbers(*values: Any) -> str:
    return " ".join(repr(float(x)) for value in values for x in np.ravel(np.asarray(value)))


def _put(parent: xml.Element, tag: str, **attributes: Any) -> xml.Element:
    """A new element in another one. Attributes are texts or numbers, and `None` is none."""
    return xml.SubElement(parent, tag, _written(attributes))


def _written(attributes: dict[str, Any]) -> dict[str, str]:
    given = {name: x for name, x in attributes.items() if x is not None}
    return {name: x if isinstance(x, str) else _numbers(x) for name, x in given.items()}


class _Writer:
    """The elements of the file, and where to add to them."""

    def __init__(self, mechanism: Mechanism, dt: float):
        self.mechanism, self.dropped = mechanism, list[str]()
        self.q = mechanism.state().q
        self.root = xml.Element("mujoco", model="jaxmbd")
        _put(self.root, "compiler", angle="radian", autolimits="true")
        _put(self.root, "option", gravity=mechanism.gravity, timestep=dt or None)
        self.elements = {GROUND: _put(self.root, "worldbody")}
        self.sections: dict[str, xml.Element] = {}
        self.place = {GROUND: pose()} | {x.name: pose(*x.pose) for x in mechanism.bodies}
        # Joint of the mechanism -> an element of the file for each coordinate.
        self.hinges: dict[str, list[xml.Element]] = {}
        self.geoms: dict[Any, str] = {}
        # First entry of the control -> actuator, and how many entries it reads.
        self.controls: dict[int, tuple[xml.Element, int]] = {}
        self._bodies()
        for joint in mechanism.joints:
            if joint.name in mechanism.switches:
                self.drop(joint, "it has a switch")
            elif joint.name not in self.used:
                self._write(joint, _LOOPS, "constraint")
        for force in mechanism.forces:
            self._write(force, _FORCES, "force")
        for contact in mechanism.contacts:
            law = contact.law
            stiff = law.stiffness is None or np.all(np.isinf(np.asarray(law.stiffness)))
            if not stiff or law.kinetic is not None or np.any(np.asarray(law.restitution)):
                self.drop(contact, "its restitution, stiffness and kinetic friction")
            self._write(contact, _CONTACTS, "contact")
        self._in_order()

    def _in_order(self) -> None:
        """Put the actuators in the order of the control; those without an entry come last."""
        if not self.controls:
            return
        free, found = 0, []
        for entry in sorted(self.controls):
            element, count = self.controls[entry]
            if entry != free:
                self.dropped.append("entries of the control that no actuator reads, or several")
            free = entry + count
            found.append(element)
        section = self.section("actuator")
        section[:] = [*found, *(x for x in section if x not in found)]

    def text(self) -> str:
        """The file."""
        xml.indent(self.root)
        return xml.tostring(self.root, encoding="unicode")

    def section(self, name: str) -> xml.Element:
        """The section `name`, made when first needed."""
        if name not in self.sections:
            self.sections[name] = xml.SubElement(self.root, name)
        return self.sections[name]

    def drop(self, element: Any, why: str) -> None:
        """Note what the file cannot hold."""
        self.dropped.append(f'{type(element).__name__} "{element.name}": {why}')

    def _write(self, element: Any, table: dict[type, Callable[..., None]], kind: str) -> None:
        """Write an element by the method of its class."""
        if type(element) in table:
            table[type(element)](self, element)
        else:
            self.drop(element, f"MJCF has no such {kind}")

    # --- tree ------------------------------------------------------------------------------------

    def _bodies(self) -> None:
        """The bodies as a tree of joints; those that no joint reaches are free."""
        at: dict[str, list[AbstractConstraint]] = defaultdict(list)
        for joint in self.mechanism.joints:
            if type(joint) in (*MOVES, Serial) and joint.name not in self.mechanism.switches:
                for name in joint.bodies:
                    at[name].append(joint)
        # First who carries whom, then the bodies in their order, which a reader finds again.
        carried: dict[str, tuple[str, Any]] = {}
        self.used: set[str] = set()
        for start in [GROUND, *self.mechanism.body_stack.names]:
            if start in carried:
                continue
            carried[start] = (GROUND, None)
            waiting = [start]
            while waiting:
                parent = waiting.pop(0)
                for joint in at[parent]:
                    child = next(name for name in joint.bodies if name != parent)
                    if child not in carried:
                        carried[child] = (parent, joint)
                        self.used.add(joint.name)
                        waiting.append(child)
        for name in self.mechanism.body_stack.names:
            self._with_carrier(name, carried)

    def _with_carrier(self, name: str, carried: dict[str, tuple[str, Any]]) -> None:
        """A body, after the one that carries it."""
        if name in self.elements:
            return
        parent, joint = carried[name]
        self._with_carrier(parent, carried)
        at = self.place[parent].relative(self.place[name])
        element = _put(
            self.elements[parent], "body", name=name, pos=at.position, quat=at.orientation
        )
        self.elements[name] = element
        inertia = self.mechanism.body(name).inertia
        tensor = np.asarray(inertia.tensor, float)
        moments, products = np.diag(tensor), tensor[np.triu_indices(3, 1)]
        if np.max(np.abs(products)) <= 1e-15 * np.max(moments):
            given = {"diaginertia": moments}
        else:
            given = {"fullinertia": [*moments, *products]}
        _put(element, "inertial", pos=inertia.center, mass=inertia.mass, **given)
        if joint is None:
            _put(element, "freejoint", name=f"{name} free")
        else:
            self._joint(element, name, joint)

    def _joint(self, element: xml.Element, child: str, joint: AbstractJoint) -> None:
        """The joint of a body, as hinges and slides along the axes that it has in the present
        pose."""
        forwards = joint.body_b == child
        frames = [
            self.place[body].compose(pose(*frame))
            for body, frame in zip(joint.bodies, joint.frames, strict=True)
        ]
        values = np.asarray(self.mechanism.joint_coordinates(self.q, joint.name))
        found = moves(joint, frames[0], frames[1], values)
        here = self.place[child]
        made: list[Any] = [None] * len(values)
        sign = 1.0 if forwards else -1.0
        for kind, axis, anchor, index in found if forwards else reversed(found):
            name = joint.name if len(found) == 1 else f"{joint.name} {index + 1}"
            own = _put(element, "joint", type=kind, pos=here.local_point(anchor), name=name)
            if kind != "ball":
                turned = sign * here.local_direction(axis)
                own.attrib |= _written({"axis": turned, "ref": values[index], "springref": 0.0})
                made[index] = own
        if isinstance(joint, Serial) and "+" in joint.name:
            names = joint.name.split("+")
            if len(names) == len(made):
                for own, name in zip(made, names, strict=True):
                    own.set("name", name)
        self.hinges[joint.name] = made

    def _site(self, element: AbstractElement, k: int, along: float = 0.0) -> str:
        """The name of a site at frame k of an element, or along its axis [m]."""
        frame = pose(*element.frames[k])
        at = frame.point(np.array([0.0, 0.0, along]))
        name = f"{element.name} {'ab'[k] if k < 2 else k}{' axis' if along else ''}"
        on = self.elements[element.bodies[k]]
        _put(on, "site", name=name, pos=at, quat=frame.orientation)
        return name

    def _rope(self, element: AbstractElement, **attributes: Any) -> None:
        tendon = _put(self.section("tendon"), "spatial", name=element.name, **attributes)
        for k in range(len(element.frames)):
            _put(tendon, "site", site=self._site(element, k))

    # --- loops -----------------------------------------------------------------------------------

    def connect(self, joint: AbstractJoint) -> None:
        """A common point."""
        self._equality("connect", joint, joint.name, 0.0)

    def hinge(self, joint: AbstractJoint) -> None:
        """A second point of the axis, at a distance like that of the bodies."""
        self.connect(joint)
        self._equality("connect", joint, f"{joint.name} axis", 0.1)

    def weld(self, joint: AbstractJoint) -> None:
        """A common frame."""
        self._equality("weld", joint, joint.name, 0.0)

    def _equality(self, tag: str, joint: AbstractJoint, name: str, along: float) -> None:
        a, b = (self._site(joint, k, along) for k in (0, 1))
        _put(self.section("equality"), tag, name=name, site1=a, site2=b)

    def rod(self, joint: Distance) -> None:
        """A tendon of one length."""
        self._rope(joint, range=2 * [joint.length])

    def coupling(self, joint: CoordinateConstraint) -> None:
        """A polynomial of another coordinate."""
        parts = [part for part in (joint.coordinate, joint.of) if part is not None]
        ends = [end for end in map(self._entry, parts) if end is not None]
        driven = joint.motion is not None or joint.by_rates
        if driven or len(ends) < len(parts) or len(joint.coefficients) > 5:
            self.drop(joint, "it couples what is no hinge or slide of the file")
            return
        # MuJoCo counts both coordinates from the pose in the file, where they are `ref`.
        c = np.asarray(joint.coefficients, float)
        shifts = [
            float(end.get("ref", "0")) + _offset(part)
            for end, part in zip(ends, parts, strict=True)
        ]
        if len(ends) > 1:
            shift = np.polynomial.Polynomial([shifts[1] - float(joint.zero_of or 0.0), 1.0])
            c = np.polynomial.Polynomial(c)(shift).coef
        c = np.pad(c, (0, 5 - len(c)))
        c[0] += float(joint.zero or 0.0) - shifts[0]
        names = {f"joint{i + 1}": end.get("name") for i, end in enumerate(ends)}
        _put(self.section("equality"), "joint", name=joint.name, polycoef=c, **names)

    # --- where elements along coordinates act ----------------------------------------------------

    def _entry(self, along: AbstractScalarCoordinate) -> xml.Element | None:
        """The hinge or slide with a scalar coordinate."""
        if isinstance(along, OfJoint):
            joint, i = along.joint_name, along.index
            return None if joint not in self.hinges or i is None else self.hinges[joint][i]
        kind, z = _AXES.get(type(along)), np.array([0.0, 0.0, 1.0])
        for joint in self.mechanism.joints:
            if type(joint) is kind and joint.name in self.hinges and joint.bodies == along.bodies:
                axes = [pose(*x.frames[0]).direction(z) for x in (joint, along)]
                if np.allclose(*axes, rtol=0, atol=1e-9):
                    return self.hinges[joint.name][0]
        return None

    # --- forces ----------------------------------------------------------------------------------

    def spring(self, force: CoordinateSpring) -> None:
        """Coefficients of a hinge or slide, or of a tendon along a path."""
        along, rest = force.coordinate, 0.0 if force.rest is None else force.rest
        if is_cogging(force):
            self.drive(force)
            return
        if any(x is not None for x in (force.potential, force.law, force.actuator)):
            self.drop(force, "MJCF has no such force")
            return
        numbers = {"damping": force.damping, "frictionloss": force.dry, "armature": force.armature}
        if isinstance(along, PathLength) and (along.weights is None or np.all(along.weights == 1)):
            own = {name: x for name, x in numbers.items() if x is not None and float(x)}
            stiffness = 0.0 if force.stiffness is None else force.stiffness
            self._rope(force, springlength=rest, stiffness=stiffness, **own)
            return
        entry, ends = self._entry(along), np.broadcast_to(np.asarray(rest), 2)
        if entry is None or ends[0] != ends[1]:
            self.drop(force, "it acts along what is no hinge or slide of the file")
            return
        if force.stiffness is not None and float(force.stiffness):
            # Two springs in parallel are one, at rest at the mean weighted by their stiffness.
            own, k = float(entry.get("stiffness", "0")), float(force.stiffness)
            at_rest = own * float(entry.get("springref", "0")) + k * (ends[0] - _offset(along))
            entry.set("springref", _numbers(at_rest / (own + k)))
            _add(entry, "stiffness", k)
        for name, x in numbers.items():
            _add(entry, name, x)

    def drive(self, force: Driving) -> None:
        """An actuator of any kind, bristles or cogging."""
        entry = self._entry(force.coordinate)
        if entry is None:
            self.drop(force, "it acts along what is no hinge or slide of the file")
            return
        found = stated(force, _offset(force.coordinate))
        for why in [*found.without, *at_the_start(force)]:
            self.drop(force, why)
        if found.tag is None:
            return
        given = {"joint": entry.get("name"), **found.attributes}
        _add(entry, "armature", force.inertance)
        if isinstance(force, LuGreFriction):
            _add(entry, "damping", force.viscous)
        if found.entries:
            self._control(force, found.entries[0], found.tag, given, len(found.entries))
        else:
            _put(self.section("actuator"), found.tag, name=force.name, **given)

    def point_force(self, force: PointForce) -> None:
        """A force in the axes of a frame, from one entry of the control."""
        self._thruster(force, force.force_world, force.force_body, 0)

    def torque(self, force: Torque) -> None:
        """A torque in the axes of a frame, from one entry of the control."""
        self._thruster(force, force.torque_world, force.torque_body, 3)

    def _thruster(self, force: AbstractElement, world: Any, own: Any, first: int) -> None:
        if world is not None or not isinstance(own, FromControl) or not isinstance(own.index, int):
            self.drop(force, "MJCF has no such force")
            return
        gear = np.zeros(6)
        gear[first : first + 3] = np.asarray(own.gear)
        self._control(force, own.index, "motor", {"site": self._site(force, 0), "gear": gear})

    def _control(
        self, force: Any, index: int, tag: str, given: dict[str, Any], count: int = 1
    ) -> None:
        if index in self.controls:
            self.drop(force, f"another actuator reads entry {index} of the control")
            return
        self.section("actuator")
        element = xml.Element(tag, _written({"name": force.name, **given}))
        self.controls[index] = element, count

    # --- contacts --------------------------------------------------------------------------------

    def limit(self, contact: CoordinateLimit) -> None:
        """The range of a hinge or slide."""
        offset = _offset(contact.coordinate)
        ends = [None if x is None else float(x) - offset for x in (contact.lower, contact.upper)]
        self._range(contact, [self._entry(contact.coordinate)], [ends])

    def joint_limit(self, contact: JointLimit) -> None:
        """The ranges of the coordinates of a joint."""
        entries = self.hinges.get(contact.joint_name, [None])
        self._range(contact, entries, np.asarray(contact.limits).tolist())

    def _range(
        self, contact: Any, entries: Sequence[xml.Element | None], ranges: list[Any]
    ) -> None:
        """Limit coordinates, also by the limits that they have already."""
        if None in entries or any(None in ends for ends in ranges):
            self.drop(contact, "it limits what is no hinge or slide of the file")
            return
        for entry, (low, high) in zip(entries, ranges, strict=True):
            assert entry is not None
            lower, upper = (float(x) for x in entry.get("range", "-inf inf").split())
            entry.set("range", _numbers(max(lower, low), min(upper, high)))

    def pair(self, contact: Contact) -> None:
        """A pair of geoms."""
        law, a, b = contact.law, contact.surface_velocity_a, contact.surface_velocity_b
        names = [
            self._geom(contact.body_a, contact.shape_a, contact.frame_a, a),
            self._geom(contact.body_b, contact.shape_b, contact.frame_b, b),
        ]
        if None in names:
            self.drop(contact, "MJCF has no such shape")
            return
        coefficients = (law.friction, law.torsional, law.rolling)
        if any(np.ndim(x) for x in coefficients if x is not None):
            self.drop(contact, "it has several coefficients")
            return
        slide, torsion, roll = (0.0 if x is None else float(x) for x in coefficients)
        dimension = 6 if law.rolling is not None else 4 if law.torsional is not None else 3
        _put(
            self.section("contact"),
            "pair",
            name=contact.name,
            geom1=names[0],
            geom2=names[1],
            condim=str(1 if law.friction is None else dimension),
            friction=(slide, slide, torsion, roll, roll),
            margin=contact.margin,
        )

    def _geom(self, body: str, shape: AbstractShape, frame: Pose, velocity: Any) -> str | None:
        """The name of the geom of a shape; equal ones are written once."""
        known = {HalfSpace: ("plane", [0.0, 0.0, 1.0]), ConvexPoints: ("mesh", None)}
        stated = known.get(type(shape)) or kind_and_size(shape)
        if stated is None:
            return None
        kind, size = stated
        given = {"size": size, "pos": frame.position, "quat": frame.orientation}
        given = _written({**given, "surfacevel": velocity})
        points = shape.points if isinstance(shape, ConvexPoints) else ()
        key = (body, kind, *given.items(), *np.ravel(points).tolist())
        if key not in self.geoms:
            name = self.geoms[key] = f"{body} {kind} {len(self.geoms) + 1}"
            if kind == "mesh":
                vertices = np.unique(np.asarray(points), axis=0)
                _put(self.section("asset"), "mesh", name=name, vertex=vertices)
                given["mesh"] = name
            mask = {"contype": "0", "conaffinity": "0"}
            _put(self.elements[body], "geom", name=name, type=kind, **mask, **given)
        return self.geoms[key]


# How elements are written, by class.
_LOOPS: dict[type, Callable[..., None]] = {
    CoordinateConstraint: _Writer.coupling,
    Spherical: _Writer.connect,
    Revolute: _Writer.hinge,
    Fixed: _Writer.weld,
    Distance: _Writer.rod,
}
_FORCES: dict[type, Callable[..., None]] = {
    CoordinateSpring: _Writer.spring,
    CoordinateActuator: _Writer.drive,
    PIDController: _Writer.drive,
    DCMotor: _Writer.drive,
    LuGreFriction: _Writer.drive,
    PointForce: _Writer.point_force,
    Torque: _Writer.torque,
}
_CONTACTS: dict[type, Callable[..., None]] = {
    CoordinateLimit: _Writer.limit,
    JointLimit: _Writer.joint_limit,
    Contact: _Writer.pair,
}


def _offset(coordinate: AbstractScalarCoordinate) -> float:
    """The scalar coordinate where the coordinate of its joint is 0."""
    return float(getattr(coordinate, "offset", None) or 0.0)


def _add(entry: xml.Element, name: str, value: Any) -> None:
    """Add to a coefficient, since several elements may act on one joint."""
    if value is not None and float(value):
        entry.set(name, _numbers(float(entry.get(name, "0")) + float(value)))

"""Mechanisms as MJCF."""

import warnings
import xml.etree.ElementTree as xml
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from .._coordinates import algebra
from ..mechanism import (
    GROUND,
    AbstractConstraint,
    AbstractJoint,
    AbstractOfFrames,
    Angle,
    Contact,
    ConvexPoints,
    CoordinateActuator,
    CoordinateConstraint,
    CoordinateLimit,
    CoordinateSpring,
    Cylindrical,
    Displacement,
    Distance,
    Fixed,
    FromControl,
    HalfSpace,
    JointLimit,
    Mechanism,
    OfJoint,
    PathLength,
    Planar,
    PointForce,
    Pose,
    Prismatic,
    Revolute,
    Serial,
    Spherical,
    Torque,
    TwistAngle,
    Universal,
)
from .loaded import Loaded, pose
from .shapes import kind_and_size

# The coordinates of joints as joints of MJCF: kind, and number of the frame and of its axis.
_MOVES = {
    Fixed: (),
    Revolute: (("hinge", 0, 2),),
    Prismatic: (("slide", 0, 2),),
    Spherical: (("ball", 0, 2),),
    Cylindrical: (("slide", 0, 2), ("hinge", 0, 2)),
    Planar: (("slide", 0, 0), ("slide", 0, 1), ("hinge", 0, 2)),
    Universal: (("hinge", 0, 0), ("hinge", 1, 1)),
}
_IN_TREE = (*_MOVES, Serial)


def write_mjcf(model: Mechanism | Loaded, path: Path) -> None:
    """Write a mechanism as MJCF. What MJCF cannot say is told in one warning."""
    writer = _Writer(model if isinstance(model, Mechanism) else model.mechanism, model)
    path.write_text(writer.text() + "\n")
    if writer.dropped:
        lines = "\n".join(f"  {line}" for line in writer.dropped)
        warnings.warn(f"MJCF cannot say all of it. {path.name} is without:\n{lines}", stacklevel=4)


def _numbers(*values: Any) -> str:
    return " ".join(repr(float(x)) for value in values for x in np.ravel(np.asarray(value)))


class _Writer:
    """The elements of the file, and where to add to them."""

    def __init__(self, mechanism: Mechanism, model: Any):
        self.mechanism, self.dropped = mechanism, []
        state = mechanism.state()
        self.q = state.q
        self.root = xml.Element("mujoco", model="jaxmbd")
        xml.SubElement(self.root, "compiler", {}, angle="radian", autolimits="true")
        option = xml.SubElement(self.root, "option", gravity=_numbers(mechanism.gravity))
        if isinstance(model, Loaded):
            option.set("timestep", repr(model.dt))
        self.world = xml.SubElement(self.root, "worldbody")
        self.sections: dict[str, xml.Element] = {}
        self.elements: dict[str, xml.Element] = {GROUND: self.world}
        self.place: dict[str, Pose] = {GROUND: pose()}
        for body in mechanism.bodies:
            self.place[body.name] = pose(*body.pose)
        # Joint of the mechanism -> an element of the file for each coordinate.
        self.hinges: dict[str, list[xml.Element]] = {}
        self.geoms: dict[Any, str] = {}
        self.controls: dict[int, xml.Element] = {}
        self._bodies()
        self._loops()
        for force in mechanism.forces:
            self._force(force)
        for contact in mechanism.contacts:
            self._contact(contact)
        section = self.sections.get("actuator")
        if section is not None:
            entries = [self.controls[i] for i in sorted(self.controls)]
            if sorted(self.controls) != list(range(len(entries))):
                self.dropped.append("entries of the control that no actuator reads")
            section[:] = entries

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

    # --- tree ------------------------------------------------------------------------------------

    def _bodies(self) -> None:
        """The bodies as a tree of joints; those that no joint reaches are free."""
        at: dict[str, list[AbstractConstraint]] = defaultdict(list)
        for joint in self.mechanism.joints:
            if isinstance(joint, _IN_TREE) and joint.name not in self.mechanism.switches:
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
        self._body(name, parent, joint)

    def _body(self, name: str, parent: str, joint: Any) -> None:
        """A body inside of another one."""
        body = self.mechanism.body(name)
        relative = self.place[parent].relative(self.place[name])
        element = xml.SubElement(
            self.elements[parent],
            "body",
            name=name,
            pos=_numbers(relative.position),
            quat=_numbers(relative.orientation),
        )
        self.elements[name] = element
        tensor = np.asarray(body.inertia.tensor, float)
        moments, axes = np.linalg.eigh(tensor)
        axes[:, 2] = np.cross(axes[:, 0], axes[:, 1])
        diagonal = np.allclose(tensor, np.diag(np.diag(tensor)), rtol=0, atol=1e-15 * moments[-1])
        xml.SubElement(
            element,
            "inertial",
            {
                "pos": _numbers(body.inertia.center),
                "mass": _numbers(body.inertia.mass),
                **(
                    {"diaginertia": _numbers(np.diag(tensor))}
                    if diagonal
                    else {
                        "fullinertia": _numbers(
                            np.diag(tensor), tensor[0, 1], tensor[0, 2], tensor[1, 2]
                        )
                    }
                ),
            },
        )
        if joint is None:
            xml.SubElement(element, "freejoint", name=f"{name} free")
            return
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
        moves = _moves(joint, frames[0], frames[1], values)
        here = self.place[child]
        made: list[Any] = [None] * len(values)
        sign = 1.0 if forwards else -1.0
        for kind, axis, anchor, index in moves if forwards else reversed(moves):
            own = xml.SubElement(
                element, "joint", type=kind, pos=_numbers(here.local_point(anchor))
            )
            own.set("name", joint.name if len(moves) == 1 else f"{joint.name} {index + 1}")
            if kind == "ball":
                continue
            own.set("axis", _numbers(sign * here.local_direction(axis)))
            own.set("ref", _numbers(values[index]))
            own.set("springref", "0.0")
            made[index] = own
        if isinstance(joint, Serial) and "+" in joint.name:
            names = joint.name.split("+")
            if len(names) == len(made):
                for own, name in zip(made, names, strict=True):
                    own.set("name", name)
        self.hinges[joint.name] = made

    # --- loops -----------------------------------------------------------------------------------

    def _loops(self) -> None:
        for joint in self.mechanism.joints:
            if joint.name in self.used:
                continue
            if joint.name in self.mechanism.switches:
                self.drop(joint, "it has a switch")
            elif isinstance(joint, CoordinateConstraint):
                self._coupling(joint)
            elif isinstance(joint, Spherical | Revolute | Fixed):
                self._closing(joint)
            elif isinstance(joint, Distance):
                self._rope(joint, {"range": _numbers(2 * [joint.length])})
            else:
                self.drop(joint, "MJCF has no such constraint")

    def _closing(self, joint: AbstractJoint) -> None:
        a, b = (self._site(joint, k) for k in (0, 1))
        section = self.section("equality")
        if isinstance(joint, Fixed):
            xml.SubElement(section, "weld", name=joint.name, site1=a, site2=b)
            return
        xml.SubElement(section, "connect", name=joint.name, site1=a, site2=b)
        if isinstance(joint, Revolute):
            # A second point of the axis, at a distance like that of the bodies.
            a, b = (self._site(joint, k, 0.1) for k in (0, 1))
            xml.SubElement(section, "connect", name=f"{joint.name} axis", site1=a, site2=b)

    def _site(self, element: Any, k: int, along: float = 0.0) -> str:
        """The name of a site at frame k of an element, or along its axis [m]."""
        frame = pose(*element.frames[k])
        position = frame.point(np.array([0.0, 0.0, along]))
        name = f"{element.name} {'ab'[k] if k < 2 else k}{' axis' if along else ''}"
        xml.SubElement(
            self.elements[element.bodies[k]],
            "site",
            name=name,
            pos=_numbers(position),
            quat=_numbers(frame.orientation),
        )
        return name

    def _rope(self, element: Any, attributes: dict[str, str]) -> None:
        tendon = xml.SubElement(
            self.section("tendon"), "spatial", {"name": element.name, **attributes}
        )
        for k in range(len(element.frames)):
            xml.SubElement(tendon, "site", site=self._site(element, k))

    def _coupling(self, joint: CoordinateConstraint) -> None:
        ends = [self._entry(joint, joint.coordinate)]
        if joint.of is not None:
            ends.append(self._entry(joint, joint.of))
        if None in ends or len(joint.coefficients) > 5:
            self.drop(joint, "it couples what is no hinge or slide of the file")
            return
        # MuJoCo counts both coordinates from the pose in the file, where they are `ref`.
        c = np.asarray(joint.coefficients, float)
        parts = [part for part in (joint.coordinate, joint.of) if isinstance(part, OfJoint)]
        shifts = [
            float(end.get("ref", "0")) + float(part.offset)
            for end, part in zip(ends, parts, strict=True)
            if end is not None
        ]
        x0 = float(joint.zero) - shifts[0]
        if len(ends) == 1:
            c = c + x0
        else:
            shift = np.polynomial.Polynomial([shifts[1] - float(joint.zero_of), 1.0])
            c = np.polynomial.Polynomial(c)(shift).coef
            c[0] += x0
        names = [end.get("name", "") for end in ends if end is not None]
        attributes = {f"joint{i + 1}": name for i, name in enumerate(names)}
        polynomial = _numbers(np.pad(c, (0, 5 - len(c))))
        xml.SubElement(
            self.section("equality"),
            "joint",
            {"name": joint.name, "polycoef": polynomial, **attributes},
        )

    # --- forces ----------------------------------------------------------------------------------

    def _entry(self, element: Any, coordinate: Any) -> xml.Element | None:
        """The hinge or slide that a scalar coordinate of an element reads."""
        if isinstance(coordinate, Displacement | Angle | TwistAngle):
            return self._axis(element, coordinate)
        if not isinstance(coordinate, OfJoint):
            return None
        joint, index = coordinate.coordinate.joint_name, coordinate.coordinate.index
        return None if joint not in self.hinges or index is None else self.hinges[joint][index]

    def _axis(self, force: Any, coordinate: AbstractOfFrames) -> xml.Element | None:
        """The hinge or slide about or along whose axis a force between two frames acts."""
        kind = Prismatic if isinstance(coordinate, Displacement) else Revolute
        for joint in self.mechanism.joints:
            if joint.name in self.hinges and tuple(joint.bodies) == tuple(force.bodies):
                if isinstance(joint, kind) and _same_axis(joint, force):
                    return self.hinges[joint.name][0]
        return None

    def _force(self, force: Any) -> None:
        if isinstance(force, CoordinateSpring):
            self._spring(force)
        elif isinstance(force, CoordinateActuator):
            self._servo(force)
        elif isinstance(force, PointForce | Torque):
            self._thruster(force)
        else:
            self.drop(force, "MJCF has no such force")

    def _spring(self, force: CoordinateSpring) -> None:
        along, rest = force.coordinate, 0.0 if force.rest is None else force.rest
        if any(x is not None for x in (force.potential, force.law, force.actuator)):
            self.drop(force, "MJCF has no such force")
            return
        numbers = {
            "stiffness": force.stiffness,
            "damping": force.damping,
            "frictionloss": force.dry,
            "armature": force.armature,
        }
        known = {name: 0.0 if x is None else float(x) for name, x in numbers.items()}
        if isinstance(along, PathLength) and (along.weights is None or np.all(along.weights == 1)):
            own = {name: _numbers(x) for name, x in known.items() if x or name == "stiffness"}
            self._rope(force, {"springlength": _numbers(rest), **own})
            return
        entry, ends = self._entry(force, along), np.broadcast_to(np.asarray(rest), 2)
        if entry is None or ends[0] != ends[1]:
            self.drop(force, "it acts along what is no hinge or slide of the file")
            return
        _add_spring(entry, known.pop("stiffness"), ends[0] - _offset(along))
        for name, x in known.items():
            _add(entry, name, x)

    def _servo(self, force: CoordinateActuator) -> None:
        entry = self._entry(force, force.coordinate)
        if entry is None:
            self.drop(force, "it acts along what is no hinge or slide of the file")
            return
        element = xml.Element("motor", name=force.name, joint=entry.get("name", ""))
        element.set("gear", _numbers(force.gear))
        if force.gain is not None or force.bias is not None:
            gain = np.array([1.0, 0.0, 0.0] if force.gain is None else force.gain, float)
            bias = np.zeros(3) if force.bias is None else np.array(force.bias, float)
            # The hinge of the file counts from the zero of the joint, not of the coordinate.
            offset = _offset(force.coordinate) * float(force.gear)
            bias[0] += bias[1] * offset
            gain[0] += gain[1] * offset
            element.tag = "general"
            element.set("gaintype", "affine" if np.any(gain[1:]) else "fixed")
            element.set("gainprm", _numbers(gain))
            element.set("biastype", "affine" if np.any(bias) else "none")
            element.set("biasprm", _numbers(bias))
        if force.limits is not None:
            element.set("forcerange", _numbers(np.clip(force.limits, -1e30, 1e30)))
        if force.inertance is not None:
            _add(entry, "armature", force.inertance)
        self._control(force, force.index, element)

    def _thruster(self, force: PointForce | Torque) -> None:
        """A force or torque in the axes of a frame, from one entry of the control."""
        point = isinstance(force, PointForce)
        own = force.force_body if point else force.torque_body
        world = force.force_world if point else force.torque_world
        if world is not None or not isinstance(own, FromControl) or not isinstance(own.index, int):
            self.drop(force, "MJCF has no such force")
            return
        gear = np.broadcast_to(np.asarray(own.gear), (3,))
        six = (gear, np.zeros(3)) if point else (np.zeros(3), gear)
        site = self._site(force, 0)
        element = xml.Element("motor", name=force.name, site=site, gear=_numbers(*six))
        self._control(force, own.index, element)

    def _control(self, force: Any, index: int, element: xml.Element) -> None:
        if index in self.controls:
            self.drop(force, f"another actuator reads entry {index} of the control")
            return
        self.section("actuator")
        self.controls[index] = element

    # --- contacts --------------------------------------------------------------------------------

    def _contact(self, contact: Any) -> None:
        law = contact.law
        stiff = law.stiffness is None or np.all(np.isinf(np.asarray(law.stiffness)))
        if not stiff or law.kinetic is not None or np.any(np.asarray(law.restitution)):
            self.drop(contact, "its restitution, stiffness and kinetic friction")
        if isinstance(contact, CoordinateLimit):
            entry = self._entry(contact, contact.coordinate)
            if entry is None or contact.lower is None or contact.upper is None:
                self.drop(contact, "it limits what is no hinge or slide of the file")
                return
            offset = _offset(contact.coordinate)
            _limit(entry, *(np.asarray(x) - offset for x in (contact.lower, contact.upper)))
        elif isinstance(contact, JointLimit):
            entries = self.hinges.get(contact.joint_name)
            if entries is None:
                self.drop(contact, "it limits what is no hinge or slide of the file")
                return
            for entry, ends in zip(entries, np.asarray(contact.limits), strict=True):
                _limit(entry, *ends)
        elif isinstance(contact, Contact):
            self._pair(contact)
        else:
            self.drop(contact, "MJCF has no such contact")

    def _pair(self, contact: Contact) -> None:
        shapes = (contact.shape_a, contact.shape_b)
        surfaces = (contact.surface_velocity_a, contact.surface_velocity_b)
        ends = zip(contact.bodies, shapes, contact.frames, surfaces, strict=True)
        names = [
            self._geom(body, shape, pose(*frame), surface) for body, shape, frame, surface in ends
        ]
        if None in names:
            self.drop(contact, "MJCF has no such shape")
            return
        law = contact.law
        if any(np.ndim(x) for x in (law.friction, law.torsional, law.rolling) if x is not None):
            self.drop(contact, "it has several coefficients")
            return
        slide, torsion, roll = (
            0.0 if x is None else float(x) for x in (law.friction, law.torsional, law.rolling)
        )
        dimension = 6 if law.rolling is not None else 4 if law.torsional is not None else 3
        dimension = 1 if law.friction is None else dimension
        pair = xml.SubElement(
            self.section("contact"),
            "pair",
            name=contact.name,
            geom1=str(names[0]),
            geom2=str(names[1]),
            condim=str(dimension),
            friction=_numbers(slide, slide, torsion, roll, roll),
        )
        if contact.margin is not None:
            pair.set("margin", _numbers(contact.margin))

    def _geom(self, body: str, shape: Any, frame: Pose, surface: Any) -> str | None:
        """The name of the geom of a shape; equal ones are written once."""
        known = {HalfSpace: ("plane", [0.0, 0.0, 1.0]), ConvexPoints: ("mesh", None)}
        stated = known.get(type(shape)) or kind_and_size(shape)
        if stated is None:
            return None
        kind, size = stated
        numbers = shape.points if size is None else size
        velocity = () if surface is None else tuple(np.asarray(surface).tolist())
        key = (
            body,
            kind,
            *np.ravel(numbers).tolist(),
            *frame.position,
            *frame.orientation,
            velocity,
        )
        if key in self.geoms:
            return self.geoms[key]
        name = f"{body} {kind} {len(self.geoms) + 1}"
        self.geoms[key] = name
        element = xml.SubElement(
            self.elements[body], "geom", name=name, type=kind, contype="0", conaffinity="0"
        )
        if velocity:
            element.set("surfacevel", _numbers(velocity))
        position, orientation = frame
        if size is not None:
            element.set("size", _numbers(size))
        else:
            mesh = xml.SubElement(self.section("asset"), "mesh", name=name)
            mesh.set("vertex", _numbers(np.unique(np.asarray(numbers), axis=0)))
            element.set("mesh", name)
        element.set("pos", _numbers(position))
        element.set("quat", _numbers(orientation))
        return name


def _offset(coordinate: Any) -> float:
    """The scalar coordinate where the coordinate of its joint is 0."""
    return float(coordinate.offset) if isinstance(coordinate, OfJoint) else 0.0


def _add(entry: xml.Element, name: str, value: Any) -> None:
    """Add to a coefficient, since several elements may act on one joint."""
    if float(value):
        entry.set(name, _numbers(float(entry.get(name, "0")) + float(value)))


def _add_spring(entry: xml.Element, stiffness: Any, rest: Any) -> None:
    """Add a spring: two in parallel are one, at rest at the mean weighted by their stiffness."""
    own, k = float(entry.get("stiffness", "0")), float(stiffness)
    if k:
        at_rest = (own * float(entry.get("springref", "0")) + k * float(rest)) / (own + k)
        entry.set("springref", _numbers(at_rest))
    _add(entry, "stiffness", k)


def _limit(entry: xml.Element, low: Any, high: Any) -> None:
    """Limit a coordinate, also by the limits that it has already."""
    before = [float(x) for x in entry.get("range", "-inf inf").split()]
    entry.set("range", _numbers(max(before[0], float(low)), min(before[1], float(high))))


def _same_axis(joint: Any, force: Any) -> bool:
    """Whether a force has the axis of a joint, on its body a."""
    z = np.eye(3)[2]
    mine, other = (pose(*element.frames[0]) for element in (joint, force))
    return bool(
        np.allclose(
            mine.direction(z),
            other.direction(z),
            rtol=0,
            atol=1e-9,
        )
    )


def _moves(joint: Any, a: Pose, b: Pose, values: np.ndarray) -> list[tuple[str, Any, Any, int]]:
    """The hinges and slides of a joint from body a to body b at the present pose, at these values
    of its coordinates: kind, axis and anchor in the world, and index of the coordinate."""
    if isinstance(joint, Serial):
        return _serial_moves(joint, a, b, values)
    return [
        (kind, (a, b)[end].direction(np.eye(3)[axis]), b.position, i)
        for i, (kind, end, axis) in enumerate(_MOVES[type(joint)])
    ]


def _serial_moves(joint: Serial, a: Pose, b: Pose, values: np.ndarray):
    slides, axes = np.asarray(joint.slides), np.asarray(joint.axes)
    anchors = np.zeros_like(axes) if joint.anchors is None else np.asarray(joint.anchors)
    moves: list[tuple[str, Any, Any, int]] = [
        ("slide", a.direction(s), b.position, i) for i, s in enumerate(slides)
    ]
    # From the inner end outwards: each axis is carried by the turns before it.
    found, frame = [], b
    for i in reversed(range(len(axes))):
        axis = frame.direction(axes[i])
        anchor = frame.point(anchors[i])
        found.append(("hinge", axis, anchor, len(slides) + i))
        turned = algebra.quaternion_product(
            frame.orientation, algebra.quaternion_about(axes[i], -values[len(slides) + i])
        )
        frame = pose(anchor - algebra.quaternion_rotate(turned, anchors[i]), turned)
    return moves + found[::-1]

"""Models in SDFormat, which states loops as they are.

The file is read here, with Python's own XML reader: SDFormat's library is not on PyPI, and the
parser `rod` refuses versions before 1.7, in which robots such as Cassie are written.
"""

import math
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..mechanism import (
    GROUND,
    AbstractConstraint,
    AbstractContact,
    AbstractForceElement,
    AbstractJoint,
    Body,
    CoordinateLimit,
    CoordinateSpring,
    Coupler,
    Fixed,
    Inertia,
    Mechanism,
    OfJoint,
    Prismatic,
    Revolute,
    Screw,
    Spherical,
    Universal,
)
from . import rigid
from .loaded import Loaded, Visual
from .rigid import Transform
from .source import pose

_GRAVITY = (0.0, 0.0, -9.8)  # the default of SDFormat
_SHAPES = ("box", "sphere", "cylinder", "capsule", "ellipsoid")


def read_sdf(path: Path, *, limits: bool) -> Loaded:
    """The first model of a file in SDFormat.

    **Raises:** `ValueError` of one line for a file that is no such model."""
    if not path.is_file():
        raise ValueError(f"There is no file {str(path)!r} to load a model from.")
    try:
        root = xml.parse(path).getroot()
    except xml.ParseError as error:
        raise ValueError(f"{path} is not XML: {error}.") from None
    model = root if root.tag == "model" else root.find(".//model")
    if root.tag not in ("sdf", "model") or model is None:
        raise ValueError(f"{path} holds no <model> of SDFormat, but <{root.tag}>.")
    return _Reader(path, root, model, limits).loaded()


class _Reader:
    """The elements of a model, in the world."""

    def __init__(self, path: Path, root: xml.Element, model: xml.Element, limits: bool):
        self.path, self.model = path, model
        self.dropped: list[str] = []
        self.links = {str(link.get("name")): link for link in model.findall("link")}
        for kind in ("link", "joint"):
            names = [str(part.get("name")) for part in model.findall(kind)]
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{path} uses the names {twice} of a <{kind}> twice: rename one.")
        self.version = _version(root)
        self._places: dict[str, Transform] = {}
        self._asked: list[str] = []
        self._model_place = self._place_of_model()
        self.joints: list[AbstractConstraint] = []
        self.forces: list[AbstractForceElement] = []
        self.stops: list[AbstractContact] = []
        gravity = root.findtext("world/gravity")
        self.gravity = np.array(_GRAVITY if gravity is None else _vector(gravity))
        self.bodies = [self._body(name, link) for name, link in self.links.items()]
        if not self.bodies:
            raise ValueError(f"{path} has no <link>.")
        geared = []
        for joint in model.findall("joint"):
            (geared.append if joint.get("type") == "gearbox" else self._joint)(joint)
        for joint in geared:
            self._gearbox(joint)
        if not limits:
            self.stops = []
        self._tell_what_is_not_read(
            [model] if root is model else [model, root, *root.findall("world")]
        )

    def loaded(self) -> Loaded:
        """The result."""
        mechanism = Mechanism(
            self.bodies, self.joints, self.forces, self.stops, gravity=self.gravity
        )
        return Loaded(
            mechanism=mechanism,
            state=mechanism.state(),
            controls=(),
            dropped=tuple(self.dropped),
            joints=(),
            branches=(),
            visuals=self._visuals(),
            frames={name: (name, pose(Transform.identity())) for name in self.links},
            keyframes={},
            key_controls={},
            sensors={},
            dt=1e-3,
            source=str(self.path),
        )

    def _tell_what_is_not_read(self, above: list[xml.Element]) -> None:
        model = self.model
        if _true(model.findtext("static", "0")):
            self.dropped.append("the model is static: here it moves")
        for name, link in self.links.items():
            if not _true(link.findtext("gravity", "1")):
                self.dropped.append(f'link "{name}": it has no weight in the file, but here')
        for joint in model.findall("joint"):
            if joint.find("axis/mimic") is not None or joint.find("axis2/mimic") is not None:
                self.dropped.append(f'joint "{joint.get("name")}": that it mimics another')
        parts = [x for place in above for tag in ("include", "model") for x in place.findall(tag)]
        for part in [*model.findall("plugin"), *parts]:
            if part is not model:
                self.dropped.append(f'{part.tag} "{part.get("name", "")}": not read')

    # --- frames ----------------------------------------------------------------------------------

    def _place_of_model(self) -> Transform:
        """Where the frame of the model is. Its <pose> places this frame, or the one that
        `placement_frame` names."""
        given, named = self.model.find("pose"), self.model.get("placement_frame", "")
        relative = "" if given is None else given.get("relative_to", "")
        if relative not in ("", "world"):
            raise ValueError(
                f'{self.path}: the <pose> of the model is relative to "{relative}", which is not '
                "read: give it in the world."
            )
        self._model_place = Transform.identity()
        placed = self._place(named)
        self._places.clear()
        return _transform(given).compose(placed.inverse())

    def _place(self, name: str) -> Transform:
        """Where a link, joint or frame is in the world."""
        if name == "world":
            return Transform.identity()
        if name in ("", "__model__"):
            return self._model_place
        if name in self._asked:
            raise ValueError(f'{self.path}: the <pose> of "{name}" is relative to itself.')
        if name not in self._places:
            for tag in ("link", "joint", "frame"):
                part = self.model.find(f"{tag}[@name='{name}']")
                if part is None:
                    continue
                default = {"joint": part.findtext("child", ""), "link": ""}
                at = default.get(tag, part.get("attached_to", ""))
                self._asked.append(name)
                self._places[name] = self._posed(part, at.strip())
                self._asked.pop()
                break
            else:
                raise ValueError(f'{self.path} refers to "{name}", which it does not have.')
        return self._places[name]

    def _posed(self, part: xml.Element, default: str) -> Transform:
        """The pose of an element in the world, from its <pose>."""
        given, relative = part.find("pose"), default
        if given is not None:
            relative = given.get("relative_to") or given.get("frame") or default
        return self._place(relative).compose(_transform(given))

    # --- bodies ----------------------------------------------------------------------------------

    def _body(self, name: str, link: xml.Element) -> Body:
        inertial = link.find("inertial")
        mass = 0.0 if inertial is None else float(inertial.findtext("mass", "1"))
        if inertial is None or not mass > 0:
            raise ValueError(
                f'{self.path}: the <link> "{name}" has no mass: give it an <inertial>, or merge it '
                "with another link."
            )
        entries = {
            key: float(inertial.findtext(f"inertia/{key}", "1" if key in _DIAGONAL else "0"))
            for key in (*_DIAGONAL, "ixy", "ixz", "iyz")
        }
        tensor = np.diag([entries[key] for key in _DIAGONAL])
        for (i, j), key in {(0, 1): "ixy", (0, 2): "ixz", (1, 2): "iyz"}.items():
            tensor[i, j] = tensor[j, i] = entries[key]
        at = _transform(inertial.find("pose"))
        R = rigid.matrix(at.orientation)
        tensor = R @ tensor @ R.T
        tensor = (tensor + tensor.T) / 2
        moments = np.linalg.eigvalsh(tensor)
        if not moments[0] > 0:
            raise ValueError(
                f'{self.path}: the <link> "{name}" has the principal moments {moments.tolist()}, '
                "which must be positive: correct its <inertia>."
            )
        # A ball with the same trace is always physical; its tensor is then replaced.
        inertia = Inertia(mass, 3 * [np.trace(tensor) / 3], at.position)
        inertia = eqx.tree_at(lambda i: i.tensor, inertia, jnp.asarray(tensor, inertia.mass.dtype))
        if moments[2] > (1 + 1e-9) * (moments[0] + moments[1]):
            self.dropped.append(
                f'link "{name}": no mass distribution has its moments {moments.tolist()}; they '
                "are used as they are"
            )
        place = self._place(name)
        return Body(name, inertia, position=place.position, orientation=place.orientation)

    # --- joints ----------------------------------------------------------------------------------

    def _joint(self, joint: xml.Element) -> None:
        name, kind = str(joint.get("name")), str(joint.get("type"))
        ends = [self._end(joint, tag) for tag in ("parent", "child")]
        place = self._place(name)
        if kind in ("revolute", "continuous", "prismatic", "screw"):
            axis = self._axis(joint, "axis", place)
            frame = Transform(place.position, rigid.along(axis))
        elif kind in ("universal", "revolute2"):
            x = self._axis(joint, "axis", place)
            y = self._axis(joint, "axis2", place)
            if abs(x @ y) > 1e-9:
                raise ValueError(
                    f'{self.path}: the axes of the joint "{name}" must be at right angles, but '
                    f"their cosine is {x @ y:.6g}: correct <xyz> of its <axis2>."
                )
            frame = Transform(place.position, _of_axes(x, y))
        elif kind in ("ball", "fixed"):
            frame = place
        else:
            self.dropped.append(f'joint "{name}": the type "{kind}"')
            return
        frames: dict[str, Any] = {
            key: pose(self._place(end).inverse().compose(frame))
            for key, end in zip(("frame_a", "frame_b"), ends, strict=True)
        }
        a, b = (GROUND if end == "world" else end for end in ends)
        low, high = self._range(joint)
        limited: Any = None if math.isinf(low) and math.isinf(high) else [low, high]
        if kind in ("revolute", "continuous"):
            made = Revolute(name, a, b, limits=limited, **frames)
        elif kind == "prismatic":
            made = Prismatic(name, a, b, limits=limited, **frames)
        elif kind == "screw":
            made = Screw(name, a, b, pitch=_pitch(joint), **frames)
        elif kind == "ball":
            made = Spherical(name, a, b, **frames)
        elif kind == "fixed":
            made = Fixed(name, a, b, **frames)
        else:
            made = Universal(name, a, b, **frames)
        self.joints.append(made)
        tags = ("axis", "axis2")[: made.count()] if kind != "ball" else ()
        for i, tag in enumerate(tags):
            self._dynamics(joint, made, tag, i)

    def _end(self, joint: xml.Element, tag: str) -> str:
        """The link that a joint holds, by its name or by that of a frame on it, or the world."""
        given = end = (joint.findtext(tag) or "").strip()
        carriers = {x.get("name"): x.findtext("child", "") for x in self.model.findall("joint")}
        carriers |= {x.get("name"): x.get("attached_to", "") for x in self.model.findall("frame")}
        while end not in self.links and end in carriers:
            end = carriers.pop(end).strip()
        if end != "world" and end not in self.links:
            raise ValueError(
                f'{self.path}: the <{tag}> of the joint "{joint.get("name")}" is "{given}", which '
                "is no <link> and no <frame> on one."
            )
        return end

    def _axis(self, joint: xml.Element, tag: str, place: Transform) -> np.ndarray:
        """The direction of an axis, in the world."""
        part = joint.find(tag)
        given = None if part is None else part.find("xyz")
        axis = np.array([0.0, 0.0, 1.0])
        if given is not None and given.text:
            axis = _vector(given.text)
        axis = axis / np.linalg.norm(axis)
        # Axes are in the frame of the joint since version 1.5.
        default = "1" if self.version < (1, 5) else "0"
        in_model = default if part is None else part.findtext("use_parent_model_frame", default)
        if _true(in_model):
            return rigid.rotate(self._model_place.orientation, axis)
        frame = None if given is None else given.get("expressed_in")
        at = place if not frame else self._place(frame)
        return rigid.rotate(at.orientation, axis)

    def _range(self, joint: xml.Element, tag: str = "axis") -> tuple[float, float]:
        low, high = (
            float(joint.findtext(f"{tag}/limit/{end}", default))
            for end, default in (("lower", "-inf"), ("upper", "inf"))
        )
        # Large numbers mean no limit.
        return (low if low > -1e10 else -math.inf), (high if high < 1e10 else math.inf)

    def _dynamics(self, joint: xml.Element, made: AbstractJoint, tag: str, i: int) -> None:
        """Damping, friction, spring and limits along one axis."""
        along, name = OfJoint(made, i), made.name if i == 0 else f"{made.name} {i + 1}"
        damping, dry, stiffness, rest = (
            float(joint.findtext(f"{tag}/dynamics/{key}", "0"))
            for key in ("damping", "friction", "spring_stiffness", "spring_reference")
        )
        if damping or dry or stiffness:
            self.forces.append(
                CoordinateSpring(
                    name, along, stiffness=stiffness, rest=rest, damping=damping, dry=dry
                )
            )
        low, high = self._range(joint, tag)
        if math.isinf(low) and math.isinf(high):
            return
        if made.angles and high - low >= 2 * math.pi:
            self.dropped.append(f'joint "{made.name}": its limits are a turn or more apart')
            return
        middle = (low + high) / 2 if made.angles and math.isfinite(low + high) else 0.0
        self.stops.append(
            CoordinateLimit(
                name,
                OfJoint(made, i, middle=middle),
                lower=None if math.isinf(low) else low,
                upper=None if math.isinf(high) else high,
            )
        )

    def _gearbox(self, joint: xml.Element) -> None:
        """A fixed ratio of the angles of parent and child relative to a third link."""
        name, ratio = str(joint.get("name")), float(joint.findtext("gearbox_ratio", "1"))
        reference = (joint.findtext("gearbox_reference_body") or "").strip()
        ends = [self._end(joint, tag) for tag in ("parent", "child")]
        hinges = []
        for end in ends:
            found = [
                hinge
                for hinge in self.joints
                if isinstance(hinge, Revolute) and {*hinge.bodies} == {reference, end}
            ]
            hinges.append(found[0] if found else None)
        if None in hinges or not ratio:
            self.dropped.append(f'joint "{name}": a gearbox without hinges on "{reference}"')
            return
        # theta_2 = -ratio theta_1
        self.joints.append(Coupler(name, hinges[1], hinges[0], ratio=-ratio))

    # --- shapes ----------------------------------------------------------------------------------

    def _visuals(self) -> tuple[Visual, ...]:
        """Shapes to draw. Meshes are not read."""
        found = []
        for link_name, link in self.links.items():
            collisions = len(link.findall("collision"))
            if collisions:
                self.dropped.append(f'link "{link_name}": its {collisions} contact shapes')
            for part in link.findall("visual"):
                name = str(part.get("name"))
                shape = part.find("geometry")
                kind = "" if shape is None or not len(shape) else shape[0].tag
                if shape is None or kind not in _SHAPES:
                    self.dropped.append(f'visual "{name}": the shape "{kind}"')
                    continue
                at = _transform(part.find("pose"))
                colour = part.findtext("material/diffuse") or part.findtext("material/ambient")
                rgba = [0.5, 0.5, 0.5, 1.0] if colour is None else list(_vector(colour, 4))
                size = _size(kind, shape[0])
                found.append(
                    Visual(name, link_name, kind, size, None, None, *at, tuple(rgba), 0)  # type: ignore
                )
        return tuple(found)


_DIAGONAL = ("ixx", "iyy", "izz")


def _pitch(joint: xml.Element) -> float:
    """The advance of a screw per turn [m]. Files before version 1.10 give the turns per advance
    [rad/m], positive for a left-handed thread, as `thread_pitch`."""
    old, new = joint.findtext("thread_pitch"), joint.findtext("screw_thread_pitch")
    if new is None and old is not None:
        return -2 * math.pi / float(old)
    return 1.0 if new is None else float(new)


def _size(kind: str, shape: xml.Element) -> tuple[float, ...]:
    if kind == "box":
        return tuple(float(x) / 2 for x in _vector(shape.findtext("size", "1 1 1")))
    if kind == "ellipsoid":
        return tuple(float(x) for x in _vector(shape.findtext("radii", "1 1 1")))
    radius = float(shape.findtext("radius", "1"))
    return (radius,) if kind == "sphere" else (radius, float(shape.findtext("length", "1")) / 2)


def _vector(text: str, count: int = 3) -> np.ndarray:
    numbers = [float(x) for x in text.split()]
    if len(numbers) != count:
        raise ValueError(f"{count} numbers are needed, but the file has {text!r}.")
    return np.array(numbers)


def _transform(part: xml.Element | None) -> Transform:
    """A <pose>: position, and a quaternion or roll, pitch and yaw about the fixed axes x, y, z."""
    text = "" if part is None else part.text or ""
    if part is None or not text.strip():
        return Transform.identity()
    if part.get("rotation_format") == "quat_xyzw":
        *position, x, y, z, w = _vector(text, 7)
        p = np.array([w, x, y, z])
        return Transform(np.array(position), p / np.linalg.norm(p))
    x, y, z, *angles = _vector(text, 6)
    if _true(part.get("degrees", "0")):
        angles = np.deg2rad(angles)
    roll, pitch, yaw = (
        rigid.turn(e, np.asarray(angle)) for e, angle in zip(np.eye(3), angles, strict=True)
    )
    return Transform(np.array([x, y, z]), rigid.product(yaw, rigid.product(pitch, roll)))


def _true(text: str) -> bool:
    return text.strip().lower() in ("1", "true")


def _version(root: xml.Element) -> tuple[int, ...]:
    """The version of the format; of a model without one the newest."""
    given = root.get("version", "")
    numbers = given.split(".")
    return tuple(map(int, numbers)) if all(x.isdigit() for x in numbers) else (2,)


def _of_axes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The quaternion of the frame with these x and y axes."""
    first = rigid.along(x)  # turns z to x
    to_x = rigid.product(first, rigid.turn(np.eye(3)[1], np.asarray(math.pi / 2)))
    now = rigid.rotate(to_x, np.eye(3)[1])
    angle = math.atan2(float(x @ np.cross(now, y)), float(now @ y))
    # `to_x` turns the x axis to -x or x, whichever the quarter turn about y gives.
    e = rigid.rotate(to_x, np.eye(3)[0])
    if e @ x < 0:
        to_x = rigid.product(first, rigid.turn(np.eye(3)[1], np.asarray(-math.pi / 2)))
        now = rigid.rotate(to_x, np.eye(3)[1])
        angle = math.atan2(float(x @ np.cross(now, y)), float(now @ y))
    return rigid.product(rigid.turn(x, np.asarray(angle)), to_x)

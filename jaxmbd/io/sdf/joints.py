"""Joints, with the forces and limits along their axes."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..._coordinates import AnyArray, algebra
from ..._mechanism import (
    AbstractConstraint,
    AbstractContact,
    AbstractForceElement,
    AbstractJoint,
    AbstractScalarCoordinate,
    CoordinateConstraint,
    CoordinateLimit,
    CoordinateSpring,
    Coupler,
    Fixed,
    OfJoint,
    Pose,
    Prismatic,
    Revolute,
    Screw,
    Spherical,
    Universal,
    WeightedSum,
)
from ..loaded import pose
from .document import Node, Scope

# The joint of each type, with one axis, two, or none.
_ONE_AXIS: dict[str, Callable[..., AbstractJoint]] = {
    "revolute": Revolute,
    "continuous": Revolute,
    "prismatic": Prismatic,
    "screw": Screw,
}
_TWO_AXES: dict[str, Callable[..., AbstractJoint]] = {
    "universal": Universal,
    "revolute2": Universal,
}
_MADE = {**_ONE_AXIS, **_TWO_AXES, "ball": Spherical, "fixed": Fixed}


class End(NamedTuple):
    """What a joint holds: a body, or the ground, and where the body is."""

    body: str
    at: Pose


class Joints:
    """The joints of a file.

    - `joints`, `forces`, `stops`: the elements of the mechanism.
    - `end`: the body behind a name in a scope; `None` for what is not loaded.
    """

    def __init__(
        self,
        end: Callable[[Scope, str, Node], End | None],
        named: Callable[[Scope, str], str],
        tell: Callable[[Node, str], None],
    ):
        self.joints: list[AbstractConstraint] = []
        self.forces: list[AbstractForceElement] = []
        self.stops: list[AbstractContact] = []
        self._end, self._named, self._tell = end, named, tell
        self._made: dict[tuple[Scope, str], AbstractJoint] = {}

    def read(self, parts: list[tuple[Scope, Node]]) -> None:
        """Read all joints, those that couple others last."""
        coupled = []
        for scope, joint in parts:
            with joint.stated():
                if joint.get("type") == "gearbox":
                    coupled.append((self._gearbox, scope, joint))
                    continue
                made = self._joint(scope, joint)
                if made is None:
                    continue
                self._made[scope, joint.name] = made
                for i, tag in enumerate(("axis", "axis2")[: _axes(joint)]):
                    if joint.find(f"{tag}/mimic") is not None:
                        coupled.append((self._mimic, scope, joint.find(tag), i))
        for couple, scope, part, *more in coupled:
            with part.stated():
                couple(scope, part, *more)

    # --- one joint -------------------------------------------------------------------------------

    def _ends(self, scope: Scope, joint: Node) -> tuple[End, End] | None:
        """Parent and child; `None`, which is told, if they are not in the model."""
        ends = []
        for tag in ("parent", "child"):
            if not joint.words(tag):
                raise joint.bad(f"needs a <{tag}>")
            ends.append(self._end(scope, joint.words(tag), joint))
        if None in ends:
            if any(end is not None for end in ends) and not scope.static:
                self._tell(joint, "holds a model that is not loaded")
            return None
        a, b = ends
        if a.body == b.body:
            if not scope.static:
                self._tell(joint, f'holds "{a.body}" to itself')
            return None
        return a, b

    def _joint(self, scope: Scope, joint: Node) -> AbstractJoint | None:
        kind, name = joint.get("type"), self._named(scope, joint.name)
        if kind not in _MADE:
            self._tell(joint, f'has the type "{kind}", which is not read')
            return None
        ends = self._ends(scope, joint)
        if ends is None:
            return None
        place = scope.part_at(joint)
        frame = place
        if kind in _ONE_AXIS:
            frame = pose(
                place.position, algebra.quaternion_along(self._axis(scope, joint, "axis", place))
            )
        elif kind in _TWO_AXES:
            x, y = (self._axis(scope, joint, tag, place) for tag in ("axis", "axis2"))
            if abs(x @ y) > 1e-9:
                raise joint.bad(
                    f"must have axes at right angles, but their cosine is {x @ y:.6g}: correct "
                    "<xyz> of its <axis2>"
                )
            axes = np.stack([x, y, np.cross(x, y)], axis=1)
            frame = pose(place.position, algebra.quaternion_from_matrix(axes))
        a, b = ends
        given: dict[str, Any] = {
            "frame_a": a.at.relative(frame),
            "frame_b": b.at.relative(frame),
        }
        if kind == "screw":
            given["pitch"] = _pitch(joint)
        elif kind in _ONE_AXIS and any(map(math.isfinite, _range(joint, "axis"))):
            given["limits"] = _range(joint, "axis")
        made = _MADE[kind](name, a.body, b.body, **given)
        self.joints.append(made)
        for i, tag in enumerate(("axis", "axis2")[: _axes(joint)]):
            self._dynamics(joint, made, tag, i)
        if kind == "ball" and _acts(joint):
            self._tell(joint, "has forces or limits along an <axis>, which a ball does not have")
        return made

    def _axis(self, scope: Scope, joint: Node, tag: str, place: Pose) -> Float[AnyArray, "3"]:
        """The direction of an axis, in the world."""
        axis = joint.vector(f"{tag}/xyz", (0, 0, 1))
        length = np.linalg.norm(axis)
        if not length > 0:
            raise joint.bad(f"needs an <xyz> of its <{tag}> other than 0 0 0")
        axis = axis / length
        part, given = joint.find(tag), joint.find(f"{tag}/xyz")
        # Axes are in the frame of the joint since version 1.5.
        if (joint if part is None else part).flag(
            "use_parent_model_frame", (given or part or joint).version < (1, 5)
        ):
            return scope.in_world().direction(axis)
        frame = "" if given is None else given.get("expressed_in")
        at = scope.at(frame, joint) if frame else place
        return at.direction(axis)

    def _dynamics(self, joint: Node, made: AbstractJoint, tag: str, i: int) -> None:
        """Damping, friction, spring and limits along one axis."""
        name = made.name if i == 0 else f"{made.name} {i + 1}"
        damping, dry, stiffness, rest = (
            joint.number(f"{tag}/dynamics/{key}", 0.0)
            for key in ("damping", "friction", "spring_stiffness", "spring_reference")
        )
        if damping or dry or stiffness:
            self.forces.append(
                CoordinateSpring(
                    name,
                    _coordinate(joint, made, i),
                    stiffness=stiffness,
                    rest=rest,
                    damping=damping,
                    dry=dry,
                )
            )
        low, high = _range(joint, tag)
        if math.isinf(low) and math.isinf(high):
            return
        middle = (low + high) / 2 if made.angles and math.isfinite(low + high) else 0.0
        self.stops.append(
            CoordinateLimit(
                name,
                # The angle of the file, 0, must be within half a turn.
                _coordinate(joint, made, i, middle=float(np.clip(middle, -3.0, 3.0))),
                lower=None if math.isinf(low) else low,
                upper=None if math.isinf(high) else high,
            )
        )

    # --- couplings -------------------------------------------------------------------------------

    def _gearbox(self, scope: Scope, joint: Node) -> None:
        """A fixed ratio of the angles of parent and child relative to a third link."""
        ends, ratio = self._ends(scope, joint), joint.number("gearbox_ratio", 1.0)
        if ends is None:
            return
        named = joint.words("gearbox_reference_body")
        reference = self._end(scope, named, joint) if named else None
        hinges = [
            next(
                (
                    hinge
                    for hinge in self.joints
                    if isinstance(hinge, Revolute)
                    and reference is not None
                    and {*hinge.bodies} == {reference.body, end.body}
                ),
                None,
            )
            for end in ends
        ]
        if None in hinges or not ratio:
            self._tell(joint, f'is a gearbox without hinges on "{named}"')
            return
        # theta_2 = -ratio theta_1
        name = self._named(scope, joint.name)
        self.joints.append(Coupler(name, hinges[1], hinges[0], ratio=-ratio))  # pyright: ignore[reportArgumentType]

    def _mimic(self, scope: Scope, axis: Node, i: int) -> None:
        """follower = multiplier (leader - reference) + offset, of two axes."""
        joint, mimic = axis.above, axis.find("mimic")
        assert joint is not None and mimic is not None
        leader = _found(scope, mimic.get("joint"))
        first, j = self._made[scope, joint.name], int(mimic.get("axis") == "axis2")
        second = None if leader is None else self._made.get(leader)
        if leader is None or second is None or j >= _axes(leader[0].parts[leader[1]]):
            self._tell(joint, f'mimics "{mimic.get("joint")}", which has no such axis here')
            return
        ratio = mimic.number("multiplier", 1.0)
        reference, offset = mimic.number("reference", 0.0), mimic.number("offset", 0.0)
        self.joints.append(
            CoordinateConstraint(
                f"{first.name} mimic" if i == 0 else f"{first.name} {i + 1} mimic",
                _coordinate(joint, first, i),
                _coordinate(leader[0].parts[leader[1]], second, j),
                coefficients=[offset, ratio],
                zero_of=reference,
            )
        )


def _found(scope: Scope, name: str) -> tuple[Scope, str] | None:
    """The joint of a name such as "model::joint"."""
    while name not in scope.parts:
        first, _, rest = name.partition("::")
        if not rest or first not in scope.scopes:
            return None
        scope, name = scope.scopes[first], rest
    return (scope, name) if scope.parts[name].tag == "joint" else None


def _axes(joint: Node) -> int:
    """How many axes the type of a joint has."""
    kind = joint.get("type")
    return 1 if kind in _ONE_AXIS else 2 if kind in _TWO_AXES else 0


def _coordinate(
    joint: Node, made: AbstractJoint, i: int, *, middle: float = 0.0
) -> AbstractScalarCoordinate:
    """The coordinate along an axis: a displacement, or an angle. For a screw it is the angle."""
    along = OfJoint(made, i, middle=middle)
    if isinstance(made, Screw):
        return WeightedSum([along], [2 * math.pi / _pitch(joint)])
    return along


def _acts(joint: Node) -> bool:
    """Whether a joint has forces or limits along its axis."""
    keys = ("damping", "friction", "spring_stiffness")
    forces = any(joint.number(f"axis/dynamics/{key}", 0.0) for key in keys)
    return forces or any(map(math.isfinite, _range(joint, "axis")))


def _range(joint: Node, tag: str) -> tuple[float, float]:
    low, high = (
        joint.number(f"{tag}/limit/{end}", default, finite=False)
        for end, default in (("lower", -math.inf), ("upper", math.inf))
    )
    # Large numbers mean no limit.
    low, high = (low if low > -1e10 else -math.inf), (high if high < 1e10 else math.inf)
    if low > high:
        raise joint.bad(f"has a lower limit {low:g} above its upper one, {high:g}")
    return low, high


def _pitch(joint: Node) -> float:
    """The advance of a screw per turn [m]. Files before version 1.10 give the turns per advance
    [rad/m], positive for a left-handed thread, as `thread_pitch`."""
    old = joint.number("thread_pitch", 1.0)
    if joint.find("screw_thread_pitch") is not None or joint.find("thread_pitch") is None:
        return joint.number("screw_thread_pitch", 1.0)
    if not old:
        raise joint.bad("must have a <thread_pitch> other than 0")
    return -2 * math.pi / old

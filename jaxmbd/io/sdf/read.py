"""Worlds and models in SDFormat, as a mechanism."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ..._mechanism import (
    GROUND,
    AbstractContact,
    AbstractForceElement,
    Body,
    Fixed,
    Mechanism,
    PointForce,
    Pose,
)
from ..loaded import Loaded, Visual, pose
from .document import BadFile, Node, Scope, parse
from .include import with_includes
from .joints import End, Joints
from .links import Surface, contacts_of, inertia_of, surface, visual
from .table import untold

_GRAVITY = (0.0, 0.0, -9.8)  # the default of SDFormat
_STEP = 1e-3
# What has no effect on what does not move.
_OF_MOTION = ("joint", "inertial", "velocity_decay", "kinematic", "enable_wind", "gravity")


def read_sdf(
    path: Path, *, contacts: bool, limits: bool, model: str | Sequence[str] | None
) -> Loaded:
    """The models of a file in SDFormat: all, or the given names.

    **Raises:** `ValueError` of one line for a file without such models."""
    root = parse(path)
    if root.tag == "model":
        above = root.like("sdf")
        above.add(root)
        root = above
    if root.tag != "sdf":
        raise BadFile(f"{path} holds no <model> of SDFormat, but <{root.tag}>.")
    return _Reader(path, root, contacts, limits, model).loaded()


class _Reader:
    """The models of a file, in the world."""

    def __init__(
        self,
        path: Path,
        root: Node,
        contacts: bool,
        limits: bool,
        chosen: str | Sequence[str] | None,
    ):
        self.path, self.root, self.dropped = path, root, []
        # The only model that moves. Its names stand alone.
        self.plain: Node | None = None
        worlds = root.all("world")
        # Models may stand without a world.
        self.world = worlds[0] if worlds else root
        self.included = with_includes(self.world, self.tell)
        self.scope = Scope(self.world, None)
        self.models = self._chosen(chosen)
        moving = [model for model in self.models if any(map(_moves, model.within()))]
        if not moving:
            raise BadFile(f"{path} has no model that can move{self._why_none()}.")
        self.plain = moving[0].node if len(moving) == 1 else None
        physics = self.physics = _physics(self.world)
        self.dt = _STEP if physics is None else _step(physics)
        # Files before version 1.6 have their gravity there.
        old = np.array(_GRAVITY) if physics is None else physics.vector("gravity", _GRAVITY)
        self.gravity = self.world.vector("gravity", tuple(old))
        self.at: dict[tuple[Scope, str], Pose] = {}
        links = [
            (scope, link)
            for model in self.models
            for scope in model.within()
            for link in scope.node.all("link")
        ]
        for scope, link in links:
            self.at[scope, link.name] = scope.part_at(link)
        self.bodies: list[Body] = []
        self.weights: list[AbstractForceElement] = []
        for scope, link in links:
            if not scope.static:
                self._body(scope, link)
        scopes = [self.scope, *(scope for model in self.models for scope in model.within())]
        parts = [(scope, joint) for scope in scopes for joint in scope.node.all("joint")]
        self.joints = Joints(self._end, self._named, self.tell)
        self.joints.read(parts)
        self.gaps: list[AbstractContact] = [*self.joints.stops] if limits else []
        if contacts:
            surfaces = [x for scope, link in links for x in self._surfaces(scope, link)]
            joined = {pair for scope, joint in parts for pair in _joined(scope, joint)}
            held = _held(self.joints)
            with self.world.stated():
                self.gaps += contacts_of(surfaces, joined, held, self.tell)
        self.visuals = [x for scope, link in links for x in self._visuals(scope, link)]
        self.frames = {name: frame for scope in scopes for name, frame in self._frames(scope)}
        self._tell_what_is_not_read(contacts)

    def loaded(self) -> Loaded:
        """The result."""
        with self.root.stated():
            mechanism = Mechanism(
                self.bodies,
                self.joints.joints,
                [*self.joints.forces, *self.weights],
                self.gaps,
                gravity=self.gravity,
            )
        return Loaded(
            mechanism=mechanism,
            state=mechanism.state(),
            dropped=tuple(self.dropped),
            visuals=tuple(self.visuals),
            frames=self.frames,
            dt=self.dt,
            source=str(self.path),
        )

    # --- which models ----------------------------------------------------------------------------

    def _chosen(self, chosen: str | Sequence[str] | None) -> list[Scope]:
        there = self.scope.scopes
        names = list(there) if chosen is None else [chosen] if isinstance(chosen, str) else chosen
        for name in names:
            if name not in there:
                raise BadFile(f'{self.path} has no model "{name}" among {list(there)}.')
        return [there[name] for name in dict.fromkeys(names)]

    def _why_none(self) -> str:
        whys = []
        static = [model.name for model in self.models if model.static]
        if static:
            whys.append(f"as {static} are <static>: remove <static> from one that moves")
        if self.dropped:
            whys.append(
                f"as {len(self.dropped)} are not read, of which the first is {self.dropped[0]}"
            )
        return ", " + "; ".join(whys or ["as there is no <link>"])

    def _named(self, scope: Scope, name: str) -> str:
        """The name of a part, without the name of the only model that moves."""
        full = scope.scoped(name)
        return full.removeprefix(f"{scope.top.name}::") if scope.top.node is self.plain else full

    # --- what is not read ------------------------------------------------------------------------

    def tell(self, node: Node, why: str) -> None:
        """Note that something of an element has no counterpart."""
        at, path = node.owner()
        names, above = [], at
        while above is not None and above.tag not in ("sdf", "world"):
            if above is not self.plain or above is at:
                names.append(above.name)
            above = above.above
        if not names:
            names = [at.name]
        file = "" if node.file == self.path else f"{node.file.name} "
        # The element itself is "not read"; a part of it "is not read".
        why = f"{path} {why}" if path else why.removeprefix("is ")
        name = "::".join(filter(None, reversed(names)))
        self.dropped.append(f'{at.tag} "{name}" ({file}line {node.line}): {why}')

    def _tell_what_is_not_read(self, contacts: bool) -> None:
        chosen = {id(model.node) for model in self.models}
        still = {
            id(scope.node) for model in self.models for scope in model.within() if scope.static
        }

        def counts(node: Node) -> bool:
            above = node.above
            assert above is not None
            if node.tag == "model" and above in (self.world, self.root):
                return id(node) in chosen
            if node.tag == "collision":
                return contacts
            if node.tag == "world" or node.tag == "physics" and above is self.world:
                return node in (self.world, self.physics)
            if node.tag in _OF_MOTION and {id(above), id(above.above)} & still:
                return False
            if node.tag in ("axis", "axis2") and above.tag == "joint":
                kind = above.get("type")
                return kind != "fixed" and (
                    node.tag == "axis" or kind in ("universal", "revolute2")
                )
            return True

        for part in self.root.children:
            if part.tag in ("world", "model") and self.world not in (part, self.root):
                self.tell(part, f'is not read beside the world "{self.world.name}"')
        told = [*untold(self.root, "sdf", counts)]
        for node in self.included:
            if node.tag == "include":
                told += untold(node, "include", counts)
            elif node.tag == "sdf":
                told += untold(node, "sdf", lambda part: part.tag != "model")
        for node, why in told:
            self.tell(node, why)

    # --- links -----------------------------------------------------------------------------------

    def _inside(self, scope: Scope, link: Node, part: Node) -> Pose:
        """Where a part of a link is, in the frame of the link."""
        given = part.find("pose")
        if given is None:
            return pose()
        relative = given.get("relative_to") or given.get("frame")
        if not relative:
            return given.transform()
        frame = scope.at(relative, part)
        return self.at[scope, link.name].relative(frame).compose(given.transform())

    def _on_body(self, scope: Scope, link: Node, part: Node) -> tuple[str, Pose]:
        """The body that a part of a link is on, and where it is there."""
        inside = self._inside(scope, link, part)
        if scope.static:
            return GROUND, self.at[scope, link.name].compose(inside)
        return self._named(scope, link.name), inside

    def _body(self, scope: Scope, link: Node) -> None:
        name, place = self._named(scope, link.name), self.at[scope, link.name]
        with link.stated():
            inertia = inertia_of(link, lambda part: self._inside(scope, link, part), self.tell)
            self.bodies.append(
                Body(name, inertia, position=place.position, orientation=place.orientation)
            )
            if not link.flag("gravity", True) and np.any(self.gravity):
                lift = -float(inertia.mass) * self.gravity
                center = pose(inertia.center)
                self.weights.append(
                    PointForce(f"{name} gravity", name, frame=center, force_world=lift)
                )

    def _surfaces(self, scope: Scope, link: Node) -> Iterator[Surface]:
        for part in link.all("collision"):
            body, at = self._on_body(scope, link, part)
            name = self._named(scope, f"{link.name}::{part.name}")
            found = surface(part, name, body, (scope, link.name), at, self.tell)
            if found is not None:
                yield found

    def _visuals(self, scope: Scope, link: Node) -> Iterator[Visual]:
        for part in link.all("visual"):
            body, at = self._on_body(scope, link, part)
            name = part.name
            if len(self.models) > 1 or scope.top is not scope:
                name = self._named(scope, f"{link.name}::{name}")
            found = visual(part, name, body, at)
            if found is not None:
                yield found

    # --- joints and frames -----------------------------------------------------------------------

    def _end(self, scope: Scope, name: str, asker: Node) -> End | None:
        """The body that a frame of this name is on; `None` if it is not loaded."""
        carrier = scope.carrier(name, asker)
        if carrier is None:
            return End(GROUND, pose())
        if carrier not in self.at:
            return None
        if carrier[0].static:
            return End(GROUND, pose())
        return End(self._named(*carrier), self.at[carrier])

    def _frames(self, scope: Scope) -> Iterator[tuple[str, tuple[str, Pose]]]:
        """Where links and frames are on the bodies."""
        for part in [*scope.node.all("link"), *scope.node.all("frame")]:
            end = self._end(scope, part.name, part)
            if end is not None:
                place = end.at.relative(scope.part_at(part))
                yield self._named(scope, part.name), (end.body, place)


def _moves(scope: Scope) -> bool:
    return not scope.static and bool(scope.node.all("link"))


def _physics(world: Node) -> Node | None:
    """The physics of a world: the default one, or the first."""
    given = world.all("physics")
    default = [part for part in given if part.true(part.get("default") or "0")]
    return next(iter([*default, *given]), None)


def _step(physics: Node) -> float:
    """The time step; files before version 1.4 have it elsewhere."""
    old = physics.number("ode/solver/dt", physics.number("bullet/dt", _STEP))
    step = physics.number("max_step_size", old)
    if not step > 0:
        raise physics.bad(f"must have a positive <max_step_size>, but it is {step:g}")
    return step


def _joined(scope: Scope, joint: Node) -> Iterator[frozenset[tuple[Scope, str]]]:
    """The links that a joint holds."""
    ends = [scope.carrier(joint.words(tag), joint) for tag in ("parent", "child")]
    found = [end for end in ends if end is not None]
    if len(found) == 2:
        yield frozenset(found)


def _held(joints: Joints) -> set[str]:
    """The ground, and bodies that are fixed to it."""
    held, more = {GROUND}, True
    pairs = [{*joint.bodies} for joint in joints.joints if isinstance(joint, Fixed)]
    while more:
        more = False
        for pair in pairs:
            if pair & held and not pair <= held:
                held, more = held | pair, True
    return held

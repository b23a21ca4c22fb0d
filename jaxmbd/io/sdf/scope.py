"""Names and places: what a world or a model holds, and where it is."""

from collections.abc import Iterator

from ..rigid import Transform
from .document import Node

_PARTS = ("link", "joint", "frame")


class Scope:
    """A world, or a model in a world or a model. Names inside it are its own; those of a model in
    it are reached as "model::name".

    - `node`; `above`: the scope around it, `None` for a world.
    - `static`: whether it, or one around it, does not move.
    - `scopes`: the models in it. `parts`: its links, joints and frames.
    """

    def __init__(self, node: Node, above: "Scope | None"):
        self.node, self.above = node, above
        self.is_world = node.tag != "model"
        self.static = node.flag("static", False) or (above is not None and above.static)
        for tag in (*_PARTS, "model"):
            names = [part.name for part in node.all(tag)]
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise node.bad(f"uses the names {twice} of a <{tag}> twice: rename one")
        self.scopes = {part.name: Scope(part, self) for part in node.all("model")}
        # Old files give a joint the name of its link. The name then means the link.
        self.parts = {part.name: part for tag in reversed(_PARTS) for part in node.all(tag)}
        self._asked: list[str] = []
        self._places: dict[str, Transform] = {}

    @property
    def top(self) -> "Scope":
        """The model of the world that it is part of; itself for a world."""
        if self.above is None or self.above.is_world:
            return self
        return self.above.top

    @property
    def name(self) -> str:
        """Its name in the scope around it."""
        return self.node.name

    def scoped(self, name: str) -> str:
        """The name of one of its parts, as the world sees it."""
        if self.is_world or self.above is None:
            return name
        return self.above.scoped(f"{self.name}::{name}")

    def within(self) -> Iterator["Scope"]:
        """This scope and those in it."""
        yield self
        for scope in self.scopes.values():
            yield from scope.within()

    # --- places ----------------------------------------------------------------------------------

    def in_world(self) -> Transform:
        """Where its frame is in the world."""
        if self.above is None:
            return Transform.identity()
        return self.above.in_world().compose(self.above.place(self.name, self.node))

    def at(self, name: str, asker: Node) -> Transform:
        """Where a frame with a name in this scope is in the world. `asker` refers to it."""
        return self.in_world().compose(self.place(name, asker))

    def part_at(self, part: Node) -> Transform:
        """Where one of its parts is in the world, whatever else has its name."""
        return self.in_world().compose(self._posed(part, _default(part)))

    def place(self, name: str, asker: Node) -> Transform:
        """Where a frame with a name in this scope is, in the frame of the scope."""
        if name in ("", "__model__"):
            return Transform.identity()
        if name == "world":
            return self.in_world().inverse()
        if name in self._asked:
            raise asker.bad(f'is placed relative to "{name}", which is relative to itself')
        if name not in self._places:
            self._asked.append(name)
            self._places[name] = self._placed(name, asker)
            self._asked.pop()
        return self._places[name]

    def _placed(self, name: str, asker: Node) -> Transform:
        part = self.parts.get(name)
        if part is not None:
            return self._posed(part, _default(part))
        if name in self.scopes:
            scope = self.scopes[name]
            inner = scope.place(scope.node.get("placement_frame"), scope.node)
            return self._posed(scope.node, "").compose(inner.inverse())
        first, _, rest = name.partition("::")
        if rest and first in self.scopes:
            return self.place(first, asker).compose(self.scopes[first].place(rest, asker))
        raise asker.bad(f'refers to "{name}", which the {self.node.title()} does not have')

    def _posed(self, part: Node, default: str) -> Transform:
        """The pose of an element, from its <pose>."""
        given, relative = part.find("pose"), default
        if given is None:
            return self.place(default, part)
        relative = given.get("relative_to") or given.get("frame") or default
        return self.place(relative, part).compose(given.transform())

    # --- what frames are fixed to ----------------------------------------------------------------

    def carrier(self, name: str, asker: Node) -> "tuple[Scope, str] | None":
        """The link that a frame of this name is fixed to, with the scope of the link; `None` for
        the world, which carries the frame of a static model too.

        **Raises:** `BadFile` if it is fixed to none."""
        scope, rest, passed = self, name, []
        while True:
            if rest == "world" or (scope.static or scope.is_world) and rest in ("", "__model__"):
                return None
            key = (scope, rest)
            if key in passed:
                break
            passed.append(key)
            part = scope.parts.get(rest)
            if part is not None and part.tag == "link":
                return scope, rest
            if part is not None:
                rest = _default(part)
            elif rest in scope.scopes:
                scope, rest = scope.scopes[rest], ""
            elif rest in ("", "__model__"):
                canonical = scope.node.get("canonical_link")
                first = [*scope.node.all("link"), *scope.node.all("model")]
                rest = canonical or (first[0].name if first else "")
            else:
                first, _, after = rest.partition("::")
                if not after or first not in scope.scopes:
                    break
                scope, rest = scope.scopes[first], after
        raise asker.bad(f'refers to "{rest or name}", which is no <link> and no <frame> on one')


def _default(part: Node) -> str:
    """What a part is placed relative to, and fixed to, if it says nothing else."""
    default = {"joint": part.words("child"), "frame": part.get("attached_to")}
    return default.get(part.tag, "")

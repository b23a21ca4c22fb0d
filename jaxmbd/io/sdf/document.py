"""Elements of XML that know their line, what they say as numbers, and names and places."""

import contextlib
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.parsers import expat

import numpy as np

from ..._coordinates import algebra
from ..._mechanism import Pose
from ..loaded import pose

_COMMENTS = re.compile(rb"<!\[CDATA\[.*?\]\]>|<!--.*?-->", re.DOTALL)
_LATE_DECLARATION = re.compile(rb"\A\s+<\?xml.*?\?>", re.DOTALL)


class BadFile(ValueError):
    """What is wrong in a file, with its place."""


class Node:
    """An element, with the place where it is stated and the version of the format there."""

    def __init__(
        self,
        tag: str,
        attributes: dict[str, str],
        file: Path,
        line: int,
        version: tuple[int, ...] = (),
    ):
        self.tag, self.attributes = tag, attributes
        self.file, self.line, self.version = file, line, version
        self.text = ""
        self.children: list[Node] = []
        self.above: Node | None = None

    def add(self, child: "Node") -> None:
        """Put an element into this one."""
        child.above = self
        self.children.append(child)

    def like(self, tag: str, **attributes: str) -> "Node":
        """A new element, stated where this one is."""
        return Node(tag, attributes, self.file, self.line, self.version)

    def copy(self) -> "Node":
        """The same element again, with all below it."""
        new = self.like(self.tag, **self.attributes)
        new.text, new.above = self.text, self.above
        for child in self.children:
            new.add(child.copy())
        return new

    # --- what is below ---------------------------------------------------------------------------

    def get(self, attribute: str) -> str:
        """An attribute, "" if there is none."""
        return self.attributes.get(attribute, "").strip()

    @property
    def name(self) -> str:
        """Its name."""
        return self.get("name")

    def all(self, tag: str) -> list["Node"]:
        """The elements of this tag."""
        return [child for child in self.children if child.tag == tag]

    def find(self, path: str) -> "Node | None":
        """The first element at a path such as "inertia/ixx"."""
        found: Node | None = self
        for tag in path.split("/"):
            found = next(iter(found.all(tag)), None)
            if found is None:
                return None
        return found

    def stating(self, path: str) -> "Node | None":
        """The element at a path, if it has a text."""
        part = self.find(path)
        return part if part is not None and part.text.strip() else None

    def words(self, path: str, default: str = "") -> str:
        """The text at a path; the default if there is none."""
        part = self.stating(path)
        return default if part is None else part.text.strip()

    def number(self, path: str, default: float, *, finite: bool = True) -> float:
        """The number at a path."""
        part = self.stating(path)
        return default if part is None else float(part.numbers((1,), finite=finite)[0])

    def flag(self, path: str, default: bool) -> bool:
        """Whether it says true or 1 at a path."""
        part = self.stating(path)
        return default if part is None else part.true(part.text)

    def true(self, text: str) -> bool:
        """Whether a text says true."""
        said = text.strip().lower()
        if said not in ("1", "true", "0", "false"):
            raise self.bad(f"must be true or false, but is {text.strip()!r}")
        return said in ("1", "true")

    def vector(self, path: str, default: Sequence[int | float]) -> np.ndarray:
        """As many numbers at a path as the default has."""
        part = self.stating(path)
        return np.array(default, float) if part is None else part.numbers((len(default),))

    def numbers(self, counts: Sequence[int], *, finite: bool = True) -> np.ndarray:
        """The numbers of its own text."""
        words, said = self.text.split(), " ".join(self.text.split())
        wanted = " or ".join(map(str, counts))
        wanted = "a number" if wanted == "1" else f"{wanted} numbers"
        try:
            found = [float(word) for word in words]
        except ValueError:
            raise self.bad(f"must be {wanted}, but is {said!r}") from None
        if len(found) not in counts:
            raise self.bad(f"must be {wanted}, but is {said!r}")
        if any(math.isnan(x) for x in found) or (finite and any(math.isinf(x) for x in found)):
            raise self.bad(f"must be finite, but is {said!r}")
        return np.array(found)

    def transform(self) -> Pose:
        """A <pose>: position, and a quaternion or roll, pitch and yaw about the fixed axes x, y,
        z."""
        if not self.text.strip():
            return pose()
        given = self.get("rotation_format")
        if given == "quat_xyzw":
            *position, x, y, z, w = self.numbers((7,))
            p = np.array([w, x, y, z])
            length = np.linalg.norm(p)
            if not length > 0:
                raise self.bad("must have a quaternion other than 0 0 0 0")
            return pose(position, p / length)
        if given not in ("", "euler_rpy"):
            raise self.bad(
                f'must have the rotation_format "euler_rpy" or "quat_xyzw", not {given!r}'
            )
        x, y, z, *angles = self.numbers((6,))
        if self.true(self.get("degrees") or "0"):
            angles = np.deg2rad(angles)
        roll, pitch, yaw = map(algebra.quaternion_about, np.eye(3), angles)
        turned = algebra.quaternion_product(yaw, algebra.quaternion_product(pitch, roll))
        return pose((x, y, z), turned)

    # --- what is wrong ---------------------------------------------------------------------------

    def owner(self) -> "tuple[Node, str]":
        """The element with a name that it belongs to, perhaps itself, and the tags from there."""
        path, at = "", self
        while not at.name and at.above is not None:
            path, at = f"<{at.tag}>{path}", at.above
        return at, path

    def title(self) -> str:
        """The element in words, with the one with a name that it belongs to."""
        at, path = self.owner()
        own = f'<{at.tag}> "{at.name}"' if at.name else f"<{at.tag}>"
        return own if at is self else f"{path} of the {own}" if at.name else path

    def bad(self, why: str) -> BadFile:
        """The error that says what is wrong with this element."""
        return BadFile(f"{self.file}, line {self.line}: the {self.title()} {why}.")

    @contextlib.contextmanager
    def stated(self) -> Iterator[None]:
        """Adds the place of this element to what is refused inside."""
        try:
            yield
        except BadFile:
            raise
        except ValueError as error:
            raise BadFile(f"{self.file}, line {self.line}: the {self.title()}: {error}") from None


def parse(path: Path) -> Node:
    """The root of a file of XML. Prefixes of names need not be declared, comments may hold "--",
    and lines may be empty before the first: readers of SDFormat accept all this.

    **Raises:** `BadFile` for what is no XML."""
    if not path.is_file():
        raise BadFile(f"There is no file {str(path)!r} to load a model from.")
    text = _COMMENTS.sub(_blank, path.read_bytes())
    text = _LATE_DECLARATION.sub(lambda found: b"\n" * found.group().count(b"\n"), text)
    parser = expat.ParserCreate()
    parser.buffer_text = True
    open_nodes: list[Node] = []
    roots: list[Node] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        node = Node(tag, attributes, path, parser.CurrentLineNumber)
        if open_nodes:
            open_nodes[-1].add(node)
        else:
            roots.append(node)
        open_nodes.append(node)

    def characters(text: str) -> None:
        if open_nodes:
            open_nodes[-1].text += text

    def end(tag: str) -> None:
        del tag
        open_nodes.pop()

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = characters
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise BadFile(f"{path} is not XML: {error}.") from None
    (root,) = roots
    # A model without a version has the newest.
    _set_version(root, numbers_of_version(root.get("version"), (2,)))
    return root


def _blank(found: re.Match[bytes]) -> bytes:
    """A comment without its content, of as many lines."""
    text = found.group()
    return text if text.startswith(b"<![") else b"<!--" + b"\n" * text.count(b"\n") + b"-->"


def numbers_of_version(text: str, default: tuple[int, ...]) -> tuple[int, ...]:
    """The version (1, 12) of "1.12"."""
    numbers = text.split(".")
    return tuple(map(int, numbers)) if all(x.isdigit() for x in numbers) else default


def _set_version(node: Node, version: tuple[int, ...]) -> None:
    node.version = version
    for child in node.children:
        _set_version(child, version)


_PARTS = ("link", "joint", "frame")


class Scope:
    """A world, or a model in a world or a model. Names inside it are its own; names of a model in
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
        self._places: dict[str, Pose] = {}

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

    def in_world(self) -> Pose:
        """Where its frame is in the world."""
        if self.above is None:
            return pose()
        return self.above.in_world().compose(self.above.place(self.name, self.node))

    def at(self, name: str, asker: Node) -> Pose:
        """Where a frame with a name in this scope is in the world. `asker` refers to it."""
        return self.in_world().compose(self.place(name, asker))

    def part_at(self, part: Node) -> Pose:
        """Where one of its parts is in the world, whatever else has its name."""
        return self.in_world().compose(self._posed(part, _default(part)))

    def place(self, name: str, asker: Node) -> Pose:
        """Where a frame with a name in this scope is, in the frame of the scope."""
        if name in ("", "__model__"):
            return pose()
        if name == "world":
            return self.in_world().inverse()
        if name in self._asked:
            raise asker.bad(f'is placed relative to "{name}", which is relative to itself')
        if name not in self._places:
            self._asked.append(name)
            self._places[name] = self._placed(name, asker)
            self._asked.pop()
        return self._places[name]

    def _placed(self, name: str, asker: Node) -> Pose:
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

    def _posed(self, part: Node, default: str) -> Pose:
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

"""What a file includes from others, put in its place."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlparse

from .document import BadFile, Node, Scope, numbers_of_version, parse

_NEWEST = (1, 12)


def with_includes(root: Node, tell: Callable[[Node, str], None]) -> list[Node]:
    """Replace each <include> below `root` by the model that it names, and return the elements
    <include>, and the roots of the other files. What is not on this machine is told.

    **Raises:** `BadFile` for what is not found, and for files that include themselves."""
    found: list[Node] = []
    _expand(root, [root.file.resolve()], tell, found)
    return found


def _expand(
    node: Node, files: list[Path], tell: Callable[[Node, str], None], found: list[Node]
) -> None:
    children, node.children = node.children, []
    for child in children:
        if child.tag != "include":
            if child.tag in ("world", "model"):
                _expand(child, files, tell, found)
            node.add(child)
            continue
        child.above = node
        found.append(child)
        uri = child.words("uri")
        if urlparse(uri).scheme in ("http", "https"):
            tell(child, f"{uri} is not downloaded: put it beside the file, and give its folder")
            continue
        path = _file(child, uri)
        if path.resolve() in files:
            raise child.bad(f"includes {path}, which includes it again")
        with child.stated():
            root = parse(path)
        found.append(root)
        model = _model(child, root)
        _expand(model, [*files, path.resolve()], tell, found)
        _change(model, child)
        if child.true(child.get("merge") or "0"):
            _merge(node, child, model)
        else:
            node.add(model)


def _file(include: Node, uri: str) -> Path:
    """The file of a model: `file://`, relative to the file, or, as `model://name`, in a folder
    above it. A folder has a `model.config` that says which of its files is the newest."""
    if not uri:
        raise include.bad("needs a <uri>")
    parts, folder = urlparse(uri), include.file.resolve().parent
    named = unquote(parts.netloc + parts.path)
    if parts.scheme == "model":
        places = [above / named for above in (folder, *folder.parents)]
    elif parts.scheme in ("", "file"):
        places = [folder / named]
    else:
        raise include.bad(f"has the <uri> {uri}, of which only file:// and model:// are read")
    for place in places:
        if place.is_dir() and (place / "model.config").is_file():
            return _newest(place / "model.config")
        if place.is_file():
            return place
    where = "in its folder and those above it" if len(places) > 1 else f"at {places[0]}"
    raise include.bad(
        f"names {uri}, but there is no file and no folder with a model.config {where}: put it "
        "there, or correct its <uri>"
    )


def _newest(config: Path) -> Path:
    """The file of the newest version that a `model.config` lists."""
    root = parse(config)
    versions = []
    for part in root.all("sdf"):
        version = numbers_of_version(part.get("version"), (0,))
        if version <= _NEWEST:
            versions.append((version, part.text.strip()))
    if not versions:
        raise BadFile(f"{config} names no file in SDFormat up to version 1.12.")
    return config.parent / max(versions)[1]


def _model(include: Node, root: Node) -> Node:
    models = [root] if root.tag == "model" else root.all("model")
    if root.tag not in ("sdf", "model") or len(models) != 1:
        what = f"{len(models)} elements <model>" if root.tag == "sdf" else f"<{root.tag}>"
        raise include.bad(f"must name a file with one <model>, but {root.file} has {what}")
    return models[0]


def _change(model: Node, include: Node) -> None:
    """The name, pose and so on that an <include> gives to its model."""
    if include.words("name"):
        model.attributes["name"] = include.words("name")
    if include.words("placement_frame"):
        model.attributes["placement_frame"] = include.words("placement_frame")
    for tag in ("static", "pose"):
        given = include.find(tag)
        if given is not None:
            model.children = [part for part in model.children if part.tag != tag]
            model.add(given.copy())


def _merge(into: Node, include: Node, model: Node) -> None:
    """Put the parts of a model into another one. Places in the frame of the model become those in a
    frame in its stead."""
    if into.tag != "model" and model.all("link"):
        raise include.bad(
            f'merges the model "{model.name}" with its links into the <{into.tag}>: links need a '
            "<model> around them"
        )
    name = f"_merged__{model.name}__model__"
    carriers = [*model.all("link"), *model.all("model")]
    held = model.get("canonical_link") or (carriers[0].name if carriers else "")
    frame, given = include.like("frame", name=name, attached_to=held), model.find("pose")
    relative = "" if given is None else given.get("relative_to")
    pose = include.like("pose", rotation_format="quat_xyzw", relative_to=relative or "__model__")
    placed = Scope(model, None).place(model.get("placement_frame"), model).inverse()
    place = placed if given is None else given.transform().compose(placed)
    (x, y, z), (w, *turn) = place
    pose.text = " ".join(repr(float(a)) for a in (x, y, z, *turn, w))
    frame.add(pose)
    into.add(frame)
    for part in model.children:
        if part.tag in ("pose", "static", "self_collide", "enable_wind", "allow_auto_disable"):
            continue
        _move(part, name)
        into.add(part)


def _move(part: Node, frame: str) -> None:
    """Refer to `frame` for what refers to the model around it."""
    if part.get("attached_to") == "__model__" or (
        part.tag == "frame" and not part.get("attached_to")
    ):
        part.attributes["attached_to"] = frame
    if part.tag in ("link", "model", "frame", "joint"):
        pose = part.find("pose")
        if pose is None:
            pose = part.like("pose")
            part.add(pose)
        free = part.tag in ("link", "model")
        relative = pose.get("relative_to") or pose.get("frame")
        if relative == "__model__" or (free and not relative):
            pose.attributes["relative_to"] = frame
    if part.tag == "joint":
        for tag in ("parent", "child"):
            end = part.find(tag)
            if end is not None and end.text.strip() == "__model__":
                end.text = frame
        for tag in ("axis", "axis2"):
            _move_axis(part.find(tag), frame)


def _move_axis(axis: Node | None, frame: str) -> None:
    if axis is None:
        return
    xyz, in_model = axis.find("xyz"), axis.flag("use_parent_model_frame", axis.version < (1, 5))
    axis.children = [part for part in axis.children if part.tag != "use_parent_model_frame"]
    if xyz is None:
        xyz = axis.like("xyz")
        axis.add(xyz)
    # Said by `expressed_in` from now on, in the words of the newest version.
    axis.version = xyz.version = _NEWEST
    if in_model or xyz.get("expressed_in") == "__model__":
        xyz.attributes["expressed_in"] = frame

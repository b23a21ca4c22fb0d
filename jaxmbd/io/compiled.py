"""Reading of files with MuJoCo."""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from . import urdf
from .shapes import kind_of
from .source import MjSpec, Source

# Formats of meshes that MuJoCo reads.
_MESHES = (".stl", ".obj", ".msh", ".ply", "")

# The first group of geoms that are not drawn where a body has others.
_OF_CONTACTS = 3

# A robot larger than this is probably given in millimetres [m], or in another unit if smaller.
_LARGE, _SMALL = 200.0, 1e-4


def compiled(path: Any, floating: bool = False) -> Source:
    """The model of a file, or of a `mujoco.MjSpec`, compiled.

    **Raises:** `ValueError` of one line if MuJoCo cannot read it."""
    mujoco = imported()
    if isinstance(path, mujoco.MjSpec):
        with _heard(mujoco) as said:
            source = _compiled(mujoco, _freed(path, floating), path.modelname or "MjSpec", [])
        return _with_warnings(source, said)
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"There is no file {str(file)!r} to load a model from.")
    data = file.read_bytes()
    robot = urdf.robot_of(data, file)
    with _heard(mujoco) as said:
        spec = _parsed(mujoco, file, data, robot is not None)
        coupled = {equality.name1 for equality in spec.equalities}
        drawn, dropped = (None, []) if robot is None else _drawn(mujoco, file, data, floating)
        if drawn is not None:
            for geom in spec.geoms:
                geom.group = _OF_CONTACTS
        dropped += _with_meshes(spec, file)
        source = _compiled(mujoco, _freed(spec, floating), str(file), dropped)
    source.drawn = drawn
    if robot is not None:
        source.dropped += urdf.unread(robot, coupled)
        said = [line for line in said if "<mimic>" not in line]
    return _with_warnings(source, said)


def _parsed(mujoco: ModuleType, file: Path, data: bytes, is_urdf: bool) -> MjSpec:
    """The model of a file before it is compiled. MuJoCo itself knows files by endings in small
    letters."""
    try:
        if not is_urdf and file.suffix == file.suffix.lower():
            return mujoco.MjSpec.from_file(str(file))
        return _from_text(mujoco, file, data.decode("utf-8-sig", "replace"))
    except ValueError as error:
        raise ValueError(
            f"{file} is not a model that MuJoCo reads: {_line(error)}{_remedy(str(error))}"
        ) from None


def _from_text(mujoco: ModuleType, file: Path, text: str) -> MjSpec:
    spec = mujoco.MjSpec.from_string(text)
    spec.modelfiledir = str(file.resolve().parent)
    return spec


def _drawn(
    mujoco: ModuleType, file: Path, data: bytes, floating: bool
) -> tuple[Source | None, list[str]]:
    """The shapes to draw of a URDF as a model of its own, so that no picture changes what moves;
    `None` without any. And what of them cannot be read."""
    try:
        spec = _from_text(mujoco, file, urdf.with_visuals(data))
        urdf.only_drawn(mujoco, spec)
        dropped = _with_meshes(spec, file, must_exist=False)
        if not spec.geoms:
            return None, dropped
        spec = _freed(spec, floating)
        return Source(mujoco, spec, spec.compile(), str(file)), dropped
    except ValueError as error:
        return None, [f"robot visuals: {_line(error)} Its contact shapes are drawn"]


@contextlib.contextmanager
def _heard(mujoco: ModuleType) -> Iterator[list[str]]:
    """Collect the warnings of MuJoCo, which it writes to a file otherwise."""
    said: list[str] = []
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(said.append)
    try:
        yield said
    finally:
        mujoco.set_mju_user_warning(before)


def _with_warnings(source: Source, said: list[str]) -> Source:
    source.dropped += [f"warning of MuJoCo: {_line(line)}" for line in dict.fromkeys(said)]
    return source


def imported() -> ModuleType:
    """The package MuJoCo.

    **Raises:** `ImportError` with the remedy."""
    try:
        import mujoco
    except ImportError:
        raise ImportError(
            'MJCF and URDF are read with MuJoCo, which is missing: pip install "jaxmbd[io]".'
        ) from None
    return mujoco


def _freed(spec: MjSpec, floating: bool) -> MjSpec:
    """The model, with free bodies in place of those that are fixed to the world if `floating`."""
    if floating:
        for body in spec.worldbody.bodies:
            if not body.joints:
                body.add_freejoint(name=f"{body.name} free")
    return spec


def _compiled(mujoco: ModuleType, spec: MjSpec, path: str, dropped: list[str]) -> Source:
    try:
        m = spec.compile()
    except ValueError as error:
        raise ValueError(f"{path} does not compile: {_line(error)}{_remedy(str(error))}") from None
    source = Source(mujoco, spec, m, path)
    source.dropped += dropped
    _judge(source)
    return source


def _line(error: Exception | str) -> str:
    """A message in one line, as a sentence."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(lines).rstrip(".") + "."


def _remedy(message: str) -> str:
    for sign, remedy in (
        ("Error opening file", " Put the mesh there, or correct its path."),
        ("mass and inertia of moving bodies", " Give the body an `inertial`, or fix it."),
        ("repeated name", " Rename one of the two."),
        ("balanceinertia", " Its inertia belongs to no real body: correct the file."),
        ("positive eigenvalues", " Its inertia belongs to no real body: correct the file."),
    ):
        if sign in message:
            return remedy
    return ""


def _with_meshes(spec: MjSpec, file: Path, must_exist: bool = True) -> list[str]:
    """Give meshes of packages, "package://robot/mesh.stl", their place near the file, and remove
    those of formats that MuJoCo does not read, and those that are missing unless they must exist.
    The removed ones are returned."""
    dropped, unread = [], set()
    for mesh in list(spec.meshes):
        name = str(mesh.file)
        if Path(name).suffix.lower() not in _MESHES:
            unread.add(mesh.name)
            dropped.append(f'mesh "{name}": MuJoCo does not read its format')
            spec.delete(mesh)
            continue
        if name.startswith("file://"):
            mesh.file = name = name.removeprefix("file://")
        elif name.startswith(("package:", "model:")):
            found = _in_package(name.partition(":")[2].lstrip("/"), file)
            if found is not None:
                mesh.file = name = str(found)
        place = Path(spec.modelfiledir, spec.compiler.meshdir, name)
        if name and not must_exist and not place.is_file():
            unread.add(mesh.name)
            dropped.append(f'mesh "{name}": there is no such file to draw')
            spec.delete(mesh)
    for geom in list(spec.geoms):
        if geom.meshname in unread:
            spec.delete(geom)
    return dropped


def _in_package(name: str, file: Path) -> Path | None:
    """The file of a package that contains the model `file`, or lies beside it."""
    short = Path(*Path(name).parts[1:])
    for folder in file.resolve().parents:
        for candidate in (folder / name, folder / short):
            if candidate.is_file():
                return candidate
    return None


def _judge(source: Source) -> None:
    """Note bodies moved by motion capture, and sizes that look like another unit."""
    m = source.m
    for b in np.flatnonzero(m.body_mocapid >= 0):
        source.drop("body", int(b), "it is moved by motion capture, and is fixed here")
    sizes = [
        2 * float(m.geom_rbound[g])
        for g in range(m.ngeom)
        if kind_of(source, g) not in ("plane", "hfield") and source.owner[m.geom_bodyid[g]]
    ]
    sizes += [
        float(np.linalg.norm(m.body_pos[b]))
        for b in range(1, m.nbody)
        if source.owner[m.body_parentid[b]]
    ]
    largest = max(sizes, default=1.0)
    if not math.isfinite(largest) or not _SMALL < largest < _LARGE:
        source.drop_option(
            "units",
            f"the largest part is {largest:.3g} m. If the file is in millimetres, scale it",
        )

"""Reading of files with MuJoCo."""

import math
from pathlib import Path
from typing import Any

import numpy as np

from .source import Source
from .visuals import kind_of

# Formats of meshes that MuJoCo reads.
_MESHES = (".stl", ".obj", ".msh", ".ply", "")

# A robot larger than this is probably given in millimetres [m], or in another unit if smaller.
_LARGE, _SMALL = 200.0, 1e-4


def compiled(path: Any, floating: bool = False) -> Source:
    """The model of a file, or of a `mujoco.MjSpec`, compiled.

    **Raises:** `ValueError` of one line if MuJoCo cannot read it."""
    mujoco = imported()
    if isinstance(path, mujoco.MjSpec):
        return _compiled(mujoco, _freed(path, floating), path.modelname or "MjSpec", [])
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"There is no file {str(file)!r} to load a model from.")
    try:
        spec = mujoco.MjSpec.from_file(str(file))
    except ValueError as error:
        raise ValueError(
            f"{file} is not a model that MuJoCo reads: {_line(error)}{_remedy(str(error))}"
        ) from None
    return _compiled(mujoco, _freed(spec, floating), str(file), _with_meshes(spec, file))


def imported() -> Any:
    """The package MuJoCo.

    **Raises:** `ImportError` with the remedy."""
    try:
        import mujoco
    except ImportError:
        raise ImportError(
            'MJCF and URDF are read with MuJoCo, which is missing: pip install "jaxmbd[io]".'
        ) from None
    return mujoco


def _freed(spec: Any, floating: bool) -> Any:
    """The model, with free bodies in place of those that are fixed to the world if `floating`."""
    if floating:
        for body in spec.worldbody.bodies:
            if not body.joints:
                body.add_freejoint(name=f"{body.name} free")
    return spec


def _compiled(mujoco: Any, spec: Any, path: str, dropped: list[str]) -> Source:
    try:
        m = spec.compile()
    except ValueError as error:
        raise ValueError(f"{path} does not compile: {_line(error)}{_remedy(str(error))}") from None
    source = Source(mujoco, spec, m, path)
    source.dropped += dropped
    _judge(source)
    return source


def _line(error: Exception) -> str:
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


def _with_meshes(spec: Any, file: Path) -> list[str]:
    """Give meshes of packages, "package://robot/mesh.stl", their place near the file, and remove
    those of formats that MuJoCo does not read. The removed ones are returned."""
    dropped, unread = [], set()
    for mesh in list(spec.meshes):
        name = str(mesh.file)
        if Path(name).suffix.lower() not in _MESHES:
            unread.add(mesh.name)
            dropped.append(f'mesh "{name}": MuJoCo does not read its format')
            spec.delete(mesh)
        elif name.startswith("package:"):
            found = _in_package(name.removeprefix("package:").lstrip("/"), file)
            if found is not None:
                mesh.file = str(found)
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

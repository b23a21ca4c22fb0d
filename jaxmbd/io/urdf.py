"""What URDF says beyond what MuJoCo reads of it: shapes to draw, motors, limits of velocity."""

import xml.etree.ElementTree as xml
from pathlib import Path
from types import ModuleType

from .source import MjSpec

_XACRO = "http://www.ros.org/wiki/xacro"

# Joints that follow another one by a `mimic`, and those that they can follow.
_FOLLOWING = ("revolute", "continuous", "prismatic")

# Elements and attributes that MuJoCo reads, that this package tells of by itself, or without effect
# on motions.
_ELEMENTS = {
    "robot": {"link", "joint", "material", "mujoco", "transmission"},
    "link": {"inertial", "visual", "collision", "material"},
    "joint": {
        *("origin", "parent", "child", "axis", "limit", "dynamics", "mimic"),
        *("calibration", "safety_controller"),
    },
    "visual": {"origin", "geometry", "material"},
    "collision": {"origin", "geometry", "material", "verbose"},
    "inertial": {"origin", "mass", "inertia"},
    "geometry": {"box", "cylinder", "sphere", "capsule", "mesh"},
}
_ATTRIBUTES = {
    "limit": {"lower", "upper", "effort", "velocity"},
    "dynamics": {"damping", "friction"},
    "mimic": {"joint", "multiplier", "offset"},
}


def robot_of(data: bytes, path: Path) -> xml.Element | None:
    """The root of a file if it is URDF, else `None`.

    **Raises:** `ValueError` for a xacro."""
    try:
        root = xml.fromstring(data)
    except xml.ParseError:
        return None  # MuJoCo says where
    if root.tag != "robot":
        return None
    if any(str(element.tag).startswith(f"{{{_XACRO}}}") for element in root.iter()):
        raise ValueError(
            f"{path} is a xacro, which is not URDF yet: write it by "
            f"`xacro {path.name} > {path.name.split('.')[0]}.urdf`, and load that."
        )
    return root


def with_visuals(data: bytes) -> str:
    """The file with the option by which MuJoCo keeps shapes that are only drawn."""
    root = xml.fromstring(data)
    extension = root.find("mujoco")
    extension = xml.SubElement(root, "mujoco") if extension is None else extension
    for compiler in extension.findall("compiler") or [xml.SubElement(extension, "compiler")]:
        compiler.set("discardvisual", "false")
    for visual in root.iter("visual"):
        # Names of shapes need not differ in URDF, of which MuJoCo warns; those of links do.
        visual.attrib.pop("name", None)
    return xml.tostring(root, encoding="unicode")


def only_drawn(mujoco: ModuleType, spec: MjSpec) -> None:
    """Leave only the shapes to draw, on bodies that compile whatever their mass is."""
    taken = {geom.name for geom in spec.geoms}
    for geom in list(spec.geoms):
        if geom.contype or geom.conaffinity:
            spec.delete(geom)
            continue
        if not geom.name:
            stem = name = f"{geom.parent.name} visual"
            k = 1
            while name in taken:
                k += 1
                name = f"{stem} {k}"
            geom.name = name
            taken.add(name)
    used = {geom.meshname for geom in spec.geoms}
    for mesh in list(spec.meshes):
        if mesh.name not in used:
            spec.delete(mesh)
        else:
            mesh.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL
    for body in spec.bodies[1:]:
        body.explicitinertial = True
        body.mass, body.ipos, body.inertia = 1.0, [0, 0, 0], [1, 1, 1]
        body.iquat, body.fullinertia = [1, 0, 0, 0], [float("nan")] * 6


def unread(root: xml.Element, coupled: set[str]) -> list[str]:
    """What MuJoCo leaves of a URDF without a word. `coupled`: the joints whose `mimic` it took."""
    found: list[str] = []
    for transmission in root.iter("transmission"):
        name = transmission.get("name", "")
        joints = [element.get("name", "") for element in transmission.iter("joint")]
        ratios = [str(element.text).strip() for element in transmission.iter("mechanicalReduction")]
        ratio = f" with the ratio {', '.join(ratios)}" if ratios else ""
        found.append(
            f'transmission "{name}": the motor of {_quoted(joints)}{ratio}. Give the mechanism a '
            "`CoordinateActuator` on `loaded.coordinate(...)`"
        )
    for joint in root.findall("joint"):
        name, kind = joint.get("name", ""), joint.get("type")
        if kind == "fixed":
            continue
        limit = joint.find("limit")
        if limit is not None and _not_zero(limit.get("velocity")):
            found.append(f'joint "{name}": the limit of its velocity')
        if limit is not None and _not_zero(limit.get("effort")) and kind != "floating":
            found.append(f'joint "{name}": the limit of its effort, since no actuator acts on it')
        if joint.find("safety_controller") is not None:
            found.append(f'joint "{name}": the limits of its safety_controller')
    for joint in root.findall("joint"):
        mimic, name = joint.find("mimic"), joint.get("name", "")
        if mimic is not None and name not in coupled:
            leader = mimic.get("joint", "")
            kinds = {element.get("name"): element.get("type") for element in root.findall("joint")}
            own = kinds[name] if kinds[name] not in _FOLLOWING else ""
            what = f"is {kinds[leader]}" if leader in kinds else "is missing"
            found.append(
                f'joint "{name}": '
                + (f"it is {own}, and does not follow" if own else "it does not follow")
                + f' "{leader}", which {what}; both must be {", ".join(_FOLLOWING)}'
            )
    return [*found, *_unknown(root)]


def _unknown(root: xml.Element) -> list[str]:
    """Elements and attributes that nobody reads, such as extensions of a simulator."""
    found: dict[str, None] = {}
    waiting: list[tuple[xml.Element, str]] = [(root, f'robot "{root.get("name", "")}"')]
    while waiting:
        element, owner = waiting.pop(0)
        for child in element:
            known = _ELEMENTS.get(str(element.tag))
            if known is not None and child.tag not in known:
                found[f"{owner}: its element `{child.tag}`"] = None
            elif child.tag != "transmission":
                own = child.get("name")
                named = child.tag in ("link", "joint") and own is not None
                waiting.append((child, f'{child.tag} "{own}"' if named else owner))
            for attribute in sorted(
                set(child.attrib) - _ATTRIBUTES.get(str(child.tag), {*child.attrib})
            ):
                found[f"{owner}: `{attribute}` of its `{child.tag}`"] = None
    return list(found)


def _not_zero(text: str | None) -> bool:
    try:
        return text is not None and float(text) != 0
    except ValueError:
        return True


def _quoted(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names) or "no joint"

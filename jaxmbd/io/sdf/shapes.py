"""Shapes of links: to touch, to draw, and with the inertia of a density."""

import math

import numpy as np

from ...mechanism import (
    AbstractShape,
    Box,
    Capsule,
    Cylinder,
    Ellipsoid,
    HalfSpace,
    Inertia,
    Sphere,
)
from .. import rigid
from ..loaded import Visual
from ..rigid import Transform
from .document import Node

_SIDES = 32  # of a cone that is drawn


def geometry(part: Node) -> Node | None:
    """The shape of a <collision> or a <visual>."""
    given = part.find("geometry")
    return None if given is None or not given.children else given.children[0]


def turned(shape: Node, at: Transform) -> Transform:
    """Where the shape is: the z axis of a plane is its normal."""
    if shape.tag != "plane":
        return at
    normal = shape.vector("normal", (0, 0, 1))
    length = np.linalg.norm(normal)
    if not length > 0:
        raise shape.bad("needs a <normal> other than 0 0 0")
    return at.compose(Transform(np.zeros(3), rigid.along(normal / length)))


def _radius(shape: Node) -> float:
    return shape.number("radius", 0.5 if shape.tag == "capsule" else 1.0)


def _length(shape: Node) -> float:
    return shape.number("length", 1.0)


def contact_shape(shape: Node) -> AbstractShape | None:
    """The shape that others touch; `None` without a counterpart."""
    with shape.stated():
        if shape.tag == "plane":
            return HalfSpace()
        if shape.tag == "sphere":
            return Sphere(_radius(shape))
        if shape.tag == "capsule":
            return Capsule(_radius(shape), _length(shape) / 2)
        if shape.tag == "cylinder":
            return Cylinder(_radius(shape), _length(shape) / 2)
        if shape.tag == "ellipsoid":
            return Ellipsoid(shape.vector("radii", (1, 1, 1)))
        if shape.tag == "box":
            return Box(shape.vector("size", (1, 1, 1)) / 2)
    return None


def solid(shape: Node, density: float) -> Inertia | None:
    """The inertia of a homogeneous solid; `None` for what encloses no volume that is known."""
    with shape.stated():
        if shape.tag == "sphere":
            return Inertia.sphere(radius=_radius(shape), density=density)
        if shape.tag == "box":
            return Inertia.box(size=shape.vector("size", (1, 1, 1)), density=density)
        if shape.tag == "ellipsoid":
            return Inertia.ellipsoid(semiaxes=shape.vector("radii", (1, 1, 1)), density=density)
        if shape.tag == "cylinder":
            return Inertia.cylinder(radius=_radius(shape), length=_length(shape), density=density)
        if shape.tag == "capsule":
            return Inertia.capsule(radius=_radius(shape), length=_length(shape), density=density)
        if shape.tag == "cone":
            return _cone(_radius(shape), _length(shape), density)
    return None


def _cone(r: float, h: float, density: float) -> Inertia:
    """A solid cone with its apex on z, from -h/2 to h/2."""
    mass = density * math.pi * r**2 * h / 3
    across = 3 / 80 * mass * (4 * r**2 + h**2)
    return Inertia(mass, [across, across, 0.3 * mass * r**2], [0, 0, -h / 4])


def visual(part: Node, name: str, body: str, at: Transform) -> Visual | None:
    """A shape to draw; `None` for one that is not drawn."""
    shape = geometry(part)
    if shape is None or shape.tag not in _SIZES and shape.tag != "cone":
        return None
    at, kind, vertices, faces = turned(shape, at), shape.tag, None, None
    if kind == "cone":
        kind, size = "mesh", ()
        vertices, faces = _cone_mesh(_radius(shape), _length(shape))
    else:
        size = tuple(float(x) for x in _SIZES[kind](shape))
    colour = _colour(part, 1 - part.number("transparency", 0.0))
    return Visual(name, body, kind, size, vertices, faces, at.position, at.orientation, colour, 0)


_SIZES = {
    "sphere": lambda shape: (_radius(shape),),
    "capsule": lambda shape: (_radius(shape), _length(shape) / 2),
    "cylinder": lambda shape: (_radius(shape), _length(shape) / 2),
    "ellipsoid": lambda shape: shape.vector("radii", (1, 1, 1)),
    "box": lambda shape: shape.vector("size", (1, 1, 1)) / 2,
    "plane": lambda shape: shape.vector("size", (1, 1)) / 2,
}


def _colour(part: Node, opacity: float) -> tuple[float, float, float, float]:
    """The colour that a <visual> has in light; of three numbers it is opaque."""
    for tag in ("diffuse", "ambient"):
        given = part.find(f"material/{tag}")
        if given is not None and given.text.strip():
            red, green, blue, *alpha = (float(x) for x in given.numbers((3, 4)))
            return red, green, blue, opacity * (alpha[0] if alpha else 1.0)
    return 0.5, 0.5, 0.5, opacity


def _cone_mesh(r: float, h: float) -> tuple[np.ndarray, np.ndarray]:
    angle = 2 * np.pi * np.arange(_SIDES) / _SIDES
    rim = np.stack([r * np.cos(angle), r * np.sin(angle), np.full(_SIDES, -h / 2)], axis=-1)
    i, j = np.arange(_SIDES), np.roll(np.arange(_SIDES), -1)
    tip, middle = np.full(_SIDES, _SIDES), np.full(_SIDES, _SIDES + 1)
    faces = np.concatenate([np.stack([i, j, tip], -1), np.stack([j, i, middle], -1)])
    return np.concatenate([rim, [[0, 0, h / 2], [0, 0, -h / 2]]]), faces

"""Links: their shapes, masses, and the contacts between them."""

import functools
import itertools
import math
from collections.abc import Callable
from operator import add
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ..._contact import ContactLaw
from ..._coordinates import algebra
from ..._mechanism import (
    AbstractContact,
    Inertia,
    Pose,
)
from ..loaded import Visual, pose
from ..shapes import Side, contact, ground_first, touching
from .document import Node, Scope

_SIDES = 32  # of a cone that is drawn


def geometry(part: Node) -> Node | None:
    """The shape of a <collision> or a <visual>."""
    given = part.find("geometry")
    return None if given is None or not given.children else given.children[0]


def turned(shape: Node, at: Pose) -> Pose:
    """Where the shape is: the z axis of a plane is its normal."""
    if shape.tag != "plane":
        return at
    normal = shape.vector("normal", (0, 0, 1))
    length = np.linalg.norm(normal)
    if not length > 0:
        raise shape.bad("needs a <normal> other than 0 0 0")
    return at.compose(pose((0, 0, 0), algebra.quaternion_along(normal / length)))


def _radius(shape: Node) -> float:
    return shape.number("radius", 0.5 if shape.tag == "capsule" else 1.0)


def _length(shape: Node) -> float:
    return shape.number("length", 1.0)


_SIZES = {
    "sphere": lambda shape: (_radius(shape),),
    "capsule": lambda shape: (_radius(shape), _length(shape) / 2),
    "cylinder": lambda shape: (_radius(shape), _length(shape) / 2),
    "ellipsoid": lambda shape: shape.vector("radii", (1, 1, 1)),
    "box": lambda shape: shape.vector("size", (1, 1, 1)) / 2,
    "plane": lambda shape: shape.vector("size", (1, 1)) / 2,
}


def _size(shape: Node) -> tuple[float, ...]:
    """The numbers that `Visual` has for a shape; none of other kinds."""
    return tuple(float(x) for x in _SIZES[shape.tag](shape)) if shape.tag in _SIZES else ()


def solid(shape: Node, density: float) -> Inertia | None:
    """The inertia of a homogeneous solid; `None` for what encloses no volume that is known."""
    with shape.stated():
        size = np.array(_size(shape))
        if shape.tag == "sphere":
            return Inertia.sphere(radius=size[0], density=density)
        if shape.tag == "box":
            return Inertia.box(size=2 * size, density=density)
        if shape.tag == "ellipsoid":
            return Inertia.ellipsoid(semiaxes=size, density=density)
        if shape.tag in ("cylinder", "capsule"):
            made = Inertia.cylinder if shape.tag == "cylinder" else Inertia.capsule
            return made(radius=size[0], length=2 * size[1], density=density)
        if shape.tag == "cone":
            return _cone(_radius(shape), _length(shape), density)
    return None


def _cone(r: float, h: float, density: float) -> Inertia:
    """A solid cone with its apex on z, from -h/2 to h/2."""
    mass = density * math.pi * r**2 * h / 3
    across = 3 / 80 * mass * (4 * r**2 + h**2)
    return Inertia(mass, [across, across, 0.3 * mass * r**2], [0, 0, -h / 4])


def visual(part: Node, name: str, body: str, at: Pose) -> Visual | None:
    """A shape to draw; `None` for one that is not drawn."""
    shape = geometry(part)
    if shape is None or shape.tag not in _SIZES and shape.tag != "cone":
        return None
    at, kind, vertices, faces = turned(shape, at), shape.tag, None, None
    if kind == "cone":
        kind = "mesh"
        vertices, faces = _cone_mesh(_radius(shape), _length(shape))
    colour = _colour(part, 1 - part.number("transparency", 0.0))
    where = np.asarray(at.position), np.asarray(at.orientation)
    return Visual(name, body, kind, _size(shape), vertices, faces, *where, colour, 0)


def _colour(part: Node, opacity: float) -> tuple[float, float, float, float]:
    """The colour that a <visual> has in light; of three numbers it is opaque."""
    for tag in ("diffuse", "ambient"):
        given = part.stating(f"material/{tag}")
        if given is not None:
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


_MOMENTS = ("ixx", "iyy", "izz")
_PRODUCTS = {(0, 1): "ixy", (0, 2): "ixz", (1, 2): "iyz"}


def inertia_of(
    link: Node, place: Callable[[Node], Pose], tell: Callable[[Node, str], None]
) -> Inertia:
    """The inertia of a link, in its frame. `place` says where its collisions are in it."""
    inertial = link.find("inertial")
    if inertial is None:
        tell(link, "has no <inertial>: its mass is 1 kg and its moments 1 kg m^2, by default")
        return Inertia(1.0, [1.0, 1.0, 1.0])
    if inertial.true(inertial.get("auto") or "0"):
        return _of_shapes(link, inertial, place, tell)
    mass = inertial.number("mass", 1.0)
    if not mass > 0:
        raise inertial.bad(
            f"has the mass {mass:g}, so that the link has no mass: give it some, or merge the link "
            "with another one"
        )
    tensor = np.diag([inertial.number(f"inertia/{key}", 1.0) for key in _MOMENTS])
    for (i, j), key in _PRODUCTS.items():
        tensor[i, j] = tensor[j, i] = inertial.number(f"inertia/{key}", 0.0)
    given = inertial.find("pose")
    at = pose() if given is None else given.transform()
    R = algebra.quaternion_to_matrix(at.orientation)
    tensor = R @ tensor @ R.T
    tensor = (tensor + tensor.T) / 2
    moments = np.linalg.eigvalsh(tensor)
    if not moments[0] > 0:
        raise inertial.bad(
            f"has the principal moments {moments.tolist()}, which must be positive: correct its "
            "<inertia>"
        )
    # A ball with the same trace is always physical; its tensor is then replaced.
    inertia = Inertia(mass, 3 * [np.trace(tensor) / 3], at.position)
    inertia = eqx.tree_at(lambda i: i.tensor, inertia, jnp.asarray(tensor, inertia.mass.dtype))
    if moments[2] > (1 + 1e-9) * (moments[0] + moments[1]):
        tell(
            inertial,
            f"has moments {moments.tolist()} that no mass distribution has; they are used as they "
            "are",
        )
    return inertia


def _of_shapes(
    link: Node,
    inertial: Node,
    place: Callable[[Node], Pose],
    tell: Callable[[Node, str], None],
) -> Inertia:
    """The inertia of all collisions of a link, by their densities, with the mass that is given."""
    common = inertial.number("density", 1000.0)
    parts = []
    for collision in link.all("collision"):
        shape = geometry(collision)
        density = collision.number("density", common)
        part = None if shape is None else solid(shape, density)
        if part is None:
            kind = "" if shape is None else shape.tag
            tell(collision, f"adds nothing to the automatic inertia, as its shape is a <{kind}>")
            continue
        parts.append(part.moved(*place(collision)))
    mass = inertial.number("mass", 0.0)
    if mass < 0:
        raise inertial.bad(f"must have a positive mass, but it is {mass:g}")
    if not parts:
        tell(
            inertial,
            "is automatic without a shape: its moments are 1 kg m^2, by default, and its mass "
            f"{mass or 1.0:g} kg",
        )
        return Inertia(mass or 1.0, [1.0, 1.0, 1.0])
    total = functools.reduce(add, parts)
    return total.with_mass(mass) if mass else total


_ALL_BITS = 65535
# At and above this threshold, the default of the format, no impact rebounds.
_NO_REBOUND = 1e5
# More pairs take longer to load than anyone waits.
_MOST = 50_000


class Surface(NamedTuple):
    """A shape that may touch others.

    **Fields:** `name`, `side`; `link`: the scope and the name of its link; `node`; `friction`,
    `restitution`; `bits`: of its category, and of those that it touches.
    """

    name: str
    side: Side
    link: tuple[Scope, str]
    node: Node
    friction: float
    restitution: float
    bits: tuple[int, int]


def surface(
    collision: Node,
    name: str,
    body: str,
    link: tuple[Scope, str],
    at: Pose,
    tell: Callable[[Node, str], None],
) -> Surface | None:
    """The surface of a <collision>; `None` if it touches nothing here."""
    given = geometry(collision)
    if given is None or collision.flag("surface/contact/collide_without_contact", False):
        return None
    with given.stated():
        shape = touching(given.tag, _size(given))
    if shape is None:
        if given.tag == "cone":
            tell(given, "touches nothing here")
        return None
    mu, across = (collision.number(f"surface/friction/ode/{x}", 1.0) for x in ("mu", "mu2"))
    if mu != across:
        tell(
            collision,
            f"has <mu2> {across:g} beside <mu> {mu:g}: its friction is {mu:g} in all directions",
        )
    e = collision.number("surface/bounce/restitution_coefficient", 0.0)
    threshold = collision.number("surface/bounce/threshold", _NO_REBOUND, finite=False)
    if e and threshold >= _NO_REBOUND:
        tell(collision, f"rebounds above its <threshold> of {threshold:g} m/s only: here never")
        e = 0.0
    elif e and threshold:
        tell(collision, f"has a <threshold> of {threshold:g} m/s: here slower impacts rebound too")
    collide = _bits(collision, "collide_bitmask", _ALL_BITS)
    category = _bits(collision, "category_bitmask", collide)
    for what, value, most in (("friction <mu>", mu, math.inf), ("restitution", e, 1.0)):
        if not 0 <= value <= most:
            raise collision.bad(f"has a {what} of {value:g}, which must be from 0 to {most:g}")
    side = Side(body, shape, turned(given, at))
    return Surface(name, side, link, collision, mu, e, (category, collide))


def _bits(collision: Node, tag: str, default: int) -> int:
    """A mask, in decimal or hexadecimal digits."""
    part = collision.stating(f"surface/contact/{tag}")
    if part is None:
        return default
    try:
        return int(part.text.strip(), 0)
    except ValueError:
        raise part.bad(f"must be a whole number, but is {part.text.strip()!r}") from None


def contacts_of(
    surfaces: list[Surface],
    joined: set[frozenset[tuple[Scope, str]]],
    held: set[str],
    tell: Callable[[Node, str], None],
) -> list[AbstractContact]:
    """Contacts of all pairs that may touch by the rules of the format. `joined`: links with a joint
    between them; `held`: bodies that are fixed to the ground.

    Friction and restitution of a pair are the smaller ones, as with the solver of <ode>."""
    pairs = [
        (one, other)
        for one, other in itertools.combinations(surfaces, 2)
        if one.side.body != other.side.body
        and not {one.side.body, other.side.body} <= held
        and _touch(one, other, joined)
    ]
    if len(pairs) > _MOST:
        raise ValueError(
            f"{len(pairs)} pairs of its shapes may touch, of which at most {_MOST} are loaded: "
            "choose some models by `model`, or load without contacts by `contacts=False`."
        )
    found: list[AbstractContact] = []
    laws: dict[tuple[float, float], ContactLaw] = {}
    for one, other in pairs:
        sides = ground_first(one.side, other.side)
        a, b = (one, other) if sides[0] is one.side else (other, one)
        mu, e = min(a.friction, b.friction), min(a.restitution, b.restitution)
        if (mu, e) not in laws:
            laws[mu, e] = ContactLaw(friction=mu, restitution=e)
        made = contact(f"{a.name}-{b.name}", *sides, laws[mu, e])
        if made is not None:
            found.append(made)
            continue
        kinds = [type(side.shape).__name__ for side in sides]
        tell(a.node, f'touches "{b.name}" as {kinds[0]} and {kinds[1]}, which is not read')
    return found


def _touch(one: Surface, other: Surface, joined: set[frozenset[tuple[Scope, str]]]) -> bool:
    """Whether two shapes of different links may touch."""
    if frozenset((one.link, other.link)) in joined:
        return False
    if one.link[0].top is other.link[0].top and not any(map(_self_collides, (one, other))):
        return False
    return bool(one.bits[0] & other.bits[1] or other.bits[0] & one.bits[1])


def _self_collides(surface: Surface) -> bool:
    """Whether the link of a shape may touch others of its model."""
    scope: Scope | None = surface.link[0]
    if scope.parts[surface.link[1]].flag("self_collide", False):
        return True
    while scope is not None and not scope.is_world:
        if scope.node.flag("self_collide", False):
            return True
        scope = scope.above
    return False

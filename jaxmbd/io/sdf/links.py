"""Contacts between the collision shapes of links."""

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

from ..._contact import ContactLaw
from ...mechanism import GROUND, AbstractContact, AbstractShape, Contact, Pose
from ..rigid import Transform
from ..source import pose
from .document import Node
from .scope import Scope
from .shapes import contact_shape, geometry, turned

_ALL_BITS = 65535
# At and above this threshold, the default of the format, no impact rebounds.
_NO_REBOUND = 1e5
# More pairs take longer to load than anyone waits.
_MOST = 50_000


class Surface(NamedTuple):
    """A shape that may touch others.

    **Fields:** `name`, `body`; `link`: the scope and the name of its link; `node`; `shape`, and
    where it is on the body, `frame`; `friction`, `restitution`; `bits`: of its category, and of
    those that it touches.
    """

    name: str
    body: str
    link: tuple[Scope, str]
    node: Node
    shape: AbstractShape
    frame: Pose
    friction: float
    restitution: float
    bits: tuple[int, int]


def surface(
    collision: Node,
    name: str,
    body: str,
    link: tuple[Scope, str],
    at: Transform,
    tell: Callable[[Node, str], None],
) -> Surface | None:
    """The surface of a <collision>; `None` if it touches nothing here."""
    given = geometry(collision)
    if given is None or collision.flag("surface/contact/collide_without_contact", False):
        return None
    shape = contact_shape(given)
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
    frame = pose(turned(given, at))
    return Surface(name, body, link, collision, shape, frame, mu, e, (category, collide))


def _bits(collision: Node, tag: str, default: int) -> int:
    """A mask, in decimal or hexadecimal digits."""
    part = collision.find(f"surface/contact/{tag}")
    if part is None or not part.text.strip():
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
        if one.body != other.body
        and not {one.body, other.body} <= held
        and _touch(one, other, joined)
    ]
    if len(pairs) > _MOST:
        raise ValueError(
            f"{len(pairs)} pairs of its shapes may touch, of which at most {_MOST} are loaded: "
            "choose some models by `model`, or load without contacts by `contacts=False`."
        )
    found: list[AbstractContact] = []
    laws: dict[tuple[float, float], ContactLaw] = {}
    for pair in pairs:
        # The ground comes first, so that normals point away from it.
        a, b = sorted(pair, key=lambda end: end.body != GROUND)
        mu, e = min(a.friction, b.friction), min(a.restitution, b.restitution)
        if (mu, e) not in laws:
            laws[mu, e] = ContactLaw(friction=mu, restitution=e)
        ends = {"frame_a": a.frame, "frame_b": b.frame, "law": laws[mu, e]}
        try:
            contact = Contact(f"{a.name}-{b.name}", a.body, b.body, a.shape, b.shape, **ends)
        except ValueError:
            kinds = [type(end.shape).__name__ for end in (a, b)]
            tell(a.node, f'touches "{b.name}" as {kinds[0]} and {kinds[1]}, which is not read')
            continue
        found.append(contact)
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

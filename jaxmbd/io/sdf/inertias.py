"""Mass, centre of mass and inertia tensor of a link."""

import functools
from collections.abc import Callable
from operator import add

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ...mechanism import Inertia
from .. import rigid
from ..rigid import Transform
from .document import Node
from .shapes import geometry, solid

_MOMENTS = ("ixx", "iyy", "izz")
_PRODUCTS = {(0, 1): "ixy", (0, 2): "ixz", (1, 2): "iyz"}


def inertia_of(
    link: Node, place: Callable[[Node], Transform], tell: Callable[[Node, str], None]
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
    at = Transform.identity() if given is None else given.transform()
    R = rigid.matrix(at.orientation)
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
    place: Callable[[Node], Transform],
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

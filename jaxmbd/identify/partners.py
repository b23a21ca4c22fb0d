"""Numbers of a system that depend on each other: copies, and numbers that must change together."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from .._concrete import all_concrete
from .._system import AbstractSystem
from ..mechanism import (
    AbstractConnector,
    AbstractConstraint,
    AbstractCoupling,
    AbstractForceElement,
    AbstractJoint,
    AbstractScalarCoordinate,
    Bushing,
    Contact,
    Drag,
    Gear,
    Inertia,
    JointLimit,
    Mechanism,
    OfJoint,
    PeriodicSpline,
    Pose,
    PrescribedMotion,
    WeightedSum,
)
from .paths import leaves_below, owner, replaced, walk
from .transforms import AbstractTransform, is_entrywise

_BY_FUNCTION = "give `fit` a function `values -> system` that builds it from what is unknown"


def changed(system: AbstractSystem, path: str, value: PyTree) -> AbstractSystem:
    """The system with another value at a path, and with the dependent numbers changed: the tensor
    of a body is proportional to its mass, as for a body of fixed shape."""
    head, field = owner(path)
    whole = walk(system, head)
    if isinstance(whole, Inertia) and field == "mass":
        return replaced(system, head, whole.with_mass(value))
    return replaced(system, path, value)


def check_alone(
    system: AbstractSystem, path: str, value: PyTree, transform: AbstractTransform
) -> None:
    """**Raises:** `ValueError` if the entries at a path must not change one by one, such as those
    of an inertia tensor, which would not stay symmetric."""
    head, field = owner(path)
    remedy = _remedy(walk(system, head), field, value, is_entrywise(transform))
    if remedy:
        raise ValueError(f"`{path}` cannot be found by `{transform!r}`: {remedy}.")


def _remedy(whole: Any, field: str, value: PyTree, entrywise: bool) -> str:
    """The reason why the entries must not change one by one, and the remedy; "" if they may."""
    if isinstance(whole, PeriodicSpline):
        return f"the bends of a spline follow from all of its points, so {_BY_FUNCTION}"
    if isinstance(whole, Gear) and field == "teeth":
        return "numbers of teeth are whole; take a `Coupler`, whose `ratio` need not be"
    if not entrywise:
        return ""
    if isinstance(value, Inertia):
        return "few choices of its numbers are a body; `LogCholesky()` makes all of them one"
    if isinstance(whole, Inertia) and field == "tensor":
        return (
            "few choices of its nine entries are the tensor of a body; `LogCholesky()` takes the "
            "six numbers of those that are, and for mass and centre too that of the whole inertia"
        )
    if isinstance(whole, Pose) and field == "orientation":
        return "a quaternion that turns has length 1; `UnitVector()` keeps it"
    if isinstance(whole, Bushing) and np.ndim(value) == 2:
        return (
            "a matrix that is not symmetric would be a source of energy; give the bushing six "
            f"values, or {_BY_FUNCTION}"
        )
    if len(jax.tree.leaves(value)) != 1:
        below = sorted(leaves_below("", value))
        return f"it is a whole {type(value).__name__}; name one of its numbers, {below}"
    return ""


def copies(system: AbstractSystem) -> dict[str, tuple[str, ...]]:
    """Path -> paths of the same number elsewhere in a `Mechanism`:

    - an anchor, a direction or another number of a joint: in the elements that hold its coordinates
      (limits, drives, couplings, springs and actuators along them) and in those that act in the
      same frames of the same bodies (friction, motors);
    - the shape of a body and its frame: in all contacts of the body;
    - the centre of mass of a body: in a drag that acts there.

    Only concrete numbers are compared."""
    if not isinstance(system, Mechanism):
        return {}
    groups: dict[Any, list[str]] = {}
    for key, path in _keys(system):
        groups.setdefault(key, []).append(path)
    found = {
        path: tuple(other for other in group if other != path)
        for group in groups.values()
        for path in group
        if len(group) > 1
    }
    # The centre of mass does not follow the point of a drag.
    for force in system.forces:
        if isinstance(force, Drag) and force.at_center:
            center = f"bodies[{force.names[0]}].inertia.center"
            place = f"forces[{force.name}].frame.position"
            found[center] = (*found.get(center, ()), place)
    return found


def _keys(mechanism: Mechanism) -> Iterator[tuple[Any, str]]:
    """(key, path) of all numbers that may be stored more than once. Copies have equal keys."""
    elements = {
        "joints": mechanism.joints,
        "forces": mechanism.forces,
        "contacts": mechanism.contacts,
    }
    for kind, members in elements.items():
        for element in members:
            head = f"{kind}[{element.name}]"
            for path, connector, bodies in _connectors(element):
                yield from _of_connector(head + path, connector, bodies)
            if isinstance(element, Contact):
                for side in "ab":
                    yield from _of_shape(head, element, side)


def _connectors(
    element: AbstractConstraint | AbstractForceElement | Any,
) -> Iterator[tuple[str, AbstractConnector, tuple[str, ...]]]:
    """(path below, connector, its bodies) for the element itself and the joints that it holds."""
    if isinstance(element, AbstractConnector):
        yield "", element, element.bodies
    if isinstance(element, JointLimit):
        yield ".joint", element.joint, element.names
    if isinstance(element, PrescribedMotion):
        yield ".driven.joint", element.driven.joint, element.names
    if isinstance(element, AbstractCoupling):
        yield ".first.joint", element.first.joint, element.names[:2]
        yield ".second.joint", element.second.joint, element.names[2:]
    count = 0
    for path in ("coordinate", "of"):
        coordinate = getattr(element, path, None)
        if isinstance(coordinate, AbstractScalarCoordinate):
            names = element.bodies[count : count + len(coordinate.frames)]
            yield from _in_coordinate(f".{path}", coordinate, names)
            count += len(names)


def _in_coordinate(
    head: str, coordinate: AbstractScalarCoordinate, bodies: tuple[str, ...]
) -> Iterator[tuple[str, AbstractConnector, tuple[str, ...]]]:
    """The joints that a scalar coordinate reads."""
    if isinstance(coordinate, OfJoint):
        yield f"{head}.coordinate.joint", coordinate.coordinate.joint, bodies
    if isinstance(coordinate, WeightedSum):
        count = 0
        for i, term in enumerate(coordinate.terms):
            own = bodies[count : count + len(term.frames)]
            yield from _in_coordinate(f"{head}.terms[{i}]", term, own)
            count += len(own)


def _of_connector(head: str, connector: AbstractConnector, bodies: Any):
    frames = connector.frames
    if not all_concrete(frames):
        return
    place = (bodies, _bytes(frames))
    for i, name in enumerate(("frame_a", "frame_b")):
        for path in leaves_below("", frames[i]):
            yield (*place, i, path), f"{head}.{name}.{path}"
    if not isinstance(connector, AbstractJoint):
        return
    for path, x in leaves_below("", connector).items():
        if not path.startswith("frame_") and all_concrete(x):
            yield (*place, type(connector), path, _bytes(x)), f"{head}.{path}"


def _of_shape(head: str, contact: Contact, side: str):
    body, shape, frame = (getattr(contact, f"{what}_{side}") for what in ("body", "shape", "frame"))
    if not all_concrete((shape, frame)):
        return
    piece = (body, type(shape), _bytes((shape, frame)))
    for name, tree in (("shape", shape), ("frame", frame)):
        for path in leaves_below("", tree):
            yield (*piece, name, path), f"{head}.{name}_{side}.{path}"


def _bytes(tree: PyTree) -> tuple[bytes, ...]:
    return tuple(np.asarray(x).tobytes() for x in jax.tree.leaves(tree))

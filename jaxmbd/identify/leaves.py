"""The leaves of a system by their paths, those that belong together, and a system from them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._compiler import is_known, set_at
from .._inputs import checked
from .._mechanism import (
    AbstractConnector,
    AbstractElement,
    AbstractOfFrames,
    Bushing,
    Contact,
    CoordinateConstraint,
    Drag,
    Inertia,
    Mechanism,
    PeriodicSpline,
    Pose,
)
from .._system import AbstractSystem
from .parameters import Parameter
from .sensors import IMU
from .transforms import AbstractTransform, is_entrywise

_KINDS = {
    "bodies": lambda m: (m.body_stack,),
    "joints": lambda m: m.own_joints,
    "read_joints": lambda m: m.own_read,
    "forces": lambda m: m.own_forces,
    "contacts": lambda m: m.own_contacts,
}


@checked
def leaves(system: AbstractSystem) -> dict[str, Any]:
    """Path -> value of all floating-point leaves of a system, with the paths of `Leaves`."""
    if not isinstance(system, Mechanism):
        return leaves_below("", system)
    found = {}
    for kind, stacks in _KINDS.items():
        for stack in stacks(system):
            for i, name in enumerate(stack.names):
                found |= leaves_below(f"{kind}[{name}]", stack[i])
    found["gravity"] = system.gravity
    return found


def leaves_below(head: str, tree: PyTree) -> dict[str, Any]:
    """Path -> value of the floating-point leaves of a tree that itself has the path `head`."""
    return {
        (head + _spelled(path)).removeprefix("."): x
        for path, x in jax.tree_util.tree_leaves_with_path(tree)
        if isinstance(x, float) or eqx.is_inexact_array(x)
    }


@checked
def leaf(system: AbstractSystem, path: str) -> Any:
    """The value at a path, which may also be a whole node, such as the inertia of a body.

    **Raises:** `ValueError` if there is none."""
    known = leaves(system)
    if path in known:
        return known[path]
    if not any(is_below(path, other) for other in known):
        raise ValueError(
            f"There is no parameter `{path}` in {type(system).__name__}, whose parameters are "
            f"{sorted(known)}."
        )
    return walk(system, path)


def is_below(path: str, other: str) -> bool:
    """Whether the path `other` leads to a part of the node at `path`."""
    return other.startswith((path + ".", path + "["))


def replaced(system: AbstractSystem, path: str, value: PyTree) -> AbstractSystem:
    """The system with another value at a path. **Raises:** `ValueError` if there is none."""
    old = leaf(system, path)
    shapes = [jnp.shape(x) for x in jax.tree.leaves(old)]
    given = [jnp.shape(x) for x in jax.tree.leaves(value)]
    if shapes != given:
        raise ValueError(f"`{path}` has the shape {shapes}, but its new value has {given}.")
    if isinstance(system, Mechanism) and path.partition("[")[0] in _KINDS:
        return _with_element(system, path, value)
    return eqx.tree_at(lambda s: walk(s, path), system, value)


def owner(path: str) -> tuple[str, str]:
    """Split `a.b[c].d` into the path `a.b[c]` of the object that owns the field ("" for the system
    itself) and the name `d` of the field. The owner of an item is the owner of its collection."""
    steps = _steps(path)
    while steps[-1].startswith("[") and len(steps) > 1:
        steps.pop()
    head = "".join(step if step.startswith("[") else f".{step}" for step in steps[:-1])
    return head.removeprefix("."), steps[-1]


def walk(tree: Any, path: str) -> Any:
    """The node at a path; the tree itself for ""."""
    for step in _steps(path):
        if step.startswith("["):
            key = step[1:-1]
            if isinstance(tree, Mapping):
                tree = tree[key]
            elif isinstance(tree, tuple | list) and not key.lstrip("-").isdigit():
                tree = next(x for x in tree if x.name == key)
            else:
                tree = tree[int(key)]
        else:
            tree = getattr(tree, step)
    return tree


def _spelled(path) -> str:
    text = ""
    for key in path:
        if isinstance(key, jax.tree_util.GetAttrKey):
            text += f".{key.name}"
        elif isinstance(key, jax.tree_util.SequenceKey):
            text += f"[{key.idx}]"
        else:
            text += f"[{getattr(key, 'key', key)}]"
    return text


def _steps(path: str) -> list[str]:
    """Split `a.b[c].d` into a, b, [c], d."""
    steps, rest = [], path
    while rest:
        if rest.startswith("["):
            end = rest.index("]") + 1
        else:
            rest = rest.removeprefix(".")
            end = min(i for i in (rest.find("."), rest.find("["), len(rest)) if i >= 0)
        steps.append(rest[:end])
        rest = rest[end:]
    return steps


def _with_element(mechanism: Any, path: str, value: PyTree) -> Any:
    """Replace a part of an element, which is an index of the last axis of its stack's arrays."""
    kind, name, *below = _steps(path)
    stacks: Callable[..., Any] = _KINDS[kind]
    number, i = next(
        (number, stack.names.index(name[1:-1]))
        for number, stack in enumerate(stacks(mechanism))
        if name[1:-1] in stack.names
    )
    stack = stacks(mechanism)[number]
    # An element in which each leaf is its own index in the structure.
    element = jax.tree.unflatten(stack.structures[i], range(len(stack.leaves)))
    for step in below:
        element = element[int(step[1:-1])] if step.startswith("[") else getattr(element, step)
    table = list(stack.leaves)
    for place, x in zip(jax.tree.leaves(element), jax.tree.leaves(value), strict=True):
        table[place] = set_at(table[place], np.s_[..., i], x)
    return eqx.tree_at(lambda m: stacks(m)[number].leaves, mechanism, table)


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
    remedy = not_alone(walk(system, head), field, value, is_entrywise(transform))
    if remedy:
        raise ValueError(f"`{path}` cannot be found by `{transform!r}`: {remedy}.")


def not_alone(whole: Any, field: str, value: PyTree, entrywise: bool) -> str:
    """The reason why the entries of a field must not change one by one, and the remedy; "" if they
    may."""
    if isinstance(whole, PeriodicSpline):
        return f"the bends of a spline follow from all of its points, so {_BY_FUNCTION}"
    if isinstance(whole, CoordinateConstraint):
        of_wheels = whole.repeats is not None and field in ("repeats", "coefficients")
        if of_wheels or field == "teeth":
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
    if field == "orientation" and isinstance(whole, Pose | IMU):
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

    - an anchor or a direction of a joint: in the elements that act in the same frames of the same
      bodies (friction, motors);
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
            coordinate = getattr(element, "coordinate", None)
            if isinstance(element, AbstractConnector):
                places = (".frame_a", ".frame_b")
                yield from _of_frames(head, element, places)
            if isinstance(coordinate, AbstractOfFrames):
                places = [f".coordinate.local[{i}]" for i in range(len(coordinate.frames))]
                yield from _of_frames(head, element, places)
            if isinstance(element, Contact):
                for side in "ab":
                    yield from _of_shape(head, element, side)


def _of_frames(
    head: str, element: AbstractElement, places: Sequence[str]
) -> Iterator[tuple[Any, str]]:
    if is_known(element.frames):
        for i, (place, frame) in enumerate(zip(places, element.frames, strict=True)):
            for path in leaves_below("", frame):
                yield (element.bodies, _bytes(element.frames), i, path), f"{head}{place}.{path}"


def _of_shape(head: str, contact: Contact, side: str):
    body, shape, frame = (getattr(contact, f"{what}_{side}") for what in ("body", "shape", "frame"))
    if not is_known((shape, frame)):
        return
    piece = (body, type(shape), _bytes((shape, frame)))
    for name, tree in (("shape", shape), ("frame", frame)):
        for path in leaves_below("", tree):
            yield (*piece, name, path), f"{head}.{name}_{side}.{path}"


def _bytes(tree: PyTree) -> tuple[bytes, ...]:
    return tuple(np.asarray(x).tobytes() for x in jax.tree.leaves(tree))


class Leaves(eqx.Module):
    """A model that replaces some leaves of a system, named by their paths:

        model = Leaves(system)
        model({"stiffness": 100.0, "arms[1].length": 0.4})    # the system with these values

    Paths consist of attributes, and indices and keys in brackets. In a `Mechanism`, elements have
    their kind and name in the path, as in `bodies[upper arm].inertia.mass`,
    `joints[elbow].frame_a.position`, or `forces[damper].damping`.

    Some numbers change together:

    - The tensor of an `Inertia` is proportional to its `mass`, as for a body of fixed shape. If the
      tensor is given too, it is used as it is.
    - A mechanism may hold a number several times. The frames of a joint are also in its friction
      and motor. The shape of a body is in each of its contacts. All of them change with the one
      that is named.
    - A `Drag` at the centre of mass stays there.

    No other numbers are coupled. If a radius or the distance of two anchors also changes the mass
    distribution, use a function `values -> system`.

    **Raises:** `ValueError` for a path that leads to no floating-point number, with those that do,
    and for two paths to one number.
    """

    system: AbstractSystem
    # Pairs instead of a dictionary, since static fields must be hashable.
    pairs: tuple[tuple[str, tuple[str, ...]], ...] = eqx.field(static=True)

    @checked
    def __init__(self, system: AbstractSystem):
        self.system = system
        self.pairs = tuple(copies(system).items())

    @property
    def copies(self) -> dict[str, tuple[str, ...]]:
        """Path -> other paths to copies of its number."""
        return dict(self.pairs)

    def __call__(self, values: Mapping[str, PyTree]) -> AbstractSystem:
        self._check_distinct(values)
        system = self.system
        # Sorting puts a mass before a tensor.
        for path in sorted(values):
            system = changed(system, path, values[path])
        for path in values:
            for own in self._copied(path):
                for other in self.copies[own]:
                    if not any(_overlap(other, given) for given in values):
                        system = changed(system, other, walk(system, own))
        return system

    def parameters(self, chosen: Any) -> dict[str, Parameter]:
        """The chosen parameters. Where the choice has no guess, the value in the system is used.

        **Arguments:** `chosen`: paths; or path -> `Parameter`, transform or guess; or a filter
        `(path, leaf) -> bool` over all leaves. Of several copies the filter selects the first.

        **Raises:** `ValueError` as above, and for numbers that cannot change one by one, such as
        the entries of an inertia tensor.
        """
        found = {path: as_parameter(*choice) for path, *choice in self._choices(chosen)}
        self._check_distinct(found)
        for path, parameter in found.items():
            check_alone(self.system, path, parameter.guess, parameter.transform)
        return found

    def _choices(self, chosen: Any):
        """The tuples (path, value in the system, choice)."""
        if callable(chosen):
            here = leaves(self.system)
            paths = [path for path, x in here.items() if chosen(path, x)]
            if not paths:
                raise ValueError(f"The filter chooses none of the leaves {sorted(here)}.")
            for i, path in enumerate(paths):
                if not set(self.copies.get(path, ())) & set(paths[:i]):
                    yield path, here[path], None
            return
        if isinstance(chosen, str):
            chosen = [chosen]
        if not isinstance(chosen, Mapping):
            chosen = dict.fromkeys(chosen)
        for path, choice in chosen.items():
            yield path, leaf(self.system, path), choice

    def _copied(self, path: str) -> list[str]:
        """The numbers at and below a path that have copies."""
        return [own for own in self.copies if own == path or is_below(path, own)]

    def _check_distinct(self, paths: Mapping[str, Any]) -> None:
        for path in paths:
            for other in paths:
                if is_below(path, other):
                    raise ValueError(f"`{other}` is a part of `{path}`: give one of them.")
                mutual = other in self.copies.get(path, ()) and path in self.copies.get(other, ())
                if mutual:
                    raise ValueError(
                        f"`{path}` and `{other}` are one number, which the mechanism holds twice: "
                        "give one of them, the other goes with it."
                    )


def as_parameter(own: Any, choice: Any) -> Parameter:
    if choice is None:
        return Parameter(own)
    if isinstance(choice, AbstractTransform):
        return Parameter(own, choice)
    return choice if isinstance(choice, Parameter) else Parameter(choice)


def _overlap(path: str, other: str) -> bool:
    return path == other or is_below(path, other) or is_below(other, path)

"""The leaves of a system by their paths, such as `stiffness` or `bodies[arm].inertia.mass`."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._concrete import set_at
from .._inputs import checked
from .._system import AbstractSystem
from ..mechanism import Mechanism

_KINDS = {
    "bodies": lambda m: (m.body_stack,),
    "joints": lambda m: m.joint_stacks,
    "forces": lambda m: m.force_stacks,
    "contacts": lambda m: m.contact_stacks,
}


@checked
def leaves(system: AbstractSystem) -> dict[str, Any]:
    """Path -> value of all floating-point leaves of a system, with the paths of `Leaves`."""
    if not isinstance(system, Mechanism):
        return leaves_below("", system)
    found = {}
    for kind in _KINDS:
        for element in getattr(system, kind):
            found |= leaves_below(f"{kind}[{element.name}]", element)
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

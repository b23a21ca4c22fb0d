"""What is to be found: parameters by name, and the system that they make."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._system import AbstractSystem
from .transforms import AbstractTransform, Free


class Parameter(eqx.Module):
    """One unknown: where the search starts, which values it may take, what is known before.

    **Fields:**

    - `guess`: a number, an array, or whatever its transform takes.
    - `transform`: default `Free()`, any value.
    - `sigma`: standard deviation of a normal prior around the guess, in the units of the value and
      shaped like it; `None` for none.
    """

    guess: PyTree
    transform: AbstractTransform = Free()
    sigma: Any = None


class Parameters(eqx.Module):
    """Named unknowns as one vector z of free numbers, zero at the guesses."""

    # Not a dictionary, which as a pytree would come back in another order.
    keys: tuple[str, ...] = eqx.field(static=True)
    members: tuple[Parameter, ...]

    def __init__(self, members: Mapping[str, Any]):
        """**Raises:** `ValueError` for guesses that their transforms do not reach."""
        self.keys = tuple(members)
        self.members = tuple(_parameter(name, member) for name, member in members.items())

    def items(self) -> Iterable[tuple[str, Parameter]]:
        """Names and parameters."""
        return zip(self.keys, self.members, strict=True)

    @property
    def size(self) -> int:
        """The number of free numbers."""
        return sum(self._sizes())

    def values(self, z: Float[Array, " n"]) -> dict[str, PyTree]:
        """The values at z, by name."""
        ends = np.cumsum([0, *self._sizes()])
        return {
            name: member.transform.value(member.guess, z[begin:end])
            for (name, member), begin, end in zip(self.items(), ends[:-1], ends[1:], strict=True)
        }

    def entries(self, z: Float[Array, " n"]) -> Float[Array, " entries"]:
        """All numbers of the values, in the order of `names`."""
        values = self.values(z)
        return jnp.concatenate(
            [jnp.ravel(leaf) for name in self.keys for leaf in jax.tree.leaves(values[name])]
        )

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The least and the largest free numbers, `(n,)` each."""
        found = [member.transform.bounds(member.guess) for _, member in self.items()]
        lower, upper = ([each[i] for each in found] for i in (0, 1))
        return np.concatenate([np.zeros(0), *lower]), np.concatenate([np.zeros(0), *upper])

    @property
    def names(self) -> tuple[str, ...]:
        """Of each number of the values: `mass`, `point[0]`, `inertia.tensor[1, 2]`."""
        return tuple(
            name + jax.tree_util.keystr(path) + _index(i)
            for name, member in self.items()
            for path, leaf in jax.tree_util.tree_leaves_with_path(member.guess)
            for i in np.ndindex(jnp.shape(leaf))
        )

    @property
    def free_names(self) -> tuple[str, ...]:
        """Of each free number: those of the entries where there is one for each, else numbered."""
        found = []
        for name, member in self.items():
            size = member.transform.size(member.guess)
            shape = jnp.shape(member.guess) if eqx.is_array_like(member.guess) else None
            if shape is not None and size == int(np.prod(shape)):
                found += [name + _index(i) for i in np.ndindex(shape)]
            else:
                found += [f"{name}~{i}" for i in range(size)]
        return tuple(found)

    def prior(self, z: Float[Array, " n"]) -> Float[Array, " rows"]:
        """(value - guess) / sigma of all that have a prior."""
        values = self.values(z)
        rows = [jnp.zeros(0, z.dtype)]
        for name, member in self.items():
            if member.sigma is None:
                continue
            leaves = zip(jax.tree.leaves(values[name]), jax.tree.leaves(member.guess), strict=True)
            off = jnp.concatenate([jnp.ravel(x - guess.astype(x.dtype)) for x, guess in leaves])
            sigmas = [jnp.ravel(jnp.asarray(s, z.dtype)) for s in jax.tree.leaves(member.sigma)]
            rows.append(off / jnp.broadcast_to(jnp.concatenate(sigmas), off.shape))
        return jnp.concatenate(rows)

    def _sizes(self) -> list[int]:
        return [member.transform.size(member.guess) for member in self.members]


def _parameter(name: str, member: Any) -> Parameter:
    if isinstance(member, AbstractTransform):
        raise ValueError(f"`{name}` has no guess: give `Parameter(guess, {member!r})`.")
    if not isinstance(member, Parameter):
        member = Parameter(member)
    member.transform.check(name, member.guess)
    guess = jax.tree.map(lambda x: jnp.asarray(x, float), member.guess)
    return Parameter(guess, member.transform, member.sigma)


def _index(i: tuple[int, ...]) -> str:
    return str(list(i)) if i else ""


class Leaves(eqx.Module):
    """A system of which some leaves, named by their paths, are replaced by values:

        model = Leaves(system)
        model({"stiffness": 100.0, "arms[1].length": 0.4})    # the system with these

    Paths are attributes, indices in brackets and keys. In a `Mechanism`, elements go by kind and
    name, as in `bodies[upper arm].inertia.mass`, `joints[elbow].frame_a.position`, or
    `forces[damper].viscous`.

    **Raises:** `ValueError` for a path that leads to no floating-point number, with those that do.
    """

    system: AbstractSystem

    def __call__(self, values: Mapping[str, PyTree]) -> AbstractSystem:
        system = self.system
        for path, value in values.items():
            system = replaced(system, path, value)
        return system

    def parameters(self, chosen: Any) -> dict[str, Parameter]:
        """The parameters of a choice, with the values in the system as guesses where the choice
        has none.

        **Arguments:** `chosen`: paths; or path -> `Parameter`, transform or guess; or a filter
        `(path, leaf) -> bool` over all leaves.
        """
        if callable(chosen):
            here = leaves(self.system)
            found = {path: Parameter(x) for path, x in here.items() if chosen(path, x)}
            if not found:
                raise ValueError(f"The filter chooses none of the leaves {sorted(here)}.")
            return found
        if isinstance(chosen, str):
            chosen = [chosen]
        if not isinstance(chosen, Mapping):
            return {path: Parameter(leaf(self.system, path)) for path in chosen}
        found = {}
        for path, choice in chosen.items():
            own = leaf(self.system, path)
            if isinstance(choice, AbstractTransform):
                choice = Parameter(own, choice)
            found[path] = choice if isinstance(choice, Parameter) else Parameter(choice)
        return found


# --- paths ----------------------------------------------------------------------------------------

_KINDS = {
    "bodies": lambda m: (m.body_stack,),
    "joints": lambda m: m.joint_stacks,
    "forces": lambda m: m.force_stacks,
    "contacts": lambda m: m.contact_stacks,
}


def leaves(system: AbstractSystem) -> dict[str, Any]:
    """Path -> value of all floating-point leaves of a system, as `Leaves` takes them."""
    from ..mechanism import Mechanism

    if not isinstance(system, Mechanism):
        return _leaves_of(system, "")
    found = {}
    for kind in _KINDS:
        for element in getattr(system, kind):
            found |= _leaves_of(element, f"{kind}[{element.name}].")
    found["gravity"] = system.gravity
    return found


def leaf(system: AbstractSystem, path: str) -> Any:
    """The value at a path. **Raises:** `ValueError` if there is none."""
    known = leaves(system)
    if path in known:
        return known[path]
    # A whole node, such as the inertia of a body.
    below = [p for p in known if p.startswith((path + ".", path + "["))]
    if not below:
        raise ValueError(
            f"There is no parameter `{path}` in {type(system).__name__}, whose parameters are "
            f"{sorted(known)}."
        )
    return _walk(system, path)


def replaced(system: AbstractSystem, path: str, value: PyTree) -> AbstractSystem:
    """The system with another value at a path. **Raises:** `ValueError` if there is none."""
    from ..mechanism import Mechanism

    old = leaf(system, path)
    shapes = [jnp.shape(x) for x in jax.tree.leaves(old)]
    given = [jnp.shape(x) for x in jax.tree.leaves(value)]
    if shapes != given:
        raise ValueError(f"`{path}` has the shape {shapes}, but its new value has {given}.")
    if isinstance(system, Mechanism) and path.partition("[")[0] in _KINDS:
        return _with_element(system, path, value)
    return eqx.tree_at(lambda s: _walk(s, path), system, value)


def _leaves_of(tree: PyTree, head: str) -> dict[str, Any]:
    found = {}
    for path, x in jax.tree_util.tree_leaves_with_path(tree):
        if isinstance(x, float) or eqx.is_inexact_array(x):
            found[head + _spelled(path)] = x
    return found


def _spelled(path) -> str:
    text = ""
    for key in path:
        if isinstance(key, jax.tree_util.GetAttrKey):
            text += f".{key.name}"
        elif isinstance(key, jax.tree_util.SequenceKey):
            text += f"[{key.idx}]"
        else:
            text += f"[{getattr(key, 'key', key)}]"
    return text.removeprefix(".")


def _walk(tree: Any, path: str) -> Any:
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


def _steps(path: str) -> list[str]:
    """`a.b[c].d` as a, b, [c], d."""
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
    """Elements of one kind are kept as a structure of arrays, the element last."""
    kind, name, *below = _steps(path)
    stacks: Callable[..., Any] = _KINDS[kind]
    number, i = next(
        (number, stack.names.index(name[1:-1]))
        for number, stack in enumerate(stacks(mechanism))
        if name[1:-1] in stack.names
    )
    stack = stacks(mechanism)[number]
    # An element whose leaves are their own places in the structure.
    element = jax.tree.unflatten(stack.structures[i], range(len(stack.leaves)))
    for step in below:
        element = element[int(step[1:-1])] if step.startswith("[") else getattr(element, step)
    table = list(stack.leaves)
    for place, x in zip(jax.tree.leaves(element), jax.tree.leaves(value), strict=True):
        table[place] = table[place].at[..., i].set(jnp.asarray(x, table[place].dtype))
    return eqx.tree_at(lambda m: stacks(m)[number].leaves, mechanism, table)

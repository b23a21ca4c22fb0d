"""The unknown parameters by name."""

from collections.abc import Iterable, Mapping
from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._compiler import to_jax
from .._inputs import checked, each_number, positive_or_infinite
from .._types import Scalar
from .transforms import AbstractTransform, Free, is_entrywise


@checked
class Parameter(eqx.Module):
    """An unknown: its guess, the values that it may take, and its prior.

    **Fields:**

    - `guess`: a number, an array, or another value that its transform accepts.
    - `transform`: default `Free()`, which allows any value.
    - `sigma`: the standard deviation of a normal prior around the guess, in the units and shape of
      the value; `None` for no prior.
    """

    guess: PyTree
    transform: AbstractTransform = Free()
    sigma: Annotated[PyTree, each_number(positive_or_infinite)] = None


class Parameters(eqx.Module):
    """Named unknowns as one vector z of free numbers, which is zero at the guesses."""

    # Not a dictionary, because JAX sorts the keys of dictionaries.
    keys: tuple[str, ...] = eqx.field(static=True)
    members: tuple[Parameter, ...]

    def __init__(self, members: Mapping[str, PyTree]):
        """**Raises:** `ValueError` for guesses that their transforms cannot represent."""
        self.keys = tuple(members)
        self.members = tuple(_parameter(name, member) for name, member in members.items())

    def items(self) -> Iterable[tuple[str, Parameter]]:
        """The names and parameters."""
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

    def interval(
        self, z: Float[Array, " n"], half: Float[Array, " entries"]
    ) -> tuple[Float[Array, " entries"], Float[Array, " entries"]]:
        """The ends of confidence intervals of the entries, which stay where the transforms do."""
        ends, entry, found = np.cumsum([0, *self._sizes()]), 0, [(jnp.zeros(0, z.dtype),) * 2]
        for (_, member), begin, end in zip(self.items(), ends[:-1], ends[1:], strict=True):
            count = sum(int(np.size(leaf)) for leaf in jax.tree.leaves(member.guess))
            own = half[entry : entry + count]
            found.append(member.transform.interval(member.guess, z[begin:end], own))
            entry += count
        low, high = (jnp.concatenate(part) for part in zip(*found, strict=True))
        return low, high

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The lower and upper bounds of the free numbers, `(n,)` each."""
        found = [member.transform.bounds(member.guess) for _, member in self.items()]
        lower, upper = ([each[i] for each in found] for i in (0, 1))
        return np.concatenate([np.zeros(0), *lower]), np.concatenate([np.zeros(0), *upper])

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each number of the values: `mass`, `point[0]`, `inertia.tensor[1, 2]`."""
        return tuple(
            name + jax.tree_util.keystr(path) + _index(i)
            for name, member in self.items()
            for path, leaf in jax.tree_util.tree_leaves_with_path(member.guess)
            for i in np.ndindex(jnp.shape(leaf))
        )

    @property
    def free_names(self) -> tuple[str, ...]:
        """The name of each free number: its entry's if there is one, or else numbered."""
        found = []
        for name, member in self.items():
            size = member.transform.size(member.guess)
            shape = jnp.shape(member.guess) if eqx.is_array_like(member.guess) else None
            if shape is not None and size == int(np.prod(shape)):
                found += [name + _index(i) for i in np.ndindex(shape)]
            else:
                found += [f"{name}~{i}" for i in range(size)]
        return tuple(found)

    def slopes(self, z: Float[Array, " n"]) -> Float[Array, " n"]:
        """The change of each value by its own free number, for entrywise transforms; 1 for others.
        Where a value stays at a bound, it is that at the guess."""

        def rates(z):
            one = jnp.ones_like(z)
            found = jax.jvp(self.values, (z,), (one,))[1]
            parts = [jnp.zeros(0, z.dtype)]
            for (name, member), size in zip(self.items(), self._sizes(), strict=True):
                if is_entrywise(member.transform):
                    parts.append(jnp.ravel(found[name]))
                else:
                    parts.append(jnp.ones(size, z.dtype))
            return jnp.concatenate(parts)

        here = rates(z)
        return jnp.where(here == 0, rates(jnp.zeros_like(z)), here)

    def log_volume(self, z: Float[Array, " n"]) -> Scalar:
        """The sum of `log_volume` of all transforms, at z."""
        ends, found = np.cumsum([0, *self._sizes()]), jnp.zeros((), z.dtype)
        for (_, member), begin, end in zip(self.items(), ends[:-1], ends[1:], strict=True):
            found += member.transform.log_volume(member.guess, z[begin:end])
        return found

    def prior(self, z: Float[Array, " n"]) -> Float[Array, " rows"]:
        """(value - guess) / sigma of all parameters that have a prior."""
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


def _parameter(name: str, member: PyTree) -> Parameter:
    if isinstance(member, AbstractTransform):
        raise ValueError(f"`{name}` has no guess: give `Parameter(guess, {member!r})`.")
    if not isinstance(member, Parameter):
        member = Parameter(member)
    member.transform.check(name, member.guess)
    guess = jax.tree.map(lambda x: to_jax(x, float), member.guess)
    return Parameter(guess, member.transform, member.sigma)


def _index(i: tuple[int, ...]) -> str:
    return str(list(i)) if i else ""

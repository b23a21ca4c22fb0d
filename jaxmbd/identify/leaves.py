"""A system as a function of some of its leaves."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
from jaxtyping import PyTree

from .._inputs import checked
from .._system import AbstractSystem
from .parameters import Parameter
from .partners import changed, check_alone, copies
from .paths import is_below, leaf, leaves, walk
from .transforms import AbstractTransform


class Leaves(eqx.Module):
    """A system of which some leaves, named by their paths, are replaced by values:

        model = Leaves(system)
        model({"stiffness": 100.0, "arms[1].length": 0.4})    # the system with these

    Paths are attributes, indices in brackets and keys. In a `Mechanism`, elements go by kind and
    name, as in `bodies[upper arm].inertia.mass`, `joints[elbow].frame_a.position`, or
    `forces[damper].viscous`.

    What belongs to a number goes with it:

    - With the `mass` of an `Inertia` its tensor grows in proportion, as that of a body of fixed
      shape does. A tensor that is given too is taken as it is.
    - A mechanism may hold a number several times: a joint's frames also in its friction, motor,
      drive, limits and couplings, and the shape of a body in each of its contacts. All of them
      change with the one that is named.
    - A `Drag` at the centre of mass stays there.

    Nothing else is tied: to whom a radius or the distance of two anchors is a matter of the mass
    distribution as well, a function `values -> system` says so.

    **Raises:** `ValueError` for a path that leads to no floating-point number, with those that do,
    and for two paths to one number.
    """

    system: AbstractSystem
    # As pairs, since what is static must be hashable.
    pairs: tuple[tuple[str, tuple[str, ...]], ...] = eqx.field(static=True)

    @checked
    def __init__(self, system: AbstractSystem):
        self.system = system
        self.pairs = tuple(copies(system).items())

    @property
    def copies(self) -> dict[str, tuple[str, ...]]:
        """Path -> other paths to copies of the number there."""
        return dict(self.pairs)

    def __call__(self, values: Mapping[str, PyTree]) -> AbstractSystem:
        self._check_distinct(values)
        system = self.system
        # In this order a mass comes before a tensor.
        for path in sorted(values):
            system = changed(system, path, values[path])
        for path in values:
            for own in self._copied(path):
                for other in self.copies[own]:
                    if not any(_overlap(other, given) for given in values):
                        system = changed(system, other, walk(system, own))
        return system

    def parameters(self, chosen: Any) -> dict[str, Parameter]:
        """The parameters of a choice, with the values in the system as guesses where the choice
        has none.

        **Arguments:** `chosen`: paths; or path -> `Parameter`, transform or guess; or a filter
        `(path, leaf) -> bool` over all leaves, which of several copies takes the first.

        **Raises:** `ValueError` as above, and for numbers that cannot be found one by one, such as
        the entries of an inertia tensor.
        """
        found = {path: _parameter(*choice) for path, *choice in self._choices(chosen)}
        self._check_distinct(found)
        for path, parameter in found.items():
            check_alone(self.system, path, parameter.guess, parameter.transform)
        return found

    def _choices(self, chosen: Any):
        """(path, own value, what is chosen)."""
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
        """The numbers at and below a path of which there are copies."""
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


def _parameter(own: Any, choice: Any) -> Parameter:
    if choice is None:
        return Parameter(own)
    if isinstance(choice, AbstractTransform):
        return Parameter(own, choice)
    return choice if isinstance(choice, Parameter) else Parameter(choice)


def _overlap(path: str, other: str) -> bool:
    return path == other or is_below(path, other) or is_below(other, path)

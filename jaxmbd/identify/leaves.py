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
    """A model that replaces some leaves of a system, named by their paths:

        model = Leaves(system)
        model({"stiffness": 100.0, "arms[1].length": 0.4})    # the system with these values

    Paths consist of attributes, and indices and keys in brackets. In a `Mechanism`, elements have
    their kind and name in the path, as in `bodies[upper arm].inertia.mass`,
    `joints[elbow].frame_a.position`, or `forces[damper].viscous`.

    Some numbers change together:

    - The tensor of an `Inertia` is proportional to its `mass`, as for a body of fixed shape. If the
      tensor is given too, it is used as it is.
    - A mechanism may hold a number several times. The frames of a joint are also in its friction,
      motor, drive, limits and couplings. The shape of a body is in each of its contacts. All of
      them change with the one that is named.
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
        found = {path: _parameter(*choice) for path, *choice in self._choices(chosen)}
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


def _parameter(own: Any, choice: Any) -> Parameter:
    if choice is None:
        return Parameter(own)
    if isinstance(choice, AbstractTransform):
        return Parameter(own, choice)
    return choice if isinstance(choice, Parameter) else Parameter(choice)


def _overlap(path: str, other: str) -> bool:
    return path == other or is_below(path, other) or is_below(other, path)

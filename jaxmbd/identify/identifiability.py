"""The combinations of parameters that the measurements determine, and those that they do not."""

from typing import NamedTuple

import numpy as np

from .._printed import printed
from .._search import nonzero, simulation_error

# Coefficients below this share of the largest one are not printed.
_SHOWN = 0.1


@printed
class Combination(NamedTuple):
    """A direction in the free numbers of the parameters, of length 1.

    **Fields:** `singular_value` of the sensitivity along it; `sigma`, its standard deviation, where
    1 is a typical change (for `Positive`, a factor e); `direction`, name -> coefficient;
    `determined`, whether `sigma` is below 1.
    """

    singular_value: float
    sigma: float
    direction: dict[str, float]
    determined: bool

    def __str__(self) -> str:
        largest = max(abs(x) for x in self.direction.values())
        shown = sorted(self.direction.items(), key=lambda item: -abs(item[1]))
        text = "  ".join(f"{x:+.2f} {name}" for name, x in shown if abs(x) > _SHOWN * largest)
        known = f"+- {self.sigma:.2g}" if self.determined else "not determined"
        return f"{text}: {known}"


@printed
class Identifiability(NamedTuple):
    """The singular values and vectors of the sensitivity matrix, without the effects that changes
    of the starts can also have; `print` it.

    **Fields:** `combinations`, from the best known to the least known one.

    Reference: Walter and Pronzato (1997), Identification of Parametric Models from Experimental
    Data, Springer, section 5.
    """

    combinations: tuple[Combination, ...]

    @property
    def undetermined(self) -> tuple[Combination, ...]:
        """The combinations that could change by 1 or more without a visible effect."""
        return tuple(c for c in self.combinations if not c.determined)

    @property
    def condition(self) -> float:
        """The largest singular value divided by the smallest."""
        values = [c.singular_value for c in self.combinations]
        return values[0] / values[-1] if values[-1] > 0 else np.inf

    def __str__(self) -> str:
        head = f"condition number {self.condition:.2g}; combinations from best to least known:"
        return "\n".join([head, *(f"  {c}" for c in self.combinations)])


def identifiability(J: np.ndarray, s: float, names: tuple[str, ...]) -> Identifiability:
    """The combinations for a sensitivity `(rows, p)` of residuals with standard deviation s."""
    _, values, rows = np.linalg.svd(J, full_matrices=False)
    found = []
    known = nonzero(values, simulation_error(J.dtype))
    for value, direction, told in zip(values, rows, known, strict=True):
        sigma = float(s / value) if told else np.inf
        lead = direction[np.argmax(np.abs(direction))]
        by_name = dict(zip(names, (np.sign(lead) * direction).tolist(), strict=True))
        found.append(Combination(float(value), sigma, by_name, sigma < 1))
    return Identifiability(tuple(found))

"""The places of the unknowns of a transcribed problem in one long vector."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float

from ..._types import Coordinates, Rows, Velocity


class Knot(NamedTuple):
    """The unknowns at one grid point. The control `u` has size 0 if the intervals have it."""

    q: Coordinates
    v: Velocity
    u: Float[Array, " nu"]
    lam: Rows


class Variables(NamedTuple):
    """The layout x = (duration, knots 0 ... steps, unknowns of intervals 0 ... steps - 1).

    - `knot`: the sizes of the parts of a `Knot`. `interval`: the sizes of the parts of an interval.
    """

    steps: int
    knot: tuple[int, int, int, int]
    interval: tuple[int, ...]

    @property
    def size(self) -> int:
        return 1 + (self.steps + 1) * sum(self.knot) + self.steps * sum(self.interval)

    def knots(self) -> np.ndarray:
        """Indices of the unknowns of each grid point, shape `(steps + 1, nz)`."""
        size = sum(self.knot)
        return 1 + np.arange((self.steps + 1) * size).reshape(self.steps + 1, size)

    def intervals(self) -> np.ndarray:
        """Indices of the unknowns of each interval, shape `(steps, nw)`."""
        size, first = sum(self.interval), 1 + (self.steps + 1) * sum(self.knot)
        return first + np.arange(self.steps * size).reshape(self.steps, size)

    def with_duration(self, index: np.ndarray) -> np.ndarray:
        """Prepend the index of the duration to each row of `index`."""
        return np.concatenate([np.zeros((len(index), 1), int), index], axis=1)

    def around_intervals(self) -> np.ndarray:
        """Indices of the duration, both ends and own unknowns of each interval."""
        knots = self.knots()
        return self.with_duration(np.concatenate([knots[:-1], knots[1:], self.intervals()], axis=1))

    def split_knot(self, z) -> Knot:
        return Knot(*split(z, self.knot))

    def split_interval(self, w) -> tuple:
        return split(w, self.interval)


def split(x, sizes) -> tuple:
    """Split the last axis into consecutive parts."""
    ends = np.cumsum(sizes)
    return tuple(x[..., end - size : end] for end, size in zip(ends, sizes, strict=True))

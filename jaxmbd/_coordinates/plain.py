from typing import Annotated

import equinox as eqx
from jaxtyping import Array, Float

from .._inputs import at_least, checked
from .._results import RESULTS
from .base import AbstractCoordinates


@checked
class Plain(AbstractCoordinates):
    """Coordinates whose rates are the velocities: q' = v, nq = nv = n.

    For positions (m), joint angles (rad) and all other coordinates that add like vectors.
    `Plain(3)` also serves for roll-pitch-yaw angles with their rates as velocities.

    **Arguments:**

    - `n`: number of coordinates; `None` for as many as q has.
    """

    n: Annotated[int | None, at_least(0)] = eqx.field(static=True, default=None)

    @property
    def nq(self) -> int | None:
        return self.n

    @property
    def nv(self) -> int | None:
        return self.n

    def qdot(self, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, " n"]:
        del q
        return v

    def retract(self, q: Float[Array, " n"], dp: Float[Array, " n"]) -> Float[Array, " n"]:
        return q + dp

    def difference(self, q0: Float[Array, " n"], q1: Float[Array, " n"]) -> Float[Array, " n"]:
        return q1 - q0

    def normalise(self, q: Float[Array, " n"]) -> Float[Array, " n"]:
        return q

    def result(self, q: Float[Array, " n"]) -> RESULTS:
        del q
        return RESULTS.successful

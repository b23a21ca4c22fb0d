"""What a filter believes, and what a reading tells it."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._compiler import array_namespace
from .._printed import in_a_line, judged, printed
from .._results import RESULTS
from .._system import State
from .chart import Bases, Chart, Point


@printed
class Belief(State):
    """The mean of the state and of the unknown parameters, and their covariance. It is a `State`
    and can be used as one. `start` of a filter makes the first one.

    **Fields:**

    - `t`, `q`, `v`, `z`, `angles`: the mean as a `State`, which satisfies the constraints.
    - `free`: the free numbers of the parameters, shape `(p,)`, 0 at the guesses; `parameters` of
      the filter gives the values.
    - `P`: the covariance of the n independent deviations from the mean, `(n, n)`: along the
      admissible directions of positions, then of velocities, then of the internal states, then of
      the free numbers. `covariance` of the filter gives that of all coordinates.
    - `bases`: the admissible directions.
    - `result`: the first failure, a member of `RESULTS`. After a failure only t advances; all other
      fields stay at the last good belief.
    """

    t: Float[Array, " *batch"]
    free: Float[Array, " *batch p"] = eqx.field(default_factory=lambda: jnp.zeros(0))
    P: Float[Array, " *batch n n"] = eqx.field(default_factory=lambda: jnp.zeros((0, 0)))
    bases: Bases = Bases(None)
    result: RESULTS = eqx.field(default_factory=lambda: RESULTS.successful)

    def __str__(self) -> str:
        rows = [f"belief at {in_a_line(self.t)} s: {judged(self.result, 'successful', 'failed')}"]
        size = self.P.shape[-1]
        rows += [f"q = {in_a_line(self.q)}", f"v = {in_a_line(self.v)}"]
        if self.free.shape[-1]:
            rows.append(f"free numbers of the parameters = {in_a_line(self.free)}")
        return "\n".join([*rows, f"covariance of {size} independent deviations"])

    def replace(self, point: Point, **fields: Any) -> "Belief":
        """The same belief with this mean and new values of other fields."""
        new = object.__new__(type(self))
        mean = dict(q=point.q, v=point.v, z=point.z, free=point.theta)
        vars(new).update({**vars(self), **mean, **fields})
        return new

    @property
    def point(self) -> Point:
        """The mean without its time."""
        return Point(self.q, self.v, self.z, self.free)

    @property
    def chart(self) -> Chart:
        """The deviations from the mean."""
        return Chart(self.point, self.bases)


@printed
class Innovation(eqx.Module):
    """What a reading told beyond what was expected, with m numbers of the sensors.

    **Fields:**

    - `value`: the reading minus what was expected of it, shape `(m,)`; 0 where nothing was read.
    - `covariance`: what was expected of `value`, `(m, m)`. Entries that were not read have the
      variance 1 and no correlation.
    - `present`: which numbers were read and used, `(m,)`.
    - `nis`: the normalised square, value^T covariance^-1 value. If the filter is right, it has a
      chi-square distribution with as many degrees of freedom as numbers are present.
    - `log_likelihood`: the logarithm of the probability density of the reading.
    - `accepted`: whether the reading passed the `gate` of the filter, and changed the belief.
    - `result`: `RESULTS.successful`, or `RESULTS.nonfinite_reading` if a number that should be
      present is NaN or infinite. It is then left out, and the others are used.
    """

    value: Float[Array, " *batch m"]
    covariance: Float[Array, " *batch m m"]
    present: Bool[Array, " *batch m"]
    nis: Float[Array, " *batch"]
    log_likelihood: Float[Array, " *batch"]
    accepted: Bool[Array, " *batch"]
    result: RESULTS

    def __str__(self) -> str:
        count = np.sum(np.asarray(self.present), axis=-1)
        rows = [
            f"innovation of {in_a_line(count)} numbers: {in_a_line(self.value)}",
            f"normalised square {in_a_line(self.nis)}",
            judged(self.result, "successful", "failed"),
        ]
        if not np.all(np.asarray(self.accepted)):
            rows.insert(2, "not accepted by the gate")
        return "\n".join(rows)

    @property
    def normalised(self) -> Float[Array, " *batch m"]:
        """Each number divided by its standard deviation."""
        xp = array_namespace(self.covariance)
        variance = xp.diagonal(xp.asarray(self.covariance), axis1=-2, axis2=-1)
        return xp.asarray(self.value) / xp.sqrt(variance)

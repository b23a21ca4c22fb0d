"""Filters and smoothers over a record."""

from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from jaxtyping import Array, Float

from .._inputs import checked, inside
from .._printed import counted, judged, printed, span
from .._results import RESULTS, first_failure
from .._system import AbstractStates
from .belief import Belief, Innovation
from .steps import entries, first_of


@printed
class NisTest(eqx.Module):
    """Whether innovations are as large as a filter expects.

    **Fields:** `mean`: the sum of all normalised squares divided by `count`, the count of numbers
    that were read, which a right filter expects to be 1. `bounds`: between which it lies with the
    probability `level`.
    """

    mean: float
    bounds: tuple[float, float]
    count: int
    level: float

    @property
    def passed(self) -> bool:
        """Whether the mean is within the bounds."""
        return self.bounds[0] <= self.mean <= self.bounds[1]

    def __str__(self) -> str:
        low, high = self.bounds
        where = "within" if self.passed else "NOT within"
        return (
            f"mean normalised square of {counted(self.count, 'reading')}: {self.mean:.4g}, {where} "
            f"{low:.4g} ... {high:.4g} ({100 * self.level:g} %)"
        )


@printed
class FilterRun(AbstractStates):
    """The result of `run` of a filter. All fields have a leading axis for the n samples.

    **Fields:**

    - `t`, `q`, `v`: the means after each sample. `beliefs`: the whole beliefs there.
    - `predicted`: the beliefs before each sample. The first is the start.
    - `innovations`: what each sample told, an `Innovation`.
    - `slopes`: the linear maps of deviations from each sample to before the next one, `(n, d, d)`.
    - `names`, `entries`, `sigma`: all numbers of the unknown parameters, with their standard
      deviations, `(n, e)`.
    - `log_likelihood`: of all readings.
    - `result`: the first failure.
    """

    t: Float[Array, " *batch n"]
    q: Float[Array, " *batch n nq"]
    v: Float[Array, " *batch n nv"]
    beliefs: Belief
    predicted: Belief
    innovations: Innovation
    slopes: Float[Array, " *batch n d d"]
    names: tuple[str, ...] = eqx.field(static=True)
    entries: Float[Array, " *batch n e"]
    sigma: Float[Array, " *batch n e"]
    log_likelihood: Float[Array, " *batch"]
    result: RESULTS

    @property
    def last(self) -> Belief:
        """The belief after the last sample, of one run."""
        return jax.tree.map(lambda x: x[-1], self.beliefs)

    @checked
    def test(self, level: Annotated[float, inside(0, 1)] = 0.95) -> NisTest:
        """The normalised squares of all innovations against their chi-square distribution."""
        count = int(np.sum(np.asarray(self.innovations.present)))
        total = float(np.sum(np.asarray(self.innovations.nis)))
        tails = (1 - level) / 2, (1 + level) / 2
        low, high = (float(x) for x in scipy.stats.chi2.ppf(tails, max(count, 1)))
        count_or_one = max(count, 1)
        bounds = low / count_or_one, high / count_or_one
        return NisTest(total / count_or_one, bounds, count, level)

    def __str__(self) -> str:
        rows = [
            f"filter over {counted(self.t.shape[-1], 'sample')}, {span(self.t, 's')}",
            judged(self.result, "successful", "failed"),
        ]
        if self.t.ndim == 1:
            rows += [str(self.test()), *_parameters(self)]
        return "\n".join(rows)


@printed
class SmoothedRun(AbstractStates):
    """The result of `smooth` of a filter: means and covariances at all samples, given the readings
    of the whole record. The fields are those of `FilterRun`."""

    t: Float[Array, " *batch n"]
    q: Float[Array, " *batch n nq"]
    v: Float[Array, " *batch n nv"]
    beliefs: Belief
    names: tuple[str, ...] = eqx.field(static=True)
    entries: Float[Array, " *batch n e"]
    sigma: Float[Array, " *batch n e"]
    result: RESULTS

    def __str__(self) -> str:
        rows = [
            f"smoothed over {counted(self.t.shape[-1], 'sample')}, {span(self.t, 's')}",
            judged(self.result, "successful", "failed"),
        ]
        return "\n".join([*rows, *(_parameters(self) if self.t.ndim == 1 else [])])


def filter_run(
    filter: Any, before: Belief, beliefs: Belief, innovations: Innovation, slopes: Array
) -> FilterRun:
    """The result of a filter, with the parameters over time and the verdict."""
    values, sigma = entries(filter, beliefs)
    verdicts = jax.vmap(first_failure)(beliefs.result, innovations.result)
    names, log = filter.unknowns.names, jnp.sum(innovations.log_likelihood)
    rows = beliefs.t, beliefs.q, beliefs.v, beliefs, before, innovations, slopes
    return FilterRun(*rows, names, values, sigma, log, first_of(verdicts))


def smoothed_run(filter: Any, beliefs: Belief, result: RESULTS) -> SmoothedRun:
    """The result of a smoother."""
    names, (values, sigma) = filter.unknowns.names, entries(filter, beliefs)
    return SmoothedRun(beliefs.t, beliefs.q, beliefs.v, beliefs, names, values, sigma, result)


def _parameters(run: Any) -> list[str]:
    last, sigma = np.asarray(run.entries)[-1], np.asarray(run.sigma)[-1]
    rows = zip(run.names, last, sigma, strict=True)
    return [f"  {name} = {x:.6g} +- {s:.2g} at the end" for name, x, s in rows]

"""Simulations to compare with measurements."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import diffrax
import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._inputs import checked, positive
from .._methods import AbstractEnforcement, UdwadiaKalaba
from .._printed import counted, printed
from .._progress import says_when_compiling
from .._results import RESULTS, code, succeeded, verdict
from .._system import AbstractSystem
from .problem import FitProblem, SimulationOptions, make_problem
from .record import Record
from .residuals import PartMotion
from .sensors import SensorsGiven


@printed
class Prediction(NamedTuple):
    """The measurements of records and the corresponding results of simulations.

    **Fields:** `records`; `readings`, an array `(n, m)` for each record; `results`, a verdict for
    each simulation; `labels` of the columns.
    """

    records: tuple[Record, ...]
    readings: tuple[np.ndarray, ...]
    results: tuple[RESULTS, ...]
    labels: tuple[str, ...]

    def __str__(self) -> str:
        failed = sum(not succeeded(result) for result in self.results)
        rows = [
            f"{counted(len(self.records), 'record')}: "
            + ("all simulations successful" if not failed else f"{failed} simulations failed")
        ]
        return "\n".join([*rows, *(f"  {x}: rms {rms:.4g}" for x, rms in self.rms.items())])

    @property
    def errors(self) -> tuple[np.ndarray, ...]:
        """Computed minus measured; NaN where nothing was measured."""
        return tuple(
            np.where(record.weights > 0, readings - record.measured, np.nan)
            for record, readings in zip(self.records, self.readings, strict=True)
        )

    @property
    def rms(self) -> dict[str, float]:
        """Root mean square error of each column, in its own unit, over all records; NaN for columns
        of which nothing was measured."""
        rows = np.concatenate(self.errors)
        there = ~np.isnan(rows)
        squares, count = np.sum(np.where(there, rows, 0.0) ** 2, axis=0), there.sum(axis=0)
        with np.errstate(invalid="ignore"):
            found = np.sqrt(squares / count)
        return dict(zip(self.labels, found.tolist(), strict=True))

    @property
    def successful(self) -> bool:
        """Whether all simulations reached their end."""
        return all(map(succeeded, self.results))


@checked
@says_when_compiling("predict")
def predict(
    system: AbstractSystem,
    records: Record | Sequence[Record],
    sensors: SensorsGiven,
    *,
    dt: Annotated[float, positive],
    enforcement: AbstractEnforcement | None = None,
    scheme: diffrax.AbstractSolver | None = None,
    progress: bool = True,
) -> Prediction:
    """Simulate the readings of sensors for records, each from its own start. Use it for validation,
    also of other models.

    **Arguments:** as for `fit`. `progress`: whether to show a line while JAX compiles.

    **Raises:** `ValueError` for records and sensors that do not match.
    """
    del progress
    options = SimulationOptions(dt, enforcement or UdwadiaKalaba(), scheme)
    problem = make_problem(GivenSystem(system), {}, records, sensors, options)
    return prediction_of(problem, simulated(problem))


class GivenSystem(eqx.Module):
    """A system as a model without parameters."""

    system: AbstractSystem

    def __call__(self, values):
        del values
        return self.system


@eqx.filter_jit
def simulated(problem: FitProblem, z: Float[Array, " n"] | None = None) -> PartMotion:
    """The motions at z, by default at the guess."""
    z = jnp.zeros(problem.size) if z is None else z
    return problem.residuals.motions(z, problem.data)


def prediction_of(problem: FitProblem, found: PartMotion) -> Prediction:
    """Combine the readings and verdicts of the parts into one for each record."""
    partition = problem.partition
    readings, of_parts = [[] for _ in problem.records], np.asarray(found.readings)
    verdicts: list[RESULTS] = [RESULTS.successful] * len(problem.records)
    for k, (record, (begin, end)) in enumerate(zip(*partition[:2], strict=True)):
        readings[record].append(of_parts[k, : end - begin])
        result = verdict(np.asarray(code(found.result))[k])
        if succeeded(verdicts[record]):
            verdicts[record] = result
    return Prediction(
        problem.records,
        tuple(np.concatenate(each) for each in readings),
        tuple(verdicts),
        problem.labels,
    )

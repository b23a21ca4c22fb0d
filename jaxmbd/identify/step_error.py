"""What the readings of a simulation lack of their limit for short steps."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from .._results import RESULTS, succeeded
from .prediction import prediction_of, simulated
from .problem import FitProblem
from .residuals import PartMotion

# An order is not measured more precisely than this, and not beyond this.
_LEAST_ORDER, _LARGEST_ORDER = 0.5, 6.0


class StepError(NamedTuple):
    """The error of the step.

    - `missing`: the limit of the readings for dt -> 0, minus the readings, `(parts, n, m)`.
    - `order`: the order with which halved steps approach the limit.
    - `result`: the verdict on the simulations.
    """

    missing: Float[np.ndarray, "parts n m"]
    order: float
    result: RESULTS


def step_error(problem: FitProblem, z: Float[Array, " n"]) -> StepError:
    """Find the limit from simulations with dt, dt/2 and dt/4.

    Reference: Richardson (1911), The approximate arithmetical solution by finite differences of
    physical problems involving differential equations, Phil. Trans. R. Soc. A 210."""
    motions = [simulated(with_steps(problem, times), z) for times in (1, 2, 4)]
    whole, half, quarter = (np.asarray(motion.readings, float) for motion in motions)
    weights = np.asarray(problem.data.parts.weights)
    first, second = (np.linalg.norm(weights * x) for x in (half - whole, quarter - half))
    order = np.log2(first / second) if first > 0 and second > 0 else 1.0
    order = float(np.clip(order, _LEAST_ORDER, _LARGEST_ORDER))
    rest = (quarter - half) / (2 ** max(round(order), 1) - 1)
    return StepError(quarter - whole + rest, order, verdict_on(problem, motions))


def verdict_on(problem: FitProblem, motions: Sequence[PartMotion]) -> RESULTS:
    """The first failure of several motions of all records."""
    verdicts = [result for m in motions for result in prediction_of(problem, m).results]
    return next((each for each in verdicts if not succeeded(each)), RESULTS.successful)


def with_steps(problem: FitProblem, times: int) -> FitProblem:
    """The same problem with so many steps in the place of one."""
    simulation = problem.residuals.simulation
    finer = dataclasses.replace(simulation, steps=times * simulation.steps)
    return eqx.tree_at(lambda p: p.residuals.simulation, problem, finer)

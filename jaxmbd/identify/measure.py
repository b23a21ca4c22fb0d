"""Synthetic measurements: what sensors would show of a simulated motion."""

import math
from collections.abc import Callable
from typing import Annotated, Any

import diffrax
import jax
import numpy as np
from jaxtyping import PyTree

from .._inputs import Numbers, checked, not_negative, positive, random_key
from .._methods import AbstractEnforcement, UdwadiaKalaba
from .._progress import says_when_compiling
from .._raising import raise_failure
from .._system import AbstractSystem, State
from .._types import Control
from .instruments import Delayed, Quantised, Unwrapped, chain
from .prediction import GivenSystem, prediction_of, simulated
from .problem import SimulationOptions, make_problem
from .record import Clock, Record
from .rig import named
from .sensors import Encoder, Sensor, SensorsGiven


@checked
@says_when_compiling("measure")
def measure(
    system: AbstractSystem,
    sensors: SensorsGiven,
    time: Any,
    start: State | Callable[[AbstractSystem], State],
    *,
    dt: Annotated[float, positive],
    enforcement: AbstractEnforcement | None = None,
    scheme: diffrax.AbstractSolver | None = None,
    control: Control | None = None,
    noise: Annotated[Numbers, not_negative] = 0.0,
    key: Annotated[PyTree, random_key] | None = None,
    clock: Clock | None = None,
    name: str = "record",
    progress: bool = True,
) -> Record:
    """Simulate a record, to try a fit or an experiment before there is one. Unlike in fits, the
    readings of `Quantised` and of an `Encoder` with `counts` are rounded.

    **Arguments:** as of `Record`, `fit` and `simulate`.

    - `noise`: the standard deviation of normal noise, a number or one for each column. It is added
      before an outermost `Quantised` rounds. `key`: a random key, needed for noise.

    **Returns:** a `Record`. Its weights are 1 / sqrt(noise^2 + step^2 / 12) with the step to which
    a sensor rounds, and 1 for columns with neither.

    **Raises:** `ValueError` for arguments that do not match, and `equinox.EquinoxRuntimeError` if
    the simulation fails.
    """
    del progress
    if key is None and np.any(np.asarray(noise) > 0):
        raise ValueError(
            "Argument `key` of measure must be given for `noise`: `jax.random.key(0)`."
        )
    given = named(sensors)
    # The last rounding comes after the noise.
    before = {n: x.sensor if isinstance(x, Quantised) else x for n, x in given.items()}
    blank = Record(time, np.zeros(len(time)), start, control=control, name=name, clock=clock)
    options = SimulationOptions(dt, enforcement or UdwadiaKalaba(), scheme, measuring=True)
    problem = make_problem(GivenSystem(system), {}, blank, before, options)
    found = prediction_of(problem, simulated(problem))
    readings = raise_failure(found.readings[0], found.results[0])
    noise = np.broadcast_to(np.asarray(noise, float), readings.shape[1:])
    if key is not None:
        readings = readings + noise * np.asarray(jax.random.normal(key, readings.shape))
    ends, steps, parts = np.cumsum(problem.sizes), [], []
    for sensor, columns in zip(given.values(), np.split(readings, ends[:-1], axis=1), strict=True):
        step = np.broadcast_to(_step(sensor), columns.shape[1:])
        if isinstance(sensor, Quantised):
            columns = step * np.round(columns / step)
        parts.append(columns)
        steps.append(step)
    sigma = np.sqrt(noise**2 + np.concatenate(steps) ** 2 / 12)
    weights = np.broadcast_to(1 / np.where(sigma > 0, sigma, 1.0), readings.shape)
    measured = np.concatenate(parts, axis=1)
    return Record(time, measured, start, control=control, weights=weights, name=name, clock=clock)


def _step(sensor: Sensor) -> Any:
    """What the readings are rounded to; 0 if they are not, or changed after it."""
    for each in chain(sensor):
        if isinstance(each, Quantised):
            return np.asarray(each.step, float)
        if isinstance(each, Encoder) and each.counts is not None:
            return 2 * math.pi / each.counts
        if not isinstance(each, Delayed | Unwrapped):
            break
    return 0.0

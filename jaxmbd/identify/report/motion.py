"""The predicted and the measured motion of a record in 3D."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._compiler import to_jax
from ..._mechanism import Mechanism
from ..._results import succeeded
from ..._simulate import Solution, simulate
from ..._step import Stepper
from ..estimate import Estimate
from ..guide import Guide, GuidedShooting
from ..instruments import Delayed, LowPass, SecondOrderLowPass, chain
from ..problem import FitProblem, with_guide
from ..record import Record
from ..sample import SavedMotion, interpolated
from ..shooting import Parts, SingleShooting, control_of, partition
from .bands import root_mean_square
from .sections import escaped, table

# Saved states of a motion, of which the page shows some.
_SAVED = 2000


class _Pulled(NamedTuple):
    """The measured motion: a simulation that follows the measurements, and what it reads."""

    motion: Solution
    readings: np.ndarray
    sensors: tuple[str, ...]
    rate: float


def motion(estimate: Estimate, view: Callable[..., Any], name: str | None) -> str:
    """The section with the motion of a record, by default of the first, or the reason why there
    is none. **Raises:** `ValueError` for the name of no record."""
    records = estimate.problem.records
    names = [record.name for record in records]
    if name is not None and name not in names:
        raise ValueError(f'There is no record "{name}" to view, but there are {names}.')
    k = 0 if name is None else names.index(name)
    head = f'<section id="motion"><h2>Motion of {escaped(names[k])}</h2>'
    if not isinstance(estimate.system, Mechanism):
        kind = escaped(type(estimate.system).__name__)
        return f"{head}<p>Not shown: {kind} is no mechanism, so it has no bodies.</p></section>"
    predicted = _predicted(estimate, k)
    motions = {"predicted": predicted}
    pulled = _pulled(estimate, k)
    if isinstance(pulled, str):
        words = f"<p>Only the predicted motion is shown. {pulled}</p>"
    else:
        motions["measured"] = pulled.motion
        words = _words(estimate, k, pulled)
    try:
        page = view(estimate.system, motions).html
    except ImportError as error:
        return f"{head}<p>Not shown: {escaped(error)}</p></section>"
    frame = f'<iframe title="Motion in 3D" loading="lazy" srcdoc="{escaped(page)}"></iframe>'
    return f"{head}{words}{frame}</section>"


def _words(estimate: Estimate, k: int, pulled: _Pulled) -> str:
    """What is shown as measured, and how far that is true."""
    record, found = estimate.problem.records[k], estimate.prediction
    named = estimate.sensors
    said = (
        "Predicted: the simulation with the estimates. Measured: the same simulation, pulled "
        f"towards the readings of {escaped(', '.join(map(_called, pulled.sensors)))} after each "
        f"step, at a rate of {pulled.rate:.3g} /s. So closed loops stay closed, and what no sensor "
        "sees follows the model."
    )
    lagging = [
        _called(name)
        for name in pulled.sensors
        if any(isinstance(x, Delayed | LowPass | SecondOrderLowPass) for x in chain(named[name]))
    ]
    if lagging:
        said += f" It is late by the lag of {escaped(', '.join(lagging))}."
    rows = []
    measured = np.where(record.weights > 0, record.measured, np.nan)
    for j, label in enumerate(found.labels):
        off = [root_mean_square((x - measured)[:, j]) for x in (found.readings[k], pulled.readings)]
        rows.append([escaped(_called(label)), *(f"{x:.3g}" for x in off)])
    head = ["column", "predicted", "shown as measured"]
    return f"<p>{said}</p>" + table(head, rows, "Rms distance from the measurements")


def _called(label: str) -> str:
    return label or "reading"


def _times(estimate: Estimate, k: int) -> tuple[Parts, float, float, int]:
    """All records as one part each, with sample times by the clock of the control; the times
    between which record k is simulated, and how many steps."""
    problem = estimate.problem
    parts, _ = partition(problem.records, SingleShooting())
    t0, t1 = float(parts.t0[k]), float(parts.t1[k])
    clocks = problem.residuals.simulation.rig(estimate.values).clocks
    if clocks is not None:
        offset, drift, begin = (x[:, None] for x in np.asarray(clocks).T)
        time = np.asarray(parts.time)
        parts = parts._replace(time=to_jax(time + offset + drift * (time - begin)))
    return parts, t0, t1, max(1, math.ceil((t1 - t0) / problem.dt - 1e-6))


def _predicted(estimate: Estimate, k: int) -> Solution:
    problem = estimate.problem
    simulation = problem.residuals.simulation
    _, t0, t1, steps = _times(estimate, k)
    found: Any = simulate(
        estimate.system,
        simulation.enforcement,
        estimate.starts[k],
        dt=(t1 - t0) / steps,
        t0=t0,
        num_steps=steps,
        control=problem.records[k].control,
        scheme=simulation.scheme,
        saveat=diffrax.SaveAt(t0=True, steps=max(1, steps // _SAVED)),
        start_tolerance=math.inf,
        throw=False,
    )
    return found


def _pulled(estimate: Estimate, k: int) -> _Pulled | str:
    """The pulled simulation whose readings are closest to the measurements, of several rates: fast
    ones follow the noise of sensors that hardly see a motion. Or the reason why there is none."""
    problem, record = estimate.problem, estimate.problem.records[k]
    try:
        guide = with_guide(problem).residuals.simulation.guide
    except ValueError:
        return "No sensor tells positions or velocities without counting turns."
    assert guide is not None
    parts, t0, t1, steps = _times(estimate, k)
    dt = (t1 - t0) / steps
    at, count = (to_jax(k), to_jax(dt)), len(record.time)
    rigged = problem.residuals.simulation.rig(estimate.values)
    rigged, start = (rigged.system, tuple(rigged.named.values())), estimate.starts[k]
    # What `_followed` computes, by its weighted distance.
    best = None, _distance(record, estimate.prediction.readings[k]), 0.0
    for rate in GuidedShooting().rates((record,)):
        guide = eqx.tree_at(lambda g: g.rate, guide, to_jax(rate, guide.rate.dtype))
        found = _followed(estimate.problem, *rigged, start, guide, parts, *at, steps)
        distance = _distance(record, np.asarray(found[1])[:count])
        if distance < best[1] and succeeded(found[2]):
            best = found, distance, float(rate)
    if best[0] is None:
        return (
            "The measured motion cannot be told from it: simulations that are pulled towards the "
            "measurements come no closer to them."
        )
    states, readings, result = best[0]
    kept = np.arange(0, steps + 1, max(1, steps // _SAVED))
    states = np.asarray(states)[kept]
    nq, nv = len(start.q), len(start.v)
    motion = Solution(
        t=to_jax(t0 + dt * kept),
        q=to_jax(states[:, :nq]),
        v=to_jax(states[:, nq : nq + nv]),
        multipliers=None,
        phi_norm=None,
        phidot_norm=None,
        ys=None,
        stats={},
        result=result,
    )
    names = tuple(problem.names[i] for i in guide.sensors)
    return _Pulled(motion, np.asarray(readings)[:count], names, best[2])


def _distance(record: Record, readings: np.ndarray) -> float:
    """The weighted distance of readings from the measurements."""
    return float(np.linalg.norm(record.weights * (readings - record.measured)))


@eqx.filter_jit
def _followed(
    problem: FitProblem, system, sensors, start, guide: Guide, parts: Parts, k, dt, steps: int
):
    """The states at all steps, the readings at all samples, and the verdict."""
    simulation, control = problem.residuals.simulation, control_of(parts, k)
    stepper = Stepper(system, simulation.enforcement, simulation.scheme)
    states, result = guide.states(stepper, sensors, start, control, parts, k, dt, steps)
    points = 6 if simulation.enforcement.continuous else 2
    nq, nv = len(start.q), len(start.v)
    motion = SavedMotion(system, control, parts.t0[k], dt, states, nq, nv, points)
    s = motion.steps_at(parts.time[k])
    x = interpolated(states, s, points)

    def read(t, x):
        here = motion.moment(t, x)
        return jnp.concatenate([jnp.ravel(sensor(here)) for sensor in sensors])

    return states, jax.vmap(read)(parts.t0[k] + dt * s, x), result

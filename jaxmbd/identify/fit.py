"""`fit`, which finds parameters of a system from measurements of its motion."""

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import optimistix as optx
from jaxtyping import Array, Float, PyTree

from .._compiler import to_jax
from .._inputs import at_least, checked, not_negative, positive, random_key
from .._methods import AbstractEnforcement, UdwadiaKalaba
from .._progress import says_when_compiling
from .._results import RESULTS, succeeded
from .._search import Checkpoint, Monitor, Multipliers, NoCheckpoint
from .._system import AbstractSystem
from .estimate import Estimate
from .graduated import GraduatedSmoothing, width_of, with_smoothing
from .guide import GuidedShooting
from .least_squares import LeastSquares, descend, least_squares
from .problem import (
    DOUBTFUL,
    FitProblem,
    SimulationOptions,
    make_problem,
    with_guide,
)
from .record import Record
from .residuals import AbstractLoss, Data, PartMotion, Squares, continuity
from .sensors import SensorsGiven
from .shooting import AbstractShooting, SingleShooting, UnknownStart
from .step_error import step_error

# The method of multipliers: the first penalty relative to the number of measurements, the largest
# number of rounds, and the violation at which they end, in units of the state.
_PENALTY, _ROUNDS, _CONTINUOUS = 1e-2, 8, 1e-8

# The largest number of corrections of the step, and the change at which they end, in standard
# deviations.
_CORRECTIONS, _STILL = 8, 0.1

# The tolerance of searches whose results only begin the next one.
_ROUGHLY = 1e-4


@checked
class MultiStart(eqx.Module):
    """Several short searches from scattered guesses. The search continues from the best one. The
    free numbers of the parameters are scattered by a normal distribution.

    **Fields:** `count`: the number of searches, including the one from the given guess; `key`: a
    random key; `spread`: the standard deviation; `max_iterations`: the iterations of each search.
    """

    count: Annotated[int, at_least(1)] = eqx.field(static=True)
    key: Annotated[PyTree, random_key]
    spread: Annotated[float, not_negative] = 0.5
    max_iterations: Annotated[int, at_least(1)] = eqx.field(static=True, default=20)


@checked
@says_when_compiling("fit")
def fit(
    model: AbstractSystem | Callable[[dict[str, PyTree]], Any],
    parameters: Mapping[str, Any] | Sequence[str] | Callable | str,
    records: Record | Sequence[Record],
    sensors: SensorsGiven | None = None,
    *,
    dt: Annotated[float, positive],
    enforcement: AbstractEnforcement | None = None,
    scheme: diffrax.AbstractSolver | None = None,
    start: UnknownStart | None = None,
    shooting: AbstractShooting | None = None,
    loss: AbstractLoss = Squares(),
    optimiser: optx.AbstractLeastSquaresSolver | optax.GradientTransformation | None = None,
    multistart: MultiStart | None = None,
    extrapolate: bool = False,
    max_iterations: Annotated[int, at_least(1)] = 100,
    tolerance: Annotated[float, positive] = 1e-9,
    checkpoint: str | os.PathLike | None = None,
    progress: bool = True,
    label: str = "fit",
) -> Estimate:
    r"""Find the parameters p, and the initial states x_0 if unknown, for which simulations are
    closest to the measurements,

    $$
    \min_{p,\,x_0} \sum_i \rho\bigl(w_i\,(h_i(x(t_i; p, x_0)) - y_i)\bigr),
    $$

    over all samples of all records. h are the readings of the sensors in the constrained motion x.

        found = identify.fit(
            build,                                  # values -> system
            {"stiffness": Parameter(1500.0, Positive()), "damping": Parameter(160.0, Positive())},
            [Record(time, measured, start)],
            {"height": lambda sample: sample.q[1]},
            dt=2e-3,
        )
        print(found)

    **Arguments:**

    - `model`: a function `values -> system` of the values by name; or a system, whose leaves are
      then named by paths, see `Leaves`; or a function `values -> (system, sensors)`.
    - `parameters`: name -> `Parameter` or a guess; for a system also paths or a filter. Numbers of
      sensors and of clocks have paths too, as `sensors[angle].delay`, and need no guess.
    - `records`: the measurements, all with the same columns and the same kind of control.
    - `sensors`: name -> function of a `Sample`, or one such function. Their numbers are the columns
      of the records. `None` if the model returns them.
    - `dt`: the largest step of the simulations [s]. Each part is divided into equal steps.
    - `enforcement`: default `UdwadiaKalaba()`. `scheme`: as in `simulate`.
    - `start`: `UnknownStart()` to find the initial states as well; default those of the records.
    - `shooting`: `SingleShooting()`; `GuidedShooting()` for bad guesses, and for motions that stick
      or hit; `GraduatedSmoothing(widest)` for those too, where sensors cannot pull;
      `MultipleShooting(parts)` for long or chaotic ones. Default: `SingleShooting()`, and
      if its residuals are more than three times the noise that the weights state, also
      `GuidedShooting()` where the sensors allow it, of which the better one counts.
    - `loss`: `Huber()` or `Cauchy()` for measurements with outliers.
    - `optimiser`: default the Levenberg-Marquardt method within bounds. Or any least-squares solver
      of optimistix, by forward sensitivities; with it, a value that reaches a bound may stay there.
      Or any optax transformation, by reverse mode, for many parameters.
    - `multistart`: a `MultiStart`.
    - `extrapolate`: whether to remove the error of the step. What the readings lack of their limit
      for dt -> 0 is found at the estimate from steps of dt/2 and dt/4 (Richardson), and added to
      them; then the search goes on, until this moves nothing by more than a tenth of its
      standard deviation.
    - `max_iterations`: the limit of iterations. `tolerance`: the search has converged when the last
      change of parameters and residuals is below this.
    - `checkpoint`: the name of a file to save the search in, or to continue it from.
    - `progress`: whether to show a bar. `label`: the words before it, such as the part of a search.

    Weights are 1 / (standard deviation) of the measurements. If all are 1, columns of different
    units are added as they are.

    **Returns:** an `Estimate`; `print` it.

    **Raises:** `ValueError` for records, parameters and sensors that do not match; the message
    gives the remedy. **Warns** of parameters that no measurement depends on.
    """
    begin = time.perf_counter()
    simulation = SimulationOptions(dt, enforcement or UdwadiaKalaba(), scheme)
    one = SingleShooting() if shooting is None else shooting
    problem = make_problem(model, parameters, records, sensors, simulation, start, one, loss)
    descending = isinstance(optimiser, optax.GradientTransformation)
    solver = None if descending else optimiser
    if problem.size == 0:
        raise ValueError("There is nothing to find: `parameters` is empty.")
    if problem.count <= problem.size:
        raise ValueError(
            f"{problem.count} measurements cannot determine {problem.size} unknown numbers."
        )
    if extrapolate and (descending or problem.partition.links):
        raise ValueError(
            "`extrapolate` needs a least-squares solver, and parts that do not have to meet: leave "
            "out `optimiser` and use `SingleShooting()` or `GuidedShooting()`."
        )
    if descending and problem.partition.links:
        raise ValueError(
            "Gradient descent does not keep the parts of multiple shooting together: use a "
            "least-squares solver, or `SingleShooting()`."
        )
    guess = z = to_jax(np.zeros(problem.size))
    if multistart is not None:
        z = _best_start(problem, z, multistart)
    if isinstance(shooting, GuidedShooting):
        z = _guided(with_guide(problem), z, shooting, solver, progress, label)
    if isinstance(shooting, GraduatedSmoothing):
        monitor = Monitor(f"{label}, smoothed by", shooting.max_iterations, lambda _: "", progress)
        smooth = with_smoothing(problem)
        z = _in_stages(smooth, z, width_of, shooting.widths, "m/s", solver, monitor)
    saving = NoCheckpoint()
    if checkpoint is not None:
        saving = Checkpoint(checkpoint, (problem, z))
    monitor = Monitor(label, max_iterations, lambda _: "", progress, saving)
    if descending:
        found, data = descend(problem, z, optimiser, tolerance, monitor), problem.data
    else:
        found, data = _search(problem, z, solver, tolerance, monitor)
    monitor = monitor._replace(checkpoint=NoCheckpoint())
    if shooting is None and problem.times_noise(found.residuals) > DOUBTFUL and not descending:
        found = _guided_too(problem, guess, found, solver, tolerance, monitor)
    if extrapolate:
        found, problem = _extrapolated(problem, found, solver, tolerance, monitor)
    found = Estimate.at(problem, found, data, time.perf_counter() - begin)
    lost = found.unconnected
    if lost:
        warnings.warn(
            f"Nothing that was measured depends on {list(lost)}: their guesses are returned. Is "
            "each used by the model, and does the motion excite it?",
            stacklevel=2,
        )
    return found


def _best_start(problem: FitProblem, z: Float[Array, " n"], options: MultiStart):
    """The z of the best of several searches."""
    size = problem.residuals.parameters.size
    scatter = options.spread * jax.random.normal(options.key, (options.count, size))
    guesses = jnp.tile(z, (options.count, 1)).at[1:, :size].add(scatter[1:])
    guesses = jax.vmap(lambda z: jnp.clip(z, *problem.bounds))(guesses)

    @eqx.filter_jit
    def search_all(problem, guesses):
        search = lambda z: problem.search(z, problem.data, options.max_iterations, 1e-6)  # noqa: E731
        found = jax.vmap(search)(guesses)
        return found.value, jnp.sum(found.residuals**2, axis=1)

    z, squares = search_all(problem, guesses)
    squares = np.where(np.isfinite(squares), squares, np.inf)
    if not np.isfinite(squares.min()):
        raise ValueError("None of the scattered guesses gives finite residuals: lower `spread`.")
    return z[int(np.argmin(squares))]


def _guided(
    problem: FitProblem,
    z: Float[Array, " n"],
    shooting: GuidedShooting,
    solver: Any,
    progress: bool,
    label: str,
) -> Float[Array, " n"]:
    """The z after the stages in which the measurements pull."""
    rate = lambda p: p.residuals.simulation.guide.rate  # noqa: E731
    monitor = Monitor(f"{label}, pulled at", shooting.max_iterations, lambda _: "", progress)
    return _in_stages(problem, z, rate, shooting.rates(problem.records), "/s", solver, monitor)


def _in_stages(
    problem: FitProblem,
    z: Float[Array, " n"],
    where: Callable[[FitProblem], Array],
    values: np.ndarray,
    unit: str,
    solver: Any,
    monitor: Monitor,
) -> Float[Array, " n"]:
    """The z after rough searches with each of the values at a place of the problem."""
    for value in values:
        stage = eqx.tree_at(where, problem, jnp.asarray(value, where(problem).dtype))
        here = monitor._replace(label=f"{monitor.label} {value:.3g} {unit}")
        z = _search(stage, z, solver, _ROUGHLY, here)[0].value
    return z


def _guided_too(
    problem: FitProblem,
    guess: Float[Array, " n"],
    found: LeastSquares,
    solver: Any,
    tolerance: float,
    monitor: Monitor,
) -> LeastSquares:
    """The better one of this result and that of guided shooting from the guess."""
    try:
        guided = with_guide(problem)
        z = _guided(guided, guess, GuidedShooting(), solver, monitor.progress, monitor.label)
        other, _ = _search(problem, z, solver, tolerance, monitor)
    except ValueError:  # no sensor can pull, or the pulled simulation fails at the guess
        return found
    better, worse = (other, found) if other.rms < found.rms else (found, other)
    return better._replace(
        iterations=better.iterations + worse.iterations, first_residuals=found.first_residuals
    )


def _extrapolated(
    problem: FitProblem, found: LeastSquares, solver: Any, tolerance: float, monitor: Monitor
) -> tuple[LeastSquares, FitProblem]:
    """The result for readings without the error of the step, and its problem, in which the
    measurements lack the error instead. It solves J^T r = 0 with the residuals r of the limit and
    the Jacobian J of the step (defect correction: Stetter 1978, The defect correction principle and
    discretization methods, Numerische Mathematik 29)."""
    parts, corrected = problem.data.parts, problem
    for number in range(1, _CORRECTIONS + 1):
        z, error = found.value, step_error(problem, found.value)
        if not succeeded(error.result):
            return found._replace(result=error.result), corrected
        measured = to_jax(np.asarray(parts.measured) - error.missing)
        data = problem.data._replace(parts=parts._replace(measured=measured))
        here = monitor._replace(label=f"{monitor.label}, extrapolated {number}")
        corrected = eqx.tree_at(lambda p: p.data, problem, data)
        next_one, _ = _search(corrected, z, solver, tolerance, here)
        readings = np.asarray(next_one.aux.readings) + error.missing
        found = next_one._replace(
            aux=next_one.aux._replace(readings=readings),
            iterations=found.iterations + next_one.iterations,
            first_residuals=found.first_residuals,
        )
        moved = np.abs(np.asarray(found.value - z))
        if np.all(moved <= _STILL * np.asarray(found.sigma)):
            return found, corrected
    return found._replace(result=RESULTS.max_iterations_reached), corrected


def _search(
    problem: FitProblem,
    z: Float[Array, " n"],
    solver: optx.AbstractLeastSquaresSolver | None,
    tolerance: float,
    monitor: Monitor,
):
    """The result of the search, and the data with the last multipliers."""
    residuals, data = problem.residuals, problem.data
    options: dict[str, Any] = dict(
        solver=solver,
        bounds=problem.bounds,
        scale=float(problem.scale),
        count=problem.count,
        max_iterations=monitor.limit,
        progress=monitor.progress,
    )
    if not problem.partition.links:
        options |= dict(tolerance=tolerance, checkpoint=monitor.checkpoint, label=monitor.label)
        return least_squares(residuals, z, data, **options), data

    # The method of multipliers satisfies c = 0 exactly, with penalties that are not too stiff.
    penalty = jnp.asarray(_PENALTY * problem.count * problem.scale**2, z.dtype)
    multipliers = eqx.tree_at(lambda m: m.penalty, data.multipliers, penalty)
    rounds, state = monitor.checkpoint.restored((z, multipliers, jnp.array(0)))
    z, multipliers, steps = state
    for number in range(min(rounds + 1, _ROUNDS), _ROUNDS + 1):
        data = data._replace(multipliers=multipliers)
        # The first rounds need not be exact.
        here = max(tolerance, 1e-3 * 1e-2**number)
        label = f"{monitor.label}, round {number}"
        found = least_squares(residuals, z, data, tolerance=here, label=label, **options)
        z, steps = found.value, steps + found.iterations
        multipliers = _next_round(found.aux, data)
        if multipliers.violation < _CONTINUOUS and here == tolerance:
            return found._replace(iterations=int(steps)), data
        monitor.checkpoint.save(number, (z, multipliers, steps), now=True)
    return found._replace(iterations=int(steps), result=RESULTS.max_iterations_reached), data


@eqx.filter_jit
def _next_round(motions: PartMotion, data: Data) -> Multipliers:
    c = continuity(motions, data)
    return data.multipliers.next_round(c, jnp.zeros(0, c.dtype))

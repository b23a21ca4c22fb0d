"""What a model costs beside the noise, and how its residuals look: the check before a fit."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._compiler import to_jax
from .._inputs import at_least, checked, positive
from .._methods import AbstractEnforcement, UdwadiaKalaba
from .._printed import printed
from .._progress import progress_bar, says_when_compiling
from .._results import RESULTS, succeeded
from .._system import AbstractSystem
from .identifiability import sensitivity
from .least_squares import covariance
from .prediction import simulated
from .problem import FitProblem, SimulationOptions, make_problem
from .record import Record
from .residuals import AbstractLoss, Squares
from .sensors import SensorsGiven
from .shooting import UnknownStart
from .step_error import step_error, verdict_on

# Errors of the simulation of this share of the noise hardly matter.
_SMALL = 0.1

# Parameters whose estimates an error moves by less than this many standard deviations are not told.
_TOLD = 0.1


@printed
class ModelError(NamedTuple):
    """What an error of the simulation does to a fit.

    **Fields:**

    - `off`: the root mean square of the change of the readings, in units of the noise.
    - `bias`: name of a free number -> how far the error moves its estimate, to first order, in
      standard deviations.
    - `order`: the order in the step; `None` for another model. `dt`: the step of the check, and
      `needed`: the one with which `off` would be a tenth [s].
    - `result`: the verdict on the simulations.
    """

    off: float
    bias: dict[str, float]
    order: float | None
    dt: float
    needed: float | None
    result: RESULTS

    def __str__(self) -> str:
        if not succeeded(self.result):
            return f"not known, since a simulation failed: {RESULTS[self.result]}"
        text = f"readings off by {self.off:.2g} times the noise"
        moved = sorted(self.bias.items(), key=lambda item: -abs(item[1]))
        told = [f"{name} {x:+.1f}" for name, x in moved if abs(x) > _TOLD]
        if told:
            text += f", estimates by standard deviations of {', '.join(told[:5])}"
        if self.needed is not None and self.off > _SMALL:
            text += (
                f"; order {self.order:.1f}: dt={self.needed:.1g} would make it {_SMALL:g} times "
                "the noise"
            )
        return text


@printed
class Slice(NamedTuple):
    """The residuals along one free number.

    **Fields:** `free`: the free numbers, `(points,)`; `value`: the value there where it is one
    number, otherwise the free number; `rms`: the root mean square of the weighted residuals, NaN
    where the simulation failed.
    """

    free: np.ndarray
    value: np.ndarray
    rms: np.ndarray

    @property
    def minima(self) -> np.ndarray:
        """The indices of the points that are lower than their neighbours; of a level stretch, the
        first."""
        x = np.where(np.isfinite(self.rms), self.rms, np.inf)
        first = np.flatnonzero(np.append(True, x[1:] != x[:-1]))
        around = np.concatenate([[np.inf], x[first], [np.inf]])
        return first[(x[first] < around[:-2]) & (x[first] < around[2:])]

    def __str__(self) -> str:
        if np.all(np.isnan(self.rms)):
            return "all simulations failed"
        places = " and ".join(f"{x:.4g}" for x in self.value[self.minima])
        return f"rms {np.nanmin(self.rms):.3g} to {np.nanmax(self.rms):.3g}, lowest at {places}"


@printed
class ModelCheck(NamedTuple):
    """The check of a model at given parameters; `print` it, or `plot_slices`.

    **Fields:** `rms`: the root mean square of the weighted residuals; `step`: what the step costs;
    `beside`: what each of the other models changes, by its name; `slices`: free number -> `Slice`.
    """

    rms: float
    step: ModelError
    beside: dict[str, ModelError]
    slices: dict[str, Slice]

    @property
    def multimodal(self) -> tuple[str, ...]:
        """The free numbers along which the residuals have several local minima."""
        return tuple(name for name, along in self.slices.items() if len(along.minima) > 1)

    def __str__(self) -> str:
        rows = [
            f"weighted residuals: rms {self.rms:.3g}",
            f"step of {self.step.dt:g} s: {self.step}",
        ]
        rows += [f"{name}: {error}" for name, error in self.beside.items()]
        several = ", ".join(f"{name} ({len(self.slices[name].minima)})" for name in self.multimodal)
        failed = [name for name, along in self.slices.items() if np.any(np.isnan(along.rms))]
        if several:
            rows.append(f"local minima: several along {several}: use `GuidedShooting()`")
        elif self.slices and not failed:
            rows.append("local minima: one along each parameter")
        if failed:
            rows.append(f"simulations failed along {', '.join(failed)}, where no minimum is seen")
        return "\n".join(rows)


@checked
@says_when_compiling("check_model")
def check_model(
    model: AbstractSystem | Callable[[dict[str, PyTree]], Any],
    parameters: Mapping[str, Any] | Sequence[str] | Callable | str,
    records: Record | Sequence[Record],
    sensors: SensorsGiven | None = None,
    *,
    dt: Annotated[float, positive],
    enforcement: AbstractEnforcement | None = None,
    scheme: diffrax.AbstractSolver | None = None,
    start: UnknownStart | None = None,
    loss: AbstractLoss = Squares(),
    beside: Mapping[str, Any] | None = None,
    spread: Annotated[float, positive] = 1.0,
    points: Annotated[int, at_least(2)] = 21,
    progress: bool = True,
) -> ModelCheck:
    """Check a model before a fit, or after one with `found.parameters`: what the step and
    smoothed laws cost beside the noise, and which local minima there are.

        check = identify.check_model(
            build, parameters, record, sensors, dt=1e-3, beside={"sharper": build_sharper}
        )
        print(check)

    An error e of the readings moves the estimates by J^+ W e, where J is the Jacobian of the
    weighted residuals. The noise has the standard deviation 1 / weight. If all weights are 1, it is
    that of the residuals, which then have to be those of a good fit.

    **Arguments:** as for `fit`, and

    - `beside`: name -> another model of the same parameters, such as one that is smoothed less, or
      another enforcement method, such as `ContactImpulse(smoothing=1e-4)`.
    - `spread`: each parameter is swept from -spread to +spread in its free number, so for
      `Positive` by factors from 1 / e to e. `points`: how many simulations for each; 2 simulate
      only the ends.

    **Returns:** a `ModelCheck`.

    **Raises:** `ValueError` for arguments that do not match, as `fit` does.
    """

    def problem_of(model, method):
        options = SimulationOptions(dt, method, scheme)
        return make_problem(model, parameters, records, sensors, options, start, loss=loss)

    method = enforcement or UdwadiaKalaba()
    problem = problem_of(model, method)
    z = to_jax(np.zeros(problem.size))
    r, J, found = _linearised(problem, z)
    here = _Linear.at(problem, np.asarray(r), np.asarray(J))
    missing, order, result = step_error(problem, z)
    off = here.off(missing)
    needed = dt * (_SMALL / off) ** (1 / order) if off > 0 else dt
    step = ModelError(off, here.bias(missing), order, dt, needed, result)
    others = {}
    for name, other in (beside or {}).items():
        is_method = isinstance(other, AbstractEnforcement)
        another = problem_of(*((model, other) if is_method else (other, method)))
        motion = simulated(another, z)
        change = np.asarray(motion.readings) - np.asarray(found.readings)
        verdict = verdict_on(another, [found, motion])
        others[name] = ModelError(here.off(change), here.bias(change), None, dt, None, verdict)
    slices = _slices(problem, spread, points, progress)
    rms = float(np.linalg.norm(here.residuals)) / np.sqrt(problem.count)
    return ModelCheck(rms, step, others, slices)


class _Linear(NamedTuple):
    """The residuals of the measurements and their sensitivity to the parameters."""

    names: tuple[str, ...]
    residuals: np.ndarray
    weights: np.ndarray
    jacobian: np.ndarray
    noise: float
    total: int

    @classmethod
    def at(cls, problem: FitProblem, r: np.ndarray, J: np.ndarray) -> "_Linear":
        parameters, data = problem.residuals.parameters, problem.data
        sens = sensitivity(r, J, parameters.size, data.parts.measured.size, 0, 1.0)
        weights = np.asarray(data.parts.weights)
        stated = np.any((weights != 0) & (weights != 1))
        own = sens.residuals[: sens.samples]
        noise = 1.0 if stated else float(np.linalg.norm(own)) / np.sqrt(problem.count)
        names = parameters.free_names
        return cls(names, own, weights, sens.jacobian, noise, problem.count - sens.nuisance)

    def off(self, change: np.ndarray) -> float:
        """The root mean square of a change of the readings, in units of the noise."""
        return float(np.linalg.norm(self.weights * change)) / np.sqrt(self.total) / self.noise

    def bias(self, change: np.ndarray) -> dict[str, float]:
        """How far the estimates move if the readings lack this change, in standard deviations."""
        J, e = self.jacobian, np.zeros(len(self.jacobian))
        e[: change.size] = (self.weights * change).ravel()
        size = np.linalg.norm(J, axis=0)
        size = np.where(size > 0, size, 1.0)
        moved = np.linalg.lstsq(J / size, e, rcond=None)[0] / size
        scale = self.noise * np.sqrt(max(self.total - J.shape[1], 1))
        r = np.full(1, scale)
        sigma = np.sqrt(np.diag(covariance(J, r, self.total)))
        return dict(zip(self.names, (moved / sigma).tolist(), strict=True))


@eqx.filter_jit
def _linearised(problem: FitProblem, z: Array):
    return problem.residuals.jacobian(z, problem.data)


def _slices(problem: FitProblem, spread: float, points: int, progress: bool) -> dict[str, Slice]:
    parameters = problem.residuals.parameters
    names, found = parameters.free_names, {}
    lower, upper = problem.bounds
    grid = np.linspace(-spread, spread, points)
    with progress_bar(len(names), "slices", progress) as bar:
        for i, name in enumerate(names):
            free = np.clip(grid, lower[i], upper[i])
            z = np.zeros((points, problem.size))
            z[:, i] = free
            squares, entries = _along(problem, to_jax(z))
            entries = np.asarray(entries)
            # Where a parameter is one number, its entry has the name of its free number.
            own = name in parameters.names
            value = entries[:, parameters.names.index(name)] if own else free
            rms = np.sqrt(np.asarray(squares) / problem.count)
            found[name] = Slice(free, value, rms)
            bar.update()
    return found


@eqx.filter_jit
def _along(problem: FitProblem, z: Float[Array, "points n"]):
    """The sums of squares and the entries of the parameters at several z."""
    residuals = problem.residuals
    count = problem.data.parts.measured.size

    def one(z):
        motions = residuals.motions(z, problem.data)
        r = residuals.loss(motions.residuals.ravel())[:count]
        good = jnp.all(succeeded(motions.result))
        shared = z[: residuals.parameters.size]
        return jnp.where(good, jnp.sum(r * r), jnp.nan), residuals.parameters.entries(shared)

    return jax.lax.map(one, z)

"""How far the readings of a fitted model are known, and how much of the measurements lies there."""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

from ..._compiler import picked
from ..._lanes import forward_jacobian
from ..._search import DEPENDENT, nonzero, simulation_error
from ..estimate import Estimate
from ..prediction import GivenSystem, Prediction, simulated
from ..problem import FitProblem, SimulationOptions, make_problem
from ..residuals import Residuals, Squares
from ..rig import Rig, with_clocks

# The share of samples that bands are made to contain.
LEVEL = 0.95

# A share that is so much off says that the noise is another one.
_SHARE_OFF = 0.05

# A row of derivatives counts as unknown if it has more than this share along directions that the
# measurements do not determine.
_LOST = 1e-6

# Readings of the same simulation in another program are no further apart than this, relative to the
# largest.
_SAME = 1e-6


class Bands(NamedTuple):
    """The half widths of the bands around the readings of records, `(n, m)` for each record.

    **Fields:** `spread`: that of the parameters, infinite where they leave a reading open, `None`
    if it is not known. `noise`: that of the noise alone. `stated`: whether the weights state the
    noise. `why`: why `spread` is `None`.
    """

    spread: tuple[np.ndarray, ...] | None
    noise: tuple[np.ndarray, ...]
    stated: bool
    why: str = ""

    def whole(self, k: int) -> np.ndarray:
        """The half width for a new sample of record k."""
        return self.noise[k] if self.spread is None else np.hypot(self.spread[k], self.noise[k])

    def inside(self, errors: tuple[np.ndarray, ...], k: int, j: int) -> float:
        """The share of the samples of column j of record k that lie inside; NaN without any."""
        return _share(errors[k][:, j], self.whole(k)[:, j])

    def expected(self, errors: tuple[np.ndarray, ...], share: float) -> bool:
        """Whether such a share of all samples is as far from `LEVEL` as chance explains, or
        nearly."""
        count = sum(int(np.isfinite(each).sum()) for each in errors)
        chance = 3 * np.sqrt(LEVEL * (1 - LEVEL) / max(count, 1))
        return bool(abs(share - LEVEL) <= max(_SHARE_OFF, chance))

    def share(self, errors: tuple[np.ndarray, ...]) -> float:
        """The share of all samples that lie inside."""
        widths = [self.whole(k) for k in range(len(errors))]
        return _share(*(np.concatenate([np.ravel(x) for x in each]) for each in (errors, widths)))


def _share(errors: np.ndarray, width: np.ndarray) -> float:
    there = np.isfinite(errors)
    return float(np.mean(np.abs(errors[there]) <= width[there])) if there.any() else np.nan


def root_mean_square(x: np.ndarray) -> float:
    """That of the finite numbers; NaN without any."""
    there = x[np.isfinite(x)]
    return float(np.sqrt(np.mean(there**2))) if len(there) else np.nan


class Spread(NamedTuple):
    """The covariance root root^T of all free numbers, and the directions `lost` that the
    measurements leave open, `(size, ...)` each."""

    root: np.ndarray
    lost: np.ndarray

    def deviation(self, slopes: np.ndarray) -> np.ndarray:
        """The standard deviations of quantities with these derivatives by the first free numbers,
        `(rows, numbers)`."""
        size = slopes.shape[1]
        found = np.linalg.norm(slopes @ self.root[:size], axis=1)
        open_ = np.abs(slopes @ self.lost[:size])
        total = np.linalg.norm(slopes, axis=1)
        return np.where(np.any(open_ > _LOST * total[:, None], axis=1), np.inf, found)


def bands_of(estimate: Estimate, unseen: Prediction | None) -> tuple[Bands, Bands | None]:
    """The bands of the fitted records, and of others.

    The parameters spread as their covariance says, with the starts if they were found too, times
    `inflation`. The noise is 1 / weight if the weights state it, and otherwise what is left in
    each column."""
    problem = estimate.problem
    factor = float(scipy.special.stdtrit(estimate.freedom, (1 + LEVEL) / 2))
    noise = _column_noise(estimate)
    stated = problem.states_noise
    own = tuple(factor * _noise(record, noise, stated) for record in problem.records)
    fitted, found = Bands(None, own, stated, _NO_SLOPES), None
    slopes, weights, loss_slope = _known_slopes(estimate) or map(
        np.asarray, _slopes(problem, estimate.z)
    )
    if np.all(np.isfinite(slopes)):
        found = _spread(estimate, slopes, weights, loss_slope)
        count = weights.size
        width = factor * estimate.inflation * found.deviation(slopes[:count])
        fitted = fitted._replace(spread=_by_record(problem, width.reshape(weights.shape)), why="")
    if unseen is None:
        return fitted, None
    other = tuple(factor * _noise(record, noise, stated) for record in unseen.records)
    if found is None:
        return fitted, Bands(None, other, stated, _NO_SLOPES)
    spread, why = _of_others(estimate, unseen, found, factor * estimate.inflation)
    return fitted, Bands(spread, other, stated, why)


_NO_SLOPES = "the derivatives of the readings are not finite"


def _column_noise(estimate: Estimate) -> np.ndarray:
    """The standard deviation of what is left in each column, times the weights, `(m,)`."""
    found = estimate.prediction
    used = sum(record.count for record in found.records)
    lost = np.sqrt(used / max(estimate.freedom, 1))
    rows = np.concatenate([r.weights * e for r, e in zip(found.records, found.errors, strict=True)])
    there = np.isfinite(rows)
    counts = np.maximum(there.sum(axis=0), 1)
    return lost * np.sqrt(np.sum(np.where(there, rows, 0.0) ** 2, axis=0) / counts)


def _noise(record: Any, noise: np.ndarray, stated: bool) -> np.ndarray:
    """The standard deviation of the noise of each sample, `(n, m)`. Missing samples have the
    median one of their column, NaN where nothing was measured."""
    weights = np.where(record.weights > 0, record.weights, np.nan)
    middle = np.array([np.median(x[~np.isnan(x)]) if np.any(x > 0) else np.nan for x in weights.T])
    return (1.0 if stated else noise) / np.where(np.isnan(weights), middle, weights)


def _known_slopes(estimate: Estimate) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """What `_slopes` gives, from the Jacobian of the search, which saves to compile another one;
    `None` if that lacks something."""
    problem, sens = estimate.problem, estimate.sensitivity
    if problem.size > problem.residuals.parameters.size:
        return None  # the starts are eliminated in it
    if not isinstance(problem.residuals.loss, Squares):
        return None
    if not all(np.all(record.weights > 0) for record in problem.records):
        return None
    weights = np.asarray(problem.data.parts.weights)
    flat = weights.ravel()[:, None]
    slopes = np.array(sens.jacobian)
    slopes[: flat.size] /= np.where(flat > 0, flat, 1.0)
    return slopes, weights, np.ones(flat.size)


@eqx.filter_jit
def _slopes(problem: FitProblem, z):
    """The derivatives of the readings, of the priors, and of the gaps between parts; the weights;
    and the slope of the loss."""
    data = problem.data
    multipliers = eqx.tree_at(
        lambda m: m.penalty, data.multipliers, jnp.ones_like(data.multipliers.penalty)
    )
    weights = data.parts.weights
    plain = data._replace(
        parts=data.parts._replace(weights=jnp.ones_like(weights)), multipliers=multipliers
    )
    _, J, found = Residuals(problem.residuals.simulation, Squares()).jacobian(z, plain)
    r = (weights * (found.readings - data.parts.measured)).ravel()
    slope = jax.jvp(problem.residuals.loss, (r,), (jnp.ones_like(r),))[1]
    return J, weights, slope


def _spread(
    estimate: Estimate, slopes: np.ndarray, weights: np.ndarray, loss_slope: np.ndarray
) -> Spread:
    count, links = weights.size, estimate.problem.data.multipliers.equality.size
    own = (loss_slope * weights.ravel())[:, None] * slopes[:count]
    end = len(slopes) - links
    J, C = np.concatenate([own, slopes[count:end]]), slopes[end:]
    free = np.eye(J.shape[1])
    if links:  # parts stay continuous
        _, values, rows = np.linalg.svd(C)
        free = rows[int(np.sum(nonzero(values, DEPENDENT))) :].T
    J = J @ free
    size = np.linalg.norm(J, axis=0)
    size = np.where(size > 0, size, 1.0)
    _, values, rows = np.linalg.svd(J / size, full_matrices=False)
    known = nonzero(values, simulation_error(J.dtype))
    root = free @ (rows[known].T / values[known] / size[:, None])
    return Spread(estimate.noise * root, free @ (rows[~known].T / size[:, None]))


def _by_record(problem: FitProblem, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """Values of all parts `(parts, n, m)` as one array for each record."""
    found = [[] for _ in problem.records]
    for k, (record, (begin, end)) in enumerate(zip(*problem.partition[:2], strict=True)):
        found[record].append(x[k, : end - begin])
    return tuple(np.concatenate(each) for each in found)


def _of_others(
    estimate: Estimate, unseen: Prediction, spread: Spread, factor: float
) -> tuple[tuple[np.ndarray, ...] | None, str]:
    """The half widths for other records by the parameters alone, or `None` and why."""
    problem, fitted = estimate.problem, estimate.problem.residuals.simulation
    options = SimulationOptions(problem.dt, fitted.enforcement, fitted.scheme)
    records = with_clocks(unseen.records, estimate.values)
    rigged = fitted.rig(estimate.values)
    other = make_problem(GivenSystem(rigged.system), {}, records, rigged.named, options)
    readings = _by_record(other, np.asarray(simulated(other).readings))
    for x, y in zip(readings, unseen.readings, strict=True):
        if not np.all(np.abs(x - y) <= _SAME * np.max(np.abs(x), initial=0.0)):
            return None, "they are not the predictions of this estimate"
    size = fitted.parameters.size
    slopes = np.asarray(_unseen_slopes(problem, other, picked(estimate.z, np.s_[:size])))
    if not np.all(np.isfinite(slopes)):
        return None, _NO_SLOPES
    width = factor * spread.deviation(slopes.reshape(-1, size))
    return _by_record(other, width.reshape(slopes.shape[:-1])), ""


class _Rerigged(eqx.Module):
    """The fitted system and sensors, with the clocks of other records."""

    fitted: Rig
    other: Rig

    def __call__(self, values):
        return self.fitted(values)._replace(clocks=self.other({}).clocks)


@eqx.filter_jit
def _unseen_slopes(problem: FitProblem, other: FitProblem, z):
    """The derivatives of the readings of other records by the parameters."""
    fitted, own = problem.residuals.simulation, other.residuals.simulation
    simulation = dataclasses.replace(
        fitted, start=own.start, steps=own.steps, constrained=own.constrained
    )
    simulation = eqx.tree_at(lambda s: s.rig, simulation, _Rerigged(fitted.rig, own.rig))

    def readings(z):
        return Residuals(simulation, Squares()).motions(z, other.data).readings, None

    return forward_jacobian(readings, z)[0]

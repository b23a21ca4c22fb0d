"""The result of a fit, its accuracy, and the scatter of estimates from synthetic measurements."""

import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array, ArrayLike, Float, PyTree

from .._compiler import compiled_quickly, picked, to_jax
from .._inputs import at_least, checked, inside, positive, random_key
from .._printed import printed
from .._results import RESULTS, succeeded
from .._system import AbstractSystem, State
from .identifiability import (
    ColumnTest,
    Identifiability,
    Sensitivity,
    column_test,
    identifiability,
    sensitivity,
)
from .least_squares import LeastSquares, covariance
from .parameters import Parameter, Parameters
from .prediction import Prediction, predict, prediction_of
from .problem import DOUBTFUL, FitProblem
from .record import Record, as_records
from .residuals import Data
from .rig import with_clocks
from .sensors import Sensor


@printed
class Estimate(eqx.Module):
    """The result of `fit`; `print` it.

    **Fields:**

    - `values`: the values of the parameters by name. `system`, `sensors`: the model and the sensors
      with these values.
    - `names`, `entries`: all numbers of the values, `(e,)`, with names such as `mass`, `point[0]`.
    - `covariance`: the covariance of `entries`, s^2 (J^T J)^-1 transformed from the free numbers,
      `(e, e)`. Its diagonal is infinite for entries that the measurements do not determine.
    - `starts`: the state at the first sample of each record.
    - `prediction`: the motions and the measurements.
    - `noise`: s, the standard deviation of the weighted residuals.
    - `freedom`: the number of measurements minus the number of estimated numbers.
    - `iterations`, `seconds`, `result`: those of the search.
    - `sensitivity`: the residuals and their Jacobian for the free numbers of the parameters.
    """

    values: dict[str, PyTree]
    system: AbstractSystem
    sensors: dict[str, Sensor]
    names: tuple[str, ...]
    entries: np.ndarray
    covariance: np.ndarray
    starts: tuple[State, ...]
    prediction: Prediction
    noise: float
    freedom: int
    iterations: int
    seconds: float
    result: RESULTS
    sensitivity: Sensitivity
    problem: FitProblem
    z: Float[Array, " n"]

    @classmethod
    def at(
        cls, problem: FitProblem, search: LeastSquares, data: Data, seconds: float
    ) -> "Estimate":
        """The result of a search with these data."""
        z = search.value
        parameters = problem.residuals.parameters
        size = parameters.size
        values, (system, sensors), entries, D = _evaluated(problem, z)
        rig = problem.residuals.simulation.rig
        if any(getattr(x, "__closure__", None) for x in jax.tree.leaves((system, sensors))):
            # Functions made by the model, whose values in a compiled program are no numbers.
            rigged = rig(values)
            system, sensors = rigged.system, tuple(rigged.named.values())
        found = search.aux
        multipliers = data.multipliers
        sens = sensitivity(
            search.residuals,
            search.jacobian,
            size,
            data.parts.measured.size,
            multipliers.equality.size,
            float(multipliers.penalty),
        )
        r = sens.residuals
        freedom = max(problem.count - size - sens.nuisance, 1)
        own = np.asarray(found.first)[np.asarray(data.begins)]
        nq = data.starts[0].shape[1]
        starts = tuple(
            State(float(record.time[0]), to_jax(x[:nq]), to_jax(x[nq:]))
            for record, x in zip(problem.records, own, strict=True)
        )
        return cls(
            values=values,
            system=system,
            sensors=dict(zip(problem.names, sensors, strict=True)),
            names=parameters.names,
            entries=np.asarray(entries),
            covariance=covariance(sens.jacobian, r, problem.count - sens.nuisance, D),
            starts=starts,
            prediction=prediction_of(problem, found),
            noise=float(np.sqrt(r @ r / freedom)),
            freedom=freedom,
            iterations=search.iterations,
            seconds=seconds,
            result=search.result,
            sensitivity=sens,
            problem=problem,
            z=z,
        )

    @property
    def sigma(self) -> np.ndarray:
        """The standard deviation of each entry, if the residuals are independent noise."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def correlation(self) -> np.ndarray:
        """The correlations of the entries, `(e, e)`."""
        finite = np.isfinite(self.sigma) & (self.sigma > 0)
        scale = np.where(finite, self.sigma, 1.0)
        C = np.where(np.outer(finite, finite), self.covariance, 0.0) / np.outer(scale, scale)
        np.fill_diagonal(C, 1.0)
        return C

    @property
    def inflation(self) -> float:
        """The factor by which intervals are too short if successive residuals are correlated: the
        largest square root of `ColumnTest.correlation` over the columns; 1 for noise."""
        tests = self.residual_tests().values()
        return max(float(np.sqrt(t.correlation)) if t.white < 1e-3 else 1.0 for t in tests)

    @checked
    def interval(
        self, level: Annotated[float, inside(0, 1)] = 0.95, *, inflated: bool = False
    ) -> np.ndarray:
        """Confidence intervals of the entries from Student's distribution, `(e, 2)`; multiplied by
        `inflation` if `inflated`.

        They are intervals of the free numbers, mapped to values by the transforms. Intervals of
        `Positive` are factors up and down, and those of `Bounded` and `NotNegative` end at the
        bounds."""
        half = scipy.special.stdtrit(self.freedom, (1 + level) / 2) * self.sigma
        half = half * (self.inflation if inflated else 1.0)
        parameters = self.problem.residuals.parameters
        return np.stack(
            interval_ends(parameters, picked(self.z, np.s_[: parameters.size]), half), axis=1
        )

    @checked
    def derived(
        self, quantities: Callable[[dict[str, PyTree]], Mapping[str, ArrayLike]]
    ) -> dict[str, tuple[float, float]]:
        """Compute quantities that depend on the values, such as a frequency from a stiffness and a
        mass: name -> (value, standard deviation), to first order. A combination may be determined
        even if its parameters are not. If it is not determined, its standard deviation is infinite.

        **Arguments:** `quantities`: values -> name -> number, written with `jax.numpy`.
        """
        parameters, sens = self.problem.residuals.parameters, self.sensitivity

        def of(z):
            return {name: jnp.asarray(x) for name, x in quantities(parameters.values(z)).items()}

        z = self.z[: parameters.size]
        found, D = jax.jit(lambda z: (of(z), jax.jacfwd(of)(z)))(z)
        for name, value in found.items():
            if value.shape != ():
                raise ValueError(f'"{name}" must be one number, but has shape {value.shape}.')
        count = self.problem.count - sens.nuisance
        C = covariance(sens.jacobian, sens.residuals, count, np.stack([D[name] for name in found]))
        sigmas = np.sqrt(np.diag(C)).tolist()
        return {name: (float(found[name]), s) for name, s in zip(found, sigmas, strict=True)}

    @property
    def unconnected(self) -> tuple[str, ...]:
        """The free numbers that no measurement depends on."""
        J = self.sensitivity.jacobian[: self.sensitivity.samples]
        lost = np.all(J == 0, axis=0)
        names = self.problem.residuals.parameters.free_names
        return tuple(name for name, zero in zip(names, lost, strict=True) if zero)

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The parameters with the estimates as their guesses, without priors: for a fit of more, or
        of a finer model."""
        known = self.problem.residuals.parameters.items()
        return {name: Parameter(self.values[name], each.transform) for name, each in known}

    @property
    def at_bounds(self) -> tuple[str, ...]:
        """The free numbers that ended at a bound."""
        parameters = self.problem.residuals.parameters
        z, (lower, upper) = np.asarray(self.z)[: parameters.size], parameters.bounds
        there = (z <= lower) | (z >= upper)
        return tuple(name for name, at in zip(parameters.free_names, there, strict=True) if at)

    def identifiability(self) -> Identifiability:
        """Which combinations of the parameters the measurements determine, and which they do not.
        Priors are left out."""
        names, (_, J, samples, _) = self.problem.residuals.parameters.free_names, self.sensitivity
        return identifiability(J[:samples], self.noise, names)

    def residual_tests(self) -> dict[str, ColumnTest]:
        """Tests of whether the residuals are noise, column by column."""
        return {
            label: column_test(
                [
                    error[~np.isnan(error[:, j]), j]
                    for error in self.prediction.errors
                    if np.any(~np.isnan(error[:, j]))
                ]
            )
            for j, label in enumerate(self.prediction.labels)
        }

    @checked
    def predict(
        self,
        records: Record | Sequence[Record],
        values: Mapping[str, PyTree] | None = None,
        *,
        starts: Sequence[State] | None = None,
    ) -> Prediction:
        """Simulate other records for validation, each from its own start, read by the sensors that
        were found. Records with the name of one that was fitted have its clock.

        **Arguments:**

        - `values`: other values of parameters to compare with, by name; default the estimates.
        - `starts`: a state for each record instead of its own, such as the `starts` that were found
          with the first parts of the same records, see `Record.split`.

        **Raises:** `ValueError` for unknown names in `values`, and for another number of starts.
        """
        known = self.values
        if values is not None:
            unknown = set(values) - set(known)
            if unknown:
                raise ValueError(f"There is no parameter {sorted(unknown)} among {sorted(known)}.")
            known = {**known, **jax.tree.map(jnp.asarray, dict(values))}
        records = as_records(records)
        if starts is not None:
            if len(starts) != len(records):
                raise ValueError(f"{len(starts)} starts were given for {len(records)} records.")
            records = [
                eqx.tree_at(lambda r: r.start, record, start, is_leaf=callable)
                for record, start in zip(records, starts, strict=True)
            ]
        problem, simulation = self.problem, self.problem.residuals.simulation
        rigged = simulation.rig(known)
        return predict(
            rigged.system,
            with_clocks(records, known),
            rigged.named,
            dt=problem.dt,
            enforcement=simulation.enforcement,
            scheme=simulation.scheme,
        )

    @checked
    def save(self, path: str | os.PathLike) -> None:
        """Write estimates, intervals and tests to a JSON file; see `load_estimate`."""
        tests = {label: test._asdict() for label, test in self.residual_tests().items()}
        content = {
            "format": "jaxmbd estimate 1",
            "parameters": {
                name: {"value": value, "sigma": sigma, "interval_95": interval}
                for name, value, sigma, interval in zip(
                    self.names,
                    self.entries.tolist(),
                    self.sigma.tolist(),
                    self.interval().tolist(),
                    strict=True,
                )
            },
            "covariance": self.covariance.tolist(),
            "noise": self.noise,
            "inflation": self.inflation,
            "residuals": tests,
            "undetermined": [str(c) for c in self.identifiability().undetermined],
            "result": RESULTS[self.result],
            "simulated": self.prediction.successful,
            "iterations": self.iterations,
            "seconds": self.seconds,
        }
        pathlib.Path(path).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def __str__(self) -> str:
        width = max(9, *(len(name) for name in self.names))
        lines = [f"{'':{width}}  {'estimate':>12}  {'sigma':>9}   95 % interval"]
        for name, value, sigma, (low, high) in zip(
            self.names, self.entries, self.sigma, self.interval(), strict=True
        ):
            lines.append(f"{name:{width}}  {value:12.6g}  {sigma:9.2g}   {low:.6g} ... {high:.6g}")
        lines.append("residuals:")
        lines += [f"  {label}: {test}" for label, test in self.residual_tests().items()]
        if self.inflation > 1.1:
            lines.append(
                f"  They resemble their neighbours: sigmas are up to {self.inflation:.1f} times as "
                "large."
            )
        weak = self.identifiability().undetermined
        if weak:
            lines.append("not determined:")
            lines += [f"  {str(c).removesuffix(': not determined')}" for c in weak]
        if self.at_bounds:
            lines.append(
                f"at a bound: {', '.join(self.at_bounds)}: intervals hold if it may move from there"
            )
        ratio = self.problem.times_noise(self.sensitivity.residuals)
        if ratio > DOUBTFUL:
            lines.append(
                f"What is left is {ratio:.2g} times the noise that the weights state: a local "
                "minimum, a long step, or another model? See `check_model`."
            )
        if not succeeded(self.result):
            lines.append(f"NOT CONVERGED, do not trust the figures above: {RESULTS[self.result]}")
        for record, result in zip(self.prediction.records, self.prediction.results, strict=True):
            if not succeeded(result):
                lines.append(f'"{record.name}" was not simulated to its end: {RESULTS[result]}')
        lines.append(f"{self.iterations} iterations in {self.seconds:.1f} s, with compilation")
        return "\n".join(lines)


@checked
def load_estimate(path: str | os.PathLike) -> dict[str, PyTree]:
    """Load a file of `Estimate.save`, with `values` and `sigma` by name and the `covariance`.

    **Raises:** `ValueError` for another file."""
    try:
        content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON file: {error}") from error
    if not isinstance(content, dict) or "jaxmbd estimate" not in str(content.get("format")):
        raise ValueError(f"{path} was not written by `Estimate.save`.")
    content["values"] = {name: p["value"] for name, p in content["parameters"].items()}
    content["sigma"] = {name: p["sigma"] for name, p in content["parameters"].items()}
    content["covariance"] = np.array(content["covariance"], float)
    return content


@compiled_quickly
def interval_ends(parameters: Parameters, z: Array, half: Array) -> tuple[Array, Array]:
    return parameters.interval(z, jnp.asarray(half, z.dtype))


@eqx.filter_jit
def _evaluated(problem: FitProblem, z):
    parameters = problem.residuals.parameters
    shared = z[: parameters.size]
    values = parameters.values(shared)
    D = jax.jacfwd(parameters.entries)(shared)
    rigged = problem.residuals.simulation.rig(values)
    found = rigged.system, tuple(rigged.named.values())
    return values, found, parameters.entries(shared), D


@printed
class Bootstrap(NamedTuple):
    """The estimates from repetitions of a measurement.

    **Fields:** `names` of the entries; `entries`, `(count, e)`; `sigma`, the standard deviations
    that each repetition estimates, `(count, e)`; `result`, a verdict for each; `truth`, the
    entries with which the measurements were simulated, `(e,)`; `freedom`, that of each fit.
    """

    names: tuple[str, ...]
    entries: np.ndarray
    sigma: np.ndarray
    result: RESULTS
    truth: np.ndarray
    freedom: int

    def __str__(self) -> str:
        good = succeeded(self.result)
        rows = [f"{good.sum()} of {good.size} repetitions converged"]
        if good.any():
            mean, spread = self.entries[good].mean(axis=0), self.entries[good].std(axis=0)
            for name, *x in zip(self.names, self.truth, mean, spread, strict=True):
                rows.append(f"  {name}: true {x[0]:.6g}, found {x[1]:.6g} +- {x[2]:.2g}")
        return "\n".join(rows)

    @checked
    def coverage(self, level: Annotated[float, inside(0, 1)] = 0.95) -> np.ndarray:
        """The share of the converged repetitions in which the interval of each entry contains the
        truth, `(e,)`."""
        half = scipy.special.stdtrit(self.freedom, (1 + level) / 2) * self.sigma
        inside = np.abs(self.entries - self.truth) <= half
        return inside[succeeded(self.result)].mean(axis=0)


@checked
def bootstrap(
    estimate: Estimate,
    key: Annotated[PyTree, random_key],
    count: Annotated[int, at_least(1)] = 200,
    *,
    batch: Annotated[int, at_least(1)] = 50,
    max_iterations: Annotated[int, at_least(1)] = 30,
    tolerance: Annotated[float, positive] = 1e-6,
) -> Bootstrap:
    """Do a parametric bootstrap: simulate with the estimated parameters, add normal noise of the
    size of the residuals, and find the parameters again, `count` times. The scatter is the
    uncertainty without linearisation. The share of intervals that contain the truth tells whether
    they can be trusted.

    **Arguments:** `key`: a random key. `batch`: the number of simultaneous searches.
    `max_iterations`, `tolerance`: of each search, which starts at the estimate.

    **Raises:** `ValueError` for an estimate by multiple shooting. Fit again by single shooting.

    Reference: Efron and Tibshirani (1993), An Introduction to the Bootstrap, chapter 6.
    """
    problem = estimate.problem
    if problem.partition.links:
        raise ValueError("Repetitions need `SingleShooting()`, but this fit has parts that meet.")
    found = _repeated(
        problem,
        estimate.z,
        estimate.noise,
        jax.random.split(key, count),
        batch,
        max_iterations,
        tolerance,
    )
    entries, sigma, result = jax.tree.map(np.asarray, found)
    return Bootstrap(estimate.names, entries, sigma, result, estimate.entries, estimate.freedom)


@eqx.filter_jit
def _repeated(problem, z, noise, keys, batch, max_iterations, tolerance):
    residuals, data = problem.residuals, problem.data
    parameters = residuals.parameters
    readings = residuals.motions(z, data).readings
    weights = data.parts.weights
    spread = jnp.where(weights > 0, noise / jnp.where(weights > 0, weights, 1.0), 0.0)

    def one(key):
        made = readings + spread * jax.random.normal(key, readings.shape, readings.dtype)
        again = data._replace(parts=data.parts._replace(measured=made))
        value, r, J, result = problem.search(z, again, max_iterations, tolerance)
        s2 = jnp.sum(r * r) / (problem.count - problem.size)
        size = jnp.linalg.norm(J, axis=0)
        size = jnp.where(size > 0, size, 1.0)
        # A QR decomposition is more accurate than J^T J, whose condition number is squared.
        root = jnp.linalg.inv(jnp.linalg.qr(J / size[None, :], mode="r")) / size[:, None]
        shared = value[: parameters.size]
        D = jax.jacfwd(parameters.entries)(shared) @ root[: parameters.size]
        return parameters.entries(shared), jnp.sqrt(s2 * jnp.sum(D * D, axis=1)), result

    return jax.lax.map(one, keys, batch_size=batch)

"""The scatter of estimates from many synthetic measurements."""

from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

from .._inputs import at_least, checked, inside, positive, random_key
from .._printed import printed
from .estimate import Estimate


@printed
class Bootstrap(NamedTuple):
    """The estimates from repetitions of a measurement.

    **Fields:** `names` of the entries; `entries`, `(count, e)`; `sigma`, the standard deviations
    that each repetition estimates, `(count, e)`; `converged`, `(count,)`; `truth`, the entries with
    which the measurements were simulated, `(e,)`; `freedom`, the degrees of freedom of each fit.
    """

    names: tuple[str, ...]
    entries: np.ndarray
    sigma: np.ndarray
    converged: np.ndarray
    truth: np.ndarray
    freedom: int

    def __str__(self) -> str:
        good = np.asarray(self.converged)
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
        return inside[self.converged].mean(axis=0)


@checked
def bootstrap(
    estimate: Estimate,
    key: Annotated[Any, random_key],
    count: Annotated[int, at_least(1)] = 200,
    *,
    batch: Annotated[int, at_least(1)] = 50,
    max_steps: Annotated[int, at_least(1)] = 30,
    tolerance: Annotated[float, positive] = 1e-6,
) -> Bootstrap:
    """Do a parametric bootstrap: simulate with the estimated parameters, add normal noise of the
    size of the residuals, and find the parameters again, `count` times. The scatter is the
    uncertainty without linearisation. The share of intervals that contain the truth tells whether
    they can be trusted.

    **Arguments:** `key`: a random key. `batch`: the number of simultaneous searches. `max_steps`,
    `tolerance`: those of each search, which starts at the estimate.

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
        max_steps,
        tolerance,
    )
    entries, sigma, converged = jax.tree.map(np.asarray, found)
    return Bootstrap(estimate.names, entries, sigma, converged, estimate.entries, estimate.freedom)


@eqx.filter_jit
def _repeated(problem, z, noise, keys, batch, max_steps, tolerance):
    residuals, data = problem.residuals, problem.data
    parameters = residuals.parameters
    readings = residuals.motions(z, data).readings
    weights = data.parts.weights
    spread = jnp.where(weights > 0, noise / jnp.where(weights > 0, weights, 1.0), 0.0)

    def one(key):
        made = readings + spread * jax.random.normal(key, readings.shape, readings.dtype)
        again = data._replace(parts=data.parts._replace(measured=made))
        value, r, J, converged = problem.search(z, again, max_steps, tolerance)
        s2 = jnp.sum(r * r) / (problem.count - problem.size)
        size = jnp.linalg.norm(J, axis=0)
        size = jnp.where(size > 0, size, 1.0)
        # A QR decomposition is more accurate than J^T J, whose condition number is squared.
        root = jnp.linalg.inv(jnp.linalg.qr(J / size[None, :], mode="r")) / size[:, None]
        shared = value[: parameters.size]
        D = jax.jacfwd(parameters.entries)(shared) @ root[: parameters.size]
        return parameters.entries(shared), jnp.sqrt(s2 * jnp.sum(D * D, axis=1)), converged

    return jax.lax.map(one, keys, batch_size=batch)

"""The posterior density of parameters, for samplers."""

from collections.abc import Callable
from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._compiler import entry, one_by_one, replaced, to_jax
from .._inputs import checked, positive
from .._results import succeeded
from .._types import Scalar
from .estimate import Estimate
from .identifiability import identifiability
from .problem import FitProblem
from .residuals import Data, PartMotion, Residuals, Squares

# Free numbers, whose typical change is 1, are taken to have this precision (the inverse of the
# standard deviation) at least.
_VAGUE = 1e-2


class LogDensity(eqx.Module):
    """The logarithm of a posterior density, up to a constant, as a function of unconstrained
    numbers w, `(size,)`; from `log_density`. Under `jax.vmap` it is that of all chains.

    **Fields:** `names` of the entries of the values, as in `Estimate.names`.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    residuals: Residuals
    data: Data
    coordinates: "_Coordinates"
    count: int = eqx.field(static=True)
    noise: float | None
    prior: Callable[[dict[str, PyTree]], Scalar] | None

    def __hash__(self):
        return id(self)  # JAX asks for it in `jax.jit(density)`

    @property
    def size(self) -> int:
        """The number of unconstrained numbers: those of the parameters, then of the starts."""
        return self.coordinates.center.shape[0]

    def __call__(self, w: Float[Array, " n"]) -> Scalar:
        """The logarithm of the density at w; -inf where a simulation fails."""
        return _with_finite_slope(self, w)

    def _value(self, w: Float[Array, " n"]) -> Scalar:
        z, volume = self.coordinates(w)
        parameters = self.residuals.parameters
        shared = z[: parameters.size]
        r, good = _rows(self.residuals, z, self.data)
        samples = self.data.parts.measured.size
        squares, prior = jnp.sum(r[:samples] ** 2), jnp.sum(r[samples:] ** 2)
        if self.noise is None:
            misfit = self.count * jnp.log(squares)
        else:
            misfit = squares / self.noise**2
        found = -(misfit + prior) / 2
        found += volume + parameters.log_volume(shared)
        if self.prior is not None:
            found += jnp.asarray(self.prior(parameters.values(shared)), w.dtype)
        return jnp.where(good & jnp.isfinite(found), found, -jnp.inf)

    def values(self, w: Float[Array, " n"]) -> dict[str, PyTree]:
        """The values of the parameters at w, by name."""
        return self.residuals.parameters.values(self._shared(w))

    def entries(self, w: Float[Array, " n"]) -> Float[Array, " e"]:
        """All numbers of the values at w, in the order of `names`."""
        return self.residuals.parameters.entries(self._shared(w))

    def _shared(self, w) -> Float[Array, " p"]:
        return self.coordinates(w)[0][: self.residuals.parameters.size]


@checked
def log_density(
    estimate: Estimate,
    *,
    noise: Annotated[float | None, positive] = None,
    prior: Callable[[dict[str, PyTree]], Scalar] | None = None,
) -> LogDensity:
    r"""The posterior density of the parameters, and of the starts if they are unknown, for samplers
    such as those of BlackJAX and NumPyro:

    $$
    \log p(w) = \log L + \log \pi(p) + \tfrac12 \log \det D^T D, \quad D = \frac{dp}{dw}, \quad
    L = \begin{cases} e^{-|r|^2 / 2 s^2} & \text{noise } s \\
    |r|^{-N} & \text{unknown noise} \end{cases}
    $$

    with N weighted residuals r and the values p. w are numbers without bounds: w = 0 is the
    estimate, and the covariance of the fit makes w nearly independent, with standard deviations
    near 1. The last term is what turns a density of values into one of w, so the result does not
    depend on transforms.

        density = identify.log_density(found)
        kernel = blackjax.nuts(density, ...)                # BlackJAX
        NUTS(potential_fn=lambda w: -density(w))            # NumPyro
        jax.vmap(density.values)(samples)                   # name -> values of all samples

    The gradient comes from forward sensitivities. It is zero where a simulation fails.

    **Arguments:**

    - `estimate`: the result of `fit`, by `SingleShooting()` or `GuidedShooting()`.
    - `noise`: the standard deviation of the weighted residuals; 1 if the weights are right.
      Default: unknown, with density 1/s (Jeffreys), and integrated out.
    - `prior`: values -> log of their prior density, up to a constant. Default 0: all values within
      their bounds are as likely as others; for directions and orientations, all angles. Normal
      priors of a `Parameter` are multiplied to it.

    **Raises:** `ValueError` for parts that have to meet (`MultipleShooting`); for a robust loss
    without `noise`; and, unless a `prior` is given, if measurements and priors leave combinations
    of unbounded parameters undetermined, as no density exists then.

    Reference: Gelman et al. (2013), Bayesian Data Analysis, sections 3.2 and 14.2.
    """
    problem, residuals = estimate.problem, estimate.problem.residuals
    if problem.partition.links:
        raise ValueError(
            "A density needs simulations without parts that have to meet: `fit` again by "
            "`SingleShooting()`, from `estimate.parameters`."
        )
    if noise is None and not isinstance(residuals.loss, Squares):
        raise ValueError(
            f"With {type(residuals.loss).__name__} the noise cannot be integrated out: give "
            f"`noise`, such as `estimate.noise`, {estimate.noise:.3g}."
        )
    data = problem.data
    r, J, _ = eqx.filter_jit(Residuals.jacobian)(residuals, estimate.z, data)
    r, J = np.asarray(r, float), np.asarray(J, float)
    if prior is None:
        _check_determined(problem, J)
    coordinates = _whitened(problem, np.asarray(estimate.z, float), r, J, noise)
    names, count = estimate.names, problem.count
    return LogDensity(names, residuals, data, coordinates, count, noise, prior)


def _check_determined(problem: FitProblem, J: np.ndarray) -> None:
    """**Raises:** `ValueError` for combinations of unbounded numbers that nothing determines."""
    lower, upper = problem.bounds
    names = problem.residuals.parameters.free_names
    names += tuple(f"start~{i}" for i in range(len(lower) - len(names)))
    free = ~(np.isfinite(lower) & np.isfinite(upper))
    names = tuple(name for name, each in zip(names, free, strict=True) if each)
    # Rows of priors count like others.
    found = identifiability(J[:, free], 1.0, names).combinations if names else ()
    lost = [x for x in found if np.isinf(x.sigma)]
    if lost:
        raise ValueError(
            "There is no posterior density, since measurements and priors leave open "
            f"{'; '.join(str(x).removesuffix(': not determined') for x in lost)}. Give these "
            "parameters a `sigma`, `Bounded` values, or a `prior`."
        )


class _Coordinates(eqx.Module):
    r"""The map from unconstrained numbers w to the free numbers z, between their bounds l and u. In
    an order in which those near a bound come first, with a lower triangular L,

        x_k = c_k + sum_{j<k} L_kj (z_j's w) + L_kk w_k,
        z_k = x_k + d_k softplus((l_k - x_k) / d_k) - d_k softplus((x_k - u_k) / d_k).

    Farther than d from bounds z = x, and z = c + L w. Where a number stays at its bound, those that
    depend on it stay too: "z_j's w" is what would give z_j without the bound. Without this a
    posterior along a thin oblique needle would have a sharp bend there."""

    order: tuple[int, ...] = eqx.field(static=True)
    center: Float[Array, " n"]
    root: Float[Array, "n n"]
    bounds: tuple[Float[Array, " b"], Float[Array, " b"], Float[Array, " b"]]

    def __call__(self, w: Float[Array, " n"]) -> tuple[Float[Array, " n"], Scalar]:
        """z, and log det dz/dw up to a constant."""

        count = self.bounds[0].shape[0]

        def bound(w, at_k):
            k, c, row, *sides = at_k
            x = c + row @ w
            z, log_slope = _between(x, *sides)
            return replaced(w, entry(w, k) + (z - x) / entry(row, k), k), log_slope

        places = jnp.arange(count), self.center[:count], self.root[:count], *self.bounds
        w, log_slopes = jax.lax.scan(bound, w, places)
        z = self.center + self.root @ w
        return z[np.argsort(self.order)], jnp.sum(log_slopes)


def _between(x, lower, upper, length):
    """z(x) and log dz/dx."""
    below, above = (lower - x) / length, (x - upper) / length
    z = x + length * (jax.nn.softplus(below) - jax.nn.softplus(above))
    both = jnp.log1p(-jnp.exp((lower - upper) / length))
    return z, jax.nn.log_sigmoid(-below) + jax.nn.log_sigmoid(-above) + both


def _unbounded(z, lower, upper, length):
    """x(z), for z between the bounds."""
    low, high = (np.log1p(-np.exp(-gap / length)) for gap in (z - lower, upper - z))
    return z + length * (low - high)


def _whitened(
    problem: FitProblem, z: np.ndarray, r: np.ndarray, J: np.ndarray, noise: float | None
) -> _Coordinates:
    """The coordinates in which the posterior is nearly the standard normal distribution."""
    samples, n, J = problem.data.parts.measured.size, len(z), J.copy()
    left = float(np.linalg.norm(r[:samples])) / np.sqrt(max(problem.count - n, 1))
    J[:samples] /= noise or left or 1.0
    lower, upper = problem.bounds
    # What is not known at all has the precision of a uniform distribution between its bounds.
    vague = np.diag(np.maximum(_VAGUE, np.sqrt(12) / (upper - lower)))
    J = np.concatenate([J, vague])
    sigma = np.linalg.norm(np.linalg.inv(np.linalg.qr(J, mode="r")), axis=1)
    order = np.argsort(np.minimum(z - lower, upper - z) / sigma, kind="stable")
    # R^-1 of J = Q R is a root of (J^T J)^-1, without the square of the condition of J. From
    # reversed columns it becomes lower triangular.
    R = np.linalg.qr(J[:, order[::-1]], mode="r")
    root = np.linalg.inv(R)[::-1, ::-1]
    root = root * np.sign(np.diag(root))
    z, lower, upper = z[order], lower[order], upper[order]
    length = np.minimum(np.diag(root), (upper - lower) / 4)
    # At a bound x is infinite: a standard deviation away is near enough.
    z = np.clip(z, lower + length, upper - length)
    x = _unbounded(z, lower, upper, length)
    center, w = x.copy(), np.zeros(n)
    for k in range(n):
        center[k] -= root[k] @ w
        w[k] = (z[k] - x[k]) / root[k, k]
    bounded = np.isfinite(lower) | np.isfinite(upper)
    lower, upper, length = (to_jax(side[bounded]) for side in (lower, upper, length))
    return _Coordinates(tuple(order.tolist()), to_jax(center), to_jax(root), (lower, upper, length))


@eqx.filter_custom_jvp
def _with_finite_slope(density: LogDensity, w: Float[Array, " n"]) -> Scalar:
    return density._value(w)


@_with_finite_slope.def_jvp
def _with_finite_slope_jvp(primals, tangents):
    # Samplers refuse a density of 0, but not always NaN. With any slope what they sample is right.
    (density, w), (_, dw) = primals, tangents
    value, slope = jax.value_and_grad(density._value)(w)
    slope = jnp.where(jnp.isfinite(value) & jnp.isfinite(slope), slope, 0.0)
    return value, slope @ dw


@eqx.filter_custom_jvp
def _rows(residuals: Residuals, z: Float[Array, " n"], data: Data) -> tuple[Array, Array]:
    """The residuals, and whether all simulations succeeded."""
    found = residuals.motions(z, data)
    return residuals.rows(z, found, data), _succeeded(found)


@_rows.def_jvp
def _rows_jvp(primals, tangents):
    # There are few unknowns: J by forward mode costs less than reverse mode, and holds no
    # simulation in memory.
    (residuals, z, data), (_, dz, _) = primals, tangents
    r, J, found = one_by_one(lambda z: residuals.jacobian(z, data), z)
    return (r, _succeeded(found)), (J @ dz, None)


def _succeeded(found: PartMotion) -> Array:
    return jnp.all(succeeded(found.result)) & jnp.all(jnp.isfinite(found.residuals))

"""The Levenberg-Marquardt method within bounds."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Float, PyTree

from .box import bounded_least_squares


def levenberg_marquardt(
    tolerance: Any, y: Float[Array, " p"], lower: Any = None, upper: Any = None
) -> optx.AbstractLeastSquaresSolver:
    """The method of optimistix, with steps that stay within the bounds of the vector y.
    `tolerance` is relative and absolute, for the last change of the unknowns and residuals."""
    lower = jnp.full_like(y, -jnp.inf) if lower is None else jnp.asarray(lower, y.dtype)
    upper = jnp.full_like(y, jnp.inf) if upper is None else jnp.asarray(upper, y.dtype)
    descent = _BoundedDescent(lower, upper)
    return _LevenbergMarquardt(rtol=tolerance, atol=tolerance, descent=descent)


class _BoundedDescent(optx.AbstractDescent):
    """The step d of a damped Gauss-Newton method in a box,

        min |J d + r|^2 + |d|^2 / step_size,    lower <= y + d <= upper,

    for y a vector.
    """

    lower: Float[Array, " n"]
    upper: Float[Array, " n"]

    def init(self, y: Any, f_info_struct: Any) -> Any:
        n = y.size
        return jnp.zeros((n, n), y.dtype), jnp.zeros_like(y), y

    def query(self, y: Any, f_info: Any, state: Any) -> Any:
        # min |J d + r| = min |R d + Q^T r|. R is small, because J has many rows and few columns.
        J, n = f_info.jac.as_matrix(), y.size
        J = jnp.pad(J, ((0, max(0, n - len(J))), (0, 0)))
        Q, R = jnp.linalg.qr(J)
        return R, Q[: f_info.residual.size].T @ f_info.residual, y

    def step(self, step_size: Any, state: Any) -> tuple[PyTree, optx.RESULTS]:
        R, r, y = state
        tiny = jnp.finfo(y.dtype).eps
        # Damping is never zero, so directions that R does not determine at all stay unchanged.
        damping = jnp.sqrt(1 / jnp.maximum(step_size, tiny))
        damping = jnp.maximum(damping, 10 * tiny * jnp.max(jnp.abs(R), initial=0.0))
        matrix = jnp.concatenate([R, damping * jnp.eye(y.size, dtype=y.dtype)])
        right = jnp.concatenate([-r, jnp.zeros_like(r)])
        lower, upper = self.lower - y, self.upper - y
        d = bounded_least_squares(matrix, right, lower, upper, jnp.zeros_like(y)).x
        # y + d may be rounded to outside of a bound, where parameters have no derivative.
        d = jnp.where(y + d < self.lower, d + 2 * tiny * jnp.maximum(jnp.abs(y), jnp.abs(d)), d)
        d = jnp.where(y + d > self.upper, d - 2 * tiny * jnp.maximum(jnp.abs(y), jnp.abs(d)), d)
        return d, optx.RESULTS.successful

    def gain(self, state: Any) -> Float[Array, ""]:
        """The decrease from |r|^2 to |J d + r|^2 by the longest step."""
        R, r, _ = state
        d, _ = self.step(jnp.inf, state)
        return jnp.sum(r**2) - jnp.sum((R @ d + r) ** 2)


def _silent(**_: Any) -> None:
    """Report nothing."""


class _LevenbergMarquardt(optx.AbstractGaussNewton):
    """The method also stops when no step can lower the sum of squares by more than its rounding.
    Optimistix tests only steps that lowered the sum. If the sum is large, the last steps change it
    by less than its rounding."""

    rtol: Any
    atol: Any
    descent: _BoundedDescent
    norm: Callable = eqx.field(default=optx.max_norm, static=True)
    # Optimistix lowers the damping only if the reduction is 99 % of the predicted one. Problems
    # with large residuals never reach that, and weakly determined directions hardly converge.
    # Nocedal and Wright (2006), Numerical Optimization, algorithm 4.1, take 75 %.
    search: optx.AbstractSearch[Any, Any, Any, Any] = optx.ClassicalTrustRegion(
        high_cutoff=0.75, low_cutoff=0.25
    )
    verbose: Callable = eqx.field(default=_silent, static=True)

    def terminate(self, fn, y, args, options, state, tags):
        done, result = super().terminate(fn, y, args, options, state, tags)
        r = state.f_info.residual
        eps = jnp.finfo(r.dtype).eps
        # If the last step did not lower the sum, the sum may be less accurate than its own
        # rounding, because of the rounding errors of the simulation.
        rounding = jnp.where(state.num_steps_since_acceptance > 0, eps**0.75, 8 * eps)
        nothing = self.descent.gain(state.descent_state) <= rounding * (r @ r)
        return done | (nothing & ~state.first_step), result

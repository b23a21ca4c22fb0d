"""Steps of Levenberg and Marquardt's method within bounds."""

from typing import Any

import jax
import jax.numpy as jnp
import optimistix as optx
from jaxtyping import Array, Bool, Float, PyTree


class BoundedDescent(optx.AbstractDescent):
    """The step d of a damped Gauss-Newton method in a box,

        min |J d + r|^2 + |d|^2 / step_size,    lower <= y + d <= upper,

    for y a vector. Which bounds hold is found by a primal-dual active set (Hintermueller, Ito,
    Kunisch 2003, The primal-dual active set strategy as a semismooth Newton method, SIAM J. Optim.
    13): a few small factorisations; should it cycle, the last d is cut off at the bounds, and the
    trust region decides.
    """

    lower: Float[Array, " n"]
    upper: Float[Array, " n"]

    def init(self, y: Any, f_info_struct: Any) -> Any:
        n = y.size
        return jnp.zeros((n, n), y.dtype), jnp.zeros_like(y), y

    def query(self, y: Any, f_info: Any, state: Any) -> Any:
        # min |J d + r| = min |R d + Q^T r|: the rows are many, the columns few.
        J, n = f_info.jac.as_matrix(), y.size
        J = jnp.pad(J, ((0, max(0, n - len(J))), (0, 0)))
        Q, R = jnp.linalg.qr(J)
        return R, Q[: f_info.residual.size].T @ f_info.residual, y

    def step(self, step_size: Any, state: Any) -> tuple[PyTree, optx.RESULTS]:
        R, r, y = state
        tiny = jnp.finfo(y.dtype).eps
        # However long the steps may be, what R does not tell at all stays where it is.
        damping = jnp.sqrt(1 / jnp.maximum(step_size, tiny))
        damping = jnp.maximum(damping, 10 * tiny * jnp.max(jnp.abs(R), initial=0.0))
        matrix = jnp.concatenate([R, damping * jnp.eye(y.size, dtype=y.dtype)])
        right = jnp.concatenate([-r, jnp.zeros_like(r)])
        d = bounded_least_squares(matrix, right, self.lower - y, self.upper - y)
        # y + d may round to the other side of a bound, where parameters have no derivative.
        d = jnp.where(y + d < self.lower, d + 2 * tiny * jnp.maximum(jnp.abs(y), jnp.abs(d)), d)
        d = jnp.where(y + d > self.upper, d - 2 * tiny * jnp.maximum(jnp.abs(y), jnp.abs(d)), d)
        return d, optx.RESULTS.successful

    def gain(self, state: Any) -> Float[Array, ""]:
        """By how much |J d + r|^2 is below |r|^2 at the end of the longest step."""
        R, r, _ = state
        d, _ = self.step(jnp.inf, state)
        return jnp.sum(r**2) - jnp.sum((R @ d + r) ** 2)


def bounded_least_squares(
    A: Float[Array, "m n"],
    b: Float[Array, " m"],
    lower: Float[Array, " n"],
    upper: Float[Array, " n"],
) -> Float[Array, " n"]:
    """x of min |A x - b|^2 with lower <= x <= upper, for A of full column rank."""

    def solved(low: Bool[Array, " n"], high: Bool[Array, " n"]):
        held = low | high
        x = jnp.where(low, lower, jnp.where(high, upper, 0.0))
        # Columns of held unknowns become those of the identity, in rows of their own.
        free = jnp.concatenate([jnp.where(held, 0.0, A), jnp.diag(held.astype(A.dtype))])
        Q, R = jnp.linalg.qr(free)
        right = jnp.concatenate([b - A @ x, jnp.zeros_like(x)])
        x = x + jax.scipy.linalg.solve_triangular(R, Q.T @ right)
        return x, A.T @ (A @ x - b)

    def searching(state):
        _, _, _, changed, count = state
        return changed & (count < 10 + 2 * lower.size)

    def once(state):
        low, high, _, _, count = state
        x, slope = solved(low, high)
        # A bound holds if x would cross it, or is there and the slope pushes on.
        new_low = jnp.where(low, slope > 0, x < lower)
        new_high = jnp.where(high, slope < 0, x > upper)
        changed = jnp.any((new_low != low) | (new_high != high))
        return new_low, new_high, x, changed, count + 1

    none = jnp.zeros(lower.shape, bool)
    state = none, none, jnp.zeros_like(lower), jnp.array(True), jnp.array(0)
    x = jax.lax.while_loop(searching, once, state)[2]
    return jnp.clip(x, lower, upper)

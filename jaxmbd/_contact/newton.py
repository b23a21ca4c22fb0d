"""Newton's method on the natural map, whose derivative is that of the active set.

Where a contact separates, P does not depend on its argument; where it sticks, P is the identity;
where it slips, P moves along the edge of the set. So F(lam) = lam - P(lam - z) has the derivative

    H = 1 - D (1 - S),    D = dP,

of which redundant contacts make a singular matrix: solves are of least norm.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .problem import ContactProblem, Impulses

# Of Tikhonov's regularisation, relative to entries of H, which are of the order 1; what it takes
# away, refinement gives back but where H is singular.
_RELATIVE = 1e-4
_REFINEMENTS = 3

# Step lengths that are tried, 1, 1/2, ...
_LENGTHS = 8


def natural_derivative(problem: ContactProblem, lam: Impulses) -> Float[Array, "n n"]:
    """H at lam."""
    count, d = lam.shape
    n = lam.size
    slopes = jax.vmap(jax.jacfwd(problem.groups.project))
    D = slopes(lam - problem.velocities(lam), problem.mu, problem.smoothing)
    rest = (jnp.eye(n, dtype=lam.dtype) - problem.S).reshape(count, d, n)
    return jnp.eye(n, dtype=lam.dtype) - jnp.einsum("cij,cjn->cin", D, rest).reshape(n, n)


class LeastNorm:
    """H x = r in the sense of least squares and least norm, by iterated Tikhonov regularisation
    (H^T H + delta) x = H^T r."""

    def __init__(self, H: Float[Array, "n n"]):
        self.H = H
        self.delta = (_RELATIVE * jnp.finfo(H.dtype).eps ** 0.5) * (1 + jnp.max(jnp.abs(H)) ** 2)
        normal = H.T @ H + self.delta * jnp.eye(H.shape[0], dtype=H.dtype)
        self.factor = jnp.linalg.cholesky(normal, symmetrize_input=False)

    def solve(self, r: Float[Array, " n"]) -> Float[Array, " n"]:
        """x."""
        x = jnp.zeros_like(r)
        for _ in range(_REFINEMENTS):
            x = x + self._normal(self.H.T @ (r - self.H @ x))
        return x

    def solve_transposed(self, r: Float[Array, " n"]) -> Float[Array, " n"]:
        """x of H^T x = r; the regularised inverse H^T H commutes past H: x = H (H^T H)^-1 r."""
        x = jnp.zeros_like(r)
        for _ in range(_REFINEMENTS):
            x = x + self.H @ self._normal(r - self.H.T @ x)
        return x

    def _normal(self, r):
        return jax.scipy.linalg.cho_solve((self.factor, True), r)


def newton(
    problem: ContactProblem, lam: Impulses, steps: int, bound: Float[Array, ""]
) -> tuple[Impulses, Float[Array, ""], Array]:
    """Damped steps until the residual is below `bound` [m/s], until none of the tried lengths
    makes the natural map smaller, or `steps` of them. Returns impulses, residual, iterations."""
    lengths = jnp.asarray([0.5**k for k in range(_LENGTHS)], lam.dtype)

    def merit(lam):
        return jnp.sum(problem.natural(lam) ** 2)

    def going(carry):
        _, residual, iteration, moved = carry
        return moved & (residual > bound) & (iteration < steps)

    def step(carry):
        lam, residual, iteration, _ = carry
        r = problem.natural(lam).ravel()
        H = natural_derivative(problem, lam)
        square = r @ r
        # Levenberg and Marquardt's damping fades with the residual: convergence is superlinear.
        damping = 1e-3 * jnp.minimum(square, 1.0) + 10 * jnp.finfo(r.dtype).eps ** 0.8
        normal = H.T @ H + damping * jnp.eye(r.size, dtype=r.dtype)
        factor = jnp.linalg.cholesky(normal, symmetrize_input=False)
        d = -jax.scipy.linalg.cho_solve((factor, True), H.T @ r).reshape(lam.shape)
        d = jnp.where(jnp.all(jnp.isfinite(d)), d, 0.0)
        tried = jax.vmap(lambda s: merit(lam + s * d))(lengths)
        best = jnp.argmin(tried)
        moved = tried[best] < square
        lam = jnp.where(moved, lam + lengths[best] * d, lam)
        return lam, problem.residual(lam), iteration + 1, moved

    start = (lam, problem.residual(lam), jnp.asarray(0), jnp.asarray(True))
    lam, residual, iterations, _ = jax.lax.while_loop(going, step, start)
    return lam, residual, iterations

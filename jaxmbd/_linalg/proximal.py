"""Redundant rows without an orthogonal decomposition."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .base import AbstractConstraintSolver
from .small import apply, inverse
from .whitened import Whitened, whiten


class _Factor(NamedTuple):
    whitened: Whitened
    G: Float[Array, "nc nc"]
    G_inv: Float[Array, "nc nc"]
    rho: Float[Array, ""]
    dependent: Bool[Array, ""]


class Proximal(AbstractConstraintSolver):
    """G^+ as the limit of proximal iterations with one factor of G + rho 1,

        lam <- lam + (G + rho 1)^-1 (s - G lam),    lam = 0 at first.

    A direction of stiffness sigma^2 in G converges with factor rho / (sigma^2 + rho); a dependent
    one keeps its unreachable part of s for good, which is taken out of lam again, so that lam has
    least norm as with the pseudoinverse.

    Choose it for redundant rows in larger systems: the cost of a Cholesky factorisation. Close to
    a singular pose, sigma^2 < rho, the row is softened rather than dropped.

    **Arguments:**

    - `rho`: relative to the mean of diag G; default 1e-10 (1e-5 in float32).
    - `refinements`: number of iterations after the first solve.

    Reference: Parikh and Boyd (2014), Proximal algorithms, section 4.1 (the proximal point
    method as iterative refinement).
    """

    rho: float | None = eqx.field(default=None, static=True)
    refinements: int = eqx.field(default=3, static=True)

    def __check_init__(self):
        if self.rho is not None and not self.rho > 0:
            raise ValueError(f"Argument `rho` must be positive, but is {self.rho}.")
        if self.refinements < 1:
            raise ValueError(f"Argument `refinements` must be at least 1: {self.refinements}.")

    def factorise(self, equations):
        whitened = whiten(equations)
        G = whitened.delassus(equations)
        m = G.shape[0]
        rho = self.rho
        if rho is None:
            rho = 1e-10 if G.dtype == jnp.float64 else 1e-5
        if m == 0:
            return _Factor(whitened, G, G, jnp.ones((), G.dtype), jnp.array(False))
        rho = rho * jnp.trace(G) / m + jnp.finfo(G.dtype).tiny
        G_inv, pivot = inverse(G + rho * jnp.eye(m, dtype=G.dtype))
        dependent = pivot * jnp.max(jnp.diagonal(G)) < 1e3 * rho
        return _Factor(whitened, G, G_inv, rho, dependent)

    def _refine(self, factor, s):
        lam = apply(factor.G_inv, s)
        for _ in range(self.refinements):
            lam = lam + apply(factor.G_inv, s - apply(factor.G, lam))
        return lam

    def free(self, factor, f):
        return factor.whitened.free(f)

    def solve(self, factor, f, r):
        x, s = factor.whitened.remainder(f, r)
        lam = self._refine(factor, s)
        # Each of the 1 + refinements solves has added (unreachable part)/rho to lam.
        lam = lam - (1 + self.refinements) / factor.rho * self.null(factor, s)
        return factor.whitened.unwhiten(x + apply(factor.whitened.C.T, lam)), lam

    def allows_dependent(self, nc):
        return nc > 1

    def null(self, factor, s):
        # Rounding leaves a remainder in the range of G too: one more solve contracts it, and
        # independent rows have no other.
        unreachable = s - apply(factor.G, self._refine(factor, s))
        cleaned = factor.rho * apply(factor.G_inv, unreachable)
        return jnp.where(factor.dependent, cleaned, 0.0)

    def result(self, factor):
        return factor.whitened.result(jnp.all(jnp.isfinite(factor.G_inv)))

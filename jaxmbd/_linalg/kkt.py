"""The full system of equations and multipliers."""

from typing import Annotated, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._compiler import apply, general_inverse
from .._inputs import checked, inside
from .._results import RESULTS
from .base import AbstractConstraintSolver


class _Factor(NamedTuple):
    K: Float[Array, "n n"]
    K_inv: Float[Array, "n n"]
    solvable: Bool[Array, ""]


@checked
class KKT(AbstractConstraintSolver):
    """The full Karush-Kuhn-Tucker system by elimination with partial pivoting,

        [ M  J^T ] [  a   ]   [ f ]
        [ J  -E  ] [ -lam ] = [ r ],

    with one step of refinement. Choose it when M itself is singular (massless coordinates) but
    positive definite on the admissible motion; otherwise it agrees with `Cholesky` and is
    slower. Dependent rows are reported as `RESULTS.singular_constraints`.
    """

    rtol: Annotated[float | None, inside(0, 1)] = eqx.field(default=None, static=True)

    def factorise(self, equations):
        M, J, E, _ = equations
        corner = jnp.zeros((J.shape[0],) * 2, J.dtype) if E is None else -jnp.diag(E)
        K = jnp.block([[M, J.T], [J, corner]])
        K_inv, pivots = general_inverse(K)
        rtol = 1e2 * jnp.finfo(K.dtype).eps if self.rtol is None else self.rtol
        return _Factor(K, K_inv, jnp.all(pivots > rtol * jnp.max(pivots)))

    def free(self, factor, f):
        nv = f.shape[0]
        M = factor.K[:nv, :nv]
        return _refined(M, general_inverse(M)[0], f)

    def solve(self, factor, f, r):
        z = _refined(factor.K, factor.K_inv, jnp.concatenate([f, r]))
        nv = f.shape[0]
        return z[:nv], -z[nv:]

    def allows_dependent(self, factor):
        del factor
        return False

    def dependent(self, factor):
        del factor
        return jnp.array(False)

    def null(self, factor, s):
        del factor
        return jnp.zeros_like(s)

    def result(self, factor):
        return RESULTS.where(factor.solvable, RESULTS.successful, RESULTS.singular_constraints)


def _refined(K: Array, K_inv: Array, b: Array) -> Array:
    z = apply(K_inv, b)
    return z + apply(K_inv, b - apply(K, z))

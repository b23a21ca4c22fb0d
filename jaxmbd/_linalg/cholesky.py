"""The fast solver for independent rows."""

from typing import Annotated, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._compiler import apply, inverse
from .._inputs import checked, inside
from .base import AbstractConstraintSolver
from .whitened import Whitened, whiten


class _Factor(NamedTuple):
    whitened: Whitened
    G: Float[Array, "nc nc"]
    G_inv: Float[Array, "nc nc"]
    solvable: Bool[Array, ""]


@checked
class Cholesky(AbstractConstraintSolver):
    """G^-1 by symmetric elimination of G = J M^-1 J^T, with one step of refinement.

    Choose it when the rows are independent at every pose of the motion. It is the fastest solver,
    and it is fused up to 9 rows. Dependent rows give `RESULTS.singular_constraints`.

    **Arguments:**

    - `rtol`: relative pivot below which rows count as dependent; default 1e4 * machine epsilon.
    """

    rtol: Annotated[float | None, inside(0, 1)] = eqx.field(default=None, static=True)

    def factorise(self, equations):
        whitened = whiten(equations)
        G = whitened.delassus(equations)
        if G.shape[0] == 0:
            return _Factor(whitened, G, G, jnp.array(True))
        rtol = 1e4 * jnp.finfo(G.dtype).eps if self.rtol is None else self.rtol
        G_inv, pivot = inverse(G)
        return _Factor(whitened, G, G_inv, pivot > rtol)

    def free(self, factor, f):
        return factor.whitened.free(f)

    def solve(self, factor, f, r):
        x, s = factor.whitened.remainder(f, r)
        lam = apply(factor.G_inv, s)
        lam = lam + apply(factor.G_inv, s - apply(factor.G, lam))
        return factor.whitened.unwhiten(x + apply(factor.whitened.C.T, lam)), lam

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
        return factor.whitened.result(factor.solvable)

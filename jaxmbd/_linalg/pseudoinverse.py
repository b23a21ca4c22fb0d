"""The solver by a rank-revealing pseudoinverse."""

from typing import Annotated, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._compiler import apply, inverse, product, pseudoinverse
from .._inputs import checked, inside
from .base import AbstractConstraintSolver
from .rank import cutoff
from .whitened import Whitened, whiten

# Above this relative pivot of C C^T the rows are safely independent. Forming C C^T squares the
# condition number, but still leaves twelve digits before the refinement.
_SAFE_PIVOT = 1e-4


class _Factor(NamedTuple):
    whitened: Whitened
    C_pinv: Float[Array, "ncols nc"]
    range: Float[Array, "nc nc"]
    kept: Bool[Array, " nc"]


@checked
class Pseudoinverse(AbstractConstraintSolver):
    """G^+ through the Cholesky factor of M and the pseudoinverse of C = J R^-1,

        M^-1 J^T G^+ = R^-1 C^+,    M = R^T R.

    Choose it when rows may be redundant or poses singular. The motion and the reaction J^T lam are
    unique even then. Of all multipliers, the ones of least norm are returned.

    Rows that are clearly independent take a faster path by the inverse of C C^T. Only near a rank
    deficiency are the rows orthogonalised (up to 128 rows on a CPU) or decomposed by the SVD.

    **Arguments:**

    - `rtol`: sine of the angle up to which a row counts as lying in the span of others. The default
      is 1e-10 (1e-3 in float32), and more if the violation of the rows may have rotated redundant
      rows against each other.

    Reference: Braun and Goldfarb (2009), Eliminating constraint drift, equations (11), (15) and
    section 3.
    """

    rtol: Annotated[float | None, inside(0, 1)] = eqx.field(default=None, static=True)

    def factorise(self, equations):
        whitened = whiten(equations)
        C = whitened.C
        if equations.E is not None:
            # A compliant row equals a rigid row with an additional column sqrt(E) of its own.
            C = jnp.concatenate([C, jnp.diag(jnp.sqrt(equations.E))], axis=1)
        m = C.shape[0]
        rtol = cutoff(self.rtol, 1e-10, 1e-3, equations.tilt, C.dtype)
        if m == 0:
            return _Factor(whitened, C.T, C @ C.T, jnp.zeros(0, bool))
        if m == 1:
            return _Factor(whitened, *pseudoinverse(C, rtol))

        G_inv, pivot = inverse(product(C, C.T))
        safe = pivot > jnp.maximum(_SAFE_PIVOT, rtol**2)

        def independent():
            identity = jnp.eye(m, dtype=C.dtype)
            C_pinv = product(C.T, G_inv)
            # One Newton-Schulz step recovers the digits that were lost by squaring C.
            C_pinv = C_pinv + product(C_pinv, identity - product(C, C_pinv))
            return C_pinv, identity, jnp.ones(m, bool)

        return _Factor(
            whitened,
            *jax.lax.cond(safe, independent, lambda: pseudoinverse(C, rtol)),
        )

    def free(self, factor, f):
        return factor.whitened.free(f)

    def solve(self, factor, f, r):
        nv = f.shape[0]
        x, s = factor.whitened.remainder(f, r)
        y = apply(factor.C_pinv, s)
        return factor.whitened.unwhiten(x + y[:nv]), apply(factor.C_pinv.T, y)

    def cutoff_given(self):
        return self.rtol is not None

    def allows_dependent(self, factor):
        return factor.kept.shape[0] > 1

    def dependent(self, factor):
        return ~jnp.all(factor.kept)

    def null(self, factor, s):
        unreachable = s - apply(factor.range, apply(factor.range.T, s))
        return jnp.where(self.dependent(factor), unreachable, 0.0)

    def result(self, factor):
        return factor.whitened.result(jnp.array(True))

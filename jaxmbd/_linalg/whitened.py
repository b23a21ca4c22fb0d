"""The equations in coordinates in which the mass matrix is the identity."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._compiler import apply, product, whitener
from .._results import RESULTS
from .._types import Force, MassMatrix, Rows, Velocity
from .base import ConstraintEquations


class Whitened(NamedTuple):
    """W with W M W^T = 1, and C = J W^T (C = A R^-1 of Braun and Goldfarb 2009, section 3), so
    that G = C C^T + E and M^-1 J^T = W^T C^T."""

    W: MassMatrix
    C: Float[Array, "nc nv"]
    positive_definite: Bool[Array, ""]

    def free(self, f: Force) -> Velocity:
        """M^-1 f = W^T W f."""
        return self.unwhiten(apply(self.W, f))

    def unwhiten(self, x: Velocity) -> Velocity:
        """W^T x, in the user's coordinates."""
        return apply(self.W.T, x)

    def remainder(self, f: Force, r: Rows) -> tuple[Velocity, Rows]:
        """W f and s = r - J M^-1 f."""
        x = apply(self.W, f)
        return x, r - apply(self.C, x)

    def delassus(self, equations: ConstraintEquations) -> Float[Array, "nc nc"]:
        """G = C C^T + E."""
        G = product(self.C, self.C.T)
        return G if equations.E is None else G + jnp.diag(equations.E)

    def result(self, solvable: Bool[Array, ""]) -> RESULTS:
        """The verdict on the mass matrix, or else on the rows."""
        rows = RESULTS.where(solvable, RESULTS.successful, RESULTS.singular_constraints)
        return RESULTS.where(self.positive_definite, rows, RESULTS.mass_matrix_indefinite)


def whiten(equations: ConstraintEquations) -> Whitened:
    W, positive_definite = whitener(equations.M)
    return Whitened(W, product(equations.J, W.T), positive_definite)

"""The rest of an elimination: rows that may be redundant."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._compiler import apply, inverse, loops_cost_nothing, product, smallest
from .._types import Rows
from .proximal import annihilate, iterate

# The series of `Border.solution` is summed up to two to this power.
_DOUBLINGS = 4


class Border(eqx.Module):
    """The rows that close loops, the last ones of

        G = [T  C^T]        V = [-T^-1 C^T]        S = V^T G V = D - C T^-1 C^T,
            [C  D  ],           [    1    ],

    where the rows of T are independent and have been eliminated. The null space of G is V times
    that of S. In the norm of all rows S is regularised by W = V^T rho V: P = (S + W)^-1. For an
    eigenvalue s of S relative to W, P W has the eigenvalue e = 1 / (1 + s). So its powers tend to
    the projector on the null space, where e = 1. The sum of all (P W)^k P is S^+ elsewhere. The
    iterations of `Proximal` compute the same sum, term by term.

    - `V`, `rho`: of all rows.
    - `solution`: the sum.
    - `null_space`: W^+ of the null space, which is P times the projector on it.
    """

    V: Float[Array, "rows m"]
    rho: Rows
    solution: Float[Array, "m m"]
    null_space: Float[Array, "m m"]

    def null(self, s: Rows) -> Rows:
        """The part of s in the null space of G."""
        return self.rho * apply(self.V, apply(self.null_space, s @ self.V))

    def solve(self, s: Float[Array, " m"], refinements: int) -> Float[Array, " m"]:
        """y with S y = s, for s in the range of S."""
        del refinements
        return apply(self.solution, s)


class DenseRows(eqx.Module):
    """All rows, with nothing eliminated: G, and its inverse with rho."""

    G: Float[Array, "rows rows"]
    inverse: Float[Array, "rows rows"]
    rho: Rows

    def null(self, s: Rows) -> Rows:
        """The part of s in the null space of G."""
        solve = lambda y: apply(self.inverse, y)  # noqa: E731
        return annihilate(solve, self.rho, s, unroll=not loops_cost_nothing())

    def solve(self, s: Rows, refinements: int) -> Rows:
        """lam with G lam = s, for s in the range of G."""
        return iterate(lambda y: apply(self.G, y), lambda y: apply(self.inverse, y), s, refinements)


def border(
    S: Float[Array, "m m"], V: Float[Array, "rows m"], rho: Rows, diagonal: Float[Array, " m"]
) -> tuple[Border, Float[Array, ""]]:
    """The border, and the smallest relative pivot: the part of an entry of `diagonal`, that of
    G + rho 1, that elimination leaves."""
    W = jax.lax.map(lambda v: (rho * v) @ V, V.T)
    P, pivot = inverse(S + W)
    power, solution = product(P, W), P
    for _ in range(_DOUBLINGS - 1):
        solution = solution + product(power, solution)
        power = product(power, power)
    solution = solution + product(power, solution)
    # The last power has eigenvalues x = e^k near 0, where x^2 is nothing, and near 1, since P has
    # rounding errors. There e = 1 + (x - 1) / k, and e f(x) = 1 to second order for the f below.
    square, shift = product(power, power), 0.5 ** (_DOUBLINGS - 1)
    projector = (3 + shift) * square - (2 + shift) * product(square, power)
    left = smallest((jnp.diagonal(S) + jnp.diagonal(W)) / diagonal)
    return Border(V, rho, solution, product(projector, P)), pivot * left


def dense_rows(G: Float[Array, "rows rows"], rho: Rows) -> tuple[DenseRows, Float[Array, ""]]:
    """The dense rows, and the smallest relative pivot."""
    inv, pivot = inverse(G + jnp.diag(rho))
    return DenseRows(G, inv, rho), pivot

"""Proximal iterations: redundant rows without an orthogonal decomposition."""

from collections.abc import Callable
from typing import Annotated, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float

from .._compiler import apply, inverse, largest
from .._inputs import at_least, checked, positive
from .._types import Rows, Scalar
from .base import AbstractConstraintSolver
from .rank import cutoff
from .whitened import Whitened, whiten

# The power of rho (G + rho)^-1 after which a direction in the range of G is negligible.
_NULL_POWER = 3

# The largest ratio of the mean diagonal of G to the diagonal entry of a row at which the row still
# has the full rho. Rows between heavy bodies only have smaller entries. They get a smaller rho,
# since they would be soft otherwise.
_RANGE = 1e4


def relative_regularisation(
    rho: float | None, tilt: Array | None, dtype: DTypeLike
) -> Float[Array, ""]:
    """rho relative to the mean of the diagonal of G. It is the square of the sine up to which rows
    count as dependent."""
    return cutoff(None if rho is None else rho**0.5, 1e-4, 1e-5**0.5, tilt, dtype) ** 2


def regularisation(
    relative: Float[Array, ""], diagonal: Float[Array, "*rows"], rows: int
) -> Float[Array, "*rows"]:
    """rho of each row, from the diagonal of G."""
    mean = jnp.sum(diagonal) / rows
    tiny = jnp.finfo(diagonal.dtype).tiny
    return relative * jnp.minimum(mean, _RANGE * diagonal) + tiny


def iterate(
    apply_G: Callable,
    solve: Callable,
    s: Float[Array, "*rows"],
    refinements: int,
) -> Float[Array, "*rows"]:
    """The proximal iterations for G lam = s. `solve` applies (G + rho 1)^-1. They end when the
    residual is no longer halved: at rounding, or at the part that the rows cannot satisfy."""

    def go_on(carry):
        i, _, _, left, before = carry
        return (i < refinements) & (left < 0.5 * before) & (left > rounding)

    def refine(carry):
        i, lam, remainder, left, _ = carry
        better = lam + solve(remainder)
        remainder = s - apply_G(better)
        return i + 1, better, remainder, largest(remainder), left

    whole = largest(s)
    rounding = 4 * jnp.finfo(s.dtype).eps * whole
    lam = solve(s)
    remainder = s - apply_G(lam)
    start = (jnp.array(0), lam, remainder, largest(remainder), whole)
    return jax.lax.while_loop(go_on, refine, start)[1]


def annihilate(
    solve: Callable,
    rho: Rows | Scalar,
    s: Float[Array, "*rows"],
    *,
    power: int = _NULL_POWER,
    unroll: bool = True,
) -> Float[Array, "*rows"]:
    """The part of s in the null space of G. Each of `power` applications of rho (G + rho)^-1 leaves
    this part unchanged and multiplies the rest by about rho / sigma^2."""
    return jax.lax.fori_loop(0, power, lambda _, s: rho * solve(s), s, unroll=unroll)


class _Factor(NamedTuple):
    whitened: Whitened
    G: Float[Array, "nc nc"]
    G_inv: Float[Array, "nc nc"]
    rho: Rows
    dependent: Bool[Array, ""]


@checked
class Proximal(AbstractConstraintSolver):
    """G^+ as the limit of proximal iterations with one factor of G + rho 1,

        lam <- lam + (G + rho 1)^-1 (s - G lam),    lam = 0 at first.

    In an eigendirection of G with eigenvalue sigma^2 each iteration multiplies the error by rho /
    (sigma^2 + rho). The part in the null space of G, found as the limit of powers of rho (G + rho
    1)^-1, is removed from s and lam, so that the result agrees with the pseudoinverse.

    Choose it for redundant rows in larger systems. It costs one Cholesky factorisation. Close to a
    singular pose, where sigma^2 < rho, a row becomes soft rather than being dropped.

    **Arguments:**

    - `rho`: relative to the mean of diag G. The default is 1e-8 (1e-5 in float32), and more if the
      violation of the rows may have rotated redundant rows against each other.
    - `refinements`: the largest number of iterations after the first solve. They end earlier at
      rounding.

    Reference: Parikh and Boyd (2014), Proximal algorithms, section 4.1 (the proximal point
    method as iterative refinement).
    """

    rho: Annotated[float | None, positive] = eqx.field(default=None, static=True)
    refinements: Annotated[int, at_least(1)] = eqx.field(default=40, static=True)

    def factorise(self, equations):
        whitened = whiten(equations)
        G = whitened.delassus(equations)
        m = G.shape[0]
        if m == 0:
            return _Factor(whitened, G, G, jnp.zeros(0, G.dtype), jnp.array(False))
        relative = relative_regularisation(self.rho, equations.tilt, G.dtype)
        rho = regularisation(relative, jnp.diagonal(G), m)
        G_inv, pivot = inverse(G + jnp.diag(rho))
        # A generous bound: of a part that is independent after all, `null` leaves at most
        # rho^(3/2).
        return _Factor(whitened, G, G_inv, rho, pivot < relative**0.5)

    def free(self, factor, f):
        return factor.whitened.free(f)

    def solve(self, factor, f, r):
        x, s = factor.whitened.remainder(f, r)
        # Without its part in the null space, s is consistent, and the iteration is iterative
        # refinement. Without its part in the null space, lam has the least norm.
        s = s - self.null(factor, s)
        lam = iterate(
            lambda y: apply(factor.G, y), lambda y: apply(factor.G_inv, y), s, self.refinements
        )
        lam = lam - self.null(factor, lam)
        return factor.whitened.unwhiten(x + apply(factor.whitened.C.T, lam)), lam

    def cutoff_given(self):
        return self.rho is not None

    def allows_dependent(self, factor):
        return factor.G.shape[0] > 1

    def dependent(self, factor):
        return factor.dependent

    def null(self, factor, s):
        x = annihilate(lambda y: apply(factor.G_inv, y), factor.rho, s)
        return jnp.where(factor.dependent, x, 0.0)

    def result(self, factor):
        return factor.whitened.result(jnp.all(jnp.isfinite(factor.G_inv)))

"""Redundant rows without an orthogonal decomposition."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._inputs import at_least, checked, positive
from .._types import Rows, Scalar
from .base import AbstractConstraintSolver
from .rank import cutoff
from .small import apply, inverse
from .whitened import Whitened, whiten

# Powers of rho (G + rho)^-1 after which a direction in the range of G has vanished.
_NULL_POWER = 3

# A row of which the diagonal of G is smaller than the mean by more than this, because it moves
# heavy bodies alone, has a smaller rho: it would be soft otherwise.
_RANGE = 1e4


def relative_regularisation(rho: float | None, tilt: Array | None, dtype: Any) -> Float[Array, ""]:
    """rho relative to the mean of the diagonal of G: the square of the sine up to which rows count
    as dependent."""
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
    """The proximal iterations for G lam = s; `solve` applies (G + rho 1)^-1. They end where the
    remainder does not become smaller by half: at rounding, or at what the rows cannot satisfy."""

    def size(x):
        return jnp.max(jnp.abs(x))

    def go_on(carry):
        i, _, remainder, before = carry
        left = size(remainder)
        return (i < refinements) & (left < 0.5 * before) & (left > rounding)

    def refine(carry):
        i, lam, remainder, _ = carry
        better = lam + solve(remainder)
        return i + 1, better, s - apply_G(better), size(remainder)

    rounding = 4 * jnp.finfo(s.dtype).eps * size(s)
    lam = solve(s)
    start = (jnp.array(0), lam, s - apply_G(lam), size(s))
    return jax.lax.while_loop(go_on, refine, start)[1]


def annihilate(
    solve: Callable,
    rho: Rows | Scalar,
    s: Float[Array, "*rows"],
    *,
    power: int = _NULL_POWER,
    unroll: bool = True,
) -> Float[Array, "*rows"]:
    """What G does not see of s: rho (G + rho)^-1 keeps it, and contracts the rest by
    rho / sigma^2, `power` times."""
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

    A direction of size sigma^2 in G converges with factor rho / (sigma^2 + rho). The null space of
    G, found as the limit of powers of rho (G + rho 1)^-1, is taken out of s and of lam, so that
    both are those of the pseudoinverse.

    Choose it for redundant rows in larger systems: the cost of a Cholesky factorisation. Close to
    a singular pose, sigma^2 < rho, the row is softened rather than dropped.

    **Arguments:**

    - `rho`: relative to the mean of diag G; default 1e-8 (1e-5 in float32), and more where the
      violation of the rows may have turned redundant ones against each other.
    - `refinements`: the largest number of iterations after the first solve; they end at rounding.

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
        # A generous bound: `null` leaves no more than rho^(3/2) of what is independent after all.
        return _Factor(whitened, G, G_inv, rho, pivot < relative**0.5)

    def free(self, factor, f):
        return factor.whitened.free(f)

    def solve(self, factor, f, r):
        x, s = factor.whitened.remainder(f, r)
        # Without its unreachable part s is that of consistent rows, for which the iteration is
        # iterative refinement; without its null part lam has least norm.
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

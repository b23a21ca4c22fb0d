"""Covariances that may be singular, and the linear models that filters make of functions."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._compiler import entry, product

# Up to this many rows an elimination is written out.
_UNROLLED = 8

# A pivot below this times the rounding error of its diagonal entry is zero. One that is negative by
# more than the second share of the largest entry is no rounding error.
_ROUNDED, _NEGATIVE = 16.0, 1e-9


class Factor(NamedTuple):
    """Of a covariance P, which need not be regular:

    - `L`: lower triangular with L L^T = P. `W`: lower triangular with W P W^T = 1, but 0 for the
      rows and columns in which P has no rank; W^T W is a generalised inverse.
    - `regular`: whether P has full rank. `valid`: whether it has no negative direction.
    """

    L: Float[Array, "n n"]
    W: Float[Array, "n n"]
    regular: Bool[Array, ""]
    valid: Bool[Array, ""]


def factor(P: Float[Array, "n n"]) -> Factor:
    """Gaussian elimination in (P, 1), in plain arithmetic and with derivatives in both modes."""
    n = P.shape[0]
    if n == 0:
        return Factor(P, P, jnp.array(True), jnp.array(True))
    places = jnp.arange(n)
    eps = jnp.finfo(P.dtype).eps
    diagonal = jax.lax.stop_gradient(jnp.abs(jnp.diagonal(P)))
    negative = -max(_NEGATIVE, 10 * eps) * jnp.max(diagonal)

    def below(B, k):
        row, column = entry(B, k), entry(B, k, 1)
        pivot = entry(row, k)
        kept = pivot > _ROUNDED * eps * entry(diagonal, k)
        safe = jnp.where(kept, pivot, 1.0)
        ratio = jnp.where(kept & (places > k), column / safe, 0.0)
        scaled = jnp.where(kept, row / jnp.sqrt(safe), 0.0)
        # NaN is valid for no comparison.
        return B - ratio[:, None] * row[None, :], (scaled, kept, pivot >= negative)

    both = jnp.concatenate([P, jnp.eye(n, dtype=P.dtype)], axis=1)
    _, (rows, kept, valid) = jax.lax.scan(below, both, places, unroll=n <= _UNROLLED)
    # Above the diagonal, what elimination has made 0 is rounding.
    L = jnp.where(places[:, None] >= places[None, :], rows[:, :n].T, 0.0)
    return Factor(L, rows[:, n:], jnp.all(kept), jnp.all(valid))


def symmetric(P: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """(P + P^T) / 2."""
    return (P + P.T) / 2


def carried(
    A: Float[Array, "m n"], P: Float[Array, "n n"], more: Float[Array, "m m"] | float = 0.0
) -> Float[Array, "m m"]:
    """A P A^T, and more."""
    return symmetric(product(product(A, P), A.T) + more)


class LinearMap(NamedTuple):
    """A function of a normal variable xi with mean 0 as mean + slope xi + a rest, which does not
    correlate with xi. `rest` is its covariance."""

    mean: Float[Array, " m"]
    slope: Float[Array, "m n"]
    rest: Float[Array, "m m"]


class Correction(NamedTuple):
    """What a reading says of xi: its new mean `shift` and covariance `P`; the covariance `S` of the
    innovation, its normalised square `nis`, and `log_density` with the factor of 2 pi."""

    shift: Float[Array, " n"]
    P: Float[Array, "n n"]
    S: Float[Array, "m m"]
    nis: Float[Array, ""]
    log_density: Float[Array, ""]
    valid: Bool[Array, ""]


def corrected(
    P: Float[Array, "n n"],
    model: LinearMap,
    noise: Float[Array, " m"],
    innovation: Float[Array, " m"],
    present: Bool[Array, " m"],
) -> Correction:
    """Kalman's correction by the entries that are present, in Joseph's form."""
    both = present[:, None] & present[None, :]
    H = jnp.where(present[:, None], model.slope, 0.0)
    # Absent entries have the variance 1 and the innovation 0, which count for nothing.
    R = jnp.where(both, model.rest, 0.0) + jnp.diag(jnp.where(present, noise**2, 1.0))
    innovation = jnp.where(present, innovation, 0.0)
    S = carried(H, P, R)
    of_S = factor(S)
    white = of_S.W @ innovation
    K = product(product(product(P, H.T), of_S.W.T), of_S.W)
    kept = jnp.eye(P.shape[0], dtype=P.dtype) - product(K, H)
    nis = jnp.sum(white**2)
    size = jnp.sum(present.astype(P.dtype))
    root = jnp.diagonal(of_S.L)
    log_root = jnp.sum(jnp.log(jnp.where(root > 0, root, 1.0)))
    log_density = -nis / 2 - log_root - size * jnp.log(2 * jnp.pi) / 2
    new = symmetric(carried(kept, P) + carried(K, R))
    return Correction(K @ innovation, new, S, nis, log_density, of_S.regular & of_S.valid)

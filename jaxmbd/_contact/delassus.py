"""The Delassus operator S of contacts, as a matrix or as a product of sparse factors.

All that solvers need of it are products S lam, single rows, and solutions x of

    (C + P S) x = r

with C and P made of a block for each contact: a linearised contact law. As a matrix S takes the
cube of the number of rows. If contacts have more rows than there are velocities, as in piles and
stacks, the same follows from a system of the size of the velocities: with S = T + Y Y^T and Y = J_c
in coordinates in which the mass is 1,

    (1 + Y^T W Y) u = Y^T C'^-1 r,    x = C'^-1 (r - P Y u),    C' = C + P T,  W = C'^-1 P.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .rows import AbstractContactJacobian, Impulses

# Of Tikhonov's regularisation, relative to entries of the order 1, and of the solutions of least
# norm; what it takes away, refinement gives back but where there is none.
_TIKHONOV = 1e-4
_PROXIMAL = 7 / 16
_REFINEMENTS = 2
_NULL_POWER = 3

Blocks = Float[Array, "contacts d d"]


class AbstractDelassus(eqx.Module):
    """S of scaled impulses."""

    @abc.abstractmethod
    def times(self, lam: Impulses) -> Impulses:
        """S lam."""

    @abc.abstractmethod
    def magnitude(self, lam: Impulses) -> Impulses:
        """The sum of the sizes of all terms of S lam."""

    @abc.abstractmethod
    def blocks(self) -> Blocks:
        """Those on the diagonal."""

    @abc.abstractmethod
    def scaled(self, factors: Impulses) -> "AbstractDelassus":
        """diag(factors) S diag(factors)."""

    @abc.abstractmethod
    def plus(self, blocks: Blocks) -> "AbstractDelassus":
        """With these added on the diagonal."""

    @abc.abstractmethod
    def row(self, i: Int[Array, ""], sums: Any) -> Float[Array, " d"]:
        """S lam of contact i, where `sums` holds what is known of lam."""

    @abc.abstractmethod
    def sums(self, lam: Impulses) -> Any:
        """For `row`."""

    @abc.abstractmethod
    def moved(self, sums: Any, i: Int[Array, ""], change: Float[Array, " d"]) -> Any:
        """`sums` after a change of the impulses of contact i."""

    @abc.abstractmethod
    def inverse(self, C: Blocks, P: Blocks) -> "AbstractInverse":
        """For solutions with blocks C that are regular."""

    @abc.abstractmethod
    def damped(self, C: Blocks, P: Blocks, damping: Float[Array, ""]) -> "AbstractInverse":
        """For a step of Newton's method, where the matrix may be singular; `damping` is relative to
        its square."""

    @abc.abstractmethod
    def least(self, C: Blocks, P: Blocks) -> "AbstractInverse":
        """A generalised inverse, and its transpose: where the matrix is singular, of what it
        reaches, and without what it does not see."""


class AbstractInverse(eqx.Module):
    """Of C + P S, or close to it."""

    @abc.abstractmethod
    def solve(self, r: Impulses) -> Impulses:
        """x."""

    def solve_transposed(self, r: Impulses) -> Impulses:
        """x with the transposed matrix."""
        raise NotImplementedError


# --- as a matrix ----------------------------------------------------------------------------------


class DenseDelassus(AbstractDelassus):
    """S as an array."""

    matrix: Float[Array, "contacts d contacts d"]

    def times(self, lam):
        return jnp.einsum("cikj,kj->ci", self.matrix, lam)

    def magnitude(self, lam):
        return jnp.einsum("cikj,kj->ci", jnp.abs(self.matrix), jnp.abs(lam))

    def blocks(self):
        here = jnp.arange(self.matrix.shape[0])
        return self.matrix[here, :, here]

    def scaled(self, factors):
        return DenseDelassus(self.matrix * factors[:, :, None, None] * factors)

    def plus(self, blocks):
        here = jnp.arange(self.matrix.shape[0])
        return DenseDelassus(self.matrix.at[here, :, here].add(blocks))

    def row(self, i, sums):
        return jnp.einsum("ikj,kj->i", self.matrix[i], sums)

    def sums(self, lam):
        return lam

    def moved(self, sums, i, change):
        return sums.at[i].add(change)

    def inverse(self, C, P):
        return _LU(jax.scipy.linalg.lu_factor(self._law(C, P)))

    def damped(self, C, P, damping):
        return _LeastSquares(self._law(C, P), damping, refinements=0)

    def least(self, C, P):
        H = self._law(C, P)
        relative = _TIKHONOV * jnp.finfo(H.dtype).eps ** 0.5
        damping = relative * (1 + jnp.max(jnp.abs(H), initial=0.0) ** 2)
        return _LeastSquares(H, damping, refinements=_REFINEMENTS)

    def _law(self, C: Blocks, P: Blocks) -> Float[Array, "n n"]:
        """C + P S."""
        count, d = C.shape[:2]
        here = jnp.arange(count)
        H = jnp.einsum("cij,cjkl->cikl", P, self.matrix).at[here, :, here].add(C)
        return H.reshape(count * d, count * d)


class _LU(AbstractInverse):
    factor: tuple[Array, Array]

    def solve(self, r):
        return jax.scipy.linalg.lu_solve(self.factor, r.ravel()).reshape(r.shape)


class _LeastSquares(AbstractInverse):
    """H x = r in the sense of least squares and least norm, by iterated Tikhonov regularisation
    (H^T H + damping) x = H^T r."""

    H: Float[Array, "n n"]
    factor: Float[Array, "n n"]
    refinements: int = eqx.field(static=True)

    def __init__(self, H: Float[Array, "n n"], damping: Float[Array, ""], refinements: int):
        self.H, self.refinements = H, refinements
        normal = H.T @ H + damping * jnp.eye(H.shape[0], dtype=H.dtype)
        self.factor = jnp.linalg.cholesky(normal, symmetrize_input=False)

    def solve(self, r):
        def regular(r):
            return self._normal(self.H.T @ r)

        return _refined(lambda x: self.H @ x, regular, r.ravel(), self.refinements).reshape(r.shape)

    def solve_transposed(self, r):
        # The regularised inverse of H^T H commutes past H: x = H (H^T H)^-1 r.
        def regular(r):
            return self.H @ self._normal(r)

        return _refined(lambda x: self.H.T @ x, regular, r.ravel(), self.refinements).reshape(r.shape)

    def _normal(self, r):
        return jax.scipy.linalg.cho_solve((self.factor, True), r)


# --- as a product ---------------------------------------------------------------------------------


class FactoredDelassus(AbstractDelassus):
    """T + Y Y^T, with T on the diagonal.

    **Fields:** `Y`; `own`: the blocks of T."""

    Y: AbstractContactJacobian
    own: Blocks

    def times(self, lam):
        return self.Y.rows(self.Y.reaction(lam)) + _apply(self.own, lam)

    def magnitude(self, lam):
        lam, Y = jnp.abs(lam), jax.tree.map(jnp.abs, self.Y)
        return Y.rows(Y.reaction(lam)) + _apply(jnp.abs(self.own), lam)

    def blocks(self):
        return self.Y.squares() + self.own

    def scaled(self, factors):
        own = self.own * factors[:, :, None] * factors[:, None, :]
        return FactoredDelassus(self.Y.scaled(factors), own)

    def plus(self, blocks):
        return FactoredDelassus(self.Y, self.own + blocks)

    def row(self, i, sums):
        u, lam = sums
        return self.Y.one(i).rows(u)[0] + self.own[i] @ lam[i]

    def sums(self, lam):
        return self.Y.reaction(lam), lam

    def moved(self, sums, i, change):
        u, lam = sums
        return u + self.Y.one(i).reaction(change[None]), lam.at[i].add(change)

    def inverse(self, C, P):
        return _Condensed(self, C, P, jnp.zeros((), C.dtype))

    def damped(self, C, P, damping):
        return _Condensed(self, C, P, jnp.sqrt(damping), refinements=1)

    def least(self, C, P):
        epsilon = jnp.asarray(jnp.finfo(C.dtype).eps ** _PROXIMAL, C.dtype)
        return _Condensed(self, C, P, epsilon, refinements=_REFINEMENTS, singular=True)


class _Condensed(AbstractInverse):
    """H = C + P S by its velocities, as the limit of proximal iterations with H + epsilon,

        x <- x + (H + epsilon)^-1 (r - H x).

    If H may be `singular`, without the part of r in its null space, to which powers of
    epsilon (H + epsilon)^-1 converge: the group inverse."""

    S: FactoredDelassus
    C: Blocks
    P: Blocks
    C_inv: Blocks
    factor: tuple[Array, Array]
    epsilon: Float[Array, ""]
    refinements: int = eqx.field(static=True)
    singular: bool = eqx.field(static=True)

    def __init__(self, S, C, P, epsilon, refinements=0, singular=False):
        self.S, self.C, self.P, self.epsilon = S, C, P, epsilon
        self.refinements, self.singular = refinements, singular
        eye = jnp.eye(C.shape[-1], dtype=C.dtype)
        self.C_inv = jnp.linalg.inv(C + _product(P, S.own) + epsilon * eye)
        K = S.Y.gram(_product(self.C_inv, P))
        self.factor = jax.scipy.linalg.lu_factor(K + jnp.eye(len(K), dtype=C.dtype))

    def solve(self, r):
        def law(x):
            return _apply(self.C, x) + _apply(self.P, self.S.times(x))

        def regular(r):
            x = _apply(self.C_inv, r)
            u = jax.scipy.linalg.lu_solve(self.factor, self.S.Y.reaction(x))
            return x - _apply(self.C_inv, _apply(self.P, self.S.Y.rows(u)))

        return self._iterated(law, regular, r)

    def solve_transposed(self, r):
        C, P, C_inv = (jnp.swapaxes(x, 1, 2) for x in (self.C, self.P, self.C_inv))

        def law(x):
            return _apply(C, x) + self.S.times(_apply(P, x))

        def regular(r):
            x = _apply(C_inv, r)
            u = self.S.Y.reaction(_apply(P, x))
            u = jax.scipy.linalg.lu_solve(self.factor, u, trans=1)
            return x - _apply(C_inv, self.S.Y.rows(u))

        return self._iterated(law, regular, r)

    def _iterated(self, law, regular, r):
        if self.singular:
            null = r
            for _ in range(_NULL_POWER):
                null = self.epsilon * regular(null)
            r = r - null
        return _refined(law, regular, r, self.refinements)


def _refined(law, regular, r, times):
    """x <- x + regular(r - law(x)), `times` after the first."""
    x = regular(r)
    for _ in range(times):
        x = x + regular(r - law(x))
    return x


def _product(A: Blocks, B: Blocks) -> Blocks:
    # As a sum it fuses, where products of small matrices would be calls of a library.
    return jnp.sum(A[:, :, :, None] * B[:, None, :, :], axis=2)


def _apply(A: Blocks, x: Impulses) -> Impulses:
    return jnp.sum(A * x[:, None, :], axis=2)

"""Factorisations of small matrices by halves, for GPUs.

    [P   Q]
    [Q^T S]

P is factorised first, then what is left of S, S - Q^T P^-1 Q. Each of them is halved again, down to
a few rows that are written out. In a batch of matrices a product of halves is one kernel, and a
matrix of n rows takes about 8 n of them. The batched factorisations of the libraries take several
times as long: each runs one matrix of a batch in a block of threads of its own.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

# Up to this many rows are written out.
_WRITTEN_OUT = 6


def inverse(A: Float[Array, "n n"]) -> tuple[Float[Array, "n n"], Float[Array, " n"]]:
    """A^-1 of a symmetric positive definite matrix, and the pivots."""
    if len(A) <= _WRITTEN_OUT:
        return _swept(A)
    P, Q, S = _halves(A)
    P_inv, first = inverse(P)
    T = _times(P_inv, Q)
    S_inv, second = inverse(S - _times(Q.T, T))
    X = _times(T, S_inv)
    blocks = jnp.block([[P_inv + _times(X, T.T), -X], [-X.T, S_inv]])
    return blocks, jnp.concatenate([first, second])


def _swept(A):
    """The same by the sweep operator: Gauss-Jordan elimination in (A, 1), where finished columns of
    A are replaced by columns of the inverse."""
    rows, pivots = list(A), []
    for k in range(len(rows)):
        here = jnp.arange(len(rows)) == k
        pivot = rows[k][k]
        pivots.append(pivot)
        pivotal = jnp.where(here, 1.0, rows[k]) / pivot
        rows = [
            pivotal if i == k else jnp.where(here, 0.0, row) - row[k] * pivotal
            for i, row in enumerate(rows)
        ]
    return jnp.stack(rows), jnp.stack(pivots)


def inverse_cholesky(M: Float[Array, "n n"]) -> tuple[Float[Array, "n n"], Float[Array, " n"]]:
    """W = L^-1 of a symmetric positive definite matrix M = L L^T, and the pivots."""
    if len(M) <= _WRITTEN_OUT:
        return _eliminated(M)
    P, Q, S = _halves(M)
    W, first = inverse_cholesky(P)
    Y = _times(W, Q)
    V, second = inverse_cholesky(S - _times(Y.T, Y))
    below = -_times(V, _times(Y.T, W))
    blocks = jnp.block([[W, jnp.zeros_like(Q)], [below, V]])
    return blocks, jnp.concatenate([first, second])


def _eliminated(M):
    """The same by Gaussian elimination in (M, 1)."""
    n = len(M)
    rows = list(jnp.concatenate([M, jnp.eye(n, dtype=M.dtype)], axis=1))
    for k in range(n - 1):
        rows[k + 1 :] = [row - row[k] / rows[k][k] * rows[k] for row in rows[k + 1 :]]
    pivots = jnp.stack([rows[k][k] for k in range(n)])
    return jnp.stack([row[n:] for row in rows]) / jnp.sqrt(pivots)[:, None], pivots


def _halves(A):
    k = (len(A) + 1) // 2
    return A[:k, :k], A[:k, k:], A[k:, k:]


def _times(A, B):
    return jnp.sum(A[:, :, None] * B[None], axis=1)

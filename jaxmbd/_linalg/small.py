"""Fused factorisations of small symmetric matrices.

LAPACK calls cost about a microsecond whatever the size, and neither fuse nor batch well. Sizes
are static, so these loops unroll into plain arithmetic: scalars up to size 3, column sweeps (one
rank-one update a column) up to size 9, LAPACK above.

Derivatives are never taken through these functions; see `operator.py`.
"""

import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Bool, Float

MAX_UNROLLED = 3
MAX_SWEPT = 9


def product(A: Float[Array, "m n"], B: Float[Array, "n k"]) -> Float[Array, "m k"]:
    """A @ B. XLA turns a small matrix product into a library call of half a microsecond; a sum
    fuses with its neighbours."""
    if max(*A.shape, *B.shape) > 2 * MAX_SWEPT:
        return A @ B
    return jnp.sum(A[:, :, None] * B[None, :, :], axis=1)


def apply(A: Float[Array, "m n"], x: Float[Array, " n"]) -> Float[Array, " m"]:
    """A @ x. A reduction is a kernel of its own to XLA, which a single column does not need."""
    return A[:, 0] * x if A.shape[1] == 1 else A @ x


def _scalars(A):
    n = A.shape[0]
    return [[A[i, j] for j in range(n)] for i in range(n)]


def _matrix(a):
    return jnp.stack([jnp.stack(row) for row in a])


def _smallest_pivot(pivots, A):
    """How much of a diagonal entry is left after elimination, at worst: 1 for a diagonal matrix,
    about 1/condition for a nearly singular one, not positive (or NaN) for an indefinite one."""
    return jnp.min(pivots / jnp.abs(jnp.diagonal(A)))


def whitener(M: Float[Array, "n n"]) -> tuple[Float[Array, "n n"], Bool[Array, ""]]:
    """Lower triangular W with W M W^T = 1 (the inverse Cholesky factor, M^-1 = W^T W), and whether
    M is numerically positive definite; where it is not, W may hold NaN."""
    n = M.shape[0]
    if n > MAX_SWEPT:
        L = jnp.linalg.cholesky(M, symmetrize_input=False)
        W = solve_triangular(L, jnp.eye(n, dtype=M.dtype), lower=True)
        return W, _smallest_pivot(jnp.diagonal(L) ** 2, M) > 0
    identity = jnp.eye(n, dtype=M.dtype)
    if n <= MAX_UNROLLED:
        a, w = _scalars(M), _scalars(identity)
        for k in range(n):
            for i in range(k + 1, n):
                ratio = a[i][k] / a[k][k]
                a[i] = [a[i][j] - ratio * a[k][j] for j in range(n)]
                w[i] = [w[i][j] - ratio * w[k][j] for j in range(n)]
        pivots = jnp.stack([a[k][k] for k in range(n)])
        unscaled = _matrix(w)
    else:
        B = jnp.concatenate([M, identity], axis=1)
        for k in range(n - 1):
            ratio = jnp.where(jnp.arange(n) > k, B[:, k] / B[k, k], 0.0)
            B = B - ratio[:, None] * B[k][None, :]
        pivots, unscaled = jnp.diagonal(B[:, :n]), B[:, n:]
    return unscaled / jnp.sqrt(pivots)[:, None], _smallest_pivot(pivots, M) > 0


def inverse(A: Float[Array, "n n"]) -> tuple[Float[Array, "n n"], Float[Array, ""]]:
    """A^-1 of a symmetric positive definite matrix by Gauss-Jordan elimination, and the smallest
    relative pivot, which says how far it can be trusted (see `_smallest_pivot`)."""
    n = A.shape[0]
    identity = jnp.eye(n, dtype=A.dtype)
    if n > MAX_SWEPT:
        L = jnp.linalg.cholesky(A, symmetrize_input=False)
        return cho_solve((L, True), identity), _smallest_pivot(jnp.diagonal(L) ** 2, A)
    pivots = []
    if n <= MAX_UNROLLED:
        a = _scalars(A)
        for k in range(n):
            pivots.append(a[k][k])
            d = 1 / a[k][k]
            row = [d if j == k else a[k][j] * d for j in range(n)]
            a = [
                row
                if i == k
                else [-a[i][k] * d if j == k else a[i][j] - a[i][k] * row[j] for j in range(n)]
                for i in range(n)
            ]
        inv = _matrix(a)
    else:
        B = jnp.concatenate([A, identity], axis=1)
        for k in range(n):
            pivots.append(B[k, k])
            B = B - (B[:, k] - identity[k])[:, None] * (B[k] / B[k, k])[None, :]
        inv = B[:, n:]
    return inv, _smallest_pivot(jnp.stack(pivots), A)


def _orthonormalise(e, basis):
    """Remove from `e` its components along the orthonormal rows of `basis`, twice: once is not
    enough when `e` nearly lies in their span."""
    total = jnp.zeros(basis.shape[0], e.dtype)
    for _ in range(2):
        coefficients = basis @ e
        e = e - coefficients @ basis
        total = total + coefficients
    return e, total


def _swept_pseudoinverse(C, rtol):
    """Complete orthogonal decomposition C = Z T Q by Gram-Schmidt sweeps over the rows of C, then
    over the columns of what is left: C^+ = Q^T T^-1 Z^T. Its error is eps * cond(C), that of the
    singular value decomposition, at half the cost for m <= 9."""
    m, n = C.shape
    # Of each row's own length: rows of heavy bodies are short, but no less independent.
    floor = rtol**2 * jnp.sum(C * C, axis=1) + jnp.finfo(C.dtype).tiny
    # C = L Q: L lower triangular, with a zero column for each dependent row.
    Q = jnp.zeros((0, n), C.dtype)
    rows, keep = [], []
    for i in range(m):
        e, coefficients = _orthonormalise(C[i], Q)
        kept = jnp.sum(e * e) > floor[i]
        norm = jnp.sqrt(jnp.where(kept, jnp.sum(e * e), 1.0))
        Q = jnp.concatenate([Q, jnp.where(kept, e / norm, 0.0)[None]])
        diagonal = jnp.where(kept, norm, 0.0)[None]
        rows.append(jnp.concatenate([coefficients, diagonal, jnp.zeros(m - 1 - i, C.dtype)]))
        keep.append(kept)
    L = jnp.stack(rows)
    # L = Z T from the last column on, T lower triangular: Z = 1 and T = L if none is dependent.
    Z = jnp.zeros((0, m), C.dtype)
    T_inv_Zt = jnp.zeros((0, m), C.dtype)
    columns = []
    for j in reversed(range(m)):
        e, coefficients = _orthonormalise(L[:, j], Z)
        norm = jnp.sqrt(jnp.where(keep[j], jnp.sum(e * e), 1.0))
        Z = jnp.concatenate([jnp.where(keep[j], e / norm, 0.0)[None], Z])
        columns.insert(0, (norm, jnp.where(keep[j], coefficients, 0.0)))
    # Forward substitution T y = Z^T, row by row; column j of T is (norm, coefficients) from j on.
    for i in range(m):
        y = Z[i]
        for j in range(i):
            y = y - columns[j][1][i - j - 1] * T_inv_Zt[j]
        T_inv_Zt = jnp.concatenate([T_inv_Zt, (y / columns[i][0])[None]])
    return product(Q.T, T_inv_Zt), Z.T, jnp.stack(keep)


def pseudoinverse(
    C: Float[Array, "m n"], rtol: Float[Array, ""]
) -> tuple[Float[Array, "n m"], Float[Array, "m m"], Bool[Array, " m"]]:
    """C^+, an orthonormal basis Z of the range of C in its columns, and which of them are in use
    (the others are zero). Rows at an angle below `rtol` to the span of others, or, of more than 9,
    directions below `rtol` of the largest, are treated as dependent."""
    m, n = C.shape
    if m == 1:
        square = jnp.sum(C * C)
        kept = square > jnp.finfo(C.dtype).tiny
        X = C.T * jnp.where(kept, 1 / jnp.where(kept, square, 1.0), 0.0)
        return X, kept.astype(C.dtype).reshape(1, 1), kept[None]
    if m <= MAX_SWEPT:
        return _swept_pseudoinverse(C, rtol)
    U, s, Vt = jnp.linalg.svd(C, full_matrices=False)
    keep = s > rtol * s[0] + jnp.finfo(C.dtype).tiny
    X = (Vt.T * jnp.where(keep, 1 / jnp.where(keep, s, 1.0), 0.0)[None, :]) @ U.T
    unused = m - s.shape[0]
    Z = jnp.pad(jnp.where(keep[None, :], U, 0.0), ((0, 0), (0, unused)))
    return X, Z, jnp.pad(keep, (0, unused))

"""Factorisations of small dense matrices in plain arithmetic.

On CPUs, a loop without library calls is compiled whole (see `_compiled_whole.py`). A factorisation
inside it as an inner loop costs no more than its arithmetic. A call of LAPACK would cost about a
microsecond, and the outer loop could not be compiled whole. Up to 3 rows the factorisation is
written out.

On GPUs each turn of a loop is a few kernel launches. There positive definite matrices are
factorised by halves (`halves.py`). Other matrices are factorised in loops as well, since libraries
take longer for a batch: on an H200 the pseudoinverses of 16384 matrices of 8 rows took 5 ms by the
singular value decomposition, and 0.5 ms in loops. Libraries factorise large matrices.

Writes at a place that is known only at run time use masks, so that nothing becomes a scatter, not
even under `vmap`. These functions are never differentiated; see `operator.py`.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Bool, Float

from . import halves
from .barrier import MAX_REDUCED, materialise
from .loops import entry, loops_cost_nothing, only_if, replaced

MAX_UNROLLED = 3

# A matrix with up to this many rows is small: its pseudoinverse takes about as long as its inverse.
FEW = 9

# Up to this many rows a loop on one core takes about as long as LAPACK. In a larger system a step
# takes so long that the overhead of a call does not matter.
_MAX_LOOPED = 128

# Up to this many rows, positive definite matrices are factorised by halves on GPUs.
_MAX_HALVED = 48


def _positive_definite(rows: int, loop: Callable, halved: Callable, library: Callable) -> Callable:
    """The factorisation of a positive definite matrix with this many rows."""
    if loops_cost_nothing():
        return loop if rows <= _MAX_LOOPED else library
    return halved if rows <= _MAX_HALVED else library


def batch_last(fn: Callable, tables: int = 0) -> Callable:
    """fn with a rule for `vmap` that puts the batch axis last. fn must accept arrays with any
    further axes at the end. The innermost loops then run over the batch, in contiguous memory, and
    a write at a place that all samples share does not become a scatter. The first `tables` operands
    are the same for all samples. fn must not close over arrays."""

    @jax.custom_batching.custom_vmap
    def batched(*operands):
        return fn(*operands)

    @batched.def_vmap
    def rule(size, is_batched, *operands):
        def last(x, moves):
            if moves:
                return jnp.moveaxis(x, 0, -1)
            return jnp.broadcast_to(x[..., None], (*x.shape, size))

        # JAX may have copied the tables for all samples.
        shared = [
            x[0] if many else x
            for x, many in zip(operands[:tables], is_batched[:tables], strict=True)
        ]
        out = batched(*shared, *map(last, operands[tables:], is_batched[tables:]))
        first = jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), out)
        return first, jax.tree.map(lambda _: True, out)

    # The outputs are constant in derivatives. A rule is needed to say so, since not all of JAX's
    # transformations of `custom_vmap` notice that there is nothing to differentiate.
    constant = jax.custom_jvp(batched)

    @constant.defjvp
    def no_derivative(operands, _):
        out = batched(*operands)
        return out, jax.tree.map(_no_tangent, out)

    return constant


def _no_tangent(x):
    if jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.zeros_like(x)
    return np.zeros(x.shape, jax.dtypes.float0)


def product(A: Float[Array, "m n"], B: Float[Array, "n k"]) -> Float[Array, "m k"]:
    """A @ B. XLA turns a small matrix product into a library call of half a microsecond, whereas a
    sum fuses with its neighbours. For larger matrices each column is a product with a vector, which
    XLA writes out."""
    if A.size * B.shape[1] <= MAX_REDUCED:
        return jnp.sum(A[:, :, None] * B[None, :, :], axis=1)
    by_column = max(*A.shape, *B.shape) <= _MAX_LOOPED and loops_cost_nothing()
    return _column_by_column(A, B) if by_column else A @ B


def _column_by_column(A, B):
    return jax.lax.map(lambda column: A @ column, B.T).T


def apply(A: Float[Array, "m n"], x: Float[Array, " n"]) -> Float[Array, " m"]:
    """A @ x. XLA makes a reduction a separate kernel. A single column does not need one."""
    return A[:, 0] * x if A.shape[1] == 1 else A @ x


def _scalars(A):
    n = A.shape[0]
    return [[A[i, j] for j in range(n)] for i in range(n)]


def _matrix(a):
    return jnp.stack([jnp.stack(row) for row in a])


def smallest(relative: Float[Array, "n *rest"]) -> Float[Array, "*rest"]:
    """The smallest relative pivot. A relative pivot is the part of a diagonal entry that is left
    after elimination: 1 for a diagonal matrix, about 1 / condition for a nearly singular one. The
    result is 0 if any pivot is not positive or is NaN, which minima of XLA may pass over."""
    return jnp.min(jnp.where(relative > 0, relative, 0.0), axis=0)


def _smallest_pivot(pivots, A):
    return smallest(pivots / jnp.abs(jnp.diagonal(A)))


def whitener(M: Float[Array, "n n"]) -> tuple[Float[Array, "n n"], Bool[Array, ""]]:
    """Lower triangular W with W M W^T = 1 (the inverse Cholesky factor, M^-1 = W^T W), and whether
    M is numerically positive definite. If it is not, W may hold NaN."""
    n = M.shape[0]
    if n <= MAX_UNROLLED:
        a, w = _scalars(M), _scalars(jnp.eye(n, dtype=M.dtype))
        for k in range(n):
            for i in range(k + 1, n):
                ratio = a[i][k] / a[k][k]
                a[i] = [a[i][j] - ratio * a[k][j] for j in range(n)]
                w[i] = [w[i][j] - ratio * w[k][j] for j in range(n)]
        pivots = jnp.stack([a[k][k] for k in range(n)])
        W = _matrix(w) / jnp.sqrt(pivots)[:, None]
    else:
        loop, library = batch_last(inverse_cholesky), _inverse_cholesky_by_library
        W, pivots = _positive_definite(n, loop, halves.inverse_cholesky, library)(M)
    return W, _smallest_pivot(pivots, M) > 0


def root(M: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """R with R R^T = M, of a symmetric positive definite matrix."""
    return product(M, whitener(M)[0].T)


def inverse_cholesky(M: Float[Array, "n n *rest"]) -> tuple[Array, Array]:
    """L^-1 of symmetric positive definite matrices M = L L^T, and the pivots, by Gaussian
    elimination in (M, 1). Further axes are at the end."""
    n, rest = M.shape[0], (1,) * (M.ndim - 2)
    if n <= FEW:
        return _inverse_cholesky_unrolled(M)
    places = jnp.arange(n).reshape(n, *rest)

    def below(k, B):
        row = entry(B, k)
        column = entry(B, k, 1)
        ratio = jnp.where(places > k, column * (1 / entry(row, k))[None], 0.0)
        return B - ratio[:, None] * row[None, :]

    one = jnp.broadcast_to(jnp.eye(n, dtype=M.dtype).reshape(n, n, *rest), M.shape)
    B = jax.lax.fori_loop(0, n - 1, below, jnp.concatenate([M, one], axis=1))
    pivots = jnp.stack([B[i, i] for i in range(n)])
    return B[:, n:] / jnp.sqrt(pivots)[:, None], pivots


def _inverse_cholesky_unrolled(M):
    """The same without a loop. The remaining rows hold only the entries that are not known to be 0
    or 1: the remaining columns of M, and the columns of L^-1 that have been started."""
    n, B, pivots, rows = M.shape[0], M, [], []
    for k in range(n):
        row, others = B[0], B[1:]
        pivots.append(row[0])
        started = jnp.concatenate([row[n - k :], jnp.ones_like(row[:1])])
        rows.append(jnp.pad(started, ((0, n - 1 - k), *((0, 0),) * (M.ndim - 2))))
        ratio = others[:, :1] / row[None, :1]
        B = materialise(jnp.concatenate([others[:, 1:] - ratio * row[None, 1:], -ratio], axis=1))
    pivots = jnp.stack(pivots)
    return jnp.stack(rows) / jnp.sqrt(pivots)[:, None], pivots


def _inverse_cholesky_by_library(M):
    L = jnp.linalg.cholesky(M, symmetrize_input=False)
    W = solve_triangular(L, jnp.eye(M.shape[0], dtype=M.dtype), lower=True)
    return W, jnp.diagonal(L) ** 2


def inverse(A: Float[Array, "n n"]) -> tuple[Float[Array, "n n"], Float[Array, ""]]:
    """A^-1 of a symmetric positive definite matrix, and the smallest relative pivot, a measure of
    its accuracy (see `smallest`)."""
    n = A.shape[0]
    if n > MAX_UNROLLED:
        factorise = _positive_definite(n, _swept, _inverse_by_halves, _inverse_by_cholesky)
        inv, relative = factorise(A)
        return inv, smallest(relative)
    a, pivots = _scalars(A), []
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
    return _matrix(a), _smallest_pivot(jnp.stack(pivots), A)


@batch_last
def _swept(A):
    """A^-1 and the relative pivots by the sweep operator: Gauss-Jordan elimination in (A, 1), where
    finished columns of A are replaced by columns of the inverse."""
    n, rest = A.shape[0], (1,) * (A.ndim - 2)
    places = jnp.arange(n).reshape(n, *rest)
    # With a diagonal of 1 all pivots are at most 1, so that p - 1 below loses no digits.
    diagonal = jnp.stack([A[i, i] for i in range(n)])
    scale = 1 / jnp.sqrt(jnp.abs(diagonal))
    scale = jnp.where(jnp.isfinite(scale), scale, 1.0)

    def sweep(k, carry):
        A, pivots = carry
        here, row = places == k, entry(A, k)
        pivot = entry(row, k)
        # The matrix stays symmetric, except for the sign of the entries between swept and unswept
        # columns. One column is updated, and one outer product does the rest. This takes a third of
        # the time of masks.
        column = jnp.where(here, pivot - 1, jnp.where(places < k, -row, row))
        row = jnp.where(here, 1.0, row) * (1 / pivot)[None]
        unit = jnp.broadcast_to(here, row.shape).astype(A.dtype)
        A = replaced(A, unit, k, 1)
        return A - column[:, None] * row[None, :], replaced(pivots, pivot, k)

    A = A * scale[:, None] * scale[None, :]
    A, pivots = jax.lax.fori_loop(0, n, sweep, (A, jnp.zeros_like(A[0])))
    return A * scale[:, None] * scale[None, :], pivots


def _inverse_by_halves(A):
    inv, pivots = halves.inverse(A)
    return inv, pivots / jnp.abs(jnp.diagonal(A))


def _inverse_by_cholesky(A):
    L = jnp.linalg.cholesky(A, symmetrize_input=False)
    relative = jnp.diagonal(L) ** 2 / jnp.abs(jnp.diagonal(A))
    return cho_solve((L, True), jnp.eye(A.shape[0], dtype=A.dtype)), relative


def general_inverse(A: Float[Array, "n n"]) -> tuple[Float[Array, "n n"], Float[Array, " n"]]:
    """A^-1 of any regular matrix by Gauss-Jordan elimination with partial pivoting, and the sizes
    of the pivots."""
    return _pivoted(A) if A.shape[0] <= _MAX_LOOPED else _inverse_by_lu(A)


@batch_last
def _pivoted(A):
    n, rest = A.shape[0], A.shape[2:]
    places = jnp.arange(n).reshape(n, *(1,) * len(rest))

    # Rows are not exchanged. `row_of` stores the pivot row of each column.
    def sweep(k, carry):
        A, row_of, free, pivots = carry
        column = entry(A, k, 1)
        largest = jnp.argmax(jnp.where(free, jnp.abs(column), -1.0), axis=0)
        row = jnp.take_along_axis(A, largest[None, None], axis=0)[0]
        pivot = entry(row, k)
        here, there = places == k, places == largest[None]
        row = jnp.where(here, 1.0, row) * (1 / pivot)[None]
        A = jnp.where(there[:, None] | here[None], 0.0, A)
        A = A - jnp.where(there, -1.0, column)[:, None] * row[None]
        return A, replaced(row_of, largest, k), free & ~there, replaced(pivots, jnp.abs(pivot), k)

    start = (A, jnp.zeros((n, *rest), int), jnp.ones((n, *rest), bool), jnp.zeros_like(A[0]))
    A, row_of, _, pivots = jax.lax.fori_loop(0, n, sweep, start)
    column_of = jnp.argmax(row_of[None] == jnp.expand_dims(places, 1), axis=1)
    A = jnp.take_along_axis(A, row_of[:, None], axis=0)
    return jnp.take_along_axis(A, column_of[None], axis=1), pivots


# Without pivoting a row is subtracted from others at most this many times.
_MULTIPLE = 64.0


def pivot_inverse(A: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """`general_inverse` of a small matrix that can nearly always be eliminated without pivoting.
    Only where a diagonal entry is far smaller than others in its column, which would spoil digits,
    it is eliminated again with pivoting. It has no derivative in reverse mode, and in a batch it
    does both."""
    given, n, places = A, A.shape[0], np.arange(A.shape[0])
    unsafe = jnp.zeros(n, bool)
    for k in range(n):
        here, row, column = places == k, A[k], A[:, k]
        unsafe = unsafe | (~(jnp.abs(column) <= _MULTIPLE * jnp.abs(row[k])) & (places > k))
        row = jnp.where(here, 1.0, row) * (1 / row[k])
        column = jnp.where(here, -1.0, column)
        A = jnp.where(here[:, None] | here[None], 0.0, A) - column[:, None] * row[None]
        A = materialise(A)
    unsafe = functools.reduce(jnp.logical_or, [unsafe[k] for k in range(n)])
    # The matrix is what the loop of one turn changes: XLA would compute in front of the loop
    # whatever does not depend on that.
    return only_if(unsafe, lambda A: _pivoted(A)[0], jnp.where(unsafe, given, A))


def _inverse_by_lu(A):
    lu = jax.scipy.linalg.lu_factor(A)
    inv = jax.scipy.linalg.lu_solve(lu, jnp.eye(A.shape[0], dtype=A.dtype))
    return inv, jnp.abs(jnp.diagonal(lu[0]))


def pseudoinverse(
    C: Float[Array, "m n"], rtol: float | Float[Array, ""]
) -> tuple[Float[Array, "n m"], Float[Array, "m m"], Bool[Array, " m"]]:
    """C^+, an orthonormal basis of the range of C in the columns of Z, and a mask of the columns in
    use (the others are zero). Up to `FEW` rows, a row is dependent if the sine of its angle to the
    span of others is below `rtol`. For more rows, it is dependent if its distance from this span is
    below `rtol` times the largest length."""
    if C.shape[0] == 1:
        square = jnp.sum(C * C)
        kept = square > jnp.finfo(C.dtype).tiny
        X = C.T * jnp.where(kept, 1 / jnp.where(kept, square, 1.0), 0.0)
        return X, kept.astype(C.dtype).reshape(1, 1), kept[None]
    rtol = jnp.asarray(rtol, C.dtype)
    find = _orthogonalised if C.shape[0] <= _MAX_LOOPED else _by_singular_values
    return find(C, rtol)


def _across(e, basis):
    """`e` without its components along the orthonormal rows of `basis`, and these components. They
    are removed twice, since once is not enough if `e` nearly lies in the span of the rows."""
    along = jnp.zeros_like(basis[:, 0])
    for _ in range(2):
        coefficients = jnp.sum(basis * e[None], axis=1)
        e = e - jnp.sum(coefficients[:, None] * basis, axis=0)
        along = along + coefficients
    return e, along


@batch_last
def _orthogonalised(C, rtol):
    """Complete orthogonal decomposition C = L Q, L = Z T, and C^+ = Q^T T^-1 Z^T. The first
    Gram-Schmidt sweep goes over the rows of C; the next row is always the one farthest from the
    span of the previous ones. The second sweep goes over the columns of L. The error is eps *
    cond(C), as for the singular value decomposition, at a small part of its cost."""
    m, rest = C.shape[0], (1,) * (C.ndim - 2)
    places = jnp.arange(m).reshape(m, *rest)
    square = jnp.sum(C * C, axis=1)
    # If there are few rows, each is measured relative to its own length: rows of heavy bodies are
    # short, but no less independent. A row of zeros is dependent.
    lengths = square if m <= FEW else jnp.max(square, axis=0, keepdims=True)
    floor = rtol[None] ** 2 * lengths + jnp.finfo(C.dtype).tiny

    def of_row(k, carry):
        E, Q, L, keep = carry
        size = jnp.sum(E * E, axis=1) / floor
        largest = jnp.max(size, axis=0)
        # The place is known only at run time, so it is written by a mask.
        here = (places == jnp.argmax(size, axis=0)[None])[:, None]
        e, _ = _across(jnp.sum(jnp.where(here, E, 0.0), axis=0), Q)
        square = jnp.sum(e * e, axis=0)
        kept = (largest > 1) & (square > 0)
        q = jnp.where(kept[None], e / jnp.sqrt(jnp.where(kept, square, 1.0))[None], 0.0)
        along = jnp.sum(E * q[None], axis=1)
        # What is left of dependent rows stays in E.
        E = jnp.where(here & (largest > 1)[None, None], 0.0, E - along[:, None] * q[None])
        L = replaced(L, along, k, 1)
        return E, replaced(Q, q, k), L, replaced(keep, kept, k)

    def of_column(k, carry):
        Z, T = carry
        kept = entry(keep, k)
        e, along = _across(entry(L, k, 1), Z)
        norm = jnp.sqrt(jnp.where(kept, jnp.sum(e * e, axis=0), 1.0))
        T = replaced(T, jnp.where(places == k, norm[None], along), k, 1)
        return replaced(Z, jnp.where(kept[None], e / norm[None], 0.0), k), T

    def substituted(i, Y):
        # Solves T Y = Z^T; the rows after k are done.
        k = m - 1 - i
        row = entry(T, k)
        done = jnp.where(places > k, row, 0.0)
        left = entry(Z, k) - jnp.sum(done[:, None] * Y, axis=0)
        return replaced(Y, left / entry(row, k)[None], k)

    none = jnp.zeros((m, m, *C.shape[2:]), C.dtype)
    start = (C, jnp.zeros_like(C), none, jnp.zeros((m, *C.shape[2:]), bool))
    E, Q, L, keep = jax.lax.fori_loop(0, m, of_row, start)
    Z, T = jax.lax.fori_loop(0, m, of_column, (none, none))
    Y = jax.lax.fori_loop(0, m, substituted, none)

    def squared(k, H):
        return H + entry(Y, k)[:, None] * entry(Y, k)[None]

    # Rows that count as dependent lie in the span of the others but for E. Which of them is the
    # last one is a matter of rounding, and so is a change of C^+ of the size of E. With the term
    # E^T Y^T Y, where Y^T Y = (C C^T)^+, it is the pseudoinverse of Z^T C instead, which depends on
    # the choice by E^2 only, as that by the largest singular values does.
    H = jax.lax.fori_loop(0, m, squared, none)

    def added(k, X):
        return (
            X + entry(Q, k)[:, None] * entry(Y, k)[None] + entry(E, k)[:, None] * entry(H, k)[None]
        )

    X = jax.lax.fori_loop(0, m, added, jnp.zeros((Q.shape[1], *none.shape[1:]), C.dtype))
    return X, jnp.swapaxes(Z, 0, 1), keep


def _by_singular_values(C, rtol):
    m = C.shape[0]
    U, s, Vt = jnp.linalg.svd(C, full_matrices=False)
    keep = s > rtol * s[0] + jnp.finfo(C.dtype).tiny
    X = (Vt.T * jnp.where(keep, 1 / jnp.where(keep, s, 1.0), 0.0)[None, :]) @ U.T
    unused = m - s.shape[0]
    Z = jnp.pad(jnp.where(keep[None, :], U, 0.0), ((0, 0), (0, unused)))
    return X, Z, jnp.pad(keep, (0, unused))

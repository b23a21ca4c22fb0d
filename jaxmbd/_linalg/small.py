"""Factorisations of dense matrices in plain arithmetic.

A loop that calls no library is compiled whole on CPUs (see `_compiled_whole.py`): a factorisation
in it is a loop in a loop, which costs its arithmetic alone, where a call of LAPACK costs about a
microsecond, and all that compiling the outer loop whole has saved. Up to 3 rows it is written out.
Large matrices are LAPACK's, and on GPUs, where each turn of a loop is a launch, so are those of any
size: `loop_or_library` and `loops_cost_nothing` decide.

Nothing is written at a place that is found at run time but by masks, so that nothing becomes a
scatter, under `vmap` either. Derivatives are never taken through these functions; see
`operator.py`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Bool, Float, Int

from .._fusion import MAX_REDUCED, once

MAX_UNROLLED = 3

# Rows of a matrix that count as few: its pseudoinverse takes about as long as its inverse.
FEW = 9

# Rows up to which a loop on one core takes about as long as LAPACK. A step of a system with more
# takes long enough not to mind a call.
_MAX_LOOPED = 128


def loops_cost_nothing() -> bool:
    """Whether a loop in a loop costs its arithmetic alone: on CPUs, not on GPUs. The one place that
    decides between loops and what does many things at once."""
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    if device is None:
        return jax.default_backend() == "cpu"
    return (device if isinstance(device, str) else device.platform) == "cpu"


def loop_or_library(rows: int, loop: Callable, library: Callable, *operands: Any) -> Any:
    """`loop(*operands)` for matrices of so few rows that it is faster, else
    `library(*operands)`."""
    looped = rows <= _MAX_LOOPED and loops_cost_nothing()
    return loop(*operands) if looped else library(*operands)


def batch_last(fn: Callable, tables: int = 0) -> Callable:
    """fn, of arrays with any further axes at the end, in which `vmap` puts those of a batch: so the
    innermost loops run over the batch, one number beside the other, and what is written at a place
    that all share is no scatter, as JAX would make it. The first `tables` operands are the same for
    all samples; fn must not close over arrays."""

    @jax.custom_batching.custom_vmap
    def batched(*operands):
        return fn(*operands)

    @batched.def_vmap
    def rule(size, is_batched, *operands):
        def last(x, moves):
            if moves:
                return jnp.moveaxis(x, 0, -1)
            return jnp.broadcast_to(x[..., None], (*x.shape, size))

        # JAX may have made copies of tables for all samples.
        shared = [x[0] if many else x for x, many in zip(operands[:tables], is_batched)]
        out = batched(*shared, *map(last, operands[tables:], is_batched[tables:]))
        first = jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), out)
        return first, jax.tree.map(lambda _: True, out)

    # To derivatives all that is made here is constant; said by a rule, since not all of JAX's
    # transformations of `custom_vmap` find that there is nothing to differentiate.
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
    """A @ B. XLA turns a small matrix product into a library call of half a microsecond; a sum
    fuses with its neighbours. Of more entries each column is a product with a vector, which XLA
    writes out."""
    if A.size * B.shape[1] <= MAX_REDUCED:
        return jnp.sum(A[:, :, None] * B[None, :, :], axis=1)
    return loop_or_library(max(*A.shape, *B.shape), _column_by_column, jnp.matmul, A, B)


def _column_by_column(A, B):
    return jax.lax.map(lambda column: A @ column, B.T).T


def apply(A: Float[Array, "m n"], x: Float[Array, " n"]) -> Float[Array, " m"]:
    """A @ x. A reduction is a kernel of its own to XLA, which a single column does not need."""
    return A[:, 0] * x if A.shape[1] == 1 else A @ x


def _scalars(A):
    n = A.shape[0]
    return [[A[i, j] for j in range(n)] for i in range(n)]


def _matrix(a):
    return jnp.stack([jnp.stack(row) for row in a])


# Indices in loops are never negative, which JAX would look after in each place.


def entry(A: Array, k: Int[Array, ""] | int, axis: int = 0) -> Array:
    """A[k], or that along another axis."""
    return jax.lax.dynamic_index_in_dim(A, k, axis, False, allow_negative_indices=False)


def replaced(A: Array, x: Array, k: Int[Array, ""] | int, axis: int = 0) -> Array:
    """A with x for A[k]."""
    return jax.lax.dynamic_update_index_in_dim(A, x, k, axis, allow_negative_indices=False)


def smallest(relative: Float[Array, "n *rest"]) -> Float[Array, "*rest"]:
    """The smallest of relative pivots, by how much of a diagonal entry is left after elimination: 1
    for a diagonal matrix, about 1/condition for a nearly singular one, and 0 where one is not
    positive, or NaN, which minima of XLA may pass over."""
    return jnp.min(jnp.where(relative > 0, relative, 0.0), axis=0)


def _smallest_pivot(pivots, A):
    return smallest(pivots / jnp.abs(jnp.diagonal(A)))


def whitener(M: Float[Array, "n n"]) -> tuple[Float[Array, "n n"], Bool[Array, ""]]:
    """Lower triangular W with W M W^T = 1 (the inverse Cholesky factor, M^-1 = W^T W), and whether
    M is numerically positive definite; where it is not, W may hold NaN."""
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
        W, pivots = loop_or_library(n, batch_last(eliminated), _inverse_of_cholesky, M)
    return W, _smallest_pivot(pivots, M) > 0


def root(M: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """R with R R^T = M, of a symmetric positive definite matrix."""
    return product(M, whitener(M)[0].T)


def eliminated(M: Float[Array, "n n *rest"]) -> tuple[Array, Array]:
    """L^-1 of symmetric positive definite matrices M = L L^T, and the pivots, by Gauss's
    elimination in (M, 1). Further axes stand at the end."""
    n, rest = M.shape[0], (1,) * (M.ndim - 2)
    if n <= FEW:
        return _eliminated_step_by_step(M)
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


def _eliminated_step_by_step(M):
    """The same without a loop. Of the rows that are left, only what is not known to be 0 or 1 is
    kept: the columns of M that are left, and those of L^-1 that are begun."""
    n, B, pivots, rows = M.shape[0], M, [], []
    for k in range(n):
        row, others = B[0], B[1:]
        pivots.append(row[0])
        begun = jnp.concatenate([row[n - k :], jnp.ones_like(row[:1])])
        rows.append(jnp.pad(begun, ((0, n - 1 - k), *((0, 0),) * (M.ndim - 2))))
        ratio = others[:, :1] / row[None, :1]
        B = once(jnp.concatenate([others[:, 1:] - ratio * row[None, 1:], -ratio], axis=1))
    pivots = jnp.stack(pivots)
    return jnp.stack(rows) / jnp.sqrt(pivots)[:, None], pivots


def _inverse_of_cholesky(M):
    L = jnp.linalg.cholesky(M, symmetrize_input=False)
    W = solve_triangular(L, jnp.eye(M.shape[0], dtype=M.dtype), lower=True)
    return W, jnp.diagonal(L) ** 2


def inverse(A: Float[Array, "n n"]) -> tuple[Float[Array, "n n"], Float[Array, ""]]:
    """A^-1 of a symmetric positive definite matrix, and the smallest relative pivot, which says how
    far it can be trusted (see `smallest`)."""
    n = A.shape[0]
    if n > MAX_UNROLLED:
        inv, relative = loop_or_library(n, _swept, _inverse_by_cholesky, A)
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
    """A^-1 and relative pivots by the sweep operator: Gauss-Jordan elimination in (A, 1), of which
    the columns of 1 take the place of those of A that are done."""
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
        # The matrix stays symmetric, but for the sign of what is done beside what is not. As the
        # update of a column, which leaves one product for all the rest, it takes a third of the
        # time of masks.
        column = jnp.where(here, pivot - 1, jnp.where(places < k, -row, row))
        row = jnp.where(here, 1.0, row) * (1 / pivot)[None]
        unit = jnp.broadcast_to(here, row.shape).astype(A.dtype)
        A = replaced(A, unit, k, 1)
        return A - column[:, None] * row[None, :], replaced(pivots, pivot, k)

    A = A * scale[:, None] * scale[None, :]
    A, pivots = jax.lax.fori_loop(0, n, sweep, (A, jnp.zeros_like(A[0])))
    return A * scale[:, None] * scale[None, :], pivots


def _inverse_by_cholesky(A):
    L = jnp.linalg.cholesky(A, symmetrize_input=False)
    relative = jnp.diagonal(L) ** 2 / jnp.abs(jnp.diagonal(A))
    return cho_solve((L, True), jnp.eye(A.shape[0], dtype=A.dtype)), relative


def general_inverse(A: Float[Array, "n n"]) -> tuple[Float[Array, "n n"], Float[Array, " n"]]:
    """A^-1 of any regular matrix by Gauss-Jordan elimination with partial pivoting, and the sizes
    of the pivots."""
    return loop_or_library(A.shape[0], _pivoted, _inverse_by_lu, A)


@batch_last
def _pivoted(A):
    n, rest = A.shape[0], A.shape[2:]
    places = jnp.arange(n).reshape(n, *(1,) * len(rest))

    # No rows are exchanged: each column keeps in mind of which row its pivot was.
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


def _inverse_by_lu(A):
    lu = jax.scipy.linalg.lu_factor(A)
    inv = jax.scipy.linalg.lu_solve(lu, jnp.eye(A.shape[0], dtype=A.dtype))
    return inv, jnp.abs(jnp.diagonal(lu[0]))


def pseudoinverse(
    C: Float[Array, "m n"], rtol: float | Float[Array, ""]
) -> tuple[Float[Array, "n m"], Float[Array, "m m"], Bool[Array, " m"]]:
    """C^+, an orthonormal basis Z of the range of C in its columns, and which of them are in use
    (the others are zero). Of few rows those at an angle below `rtol` to the span of others are
    treated as dependent, of more those whose distance from it is below `rtol` of the largest."""
    if C.shape[0] == 1:
        square = jnp.sum(C * C)
        kept = square > jnp.finfo(C.dtype).tiny
        X = C.T * jnp.where(kept, 1 / jnp.where(kept, square, 1.0), 0.0)
        return X, kept.astype(C.dtype).reshape(1, 1), kept[None]
    rtol = jnp.asarray(rtol, C.dtype)
    return loop_or_library(C.shape[0], _orthogonalised, _by_singular_values, C, rtol)


def _across(e, basis):
    """`e` without its components along the orthonormal rows of `basis`, and these, twice: once is
    not enough when `e` nearly lies in their span."""
    along = jnp.zeros_like(basis[:, 0])
    for _ in range(2):
        coefficients = jnp.sum(basis * e[None], axis=1)
        e = e - jnp.sum(coefficients[:, None] * basis, axis=0)
        along = along + coefficients
    return e, along


@batch_last
def _orthogonalised(C, rtol):
    """Complete orthogonal decomposition C = L Q, L = Z T: by Gram-Schmidt sweeps over the rows of
    C, the one that is farthest from the span of those before next, then over the columns of L;
    C^+ = Q^T T^-1 Z^T. Its error is eps * cond(C), that of the singular value decomposition, at a
    small part of the cost."""
    m, rest = C.shape[0], (1,) * (C.ndim - 2)
    places = jnp.arange(m).reshape(m, *rest)
    square = jnp.sum(C * C, axis=1)
    # Few rows are measured by their own lengths: those of heavy bodies are short, but no less
    # independent. A row of zeros has none, and is dependent.
    lengths = square if m <= FEW else jnp.max(square, axis=0, keepdims=True)
    floor = rtol[None] ** 2 * lengths + jnp.finfo(C.dtype).tiny

    def of_row(k, carry):
        E, Q, L, keep = carry
        size = jnp.sum(E * E, axis=1) / floor
        largest = jnp.max(size, axis=0)
        # Written at its place, which is found at run time, by a mask.
        here = (places == jnp.argmax(size, axis=0)[None])[:, None]
        e, _ = _across(jnp.sum(jnp.where(here, E, 0.0), axis=0), Q)
        square = jnp.sum(e * e, axis=0)
        kept = (largest > 1) & (square > 0)
        q = jnp.where(kept[None], e / jnp.sqrt(jnp.where(kept, square, 1.0))[None], 0.0)
        along = jnp.sum(E * q[None], axis=1)
        E = jnp.where(here, 0.0, E - along[:, None] * q[None])
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
        # T Y = Z^T, of which the rows after k are done.
        k = m - 1 - i
        row = entry(T, k)
        done = jnp.where(places > k, row, 0.0)
        left = entry(Z, k) - jnp.sum(done[:, None] * Y, axis=0)
        return replaced(Y, left / entry(row, k)[None], k)

    none = jnp.zeros((m, m, *C.shape[2:]), C.dtype)
    start = (C, jnp.zeros_like(C), none, jnp.zeros((m, *C.shape[2:]), bool))
    _, Q, L, keep = jax.lax.fori_loop(0, m, of_row, start)
    Z, T = jax.lax.fori_loop(0, m, of_column, (none, none))
    Y = jax.lax.fori_loop(0, m, substituted, none)

    def added(k, X):
        return X + entry(Q, k)[:, None] * entry(Y, k)[None]

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

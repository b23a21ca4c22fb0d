"""Elimination with complete pivoting, which splits the unknowns of J x = r into dependent and
independent ones."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._compiler import batch_last

# Pivots below this part of the largest entry, which is in a column that is not eligible, are too
# small.
_TOO_SMALL = 1e-2


class Partition(NamedTuple):
    """The split of the columns of J.

    - `inverse`: K with J K J = J. The dependent components of K r solve J x = r, where the
      independent ones are zero.
    - `dependent`: which columns are dependent.
    - `determined`: whether the other columns are independent. It is false if a row could only be
      solved for one of the columns that were not eligible, or nearly so.
    """

    inverse: Float[Array, "n m"]
    dependent: Bool[Array, " n"]
    determined: Bool[Array, ""]


def partition(
    J: Float[Array, "m n"],
    scale: Float[Array, " n"],
    eligible: Bool[Array, " n"],
    rtol: Float[Array, ""],
) -> Partition:
    """The partition of x by J x, where only `eligible` columns may become dependent. Columns are
    compared by their lengths for changes of x by `scale`. Rows count as dependent if less than
    `rtol` of their length is left. The result is constant in derivatives."""
    C = J * scale[None, :]
    length = jnp.sqrt(jnp.sum(C * C, axis=1))
    per_length = jnp.where(length > 0, 1 / jnp.where(length > 0, length, 1.0), 0.0)
    allowed = eligible.astype(J.dtype)
    K, dependent, determined = _eliminated(C * per_length[:, None], allowed, rtol.astype(J.dtype))
    return Partition(scale[:, None] * K * per_length[None, :], dependent, determined)


@batch_last
def _eliminated(C, allowed, rtol):
    """Gauss-Jordan elimination in (C, 1). The pivot is always the largest remaining entry in an
    allowed column. Rows are not exchanged: `row_of` stores the pivot row of each column."""
    (m, n), rest = C.shape[:2], (1,) * (C.ndim - 2)
    rows, columns = jnp.arange(m).reshape(m, *rest), jnp.arange(n).reshape(n, *rest)
    one = jnp.broadcast_to(jnp.eye(m, dtype=C.dtype).reshape(m, m, *rest), (m, m, *C.shape[2:]))

    def at(A, k, axis):
        """A[k], where samples may have different k, or the k-th entry along another axis."""
        k = jnp.expand_dims(k, tuple(range(A.ndim - k.ndim)))
        return jnp.squeeze(jnp.take_along_axis(A, k, axis=axis), axis)

    def sweep(_, carry):
        A, row_of, free, good = carry
        remaining = jnp.abs(A[:, :n]) * free[:, None]
        sizes = remaining * allowed[None]
        column = jnp.argmax(jnp.max(sizes, axis=0), axis=0)
        candidates = at(sizes, column, 1)
        row = jnp.argmax(candidates, axis=0)
        size, largest = jnp.max(candidates, axis=0), jnp.max(remaining, axis=(0, 1))
        kept = size > rtol
        good = good & ((largest <= rtol) | (size > _TOO_SMALL * largest))
        here = rows == row[None]
        pivot_row, entries = at(A, row, 0), at(A, column, 1)
        pivot = jnp.where(kept, at(pivot_row, column, 0), 1.0)
        pivot_row = pivot_row / pivot[None]
        ratio = jnp.where(here, 0.0, entries)
        reduced = A - ratio[:, None] * pivot_row[None]
        A = jnp.where(kept, jnp.where(here[:, None], pivot_row[None], reduced), A)
        row_of = jnp.where((columns == column[None]) & kept[None], row[None], row_of)
        return A, row_of, free * jnp.where(here & kept[None], 0.0, 1.0), good

    start = (
        jnp.concatenate([C, one], axis=1),
        jnp.full((n, *C.shape[2:]), -1),
        jnp.ones((m, *C.shape[2:]), C.dtype),
        jnp.ones(C.shape[2:], bool),
    )
    A, row_of, free, good = jax.lax.fori_loop(0, min(m, n), sweep, start)
    dependent = row_of >= 0
    chosen = jnp.take_along_axis(A[:, n:], jnp.maximum(row_of, 0)[:, None], axis=0)
    left = jnp.max(jnp.abs(A[:, :n]) * free[:, None], axis=(0, 1))
    return jnp.where(dependent[:, None], chosen, 0.0), dependent, good & (left <= rtol)

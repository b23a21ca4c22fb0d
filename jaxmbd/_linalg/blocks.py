"""Sparse M and J of many bodies as structures of arrays: component axes first, element axis last.

A vector of velocities is the flattened table `(size, count)` of all bodies. Rows come kind by
kind of elements; those of a kind are a flattened table `(rows, elements)`.
"""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, Shaped

from .._compiler import (
    contracted,
    loops_cost_nothing,
    materialise,
    materialise_cotangent,
    product,
    total,
)

# Up to this many slices are faster than a gather.
_MAX_SLICES = 4

# Up to this many values in one column, gathers are faster than a scatter.
_MAX_LAYERS = 4

# Limits to the number of columns times the number of columns selected: up to the first, a product
# with zeros and ones is faster than a gather; up to the second, it replaces a sort or a scatter.
_FEW, _SOME = 1024, 16384


def picks(
    index: np.ndarray | Array, count: int, dtype: DTypeLike
) -> Float[Array, "*shape count"] | None:
    """The matrix of zeros and ones that selects columns by a product, or `None` where a gather is
    faster. The derivative of the product is a product again. A gather has a scatter, with
    which XLA does not compile a loop whole."""
    if not loops_cost_nothing() or index.size * count > _FEW:
        return None
    numbers = jnp.arange(count).reshape((1,) * index.ndim + (count,))
    return (jnp.asarray(index)[..., None] == numbers).astype(dtype)


def smallest_first(x: Float[Array, " n"], count: int) -> Int[Array, " count"]:
    """Indices of the `count` smallest entries of x, in order, NaN first."""
    x, n = jnp.where(jnp.isnan(x), -jnp.inf, x), x.shape[0]
    if not loops_cost_nothing() or n * count > _SOME:
        return jax.lax.top_k(-x, count)[1]
    # The rank of an entry is the number of entries before it. A sort would keep loops from being
    # compiled whole.
    number = jnp.arange(n)

    def rank(one):
        value, i = one
        return jnp.sum((x < value) | ((x == value) & (number < i)))

    ranks = jax.lax.map(rank, (x, number))
    return jax.lax.map(lambda k: jnp.argmax(ranks == k), jnp.arange(count))


def take_rows(x: Shaped[Array, "n *rest"], index: Int[Array, " k"]) -> Shaped[Array, "k *rest"]:
    """`x[index]`. For few entries its derivative contains no scatter."""
    n = x.shape[0]
    if not loops_cost_nothing() or n * index.size > _SOME:
        return x[index]
    return jax.lax.map(lambda i: _where_sum(jnp.arange(n) == i, x), index)


def put_rows(
    x: Shaped[Array, "k *rest"], index: Int[Array, " k"], n: int
) -> Shaped[Array, "n *rest"]:
    """The inverse of `take_rows`, with zeros at all other places."""
    if not loops_cost_nothing() or n * index.size > _SOME:
        return jnp.zeros((n, *x.shape[1:]), x.dtype).at[index].set(x)
    return jax.lax.map(lambda i: _where_sum(index == i, x), jnp.arange(n))


def _where_sum(here: Bool[Array, " n"], x: Shaped[Array, "n *rest"]) -> Shaped[Array, "*rest"]:
    """The entry of x at the only place where `here` is true."""
    here = here.reshape(-1, *(1,) * (x.ndim - 1))
    if x.dtype == bool:
        return jnp.any(here & x, axis=0)
    return jnp.sum(jnp.where(here, x, jnp.zeros((), x.dtype)), axis=0)


def columns(table: Float[Array, "*rows n"], index: np.ndarray) -> Float[Array, "*rows k"]:
    """`table[..., index]`, as slices where the index advances evenly. XLA fuses slices with other
    operations, in both modes of differentiation."""
    if index.size == 0:
        return table[..., :0]
    runs = _runs(index)
    if len(runs) > _MAX_SLICES:
        if (here := picks(index, table.shape[-1], table.dtype)) is not None:
            return _picked(table, here.T)
        return table.at[..., index].get(mode="promise_in_bounds")
    parts = [table[..., run] for run in runs]
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=-1)


@functools.lru_cache(maxsize=4096)
def _runs_of(index: tuple[int, ...]) -> list[slice]:
    runs, start = [], 0
    while start < len(index):
        step = index[start + 1] - index[start] if start + 1 < len(index) else 1
        stop = start + 1
        while step > 0 and stop < len(index) and index[stop] - index[stop - 1] == step:
            stop += 1
        if stop == start + 1:
            step = 1
        runs.append(slice(index[start], index[stop - 1] + 1, step))
        start = stop
    return runs


def _runs(index: np.ndarray) -> list[slice]:
    """The slices that make up an index."""
    return _runs_of(tuple(index.tolist()))


def accumulated(
    table: Float[Array, "*rows n"], index: np.ndarray, values: Float[Array, "*rows k"]
) -> Float[Array, "*rows n"]:
    """`table.at[..., index].add(values)`, except for the last column, the ground, whose values are
    not used. If few values go to one column, it is done by gathers, which XLA fuses. A scatter is a
    loop over single numbers."""
    order = np.argsort(index, kind="stable")
    turn = np.empty_like(index)  # how many values before it go to the same column
    turn[order] = np.arange(len(index)) - np.searchsorted(index[order], index[order])
    turn = np.where(index == table.shape[-1] - 1, -1, turn)
    if turn.max(initial=0) >= _MAX_LAYERS:
        if (here := picks(index, table.shape[-1], table.dtype)) is not None:
            return table + _picked(values, here)
        return table.at[..., index].add(values)
    for layer in range(turn.max(initial=-1) + 1):
        source = np.full(table.shape[-1], len(index))
        here = turn == layer
        source[index[here]] = np.flatnonzero(here)
        table = table + padded_columns(values, source)
    return table


def padded_columns(table: Float[Array, "*rows n"], index: np.ndarray) -> Float[Array, "*rows k"]:
    """`table[..., index]`, zero where the index is past the end."""
    n = table.shape[-1]
    if np.all(index < n):
        return columns(table, index)
    inside = np.flatnonzero(index < n)
    if inside.size == 0:
        return jnp.zeros((*table.shape[:-1], index.size), table.dtype)
    first, last = inside[0], inside[-1] + 1
    if last - first == inside.size and len(_runs(index[first:last])) <= _MAX_SLICES:
        pad = [(0, 0)] * (table.ndim - 1) + [(int(first), int(index.size - last))]
        return jnp.pad(columns(table, index[first:last]), pad)
    if (here := picks(index, n, table.dtype)) is not None:
        return _picked(table, here.T)
    return table.at[..., index].get(mode="fill", fill_value=0)


def _picked(table: Float[Array, "*rows n"], here: Float[Array, "n k"]) -> Float[Array, "*rows k"]:
    flat = product(table.reshape(-1, here.shape[0]), here)
    return flat.reshape(*table.shape[:-1], here.shape[1])


def blocks_times(A: Float[Array, "m n *k"], x: Float[Array, "n *k"]) -> Float[Array, "m *k"]:
    """A x, block by block."""
    return contracted(A, x[None], 1)


def transposed_blocks_times(
    A: Float[Array, "m n *k"], y: Float[Array, "m *k"]
) -> Float[Array, "n *k"]:
    """A^T y, block by block."""
    return contracted(A, y[:, None], 0)


class BlockRoot(eqx.Module):
    """R with R R^T = M^-1, block by block. Each block is (diag(scale), P): a diagonal matrix for
    the first components of the velocities (translations), then k full columns (rotations).

    - `scale`: shape `(size - k, count)`.
    - `columns`: P, shape `(size, k, count)`; or only its last rows, if the others are zero.
    """

    scale: Float[Array, "_rest *count"]
    columns: Float[Array, "_rows _k *count"] = eqx.field(converter=materialise)

    @property
    def _zeros(self) -> int:
        """The number of rows that P has beyond `columns`."""
        m, (rows, k) = self.scale.shape[0], self.columns.shape[:2]
        return m + k - rows

    def _table(self, x: Float[Array, " n"]) -> Float[Array, "size count"]:
        return x.reshape(self.scale.shape[0] + self.columns.shape[1], -1)

    def __matmul__(self, y: Float[Array, " n"]) -> Float[Array, " n"]:
        """R y."""
        table, m = self._table(y), self.scale.shape[0]
        shifts, x = self.scale * table[:m], blocks_times(self.columns, table[m:])
        z = self._zeros
        if z == m:
            return jnp.concatenate([shifts, x]).ravel()
        both = jnp.pad(shifts, ((0, len(table) - m), (0, 0)))
        return (both + jnp.pad(x, ((z, 0), (0, 0)))).ravel()

    def __rmatmul__(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """x R = R^T x."""
        return self.transposed_times(self._table(x)[:, None]).ravel()

    def transposed_times(self, x: Float[Array, "size k count"]) -> Float[Array, "size k count"]:
        """R^T x of several vectors x."""
        shifts = self.scale[:, None] * x[: self.scale.shape[0]]
        turns = contracted(self.columns[:, :, None], x[self._zeros :, None], 0)
        return jnp.concatenate([shifts, turns])

    def rows(self, A: Float[Array, "rows size k"], bodies: np.ndarray) -> Array:
        """A R for blocks A of rows; each block belongs to one of the `bodies` or the ground."""
        scale, P = (padded_columns(x, bodies) for x in (self.scale, self.columns))
        shifts = A[:, : scale.shape[0]] * scale[None]
        turns = contracted(A[:, self._zeros :, None], P[None], 1)
        return jnp.concatenate([shifts, turns], axis=1)

    def whitener(self) -> Float[Array, "size size count"]:
        """W = R^T, with W M W^T = 1."""
        m, P = self.scale.shape[0], self.columns
        one = jnp.eye(m, m + P.shape[1], dtype=self.scale.dtype)[:, :, None]
        P = jnp.pad(P, ((self._zeros, 0), (0, 0), (0, 0)))
        return jnp.concatenate([one * self.scale[:, None], jnp.swapaxes(P, 0, 1)])


class BlockDiagonal(eqx.Module):
    """M = diag(M_1, M_2, ...).

    - `blocks`: shape `(size, size, count)`.
    - `root`: R with R R^T = M^-1, and `definite`: whether all blocks are positive definite; both
      are `None` unless they are known without elimination.
    """

    blocks: Float[Array, "size size count"]
    root: BlockRoot | None = None
    definite: Bool[Array, ""] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        size, _, count = self.blocks.shape
        return size * count, size * count

    @property
    def dtype(self) -> np.dtype:
        return self.blocks.dtype

    def __matmul__(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        return blocks_times(self.blocks, x.reshape(self.blocks.shape[1:])).ravel()

    def dense(self) -> Float[Array, "n n"]:
        # By a selection: XLA does not compile loops with a scatter whole.
        count = self.blocks.shape[2]
        own = np.eye(count, dtype=bool)[None, :, None]
        M = jnp.where(own, jnp.swapaxes(self.blocks, 1, 2)[..., None], 0.0)
        return M.reshape(self.shape)


# For each kind of elements of a table, the number of rows of one element and of elements.
Kinds: TypeAlias = tuple[tuple[int, int], ...]


def row_table(x: Float[Array, " all"], kinds: Kinds) -> Float[Array, "longest elements"]:
    """One number for each row, as a table with a column for each element, padded with zeros."""
    tables, start = [], 0
    for rows, elements in kinds:
        tables.append(x[start : start + rows * elements].reshape(rows, elements))
        start += rows * elements
    return _side_by_side(tables)


def table_rows(table: Float[Array, "longest elements *rest"], kinds: Kinds) -> list[Array]:
    """The rows of each kind, without padding: the inverse of `row_table`, before concatenation."""
    parts, start = [], 0
    for rows, elements in kinds:
        own = table[:rows, start : start + elements]
        parts.append(own.reshape(rows * elements, *table.shape[2:]))
        start += elements
    return parts


def _side_by_side(tables: Sequence[Float[Array, "_rows *size _elements"]]) -> Array:
    """Tables one beside the other along the last axis, padded with zeros along the first."""
    longest = max(table.shape[0] for table in tables)
    rest = tables[0].ndim - 1
    padded = [
        jnp.pad(x, ((0, longest - x.shape[0]), *((0, 0),) * rest)) if x.shape[0] < longest else x
        for x in tables
    ]
    return padded[0] if len(padded) == 1 else jnp.concatenate(padded, axis=-1)


def _row_count(kinds: Kinds) -> int:
    return sum(rows * elements for rows, elements in kinds)


class BlockRows(eqx.Module):
    """J of rows that depend on few bodies each.

    - `pieces`: a piece holds rows of elements, shape `(ends, rows, size, elements)`. Its elements
      may be of several kinds, with zeros in place of the rows that a kind lacks: all kinds together
      are quicker to compile than each apart.
    - `kinds`: for each piece, the number of rows of an element and the number of elements of each
      kind. The rows of J are ordered by kinds.
    - `ends`: for each piece, the bodies at each end of its elements, as tuples of body numbers. The
      number `count` is the ground, which does not move. The ends of one element must be different
      bodies: see `merged`.
    - `count`: number of bodies; `size`: number of velocities of each.
    - `closing`: the elements whose rows may depend on others. All other rows are independent by
      their structure. Elements are numbered piece by piece.
    """

    pieces: tuple[Float[Array, "_ends _rows _size _elements"], ...]
    kinds: tuple[Kinds, ...] = eqx.field(static=True)
    ends: tuple[tuple[tuple[int, ...], ...], ...] = eqx.field(static=True)
    count: int = eqx.field(static=True)
    size: int = eqx.field(static=True)
    closing: tuple[int, ...] = eqx.field(static=True)

    @classmethod
    def none(cls, count: int, size: int) -> "BlockRows":
        """No rows."""
        return cls((), (), (), count, size, ())

    @classmethod
    def merged(
        cls, blocks, ends, count: int, size: int, closing: Iterable[int] | None = None
    ) -> "BlockRows":
        """Rows of kinds of elements, which may have several ends on one body: J at each end, and
        the bodies there. Kinds with equally many ends, one after the other, are one piece. By
        default all rows may depend on others."""
        pieces, kinds, bodies = [], [], []
        for of_kind, its_ends in zip(map(list, blocks), map(list, ends), strict=True):
            for j in range(len(of_kind)):
                for i in range(j):
                    same = (its_ends[i] == its_ends[j]) & (its_ends[j] < count)
                    if np.any(same):
                        here = same[None, None]
                        of_kind[i] = of_kind[i] + jnp.where(here, of_kind[j], 0.0)
                        of_kind[j] = jnp.where(here, 0.0, of_kind[j])
                        its_ends[j] = np.where(same, count, its_ends[j])
            if not (bodies and len(bodies[-1]) == len(its_ends)):
                pieces.append([[] for _ in its_ends])
                bodies.append([() for _ in its_ends])
                kinds.append(())
            rows, _, elements = of_kind[0].shape
            kinds[-1] += ((rows, elements),)
            bodies[-1] = [b + tuple(map(int, e)) for b, e in zip(bodies[-1], its_ends, strict=True)]
            for piece, block in zip(pieces[-1], of_kind, strict=True):
                piece.append(block)
        together = tuple(
            jnp.stack([materialise(_side_by_side(end)) for end in piece]) for piece in pieces
        )
        if closing is None:
            closing = range(sum(elements for of_piece in kinds for _, elements in of_piece))
        ends = tuple(map(tuple, bodies))
        return cls(together, tuple(kinds), ends, count, size, tuple(sorted(closing)))

    def _with(self, pieces: Iterable[Array]) -> "BlockRows":
        return dataclasses.replace(self, pieces=tuple(pieces))

    @property
    def independent(self) -> bool:
        """Whether all rows are independent by their structure."""
        return not self.closing

    @property
    def elements(self) -> int:
        """The number of elements."""
        return sum(elements for kinds in self.kinds for _, elements in kinds)

    def scaled(self, factors: Float[Array, " rows"]) -> "BlockRows":
        """Each row times its factor."""
        parts = zip(self.pieces, self._tables(factors), strict=True)
        return self._with(x * own[None, :, None] for x, own in parts)

    def switched(self, on: Float[Array, " rows"]) -> "BlockRows":
        """Each row times 1 or 0. No row of the result is known to be independent."""
        return dataclasses.replace(self.scaled(on), closing=tuple(range(self.elements)))

    def whitened(self, root: BlockRoot) -> "BlockRows":
        """J R."""
        pieces = (
            jnp.stack(
                [
                    materialise(root.rows(block, np.array(end)))
                    for block, end in zip(piece, ends, strict=True)
                ]
            )
            for piece, ends in zip(self.pieces, self.ends, strict=True)
        )
        return self._with(pieces)

    def followed_by(self, more: "BlockRows") -> "BlockRows":
        """These rows, then `more`, which must be independent of them."""
        return dataclasses.replace(
            self,
            pieces=self.pieces + more.pieces,
            kinds=self.kinds + more.kinds,
            ends=self.ends + more.ends,
        )

    def first(self, rows: int) -> "BlockRows":
        """The kinds of elements that make up the first `rows` rows."""
        pieces, kept, bodies, left, start = [], [], [], [], 0
        for piece, kinds, ends in zip(self.pieces, self.kinds, self.ends, strict=True):
            of_kinds = np.cumsum([0, *(_row_count((kind,)) for kind in kinds)])
            k = int(np.searchsorted(of_kinds, min(rows, of_kinds[-1])))
            assert of_kinds[k] == min(rows, of_kinds[-1]), "The rows of a kind stay together."
            if k == 0:
                break
            n = sum(elements for _, elements in kinds[:k])
            pieces.append(piece[:, : max(r for r, _ in kinds[:k]), :, :n])
            kept.append(kinds[:k])
            bodies.append(tuple(end[:n] for end in ends))
            left.extend(range(start, start + n))
            start += piece.shape[-1]
            rows -= int(of_kinds[k])
        closing = tuple(left.index(i) for i in self.closing if i in left)
        return dataclasses.replace(
            self, pieces=tuple(pieces), kinds=tuple(kept), ends=tuple(bodies), closing=closing
        )

    def by_kind(self) -> Iterator[Float[Array, "_ends _rows size _elements"]]:
        """J of each kind of elements."""
        for piece, kinds in zip(self.pieces, self.kinds, strict=True):
            start = 0
            for rows, elements in kinds:
                yield piece[:, :rows, :, start : start + elements]
                start += elements

    @property
    def all_kinds(self) -> Kinds:
        """The kinds of all pieces."""
        return tuple(kind for kinds in self.kinds for kind in kinds)

    def by_element(self, x: Float[Array, " rows"]) -> Float[Array, "longest elements"]:
        """One number for each row, as a table with a column for each element, padded with
        zeros."""
        return row_table(x, self.all_kinds)

    def by_row(self, table: Float[Array, "longest elements *rest"]) -> Float[Array, "rows *rest"]:
        """The inverse of `by_element`."""
        return jnp.concatenate(table_rows(table, self.all_kinds))

    def _tables(self, x: Float[Array, " all"]) -> list[Float[Array, "_rows _elements"]]:
        """One number for each row, as a table for each piece."""
        tables, start = [], 0
        for kinds in self.kinds:
            stop = start + _row_count(kinds)
            tables.append(row_table(x[start:stop], kinds))
            start = stop
        return tables

    @property
    def shape(self) -> tuple[int, int]:
        return sum(map(_row_count, self.kinds)), self.size * self.count

    @property
    def longest(self) -> int:
        """The largest number of rows of one element."""
        return max(piece.shape[1] for piece in self.pieces)

    def __matmul__(self, x: Float[Array, " n"]) -> Float[Array, " rows"]:
        table = x.reshape(self.size, self.count)
        table = jnp.concatenate([table, jnp.zeros((self.size, 1), x.dtype)], axis=1)
        rows = [jnp.zeros(0, x.dtype)]
        for piece, kinds, ends in zip(self.pieces, self.kinds, self.ends, strict=True):
            # All ends at once, so that the derivative of J is one product for all of them.
            here = materialise(jnp.stack([columns(table, np.array(end)) for end in ends]))
            parts = materialise_cotangent(contracted(piece, here[:, None], 2))
            rows.extend(table_rows(total(parts), kinds))
        return jnp.concatenate(rows)

    def times(self, x: Float[Array, "size k count"]) -> Float[Array, "longest k elements"]:
        """J x of several vectors x, as a table with a column for each element. Constant to
        derivatives."""
        parts = []
        for piece, ends in zip(self.pieces, self.ends, strict=True):
            here = x.at[..., np.array(ends)].get(mode="fill", fill_value=0)
            here = materialise(jnp.moveaxis(here, -2, 0))
            parts.append(total(contracted(piece[:, :, :, None], here[:, None], 2)))
        return _side_by_side(parts)

    def __rmatmul__(self, y: Float[Array, " rows"]) -> Float[Array, " n"]:
        """y J = J^T y."""
        table = jnp.zeros((self.size, self.count + 1), y.dtype)
        for piece, part, ends in zip(self.pieces, self._tables(y), self.ends, strict=True):
            found = materialise_cotangent(contracted(piece, part[None, :, None], 1))
            for values, end in zip(found, ends, strict=True):
                table = accumulated(table, np.array(end), values)
        return table[:, : self.count].ravel()

    def squares(self, weights: Float[Array, "size count"]) -> Float[Array, " rows"]:
        """The sum of the squares of each row's entries, with weights."""
        return self._with(x * x for x in self.pieces) @ weights.ravel()

    def dense(self) -> Float[Array, "rows n"]:
        dtype = self.pieces[0].dtype if self.pieces else jnp.result_type(float)
        parts = [jnp.zeros((0, self.size, self.count + 1), dtype)]
        for piece, kinds, ends in zip(self.pieces, self.kinds, self.ends, strict=True):
            # By selections: XLA does not compile loops with a scatter whole.
            own = (np.array(ends)[:, :, None] == np.arange(self.count + 1))[:, None, :, None]
            blocks = jnp.swapaxes(piece, 2, 3)[..., None]
            J = total(jnp.where(here, x, 0.0) for x, here in zip(blocks, own, strict=True))
            parts.extend(table_rows(J, kinds))
        return jnp.concatenate(parts)[:, :, : self.count].reshape(self.shape)


class CoupledBlocks(eqx.Module):
    """M = D + R^T diag(w) R: the inertia D of each body, and inertia w >= 0 that resists changes of
    the velocities R v. Each of these velocities depends on few bodies."""

    diagonal: BlockDiagonal
    rows: BlockRows
    weights: Float[Array, " rows"]

    @property
    def shape(self) -> tuple[int, int]:
        return self.diagonal.shape

    @property
    def dtype(self) -> np.dtype:
        return self.diagonal.dtype

    def __matmul__(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        return self.diagonal @ x + (self.weights * (self.rows @ x)) @ self.rows

    def dense(self) -> Float[Array, "n n"]:
        R = self.rows.dense()
        return self.diagonal.dense() + R.T @ (self.weights[:, None] * R)


def dense(A: Any) -> Array:
    """A, which may be blocks or an array, as an array."""
    return A.dense() if isinstance(A, BlockDiagonal | CoupledBlocks | BlockRows) else A

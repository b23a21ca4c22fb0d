"""Sparse M and J of many bodies, as structures of arrays: component axes first, element axis last.

Vectors of velocities are tables `(size, count)` of all bodies, flattened; rows come piece by piece,
each a table `(rows, elements)`, flattened.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def columns(table: Float[Array, "*rows n"], index: np.ndarray) -> Float[Array, "*rows k"]:
    """`table[..., index]`; a slice where the index runs evenly, which XLA fuses with anything."""
    first, steps = index[0], np.diff(index)
    if len(index) == 1 or (np.all(steps == steps[0]) and steps[0] > 0):
        step = 1 if len(index) == 1 else steps[0]
        return table[..., first : index[-1] + 1 : step]
    return table.at[..., index].get(mode="promise_in_bounds")


class BlockDiagonal(eqx.Module):
    """M = diag(M_1, M_2, ...): `blocks` has the shape `(size, size, count)`."""

    blocks: Float[Array, "size size count"]

    @property
    def shape(self) -> tuple[int, int]:
        size, _, count = self.blocks.shape
        return size * count, size * count

    @property
    def dtype(self) -> Any:
        return self.blocks.dtype

    def __matmul__(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        table = x.reshape(self.blocks.shape[1:])
        return jnp.sum(self.blocks * table[None], axis=1).ravel()

    def dense(self) -> Float[Array, "n n"]:
        size, _, count = self.blocks.shape
        i = np.arange(count)
        M = jnp.zeros((size, count, size, count), self.dtype)
        M = M.at[:, i, :, i].set(jnp.moveaxis(self.blocks, -1, 0))
        return M.reshape(self.shape)


class BlockRows(eqx.Module):
    """J of rows that touch few bodies each.

    - `pieces`: a piece holds rows of elements of one kind, shape `(ends, rows, size, elements)`.
    - `ends`: for each piece, the bodies at each end of its elements, as tuples of body numbers;
      `count` is the ground, which does not move. The ends of one element are different bodies:
      `merged` sees to that.
    - `count`: number of bodies; `size`: of their velocities.
    - `independent`: whether the structure tells that no row depends on others.
    """

    pieces: tuple[Float[Array, "ends rows size elements"], ...]
    ends: tuple[tuple[tuple[int, ...], ...], ...] = eqx.field(static=True)
    count: int = eqx.field(static=True)
    size: int = eqx.field(static=True)
    independent: bool = eqx.field(static=True, default=False)

    @classmethod
    def none(cls, M: BlockDiagonal) -> "BlockRows":
        """No rows."""
        size, _, count = M.blocks.shape
        return cls((), (), count, size, independent=True)

    @classmethod
    def merged(cls, pieces, ends, count: int, size: int, independent: bool) -> "BlockRows":
        """Rows of elements of which several ends may be on one body."""
        new_pieces, new_ends = [], []
        for piece, its_ends in zip(pieces, ends, strict=True):
            blocks, bodies = list(piece), [np.array(end) for end in its_ends]
            for j in range(len(blocks)):
                for i in range(j):
                    same = (bodies[i] == bodies[j]) & (bodies[j] < count)
                    if np.any(same):
                        here = same[None, None]
                        blocks[i] = blocks[i] + jnp.where(here, blocks[j], 0.0)
                        blocks[j] = jnp.where(here, 0.0, blocks[j])
                        bodies[j] = np.where(same, count, bodies[j])
            new_pieces.append(jnp.stack(blocks))
            new_ends.append(tuple(tuple(int(b) for b in end) for end in bodies))
        return cls(tuple(new_pieces), tuple(new_ends), count, size, independent)

    def first(self, rows: int) -> "BlockRows":
        """The pieces that make up the first `rows` rows."""
        ends = np.cumsum([0] + [p.shape[1] * p.shape[3] for p in self.pieces])
        k = int(np.searchsorted(ends, rows))
        assert ends[k] == rows
        return BlockRows(self.pieces[:k], self.ends[:k], self.count, self.size, self.independent)

    @property
    def shape(self) -> tuple[int, int]:
        return sum(p.shape[1] * p.shape[3] for p in self.pieces), self.size * self.count

    def __matmul__(self, x: Float[Array, " n"]) -> Float[Array, " rows"]:
        table = x.reshape(self.size, self.count)
        table = jnp.concatenate([table, jnp.zeros((self.size, 1), x.dtype)], axis=1)
        rows = [jnp.zeros(0, x.dtype)]
        for piece, ends in zip(self.pieces, self.ends, strict=True):
            x_at_ends = jnp.stack([columns(table, np.array(end)) for end in ends])
            rows.append(jnp.sum(piece * x_at_ends[:, None], axis=(0, 2)).ravel())
        return jnp.concatenate(rows)

    def __rmatmul__(self, y: Float[Array, " rows"]) -> Float[Array, " n"]:
        """y J = J^T y."""
        table = jnp.zeros((self.size, self.count + 1), y.dtype)
        start = 0
        for piece, ends in zip(self.pieces, self.ends, strict=True):
            _, rows, _, elements = piece.shape
            part = y[start : start + rows * elements].reshape(rows, 1, elements)
            start += rows * elements
            for block, end in zip(piece, ends, strict=True):
                table = table.at[:, np.array(end)].add(jnp.sum(block * part, axis=0))
        return table[:, : self.count].ravel()

    def dense(self) -> Float[Array, "rows n"]:
        dtype = self.pieces[0].dtype if self.pieces else jnp.result_type(float)
        parts = [jnp.zeros((0, self.size, self.count + 1), dtype)]
        for piece, ends in zip(self.pieces, self.ends, strict=True):
            _, rows, _, elements = piece.shape
            J = jnp.zeros((rows, elements, self.size, self.count + 1), dtype)
            i = np.arange(elements)
            for block, end in zip(piece, ends, strict=True):
                J = J.at[:, i, :, np.array(end)].add(jnp.moveaxis(block, -1, 0))
            parts.append(J.reshape(rows * elements, self.size, self.count + 1))
        return jnp.concatenate(parts)[:, :, : self.count].reshape(self.shape)


def dense(A: Any) -> Array:
    """A as an array, whatever it was."""
    return A.dense() if isinstance(A, BlockDiagonal | BlockRows) else A

"""Sparse elimination of the constraint rows of many bodies."""

import functools
from collections.abc import Callable, Iterable
from typing import Annotated, Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._compiler import (
    apply,
    batch_last,
    contracted,
    entry,
    inverse,
    inverse_cholesky,
    loops_cost_nothing,
    materialise,
    product,
    replaced,
    smallest,
    total,
)
from .._inputs import at_least, checked, positive
from .._results import RESULTS
from .._types import Rows
from .base import AbstractConstraintSolver, ConstraintEquations, WhitenedRows
from .blocks import (
    BlockDiagonal,
    BlockRoot,
    BlockRows,
    CoupledBlocks,
    blocks_times,
    columns,
    padded_columns,
    transposed_blocks_times,
)
from .border import Border, DenseRows, border, dense_rows
from .elimination import LevelOrder, NodeOrder, level_order, node_order
from .proximal import annihilate, iterate, regularisation, relative_regularisation

# Up to this many rows are left to one dense factorisation. The second number is for independent
# rows on GPUs, where the blocks of a level are eliminated together; the third for the rows that
# close loops, after the others have been eliminated.
_FEW_ROWS, _FEW_BESIDE_LEVELS, _FEW_CLOSING = 25, 6, 12


class _Level(NamedTuple):
    """The factors of nodes that are eliminated together: W = L^-1 of their blocks D = L L^T, and
    the products Y = W U for all neighbours. With L in place of D^-1, nearly singular blocks lose no
    more digits than in a Cholesky factorisation."""

    W: Float[Array, "s s k"]
    Y: list[Float[Array, "s s k"]]


class _Levels(eqx.Module):
    """Elimination level by level, and the inverse of the matrix that remains."""

    order: LevelOrder = eqx.field(static=True)
    levels: list[_Level]
    bottom: Float[Array, "n n"]

    def solve(self, r: Float[Array, "s nodes"]) -> Float[Array, "s nodes"]:
        """Forward and back substitution."""
        waiting, orders = [], self.order.levels
        for level, of in zip(self.levels, orders, strict=True):
            here = blocks_times(level.W, columns(r, of.eliminated))
            waiting.append(here)
            out = [transposed_blocks_times(Y, here) for Y in level.Y]
            r = _updated(columns(r, of.kept), out, of.node_updates)
        x = apply(self.bottom, r.T.ravel()).reshape(r.shape[::-1]).T
        for level, of, here in zip(self.levels[::-1], orders[::-1], waiting[::-1], strict=True):
            for Y, near in zip(level.Y, of.neighbours, strict=True):
                here = here - blocks_times(Y, padded_columns(x, near))
            solved = transposed_blocks_times(level.W, here)
            back = np.argsort(np.concatenate([of.eliminated, of.kept]))
            x = columns(jnp.concatenate([solved, x], axis=1), back)
        return x


class _Sequence(eqx.Module):
    """Elimination node by node: the same factors, in the order of elimination."""

    order: NodeOrder = eqx.field(static=True)
    W: Float[Array, "nodes s s"]
    Y: Float[Array, "nodes d s s"]

    def solve(
        self,
        r: Float[Array, "s nodes"],
        end: Callable[[Float[Array, " m"]], Float[Array, " m"]] | None = None,
    ) -> Float[Array, "s nodes"]:
        """Forward and back substitution, and between them the solution `end` of the rest."""
        x, n = self.forward(r.T), len(self.W)
        if end is not None:
            x = jnp.concatenate([x[:n], end(x[n:].ravel()).reshape(x[n:].shape)])
        return self.back(x).T

    def forward(self, r: Float[Array, "nodes s *k"]) -> Float[Array, "nodes s *k"]:
        """L^-1 r of one right side, or of k of them, in the order of elimination."""
        near = jnp.asarray(self.order.neighbours)
        r = _in_order(self.order.order, r)
        return batch_last(_forward_loop, 1)(near, self.W, self.Y, r)

    def back(self, x: Float[Array, "nodes s *k"]) -> Float[Array, "nodes s *k"]:
        """Back substitution of one right side, or of k of them, with the solution of the rest
        given."""
        near = jnp.asarray(self.order.neighbours)
        x = batch_last(_back_loop, 1)(near, self.W, self.Y, x)
        return _in_order(np.argsort(self.order.order), x)


class _Factor(eqx.Module):
    """- `root`: R with R R^T = M^-1; `K` = J R, so that G = K K^T + E.
    - `eliminated`: the rows that are eliminated in blocks; `rest`: rows that may be dependent.
    - `shared`: for a `CoupledBlocks`, whose rows follow those of J in this factor, the factor of
      its rows alone. It gives M^-1 without constraints. `None` if M is block diagonal."""

    root: BlockRoot
    K: BlockRows
    E: Rows | None
    pivot: Float[Array, ""]
    positive_definite: Bool[Array, ""]
    relative: Float[Array, ""] | None = None
    rho: Rows | None = None
    eliminated: _Sequence | _Levels | None = None
    rest: Border | DenseRows | None = None
    shared: "_Factor | None" = None


@checked
class BlockSparse(AbstractConstraintSolver):
    """Sparse block elimination of G = J M^-1 J^T + E for mechanisms of many bodies. It takes O(n)
    work for trees of n bodies, and an order with little fill for closed loops. The order is found
    once, when tracing. On GPUs, joints that are independent of each other are eliminated together.
    Joints on one body all depend on each other: k of them cost O(k^3), so a hub should have a few
    tens at most.

    Inertia that bodies share, M = D + R^T w R of actuators with rotors, leaves D block diagonal. It
    enters as additional rows mu = -w R a with the compliance 1 / w.

    Joints that form trees have independent rows, so G itself is eliminated. In closed loops rows
    may be redundant. On CPUs the trees are eliminated first, and the rows of the few joints that
    close the loops are left, with a small Schur complement and its pseudoinverse. Elsewhere, and if
    many joints close loops, the proximal iterations of `Proximal` run with one factor of G + rho 1.

    **Arguments:**

    - `dense_rows`: up to this many rows are left to one dense factorisation; by default 25, for
      joints that close loops 12, and on GPUs 6 where all rows are independent.
    - `rho`, `refinements`: as in `Proximal`, for rows that may be dependent.

    Reference: Baraff (1996), Linear-time dynamics using Lagrange multipliers, SIGGRAPH.
    """

    dense_rows: Annotated[int | None, at_least(1)] = eqx.field(default=None, static=True)
    rho: Annotated[float | None, positive] = eqx.field(default=None, static=True)
    refinements: Annotated[int, at_least(1)] = eqx.field(default=40, static=True)
    sparse: ClassVar[bool] = True

    def factorise(self, equations):
        M, J, E, tilt = equations
        if isinstance(M, CoupledBlocks):
            return self._factorise_coupled(M, J, E, tilt)
        if not isinstance(M, BlockDiagonal):
            M = BlockDiagonal(M[:, :, None])
            kinds, ends = (((len(J), 1),),), (((0,),),)
            J = BlockRows((J[None, :, :, None],), kinds, ends, 1, M.shape[0], (0,))
        if M.root is None or M.definite is None:
            W, left = block_whitener(M.blocks)
            positive_definite = jnp.all(left > 0)
            root = BlockRoot(M.blocks[0, :0], jnp.swapaxes(W, 0, 1))
        else:
            root, positive_definite = M.root, M.definite
        K = J.whitened(root)
        if J.shape[0] == 0:
            return _Factor(root, K, E, jnp.ones((), M.dtype), positive_definite)
        order = self._order(J)
        relative = rho = rest = None
        D, U = _delassus(order.contributions, K, fused=_is_dense(order))
        if E is not None:
            D = D + _diagonal(J.by_element(E))
        if not J.independent:
            used = J.by_element(jnp.ones(J.shape[0], M.dtype))
            diagonal = jnp.diagonal(D).T * used
            relative = relative_regularisation(self.rho, tilt, M.dtype)
            table = materialise(regularisation(relative, diagonal, J.shape[0]) * used)
            rho = J.by_row(table)
            if isinstance(order, NodeOrder) and order.rest:
                eliminated, rest, pivot = _bordered(K, order, D, U, table, rho)
                whole = relative, rho, eliminated, rest
                return _Factor(root, K, E, pivot, positive_definite, *whole)
            D = D + _diagonal(table)
        if isinstance(order, LevelOrder):
            eliminated, pivot = _eliminate_levels(order, D, U)
        else:
            eliminated, pivot, _, _ = _eliminate_sequence(order, D, U)
        return _Factor(root, K, E, pivot, positive_definite, relative, rho, eliminated)

    def _factorise_coupled(
        self, M: CoupledBlocks, J: BlockRows, E: Rows | None, tilt: Array | None
    ) -> _Factor:
        # Rows sqrt(w) R with a compliance of 1 are equivalent, and they allow w = 0.
        light = M.weights < 0
        R = M.rows.scaled(jnp.sqrt(jnp.where(light, 0.0, M.weights)))
        one = jnp.ones_like(M.weights)
        E = jnp.zeros(J.shape[0], M.dtype) if E is None else E
        shared = self.factorise(ConstraintEquations(M.diagonal, R, one))
        both = ConstraintEquations(M.diagonal, J.followed_by(R), jnp.concatenate([E, one]), tilt)
        factor = self.factorise(both)
        definite = factor.positive_definite & ~jnp.any(light)
        return eqx.tree_at(
            lambda factor: (factor.positive_definite, factor.shared),
            factor,
            (definite, shared),
            is_leaf=lambda x: x is None,
        )

    def free(self, factor, f):
        if factor.shared is None:
            return factor.root @ materialise(materialise(f) @ factor.root)
        nothing = jnp.zeros(factor.shared.K.shape[0], f.dtype)
        return self._solve(factor.shared, f, nothing)[0]

    def solve(self, factor, f, r):
        a, lam = self._solve(factor, f, self._extended(factor, r))
        return a, lam[: r.shape[0]]

    def mobility(self, factor, forces):
        rest, eliminated = factor.rest, factor.eliminated
        if not isinstance(eliminated, _Sequence) or factor.shared is not None:
            return None
        if factor.rho is not None and not isinstance(rest, Border):
            return None
        # With Y = F R and G = L L^T, F A F^T = Y Y^T - Z^T Z, where Z = L^-1 K Y^T takes only the
        # forward substitution.
        size, count = factor.K.size, factor.K.count
        Y = factor.root.transposed_times(jnp.moveaxis(forces.reshape(-1, size, count), 0, 1))
        right = jnp.transpose(factor.K.times(Y), (2, 0, 1))
        Z, n = eliminated.forward(right), len(eliminated.W)
        found = _squared(jnp.transpose(Y, (2, 0, 1))) - _squared(Z[:n])
        if rest is None:
            return found
        # Of the rows that close loops, S remains.
        z = Z[n:].reshape(-1, len(forces))
        return found - product(z.T, product(rest.solution, z))

    def whitened(self, factor):
        return WhitenedRows(factor.root, factor.K, factor.E)

    def _extended(self, factor, r):
        """r, followed by zeros for the rows of shared inertia."""
        if factor.shared is None:
            return r
        return jnp.concatenate([r, jnp.zeros(factor.shared.K.shape[0], r.dtype)])

    def _solve(self, factor, f, r):
        # If f is known to be zero when compiling, XLA removes these products.
        acts = jnp.any(f != 0)
        y = jnp.where(acts, materialise(f) @ factor.root, 0.0)
        s = r - jnp.where(acts, factor.K @ materialise(y), 0.0)
        if factor.rho is None:
            lam = self._inverse(factor, s)
        else:
            s = s - self._null(factor, s)
            if factor.rest is not None:
                lam = self._bordered_inverse(factor, s)
            else:
                lam = iterate(
                    functools.partial(self._apply, factor),
                    functools.partial(self._inverse, factor),
                    s,
                    self.refinements,
                )
            lam = lam - self._null(factor, lam)
        return factor.root @ materialise(y + lam @ factor.K), lam

    def cutoff_given(self):
        return self.rho is not None

    def allows_dependent(self, factor):
        return factor.rho is not None

    def dependent(self, factor):
        if factor.rho is None:
            return jnp.array(False)
        return factor.pivot < factor.relative**0.5

    def null(self, factor, s):
        if factor.rho is None:
            return jnp.zeros_like(s)
        return self._null(factor, self._extended(factor, s))[: s.shape[0]]

    def _null(self, factor, s):
        if factor.rest is not None:
            x = factor.rest.null(s)
        else:
            x = annihilate(functools.partial(self._inverse, factor), factor.rho, s, unroll=False)
        return jnp.where(self.dependent(factor), x, 0.0)

    def result(self, factor):
        tolerance = 0.0 if factor.rho is not None else 1e2 * jnp.finfo(factor.pivot.dtype).eps
        solvable = factor.pivot > tolerance
        rows = RESULTS.where(solvable, RESULTS.successful, RESULTS.singular_constraints)
        return RESULTS.where(factor.positive_definite, rows, RESULTS.mass_matrix_indefinite)

    def _order(self, J: BlockRows) -> LevelOrder | NodeOrder:
        serial, few = loops_cost_nothing(), self.dense_rows
        if few is None:
            few = _FEW_BESIDE_LEVELS if J.independent and not serial else _FEW_ROWS
        rest, everything = (), tuple(range(J.elements))
        if not J.independent:
            if serial and len(J.closing) * J.longest <= min(few, _FEW_CLOSING):
                rest = J.closing
            elif len(everything) * J.longest <= few:
                rest = everything
        if serial or rest:
            return node_order(J.ends, J.count, rest)
        return level_order(J.ends, J.count, max(few // J.longest, 1))

    def _apply(self, factor, y):
        """G y."""
        compliant = 0.0 if factor.E is None else factor.E * y
        return factor.K @ materialise(y @ factor.K) + compliant

    def _bordered_inverse(self, factor, s):
        """lam of G lam = s, for s in the range of G."""
        end = functools.partial(factor.rest.solve, refinements=self.refinements)
        if factor.eliminated is None:
            return end(s)
        return factor.K.by_row(factor.eliminated.solve(factor.K.by_element(s), end))

    def _inverse(self, factor, s):
        """(G + rho 1)^-1 s."""

        def solve(_, s):
            return factor.K.by_row(factor.eliminated.solve(factor.K.by_element(s)))

        if isinstance(factor.eliminated, _Levels):
            return solve(None, s)

        def regularised(y):
            return self._apply(factor, y) + (0.0 if factor.rho is None else factor.rho * y)

        # Derivatives of `null` are transposed, and JAX can transpose a symmetric solve.
        return jax.lax.custom_linear_solve(regularised, s, solve, symmetric=True)


def _in_rows(A: Float[Array, "n n"], J: BlockRows) -> Float[Array, "rows rows"]:
    """Reorder a matrix from the entries of the table `by_element`, element by element, to the order
    of the rows of J."""
    kinds, s = J.all_kinds, J.longest
    if len(kinds) == 1:
        m = kinds[0][1]
        return jnp.transpose(A.reshape(m, s, m, s), (1, 0, 3, 2)).reshape(A.shape)
    places, start = [], 0
    for rows, elements in kinds:
        first = (start + np.arange(elements)) * s
        places.append((np.arange(rows)[:, None] + first).ravel())
        start += elements
    order = np.concatenate(places)
    return A[order][:, order]


def _diagonal(table: Float[Array, "s k"]) -> Float[Array, "s s k"]:
    return jnp.eye(table.shape[0], dtype=table.dtype)[:, :, None] * table[None]


def _is_dense(order: LevelOrder | NodeOrder) -> bool:
    """Whether the dense factorisation takes all rows."""
    return len(order.out if isinstance(order, NodeOrder) else order.levels) == 0


def _delassus(
    contributions: tuple[np.ndarray, np.ndarray], K: BlockRows, *, fused: bool
) -> tuple[Array, Array]:
    """Blocks of K K^T: those on the diagonal, and those of the edges. Padding of short blocks is 1
    on the diagonal. `fused`: each block is used only once, to assemble the dense matrix, and may be
    fused there."""
    s, rows, diagonals = K.longest, [], []
    for piece in K.pieces:
        piece = jnp.pad(piece, ((0, 0), (0, s - piece.shape[1]), (0, 0), (0, 0)))
        both = jnp.concatenate(list(piece), axis=1)
        diagonals.append(_times_transposed(both, both))
        rows.extend(piece)
    D = jnp.concatenate(diagonals, axis=2)
    short = [np.full(elements, rows) for kinds in K.kinds for rows, elements in kinds]
    padding = np.arange(s)[:, None] >= np.concatenate(short)
    if np.any(padding):
        D = D + _diagonal(jnp.asarray(padding, D.dtype))
    rows = jnp.concatenate(rows, axis=2)
    first, second = contributions
    U = jnp.zeros((s, s, first.shape[1]), D.dtype)
    for p, q in zip(first, second, strict=True):
        U = U + _times_transposed(padded_columns(rows, p), padded_columns(rows, q))
    return (D, U) if fused else (materialise(D), materialise(U))


def _eliminate_levels(order: LevelOrder, D: Array, U: Array) -> tuple[_Levels, Array]:
    """The factors, and the smallest relative pivot."""
    pivots, levels, whole = [], [], jnp.diagonal(D).T
    for level in order.levels:
        W, left = block_whitener(columns(D, level.eliminated))
        # Of the entries before any elimination: earlier levels may have taken most of a row.
        kept = jnp.diagonal(D).T / whole
        pivots.append(jnp.min(smallest(left * columns(kept, level.eliminated))))
        Y = [materialise(_times(W, padded_columns(U, edges))) for edges in level.out]
        pairs = [(i, j) for i in range(len(Y)) for j in range(i + 1, len(Y))]
        own = [_transposed_times(y, y) for y in Y]
        mixed = [_transposed_times(Y[i], Y[j]) for i, j in pairs]
        D = _updated(columns(D, level.kept), own, level.node_updates)
        U = _updated(padded_columns(U, level.kept_edges), mixed, level.edge_updates)
        whole = columns(whole, level.kept)
        levels.append(_Level(W, Y))
    bottom, pivot = inverse(_assembled(D, U, *order.rest_edges))
    pivots.append(pivot * smallest((jnp.diagonal(D).T / whole).ravel()))
    return _Levels(order, levels, bottom), jnp.min(jnp.stack(pivots))


def _eliminate_sequence(
    order: NodeOrder, D: Array, U: Array
) -> tuple[_Sequence, Array, Array, Array]:
    """The factors, the smallest relative pivot, and what is left of D and U."""
    D, U = _in_order(order.order, jnp.moveaxis(D, -1, 0)), jnp.moveaxis(U, -1, 0)
    slots = np.tril_indices(order.out.shape[1], -1)[::-1]
    tables = [jnp.asarray(x) for x in (order.neighbours, order.out, order.pairs, *slots)]
    W, Y, left, D, U = batch_last(_elimination_loop, len(tables))(*tables, D, U)
    return _Sequence(order, W, Y), left, jnp.moveaxis(D, 0, -1), jnp.moveaxis(U, 0, -1)


def _bordered(
    K: BlockRows, order: NodeOrder, D: Array, U: Array, table: Float[Array, "s k"], rho: Rows
) -> tuple[_Sequence | None, Border | DenseRows, Array]:
    """The factors of the eliminated nodes, the rest, and the smallest relative pivot. `table`: rho
    by node."""
    if _is_dense(order):
        return None, *dense_rows(_in_rows(_assembled(D, U, *order.rest_edges), K), rho)
    eliminated, s = len(order.out), K.longest
    sequence, pivot, D_left, U_left = _eliminate_sequence(order, D, U)
    among = U_left.shape[-1] - len(order.rest_edges[0])
    S = _assembled(D_left[..., eliminated:], U_left[..., among:], *order.rest_edges)
    one = np.zeros((len(order.order), s, len(S)))
    one[eliminated:] = np.eye(len(S)).reshape(order.rest, s, len(S))
    V = K.by_row(jnp.swapaxes(sequence.back(jnp.asarray(one, D.dtype)), 0, 1))
    diagonal = columns(jnp.diagonal(D).T + table, order.order[eliminated:]).T.ravel()
    closing, left = border(S, V, rho, diagonal)
    # A row of a tree that depends on others is an error, one that closes a loop is not.
    independent = pivot > 1e2 * jnp.finfo(D.dtype).eps
    return sequence, closing, jnp.where(independent, left, 0.0)


def _in_order(order: np.ndarray, x: Float[Array, "n *rest"]) -> Float[Array, "n *rest"]:
    """The nodes in this order."""
    if np.all(order[:-1] < order[1:]):
        return x
    return x.at[order].get(mode="promise_in_bounds", unique_indices=True)


def _elimination_loop(
    near: Array,
    out: Array,
    between: Array,
    first: Array,
    second: Array,
    D: Float[Array, "n s s *rest"],
    U: Float[Array, "m s s *rest"],
) -> tuple[Array, Array, Array, Array, Array]:
    none, s, rest, dtype = *D.shape[:2], D.shape[3:], D.dtype
    (n, d), pairs = out.shape, between.shape[1]
    diagonal = jnp.stack([D[:n, k, k] for k in range(s)])
    # One more block of each, at the index that stands for "none".
    D, U = map(_with_none, (D, U))

    def eliminate(i, carry):
        D, U, W, Y = carry
        here, _ = inverse_cholesky(entry(D, i))

        def to_neighbour(a, carry):
            D, Y = carry
            y = _times(here, entry(U, entry(entry(out, i), a)))
            j = entry(entry(near, i), a)
            D = replaced(D, entry(D, j) - _transposed_times(y, y), j)
            return D, replaced(Y, y, a)

        degree = _degree(near, i, none)
        D, own = _short_loop(d, degree, to_neighbour, (D, jnp.zeros((d, s, s, *rest), dtype)))

        def between_neighbours(p, U):
            j = entry(entry(between, i), p)
            y, z = (entry(own, entry(table, p)) for table in (first, second))
            return replaced(U, entry(U, j) - _transposed_times(y, z), j)

        U = _short_loop(pairs, degree * (degree - 1) // 2, between_neighbours, U)
        return D, U, replaced(W, here, i), replaced(Y, own, i)

    W, Y = (jnp.zeros((n, *more, s, s, *rest), dtype) for more in ((), (d,)))
    D, U, W, Y = jax.lax.fori_loop(0, n, eliminate, (D, U, W, Y))
    roots = jnp.stack([W[:, k, k] for k in range(s)])  # 1 / sqrt(pivot)
    left = 1 / (roots * roots * diagonal)
    return W, Y, smallest(left.reshape(-1, *rest)), D[:-1], U[:-1]


def _squared(X: Float[Array, "n s k"]) -> Float[Array, "k k"]:
    """X^T X over both first axes, as a loop over the first, whose sums are written out."""

    def more(found, x):
        return found + total(row[:, None] * row[None] for row in x), None

    k = X.shape[2]
    return jax.lax.scan(more, jnp.zeros((k, k), X.dtype), X)[0]


def _forward_loop(
    near: Array,
    W: Float[Array, "n s s *rest"],
    Y: Float[Array, "n d s s *rest"],
    x: Float[Array, "m s *more"],
) -> Float[Array, "m s *more"]:
    (n, d), none = near.shape, x.shape[0]
    times, transposed = _products(W, x)

    def forward(i, x):
        here, own = times(entry(W, i), entry(x, i)), entry(Y, i)

        def onto(a, x):
            j = entry(entry(near, i), a)
            return replaced(x, entry(x, j) - transposed(entry(own, a), here), j)

        return _short_loop(d, _degree(near, i, none), onto, replaced(x, here, i))

    return jax.lax.fori_loop(0, n, forward, _with_none(x))[:-1]


def _back_loop(
    near: Array,
    W: Float[Array, "n s s *rest"],
    Y: Float[Array, "n d s s *rest"],
    x: Float[Array, "m s *more"],
) -> Float[Array, "m s *more"]:
    (n, d), none = near.shape, x.shape[0]
    times, transposed = _products(W, x)

    def back(k, x):
        i = n - 1 - k
        own = entry(Y, i)

        def less(a, here):
            return here - times(entry(own, a), entry(x, entry(entry(near, i), a)))

        here = _short_loop(d, _degree(near, i, none), less, entry(x, i))
        return replaced(x, transposed(entry(W, i), here), i)

    return jax.lax.fori_loop(0, n, back, _with_none(x))[:-1]


def _products(W: Array, x: Array) -> tuple[Callable, Callable]:
    """The products of blocks, and of their transposes, with one right side or several."""
    if x.ndim == W.ndim:
        return _times, _transposed_times
    return blocks_times, transposed_blocks_times


def _with_none(x: Float[Array, "n *rest"]) -> Float[Array, "n+1 *rest"]:
    """x with zeros at the place that stands for "none"."""
    return jnp.concatenate([x, jnp.zeros((1, *x.shape[1:]), x.dtype)])


def _degree(near: Int[Array, "n d"], i: Array, none: int) -> Int[Array, ""]:
    """The number of neighbours of node i."""
    return jnp.sum(entry(near, i) < none)


def _short_loop(most: int, count: Int[Array, ""], body: Callable, carry: Any) -> Any:
    """A loop. Up to two turns are written out, and do nothing after the first `count`."""
    if most > 2:
        return jax.lax.fori_loop(0, count, body, carry)
    for a in range(most):
        carry = body(a, carry)
    return carry


def _assembled(D: Array, U: Array, i: np.ndarray, j: np.ndarray) -> Float[Array, "n n"]:
    """The dense symmetric matrix with the diagonal blocks D and the blocks U at (i, j), in the
    order of the nodes."""
    s, _, m = D.shape
    zero = jnp.zeros((s, s), D.dtype)
    blocks = [[zero] * m for _ in range(m)]
    for k in range(m):
        blocks[k][k] = D[:, :, k]
    for k, (row, column) in enumerate(zip(i, j, strict=True)):
        blocks[row][column], blocks[column][row] = U[:, :, k], U[:, :, k].T
    return jnp.block(blocks)


def _updated(x: Array, products: list[Array], updates: Iterable[np.ndarray]) -> Array:
    """x minus columns of `products`: each array of `updates` holds one column number for each
    column of x."""
    if not products:
        return x
    columns_of_products = jnp.concatenate(products, axis=-1)
    for update in updates:
        x = x - padded_columns(columns_of_products, update)
    return x


def block_whitener(A: Float[Array, "s s k"]) -> tuple[Float[Array, "s s k"], Float[Array, "s k"]]:
    """L^-1 of symmetric positive definite blocks A = L L^T, by elimination in (A, 1), with the
    block axis last; and the relative pivots: the part of each diagonal entry that is left when its
    turn comes."""
    s = A.shape[0]
    identity = jnp.broadcast_to(jnp.eye(s, dtype=A.dtype)[:, :, None], A.shape)
    rows = [jnp.concatenate([A[i], identity[i]]) for i in range(s)]
    for k in range(s - 1):
        rows[k + 1 :] = [row - (row[k] / rows[k][k])[None] * rows[k] for row in rows[k + 1 :]]
    pivots = jnp.stack([rows[k][k] for k in range(s)])
    W = jnp.stack([rows[k][s:] / jnp.sqrt(pivots[k])[None] for k in range(s)])
    diagonal = jnp.stack([A[k, k] for k in range(s)])
    return W, pivots / jnp.abs(diagonal)


def _times(A, B):
    """A B, block by block."""
    return contracted(A[:, :, None], B[None], 1)


def _times_transposed(A, B):
    """A B^T, block by block."""
    return contracted(A[:, None], B[None], 2)


def _transposed_times(A, B):
    """A^T B, block by block."""
    return contracted(A[:, :, None], B[:, None], 0)

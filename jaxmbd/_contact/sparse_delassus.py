"""The Delassus operator of many bodies, as a product of sparse factors, on a CPU.

Of many bodies this matrix is sparse: a block for each body, and two for each pair that touches,
however many points the pair has. Equality rows G u = 0 add a node for each joint,

    ( 1 + Y^T W Y   -G^T ) (u )   (Y^T C'^-1 r)
    (      G         rho ) (mu) = (     0     ),

with a small rho where rows depend on each other. Joints and contacts are one graph, which is
eliminated in an order that is found at runtime (`sparse_lu.py`).
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._compiler import each_of_first, entry, only_if, replaced
from .._linalg import ConstraintOperator, WhitenedRows, sparse_lu
from .._types import Force, Velocity
from .delassus import AbstractProductDelassus, Blocks
from .rows import BodyContactJacobian, Impulses


class HeldRows(eqx.Module):
    """The equality rows in a sparse Delassus operator.

    **Fields:** `operator`, which keeps them exactly; `J`: Jacobian of the contacts; `whitened`: the
    rows as blocks."""

    operator: ConstraintOperator
    J: BodyContactJacobian
    whitened: WhitenedRows

    def scaled(self, factors: Impulses) -> "HeldRows":
        """Return the rows with the contacts scaled."""
        return HeldRows(self.operator, self.J.scaled(factors), self.whitened)

    def moved_by(self, f: Force) -> Velocity:
        """Return A f: the accelerations by f that keep the rows."""
        rest = jnp.zeros(self.operator.equations.rows(f).shape, f.dtype)
        return self.operator.solve_fixed(f, rest)[0]

    def squares(self, used: Int[Array, ""]) -> Blocks:
        """Return the blocks of J A J^T on the diagonal, by a solve for each row of the first `used`
        contacts."""

        def of_contact(k):
            one = self.J.one(k)

            def along(e):
                return one.rows(self.moved_by(one.reaction(e[None])))[0]

            block = jax.lax.map(along, jnp.eye(one.blocks.shape[2], dtype=one.blocks.dtype))
            return (block + block.T) / 2

        return each_of_first(used, of_contact, jnp.arange(self.J.contacts))

    @property
    def links(self) -> np.ndarray:
        """The nodes of the graph that each row joins: the element and the body, shape `(2, n)`."""
        K, start, found = self.whitened.K, 0, [np.zeros((2, 0), int)]
        for piece, ends in zip(K.pieces, K.ends, strict=True):
            nodes = K.count + start + np.arange(piece.shape[-1])
            found += [np.stack([nodes, np.where(np.array(e) < K.count, e, nodes)]) for e in ends]
            start += piece.shape[-1]
        return np.concatenate(found, axis=1)

    def add_to(self, A: sparse_lu.Blocks, edges: Int[Array, " n"]) -> sparse_lu.Blocks:
        """Return the matrix of the bodies with the rows added, whose `edges` are those of the
        `links`."""
        K, E, s = self.whitened.K, self.whitened.E, A.diagonal.shape[1]
        dtype = A.diagonal.dtype
        blocks = [jnp.zeros((0, s, s), dtype)]
        squares, used = [], K.by_element(jnp.ones(K.shape[0], dtype))
        for piece in K.pieces:
            pad = ((0, 0), (0, s - piece.shape[1]), (0, s - piece.shape[2]), (0, 0))
            blocks += list(jnp.moveaxis(jnp.pad(piece, pad), -1, 1))
            squares.append(jnp.pad(jnp.sum(piece**2, (0, 2)), ((0, s - piece.shape[1]), (0, 0))))
        squares = jnp.concatenate(squares, axis=1)
        own = squares * jnp.finfo(dtype).eps ** 0.5
        if E is not None:
            own = own.at[: K.longest].add(K.by_element(E))
        used = jnp.pad(used, ((0, s - K.longest), (0, 0)))
        # Rows that only fill up a block, and rows that are switched off, are 0.
        own = jnp.where((used > 0) & (own > 0), own, 1.0).T
        eye = jnp.eye(s, dtype=dtype)
        diagonal = A.diagonal.at[self.whitened.K.count :].set(own[:, :, None] * eye[None])
        blocks = jnp.concatenate(blocks)
        element, body = (jnp.asarray(x, jnp.int32) for x in self.links)

        def put(k, off):
            G, e = entry(blocks, k), entry(edges, k)
            i, j = entry(element, k), entry(body, k)
            lower, upper = sparse_lu.place(i, j, e), sparse_lu.place(j, i, e)
            exists = i != j
            off = replaced(off, jnp.where(exists, G, entry(off, lower)), lower)
            return replaced(off, jnp.where(exists, -G.T, entry(off, upper)), upper)

        return sparse_lu.Blocks(diagonal, jax.lax.fori_loop(0, len(blocks), put, A.edges))


class _Memory(NamedTuple):
    """An elimination, the contacts that were its edges, and whether there is none yet."""

    acts: Bool[Array, " contacts"]
    none: Bool[Array, ""]
    elimination: sparse_lu.Elimination


class SparseDelassus(AbstractProductDelassus):
    """T + Y A Y^T, where A keeps the equality rows, for many bodies on a CPU.

    Contacts that P leaves out of C + P S, since they are open, are no edges of the graph: in a pile
    that rolls, hardly any elimination fills in.

    **Fields:** `held`: the equality rows, `None` if there are none; `squares`: the blocks of
    Y A Y^T on the diagonal; `last`: the number of contacts after which none acts on a body."""

    Y: BodyContactJacobian
    own: Blocks
    held: HeldRows | None
    squares: Blocks
    last: Int[Array, ""]

    @classmethod
    def of(
        cls,
        J: BodyContactJacobian,
        W: Float[Array, "size size bodies"],
        held: HeldRows | None = None,
    ) -> "SparseDelassus":
        """Return Y A Y^T with Y = J W^T, where W has a block for each body."""
        acts = jnp.any(J.bodies < J.count, axis=0)
        last = lambda k, used: jnp.where(entry(acts, k), k + 1, used)  # noqa: E731
        used = jax.lax.fori_loop(0, J.contacts, last, 0)

        def of_contact(k):
            Y = J.one(k).whitened(W)
            return Y.blocks[:, 0], Y.squares()[0] if held is None else ()

        blocks, squares = each_of_first(used, of_contact, jnp.arange(J.contacts))
        if held is not None:
            squares = held.squares(used)
        Y = BodyContactJacobian(jnp.swapaxes(blocks, 0, 1), J.bodies, J.count)
        return cls(Y=Y, own=jnp.zeros_like(squares), held=held, squares=squares, last=used)

    @property
    def J(self):
        return self.Y if self.held is None else self.held.J

    def moved_by(self, f):
        return f if self.held is None else self.held.moved_by(f)

    # These go over the contacts in use only, one after the other.

    def reaction(self, lam):
        return self._table(lam)[: self.Y.count].T.ravel()

    def rows(self, u):
        table = jnp.pad(u.reshape(self.Y.size, self.Y.count), ((0, 0), (0, 1))).T
        return self._each(lambda i: self._row(i, table))

    def times(self, lam):
        if self.held is not None:
            return super().times(lam)
        table = self._table(lam)
        return self._each(lambda i: self.row(i, table, entry(lam, i)))

    def magnitude(self, lam):
        Y, own, lam = jax.tree.map(jnp.abs, (self.Y, self.own, lam))
        sizes = SparseDelassus(Y=Y, own=own, held=None, squares=self.squares, last=self.last)
        return sizes.times(lam)

    def blocks(self):
        return self.squares + self.own

    def scaled(self, factors):
        both, Y = factors[:, :, None] * factors[:, None, :], self.Y.scaled(factors)
        held = None if self.held is None else self.held.scaled(factors)
        own, squares = self.own * both, self.squares * both
        return SparseDelassus(Y=Y, own=own, held=held, squares=squares, last=self.last)

    def plus(self, blocks):
        return eqx.tree_at(lambda S: S.own, self, self.own + blocks)

    @property
    def used(self):
        return self.last

    @property
    def has_cheap_rows(self):
        return self.held is None

    def sums(self, lam):
        if self.held is not None:
            return super().sums(lam)
        return self._table(lam)

    def moved(self, sums, i, change):
        if self.held is not None:
            return super().moved(sums, i, change)
        # Many contacts stay open.
        acts = jnp.any(change != 0)
        return only_if(acts, lambda sums: self._added(sums, i, change), sums)

    def row(self, i, sums, own):
        if self.held is not None:
            return super().row(i, sums, own)
        return self._row(i, sums) + jnp.sum(entry(self.own, i) * own[None], axis=1)

    def _row(self, i: Int[Array, ""], table: Array) -> Float[Array, " d"]:
        """Return Y u of contact i, from a table of u that ends with the ground."""
        blocks, bodies = entry(self.Y.blocks, i, 1), entry(self.Y.bodies, i, 1)
        at = jnp.stack([entry(table, body) for body in bodies])
        return jnp.sum(blocks * at[:, None], axis=(0, 2))

    def _added(self, table: Array, i: Int[Array, ""], lam: Float[Array, " d"]) -> Array:
        """Return the impulses of all bodies after those of contact i."""
        blocks, bodies = entry(self.Y.blocks, i, 1), entry(self.Y.bodies, i, 1)

        def at_end(e, table):
            J, body = entry(blocks, e), entry(bodies, e)
            return replaced(table, entry(table, body) + jnp.sum(J * lam[:, None], axis=0), body)

        return jax.lax.fori_loop(0, len(bodies), at_end, table)

    def _table(self, lam: Impulses) -> Float[Array, "ends size"]:
        """Return the impulses of all bodies."""

        def add(i, table):
            blocks, bodies = entry(self.Y.blocks, i, 1), entry(self.Y.bodies, i, 1)
            impulses = jnp.sum(blocks * entry(lam, i)[None, :, None], axis=1)
            for e in range(len(bodies)):
                table = replaced(table, entry(table, bodies[e]) + impulses[e], bodies[e])
            return table

        none = jnp.zeros((self.Y.count + 1, self.Y.size), lam.dtype)
        return jax.lax.fori_loop(0, self.used, add, none)

    def _each(self, fn: Callable[[Array], Array]) -> Impulses:
        return each_of_first(self.used, fn, jnp.arange(self.Y.contacts))

    def memory(self):
        elements, size = 0, self.Y.size
        if self.held is not None:
            K = self.held.whitened.K
            elements, size = K.elements, max(size, K.longest)
        links = len(self.Y.pairs_of_ends) * self.Y.contacts + self._fixed.shape[1]
        none = sparse_lu.Elimination.none(self.Y.count + elements, links, size, self.own.dtype)
        return _Memory(jnp.zeros(self.Y.contacts, bool), jnp.asarray(True), none)

    def factorise(self, C, P, memory):
        C_inv, W = self.weights(C, P)
        acts = jnp.any(W != 0, axis=(1, 2))
        # In its last steps a solver has contacts that no longer change.
        changed = jnp.any(acts != memory.acts) | memory.none
        order = only_if(changed, lambda A: self._order(acts, A), memory.elimination)
        A = _gram(self.Y, W, acts, self.used, sparse_lu.cleared(order))
        if self.held is not None:
            of_link = order.order.of_link
            edges = of_link[len(of_link) - self._fixed.shape[1] :]
            A = A._replace(blocks=self.held.add_to(A.blocks, edges))
        LU = sparse_lu.factorise(A)
        # Without room for all edges the factors are wrong. NaN tells the solver, which then looks
        # for another way. A derivative, which has none, asks `has_room`.
        pivots = jnp.where(LU.order.overflow, jnp.nan, LU.blocks.diagonal)
        LU = LU._replace(blocks=LU.blocks._replace(diagonal=pivots))
        return (C_inv, LU), _Memory(acts, jnp.asarray(False), LU)

    def has_room(self, factor):
        return ~factor[1].order.overflow

    @property
    def _fixed(self) -> np.ndarray:
        """The links of the equality rows, which follow those of the contacts."""
        return np.zeros((2, 0), int) if self.held is None else self.held.links

    def _order(
        self, acts: Bool[Array, " contacts"], memory: sparse_lu.Elimination
    ) -> sparse_lu.Elimination:
        """Return the order of the bodies with the edges of the contacts that act."""
        pairs, bodies = self.Y.pairs_of_ends, self.Y.bodies.astype(jnp.int32)
        nodes = memory.order.nodes.shape[0]
        # The ground, the last body, is no node.
        bodies = jnp.where((bodies < self.Y.count) & acts[None], bodies, nodes)
        fixed = self._fixed
        first, second = (
            jnp.concatenate(
                [*(bodies[pair[k]] for pair in pairs), jnp.asarray(fixed[k], jnp.int32)]
            )
            for k in (0, 1)
        )
        # The pivot of a joint is 0 until one of its bodies is eliminated.
        ready = ~np.isin(np.arange(nodes), fixed[0][fixed[0] != fixed[1]])
        return sparse_lu.least_degree(first, second, jnp.asarray(ready, jnp.int32), memory)

    def inner_solve(self, factor, u, transposed):
        size, count, (nodes, s) = self.Y.size, self.Y.count, factor.blocks.diagonal.shape[:2]
        table = jnp.pad(u.reshape(size, count).T, ((0, nodes - count), (0, s - size)))
        x = sparse_lu.solve(factor, table, transposed=transposed)
        return x[:count, :size].T.ravel()


def _gram(
    J: BodyContactJacobian,
    W: Float[Array, "contacts d d"],
    acts: Bool[Array, " contacts"],
    used: Int[Array, ""],
    empty: sparse_lu.Elimination,
) -> sparse_lu.Elimination:
    """Return 1 + J^T W J of the bodies. The first links are the `pairs_of_ends` of all contacts,
    pair by pair."""
    D, off = empty.blocks
    size, count = D.shape[1], J.count
    D = D.at[:count].set(jnp.eye(size, dtype=D.dtype))
    padded = jnp.pad(J.blocks, ((0, 0), (0, 0), (0, 0), (0, size - J.size)))
    ends = range(J.blocks.shape[0])

    def one(k, blocks):
        own_rows = [entry(padded[e], k) for e in ends]
        left = [sparse_lu.times(entry(W, k), x) for x in own_rows]
        bodies = [entry(J.bodies[e], k) for e in ends]

        def add(A, at, exists, e, f):
            def put(A):
                return replaced(A, entry(A, at) + sparse_lu.times(own_rows[e].T, left[f]), at)

            return only_if(exists, put, A)

        def act(blocks):
            D, off = blocks
            for e in ends:
                D = add(D, bodies[e], bodies[e] < count, e, e)
            for n, (e, f) in enumerate(J.pairs_of_ends):
                edge = entry(empty.order.of_link, n * J.contacts + k)
                same = (bodies[e] == bodies[f]) & (bodies[e] < count)
                linked = (bodies[e] < count) & (bodies[f] < count) & ~same
                for a, b in ((e, f), (f, e)):
                    off = add(off, sparse_lu.place(bodies[a], bodies[b], edge), linked, a, b)
                    # Two ends of a contact may be on one body.
                    D = add(D, bodies[a], same, a, b)
            return D, off

        return only_if(entry(acts, k), act, blocks)

    blocks = jax.lax.fori_loop(0, used, one, (D, off))
    return empty._replace(blocks=sparse_lu.Blocks(*blocks))

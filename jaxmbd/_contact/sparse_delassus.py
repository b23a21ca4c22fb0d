"""The Delassus operator of many bodies, as a product of sparse factors, on a CPU.

Of many bodies this matrix is sparse: a block for each body, and two for each pair that touches,
however many points the pair has. Equality rows G u = 0 add a node for each joint,

    ( 1 + Y^T W Y   -G^T ) (u )   (Y^T C'^-1 r)
    (      G         rho ) (mu) = (     0     ),

with a small rho where rows depend on each other. Joints and contacts are one graph, which is
eliminated in an order that is found at runtime (`sparse_lu.py`).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._compiler import entry, replaced
from .._linalg import ConstraintOperator, WhitenedRows, sparse_lu
from .._types import Force, Velocity
from .delassus import AbstractProductDelassus, Blocks
from .rows import BodyContactJacobian, Impulses


class HeldRows(eqx.Module):
    """The equality rows in a sparse Delassus operator.

    **Fields:** `operator`, which keeps them exactly; `J`: Jacobian of the contacts; `whitened`: the
    rows as blocks; `blocks`: the blocks of J A J^T on the diagonal."""

    operator: ConstraintOperator
    J: BodyContactJacobian
    whitened: WhitenedRows
    blocks: Blocks

    @classmethod
    def of(cls, operator: ConstraintOperator, J: BodyContactJacobian, rows: WhitenedRows):
        """Return the rows, with the blocks by a solve for each row of a contact."""
        count, d = J.blocks.shape[1:3]

        def of_contact(i):
            one = J.one(i)

            def along(e):
                return one.rows(_accelerations(operator, one.reaction(e[None])))[0]

            block = jax.lax.map(along, jnp.eye(d, dtype=J.blocks.dtype))
            return (block + block.T) / 2

        return cls(operator, J, rows, jax.lax.map(of_contact, jnp.arange(count)))

    def scaled(self, factors: Impulses) -> "HeldRows":
        """Return the rows with the contacts scaled."""
        blocks = self.blocks * factors[:, :, None] * factors[:, None, :]
        return HeldRows(self.operator, self.J.scaled(factors), self.whitened, blocks)

    def moved_by(self, f: Force) -> Velocity:
        """Return A f."""
        return _accelerations(self.operator, f)

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
        diagonal = jnp.concatenate([A.diagonal, own[:, :, None] * eye[None]])
        blocks = jnp.concatenate(blocks)
        element, body = (jnp.asarray(x, jnp.int32) for x in self.links)

        def put(k, off):
            G, e = entry(blocks, k), edges[k]
            lower, upper = (
                sparse_lu.place(element[k], body[k], e),
                sparse_lu.place(body[k], element[k], e),
            )
            exists = element[k] != body[k]
            off = replaced(off, jnp.where(exists, G, entry(off, lower)), lower)
            return replaced(off, jnp.where(exists, -G.T, entry(off, upper)), upper)

        return sparse_lu.Blocks(diagonal, jax.lax.fori_loop(0, len(blocks), put, A.edges))


class SparseDelassus(AbstractProductDelassus):
    """T + Y A Y^T, where A keeps the equality rows, for many bodies on a CPU.

    **Fields:** `held`: the equality rows, `None` if there are none; `order` of the elimination, of
    no use before `prepared`."""

    Y: BodyContactJacobian
    own: Blocks
    held: HeldRows | None
    order: sparse_lu.Order

    @classmethod
    def of(
        cls, Y: BodyContactJacobian, own: Blocks, held: HeldRows | None = None
    ) -> "SparseDelassus":
        """Return it without an order."""
        elements, fixed = 0, 0
        if held is not None:
            elements, fixed = held.whitened.K.elements, held.links.shape[1]
        links = len(Y.pairs_of_ends) * Y.contacts + fixed
        return cls(Y, own, held, sparse_lu.Order.none(Y.count + elements, links))

    @property
    def J(self):
        return self.Y if self.held is None else self.held.J

    def moved_by(self, f):
        return f if self.held is None else self.held.moved_by(f)

    def blocks(self):
        return (self.Y.squares() if self.held is None else self.held.blocks) + self.own

    def scaled(self, factors):
        own = self.own * factors[:, :, None] * factors[:, None, :]
        held = None if self.held is None else self.held.scaled(factors)
        return SparseDelassus(self.Y.scaled(factors), own, held, self.order)

    def plus(self, blocks):
        return SparseDelassus(self.Y, self.own + blocks, self.held, self.order)

    def prepared(self, needed):
        pairs, bodies = self.Y.pairs_of_ends, self.Y.bodies.astype(jnp.int32)
        nodes = self.order.nodes.shape[0]
        # The ground, the last body, is no node.
        bodies = jnp.where(bodies < self.Y.count, bodies, nodes)
        fixed = np.zeros((2, 0), int) if self.held is None else self.held.links
        first, second = (
            jnp.concatenate(
                [*(bodies[pair[k]] for pair in pairs), jnp.asarray(fixed[k], jnp.int32)]
            )
            for k in (0, 1)
        )
        # The pivot of a joint is 0 until one of its bodies is eliminated.
        ready = ~np.isin(np.arange(nodes), fixed[0][fixed[0] != fixed[1]])

        def find(*_):
            return sparse_lu.least_degree(first, second, jnp.asarray(ready, jnp.int32))

        order = jax.lax.fori_loop(0, needed.astype(jnp.int32), find, self.order)
        return SparseDelassus(self.Y, self.own, self.held, order)

    def factorise(self, C, P):
        C_inv, W = self.weights(C, P)
        s = self.Y.size
        if self.held is not None:
            s = max(s, self.held.whitened.K.longest)
        A = _gram(self.Y, W, self.order, s)
        if self.held is not None:
            fixed = self.held.links.shape[1]
            A = self.held.add_to(A, self.order.of_link[len(self.order.of_link) - fixed :])
        LU = sparse_lu.factorise(self.order, A)
        # Without room for all edges the factors are wrong. NaN tells the solver, which then looks
        # for another way, and a derivative, which has none.
        pivots = jnp.where(self.order.overflow, jnp.nan, LU.diagonal)
        return C_inv, LU._replace(diagonal=pivots)

    def inner_solve(self, factor, u, transposed):
        size, count, (nodes, s) = self.Y.size, self.Y.count, factor.diagonal.shape[:2]
        table = jnp.pad(u.reshape(size, count).T, ((0, nodes - count), (0, s - size)))
        x = sparse_lu.solve(self.order, factor, table, transposed=transposed)
        return x[:count, :size].T.ravel()


def _accelerations(operator: ConstraintOperator, f: Force) -> Velocity:
    """The accelerations by f that keep the equality rows."""
    rest = jnp.zeros(operator.equations.rows(f).shape, f.dtype)
    return operator.solve_fixed(f, rest)[0]


def _gram(
    J: BodyContactJacobian, W: Float[Array, "contacts d d"], order: sparse_lu.Order, size: int
) -> sparse_lu.Blocks:
    """Return 1 + J^T W J as blocks of this size. The first links of `order` are the
    `pairs_of_ends` of all contacts, pair by pair."""
    count, rest = J.count, size - J.size
    eye = jnp.eye(size, dtype=W.dtype)
    D = jnp.broadcast_to(eye, (count + 1, size, size))
    off = jnp.zeros((2 * order.edges.shape[0] + 1, size, size), W.dtype)
    padded = jnp.pad(J.blocks, ((0, 0), (0, 0), (0, 0), (0, rest)))
    ends = range(J.blocks.shape[0])

    def one(k, carry):
        D, off = carry
        own_rows = [entry(padded[e], k) for e in ends]
        left = [sparse_lu.times(entry(W, k), x) for x in own_rows]
        bodies = [J.bodies[e, k] for e in ends]
        for e in ends:
            D = replaced(
                D, entry(D, bodies[e]) + sparse_lu.times(own_rows[e].T, left[e]), bodies[e]
            )
        for n, (e, f) in enumerate(J.pairs_of_ends):
            edge = order.of_link[n * J.contacts + k]
            same = bodies[e] == bodies[f]
            linked = (bodies[e] < count) & (bodies[f] < count) & ~same
            for a, b in ((e, f), (f, e)):
                both = sparse_lu.times(own_rows[a].T, left[b])
                at = sparse_lu.place(bodies[a], bodies[b], edge)
                at = jnp.where(linked, at, off.shape[0] - 1)
                off = replaced(off, entry(off, at) + both, at)
                # Two ends of a contact may be on one body.
                own = jnp.where(same, bodies[a], count)
                D = replaced(D, entry(D, own) + both, own)
        return D, off

    D, off = jax.lax.fori_loop(0, J.contacts, one, (D, off))
    return sparse_lu.Blocks(D[:count], off[:-1])

"""LU factors of a sparse matrix of blocks, whose pattern is known at runtime only.

Contacts come and go, so the order of elimination cannot be found before a simulation starts. It is
found here by the same loops that factorise: nodes of least degree go first (Markowitz's rule of
least fill, with a degree that rises only where no node has less). The pattern is symmetric, the
values need not be. A factorisation costs what its fill costs: in stacks and walls, and where many
bodies touch the ground, in proportion to the number of nodes.

On CPUs XLA compiles all loops here as one function, in which an iteration costs its arithmetic, if
no array is copied in them. So an update reads only the place that it writes, values that several
updates use are results of a loop of one turn, and nothing is a gather, scatter or sort.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._compiler import cell, entry, only_if, pivot_inverse, replaced, with_cell

_loop = jax.lax.fori_loop

# Edges for each node for which there is room beside the links, and pairs of neighbours for each
# node, in graphs of up to 64 nodes. The fill of larger ones grows: of heaps in space, whose nodes
# have three links each, with these powers of the number of nodes.
_EDGES, _PAIRS = 10, 80
_FILL = 0.5, 0.9


class Order(NamedTuple):
    """The order of elimination, and the edges that it meets. An edge joins two nodes, whichever is
    eliminated first.

    - `nodes`: in their order.
    - `start`: where the neighbours of each of them begin that are eliminated after it, among
      `neighbours` and `edges`.
    - `pairs`: the edges between each two of these neighbours, from `pair_start` on: of the first
      one with all after it, then of the second, and so on.
    - `of_link`: the edge of each given link.
    - `number`: how many edges there are.
    - `overflow`: whether there was no room for all edges.
    """

    nodes: Int[Array, " nodes"]
    start: Int[Array, " nodes+1"]
    neighbours: Int[Array, " edges"]
    edges: Int[Array, " edges"]
    pairs: Int[Array, " pairs"]
    pair_start: Int[Array, " nodes+1"]
    of_link: Int[Array, " links"]
    number: Int[Array, ""]
    overflow: Bool[Array, ""]


class _Graph(NamedTuple):
    """The neighbours of each node, eliminated ones included, with the edges to them; how many there
    are, and how many of them are left (`degree`); and the number of edges."""

    near: Int[Array, "nodes nodes"]
    edge: Int[Array, "nodes nodes"]
    size: Int[Array, " nodes"]
    degree: Int[Array, " nodes"]
    edges: Int[Array, ""]

    def joined(self, i: Array, j: Array, e: Array, new: Array) -> "_Graph":
        """The graph with the edge e between i and j, if it is `new`."""

        def join(graph):
            near, edge, size, degree, edges = graph
            for a, b in ((i, j), (j, i)):
                end = entry(size, a)
                near, edge = with_cell(near, b, a, end), with_cell(edge, e, a, end)
                size, degree = replaced(size, end + 1, a), _added(degree, 1, a)
            return _Graph(near, edge, size, degree, edges + 1)

        return only_if(new, join, self)


class Blocks(NamedTuple):
    """A matrix of blocks: those on the diagonal; and two for each edge, block 2 e at the row of the
    node with the smaller number, block 2 e + 1 at the other one. After `factorise`: the inverses of
    the pivots, and the blocks of L and U."""

    diagonal: Float[Array, "nodes s s"]
    edges: Float[Array, "blocks s s"]


class Elimination(NamedTuple):
    """An elimination, whose memory the next one takes over: none of its arrays is cleared as a
    whole, since all of them together are many times as large as what is used of them.

    **Fields:** the order; the graph, of no use after the search for the order; the blocks of the
    matrix, later of its factors; blocks beside and above a pivot."""

    order: Order
    graph: _Graph
    blocks: Blocks
    beside: Float[Array, "nodes s s"]
    above: Float[Array, "nodes s s"]

    @classmethod
    def none(cls, nodes: int, links: int, size: int, dtype: Any) -> "Elimination":
        """Memory for `nodes` and `links` between them, with blocks of this size."""
        more = max(nodes / 64, 1.0)
        edges = int(_EDGES * nodes * more ** _FILL[0]) + links
        # One more than there are pairs of nodes: the last one stands for a lack of room.
        edges = min(edges, nodes * (nodes - 1) // 2 + 1)
        pairs = int(_PAIRS * nodes * more ** _FILL[1])
        sizes = (nodes, nodes + 1, edges, edges, pairs, nodes + 1, links)
        none, zeros = jnp.int32(0), jnp.zeros(nodes, jnp.int32)
        arrays = [jnp.zeros(size, jnp.int32) for size in sizes]
        order = Order._make([*arrays, none, jnp.array(False)])
        # A node may touch all others: a container does.
        table = jnp.zeros((nodes, nodes), jnp.int32)
        counts = nodes, 2 * edges, nodes, nodes
        blocks = [jnp.zeros((count, size, size), dtype) for count in counts]
        graph = _Graph(table, table, zeros, zeros, none)
        return cls(order, graph, Blocks(*blocks[:2]), *blocks[2:])


class _Search(NamedTuple):
    """The search for an order: the node looked at, the degree up to which nodes are eliminated in
    this round, and how many are eliminated."""

    node: Array
    limit: Array
    done: Array
    graph: _Graph
    left: Int[Array, " nodes"]
    ready: Int[Array, " nodes"]
    mark: Int[Array, " nodes"]
    order: Order
    end: Array
    pairs: Array


def least_degree(
    first: Int[Array, " links"],
    second: Int[Array, " links"],
    ready: Int[Array, " nodes"],
    memory: Elimination,
) -> Elimination:
    """The order of elimination of a matrix with the `links` (first, second) between nodes. Links of
    a node with itself, or with a number past the end, are none. A node that is not `ready` (0) is
    eliminated after one of its neighbours, since its pivot is 0 before."""
    nodes, links, order = ready.shape[0], first.shape[0], memory.order
    most_edges, most_pairs = order.edges.shape[0], order.pairs.shape[0]
    zeros, none = jnp.zeros(nodes, jnp.int32), jnp.int32(0)
    graph = memory.graph._replace(size=zeros, degree=zeros, edges=none)
    order = order._replace(
        start=replaced(order.start, none, 0),
        pair_start=replaced(order.pair_start, none, 0),
    )
    once = jnp.minimum(ready[0] + 1, 1)  # 1, but unknown to the compiler

    def of_link(k, carry):
        graph, edge_of = carry
        i, j = entry(first, k), entry(second, k)
        exists = (i < nodes) & (j < nodes) & (i != j)
        i, j = jnp.minimum(i, nodes - 1), jnp.minimum(j, nodes - 1)
        # A container knows all others, and each of these knows few.
        swap = entry(graph.size, i) > entry(graph.size, j)
        one, other = jnp.where(swap, j, i), jnp.where(swap, i, j)
        end = jnp.where(exists, entry(graph.size, one), 0)

        def search(_, found):
            def look(k, found):
                same = cell(graph.near, one, k) == other
                return jnp.where(same, cell(graph.edge, one, k), found)

            return _loop(0, end, look, found)

        found = _loop(0, once, search, jnp.int32(-1))
        e = jnp.where(found < 0, jnp.minimum(graph.edges, most_edges - 1), found)
        graph = graph.joined(i, j, e, exists & (found < 0))
        return graph, replaced(edge_of, e, k)

    graph, edge_of = _loop(0, links, of_link, (graph, order.of_link))

    def eliminate(s: _Search) -> _Search:
        v, begin = s.node, s.end
        left = replaced(s.left, none, v)

        def take(m, carry):
            neighbours, edges, degree, ready, end = carry
            u, e = cell(s.graph.near, v, m), cell(s.graph.edge, v, m)

            def put(_, carry):
                neighbours, edges, degree, ready = carry
                place = jnp.minimum(end, most_edges - 1)
                return (
                    replaced(neighbours, u, place),
                    replaced(edges, e, place),
                    _added(degree, -1, u),
                    replaced(ready, none + 1, u),
                )

            here = entry(left, u)
            return *_loop(0, here, put, (neighbours, edges, degree, ready)), end + here

        carry = (s.order.neighbours, s.order.edges, s.graph.degree, s.ready, begin)
        neighbours, edges, degree, ready, end = _loop(0, entry(s.graph.size, v), take, carry)
        end = jnp.minimum(end, most_edges)

        def of_neighbour(m, carry):
            """The edges between this neighbour and those after it."""
            graph, mark, pairs, count = carry
            i = entry(neighbours, m)

            def marked(graph, mark, value):
                def one(k, mark):
                    return replaced(mark, value(cell(graph.edge, i, k)), cell(graph.near, i, k))

                return _loop(0, entry(graph.size, i), one, mark)

            before = graph
            mark = marked(before, mark, lambda e: e + 1)

            def pair(n, carry):
                graph, pairs, count = carry
                j = entry(neighbours, n)
                found = entry(mark, j) - 1
                e = jnp.where(found < 0, jnp.minimum(graph.edges, most_edges - 1), found)
                graph = graph.joined(i, j, e, found < 0)
                place = jnp.minimum(count, most_pairs - 1)
                return graph, replaced(pairs, e, place), count + 1

            graph, pairs, count = _loop(m + 1, end, pair, (graph, pairs, count))
            return graph, marked(graph, mark, jnp.zeros_like), pairs, count

        carry = (s.graph._replace(degree=degree), s.mark, s.order.pairs, s.pairs)
        graph, mark, pairs, pair_count = _loop(begin, end, of_neighbour, carry)
        count = s.done + 1
        order = s.order._replace(
            nodes=replaced(s.order.nodes, v, s.done),
            start=replaced(s.order.start, end, count),
            neighbours=neighbours,
            edges=edges,
            pairs=pairs,
            pair_start=replaced(s.order.pair_start, pair_count, count),
        )
        return s._replace(
            done=count,
            graph=graph,
            left=left,
            ready=ready,
            mark=mark,
            order=order,
            end=end,
            pairs=pair_count,
        )

    def visit(s: _Search) -> _Search:
        there = entry(s.left, s.node) * entry(s.ready, s.node) > 0
        now = there & (entry(s.graph.degree, s.node) <= s.limit)
        s = only_if(now, eliminate, s)
        last = s.node + 1 == nodes

        def less(i, least):
            there = entry(s.left, i) * entry(s.ready, i) > 0
            return jnp.where(there, jnp.minimum(least, entry(s.graph.degree, i)), least)

        least = _loop(0, jnp.where(last, nodes, 0), less, jnp.int32(nodes))
        return s._replace(
            node=jnp.where(last, 0, s.node + 1), limit=jnp.where(last, least, s.limit)
        )

    s = _Search(
        none,
        none,
        none,
        graph,
        zeros + 1,
        ready.astype(jnp.int32),
        zeros,
        order._replace(of_link=edge_of),
        none,
        none,
    )
    s = jax.lax.while_loop(lambda s: s.done < nodes, visit, s)
    full = (s.graph.edges >= most_edges) | (s.pairs > most_pairs) | (s.end >= most_edges)
    order = s.order._replace(number=jnp.minimum(s.graph.edges, most_edges), overflow=full)
    return memory._replace(order=order, graph=s.graph)


def _added(A: Array, x: int, k: Array) -> Array:
    """A with x added to A[k]."""
    return replaced(A, entry(A, k) + x, k)


def _span(order: Order, k: Array) -> tuple[Array, Array]:
    """Where the neighbours of node k of the order begin and end."""
    return entry(order.start, k), entry(order.start, k + 1)


def cleared(given: Elimination) -> Elimination:
    """An empty matrix with the same edges."""
    D, off = given.blocks
    empty = jnp.zeros_like(D[0])
    off = _loop(0, 2 * given.order.number, lambda e, off: replaced(off, empty, e), off)
    return given._replace(blocks=Blocks(jnp.zeros_like(D), off))


def place(row: Array, column: Array, edge: Array) -> Array:
    """The place of a block among those of the edges."""
    return 2 * edge + (row > column).astype(jnp.int32)


def factorise(given: Elimination) -> Elimination:
    """A = L U, with L_iv = A_iv A_vv^-1 in the places of A_iv, U in the others."""
    order, nodes = given.order, given.order.nodes.shape[0]

    def eliminate(k, carry):
        D, off, X, U = carry
        v, (begin, end) = entry(order.nodes, k), _span(order, k)
        pivot = pivot_inverse(entry(D, v))
        D = replaced(D, pivot, v)

        def fetch(m, carry):
            X, U = carry
            i, e = entry(order.neighbours, m), entry(order.edges, m)
            below = times(entry(off, place(i, v, e)), pivot)
            return replaced(X, below, m - begin), replaced(U, entry(off, place(v, i, e)), m - begin)

        X, U = _loop(begin, end, fetch, (X, U))

        def row(m, carry):
            D, off = carry
            i, r = entry(order.neighbours, m), m - begin
            rest = end - m
            # The pairs of this row stand after those of the rows before it.
            first = entry(order.pair_start, k) + r * (end - begin) - (r * (r + 1)) // 2

            def column(n, off):
                j = entry(order.neighbours, m + n)
                e = entry(order.pairs, first + n - 1)
                for a, b, x, y in ((i, j, r, r + n), (j, i, r + n, r)):
                    at = place(a, b, e)
                    off = replaced(off, entry(off, at) - times(entry(X, x), entry(U, y)), at)
                return off

            off = replaced(off, entry(X, r), place(i, v, entry(order.edges, m)))
            D = replaced(D, entry(D, i) - times(entry(X, r), entry(U, r)), i)
            return D, _loop(1, rest, column, off)

        return *_loop(begin, end, row, (D, off)), X, U

    D, off, X, U = _loop(0, nodes, eliminate, (*given.blocks, given.beside, given.above))
    return given._replace(blocks=Blocks(D, off), beside=X, above=U)


def solve(
    factors: Elimination, y: Float[Array, "nodes s"], *, transposed: bool = False
) -> Float[Array, "nodes s"]:
    """x with A x = y, or with A^T x = y."""
    nodes, order, LU = y.shape[0], factors.order, factors.blocks

    def on(A, x):
        return jnp.sum(A * x[:, None], 0) if transposed else jnp.sum(A * x[None], 1)

    def lower(i, v, e):  # of the transpose, L is U^T
        return entry(LU.edges, place(v, i, e) if transposed else place(i, v, e))

    def upper(v, i, e):
        return entry(LU.edges, place(i, v, e) if transposed else place(v, i, e))

    def down(k, y):
        v = entry(order.nodes, k)
        here = entry(y, v)
        if transposed:
            here = on(entry(LU.diagonal, v), here)
            y = replaced(y, here, v)

        def onto(m, y):
            i = entry(order.neighbours, m)
            return replaced(y, entry(y, i) - on(lower(i, v, entry(order.edges, m)), here), i)

        return _loop(*_span(order, k), onto, y)

    def up(r, y):
        k = nodes - 1 - r
        v = entry(order.nodes, k)

        def less(m, x):
            i = entry(order.neighbours, m)
            return x - on(upper(v, i, entry(order.edges, m)), entry(y, i))

        x = _loop(*_span(order, k), less, entry(y, v))
        return replaced(y, x if transposed else on(entry(LU.diagonal, v), x), v)

    return _loop(0, nodes, up, _loop(0, nodes, down, y))


def times(A: Float[Array, "m n"], B: Float[Array, "n k"]) -> Float[Array, "m k"]:
    """A B of small blocks, written out: a sum of outer products."""
    found = A[:, 0, None] * B[None, 0]
    for k in range(1, A.shape[1]):
        found = found + A[:, k, None] * B[None, k]
    return found

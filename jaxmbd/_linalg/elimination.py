"""The order in which the blocks of a sparse symmetric matrix are eliminated. It is found once for
each structure, in NumPy: two orders are equal if they are the same object.

On CPUs, where an inner loop costs no more than its arithmetic, nodes are eliminated one after the
other (`node_order`). Nodes of least degree go first. Trees are eliminated from their leaves, with
O(n) work and no fill.

On GPUs, which process many nodes at once, nodes are eliminated level by level (`level_order`). A
level is an independent set: no two of its nodes are neighbours, so all can be eliminated at once.
Nodes of low degree go first (Markowitz's rule of least fill): every other node of a chain, and the
leaves of a tree. Trees take O(log n) levels and O(n) work, and loops cause little fill.
"""

import dataclasses
import functools
import itertools
from typing import NamedTuple

import numpy as np

# Up to this degree, elimination adds no more edges than it removes.
_NO_FILL = 2


class Level(NamedTuple):
    """One level. Numbers of nodes and edges count those that are left at the start of the level. An
    edge runs from the node that is eliminated first. A number past the end stands for "none".

    - `eliminated`, `kept`: nodes. `neighbours`: those of the eliminated nodes, numbered among the
      kept ones, `(d, k)`.
    - `out`: their edges, `(d, k)`.
    - `node_updates`: which (neighbour slot, eliminated node), flattened, update a kept node,
      `(c, m)`.
    - `kept_edges`: old number of each new edge. `edge_updates`: which (pair of slots, eliminated
      node), flattened, update it, `(c, edges)`.
    """

    eliminated: np.ndarray
    kept: np.ndarray
    neighbours: np.ndarray
    out: np.ndarray
    node_updates: np.ndarray
    kept_edges: np.ndarray
    edge_updates: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class LevelOrder:
    """The whole elimination.

    - `contributions`: the pairs of ends (numbered through all elements, end by end) that contribute
      to each edge at the start, two arrays `(c, edges)`.
    - `levels`: one after the other. `rest_edges`: the edges between the few nodes that remain, two
      arrays of node numbers.
    """

    contributions: tuple[np.ndarray, np.ndarray]
    levels: tuple[Level, ...]
    rest_edges: tuple[np.ndarray, np.ndarray]


def _padded(lists: list[list[int]], none: int, longest: int | None = None) -> np.ndarray:
    """Lists of different lengths as columns of an array, padded with `none`."""
    longest = max(map(len, lists), default=0) if longest is None else longest
    array = np.full((longest, len(lists)), none)
    for i, items in enumerate(lists):
        array[: len(items), i] = items
    return array


def slots(pieces: list[tuple[int, int]]) -> np.ndarray:
    """The node of each end, where ends are numbered piece by piece, and end by end in each piece.
    `pieces` holds (ends, elements)."""
    nodes, start = [], 0
    for ends, elements in pieces:
        nodes.append(np.tile(start + np.arange(elements), ends))
        start += elements
    return np.concatenate(nodes) if nodes else np.zeros(0, int)


_Between = dict[tuple[int, int], list[tuple[int, int]]]


def _graph(ends, count: int) -> tuple[_Between, list[set[int]], int]:
    """For each pair of nodes, the pairs of their ends that are on one body (ends are numbered
    through all elements, end by end); the neighbours of each node; and the number of ends."""
    node_of = slots([(len(piece), len(piece[0])) for piece in ends])
    body_of = np.concatenate([np.concatenate([np.array(e) for e in piece]) for piece in ends])
    at_body: dict[int, list[int]] = {}
    for slot, body in enumerate(body_of):
        if body < count:
            at_body.setdefault(int(body), []).append(slot)
    between: _Between = {}
    adjacent: list[set[int]] = [set() for _ in range(int(node_of.max()) + 1)]
    for there in at_body.values():
        for i, p in enumerate(there):
            for q in there[i + 1 :]:
                a, b = int(node_of[p]), int(node_of[q])
                if a != b:
                    between.setdefault((a, b), []).append((p, q))
                    adjacent[a].add(b)
                    adjacent[b].add(a)
    return between, adjacent, len(node_of)


def _made_of(between: _Between, order: dict[int, int]) -> _Between:
    """The same pairs for each edge, directed from the node that is eliminated first."""
    made_of: _Between = {}
    for (a, b), pairs in between.items():
        edge = (a, b) if order[a] < order[b] else (b, a)
        turned = [(p, q) if edge == (a, b) else (q, p) for p, q in pairs]
        made_of.setdefault(edge, []).extend(turned)
    return made_of


def _contributions(
    made_of: _Between, edges: list[tuple[int, int]], none: int
) -> tuple[np.ndarray, np.ndarray]:
    first, second = (
        _padded([[pair[side] for pair in made_of.get(edge, [])] for edge in edges], none)
        for side in (0, 1)
    )
    return first, second


@dataclasses.dataclass(frozen=True, eq=False)
class NodeOrder:
    """The elimination of one node after the other, of all nodes or of those before a rest. A number
    of a node or edge past the end stands for "none".

    - `contributions`: as in `LevelOrder`, for all edges, including those that the elimination adds.
    - `order`: the nodes in the order of elimination, then the rest. `neighbours`: for each
      eliminated node, the positions in this order of the neighbours that are left, and `out`: the
      edges to them, `(nodes, d)`.
    - `pairs`: the edges between two neighbours, `(nodes, d (d - 1) / 2)`, ordered by the later one.
    - `rest_edges`: the last edges, those between nodes of the rest, as two arrays of places in it.
    """

    contributions: tuple[np.ndarray, np.ndarray]
    order: np.ndarray
    neighbours: np.ndarray
    out: np.ndarray
    pairs: np.ndarray
    rest_edges: tuple[np.ndarray, np.ndarray]

    @property
    def rest(self) -> int:
        """How many nodes are not eliminated."""
        return len(self.order) - len(self.out)


@functools.lru_cache(maxsize=256)
def node_order(
    ends: tuple[tuple[tuple[int, ...], ...], ...], count: int, rest: tuple[int, ...] = ()
) -> NodeOrder:
    """The elimination of J M^-1 J^T with block rows between `ends` (see `BlockRows`), without the
    nodes `rest`."""
    between, adjacent, none = _graph(ends, count)
    left, order, around = set(range(len(adjacent))) - set(rest), [], []
    now = [set(x) for x in adjacent]
    while left:
        node = min(left, key=lambda i: (len(now[i]), i))
        left.remove(node)
        order.append(node)
        around.append(now[node])
        _join_neighbours([node], now)
    place = {node: i for i, node in enumerate([*order, *rest])}
    near = [sorted(nodes, key=place.__getitem__) for nodes in around]
    edges = [(a, b) for a, nodes in zip(order, near, strict=True) for b in nodes]
    among_rest = [pair for pair in itertools.combinations(rest, 2) if pair[1] in now[pair[0]]]
    edges += among_rest
    number = {edge: i for i, edge in enumerate(edges)}
    pairs = [[number[pair] for pair in itertools.combinations(nodes, 2)] for nodes in near]
    degree = max(map(len, near), default=0)
    slots = sorted(itertools.combinations(range(degree), 2), key=lambda pair: pair[::-1])
    for i, nodes in enumerate(near):
        # Pairs stand at the same places for all nodes, those of the first neighbours first.
        known = dict(zip(itertools.combinations(range(len(nodes)), 2), pairs[i], strict=True))
        pairs[i] = [known.get(slot, len(edges)) for slot in slots]
    out = [[number[a, b] for b in nodes] for a, nodes in zip(order, near, strict=True)]
    places = np.array([[rest.index(a), rest.index(b)] for a, b in among_rest], int).reshape(-1, 2)
    return NodeOrder(
        _contributions(_made_of(between, place), edges, none),
        np.array([*order, *rest]),
        _padded([[place[b] for b in nodes] for nodes in near], len(place), degree).T,
        _padded(out, len(edges), degree).T,
        np.array(pairs, int).reshape(len(order), len(slots)),
        (places[:, 0], places[:, 1]),
    )


@functools.lru_cache(maxsize=256)
def level_order(ends: tuple[tuple[tuple[int, ...], ...], ...], count: int, few: int) -> LevelOrder:
    """The elimination of J M^-1 J^T with block rows between `ends` (see `BlockRows`), down to at
    most `few` nodes."""
    between, adjacent, none = _graph(ends, count)
    n = len(adjacent)
    sets, rest = _independent_sets([set(x) for x in adjacent], few)
    order = {node: i for i, node in enumerate([*itertools.chain(*sets), *rest])}

    made_of = _made_of(between, order)
    edges = sorted(made_of)
    contributions = _contributions(made_of, edges, none)
    left = list(range(n))
    levels = []
    for chosen in sets:
        level, left, edges, adjacent = _eliminate(chosen, left, edges, adjacent, order)
        levels.append(level)
    place = {node: i for i, node in enumerate(left)}
    rest_edges = np.array([[place[a], place[b]] for a, b in edges], int).reshape(-1, 2)
    return LevelOrder(
        (contributions[0], contributions[1]),
        tuple(levels),
        (rest_edges[:, 0], rest_edges[:, 1]),
    )


def _independent_sets(adjacent: list[set[int]], few: int) -> tuple[list[list[int]], list[int]]:
    """The nodes to eliminate in each level, and those that remain."""
    left = set(range(len(adjacent)))
    levels = []
    while len(left) > few:
        bound = max(_NO_FILL, min(len(adjacent[i]) for i in left))
        chosen: list[int] = []
        blocked: set[int] = set()
        for i in sorted(left, key=lambda i: (len(adjacent[i]), i)):
            if len(adjacent[i]) > bound or len(left) - len(chosen) <= 1:
                break
            if i not in blocked:
                chosen.append(i)
                blocked |= adjacent[i]
        _join_neighbours(chosen, adjacent)
        left -= set(chosen)
        levels.append(sorted(chosen))
    return levels, sorted(left)


def _join_neighbours(chosen: list[int], adjacent: list[set[int]]) -> None:
    """Remove the `chosen` nodes and make the neighbours of each of them neighbours of each
    other."""
    for i in chosen:
        for a in adjacent[i]:
            adjacent[a].remove(i)
            adjacent[a] |= adjacent[i] - {a}


def _eliminate(chosen, left, edges, adjacent, order):
    """The level that eliminates the nodes `chosen`, and the nodes, edges and neighbours that
    remain."""
    number = {edge: i for i, edge in enumerate(edges)}
    place = {node: i for i, node in enumerate(left)}
    gone = set(chosen)
    new_left = [node for node in left if node not in gone]
    new_place = {node: i for i, node in enumerate(new_left)}
    near = [sorted(adjacent[e], key=order.__getitem__) for e in chosen]
    k = len(chosen)
    degree = max(map(len, near), default=0)
    pair_number = {pair: p for p, pair in enumerate(itertools.combinations(range(degree), 2))}
    node_updates: list[list[int]] = [[] for _ in new_left]
    edge_updates: dict[tuple[int, int], list[int]] = {
        edge: [] for edge in edges if edge[0] not in gone
    }
    for position, nodes in enumerate(near):
        for i, a in enumerate(nodes):
            node_updates[new_place[a]].append(i * k + position)
            for j in range(i + 1, len(nodes)):
                product = pair_number[i, j] * k + position
                edge_updates.setdefault((a, nodes[j]), []).append(product)
    new_edges = sorted(edge_updates)
    level = Level(
        np.array([place[e] for e in chosen]),
        np.array([place[node] for node in new_left], int),
        _padded([[new_place[a] for a in nodes] for nodes in near], len(new_left)),
        _padded(
            [[number[e, a] for a in nodes] for e, nodes in zip(chosen, near, strict=True)],
            len(edges),
        ),
        _padded(node_updates, degree * k),
        np.array([number.get(edge, len(edges)) for edge in new_edges], int),
        _padded([edge_updates[edge] for edge in new_edges], len(pair_number) * k),
    )
    adjacent = [set(x) for x in adjacent]
    _join_neighbours(chosen, adjacent)
    return level, new_left, new_edges, adjacent

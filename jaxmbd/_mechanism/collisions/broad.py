"""Which of many shapes are near each other, without a look at all pairs."""

import functools
import itertools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ..._compiler import (
    cell,
    chains,
    entry,
    loops_cost_nothing,
    one_by_one,
    only_if,
    replaced,
    stop_gradient,
)
from ..._coordinates import components

# Balls that overlap by more than this [m] are missed if no room is left for their pair.
_MISSED = 1e-9

# Up to this many balls, a look at each pair takes less time than the grid.
_FEW = 128

# Cells are numbered up to this along each axis. What is farther out shares the last cell.
_FARTHEST = 1e8

# The cell itself, and one of each two opposite neighbours.
_CELLS = np.array(list(itertools.product((-1, 0, 1), repeat=3))[13:], np.int32)
_PRIMES = (73856093, 19349663, 83492791)


class Balls(NamedTuple):
    """What is known of balls before a motion (static), by their numbers.

    - `body`: of each ball; those on one body make no pair. `forbidden`: for each body others with
      which it makes none, -1 for none, shape `(bodies, width)`; a pair may stand at either one.
    - `kind`: of each ball. `group`: the group of pairs of two kinds, shape `(kinds, kinds)`.
      `room`: for how many pairs each group has room.
    - `rank`: of two balls of a pair, the one of lower rank comes first.
    - `large`: balls that are far larger than most, which do not enter the grid.
    """

    body: np.ndarray
    forbidden: np.ndarray
    kind: np.ndarray
    group: np.ndarray
    room: tuple[int, ...]
    rank: np.ndarray
    large: tuple[int, ...]

    @property
    def start(self) -> np.ndarray:
        """Place of the first pair of each group, and the number of places."""
        return np.cumsum([0, *self.room])


class NearPairs(NamedTuple):
    """Pairs of balls group by group, each with `room` for some, of which the first `exist`; others
    hold 0. `lost`: whether overlapping balls found no room."""

    first: Int[Array, " places"]
    second: Int[Array, " places"]
    exist: Int[Array, " groups"]
    lost: Bool[Array, ""]


def near_pairs(
    balls: Balls, center: Float[Array, "n 3"], radius: Float[Array, " n"], reach: Float[Array, ""]
) -> NearPairs:
    """All allowed pairs of balls whose gap is less than `reach` [m], as constants.

    On CPUs all pairs of few balls are looked at. Many balls are entered one by one into a grid,
    kept as chains in a table of hashed cells. The edge of a cell is the largest diameter plus
    `reach`, so that each ball finds its partners in its own and neighbouring cells. Of these it
    looks into half, and its partners into the others. The cost is linear in the balls if they are
    of like size. `large` ones are compared with all. On GPUs all pairs are compared at once.

    Reference: Teschner et al. (2003), Optimized spatial hashing for collision detection of
    deformable objects, Proc. Vision, Modeling, Visualization."""
    if balls.start[-1] == 0:
        none, lost = jnp.zeros(0, jnp.int32), jnp.zeros((), bool)
        return NearPairs(none, none, jnp.zeros(len(balls.room), jnp.int32), lost)
    listed = _each_pair if len(balls.body) <= _FEW else _by_grid
    find = listed if loops_cost_nothing() else _of_all
    operands = stop_gradient((center, radius, reach))
    return one_by_one(functools.partial(find, balls), *operands)


class _Search(NamedTuple):
    """Balls among which to look for near pairs."""

    balls: Balls
    center: Float[Array, "n 3"]
    radius: Float[Array, " n"]
    reach: Float[Array, ""]

    def none(self) -> NearPairs:
        """No pairs."""
        places = jnp.zeros(int(self.balls.start[-1]), jnp.int32)
        exist = jnp.zeros(len(self.balls.room), jnp.int32)
        return NearPairs(places, places, exist, jnp.asarray(False))

    def looked(self, found: NearPairs, i: Array, j: Array, here: bool | Array = True) -> NearPairs:
        """The pairs with that of the balls i and j, if they are near each other and `here`."""
        d = entry(self.center, j) - entry(self.center, i)
        bound = entry(self.radius, j) + entry(self.radius, i)
        distance2 = jnp.sum(d * d)
        near = (distance2 < (bound + self.reach) ** 2) & here
        return only_if(near, lambda found: self._added(found, i, j, distance2, bound), found)

    def _added(
        self, found: NearPairs, i: Array, j: Array, distance2: Array, bound: Array
    ) -> NearPairs:
        balls, i32 = self.balls, jnp.int32
        rank, kind, body = (jnp.asarray(x, i32) for x in (balls.rank, balls.kind, balls.body))
        group, start, room = (jnp.asarray(x, i32) for x in (balls.group, balls.start, balls.room))
        forbidden = jnp.asarray(balls.forbidden, i32)
        a, b = entry(body, i), entry(body, j)
        allowed = (a != b) & ~jnp.any(entry(forbidden, a) == b) & ~jnp.any(entry(forbidden, b) == a)
        first, second, exist, lost = found
        g = cell(group, entry(kind, i), entry(kind, j))
        number, most = entry(exist, g), entry(room, g)
        fits = number < most
        m = entry(start, g) + jnp.minimum(number, most - 1)
        ahead, writes = entry(rank, i) < entry(rank, j), allowed & fits
        one, other = jnp.where(ahead, i, j), jnp.where(ahead, j, i)
        overlap = jnp.maximum(bound - _MISSED, 0.0)
        return NearPairs(
            replaced(first, jnp.where(writes, one, entry(first, m)), m),
            replaced(second, jnp.where(writes, other, entry(second, m)), m),
            replaced(exist, number + writes.astype(i32), g),
            lost | (allowed & ~fits & (distance2 < overlap * overlap)),
        )


def _each_pair(balls: Balls, center: Array, radius: Array, reach: Array) -> NearPairs:
    n, i32 = len(balls.body), jnp.int32
    apart = [(x[:, None] - x[None]) ** 2 for x in components(center, axis=-1)]
    near = sum(apart) < (radius[:, None] + radius[None] + reach) ** 2

    # Each place is written, and written again if its pair is not near: without a branch.
    def noted(i, carry):
        row = entry(near, i)

        def one(j, carry):
            pairs, count = carry
            return replaced(pairs, i * n + j, count), count + entry(row, j).astype(i32)

        return lax.fori_loop(i + 1, i32(n), one, carry)

    room = jnp.zeros(n * (n - 1) // 2 + 1, i32)
    pairs, count = lax.fori_loop(i32(0), i32(n), noted, (room, i32(0)))
    search = _Search(balls, center, radius, reach)

    def listed(k, found):
        return search.looked(found, entry(pairs, k) // n, entry(pairs, k) % n)

    return lax.fori_loop(i32(0), count, listed, search.none())


def _by_grid(balls: Balls, center: Array, radius: Array, reach: Array) -> NearPairs:
    n, i32 = len(balls.body), jnp.int32
    small = np.ones(n, bool)
    small[list(balls.large)] = False
    table = 1 << int(np.ceil(np.log2(max(2 * n, 2))))
    width = 2 * jnp.max(jnp.where(small, radius, 0.0)) + reach
    places = jnp.clip(jnp.floor(center / width), -_FARTHEST, _FARTHEST).astype(i32)
    small, cells = jnp.asarray(small), jnp.asarray(_CELLS)
    looks = len(_CELLS) + bool(balls.large)
    search = _Search(balls, center, radius, reach)

    def place(c):
        x, y, z = (c[k] * i32(_PRIMES[k]) for k in range(3))
        return (x ^ y ^ z) & (table - 1)

    # The last place is the chain of the large balls, into which all others look too.
    def entered(i):
        return jnp.where(entry(small, i), place(entry(places, i)), table)

    head, after = chains(table + 1, n, entered)

    def partners(i, found):
        def look(k, found):
            c = entry(places, i) + entry(cells, jnp.minimum(k, len(_CELLS) - 1))
            large = k == len(_CELLS)
            apart = large | ~entry(small, i)
            # In its own chain, a ball looks at those that were entered before it.
            begin = entry(head, jnp.where(large, table, place(c)))
            begin = jnp.where(entry(small, i), begin, -1)
            begin = jnp.where(k == 0, entry(after, i), begin)

            def walk(state):
                j, found = state
                here = apart | jnp.all(entry(places, j) == c)
                return entry(after, j), search.looked(found, i, j, here)

            return lax.while_loop(lambda s: s[0] >= 0, walk, (begin, found))[1]

        return lax.fori_loop(i32(0), i32(looks), look, found)

    return lax.fori_loop(i32(0), i32(n), partners, search.none())


def _of_all(balls: Balls, center: Array, radius: Array, reach: Array) -> NearPairs:
    found, lost = [], jnp.asarray(False)
    rank = balls.rank
    allowed = balls.body[:, None] != balls.body[None]
    barred = np.zeros((len(balls.forbidden),) * 2, bool)
    for a, others in enumerate(balls.forbidden):
        barred[a, others[others >= 0]] = True
    barred = barred | barred.T
    allowed &= ~barred[balls.body[:, None], balls.body[None]] & (rank[:, None] < rank[None])
    group = balls.group[balls.kind[:, None], balls.kind[None]]
    for g, room in enumerate(balls.room):
        rows = np.unique(np.flatnonzero(np.any(allowed & (group == g), axis=1)))
        columns = np.unique(np.flatnonzero(np.any(allowed & (group == g), axis=0)))
        chosen = np.ix_(rows, columns)
        d = center[rows][:, None] - center[columns][None]
        bound = radius[rows][:, None] + radius[columns][None]
        distance2 = jnp.sum(d * d, axis=-1)
        near = (allowed & (group == g))[chosen] & (distance2 < (bound + reach) ** 2)
        total = jnp.sum(near, dtype=jnp.int32)
        flat = jnp.nonzero(near.ravel(), size=room, fill_value=0)[0].astype(jnp.int32)
        exists = jnp.arange(room, dtype=jnp.int32) < total
        one, other = (jnp.asarray(x, jnp.int32) for x in (rows, columns))
        one, other = one[flat // len(columns)], other[flat % len(columns)]
        found.append((jnp.where(exists, one, 0), jnp.where(exists, other, 0)))
        overlap = jnp.maximum(bound - _MISSED, 0.0)
        touching = near & (distance2 < overlap * overlap)
        kept = jnp.sum(jnp.where(exists, touching.ravel()[flat], False))
        lost = lost | (jnp.sum(touching) > kept)
        found[-1] = (*found[-1], jnp.minimum(total, room))
    first, second, count = zip(*found, strict=True)
    first, second = (jnp.concatenate(x).astype(jnp.int32) for x in (first, second))
    return NearPairs(first, second, jnp.stack(count).astype(jnp.int32), lost)

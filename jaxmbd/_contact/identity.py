"""Contacts that have no fixed place, known again by the pieces that they belong to."""

from typing import NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int

from .._compiler import (
    chains,
    entry,
    loops_cost_nothing,
    one_by_one,
    replaced,
    save_for_reverse,
)

# Of each contact the numbers of its pieces a and b and of its point; -1 for a contact whose place
# is fixed, and for none.
Pairs: TypeAlias = Int[Array, "contacts 3"]


class Known(NamedTuple):
    """Of each contact now its `place` among those before, -1 for none, and whether any contact of
    the same pieces was among them."""

    place: Int[Array, " contacts"]
    seen: Bool[Array, " contacts"]


def known_again(before: Int[Array, "old 3"], now: Int[Array, "new 3"]) -> Known:
    """Find the contacts of `before` that are in `now`. On CPUs by chains in a table of hashed
    pairs, so that the cost is linear, if there is any change; on GPUs all are compared at once."""
    find = _by_chains if loops_cost_nothing() else _of_all
    return save_for_reverse(Known(*one_by_one(find, before, now)))


def _by_chains(before: Int[Array, "old 3"], now: Int[Array, "new 3"]) -> tuple[Array, Array]:
    n, new, i32 = before.shape[0], now.shape[0], jnp.int32
    exists = now[:, 0] >= 0
    unchanged = jnp.where(exists, jnp.arange(new, dtype=i32), -1), exists
    if n == new:
        # At rest there is nothing to look for.
        changed = jnp.any(before != now).astype(i32)
        n, new = n * changed, new * changed
    table = 1 << int(np.ceil(np.log2(max(2 * before.shape[0], 2))))

    def place(pair):
        return ((pair[0] * i32(73856093)) ^ (pair[1] * i32(19349663))) & (table - 1)

    def place_of(k):
        pair = entry(before, k)
        # The last place takes what is not looked for.
        return jnp.where(pair[0] >= 0, place(pair), table)

    head, after = chains(table + 1, before.shape[0], place_of, n)

    def look(k, found):
        places, seen = found
        pair = entry(now, k)

        def walk(state):
            m, at, any_point = state
            other = entry(before, m)
            same = (other[0] == pair[0]) & (other[1] == pair[1])
            at = jnp.where(same & (other[2] == pair[2]), m, at)
            return entry(after, m), at, any_point | same

        begin = jnp.where(pair[0] >= 0, entry(head, place(pair)), -1)
        state = (begin, i32(-1), jnp.asarray(False))
        _, at, any_point = lax.while_loop(lambda s: s[0] >= 0, walk, state)
        return replaced(places, at, k), replaced(seen, any_point, k)

    return lax.fori_loop(i32(0), i32(new), look, unchanged)


def _of_all(before: Int[Array, "old 3"], now: Int[Array, "new 3"]) -> tuple[Array, Array]:
    exists = (now[:, :1] >= 0) & (before[None, :, 0] >= 0)
    both = jnp.all(now[:, None, :2] == before[None, :, :2], axis=-1) & exists
    same = both & (now[:, None, 2] == before[None, :, 2])
    place = jnp.where(jnp.any(same, axis=1), jnp.argmax(same, axis=1), -1)
    return place.astype(jnp.int32), jnp.any(both, axis=1)

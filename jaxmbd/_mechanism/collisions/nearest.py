"""Which pairs of shapes are solved for, where there is not room for all."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ..._compiler import entry, loops_cost_nothing, one_by_one, replaced, stop_gradient
from .base import ABSENT

# Pairs that overlap by more than this [m] are missed if no room is left for them.
_MISSED = 1e-9

# Bisections for the largest gap with room for all pairs below it.
_BISECTIONS = 50


class Chosen(NamedTuple):
    """Places of the points of the chosen pairs among all points, then places past the end. `lost`:
    whether pairs overlap that are not chosen."""

    place: Int[Array, " room"]
    lost: Bool[Array, ""]


def nearest(
    gaps: Sequence[Float[Array, "_ _"]],
    exist: Sequence[int | Int[Array, ""]],
    reach: Float[Array, ""],
    room: int,
) -> Chosen:
    """The present points of pairs with gaps below `reach`, kind by kind, in order: all points of a
    pair or none. If they are more than `room`, those of the pairs that are nearest. Of each kind
    only the first pairs `exist`. Constants."""
    return one_by_one(
        lambda gaps, exist, reach: _nearest(gaps, exist, reach, room),
        *stop_gradient((gaps, [jnp.asarray(x, jnp.int32) for x in exist], reach)),
    )


def _nearest(gaps: Sequence[Array], exist: Sequence[Array], reach: Array, room: int) -> Chosen:
    i32 = jnp.int32
    present = [gap < ABSENT / 2 for gap in gaps]
    least = [jnp.min(gap, axis=1, initial=ABSENT) for gap in gaps]
    size = jnp.concatenate([jnp.sum(x, axis=1, dtype=i32) for x in present])
    gap = jnp.concatenate(least)
    size = jnp.where(gap < reach, size, 0)

    def total(limit):
        return jnp.sum(jnp.where(gap <= limit, size, 0), dtype=i32)

    # Without a sort: all pairs up to `low` have room, and those up to `high` have not.
    def halve(state):
        k, low, high = state
        middle = (low + high) / 2
        fits = total(middle) <= room
        return k + 1, jnp.where(fits, middle, low), jnp.where(fits, high, middle)

    everything = total(reach) <= room
    low = jnp.min(jnp.where(size > 0, gap, reach)) - reach
    low = jnp.where(everything, reach, low)
    state = (jnp.where(everything, _BISECTIONS, 0), low, reach)
    _, low, high = lax.while_loop(lambda s: s[0] < _BISECTIONS, halve, state)
    # Of pairs that are equally near up to rounding, the first ones.
    between = (gap > low) & (gap <= high)
    before = total(low) + jnp.cumsum(jnp.where(between, size, 0), dtype=i32)
    taken = (size > 0) & ((gap <= low) | (between & (before <= room)))
    lost = jnp.any(~taken & (gap < -_MISSED))

    starts = [0]
    for x in gaps:
        starts.append(starts[-1] + x.shape[0])
    parts = zip(present, itertools.pairwise(starts), strict=True)
    flat = jnp.concatenate([(x & taken[a:b, None]).ravel() for x, (a, b) in parts])
    if not loops_cost_nothing():
        place = jnp.nonzero(flat, size=room, fill_value=flat.shape[0])[0].astype(i32)
        return Chosen(place, lost)

    points = [x.shape[1] for x in gaps]
    first = list(itertools.accumulate((x.size for x in gaps), initial=0))[:-1]
    begin = jnp.asarray(first, i32)
    end = begin + jnp.stack([n * k for n, k in zip(exist, points, strict=True)])

    def compact(p, state):
        place, count = state
        # The last place is never read.
        return replaced(place, p, count), count + entry(flat, p).astype(i32)

    def of_kind(g, state):
        return lax.fori_loop(begin[g], end[g], compact, state)

    empty = jnp.full(room + 1, flat.shape[0], i32)
    place, count = lax.fori_loop(i32(0), i32(len(points)), of_kind, (empty, i32(0)))
    place = jnp.where(jnp.arange(room, dtype=i32) < count, place[:room], flat.shape[0])
    return Chosen(place, lost)

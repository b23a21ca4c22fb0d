"""Merging the states of many samples, in an order that depends on their indices alone."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

from .reductions import AbstractReduction

# Reductions of a run come as a pytree of them, and their states as a list, each with whether there
# is any good sample in it.
States = tuple[Any, list[Any]]


def is_reduction(x) -> bool:
    return isinstance(x, AbstractReduction)


def leaves(reductions: PyTree[AbstractReduction]) -> list[AbstractReduction]:
    return jax.tree.leaves(reductions, is_leaf=is_reduction)


def reduce_block(
    reductions: PyTree, outputs: PyTree, good: Bool[Array, " B"], index: Int[Array, " B"]
) -> States:
    """That of a block of B neighbours, a power of two: by halves."""
    states = [jax.vmap(r.single)(outputs, index) for r in leaves(reductions)]

    def halve(_, both):
        even, odd = (jax.tree.map(lambda x, k=k: x[k::2], both) for k in (0, 1))
        merged = jax.vmap(lambda a, b: _merge(reductions, a, b))(even, odd)
        # Filled up with what is never used: a loop of one shape compiles in a fraction of the time.
        return jax.tree.map(lambda x: jnp.concatenate([x, x]), merged)

    both, levels = (good, states), good.shape[0].bit_length() - 1
    if levels:
        both = jax.lax.fori_loop(0, levels, halve, both)
    return jax.tree.map(lambda x: x[0], both)


def _merge(reductions: PyTree, a: States, b: States) -> States:
    (some_a, states_a), (some_b, states_b) = a, b
    some = some_a & some_b

    def merge(reduction, x, y):
        merged = reduction.merge(x, y)

        def choose(both, only_a, only_b):
            return jnp.where(some, both, jnp.where(some_a, only_a, only_b))

        return jax.tree.map(choose, merged, x, y)

    merged = [merge(*one) for one in zip(leaves(reductions), states_a, states_b, strict=True)]
    return some_a | some_b, merged


_merge_compiled = eqx.filter_jit(_merge)


class Tree:
    """The states of blocks of neighbours, where two of them become one as soon as both are known: a
    block of 2^level samples at (level, position). Few are left at any time, if blocks come in
    order."""

    def __init__(self, reductions: PyTree):
        self.reductions = reductions
        self.nodes: dict[tuple[int, int], Any] = {}

    def add(self, level: int, position: int, states: States) -> None:
        while (level, position ^ 1) in self.nodes:
            other = self.nodes.pop((level, position ^ 1))
            a, b = (states, other) if position % 2 == 0 else (other, states)
            states = jax.device_get(_merge_compiled(self.reductions, a, b))
            level, position = level + 1, position // 2
        self.nodes[level, position] = states

    def total(self) -> States:
        """All in one. A block without a neighbour is what both of them would be."""
        while len(self.nodes) > 1:
            level, position = min(self.nodes)
            states = self.nodes.pop((level, position))
            self.add(level + 1, position // 2, states)
        return next(iter(self.nodes.values()))

    def results(self) -> PyTree:
        """What each reduction makes of the total, `None` if no sample was good."""
        some, states = self.total()
        found = [
            reduction.result(state) if some else None
            for reduction, state in zip(leaves(self.reductions), states, strict=True)
        ]
        structure = jax.tree.structure(self.reductions, is_leaf=is_reduction)
        return jax.tree.unflatten(structure, found)

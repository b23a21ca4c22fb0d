"""Merging the reduction states of many samples, in an order that depends only on their indices."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree

from .reductions import AbstractReduction

# Whether there is any good sample, and a list of the states of all reductions. The reductions
# themselves are a pytree.
States = tuple[PyTree, list[PyTree]]


def is_reduction(x) -> bool:
    return isinstance(x, AbstractReduction)


def leaves(reductions: PyTree[AbstractReduction]) -> list[AbstractReduction]:
    return jax.tree.leaves(reductions, is_leaf=is_reduction)


def reduce_block(
    reductions: PyTree, outputs: PyTree, good: Bool[Array, " B"], index: Int[Array, " B"]
) -> States:
    """The states of a block of B consecutive samples, merged pair by pair. B is a power of two."""
    states = [jax.vmap(r.single)(outputs, index) for r in leaves(reductions)]

    def halve(_, both):
        even, odd = (jax.tree.map(lambda x, k=k: x[k::2], both) for k in (0, 1))
        merged = jax.vmap(lambda a, b: _merge(reductions, a, b))(even, odd)
        # Padded with values that are never used: a loop over arrays of one shape compiles in a
        # fraction of the time.
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
    """The states of blocks of consecutive samples. The node (level, position) is a block of 2^level
    samples. Two neighbours are merged as soon as both are known. If blocks come in order, few nodes
    exist at any time."""

    def __init__(self, reductions: PyTree):
        self.reductions = reductions
        self.nodes: dict[tuple[int, int], States] = {}

    def add(self, level: int, position: int, states: States) -> None:
        while (level, position ^ 1) in self.nodes:
            other = self.nodes.pop((level, position ^ 1))
            a, b = (states, other) if position % 2 == 0 else (other, states)
            states = jax.device_get(_merge_compiled(self.reductions, a, b))
            level, position = level + 1, position // 2
        self.nodes[level, position] = states

    def total(self) -> States:
        """The states of all samples. A block without a neighbour moves up a level unchanged."""
        while len(self.nodes) > 1:
            level, position = min(self.nodes)
            states = self.nodes.pop((level, position))
            self.add(level + 1, position // 2, states)
        return next(iter(self.nodes.values()))

    def results(self) -> PyTree:
        """The result of each reduction, or `None` if no sample was good."""
        some, states = self.total()
        found = [
            reduction.result(state) if some else None
            for reduction, state in zip(leaves(self.reductions), states, strict=True)
        ]
        structure = jax.tree.structure(self.reductions, is_leaf=is_reduction)
        return jax.tree.unflatten(structure, found)

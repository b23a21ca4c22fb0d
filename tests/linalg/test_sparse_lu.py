"""Elimination of sparse blocks in an order found at runtime, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd._linalg import sparse_lu

S, NODES, LINKS = 3, 12, 16


def problem(seed, waiting):
    """A matrix, its links and blocks. The last `waiting` nodes have no diagonal, as rows of joints:
    each joins two of the others. Among the links are some of a node with itself or with none. With
    odd seeds the pivots of the other nodes need an exchange of rows."""
    rng = np.random.default_rng(seed)
    bodies = NODES - waiting
    links = np.stack([rng.integers(0, bodies + 1, LINKS), rng.integers(0, bodies, LINKS)])
    links[links == bodies] = NODES
    own = np.arange(bodies, NODES)
    ends = np.arange(2 * waiting).reshape(-1, 2)
    links = np.concatenate([links, [own, ends[:, 0]], [own, ends[:, 1]]], axis=1)
    A = np.zeros((NODES, S, NODES, S))
    for i, j in links.T:
        if i != j and i < NODES:
            A[i, :, j] = 0.3 * rng.normal(size=(S, S))
            A[j, :, i] = -A[i, :, j].T if i >= bodies else 0.3 * rng.normal(size=(S, S))
    for i in range(bodies):
        own = rng.normal(size=(S, S))
        A[i, :, i] = np.roll(4 * np.eye(S) + own * (1 - np.eye(S)), seed % 2, axis=0)
    return A, links, (np.arange(NODES) < bodies).astype(np.int32), rng.normal(size=(NODES, S))


@jax.jit
def ordered(links, ready):
    memory = sparse_lu.Elimination.none(len(ready), len(links[0]), S, float)
    # What the memory held before does not matter.
    memory = jax.tree.map(lambda x: jnp.full_like(x, 7), memory)
    return sparse_lu.cleared(sparse_lu.least_degree(links[0], links[1], ready, memory))


def blocks_of(A, links, empty):
    blocks, edges = np.array(empty.blocks.edges), np.asarray(empty.order.of_link)
    for (i, j), e in zip(links.T, edges, strict=True):
        if i < NODES and i != j:
            for a, b in ((i, j), (j, i)):
                blocks[2 * e + (a > b)] = A[a, :, b]
    return sparse_lu.Blocks(np.stack([A[i, :, i] for i in range(NODES)]), blocks)


@jax.jit
def solved(empty, blocks, y):
    LU = sparse_lu.factorise(empty._replace(blocks=sparse_lu.Blocks(*map(jnp.asarray, blocks))))
    return [sparse_lu.solve(LU, y, transposed=transposed) for transposed in (False, True)]


@pytest.mark.parametrize("waiting", [0, 3])
def test_solutions(waiting):
    for seed in range(5):
        A, links, ready, y = problem(seed, waiting)
        empty = jax.device_get(ordered(links.astype(np.int32), ready))
        x, z = solved(empty, blocks_of(A, links, empty), y)
        order = empty.order
        assert not order.overflow
        assert sorted(np.asarray(order.nodes)) == list(range(NODES))
        matrix = A.reshape(NODES * S, -1)
        np.testing.assert_allclose(np.ravel(x), np.linalg.solve(matrix, y.ravel()), atol=1e-10)
        np.testing.assert_allclose(np.ravel(z), np.linalg.solve(matrix.T, y.ravel()), atol=1e-10)


def test_a_tree_has_no_fill():
    """Each node is eliminated with one neighbour left, whatever its number."""
    rng = np.random.default_rng(0)
    names = rng.permutation(40)
    parents = np.array([rng.integers(0, i) for i in range(1, 40)])
    links = np.stack([names[1:], names[parents]]).astype(np.int32)
    order = jax.device_get(ordered(links, np.ones(40, np.int32))).order
    assert int(order.start[-1]) == 39
    assert int(order.pair_start[-1]) == 0


def test_overflow_is_told():
    links = np.stack(np.triu_indices(250, 1))
    assert ordered(links.astype(np.int32), np.ones(250, np.int32)).order.overflow

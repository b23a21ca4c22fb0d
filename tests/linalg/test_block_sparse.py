"""Block elimination against dense algebra, on trees, loops, redundant rows and mixed kinds."""

import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd._linalg import block_sparse
from jaxmbd._linalg.blocks import put_rows, smallest_first, take_rows
from jaxmbd._linalg.elimination import level_order, node_order
from jaxmbd._methods import point

SIZE = 6


def chain(n):
    """One joint a body, to the one before; the first to the ground."""
    return [(i - 1 if i else n, i) for i in range(n)]


def random_tree(n):
    rng = np.random.default_rng(0)
    return [(int(rng.integers(0, i)) if i else n, i) for i in range(n)]


def star(n):
    return [(0, i) for i in range(1, n)] + [(n, 0)]


def two_kinds(n):
    """Joints of three rows and of one, some between the same bodies."""
    return [chain(n), [(i, (i + 2) % n) for i in range(0, n, 3)]]


def ring(n):
    return [*chain(n), (n - 1, n)]


# Number of bodies, elements and rows of each kind, and the elements that may be dependent.
GRAPHS = {
    "tree": (9, [random_tree(9)], (4,), ()),
    "one": (1, [chain(1)], (3,), (0,)),
    "short chain": (5, [chain(5)], (4,), ()),
    "star": (6, [star(6)], (3,), ()),
    "closed by short rows": (11, two_kinds(11), (3, 1), (11, 12, 13, 14)),
    "loop": (3, [ring(3)], (5,), (3,)),
    "loop, all": (3, [ring(3)], (5,), (0, 1, 2, 3)),
    "ring": (12, [ring(12)], (4,), (12,)),
}


def dense_of(blocks, ends, n):
    """Rows of all elements as an array, from their blocks at each end."""
    _, rows, _, elements = blocks.shape
    whole = np.zeros((rows, elements, SIZE, n + 1))
    for block, bodies in zip(blocks, ends, strict=True):
        for element, body in enumerate(bodies):
            whole[:, element, :, body] += block[:, :, element]
    return whole[..., :n].reshape(-1, SIZE * n)


def rows_of(graph, *, seed=0, redundant=False):
    """Random M and J with that structure, and as arrays. In a `redundant` loop three rows of each
    element ask for the same relative velocities, as in a four-bar: the last ones depend on the
    others."""
    n, pieces, rows, closing = GRAPHS[graph]
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((SIZE, SIZE, n))
    M = np.einsum("ikn,jkn->ijn", B, B) + SIZE * np.eye(SIZE)[:, :, None]
    blocks, ends, dense = [], [], []
    for elements, r in zip(pieces, rows, strict=True):
        block = rng.standard_normal((2, r, SIZE, len(elements)))
        if redundant:
            block[:, :3] = np.array([-1, 1])[:, None, None, None] * block[1, :3, :, :1]
        ends.append(np.array(elements).T)
        dense.append(dense_of(block, ends[-1], n))
        blocks.append(np.pad(block, ((0, 0), (0, max(rows) - r), (0, 0), (0, 0))))
    J = mbd.solvers.BlockRows(
        (jax.device_put(np.concatenate(blocks, axis=3)),),
        (tuple((r, len(e)) for r, e in zip(rows, pieces, strict=True)),),
        (tuple(tuple(map(int, end)) for end in np.concatenate(ends, axis=1)),),
        n,
        SIZE,
        closing,
    )
    whole = np.einsum("ijn,nm->injm", M, np.eye(n)).reshape(SIZE * n, SIZE * n)
    return mbd.solvers.BlockDiagonal(jax.device_put(M)), J, whole, np.concatenate(dense)


def reference(M, J, f, r, E=0.0):
    G = J @ np.linalg.solve(M, J.T) + E * np.eye(len(J))
    lam = np.linalg.pinv(G, rcond=1e-11) @ (r - J @ np.linalg.solve(M, f))
    return np.linalg.solve(M, f + J.T @ lam), lam


@eqx.filter_jit
def solved(solver, M, J, f, r, E=None, forces=None):
    """a and lam, what of r nothing reaches, whether rows are dependent, the verdict, M^-1 f, and
    powers of forces."""
    operator = mbd.solvers.ConstraintOperator(solver, M, J, E)
    powers = None if forces is None else operator.mobility(forces)
    verdict = operator.dependent(), operator.result()
    free = None if forces is None else operator.free(f)
    return operator.solve(f, r), operator.null(r), *verdict, free, powers


@pytest.fixture
def order(request, monkeypatch):
    """As CPUs eliminate, and as GPUs do. What was traced for one must not serve the other."""
    monkeypatch.setattr(block_sparse, "loops_cost_nothing", lambda: request.param == "in turn")
    with helpers.nothing_kept():
        yield


@pytest.mark.parametrize(
    "graph, compliant, dense_rows, order",
    [
        ("tree", True, None, "in turn"),
        ("star", False, None, "in turn"),
        ("closed by short rows", True, None, "in turn"),
        ("short chain", False, 1, "levels"),  # with few dense rows nearly all are eliminated
        pytest.param("closed by short rows", False, 1, "levels", marks=pytest.mark.slow),
        pytest.param("ring", True, 1, "levels", marks=pytest.mark.slow),
    ],
    indirect=["order"],
)
def test_solves(graph, compliant, dense_rows, order):
    M, J, *dense = rows_of(graph)
    rng = np.random.default_rng(1)
    f, r = rng.standard_normal(J.shape[1]), rng.standard_normal(J.shape[0])
    E = rng.uniform(0.1, 1, J.shape[0]) if compliant else None
    forces = rng.standard_normal((4, J.shape[1])) if graph in ("tree", "short chain") else None
    solver = mbd.solvers.BlockSparse(dense_rows=dense_rows)
    (a, lam), null, dependent, result, free, powers = solved(solver, M, J, f, r, E, forces)
    compliance = E if compliant else 0.0
    expected, multipliers = reference(*dense, f, r, compliance)
    np.testing.assert_allclose(a, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(lam, multipliers, rtol=1e-8, atol=1e-8)
    helpers.assert_verdicts(result, mbd.RESULTS.successful)
    assert not dependent
    np.testing.assert_array_equal(null, 0.0)
    if forces is not None:
        np.testing.assert_allclose(free, np.linalg.solve(dense[0], f), rtol=1e-10, atol=1e-10)
        assert (powers is None) == (not block_sparse.loops_cost_nothing())
    if powers is not None:
        expected = [forces @ reference(*dense, f, 0 * r, compliance)[0] for f in forces]
        np.testing.assert_allclose(powers, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "graph, dense_rows, order",
    [
        ("loop", None, "in turn"),  # the last element after the others
        ("loop, all", None, "in turn"),  # nothing eliminated
        ("loop, all", 1, "in turn"),
        ("loop", 1, "levels"),
    ],
    indirect=["order"],
)
def test_redundant_loops(graph, dense_rows, order):
    """The solution of least norm, and what the rows cannot satisfy, as of the pseudoinverse: of
    right sides that they can satisfy, and that they cannot."""
    rng = np.random.default_rng(2)
    solver = mbd.solvers.BlockSparse(dense_rows=dense_rows)
    M, J, *dense = rows_of(graph, redundant=True)
    assert np.linalg.matrix_rank(dense[1]) == 17
    for part in (0.0, 1.0):
        f, x, *forces = rng.standard_normal((6, J.shape[1]))
        r = dense[1] @ x + part * rng.standard_normal(J.shape[0])
        with_powers = np.array(forces) if graph == "loop" else None
        found = solved(solver, M, J, f, r, None, with_powers)
        (a, lam), null, dependent, result, _, powers = found
        helpers.assert_verdicts(result, mbd.RESULTS.successful)
        assert dependent
        expected, multipliers = reference(*dense, f, r)
        # The regularised factor magnifies what cannot be satisfied, and its rounding, by 1 / rho =
        # 1e8 before it is taken out.
        tolerance = 1e-5 if part else 1e-9
        np.testing.assert_allclose(a, expected, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(lam, multipliers, rtol=tolerance, atol=tolerance)
        unreachable = r - dense[1] @ np.linalg.lstsq(dense[1], r, rcond=1e-10)[0]
        np.testing.assert_allclose(null, unreachable, atol=tolerance)
        assert (powers is None) == (with_powers is None or not block_sparse.loops_cost_nothing())
        if powers is not None:
            expected = [forces @ reference(*dense, f, 0 * r)[0] for f in forces]
            np.testing.assert_allclose(powers, expected, rtol=1e-9, atol=1e-9)


def test_batches():
    """Of batches within batches each sample is solved, without a scatter."""
    samples = [rows_of("ring", seed=i) for i in range(4)]
    M, J = jax.tree.map(
        lambda *x: np.stack(x).reshape(2, 2, *x[0].shape), *(x[:2] for x in samples)
    )
    rights = np.random.default_rng(1).standard_normal((2, 2, samples[0][1].shape[0]))

    def solve(M, J, r):
        operator = mbd.solvers.ConstraintOperator(mbd.solvers.BlockSparse(dense_rows=8), M, J)
        return operator.solve(jnp.zeros(J.shape[1]), r)

    batched = jax.jit(jax.vmap(jax.vmap(solve))).lower(M, J, rights)
    found = jax.device_get(batched.compile()(M, J, rights))
    for i, (*_, M, J) in enumerate(samples):
        r = rights[i // 2, i % 2]
        for x, y in zip(found, reference(M, J, np.zeros(len(M)), r), strict=True):
            np.testing.assert_allclose(x[i // 2, i % 2], y, rtol=1e-8, atol=1e-8)
    # Sums over all samples may be a library's.
    assert helpers.in_the_way(batched).keys() <= {"kCustom", "while"}


def test_derivatives():
    """Of the solution along a change of M, J, f and r in reverse mode, against differences of dense
    algebra."""
    rng, blocks, dense = np.random.default_rng(4), [], []
    for seed in (0, 3):
        M, J, *matrices = rows_of("ring", seed=seed)
        right = rng.standard_normal(J.shape[1]), rng.standard_normal(J.shape[0])
        blocks.append((M, J, *right))
        dense.append((*matrices, *right))
    weights = rng.standard_normal(sum(dense[0][1].shape))

    def moved(s, given, change):
        return jax.tree.map(lambda x, dx: x + s * dx, given, change)

    @jax.jit
    @jax.grad
    def found(s, given, change):
        M, J, f, r = moved(s, given, change)
        operator = mbd.solvers.ConstraintOperator(mbd.solvers.BlockSparse(dense_rows=9), M, J)
        return jnp.concatenate(operator.solve(f, r)) @ weights

    h = 1e-4
    sides = [weights @ np.concatenate(reference(*moved(s, *dense))) for s in (h, -h)]
    np.testing.assert_allclose(found(0.0, *blocks), (sides[0] - sides[1]) / (2 * h), rtol=1e-6)


def test_dense_matrices_are_one_block():
    _, _, M, dense = rows_of("loop")
    rng = np.random.default_rng(8)
    f, r = rng.standard_normal(18), rng.standard_normal(10)
    found = solved(mbd.solvers.BlockSparse(), M, dense[:10], f, r)
    (a, lam), _, _, result, *_ = jax.device_get(found)
    M = np.asarray(M)
    np.testing.assert_allclose(M @ a, f + dense[:10].T @ lam, atol=1e-9)
    np.testing.assert_allclose(dense[:10] @ a, r, atol=1e-9)
    helpers.assert_verdicts(result, mbd.RESULTS.successful)


def test_dependent_rows_in_a_tree_and_indefinite_masses_are_reported():
    verdict = eqx.filter_jit(
        lambda M, J: mbd.solvers.ConstraintOperator(mbd.solvers.BlockSparse(), M, J).result()
    )
    M, J, *_ = rows_of("star")
    helpers.assert_verdicts(verdict(M, J), mbd.RESULTS.successful)
    twice, blocks = np.array(J.pieces[0]), np.array(M.blocks)
    twice[:, 2] = 2 * twice[:, 0]
    J = J._with([jax.device_put(twice)])
    helpers.assert_verdicts(verdict(M, J), mbd.RESULTS.singular_constraints)
    blocks[2, 2, 1] *= -1
    M = mbd.solvers.BlockDiagonal(jax.device_put(blocks))
    helpers.assert_verdicts(verdict(M, J), mbd.RESULTS.mass_matrix_indefinite)


def test_several_ends_on_one_body():
    """Their columns add up; and kinds with equally many ends are one piece."""
    rng = np.random.default_rng(5)
    ends = [[0, 1], [2, 1], [0, 3]]
    piece, other = rng.standard_normal((3, 2, SIZE, 2)), rng.standard_normal((3, 1, SIZE, 2))

    @jax.jit
    def found(piece, other, x, y):
        J = mbd.solvers.BlockRows.merged([piece, other], 2 * [np.array(ends)], 3, SIZE)
        assert J.kinds == (((2, 2), (1, 2)),)
        return J.dense(), J @ x, y @ J

    expected = np.concatenate([dense_of(blocks, ends, 3) for blocks in (piece, other)])
    x, y = rng.standard_normal(18), rng.standard_normal(6)
    dense, times, transposed = found(piece, other, x, y)
    np.testing.assert_allclose(dense, expected, atol=1e-15)
    np.testing.assert_allclose(times, expected @ x, atol=1e-14)
    np.testing.assert_allclose(transposed, expected.T @ y, atol=1e-14)


def ends_of(elements):
    return (tuple(tuple(int(b) for b in end) for end in np.array(elements).T),)


def test_elimination_takes_linear_work():
    """Blocks that are made, per joint: the same for trees of any size; of chains in a logarithmic
    number of levels."""
    for make in (chain, random_tree):
        levels, work = [], []
        for n in (64, 1024):
            the = level_order(ends_of(make(n)), n, 1)
            levels.append(len(the.levels))
            work.append(sum(level.out.size for level in the.levels) / n)
        assert work[1] <= 1.1 * work[0]
        if make is chain:
            assert levels == [6, 10]


def test_trees_are_eliminated_without_fill():
    """From their leaves on: along a chain each joint has one neighbour, no pair of them."""
    the = node_order(ends_of(chain(50)), 50)
    assert the.out.shape == (50, 1) and the.pairs.shape == (50, 0)
    # All on one body wait for each other.
    assert node_order(ends_of(star(8)), 8).out.shape == (8, 7)


@pytest.mark.parametrize("n, count", [(30, 7), (500, 40)])  # of few, and of many
def test_smallest_of_many_and_back(n, count):
    x = np.random.default_rng(0).normal(size=n).round(1)  # some are equal
    rows = np.arange(3.0 * n).reshape(n, 3)
    rows[0, 0] = np.inf

    @jax.jit
    def found(x, rows):
        index = smallest_first(x, count)
        pulled = jax.grad(lambda rows: jnp.sum(take_rows(rows, index)[:, 1] ** 2))(rows)
        taken = take_rows(rows, index)
        there = put_rows(jnp.ones(count, bool), index, n)
        return index, taken, put_rows(taken, index, n), there, pulled

    index, taken, back, there, pulled = map(np.asarray, found(x, rows))
    np.testing.assert_array_equal(index, np.argsort(x, kind="stable")[:count])
    np.testing.assert_array_equal(taken, rows[index])
    expected = np.zeros((n, 3))
    expected[index] = rows[index]
    np.testing.assert_array_equal(back, expected)
    np.testing.assert_array_equal(np.flatnonzero(there), np.sort(index))
    np.testing.assert_array_equal(pulled[:, 1], 2 * expected[:, 1])
    x[n // 2] = np.nan
    assert np.asarray(found(x, rows)[0])[0] == n // 2


def test_choice_by_size_and_structure():
    choose = mbd.solvers.Automatic.choose
    small_loop = rows_of("one")[1]
    assert isinstance(choose(rows_of("tree")[1]), mbd.solvers.BlockSparse)
    assert isinstance(choose(rows_of("loop")[1]), mbd.solvers.BlockSparse)
    assert isinstance(choose(small_loop), mbd.Pseudoinverse)
    assert isinstance(choose(np.zeros((9, 20))), mbd.Pseudoinverse)
    assert isinstance(choose(np.zeros((10, 20))), mbd.solvers.Proximal)


def test_which_joints_close_loops():
    """Those with the fewest rows; and all of which nothing is known."""
    a, b = (mbd.Body(name, helpers.BOX, position=[x, 0, 0]) for name, x in (("a", 0.0), ("b", 1.0)))
    joints = [
        mbd.Revolute("0", "ground", a, point=[-0.5, 0, 0], axis=[0, 0, 1]),
        mbd.Spherical("1", a, b, point=[0.5, 0, 0]),
        mbd.Revolute("2", b, "ground", point=[1.5, 0, 0], axis=[0, 1, 0]),
    ]
    mechanism = mbd.Mechanism([a, b], joints)

    def shapes(q, v):
        J = point(mechanism, None, 0.0, q, v).rows.J
        return J, J.first(J.shape[0]), J.switched(jnp.ones(J.shape[0]))

    J, first, switched = jax.eval_shape(shapes, mechanism.state().q, np.zeros(12))
    rows = [rows for kinds in J.kinds for rows, elements in kinds for _ in range(elements)]
    assert [rows[i] for i in J.closing] == [3]
    assert first.closing == J.closing
    assert len(switched.closing) == J.elements


def test_mass_ratios_do_not_decide_what_is_exact():
    """Of the body at the end of a ring, which the regularised rows hold."""
    M, J, _, dense = rows_of("ring")
    rng, blocks = np.random.default_rng(0), np.array(M.blocks)
    f, r = rng.standard_normal(J.shape[1]), rng.standard_normal(J.shape[0])
    for ratio in (1.0, 2e5):
        blocks[..., 11] *= ratio
        whole = np.einsum("ijn,nm->injm", blocks, np.eye(12)).reshape(72, 72)
        K = np.block([[whole, -dense.T], [dense, np.zeros(2 * (len(dense),))]])
        expected = np.linalg.solve(K, np.concatenate([f, r]))[:72]
        M = mbd.solvers.BlockDiagonal(jax.device_put(blocks))
        (a, _), *_ = solved(mbd.solvers.BlockSparse(), M, J, f, r)
        np.testing.assert_allclose(a, expected, rtol=0, atol=2e-11 * np.max(np.abs(expected)))

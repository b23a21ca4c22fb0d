"""Block elimination against dense algebra, on trees, loops, redundant rows and mixed kinds."""

import functools
import itertools

import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd._enforcement.base import point
from jaxmbd._linalg import block_sparse
from jaxmbd._linalg.blocks import (
    accumulated,
    columns,
    padded_columns,
    put_rows,
    smallest_first,
    take_rows,
)
from jaxmbd._linalg.elimination import level_order, node_order

SIZE = 6


def chain(n):
    """One joint a body, to the one before; the first to the ground."""
    return [[(i - 1 if i else n, i) for i in range(n)]]


def random_tree(n, seed=0):
    rng = np.random.default_rng(seed)
    return [[(int(rng.integers(0, i)) if i else n, i) for i in range(n)]]


def star(n):
    return [[(0, i) for i in range(1, n)] + [(n, 0)]]


def two_kinds(n):
    """Joints of three rows and of one, some between the same bodies."""
    return [chain(n)[0], [(i, (i + 2) % n) for i in range(0, n, 3)]]


def ring(n):
    return [[*chain(n)[0], (n - 1, n)]]


# Number of bodies, elements, rows of each kind, and the elements that may be dependent.
GRAPHS = {
    "one": ((6, chain(1), (5,)), ()),
    "chain": ((4, chain(4), (5,)), ()),
    "long chain": ((23, chain(23), (5,)), ()),
    "tree": ((17, random_tree(17), (4,)), ()),
    "star": ((9, star(9), (3,)), ()),
    "two kinds": ((11, two_kinds(11), (3, 1)), None),
    "small loops": ((5, two_kinds(5), (3, 1)), None),
    "ring": ((12, ring(12), (4,)), None),
    "closed last": ((12, ring(12), (4,)), (12,)),
    "closed by short rows": ((11, two_kinds(11), (3, 1)), (11, 12, 13, 14)),
}


def rows_of(n, pieces, rows, *, closing=None, seed=0, rank=None):
    """Random M and J with that structure. With `rank` each element's rows span so much only."""
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((SIZE, SIZE, n))
    M = np.einsum("ikn,jkn->ijn", B, B) + SIZE * np.eye(SIZE)[:, :, None]
    blocks, ends = [], []
    for elements, r in zip(pieces, rows, strict=True):
        if rank is None:
            piece = rng.standard_normal((2, r, SIZE, len(elements)))
        else:
            mixed = rng.standard_normal((r, rank))
            piece = np.einsum(
                "rk,eksn->ersn", mixed, rng.standard_normal((2, rank, SIZE, len(elements)))
            )
        blocks.append(jnp.asarray(piece))
        ends.append(np.array(elements).T)
    J = mbd.solvers.BlockRows.merged(blocks, ends, n, SIZE, closing)
    return mbd.solvers.BlockDiagonal(jnp.asarray(M)), J


@jax.jit
def dense_of(*structured):
    return [x.dense() for x in structured]


def reference(M, J, f, r, E):
    M, J = map(np.asarray, dense_of(M, J))
    G = J @ np.linalg.solve(M, J.T) + np.diag(E)
    lam = np.linalg.pinv(G, rcond=1e-11) @ (r - J @ np.linalg.solve(M, f))
    return np.linalg.solve(M, f + J.T @ lam), lam


@eqx.filter_jit
def solved(solver, M, J, f, r):
    """a and lam, what of r nothing reaches, and the verdicts; one program."""
    operator = mbd.solvers.ConstraintOperator(solver, M, J)
    return operator.solve(f, r), operator.null(r), operator.dependent(), operator.result()


ORDERS = ["in turn", "levels"]


@pytest.fixture(params=ORDERS)
def order(request, monkeypatch):
    """As CPUs eliminate, and as GPUs do. What was traced for one must not serve the other."""
    monkeypatch.setattr(block_sparse, "loops_cost_nothing", lambda: request.param == "in turn")
    with helpers.nothing_kept():
        yield


# With few dense rows nearly all are eliminated. Each graph with both, and with both orders, of
# which one is rigid and one compliant: what compliance adds to a block is the same in all.
KINDS_OF_SOLVES = [
    (graph, (i + j) % 2 == (dense_rows == 25), dense_rows, order)
    for i, graph in enumerate(GRAPHS)
    for dense_rows in (25, 1)
    for j, order in enumerate(ORDERS)
]


@pytest.mark.parametrize(
    "graph, compliant, dense_rows, order",
    helpers.slow_unless(
        lambda graph, compliant, dense_rows, order: (
            graph not in ("two kinds", "ring") and dense_rows == 25
        ),
        KINDS_OF_SOLVES,
    ),
    indirect=["order"],
)
def test_solves(graph, compliant, dense_rows, order):
    (n, pieces, rows), closing = GRAPHS[graph]
    M, J = rows_of(n, pieces, rows, closing=closing)
    rng = np.random.default_rng(1)
    f, r = rng.standard_normal(J.shape[1]), rng.standard_normal(J.shape[0])
    E = rng.uniform(0.1, 1, J.shape[0]) if compliant else np.zeros(J.shape[0])

    @jax.jit
    def solve(M, J, E, f, r):
        solver = mbd.BlockSparse(dense_rows=dense_rows)
        operator = mbd.solvers.ConstraintOperator(solver, M, J, E if compliant else None)
        return operator.solve(f, r), operator.free(f), operator.result()

    (a, lam), free, result = solve(M, J, jnp.asarray(E), jnp.asarray(f), jnp.asarray(r))
    expected, multipliers = reference(M, J, f, r, E)
    np.testing.assert_allclose(a, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(lam, multipliers, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(free, np.linalg.solve(*dense_of(M), f), rtol=1e-10, atol=1e-10)
    assert result == mbd.RESULTS.successful


@pytest.mark.parametrize("graph", ["long chain", "star", "ring", "closed last"])
def test_mobility(graph):
    """Powers of forces in each other, at the accelerations that solves give."""
    (n, pieces, rows), closing = GRAPHS[graph]
    M, J = rows_of(n, pieces, rows, closing=closing)
    rng = np.random.default_rng(1)
    forces, E = rng.standard_normal((7, J.shape[1])), rng.uniform(0.1, 1, J.shape[0])

    @jax.jit
    def powers(M, J, E, forces):
        return mbd.solvers.ConstraintOperator(mbd.Automatic(), M, J, E).mobility(forces)

    found = powers(M, J, jnp.asarray(E), jnp.asarray(forces))
    assert (found is None) == (graph == "ring")
    if found is not None:
        rest = np.zeros(J.shape[0])
        expected = [forces @ reference(M, J, f, rest, E)[0] for f in forces]
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "graph", [pytest.param("tree", marks=pytest.mark.slow), "ring", "closed last"]
)
def test_batches(graph):
    """Of batches within batches each sample is solved as it is alone, without a scatter."""
    (n, pieces, rows), closing = GRAPHS[graph]
    samples = [rows_of(n, pieces, rows, closing=closing, seed=i) for i in range(6)]
    M, J = jax.tree.map(lambda *x: jnp.stack(x).reshape(3, 2, *x[0].shape), *samples)
    r = jnp.asarray(
        np.random.default_rng(1).standard_normal(
            J.pieces[0].shape[:2] + (sum(r * len(e) for r, e in zip(rows, pieces, strict=True)),)
        )
    )

    def solve(M, J, r):
        operator = mbd.solvers.ConstraintOperator(mbd.BlockSparse(dense_rows=8), M, J)
        return operator.solve(jnp.zeros(SIZE * n), r)

    batched = jax.jit(jax.vmap(jax.vmap(solve))).lower(M, J, r)
    found = batched.compile()(M, J, r)
    for i, (M, J) in enumerate(samples):
        expected = jax.jit(solve)(M, J, r[i // 2, i % 2])
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x[i // 2, i % 2], y, rtol=1e-9, atol=1e-9)
    # Sums over all samples may be a library's.
    assert helpers.in_the_way(batched).keys() <= {"kCustom", "while"}


@pytest.mark.parametrize("dense_rows", [pytest.param(8, marks=pytest.mark.slow), 100])
@pytest.mark.parametrize("consistent", [True, False])
def test_redundant_rows(consistent, dense_rows):
    """The solution of least norm, and what the rows cannot satisfy, as of the pseudoinverse; by
    elimination, and with nothing eliminated."""
    M, J = rows_of(7, ring(7), (4,), rank=3)
    rng = np.random.default_rng(2)
    f = rng.standard_normal(J.shape[1])
    (dense,) = map(np.asarray, dense_of(J))
    r = dense @ rng.standard_normal(J.shape[1])
    r = r if consistent else r + rng.standard_normal(J.shape[0])
    solver = mbd.BlockSparse(dense_rows=dense_rows)
    (a, lam), null, dependent, _ = solved(solver, M, J, jnp.asarray(f), jnp.asarray(r))
    expected, multipliers = reference(M, J, f, r, np.zeros(J.shape[0]))
    np.testing.assert_allclose(a, expected, rtol=1e-8, atol=1e-8)
    # The regularised factor magnifies what cannot be satisfied, and its rounding, by 1 / rho = 1e8
    # before it is taken out.
    tolerance = 1e-9 if consistent else 1e-5
    np.testing.assert_allclose(lam, multipliers, rtol=tolerance, atol=tolerance)
    unreachable = r - dense @ np.linalg.lstsq(dense, r, rcond=1e-10)[0]
    assert dependent
    np.testing.assert_allclose(null, unreachable, atol=tolerance)


def four_bars(arms):
    """Cranks that couplers keep parallel: the rows of each four-bar have three redundant ones."""
    inertia = mbd.Inertia.box(size=[0.3, 0.05, 0.05], mass=0.7)
    feet = [np.array([0.4 * i, 0.0, 0.0]) for i in range(arms)]
    heads = [foot + [0.1, 0.3, 0.0] for foot in feet]
    places = [*zip(feet, heads, strict=True), *itertools.pairwise(heads)]
    bodies = [
        mbd.Body(f"bar {i}", inertia, position=(a + b) / 2) for i, (a, b) in enumerate(places)
    ]
    pairs = [("ground", bodies[i], feet[i]) for i in range(arms)]
    for i, bar in enumerate(bodies[arms:]):
        pairs += [(bodies[i], bar, heads[i]), (bar, bodies[i + 1], heads[i + 1])]
    joints = [
        mbd.Revolute(f"hinge {i}", *pair, point=point, axis=[0.0, 0.0, 1.0])
        for i, (*pair, point) in enumerate(pairs)
    ]
    return mbd.Mechanism(bodies, joints)


# Where nothing is eliminated, with 25 rows, the order matters little.
LOOPS = list(itertools.product((2, 3), (1, 25), ORDERS))


@pytest.mark.parametrize(
    "arms, dense_rows, order",
    helpers.slow_unless(
        lambda arms, dense_rows, order: arms == 2 and (dense_rows, order) != (25, "levels"), LOOPS
    ),
    indirect=["order"],
)
def test_redundant_loops(arms, dense_rows, order):
    """As the pseudoinverse: redundant rows of hinges, with right sides that they can satisfy and
    that they cannot."""
    mechanism = four_bars(arms)
    state = mechanism.state()
    here = jax.jit(lambda q, v: point(mechanism, None, 0.0, q, v))(state.q, state.v)
    M, J = here.M, here.rows.J
    assert len(J.closing) == arms - 1
    rng = np.random.default_rng(6)
    (dense,) = map(np.asarray, dense_of(J))
    assert np.linalg.matrix_rank(dense) == J.shape[0] - 3 * (arms - 1)
    f, x = rng.standard_normal((2, J.shape[1]))
    solver = mbd.BlockSparse(dense_rows=dense_rows)
    for r, tolerance in (
        (dense @ x, 1e-9),
        (dense @ x + rng.standard_normal(J.shape[0]), 1e-5),
    ):
        (a, lam), null, dependent, result = solved(solver, M, J, jnp.asarray(f), jnp.asarray(r))
        expected, multipliers = reference(M, J, f, r, np.zeros(J.shape[0]))
        assert dependent and result == mbd.RESULTS.successful
        np.testing.assert_allclose(a, expected, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(lam, multipliers, rtol=tolerance, atol=tolerance)
        unreachable = r - dense @ np.linalg.lstsq(dense, r, rcond=1e-10)[0]
        np.testing.assert_allclose(null, unreachable, atol=tolerance)
    forces = rng.standard_normal((4, J.shape[1]))
    powers = eqx.filter_jit(
        lambda *x: mbd.solvers.ConstraintOperator(solver, *x[:2]).mobility(x[2])
    )
    found = powers(M, J, jnp.asarray(forces))
    assert (found is None) == (dense_rows == 1 or not block_sparse.loops_cost_nothing())
    if found is not None:
        at_rest = np.zeros(J.shape[0])
        expected = [forces @ reference(M, J, f, at_rest, at_rest)[0] for f in forces]
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_which_joints_close_loops():
    """Those with the fewest rows; and all of which nothing is known."""
    mechanism = spatial_slider_crank(1.0)
    state = mechanism.state()
    J = jax.jit(lambda q, v: mechanism.linearised(0.0, q, v))(state.q, state.v).J
    rows = [rows for kinds in J.kinds for rows, elements in kinds for _ in range(elements)]
    assert [rows[i] for i in J.closing] == [3]
    assert J.first(J.shape[0]).closing == J.closing
    assert len(J.switched(jnp.ones(J.shape[0])).closing) == J.elements


def test_dense_matrices():
    """As one block."""
    M, J = rows_of(2, chain(2), (5,), closing=())
    rng = np.random.default_rng(8)
    f, r = rng.standard_normal(J.shape[1]), rng.standard_normal(J.shape[0])
    M, J = map(np.asarray, dense_of(M, J))
    (a, lam), _, _, result = solved(mbd.BlockSparse(), *map(jnp.asarray, (M, J, f, r)))
    np.testing.assert_allclose(M @ a, f + J.T @ lam, atol=1e-9)
    np.testing.assert_allclose(J @ a, r, atol=1e-9)
    assert result == mbd.RESULTS.successful


def test_dependent_rows_in_a_tree_are_reported():
    M, J = rows_of(4, chain(4), (4,), closing=(), rank=3)
    operator = eqx.filter_jit(mbd.solvers.ConstraintOperator)(mbd.BlockSparse(), M, J)
    assert operator.result() == mbd.RESULTS.singular_constraints


def test_indefinite_mass_is_reported():
    M, J = rows_of(4, chain(4), (3,), closing=())
    M = mbd.solvers.BlockDiagonal(M.blocks.at[2, 2, 1].multiply(-1))
    operator = eqx.filter_jit(mbd.solvers.ConstraintOperator)(mbd.BlockSparse(), M, J)
    assert operator.result() == mbd.RESULTS.mass_matrix_indefinite


@pytest.mark.parametrize(
    "graph, mode",
    [
        pytest.param("tree", jax.jacfwd, marks=pytest.mark.slow),
        ("tree", jax.jacrev),
        ("closed last", jax.jacrev),
        pytest.param("closed last", jax.jacfwd, marks=pytest.mark.slow),
        pytest.param("two kinds", jax.jacfwd, marks=pytest.mark.slow),
        pytest.param("two kinds", jax.jacrev, marks=pytest.mark.slow),
    ],
)
def test_derivatives(graph, mode):
    """Of the solution along a change of M, J, f and r, against those of dense algebra."""
    (n, pieces, rows), closing = GRAPHS[graph]
    M, J = rows_of(n, pieces, rows, closing=closing)
    dM, dJ = rows_of(n, pieces, rows, closing=closing, seed=3)
    rng = np.random.default_rng(4)
    f, df = rng.standard_normal((2, J.shape[1]))
    r, dr = rng.standard_normal((2, J.shape[0]))

    def moved(x, dx, s):
        return jax.tree.map(lambda x, dx: x + s * dx, x, dx)

    def sparse(s):
        operator = mbd.solvers.ConstraintOperator(
            mbd.BlockSparse(dense_rows=9), moved(M, dM, s), moved(J, dJ, s)
        )
        return jnp.concatenate(operator.solve(f + s * df, r + s * dr))

    def dense(s):
        Ms, Js = moved(M, dM, s).dense(), moved(J, dJ, s).dense()
        zeros = jnp.zeros((Js.shape[0],) * 2)
        K = jnp.block([[Ms, -Js.T], [Js, zeros]])
        return jnp.linalg.solve(K, jnp.concatenate([f + s * df, r + s * dr]))

    found = jax.jit(mode(sparse))(0.0)
    np.testing.assert_allclose(found, jax.jit(jax.jacfwd(dense))(0.0), rtol=1e-8, atol=1e-8)


def test_several_ends_on_one_body():
    """Their columns add up."""
    rng = np.random.default_rng(5)
    piece = jnp.asarray(rng.standard_normal((3, 2, SIZE, 2)))
    J = mbd.solvers.BlockRows.merged([piece], [np.array([[0, 1], [2, 1], [0, 3]])], 3, SIZE)
    expected = np.zeros((2, 2, SIZE, 4))
    for end, bodies in enumerate([[0, 1], [2, 1], [0, 3]]):
        for element, body in enumerate(bodies):
            expected[:, element, :, body] += piece[end, :, :, element]
    expected = expected[..., :3].reshape(4, 18)
    np.testing.assert_allclose(J.dense(), expected, atol=1e-15)
    x, y = rng.standard_normal(18), rng.standard_normal(4)
    np.testing.assert_allclose(J @ jnp.asarray(x), expected @ x, atol=1e-14)
    np.testing.assert_allclose(jnp.asarray(y) @ J, expected.T @ y, atol=1e-14)


def test_elimination_takes_linear_work():
    """Blocks that are made, per joint: the same for trees of any size; of chains in a logarithmic
    number of levels."""
    for make in (chain, random_tree):
        levels, work = [], []
        for n in (64, 1024):
            (elements,) = make(n)
            ends = (tuple(tuple(int(b) for b in end) for end in np.array(elements).T),)
            the = level_order(ends, n, 1)
            levels.append(len(the.levels))
            work.append(sum(level.out.size for level in the.levels) / n)
        assert work[1] <= 1.1 * work[0]
        if make is chain:
            assert levels == [6, 10]


def test_trees_are_eliminated_without_fill():
    """From their leaves on: along a chain each joint has one neighbour, no pair of them."""
    (elements,) = chain(50)
    ends = (tuple(tuple(int(b) for b in end) for end in np.array(elements).T),)
    the = node_order(ends, 50)
    assert the.out.shape == (50, 1) and the.pairs.shape == (50, 0)
    (elements,) = star(8)
    ends = (tuple(tuple(int(b) for b in end) for end in np.array(elements).T),)
    assert node_order(ends, 8).out.shape == (8, 7)  # all on one body wait for each other


INDICES = [[0], [3, 4, 5], [0, 2, 4], [5, 0, 1, 2], [4, 3, 2, 1, 0, 5, 1], [2, 2, 2, 2, 2, 2]]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_columns(index):
    table, index = jnp.arange(12.0).reshape(2, 6), np.array(index)
    np.testing.assert_array_equal(columns(table, index), np.asarray(table)[:, index])
    beyond = np.concatenate([[6], index, [7]])
    padded = np.concatenate([np.asarray(table), np.zeros((2, 2))], axis=1)
    np.testing.assert_array_equal(padded_columns(table, beyond), padded[:, beyond])
    values = jnp.arange(2.0 * len(index)).reshape(2, -1) + 1
    expected = np.array(table)
    np.add.at(expected, (slice(None), index), values)
    found = accumulated(table, index, values)
    # The last column is the ground, of which nobody reads.
    np.testing.assert_allclose(found[:, :-1], expected[:, :-1])


@pytest.mark.parametrize("n, count", [(30, 7), (500, 40)])  # of few, and of many
def test_smallest_of_many_and_back(n, count):
    x = np.random.default_rng(0).normal(size=n).round(1)  # some are equal
    index = smallest_first(jnp.asarray(x), count)
    np.testing.assert_array_equal(index, np.argsort(x, kind="stable")[:count])
    missing = jnp.asarray(x).at[n // 2].set(jnp.nan)
    assert smallest_first(missing, count)[0] == n // 2
    rows = jnp.arange(3.0 * n).reshape(n, 3).at[0, 0].set(jnp.inf)
    np.testing.assert_array_equal(take_rows(rows, index), np.asarray(rows)[index])
    back = np.zeros((n, 3))
    back[index] = np.asarray(rows)[index]
    np.testing.assert_array_equal(put_rows(take_rows(rows, index), index, n), back)
    there = put_rows(jnp.ones(count, bool), index, n)
    np.testing.assert_array_equal(np.flatnonzero(there), np.sort(index))
    pulled = jax.jit(jax.grad(lambda rows: jnp.sum(take_rows(rows, index)[:, 1] ** 2)))(rows)
    np.testing.assert_array_equal(pulled[:, 1], 2 * back[:, 1])


def test_choice_by_size_and_structure():
    choose = mbd.Automatic.choose
    (n, pieces, rows), _ = GRAPHS["chain"]
    _, tree = rows_of(n, pieces, rows, closing=())
    _, loop = rows_of(n, pieces, rows)
    _, small_loop = rows_of(1, chain(1), (3,))
    assert isinstance(choose(tree), mbd.BlockSparse)
    assert isinstance(choose(loop), mbd.BlockSparse)
    assert isinstance(choose(small_loop), mbd.Pseudoinverse)
    assert isinstance(choose(jnp.zeros((9, 20))), mbd.Pseudoinverse)
    assert isinstance(choose(jnp.zeros((10, 20))), mbd.Proximal)


@pytest.mark.parametrize("argument, value", [("rho", -1.0), ("refinements", 0), ("dense_rows", 0)])
def test_bad_input(argument, value):
    with pytest.raises(ValueError, match=f"`{argument}` of BlockSparse must be"):
        mbd.BlockSparse(**{argument: value})


# --- mass ratios ---------------------------------------------------------------------------------


def spatial_slider_crank(mass):
    """Seventeen independent rows for 18 velocities."""
    support, pin, slide = jnp.array([[0, 0, 0.2], [0, 0.05, 0.34], [0.45, -0.1, 0]])
    crank = mbd.Body(
        "crank", mbd.Inertia.box(size=[0.03, 0.03, 0.15], mass=0.3), position=(support + pin) / 2
    )
    rod = mbd.Body(
        "rod", mbd.Inertia.box(size=[0.5, 0.02, 0.02], mass=0.4), position=(pin + slide) / 2
    )
    slider = mbd.Body("slider", mbd.Inertia.box(size=[0.1, 0.1, 0.1], mass=mass), position=slide)
    joints = [
        mbd.Revolute("bearing", "ground", crank, point=support, axis=[1.0, 0, 0]),
        mbd.Spherical("ball", crank, rod, point=pin),
        mbd.Universal("cross", rod, slider, point=slide, axes=([0, 0, 1.0], [0, 1.0, 0])),
        mbd.Prismatic("guide", "ground", slider, point=slide, axis=[1.0, 0, 0]),
    ]
    return mbd.Mechanism([crank, rod, slider], joints)


@functools.cache
def slide(solver):
    """The acceleration on the rows, and its derivative with respect to the mass of the slider."""

    def acceleration(mass, v):
        mechanism = spatial_slider_crank(mass)
        q = mechanism.state().q
        here = point(mechanism, None, jnp.zeros(()), q, v)
        v, _ = here.operator(mbd.Cholesky()).correct(here.rows.velocity, v)
        here = point(mechanism, None, jnp.zeros(()), q, here.v - v)
        return here.operator(solver).solve(here.f, here.rows.gamma)[0]

    return jax.jit(lambda mass, v: jax.jvp(lambda m: acceleration(m, v), (mass,), (jnp.ones(()),)))


@pytest.mark.parametrize(
    "solver", [mbd.BlockSparse(), pytest.param(mbd.Proximal(), marks=pytest.mark.slow)], ids=str
)
def test_mass_ratios_do_not_decide_what_is_exact(solver):
    v = jnp.asarray(np.random.default_rng(0).standard_normal(18))
    for mass in (1.0, 2e5):
        expected = slide(mbd.Cholesky())(jnp.array(mass), v)
        for x, y in zip(slide(solver)(jnp.array(mass), v), expected):
            np.testing.assert_allclose(x, y, rtol=0, atol=2e-11 * np.max(np.abs(y)))


@pytest.mark.slow
def test_mass_ratios_through_a_simulation():
    """The motion, its derivative with respect to the mass of the slider, and |Phi|, of which the
    heavier slider has no more."""
    start = spatial_slider_crank(1.0)
    q, v = start.state().q, jnp.asarray(np.random.default_rng(0).standard_normal(18))
    here = point(start, None, jnp.zeros(()), q, v)
    v = v - here.operator(mbd.Cholesky()).correct(here.rows.velocity, v)[0]

    def moved(enforcement):
        def end(mass):
            sol = mbd.simulate(
                spatial_slider_crank(mass),
                enforcement,
                mbd.State(0.0, q, v),
                dt=1e-3,
                num_steps=100,
            )
            return jnp.concatenate([sol.q[-1], sol.v[-1]]), sol.phi_norm[-1]

        return jax.jit(lambda m: jax.jvp(end, (m,), (jnp.ones(()),), has_aux=True))

    default, exact = moved(mbd.UdwadiaKalaba()), moved(mbd.UdwadiaKalaba(mbd.Cholesky()))
    for mass in (1.0, 2e5):
        x, dx, phi = default(jnp.array(mass))
        y, dy, phi_exact = exact(jnp.array(mass))
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-11)
        np.testing.assert_allclose(dx, dy, rtol=0, atol=1e-9 * np.max(np.abs(dy)))
        np.testing.assert_allclose(phi, phi_exact, rtol=1e-6, atol=1e-14)
        assert phi < 1e-14

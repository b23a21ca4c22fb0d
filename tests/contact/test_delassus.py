"""The forms of the Delassus operator of contacts, against NumPy."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import jaxmbd as mbd
from jaxmbd._contact.delassus import (
    DenseDelassus,
    FactoredDelassus,
    GroupInverse,
)
from jaxmbd._contact.problem import ContactProblem, Groups
from jaxmbd._contact.rows import BodyContactJacobian, DenseContactJacobian
from jaxmbd._contact.sparse_delassus import HeldRows, SparseDelassus
from jaxmbd._linalg import ConstraintOperator, sparse_lu
from jaxmbd._methods.point import point

COUNT, D, BODIES = 7, 3, 2
N = COUNT * D
COMPLIANCE = 0.2


def random(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


BLOCKS, WHITENER = random(1, 2, COUNT, D, 6), random(2, 6, 6, BODIES)
# Among the contacts of bodies are some with the ground, and one with both ends on a body.
ENDS = np.array([[0, 1, 2, 2, 1, 0, 0], [1, 0, 0, 1, 1, 2, 1]])


@eqx.filter_jit
def jacobian(kind):
    """Scaled as in a problem, with diagonals of about 1; and as a matrix."""
    if kind == "dense":
        Y = DenseContactJacobian(jnp.asarray(random(0, COUNT, D, 6 * BODIES)))
    else:
        J = BodyContactJacobian(jnp.asarray(BLOCKS), jnp.asarray(ENDS), BODIES)
        Y = J.whitened(jnp.asarray(WHITENER))
    size = jnp.sqrt(jnp.trace(Y.squares(), axis1=1, axis2=2) / D)
    Y = Y.scaled(jnp.broadcast_to(1 / size[:, None], (COUNT, D)))
    return Y, jax.vmap(Y.rows)(jnp.eye(6 * BODIES)).reshape(6 * BODIES, -1).T, Y.products()


def forms(kind):
    """S as a product, of sparse factors too, and as a matrix; its rank is 12 of 21 but for what
    `own` adds."""
    Y, matrix, _ = jacobian(kind)
    matrix = np.asarray(matrix) @ np.asarray(matrix).T
    none = jax.device_put(np.zeros((COUNT, D, D)))
    found = [
        FactoredDelassus(Y, none),
        DenseDelassus(jax.device_put(matrix.reshape(none.shape[:2] * 2))),
    ]
    if kind == "bodies":
        found.append(eqx.filter_jit(SparseDelassus.of)(Y, ones(BODIES)))
    return *found, matrix


def ones(bodies):
    """The whitener of bodies whose coordinates are white."""
    return np.broadcast_to(np.eye(6)[:, :, None], (6, 6, bodies))


def blocks_of(seed, scale=1.0):
    return scale * np.random.default_rng(seed).standard_normal((COUNT, D, D))


def block_matrix(blocks):
    matrix = np.zeros((COUNT, D, COUNT, D))
    matrix[np.arange(COUNT), :, np.arange(COUNT)] = blocks
    return matrix.reshape(N, N)


def test_whitened_rows():
    """J W^T, with the ground at rest, in proportion to its rows."""
    whole = np.zeros((COUNT, D, 6, BODIES + 1))
    for end in (0, 1):
        for k, body in enumerate(ENDS[end]):
            whole[k, :, :, body] += BLOCKS[end, k]
    whole = np.einsum("cdin,jin->cdjn", whole[..., :BODIES], WHITENER).reshape(COUNT, D, -1)
    whole /= np.sqrt(np.mean(np.sum(whole**2, axis=2), axis=1))[:, None, None]
    matrix, products = map(np.asarray, jacobian("bodies")[1:])
    np.testing.assert_allclose(matrix, whole.reshape(N, -1), rtol=1e-10, atol=1e-12)
    # Contacts of the same bodies share products.
    np.testing.assert_allclose(products.reshape(N, N), matrix @ matrix.T, atol=1e-12)


@pytest.mark.parametrize("kind", ["bodies", "dense"])
def test_products(kind):
    *both, matrix = forms(kind)
    lam, own, factors = blocks_of(4)[:, 0], blocks_of(5), blocks_of(6)[:, 0]
    change = np.arange(1.0, 4.0)

    @jax.jit
    def found(S, lam, own, factors, change):
        S = S.plus(own).scaled(factors)
        row = S.row(jnp.asarray(5), S.moved(S.sums(lam), jnp.asarray(3), change), lam[5])
        return S.times(lam), S.blocks(), S.magnitude(lam), row

    expected = (block_matrix(own) + matrix) * np.outer(factors, factors)
    for S in both:
        times, blocks, magnitude, row = found(S, lam, own, factors, change)
        z = (expected @ lam.ravel()).reshape(COUNT, D)
        np.testing.assert_allclose(times, z, rtol=1e-12)
        np.testing.assert_allclose(
            block_matrix(blocks), expected * (block_matrix(np.ones((COUNT, D, D))) > 0)
        )
        least = (np.abs(expected) @ np.abs(lam.ravel())).reshape(COUNT, D)
        np.testing.assert_array_less(least * (1 - 1e-12), magnitude)
        moved = lam.copy()
        moved[3] += change
        np.testing.assert_allclose(row, (expected @ moved.ravel()).reshape(COUNT, D)[5], rtol=1e-12)


def test_solutions():
    """Of regular systems. Of redundant contacts that stick, C = 0 and P = 1, H = S of rank 12 of
    21, and of others that slip, separate and stick: by the pseudoinverse."""
    *both, matrix = forms("bodies")
    eye, own, r = np.eye(D), blocks_of(9), blocks_of(10)[:, 0]
    slip = np.array([[1.0, 0.0, 0.0], [-0.5, 0.3, 0.1], [0.2, 0.1, 0.6]])
    mixed = np.stack([eye, slip, 0 * eye, slip, 0 * eye, 0 * eye, 0 * eye])
    stick = np.broadcast_to(eye, (COUNT, D, D))

    @jax.jit
    def regular(S, C, P, own, r):
        S = S.plus(own)
        # After an elimination in which other contacts act, whose order and factors must not stay.
        _, memory = S.factorise(C, P.at[::2].set(0.0), S.memory())
        factor, _ = S.factorise(C, P, memory)
        return S.solve(factor, P, r), S.solve_transposed(factor, P, r)

    @jax.jit
    def singular(S, C, P, r):
        inverse = GroupInverse(S, C, P)
        return inverse.solve(r), inverse.solve_transposed(r)

    for S in both:
        C, P = 3 * eye[None] + blocks_of(7, 0.3), blocks_of(8)
        H = block_matrix(C) + block_matrix(P) @ (matrix + block_matrix(own))
        for x, A in zip(regular(S, C, P, own, r), (H, H.T), strict=True):
            expected = np.linalg.solve(A, r.ravel()).reshape(COUNT, D)
            np.testing.assert_allclose(x, expected, rtol=1e-9, atol=1e-10)
        for P in (stick, mixed):
            H = block_matrix(eye[None] - P) + block_matrix(P) @ matrix
            for x, A in zip(singular(S, eye[None] - P, P, r), (H, H.T), strict=True):
                expected = (np.linalg.pinv(A, rcond=1e-9) @ r.ravel()).reshape(COUNT, D)
                np.testing.assert_allclose(x, expected, rtol=1e-7, atol=1e-7)


@pytest.mark.slow
def test_an_elimination_without_room_is_told(monkeypatch):
    """Three bodies that touch each other, with room for one edge less: neither impulses nor
    derivatives may come from wrong factors."""
    triangle = np.array([[0, 1, 2], [1, 2, 0]])
    b = np.full((3, D), -0.5)

    @eqx.filter_jit
    def found(blocks, b):
        Y = BodyContactJacobian(blocks, jnp.asarray(triangle), 3)
        S = SparseDelassus.of(Y, jnp.asarray(ones(3)))
        groups = Groups((2,), (mbd.contacts.Cone(),))
        problem = ContactProblem.scaled(S, b, jnp.full((3, 1), 0.5), groups, None)
        solved = mbd.solvers.InteriorPoint(restarts=2).solve(problem, jnp.zeros_like(b))
        stick = jnp.broadcast_to(jnp.eye(D), (3, D, D))
        inverse = GroupInverse(problem.S, 0 * stick, stick)
        return solved, inverse.exists, inverse.solve(b)

    given = jax.device_put((random(30, 2, 3, D, 6), b))
    solved, exists, x = found(*given)
    assert solved.accepted and exists
    assert np.all(np.isfinite(x))
    monkeypatch.setattr(sparse_lu, "_EDGES", 0)
    jax.clear_caches()
    solved, exists, x = found(*given)
    assert not solved.accepted and not exists
    assert np.all(np.isfinite(solved.impulses))
    assert np.all(np.isnan(x))


@pytest.mark.parametrize("closed", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_joints_and_contacts_in_one_graph(closed):
    """A chain in a closed loop, with redundant rows in a singular pose, or open, with compliant
    rows. A row is switched off, and there are contacts between links and the ground: J A J^T with
    the accelerations A f that keep the rows, from M and the rows alone."""
    inertia = mbd.Inertia.box(size=[0.3, 0.1, 0.2], mass=1.0)
    bodies = [mbd.Body(f"{i}", inertia, position=[0.3 * i, 0.1 * i**2, 0.0]) for i in range(5)]
    pairs = [*itertools.pairwise(bodies), *([(bodies[0], bodies[-1])] * closed)]
    joints = [
        mbd.Revolute(f"{i}", *pair, point=[0.3 * i + 0.1, 0.0, 0.1], axis=[0.0, 0.0, 1.0])
        for i, pair in enumerate(pairs)
    ]
    mechanism = mbd.Mechanism(bodies, joints)
    state, count = mechanism.state(), 4
    blocks = random(20, 2, count, D, 6)
    ends = np.array([[5, 0, 1, 5], [0, 3, 4, 2]])
    P = np.eye(D) + 0.2 * random(21, count, D, D)

    @eqx.filter_jit
    def found(state, blocks, r):
        here = point(mechanism, None, state.t, state.q, state.v)
        G = here.rows.J.switched(jnp.ones(here.rows.J.shape[0]).at[2].set(0.0))
        E = None if closed else jnp.full(here.rows.J.shape[0], COMPLIANCE)
        operator = ConstraintOperator(mbd.solvers.BlockSparse(), here.M, G, E)
        J = BodyContactJacobian(blocks, jnp.asarray(ends), 5)
        rows = operator.whitened()
        S = SparseDelassus.of(J, rows.root.whitener(), HeldRows(operator, J, rows))
        S = S.scaled(jnp.full(r.shape, 0.5))
        inverse = GroupInverse(S, jnp.broadcast_to(jnp.eye(D), P.shape), jnp.asarray(P))
        both = inverse.solve(r), inverse.solve_transposed(r)
        return here.dense(), J.matrix(), S.times(r), S.blocks(), *both

    r = random(22, count, D)
    here, J, times, own, x, z = found(state, jax.device_put(blocks), jax.device_put(r))
    M, J, rows = np.asarray(here.M), 0.5 * np.asarray(J), np.array(here.rows.J)
    assert (len(rows), np.linalg.matrix_rank(rows)) == ((25, 21) if closed else (20, 20))
    rows[2] = 0.0
    mobility = np.linalg.inv(M)
    G = rows @ mobility @ rows.T + (0.0 if closed else COMPLIANCE) * np.eye(len(rows))
    held = rows.T @ np.linalg.pinv(G, rcond=1e-10) @ rows
    matrix = J @ (mobility - mobility @ held @ mobility) @ J.T
    np.testing.assert_allclose(np.ravel(times), matrix @ r.ravel(), atol=1e-9)
    kept = scipy.linalg.block_diag(*np.ones((count, D, D))) > 0
    np.testing.assert_allclose(scipy.linalg.block_diag(*own)[kept], matrix[kept], atol=1e-9)
    H = np.eye(count * D) + scipy.linalg.block_diag(*P) @ matrix
    np.testing.assert_allclose(np.ravel(x), np.linalg.solve(H, r.ravel()), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(np.ravel(z), np.linalg.solve(H.T, r.ravel()), rtol=1e-7, atol=1e-9)

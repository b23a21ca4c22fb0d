"""The two forms of the Delassus operator of contacts, against NumPy."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from jaxmbd._contact.delassus import DenseDelassus, FactoredDelassus, GroupInverse
from jaxmbd._contact.rows import BodyContactJacobian, DenseContactJacobian

COUNT, D, BODIES = 7, 3, 2
N = COUNT * D


def dense_rows(J):
    """J as a matrix, by its products."""
    return np.stack([J.rows(e).ravel() for e in jnp.eye(6 * BODIES)], axis=1)


def jacobian(kind):
    """Among the contacts of bodies are some with the ground, and one with both ends on a body."""
    if kind == "dense":
        return DenseContactJacobian(jr.normal(jr.key(0), (COUNT, D, 6 * BODIES)))
    blocks = jr.normal(jr.key(1), (2, COUNT, D, 6))
    bodies = jnp.array([[0, 1, 2, 2, 1, 0, 0], [1, 0, 0, 1, 1, 2, 1]])
    return BodyContactJacobian(blocks, bodies, BODIES).whitened(jr.normal(jr.key(2), (6, 6, 2)))


@pytest.fixture(params=["dense", "bodies"])
def forms(request):
    """S as a product and as a matrix; its rank is 12 of 21 but for what `own` adds."""
    Y = jacobian(request.param)
    # As in a problem: with diagonals of about 1.
    size = jnp.sqrt(jnp.trace(Y.squares(), axis1=1, axis2=2) / D)
    Y = Y.scaled(jnp.broadcast_to(1 / size[:, None], (COUNT, D)))
    matrix = dense_rows(Y) @ dense_rows(Y).T
    product = FactoredDelassus(Y, jnp.zeros((COUNT, D, D)))
    return product, DenseDelassus(jnp.asarray(matrix).reshape(COUNT, D, COUNT, D)), matrix


def blocks_of(key, scale=1.0):
    return scale * jr.normal(jr.key(key), (COUNT, D, D))


def block_matrix(blocks):
    matrix = np.zeros((COUNT, D, COUNT, D))
    matrix[np.arange(COUNT), :, np.arange(COUNT)] = blocks
    return matrix.reshape(N, N)


def test_whitened_rows():
    """J W^T, with the ground at rest."""
    W = jr.normal(jr.key(2), (6, 6, 2))
    J = BodyContactJacobian(jr.normal(jr.key(1), (2, 1, D, 6)), jnp.array([[2], [1]]), BODIES)
    u = jr.normal(jr.key(3), (6, BODIES))
    v = jnp.einsum("jik,jk->ik", W, u).ravel()
    np.testing.assert_allclose(J.whitened(W).rows(u.ravel()), J.rows(v), rtol=1e-12)


def test_products(forms):
    product, dense, matrix = forms
    lam, own, factors = jr.normal(jr.key(4), (COUNT, D)), blocks_of(5), blocks_of(6)[:, 0]
    expected = (block_matrix(own) + matrix) * np.outer(factors, factors)
    for S in (product, dense):
        S = S.plus(own).scaled(factors)
        z = (expected @ lam.ravel()).reshape(COUNT, D)
        np.testing.assert_allclose(S.times(lam), z, rtol=1e-12)
        np.testing.assert_allclose(
            block_matrix(S.blocks()), expected * (block_matrix(jnp.ones((COUNT, D, D))) > 0)
        )
        least = (np.abs(expected) @ np.abs(lam.ravel())).reshape(COUNT, D)
        assert np.all(S.magnitude(lam) >= least * (1 - 1e-12))
        sums = S.moved(S.sums(lam), jnp.asarray(3), jnp.arange(1.0, 4.0))
        moved = lam.at[3].add(jnp.arange(1.0, 4.0))
        np.testing.assert_allclose(
            S.row(jnp.asarray(5), sums), (expected @ moved.ravel()).reshape(COUNT, D)[5], rtol=1e-12
        )


def test_contacts_of_the_same_bodies_share_products():
    Y = jacobian("bodies")
    np.testing.assert_allclose(
        Y.products().reshape(N, N), dense_rows(Y) @ dense_rows(Y).T, atol=1e-12
    )


def test_regular_solutions(forms):
    *both, matrix = forms
    C, P, own, r = (
        3 * jnp.eye(D)[None] + blocks_of(7, 0.3),
        blocks_of(8),
        blocks_of(9),
        blocks_of(10),
    )
    H = block_matrix(C) + block_matrix(P) @ (matrix + block_matrix(own))
    expected = np.linalg.solve(H, r[:, 0].ravel()).reshape(COUNT, D)
    for S in both:
        S = S.plus(own)
        factor = S.factorise(C, P)
        np.testing.assert_allclose(S.solve(factor, P, r[:, 0]), expected, rtol=1e-9, atol=1e-10)
        turned = np.linalg.solve(H.T, r[:, 0].ravel()).reshape(COUNT, D)
        found = S.solve_transposed(factor, P, r[:, 0])
        np.testing.assert_allclose(found, turned, rtol=1e-9, atol=1e-10)


def test_generalised_solutions(forms):
    """Of redundant contacts that stick: C = 0 and P = 1, H = S of rank 12 of 21; and of others that
    slip, separate and stick, whose solution is unique: all by the pseudoinverse."""
    *both, matrix = forms
    eye = jnp.eye(D)
    slip = jnp.array([[1.0, 0.0, 0.0], [-0.5, 0.3, 0.1], [0.2, 0.1, 0.6]])
    mixed = jnp.stack([eye, slip, 0 * eye, slip, 0 * eye, 0 * eye, 0 * eye])
    r = jr.normal(jr.key(11), (COUNT, D))
    for P in (jnp.broadcast_to(eye, (COUNT, D, D)), mixed):
        C = eye[None] - P
        H = block_matrix(C) + block_matrix(P) @ matrix
        for S in both:
            inverse = GroupInverse(S, C, P)
            x = (np.linalg.pinv(H, rcond=1e-9) @ r.ravel()).reshape(COUNT, D)
            y = (np.linalg.pinv(H.T, rcond=1e-9) @ r.ravel()).reshape(COUNT, D)
            np.testing.assert_allclose(inverse.solve(r), x, rtol=1e-7, atol=1e-7)
            np.testing.assert_allclose(inverse.solve_transposed(r), y, rtol=1e-7, atol=1e-7)


def test_proximal_solutions(forms):
    """Compliance that fades leaves the solution of a consistent singular system."""
    *both, matrix = forms
    eye = jnp.broadcast_to(jnp.eye(D), (COUNT, D, D))
    r = jnp.asarray(matrix @ np.arange(N)).reshape(COUNT, D)
    for S in both:
        x = S.proximal_solve(0 * eye, eye, r, jnp.asarray(3e-6))
        np.testing.assert_allclose(S.times(x), r, rtol=1e-6, atol=1e-6)

"""Constraint solvers against NumPy, on full, redundant and nearly singular rows."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_verdicts

import jaxmbd as mbd
from jaxmbd._compiler import dense as small
from jaxmbd._compiler import product


def compiled(fn):
    """A program that takes NumPy's arrays and gives them back."""
    program = jax.jit(fn)
    return lambda *args: jax.device_get(program(*args))


inverse, pseudoinverse, root, whitener, many = map(
    compiled,
    (small.inverse, small.pseudoinverse, small.root, small.whitener, jax.vmap(small.pseudoinverse)),
)


def test_product():
    rng = np.random.default_rng(0)
    shapes = (2, 3, 4), (30, 20, 10), (10, 20, 30), (140, 30, 3)
    pairs = [(rng.normal(size=(m, n)), rng.normal(size=(n, k))) for m, n, k in shapes]
    found = compiled(lambda pairs: [product(A, B) for A, B in pairs])(pairs)
    for C, (A, B) in zip(found, pairs, strict=True):
        np.testing.assert_allclose(C, A @ B, atol=1e-13)


@pytest.mark.parametrize("n", [3, 12])
def test_general_inverse(n):
    """Of matrices of which no pivot is on the diagonal, alone and in batches of batches."""
    rng = np.random.default_rng(n)
    A = rng.normal(size=(2, 3, n, n)) + 10 * np.eye(n)[rng.permutation(n)]
    found, pivots = compiled(jax.vmap(jax.vmap(small.general_inverse)))(A)
    np.testing.assert_allclose(found, np.linalg.inv(A), atol=1e-12)
    determinants = np.abs(np.linalg.det(A))
    np.testing.assert_allclose(np.prod(pivots, axis=-1), determinants, rtol=1e-10)


ALL = [mbd.Pseudoinverse(), mbd.solvers.Proximal(), mbd.Cholesky(), mbd.solvers.KKT()]


def solver_name(x):
    """The identifier of a solver among others, which have their own."""
    return type(x).__name__ if isinstance(x, mbd.solvers.AbstractConstraintSolver) else None


def equations(nc, nv, rank, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((nv, nv))
    J = rng.standard_normal((nc, rank)) @ rng.standard_normal((rank, nv))
    return A @ A.T + nv * np.eye(nv), J, rng.standard_normal(nv), rng.standard_normal(nc)


def solved(solver, *given):
    """(acceleration, multipliers), the acceleration without rows, and the verdict."""
    return jax.device_get(solve(solver, *given))


@eqx.filter_jit
def solve(solver, M, J, f, r, E=None):
    operator = mbd.solvers.ConstraintOperator(solver, M, J, E)
    return operator.solve(f, r), operator.free(f), operator.result()


def reference(M, J, f, r, E=None):
    """By NumPy's SVD, in the norm of M."""
    G = J @ np.linalg.solve(M, J.T) + (0 if E is None else np.diag(E))
    lam = np.linalg.pinv(G, rcond=1e-11) @ (r - J @ np.linalg.solve(M, f))
    return np.linalg.solve(M, f + J.T @ lam), lam


@pytest.mark.parametrize("n", [1, 3, 6, 12])
def test_factorisations(n):
    M, *_ = equations(1, n, 1, seed=n)
    W, ok = whitener(M)
    np.testing.assert_allclose(W @ M @ W.T, np.eye(n), atol=1e-13)
    assert ok
    R = root(M)
    np.testing.assert_allclose(R @ R.T, M, rtol=1e-12, atol=1e-12)
    M_inv, pivot = inverse(M)
    np.testing.assert_allclose(M_inv, np.linalg.inv(M), atol=1e-13)
    assert 0 < pivot <= 1
    indefinite = M - 1.5 * np.linalg.eigvalsh(M)[-1] * np.eye(n)
    assert not whitener(indefinite)[1]


@pytest.mark.parametrize("nc, nv", [(1, 2), (3, 5), (9, 9), (12, 14)])
def test_pseudoinverse_of_any_rank(nc, nv):
    ranks = range(1, min(nc, nv) + 1)
    C = [equations(nc, nv, rank, seed=rank)[1] for rank in ranks]
    found = many(np.stack(C), np.full(len(C), 1e-10))
    for rank, C, X, Z, kept in zip(ranks, C, *found, strict=True):
        assert np.sum(kept) == rank
        np.testing.assert_allclose(X, np.linalg.pinv(C, rcond=1e-10), atol=1e-11 * np.max(abs(X)))
        np.testing.assert_allclose(Z @ Z.T, C @ np.linalg.pinv(C, rcond=1e-10), atol=1e-11)


@pytest.mark.parametrize("nc, nv, rank", [(4, 5, 3), (14, 12, 9)])
def test_pseudoinverse_of_nearly_dependent_rows(nc, nv, rank):
    """That by the largest singular values, up to the square of the violation that is passed over:
    within a step redundant rows are so only nearly, and which one is dropped must not matter."""
    _, C, _, _ = equations(nc, nv, rank)
    C = C + 1e-6 * np.random.default_rng(2).standard_normal(C.shape)
    X, _, kept = pseudoinverse(C, 1e-3)
    assert np.sum(kept) == rank
    expected = np.linalg.pinv(C, rcond=1e-3)
    np.testing.assert_allclose(X, expected, atol=1e-9 * np.abs(expected).max() ** 2)


@pytest.mark.parametrize("dtype, rtol", [("float64", 1e-10), ("float32", 1e-3)])
def test_pseudoinverse_with_rows_of_zeros(dtype, rtol):
    """Rows that say nothing are dependent, and leave the others what they are."""
    C = np.zeros((4, 3), dtype)
    C[0, 0], C[2, 2] = -0.4, -0.65
    X, Z, kept = pseudoinverse(C, np.asarray(rtol, dtype))
    assert np.sum(kept) == 2
    small = 1e-6 if dtype == "float32" else 1e-14
    np.testing.assert_allclose(X, np.linalg.pinv(C), atol=small)
    np.testing.assert_allclose(Z @ Z.T, C @ np.linalg.pinv(C), atol=small)


@pytest.mark.parametrize("smallest", [1e-2, 1e-6])
def test_pseudoinverse_does_not_square_the_condition(smallest):
    rng = np.random.default_rng(1)
    U, V = (np.linalg.qr(rng.standard_normal((n, n)))[0] for n in (5, 6))
    C = (U * np.array([1, 0.7, 0.5, 2 * smallest, smallest])) @ V[:5]
    x = C.T @ rng.standard_normal(5)
    X, _, _ = pseudoinverse(C, 1e-10)
    error = np.linalg.norm(X @ (C @ x) - x) / np.linalg.norm(x)
    assert error < 1e-14 / smallest  # 1e-16 / smallest^2 by way of C C^T


@pytest.mark.parametrize("compliant", [False, True])
@pytest.mark.parametrize("solver", ALL, ids=solver_name)
def test_independent_rows(solver, compliant):
    M, J, f, r = equations(3, 5, 3) if compliant else equations(12, 14, 12)
    E = np.array([0.0, 0.3, 2.0]) if compliant else None
    (a, lam), free, result = solved(solver, M, J, f, r, E)
    expected = reference(M, J, f, r, E)
    np.testing.assert_allclose(a, expected[0], atol=1e-9)
    np.testing.assert_allclose(lam, expected[1], rtol=1e-8)
    np.testing.assert_allclose(free, np.linalg.solve(M, f), atol=1e-13)
    assert_verdicts(result, mbd.RESULTS.successful)


@pytest.mark.parametrize("solver, size", [
    (mbd.Pseudoinverse(), (4, 5, 2)),
    (mbd.solvers.Proximal(), (4, 5, 2)),
    pytest.param(mbd.solvers.Proximal(), (14, 12, 9), marks=pytest.mark.slow),
], ids=str)  # fmt: skip
def test_redundant_rows(solver, size):
    M, J, f, _ = equations(*size)
    r = J @ f  # consistent
    (a, lam), _, _ = solved(solver, M, J, f, r)
    expected = reference(M, J, f, r)
    np.testing.assert_allclose(a, expected[0], atol=1e-9)
    np.testing.assert_allclose(lam, expected[1], rtol=0, atol=1e-4 * np.linalg.norm(lam))
    np.testing.assert_allclose(J.T @ lam, J.T @ expected[1], rtol=0, atol=1e-8)


@pytest.mark.parametrize("solver", ALL[2:], ids=solver_name)
def test_dependent_rows_are_reported(solver):
    M, J, f, r = equations(3, 5, 2)
    *_, result = solved(solver, M, J, f, r, np.zeros(3))  # as compiled above
    assert_verdicts(result, mbd.RESULTS.singular_constraints)


def test_singular_mass_with_kkt():
    """A massless coordinate that the row ties to a massive one: M is singular, the motion
    unique."""
    given = np.diag([2.0, 0.0]), np.array([[1.0, -1.0]]), np.array([0.0, 3.0]), np.array([0.5])
    (a, lam), *_ = solved(mbd.solvers.KKT(), *given)
    np.testing.assert_allclose(a, [1.5, 1.0], atol=1e-14)
    np.testing.assert_allclose(lam, [3.0], atol=1e-14)


@pytest.mark.parametrize("solver", ALL[:2], ids=solver_name)
def test_derivative_at_constant_rank(solver):
    """Against differences of NumPy's pseudoinverse, along changes that keep the rank; with an
    unreachable part in r, all three terms of the formula count."""
    rng = np.random.default_rng(3)
    nc, nv, rank = 3, 4, 2
    left, right = rng.standard_normal((nc, rank)), rng.standard_normal((rank, nv))
    d_left, d_right = rng.standard_normal((nc, rank)), rng.standard_normal((rank, nv))
    M, _, f, r = equations(nc, nv, rank)
    dM = np.diag(rng.standard_normal(nv))
    df, dr = rng.standard_normal(nv), rng.standard_normal(nc)

    def inputs(s):
        J = (left + s * d_left) @ (right + s * d_right)
        return M + s * dM, J, f + s * df, r + s * dr

    @jax.jit
    def ours(s):
        def solution(s):
            M, J, f, r = inputs(s)
            return mbd.solvers.ConstraintOperator(solver, M, J).solve(f, r)

        weights = jnp.array([0.3, -1.2, 0.7, 0.4]), jnp.array([0.5, 1.0, -2.0])
        _, along = jax.jvp(solution, (s,), (1.0,))
        (back,) = jax.vjp(solution, s)[1](weights)
        return along, back, sum(map(jnp.vdot, weights, along))

    (da, dlam), back, forward = ours(0.0)
    h = 1e-4
    plus, minus = reference(*inputs(h)), reference(*inputs(-h))
    np.testing.assert_allclose(da, (plus[0] - minus[0]) / (2 * h), rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(dlam, (plus[1] - minus[1]) / (2 * h), rtol=2e-4, atol=1e-4)
    np.testing.assert_allclose(back, forward, rtol=1e-9)


def test_rows_of_heavy_bodies_are_as_rigid_as_others():
    """A row between a light and a heavy body, and one that holds the heavy one: exact, whatever the
    ratio of their masses."""
    J = np.pad(np.array([[1.0, -1.0, 0.0], [0.0, 1.0, 1.0]]), ((0, 9), (0, 9)))
    J[2:, 3:] = np.eye(9)
    f, r = np.arange(1.0, 13.0), np.linspace(-1, 1, 11)
    for ratio in (1.0, 1e6, 1e9):
        M = np.diag([1.0, ratio, ratio, *[1.0] * 9])
        (a, lam), _, _ = solved(mbd.solvers.Proximal(), M, J, f, r)
        np.testing.assert_allclose(J @ a, r, atol=1e-11)
        np.testing.assert_allclose(a, (f + J.T @ lam) / np.diag(M), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [3, 12])
def test_pivots_that_are_no_numbers_count_as_none(n):
    """Of a matrix of ones the second pivot is 0, and those after it are NaN."""
    ones = np.ones((n, n))
    assert inverse(ones)[1] == 0.0 and not whitener(ones)[1]

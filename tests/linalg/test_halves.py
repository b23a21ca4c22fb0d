"""Factorisations by halves, and steps as GPUs compute them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import nothing_kept, three_bars

import jaxmbd as mbd
from jaxmbd._compiler import dense as small
from jaxmbd._compiler import halves
from jaxmbd._methods import point


@pytest.fixture
def as_on_gpus(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with nothing_kept():
        yield


def positive_definite(n):
    A = np.random.default_rng(n).normal(size=(n, n + 2))
    return A @ A.T


@pytest.mark.parametrize("n", [1, 6, 13])
def test_inverse_and_inverse_cholesky(n):
    A = positive_definite(n)
    factorised = jax.jit(lambda A: (*halves.inverse(A), *halves.inverse_cholesky(A)))
    A_inv, pivots, W, again = jax.device_get(factorised(A))
    L = np.linalg.cholesky(A)
    np.testing.assert_allclose(A_inv @ A, np.eye(n), atol=1e-12 * np.linalg.cond(A))
    np.testing.assert_allclose(W @ L, np.eye(n), atol=1e-12 * np.linalg.cond(L))
    for found in (pivots, again):
        np.testing.assert_allclose(found, np.diag(L) ** 2, rtol=1e-10)


@pytest.mark.usefixtures("as_on_gpus")
def test_matrices_in_batches():
    """Each form that GPUs use, against NumPy."""
    A = np.stack([positive_definite(8) + k * np.eye(8) for k in range(3)])
    C = A[:, :, :5] @ np.array([np.eye(5)[i % 4] for i in range(5)])  # rank 4
    B = A + np.triu(A)
    singular = np.outer(np.arange(1.0, 8.0), np.arange(1.0, 8.0))

    @jax.jit
    def values(A, B, C, singular):
        each = small.inverse, small.whitener, small.general_inverse
        found = [jax.vmap(fn)(x) for fn, x in zip(each, (A, A, B), strict=True)]
        pinv = jax.vmap(small.pseudoinverse, (0, None))(jnp.swapaxes(C, 1, 2), 1e-6)
        return *found, pinv, small.inverse(singular)[1]

    (A_inv, pivot), (W, definite), (B_inv, _), found, last = jax.device_get(
        values(A, B, C, singular)
    )
    np.testing.assert_allclose(A_inv, np.linalg.inv(A), atol=1e-10)
    np.testing.assert_allclose(np.swapaxes(W, 1, 2) @ W, np.linalg.inv(A), atol=1e-10)
    np.testing.assert_allclose(B_inv, np.linalg.inv(B), atol=1e-10)
    np.testing.assert_allclose(found[0], np.linalg.pinv(np.swapaxes(C, 1, 2)), atol=1e-10)
    assert np.all(definite) and np.all(pivot > 0) and np.all(np.sum(found[2], axis=1) == 4)
    assert last < 1e-12


def test_accelerations_and_gradients(request):
    """A batch of chains as GPUs compute it, level by level, accelerates as each sample does by the
    elimination of CPUs."""
    mechanism = three_bars(False, np.eye(3), gravity=[0.0, -9.81, 0.0])
    q, v = mechanism.state().q, np.linspace(-1.0, 1.0, 18)

    def squares(factor):
        moved = eqx.tree_at(lambda m: m.gravity, mechanism, mechanism.gravity * factor)
        here = point(moved, None, 0.0, q, v)
        a, _ = here.operator(mbd.solvers.Automatic()).solve(here.f, here.rows.gamma)
        return jnp.sum(a**2)

    factors = np.array([0.5, 1.0])
    alone = list(map(jax.jit(jax.value_and_grad(squares)), factors))
    request.getfixturevalue("as_on_gpus")
    values, gradients = jax.jit(jax.vmap(jax.value_and_grad(squares)))(factors)
    np.testing.assert_allclose(values, [x for x, _ in alone], rtol=1e-10)
    np.testing.assert_allclose(gradients, [x for _, x in alone], rtol=1e-7)
    assert np.min(np.abs(np.asarray(gradients))) > 1e-4

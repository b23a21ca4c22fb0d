"""Derivatives of `assemble`, and its precision."""

import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd._assemble import pseudoinverse


@pytest.mark.parametrize(
    "name, options",
    [
        ("driven_pendulum", dict(fixed=[0], fixed_velocities=[1])),
        ("redundant_pendulum", dict()),
        pytest.param("skate_in_space", dict(fixed=[3]), marks=pytest.mark.slow),
        pytest.param("top", dict(), marks=pytest.mark.slow),
    ],
)
def test_differences(name, options):
    """By q, v, parameters and weights, from a start off the constraints; redundant rows too."""
    case = h.CASES[name]
    q, v = map(np.asarray, (case.state.q, case.state.v))
    q = q + 0.05 * np.sin(1.0 + np.arange(q.size))

    def ends(tree):
        system, q, v, weights = tree
        state = mbd.assemble(system, q, v, 0.1, weights=weights, **options)
        ends = jnp.concatenate([state.q, state.v])
        return jnp.cos(1.0 + jnp.arange(ends.size, dtype=float)) @ ends

    h.check_scalar(ends, (case.system, q, v + 0.3, 1.0 + np.arange(v.size) / 2))


def test_derivative_of_the_pseudoinverse():
    """Of B C, with columns and rows that are independent: C^T (C C^T)^-1 (B^T B)^-1 B^T. Its two
    singular values coincide, where those of the SVD have no derivatives."""
    B, C = np.eye(3, 2), np.eye(4, 2)[::-1].T
    changes = np.random.default_rng(0).normal(size=(2, 12))
    dB, dC = (x[: y.size].reshape(y.shape) for x, y in zip(changes, (B, C), strict=True))

    def closed(B, C):
        return C.T @ jnp.linalg.inv(C @ C.T) @ jnp.linalg.inv(B.T @ B) @ B.T

    @jax.jit
    def both(*changes):
        found = jax.jvp(lambda B, C: pseudoinverse(B @ C), (B, C), changes)
        return found, jax.jvp(closed, (B, C), changes)

    found, expected = both(dB, dC)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)


def test_float32():
    system = h.cast(h.Pendulum(), jnp.float32)
    state = mbd.assemble(system, np.array([1.0, 0.2], np.float32), np.ones(2, np.float32))
    assert state.q.dtype == state.v.dtype == jnp.float32
    expected = 0.9 * np.array([1.0, 0.2]) / np.hypot(1.0, 0.2)
    np.testing.assert_allclose(state.q, expected, rtol=1e-6)
    assert abs(np.dot(state.q, state.v)) < 1e-6

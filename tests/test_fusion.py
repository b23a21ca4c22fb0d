"""The limit to fusion changes no number and no derivative."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxmbd._compiler import largest, materialise, materialise_condition


def test_values_stay_what_they_are():
    tiny = float(np.finfo(np.float64).tiny)
    x = np.array([1.5, -0.0, 0.0, tiny, 1e308, np.inf, -np.inf, np.nan])
    for found in jax.jit(lambda x: (materialise(x), jax.vmap(materialise)(x[None])[0]))(x):
        np.testing.assert_array_equal(found, x)
        np.testing.assert_array_equal(np.signbit(np.asarray(found)[:3]), np.signbit(x[:3]))


def test_derivatives_pass():
    """In all modes, once and twice."""
    x = np.array([0.3, -1.2, 2.0])

    def cubes(x):  # in a loop, which drops rules of second derivatives
        y, _ = jax.lax.scan(
            lambda y, _: (materialise(y * x), None), jnp.ones_like(x), None, length=3
        )
        return y

    @jax.jit
    def found(x):
        firsts = [jacobian(cubes) for jacobian in (jax.jacfwd, jax.jacrev)]
        seconds = [outer(inner)(x) for outer in (jax.jacfwd, jax.jacrev) for inner in firsts]
        return [inner(x) for inner in firsts], seconds

    firsts, seconds = found(x)
    expected = np.einsum("i,ij,ik->ijk", 6 * x, np.eye(3), np.eye(3))
    np.testing.assert_allclose(firsts, [np.diag(3 * x**2)] * 2, rtol=1e-14)
    np.testing.assert_allclose(seconds, [expected] * 4, rtol=1e-14, atol=1e-14)


def compiled(fn, *args):
    return jax.jit(fn).lower(*args).compile().as_text()


def test_products_are_not_computed_anew():
    """Without it the first sum of products is part of the same loop as the second."""

    def chained(A, x, between):
        y = sum(A[:, i] * x[None, i] for i in range(6))
        return sum(A[:, i] * between(y)[None, i] for i in range(6))

    A, x = np.ones((6, 6, 5)), np.ones((6, 5))
    fns = [lambda A, x, f=f: chained(A, x, f) for f in (lambda y: y, materialise)]
    kernels = [compiled(fn, A, x).count(" fusion(") for fn in fns]
    assert kernels == [1, 2] or jax.default_backend() != "cpu"


def test_decisions_are_numbers_computed_once():
    """Of a condition that several arrays hang on, by its one kernel more; and what is decided."""
    x = np.array([-1.0, 0.0, np.nan, 2.0])
    decided = jax.jit(lambda x: materialise_condition(x > 0))(x)
    np.testing.assert_array_equal(decided, [False, False, False, True])

    def chosen(x, y, decide):
        nearer = decide(jnp.sum(x * x) < jnp.sum(y * y))
        return jnp.where(nearer, x, y), jnp.where(nearer, x[::-1] * y, y)

    fns = [lambda x, y, f=f: chosen(x, y, f) for f in (lambda c: c, materialise_condition)]
    kernels = [compiled(fn, x, x).count(" divide(") for fn in fns]
    assert kernels == [0, 1]


def test_largest_passes_over_nan():
    largest_of = jax.jit(jax.value_and_grad(largest))
    value, slope = largest_of(np.array([1.0, np.nan, -3.0, 2.0]))
    assert float(value) == 3.0 and not np.any(slope)
    assert float(jax.jit(largest)(np.zeros(0))) == 0.0

"""The limit to fusion changes no number and no derivative."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd._compiler import contract, largest, materialise, materialise_condition


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


@pytest.mark.slow
@pytest.mark.parametrize(
    "subscripts, a, b",
    [("cij,cj->ci", (300, 3, 6), (300, 6)), ("ecdj,cd->ecj", (2, 192, 3, 6), (192, 3))],
)
def test_large_contractions(subscripts, a, b):
    """Values and derivatives in all modes are those of `einsum`, without a call of a library."""
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=a), rng.normal(size=b)
    weight = rng.normal(size=np.einsum(subscripts, A, B).shape)

    def found(product):
        f = lambda A, B: jnp.sum(weight * product(subscripts, A, B) ** 2)  # noqa: E731
        both = jax.grad(f, (0, 1))
        along = jax.jvp(f, (A, B), (jnp.cos(A), jnp.sin(B)))[1]
        batch = jax.vmap(both)(np.stack([A, 2 * A]), np.stack([B, 3 * B]))
        second = jax.grad(lambda B: jnp.sum(both(A, B)[0] ** 2))(B)
        return product(subscripts, A, B), both(A, B), along, batch, second

    pulled = lambda A, B: jax.vjp(lambda *x: contract(subscripts, *x), A, B)[1](weight)  # noqa: E731
    text = compiled(pulled, A, B)
    assert text is not None and "kCustom" not in text and "custom-call" not in text
    compute = jax.jit(found, static_argnums=0)
    own, known = (jax.tree.leaves(compute(product)) for product in (contract, jnp.einsum))
    for x, expected in zip(own, known, strict=True):
        np.testing.assert_allclose(x, expected, rtol=1e-9, atol=1e-9)

"""Loops, branches and random numbers against JAX."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import compiled, needs_compiler
from jax import lax
from test_operations import assert_equal, forms

from jaxmbd._kernels import Unsupported, program_source


@needs_compiler
@forms
def test_loops(options):
    def fn(x, n):
        def turn(carry, y):
            a, b, table, k = carry
            table = table.at[k % 7].set(a[0] + y[0])
            return (b, a + y, table, k + 1), (a[::-1], table.sum())

        def rolled(length, reverse=False):
            start = (x[0], x[1], jnp.zeros(7), jnp.array(0, jnp.int32))
            return lax.scan(turn, start, x[:length], reverse=reverse)

        def halved(state):
            value, turns = state
            return value / 2, turns + 1

        def swapped(k, state):
            return state[1], state[0] * 1.1

        def nested(k, total):
            inner = lax.fori_loop(0, k, lambda j, s: s + x[0, 0] * j.astype(x.dtype), total)
            return lax.cond(inner > 3, lambda s: s * 0.5, lambda s: s + 1, inner)

        def rows(k, A):
            row, other = A[k], A[(k + 1) % 4]
            A = A.at[k].set(other * 1.5)
            return A.at[(k + 2) % 4].add(row)  # the row from before

        found = {}
        for length in (1, 3, 12):
            for reverse in (False, True):
                name = f"{length}, {'back' if reverse else 'forth'}"
                found[name] = rolled(length, reverse)
        found["halved"] = lax.while_loop(lambda s: s[0] > 0.01, halved, (jnp.abs(x[0, 0]), 0))
        found["never"] = lax.while_loop(lambda s: s[0] > 1e9, halved, (x[0, 0], 0))
        found["swapped"] = lax.fori_loop(0, n, swapped, (x[0], x[1]))
        found["nested"] = lax.fori_loop(0, n + 3, nested, x[0, 1])
        found["rows"] = lax.fori_loop(0, n + 2, rows, x[:4])
        found["mapped"] = lax.map(lambda r: jnp.sin(r) @ x[:3].T, x)
        found["unused"] = lax.scan(lambda c, _: (c * 2, c), x[0, 0], None, length=5)[1]
        return {
            f"{a} {k}": x for a, tree in found.items() for k, x in enumerate(jax.tree.leaves(tree))
        }

    x = np.random.default_rng(0).normal(size=(3, 12, 3))
    n = np.array([0, 1, 5], np.int32)
    for unrolled in (0, 10_000):
        assert_equal(fn, x, n, **options, unrolled=unrolled, rtol=1e-14)


@needs_compiler
@forms
def test_branches(options):
    def fn(x, k):
        cases = [lambda x: x, lambda x: x[::-1] * 2, lambda x: jnp.zeros_like(x)]
        picked = lax.switch(k, cases, x)
        large = lax.cond(
            x[0, 0] > 0, lambda a: (a @ a.T, a), lambda a: (a[:, :1] + a[:, 0][None], -a), x
        )
        chosen = lax.select_n(jnp.clip(k, 0, 2), x, -x, 2 * x)
        known = lax.cond(True, lambda x: x + 1, lambda x: x - 1, x)
        inner = lax.cond(k > 0, lambda: lax.fori_loop(0, k, lambda j, s: s * 1.5, x), lambda: x)
        same = lax.cond(k > 0, lambda: x, lambda: x)  # JAX leaves a branch without results
        return dict(
            picked=picked,
            large=large[0],
            other=large[1],
            chosen=chosen,
            known=known,
            inner=inner,
            same=same,
        )

    x = np.random.default_rng(0).normal(size=(5, 5, 3))
    assert_equal(fn, x, np.array([-1, 0, 1, 2, 7], np.int32), rtol=1e-14, **options)


@needs_compiler
@forms
def test_errors(options):
    """End the program, in branches of loops too, and tell which message it is."""

    def fn(x):
        x = eqx.branched_error_if(x, x < 0, (x < -1).astype(int), ["negative", "below -1"])
        turn = lambda x: eqx.error_if(2 * x, x > 6, "large")  # noqa: E731
        return jax.lax.while_loop(lambda x: x < 9, turn, x)

    source = program_source(jax.jit(fn).trace(1.0).jaxpr, **options)
    found, numbers = compiled(source)(np.array([5.0, -0.5, -2.0, 1.0]))
    assert found[0] == 10.0
    messages = ["none", *source.checks]
    assert [messages[k] for k in numbers] == ["none", "negative", "below -1", "large"]


@needs_compiler
@forms
def test_derivatives(options):
    """Scans back and forth, with residuals in scratch memory, checkpoints and custom rules."""

    @jax.custom_jvp
    def cube(x):
        return x**3

    cube.defjvp(lambda x, dx: (x[0] ** 3, 3 * x[0] ** 2 * dx[0]))

    @jax.custom_vjp
    def clipped(x):
        return x

    clipped.defvjp(lambda x: (x, x), lambda x, c: (jnp.where(x > 0, c, 0.5 * c),))

    def fn(x):
        def turn(a, y):
            a = jnp.tanh(a @ x) + cube(y) * 0.1
            return clipped(a), a.sum()

        def value(x):
            start, ys = x[0], jnp.stack([x[0]] * 50)
            end, sums = lax.scan(jax.checkpoint(turn), start, ys)
            return end.sum() + jnp.sum(sums**2)

        value, gradient = jax.value_and_grad(value)(x)
        return dict(value=value, gradient=gradient, jacobian=jax.jacfwd(lambda x: cube(x) @ x)(x))

    x = np.random.default_rng(0).normal(size=(2, 4, 4))
    assert_equal(fn, x, rtol=1e-12, **options)


@needs_compiler
@forms
def test_random_numbers(options):
    """The same bits as JAX's, of keys that come in and of such that are made."""

    def fn(data, seed):
        key = jax.random.wrap_key_data(data)
        one, two, *many = jax.random.split(key, 5)
        other = jax.random.key(seed)
        _, drawn = lax.scan(
            lambda k, _: (jax.random.split(k)[0], jax.random.bits(k, (3,))), one, None, length=4
        )
        return dict(
            data=jax.random.key_data(jnp.stack(many)),
            bits=jax.random.bits(two, (3, 3), jnp.uint32),
            long=jax.random.bits(two, (2,), jnp.uint64),
            folded=jax.random.key_data(jax.random.fold_in(key, seed)),
            seeded=jax.random.key_data(other),
            uniform=jax.random.uniform(other, (4,)),
            normal=jax.random.normal(one, (4,)),
            single=jax.random.normal(one, (3,), jnp.float32),
            whole=jax.random.randint(two, (5,), 0, 17),
            coin=jax.random.bernoulli(two, 0.5, (5,)),
            batch=jax.vmap(lambda k: jax.random.bits(k, (2,)))(jnp.stack(many)),
            drawn=drawn,
            chosen=jax.random.key_data(jnp.where(seed > 1, one, two)),
        )

    data = np.array([[1, 2], [3, 2**32 - 1]], np.uint32)
    seed = np.array([0, 7], np.int32)
    tolerances = dict(normal=1e-14, single=2e-6)
    assert_equal(fn, data, seed, tolerances=tolerances, **options)


@needs_compiler
def test_keys_come_and_go():
    def fn(key):
        return [jax.random.split(key)[1], jax.random.normal(key)]

    @jax.jit
    def given():
        keys = jax.random.split(jax.random.key(0), 4)
        second = jax.vmap(lambda key: jax.random.split(key)[1])(keys)
        return jax.random.key_data(keys), jax.random.key_data(second)

    keys, second = map(np.asarray, given())
    traced = jax.jit(fn).trace(jax.eval_shape(lambda: jax.random.key(0)))
    np.testing.assert_array_equal(compiled(program_source(traced.jaxpr))(keys)[0], second)


@pytest.mark.parametrize(
    "fn, name",
    [
        (jnp.linalg.cholesky, "cholesky"),
        (lambda x: jnp.fft.fft(x).real, "complex"),
        (lambda x: x.astype(jnp.float16), "float16"),
        (lambda x: jax.pure_callback(lambda x: x, x, x), "pure_callback"),
        (lambda x: jax.random.normal(jax.random.key(0, impl="rbg"), (2,)) + x[0, :2], "rbg"),
        (lambda x: jax.lax.while_loop(lambda x: x[0, 0] > 0, jnp.linalg.inv, x), "lu"),
    ],
)
def test_what_is_not_known_is_named(fn, name):
    with pytest.raises(Unsupported, match=name):
        program_source(jax.jit(fn).trace(np.eye(3)).jaxpr)

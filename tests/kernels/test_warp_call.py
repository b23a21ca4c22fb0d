"""Sources are functions in a program of JAX, compiled and called by NVIDIA Warp. No compiler for
GPUs is needed: Warp has one for CPUs."""

from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd._kernels import Function, Unsupported, batch, has_warp
from jaxmbd._kernels.source import Source
from jaxmbd._kernels.warp_call import Batched

pytestmark = pytest.mark.skipif(not has_warp(), reason="the extra `gpu` is not installed")

DOUBLE = np.dtype("float64")

# Twice what stands in the sample, through scratch memory, plus what all samples share.
TEXT = """
double* kept = (double*)scratch + s;
for (int i = 0; i < 3; ++i) kept[i * n] = 2.0 * in0[i];
for (int i = 0; i < 3; ++i) out0[i] = kept[i * n] + in1[0];
out1[0] = in2[0] ? 7 : -8;
"""


@pytest.mark.slow
def test_samples_and_what_they_share():
    """With scratch memory, booleans, small integers, and in a scan."""
    scalar = [(DOUBLE, ()), (np.dtype(bool), ())]
    outputs = (DOUBLE, (3,)), (np.dtype("int16"), ())
    batched = Batched(
        Source(TEXT, ((DOUBLE, (3,)), *scalar), outputs, scratch=24, arena=0, lanes=1),
        [False, True, False],
    )
    batched.load(jax.devices())
    x, even = np.arange(15.0).reshape(5, 3), np.arange(5) % 2 == 0

    @jax.jit
    def twice(x, even):
        def step(x, _):
            x, which = batched(5, x, jnp.asarray(0.5), even)
            return x, which

        return jax.lax.scan(step, x, None, length=2)

    found, which = twice(x, even)
    np.testing.assert_array_equal(found, 4 * x + 1.5)
    np.testing.assert_array_equal(which, 2 * [[7, -8, 7, -8, 7]])
    assert which.dtype == np.int16


@pytest.mark.slow
def test_keys_constants_and_trees():
    """Random keys go in and out. Large constants are operands, small ones stand in the source."""
    large = np.linspace(0.0, 1.0, 2000)

    def fn(point, key, common):
        drawn, key = jax.random.split(key)
        at = jnp.astype(jax.random.randint(drawn, (), 0, 2000), int)
        return {"x": point["x"] * np.array([2.0, -1.0]) + jnp.asarray(large)[at] + common}, key

    keys, x = jax.random.split(jax.random.key(3), 4), np.arange(8.0).reshape(4, 2)
    of_one = {"x": jax.ShapeDtypeStruct((2,), DOUBLE)}, jax.typeof(keys[0]), jnp.asarray(0.25)
    made = Function(fn, of_one, [False, False, True], [1])
    found, after = jax.jit(lambda *operands: made(4, *operands))({"x": x}, keys, 0.25)
    each = jax.jit(jax.vmap(lambda x, key: fn({"x": x}, key, 0.25)))
    expected, after_each = each(x, keys)
    np.testing.assert_allclose(found["x"], expected["x"], rtol=1e-15)
    np.testing.assert_array_equal(*map(jax.random.key_data, (after, after_each)))


def test_what_has_effects_is_no_kernel():
    def fn(x):
        jax.debug.print("{}", x)
        return x

    with pytest.raises(Unsupported, match="effects"):
        Function(fn, [jax.ShapeDtypeStruct((), DOUBLE)], [False], [1])


SHORT, LONG = 1000, 4_000_000


@pytest.mark.parametrize(
    ("samples", "lengths", "lanes"),
    [
        (1024, (SHORT, SHORT), 32),
        (1024, (SHORT, LONG), 1),
        (16384, (SHORT, SHORT), 1),
        (16384, (LONG, SHORT), 32),
        (1024, (LONG, LONG), None),
    ],
)
def test_threads_for_a_sample(monkeypatch, samples, lengths, lanes):
    """On a GPU by the number of samples and the length of the source, if there is a choice. A
    source that no compiler would finish soon is none."""

    def program_source(closed, count):
        text = (lengths[0] if count == 1 else lengths[1]) * " "
        return Source(text, (), (), scratch=0, arena=0, lanes=count)

    monkeypatch.setattr(batch, "program_source", program_source)
    monkeypatch.setattr(batch, "Batched", lambda source, shared: None)
    preferred = batch.lanes_for(samples, Mock(platform="gpu"))
    operands = [jax.ShapeDtypeStruct((), DOUBLE)], [False]
    if lanes is None:
        with pytest.raises(Unsupported, match="large"):
            Function(lambda x: x, *operands, preferred)
    else:
        assert Function(lambda x: x, *operands, preferred).lanes == lanes
    assert batch.lanes_for(samples, Mock(platform="cpu")) == (1,)


def test_a_compiler_that_fails_is_no_kernel(monkeypatch):
    def program_source(closed, count):
        raise IndexError("of something")

    monkeypatch.setattr(batch, "program_source", program_source)
    with pytest.raises(Unsupported, match="IndexError: of something"):
        Function(lambda x: x, [jax.ShapeDtypeStruct((), DOUBLE)], [False], [1])

"""Bad input of rollouts. The error names the argument, what is wrong and what is right."""

import sys

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from rollout_runs import KEY, run

import jaxmbd as mbd


@pytest.mark.parametrize(
    "samples, words",
    [
        ({"a": np.zeros((3, 2)), "b": np.zeros(4)}, r"samples\['b'\]` has shape \(4,\)"),
        ((np.zeros(3), np.array(1.0)), r"samples\[1\]` has shape \(\)"),
        (np.zeros((0, 2)), "from 1 to 2147483647, but is 0"),
        (0, "but is 0"),
        (-5, "but is -5"),
        ({"f": len}, "has no arrays"),
        ((), "has no arrays"),
    ],
)
def test_bad_samples(samples, words):
    with pytest.raises(ValueError, match=words):
        run(lambda x, key: 0.0, samples)


@pytest.mark.parametrize(
    "options, words",
    [
        (dict(key=jnp.nan), "`key`.* must be one random key"),
        (dict(key=3), "`key`.* must be one random key"),
        (dict(key=jr.split(KEY, 2)), "`key`.* must be one random key"),
        (dict(chunk=12), "`chunk`.* must be a power of two, but is 12: e.g. 8"),
        (dict(chunk=0), "`chunk`.* must be a power of two"),
        (dict(memory=0.0), "`memory`.* must be positive, but is 0.0"),
        (dict(memory=float("nan")), "`memory`.* must be positive, but is nan"),
        (dict(reductions={"mean": jnp.mean}), "`reductions`.* must be reductions"),
        (dict(devices=[]), "`devices`.* must be some of"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        run(lambda i, key: i.astype(float), 5, **options)


def test_outputs_that_are_no_numbers():
    with pytest.raises(ValueError, match=r"returned <.*> at `\['f'\]`.* not an array of numbers"):
        run(lambda i, key: {"f": len}, 5)
    with pytest.raises(ValueError, match="not an array of numbers"):
        run(lambda i, key: key, 5)


def test_bad_edges():
    for edges in ([1.0], [0.0, 0.0], [[0.0, 1.0]], [0.0, jnp.nan]):
        with pytest.raises((ValueError, TypeError)):
            mbd.rollout.Histogram(jnp.array(edges))
    with pytest.raises(ValueError, match="must be two numbers or more that increase"):
        mbd.rollout.Histogram(jnp.array([1.0, 0.0]))


def test_package_that_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "zarr", None)
    store = mbd.rollout.Zarr(tmp_path / "x")
    with pytest.raises(ImportError, match="zarr.*rollout"):
        run(lambda i, key: i.astype(float), 5, store=store, progress=False)

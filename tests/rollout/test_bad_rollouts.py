"""Bad input of rollouts; see `refusals`. The error names the argument, what is wrong and what is
right."""

import sys

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from refusals import Cart, check_refused, refusals
from rollout_runs import KEY

import jaxmbd as mbd
from jaxmbd import rollout


def run(one=lambda x, key: 2 * x, samples=np.arange(4.0), **options):
    return rollout.run(one, samples, progress=False, **options)


WHOLE = "from 1 to 2147483647, but is "
KEY_WORDS = "`key` of run must be one random key"
EDGES = "`edges` must be two numbers or more that increase"
SAMPLES = "`samples` must be numbers or random keys, but is"


@refusals(
    ("none", "function of run returned None, which holds no numbers: return",
     lambda: run(lambda x, key: None)),
    ("text", "function of run returned 'done' .*not an array of numbers",
     lambda: run(lambda x, key: "done")),
    ("a part that is a function", r"returned <.*> at `\['f'\]`.* not an array of numbers",
     lambda: run(lambda x, key: {"f": len})),
    ("a random key", "not an array of numbers", lambda: run(lambda x, key: key)),
    ("objects", SAMPLES, lambda: run(samples=np.array([Cart(), Cart()]))),
    ("samples of text", rf"{SAMPLES} \['a', 'b'\]", lambda: run(samples=np.array(["a", "b"]))),
    ("other length", r"samples\['b'\]` has shape \(4,\)",
     lambda: run(samples={"a": np.zeros((3, 2)), "b": np.zeros(4)})),
    ("no length", r"samples\[1\]` has shape \(\)",
     lambda: run(samples=(np.zeros(3), np.array(1.0)))),
    ("no entries", f"{WHOLE}0", lambda: run(samples=np.zeros((0, 2)))),
    ("0 samples", f"{WHOLE}0", lambda: run(samples=0)),
    ("-5 samples", f"{WHOLE}-5", lambda: run(samples=-5)),
    ("a function as a sample", "has no arrays", lambda: run(samples={"f": len})),
    ("nothing", "has no arrays", lambda: run(samples=())),
    ("chunk 12", "`chunk` of run must be a power of two, but is 12: e.g. 8", lambda: run(chunk=12)),
    ("chunk 0", "`chunk`.* must be a power of two", lambda: run(chunk=0)),
    ("key 0", KEY_WORDS, lambda: run(key=0)),
    ("key nan", KEY_WORDS, lambda: run(key=np.nan)),
    ("two keys", KEY_WORDS, lambda: run(key=jr.split(KEY, 2))),
    ("reductions", "`reductions`.* must be reductions",
     lambda: run(reductions={"mean": jnp.mean})),
    ("devices", "`devices`.* must be some of", lambda: run(devices=[])),
    ("one edge", EDGES, lambda: rollout.Histogram([1.0])),
    ("equal edges", EDGES, lambda: rollout.Histogram([0.0, 0.0])),
    ("falling edges", EDGES, lambda: rollout.Histogram([1.0, 0.0])),
    ("table of edges", "`edges`", lambda: rollout.Histogram([[0.0, 1.0]])),
)  # fmt: skip
def test_rollouts(words, call):
    check_refused(call, words)


def test_package_that_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(ImportError, match="zarr.*rollout"):
        run(store=rollout.Zarr(tmp_path / "x"))


class Lifted(Cart):
    """At x = 0."""

    def force(self, t, q, v, u):
        return jnp.zeros(1)

    def constraint(self, q, t):
        return q


def test_rollout_that_throws():
    """The remedy is named."""

    def one(height, key):
        state = mbd.State(0.0, height[None], jnp.zeros(1))
        return mbd.simulate(Lifted(), mbd.UdwadiaKalaba(), state, num_steps=1, dt=0.01)

    with pytest.raises(RuntimeError, match="violates the constraints.*`throw=False`") as caught:
        run(one, np.array([0.0, 0.5]))
    assert "\n" not in str(caught.value)

"""Bad input of rollouts that was once misunderstood; see `refusals`."""

import jax.numpy as jnp
import numpy as np
import pytest
from refusals import Cart, check_refused, refusals

import jaxmbd as mbd
from jaxmbd import rollout


def run(one=lambda x, key: 2 * x, samples=np.arange(4.0), **options):
    return rollout.run(one, samples, progress=False, **options)


@refusals(
    ("function-that-returns-none", "function of run returned None, which holds no numbers: return",
     lambda: run(lambda x, key: None)),
    ("function-that-returns-text", "function of run returned 'done' .*not an array of numbers",
     lambda: run(lambda x, key: "done")),
    ("not-a-function", "`one` of run must be a function, but is 1.0", lambda: run(1.0)),
    ("samples-of-objects", "`samples` must be numbers or random keys, but is",
     lambda: run(samples=np.array([Cart(), Cart()]))),
    ("samples-text", r"`samples` must be numbers or random keys, but is \['a', 'b'\]",
     lambda: run(samples=np.array(["a", "b"]))),
    ("chunk-2.0", "`chunk` of run must be a whole number, but is 2.0", lambda: run(chunk=2.0)),
    ("chunk-3", "`chunk` of run must be a power of two, but is 3: e.g. 2", lambda: run(chunk=3)),
    ("store-text", "`store` of run must be a `mbd.rollout.AbstractStore`.* but is 'here'",
     lambda: run(store="here")),
    ("Zarr-at-a-number", "`path` of Zarr must be text or a", lambda: rollout.Zarr(3)),
    ("Mean-of-text", "`of` of Mean must be a function", lambda: rollout.Mean("q")),
    ("Histogram-nan", "`edges` of Histogram must be finite",
     lambda: rollout.Histogram([0.0, np.nan])),
    ("memory-negative", "`memory` of run must be positive", lambda: run(memory=-1.0)),
    ("key-0", "`key` of run must be one random key", lambda: run(key=0)),
)  # fmt: skip
def test_rollouts(words, call):
    check_refused(call, words)


def test_rollout_that_throws():
    """The remedy is named, and counts the sample that failed."""

    def one(height, key, throw=True):
        state = mbd.State(0.0, height[None], jnp.zeros(1))
        return mbd.simulate(Lifted(), mbd.UdwadiaKalaba(), state, num_steps=1, dt=0.01, throw=throw)

    heights = jnp.array([0.0, 0.5])
    with pytest.raises(RuntimeError, match="violates the constraints.*`throw=False`") as caught:
        run(one, heights)
    assert "\n" not in str(caught.value)
    found = run(lambda height, key: one(height, key, throw=False), heights)
    assert found.failures.index.tolist() == [1]
    assert repr(found).startswith("2 samples: 1 succeeded, 1 failed")


class Lifted(Cart):
    """At x = 0."""

    def force(self, t, q, v, u):
        return jnp.zeros(1)

    def constraint(self, q, t):
        return q


def test_a_run_without_failures_is_printed():
    assert repr(run()).startswith("4 samples: 4 succeeded, 0 failed")

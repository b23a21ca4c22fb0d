"""Batches of rollouts equal `vmap`, in chunks, on several devices and in several processes.

Any samples, random keys and verdicts are allowed. Chunks are compiled once and fit the memory. Bad
input is refused."""

import os
import socket
import sys
from collections.abc import Callable
from unittest.mock import Mock

import diffrax
import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from refusals import check_refused, refusals
from rollouts import DATA, N, arrays, assert_same, files, in_memory, in_processes, run, stored

import jaxmbd as mbd
from jaxmbd import rollout
from jaxmbd._lanes import in_lanes

MANY = 300  # more than one chunk of 256; 128 is the least for lanes


def pushed(sample, key):
    """A pendulum with a push that is random in part."""
    length, start, push = sample
    push = jnp.stack([push, jr.normal(key)])
    sol = mbd.simulate(
        helpers.Pendulum(length=length),
        mbd.LagrangeMultipliers(alpha=5.0, beta=5.0, solver=mbd.Cholesky()),
        mbd.State(0.0, jnp.stack([start, jnp.zeros_like(start)]), jnp.zeros(2)),
        t1=0.05,
        dt=0.01,
        scheme=diffrax.Euler(),
        control=lambda t, q, v: push,
        saveat=diffrax.SaveAt(steps=2),
        throw=False,
    )
    return {"motion": sol, "push": push}


def test_chunks_and_lanes_are_vmap(monkeypatch):
    """In lanes by several threads. Every seventh start violates the rows."""
    monkeypatch.setattr("jaxmbd.rollout.program.cores", lambda: 3)
    length, push = np.random.default_rng(5).uniform(0.5, 2.0, (2, MANY))
    failed = np.arange(MANY) % 7 == 3
    samples = length, np.where(failed, 1.1, 1.0) * length, push - 1.0
    each = jax.jit(jax.vmap(lambda sample, i: pushed(sample, jr.fold_in(jr.key(7), i))))
    together = each(samples, np.arange(MANY))
    for n, options in ((N, dict(chunk=8)), (MANY, {})):
        found = run(pushed, [x[:n] for x in samples], **options)
        expected = jax.tree.map(lambda x, n=n: np.asarray(x)[:n], together)
        for x, y in zip(*map(jax.tree.leaves, (found.outputs, expected)), strict=True):
            np.testing.assert_allclose(x, y, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(found.failures.index, np.flatnonzero(failed[:n]))
        np.testing.assert_array_equal(found.good, ~failed[:n])
        helpers.assert_verdicts(found.failures.result, mbd.RESULTS.inconsistent_start)
        assert (found.n, found.computed, found.devices) == (n, n, 1)
    one = jax.make_jaxpr(pushed)([x[0] for x in samples], jr.key(7))
    assert in_lanes(one) is not None


def test_memory_map(tmp_path):
    np.save(tmp_path / "x.npy", DATA)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    found = run(lambda x, key: 2 * x, mapped, chunk=32)
    np.testing.assert_array_equal(found.outputs, 2 * DATA)


def test_eight_devices(tmp_path):
    """The last chunk is padded: 53 samples are 14 blocks of 4."""
    in_processes({"n": N, "chunk": 4, "output": f"{tmp_path}/x.npz"}, devices=8)
    found = np.load(tmp_path / "x.npz")
    assert (found["devices"], found["processes"]) == (8, 1)
    assert_same(found, arrays(in_memory(8)))


@pytest.mark.slow
@pytest.mark.parametrize("on_disk", [True, False])
def test_two_processes(tmp_path, on_disk):
    """Of two devices each, in memory and on one store."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    options = dict(n=N, chunk=4, store=f"{tmp_path}/both" if on_disk else None)
    own = [dict(output=f"{tmp_path}/{i}.npz", process=[2, i, address]) for i in range(2)]
    in_processes(*(options | one for one in own), devices=2)
    whole = stored(tmp_path / "whole", chunk=4) if on_disk else in_memory(8)
    for found in (np.load(one["output"]) for one in own):
        assert (found["devices"], found["processes"]) == (4, 2)
        assert_same(found, arrays(whole))
    if on_disk:
        assert files(tmp_path / "both") == files(tmp_path / "whole")


def test_every_verdict_counts(capsys):
    """Beside the outputs, anywhere in them, of diffrax, or of numbers that are not finite. The bar
    says how many failed."""

    def verdict(bad, name, results=mbd.RESULTS):
        return results.where(bad, getattr(results, name), results.successful)

    def one(i, key):
        x = jnp.where(i == 3, jnp.nan, jnp.where(i == 4, jnp.inf, 1.0))
        inside = verdict(i == 1, "max_steps_reached", diffrax.RESULTS), verdict(i == 2, "drift")
        return {"x": x, "inside": inside}, verdict(i >= 5, "gimbal_lock")

    found = run(one, 7, progress=True)
    names = ["max_steps_reached", "drift"] + 2 * ["nonfinite_output"] + 2 * ["gimbal_lock"]
    np.testing.assert_array_equal(found.failures.index, range(1, 7))
    helpers.assert_verdicts(found.failures.result, [getattr(mbd.RESULTS, name) for name in names])
    assert set(found.outputs) == {"x", "inside"}
    text, shown = str(found), capsys.readouterr().err
    assert text.startswith("7 samples: 1 succeeded, 6 failed") and "samples/s" in text
    assert "2 (5, 6): Roll-pitch-yaw coordinates reached gimbal lock" in text
    assert "samples/s" in shown and "6 failed" in shown and "7.00/7.00" in shown


def test_policies_and_shared_parts():
    """A batch of networks, whose activation is no array, and keys."""

    def one(sample, key):
        network, own = sample
        return network(jr.normal(own, (2,)))

    @eqx.filter_jit
    def made():
        make = lambda key: (eqx.nn.Linear(2, 3, key=key), key)  # noqa: E731
        linear, keys = eqx.filter_vmap(make)(jr.split(jr.key(7), 5))
        samples = eqx.nn.Sequential([linear, eqx.nn.Lambda(jax.nn.relu)]), keys
        return samples, eqx.filter_vmap(lambda sample: one(sample, None))(samples)

    samples, alone = made()
    np.testing.assert_allclose(run(one, samples, chunk=2).outputs, alone, rtol=1e-13)


def test_random_keys():
    """Of JAX's new and old kind."""
    keys = jr.key(7), jr.PRNGKey(7), jr.key(8)
    same, old, other = (run(lambda i, key: jr.normal(key), 20, key=key).outputs for key in keys)
    np.testing.assert_array_equal(old, same)
    assert not np.any(other == same)


class Gain(eqx.Module):
    gain: np.ndarray
    traced: Callable = eqx.field(static=True)

    def __call__(self, x, key):
        self.traced()
        return self.gain * x


def test_compiled_once():
    """For all chunks, the last of which is not full, and for other numbers in another run."""
    traced, reductions = Mock(), rollout.Mean()
    for gain in (2.0, 3.0):
        found = run(Gain(np.array(gain), traced), gain * DATA, chunk=16, reductions=reductions)
        np.testing.assert_allclose(found.statistics, gain**2 * DATA.mean(axis=0), rtol=1e-14)
    traced.assert_called_once()


def test_chunks_fit_the_memory():
    wide = lambda i, key: jnp.full(1000, i)  # noqa: E731
    free = run(wide, 200)
    assert free.chunk == 256 and free.bytes > 256 * 8000
    tight = run(wide, 200, memory=free.bytes / 5)
    assert tight.chunk == 32 and tight.bytes <= free.bytes / 5
    np.testing.assert_array_equal(tight.outputs, free.outputs)
    for chunk, words in ((None, "One sample"), (4, "A chunk of 4 samples")):
        words = f"{words} on each device takes .* KiB .* 1 KiB: .*saveat"
        with pytest.raises(ValueError, match=words):
            run(wide, 200, memory=1024, chunk=chunk)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads what Linux tells")
@pytest.mark.parametrize("store", [False, True])
def test_memory_is_flat(tmp_path, store):
    """Peak memory of a process: 200 MB more of samples, of 8 kB each, take no more of it."""
    peaks = []
    for n in (1000, 26_000):
        path = f"{tmp_path}/{n}" if store else None
        [(_, printed)] = in_processes(dict(n=n, chunk=256, store=path, memory=True))
        peaks.append(int(printed))
    assert peaks[1] < 1.1 * peaks[0]


def refused(one=lambda x, key: 2 * x, samples=np.arange(4.0), **options):
    return run(one, samples, **options)


EDGES = "`edges` must be two numbers or more that increase"


@refusals(
    ("no output", "function of run returned None, which holds no numbers: return",
     lambda: refused(lambda x, key: None)),
    ("an output that is a function", r"returned <.*> at `\['f'\]`.* not an array of numbers",
     lambda: refused(lambda x, key: {"f": len})),
    ("a random key as output", "not an array of numbers", lambda: refused(lambda x, key: key)),
    ("samples of text", r"`samples` must be numbers or random keys, but is \['a', 'b'\]",
     lambda: refused(samples=np.array(["a", "b"]))),
    ("other length", r"samples\['b'\]` has shape \(4,\)",
     lambda: refused(samples={"a": np.zeros((3, 2)), "b": np.zeros(4)})),
    ("no length", r"samples\[1\]` has shape \(\)",
     lambda: refused(samples=(np.zeros(3), np.array(1.0)))),
    ("no samples", "from 1 to 2147483647, but is 0", lambda: refused(samples=0)),
    ("a function as a sample", "has no arrays", lambda: refused(samples={"f": len})),
    ("chunk", "`chunk` of run must be a power of two, but is 12: e.g. 8",
     lambda: refused(chunk=12)),
    ("two keys", "`key` of run must be one random key", lambda: refused(key=jr.split(jr.key(7)))),
    ("reductions", "`reductions`.* must be reductions",
     lambda: refused(reductions={"mean": jnp.mean})),
    ("devices", "`devices`.* must be some of", lambda: refused(devices=[])),
    ("one edge", EDGES, lambda: rollout.Histogram([1.0])),
    ("equal edges", EDGES, lambda: rollout.Histogram([0.0, 0.0])),
)  # fmt: skip
def test_bad_input(words, call):
    check_refused(call, words)


def test_package_that_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(ImportError, match="zarr.*rollout"):
        refused(store=rollout.Zarr(tmp_path / "x"))

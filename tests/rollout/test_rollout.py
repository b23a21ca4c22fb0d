"""Batches of rollouts equal `vmap`, in chunks, on several devices and in several processes.

Any samples, random keys and verdicts are allowed. Chunks are compiled once and fit the memory."""

import os
import socket
from collections.abc import Callable
from unittest.mock import Mock

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import rollouts as r
from rollout_runs import DATA, KEY, N, assert_same, files, in_processes, run, stored

import jaxmbd as mbd
from jaxmbd._lanes import in_lanes
from jaxmbd._results import code

MANY = 300  # more than one chunk of 256; 128 is the least for lanes
WHOLE = dict(reductions=r.reductions(), store=mbd.rollout.Memory())


@pytest.fixture(scope="module")
def alone():
    """The rollouts in chunks of this process."""
    return run(r.one, r.samples(N), chunk=8, **WHOLE)


@pytest.fixture(scope="module")
def together():
    """Many more by `vmap`."""
    each = jax.vmap(lambda sample, i: r.one(sample, jr.fold_in(KEY, i)))
    return jax.jit(each)(r.samples(MANY), np.arange(MANY))


def are_together(found, together):
    first = jax.tree.map(lambda x: np.asarray(x)[: found.n], together)
    for x, y in zip(jax.tree.leaves(found.outputs), jax.tree.leaves(first), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-12)
    failed = np.flatnonzero(np.arange(found.n) % 7 == 3)
    np.testing.assert_array_equal(found.failures.index, failed)
    np.testing.assert_array_equal(np.flatnonzero(~found.good), failed)


def of_cheap(chunk):
    options = dict(reductions=r.of_cheap(), store=mbd.rollout.Memory(), chunk=chunk)
    return run(r.cheap, N, **options)


def test_chunks_are_vmap(alone, together):
    are_together(alone, together)
    np.testing.assert_array_equal(code(alone.failures.result), code(mbd.RESULTS.inconsistent_start))
    assert (alone.n, alone.computed, alone.chunk, alone.devices) == (N, N, 8, 1)


def test_rollouts_side_by_side(monkeypatch, together):
    """In lanes, failures included, by several threads."""
    monkeypatch.setattr("jaxmbd.rollout.program.cores", lambda: 3)
    are_together(run(r.one, r.samples(MANY), **WHOLE), together)
    sample = jax.tree.map(lambda x: np.asarray(x)[299], r.samples(MANY))
    assert in_lanes(jax.make_jaxpr(r.one)(sample, KEY)) is not None


def test_eight_devices(tmp_path):
    """The last chunk is padded: 53 samples are 14 blocks of 4."""
    in_processes({"n": N, "chunk": 4, "output": f"{tmp_path}/x.npz"}, devices=8)
    found = np.load(tmp_path / "x.npz")
    assert (found["devices"], found["processes"]) == (8, 1)
    assert_same(found, r.arrays(of_cheap(8)))


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
    whole = stored(tmp_path / "whole", chunk=4) if on_disk else of_cheap(8)
    for found in (np.load(one["output"]) for one in own):
        assert (found["devices"], found["processes"]) == (4, 2)
        assert_same(found, r.arrays(whole))
    if on_disk:
        assert files(tmp_path / "both") == files(tmp_path / "whole")


@pytest.mark.slow
def test_motions_in_a_store(alone, tmp_path):
    zarr = pytest.importorskip("zarr")
    run(r.one, r.samples(N), chunk=8, store=mbd.rollout.Zarr(tmp_path))
    group = zarr.open_group(str(tmp_path), mode="r")
    q = alone.outputs["motion"].q
    np.testing.assert_allclose(group["outputs/motion/q"][:], q, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(group["status"][:], code(alone.outputs["motion"].result))
    texts = group.attrs["jaxmbd.rollout"]["verdicts"]
    assert texts[group["status"][3]] == mbd.RESULTS[mbd.RESULTS.inconsistent_start]


def test_statistics_do_not_depend_on_chunks():
    """To the last bit, where the outputs do not: neighbours are merged first, however they come."""
    expected = of_cheap(8)
    assert expected.outputs["index"].tolist() == list(range(N))
    for chunk in (1, 64):
        assert_same(r.arrays(of_cheap(chunk)), r.arrays(expected), tolerance=0.0)


def test_every_verdict_counts():
    """Beside the outputs, anywhere in them, of diffrax, or of numbers that are not finite."""

    def verdict(bad, name, results=mbd.RESULTS):
        return results.where(bad, getattr(results, name), results.successful)

    def one(i, key):
        x = jnp.where(i == 3, jnp.nan, jnp.where(i == 4, jnp.inf, 1.0))
        inside = verdict(i == 1, "max_steps_reached", diffrax.RESULTS), verdict(i == 2, "drift")
        return {"x": x, "inside": inside}, verdict(i >= 5, "gimbal_lock")

    found = run(one, 7)
    names = ["max_steps_reached", "drift"] + 2 * ["nonfinite_output"] + 2 * ["gimbal_lock"]
    np.testing.assert_array_equal(found.failures.index, range(1, 7))
    codes = [code(getattr(mbd.RESULTS, name)) for name in names]
    np.testing.assert_array_equal(code(found.failures.result), codes)
    assert set(found.outputs) == {"x", "inside"}
    text = str(found)
    assert text.startswith("7 samples: 1 succeeded, 6 failed") and "samples/s" in text
    assert "2 (5, 6): Roll-pitch-yaw coordinates reached gimbal lock" in text


def test_policies_and_shared_parts():
    """A batch of networks, whose activation is no array, and keys."""

    def one(sample, key):
        network, own = sample
        return network(jr.normal(own, (2,)))

    @eqx.filter_jit
    def made():
        make = lambda key: (eqx.nn.Linear(2, 3, key=key), key)  # noqa: E731
        linear, keys = eqx.filter_vmap(make)(jr.split(KEY, 5))
        samples = eqx.nn.Sequential([linear, eqx.nn.Lambda(jax.nn.relu)]), keys
        return samples, eqx.filter_vmap(lambda sample: one(sample, None))(samples)

    samples, alone = made()
    np.testing.assert_allclose(run(one, samples, chunk=2).outputs, alone, rtol=1e-13)


def test_memory_map(tmp_path):
    np.save(tmp_path / "x.npy", DATA)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    found = run(lambda x, key: 2 * x, mapped, chunk=32)
    np.testing.assert_array_equal(found.outputs, 2 * DATA)


def test_random_keys_are_those_of_the_samples():
    draw = lambda i, key: jr.normal(key)  # noqa: E731
    draws = run(draw, 20, chunk=4).outputs
    own = jax.jit(jax.vmap(lambda i: jr.normal(jr.fold_in(KEY, i))))
    np.testing.assert_array_equal(draws, own(np.arange(20)))
    assert not np.any(draws == run(draw, 20, chunk=4, key=jr.key(8)).outputs)
    np.testing.assert_array_equal(run(draw, 20, chunk=4, key=jr.PRNGKey(7)).outputs, draws)


class Gain(eqx.Module):
    gain: np.ndarray
    traced: Callable = eqx.field(static=True)

    def __call__(self, x, key):
        self.traced()
        return self.gain * x


def test_compiled_once():
    """For all chunks, the last of which is not full, and for other numbers in another run."""
    traced, reductions = Mock(), mbd.rollout.Mean()
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
    peaks = {}
    for n in (1000, 26_000):
        path = f"{tmp_path}/{n}" if store else None
        [(_, printed)] = in_processes(dict(n=n, chunk=256, store=path, memory=True))
        peaks[n] = int(printed) / 1024
    print(f"peak memory in MiB, by the number of samples: {peaks}")
    assert peaks[26_000] < 1.1 * peaks[1000]


def test_bar(capsys):
    """It says how fast it goes and how many failed."""
    found = run(r.cheap, N, chunk=8, progress=True)
    assert repr(found).startswith("53 samples: 42 succeeded, 11 failed")
    shown = capsys.readouterr().err
    assert "samples/s" in shown and "11 failed" in shown and "53.0/53.0" in shown

"""Batches of rollouts: the same in chunks, on several devices and in several processes, with
statistics, on disk, and after an interruption."""

import collections
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings

import diffrax
import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import rollouts as r

import jaxmbd as mbd

N, KEY = 53, jr.key(7)
HERE = pathlib.Path(__file__).resolve().parent
TESTS = HERE.parent


def run(one, samples, **options):
    return mbd.rollout.run(one, samples, **{"key": KEY, "progress": False, **options})


def in_processes(*configurations, devices=1):
    """Each runs `rollouts.py`, all at once; their exit statuses and what they printed."""
    environment = dict(
        os.environ,
        JAX_PLATFORMS="cpu",
        PYTHONPATH=os.pathsep.join([str(TESTS.parent), str(TESTS)]),
        XLA_FLAGS=f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}",
    )
    command = [sys.executable, str(HERE / "rollouts.py")]
    started = [
        subprocess.Popen(
            [*command, json.dumps(configuration)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for configuration in configurations
    ]
    ended = [process.communicate(timeout=300) for process in started]
    for process, (_, errors) in zip(started, ended, strict=True):
        assert process.returncode <= 0, errors
    return [(p.returncode, printed) for p, (printed, _) in zip(started, ended, strict=True)]


def assert_same(found, expected, tolerance=1e-12):
    assert found.keys() >= expected.keys()
    for name, x in expected.items():
        if np.issubdtype(x.dtype, np.inexact):
            scale = max(1.0, np.max(np.abs(x), initial=0.0))
            np.testing.assert_allclose(found[name], x, rtol=0, atol=tolerance * scale, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], x, err_msg=name)


@pytest.fixture(scope="module")
def alone():
    """The rollouts in chunks of this process."""
    return run(r.one, r.samples(N), reductions=r.reductions(), store=mbd.rollout.Memory(), chunk=8)


# --- the same everywhere -------------------------------------------------------------------------


def test_chunks_are_vmap(alone):
    keys = jax.vmap(lambda i: jr.fold_in(KEY, i))(jnp.arange(N))
    together = jax.jit(jax.vmap(r.one))(r.samples(N), keys)
    for x, y in zip(jax.tree.leaves(alone.outputs), jax.tree.leaves(together), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-12)
    failed = np.flatnonzero(np.arange(N) % 7 == 3)
    np.testing.assert_array_equal(alone.failures.index, failed)
    assert jnp.all(alone.failures.result == mbd.RESULTS.inconsistent_start)
    np.testing.assert_array_equal(~alone.good, np.arange(N) % 7 == 3)
    assert (alone.n, alone.computed, alone.chunk, alone.devices) == (N, N, 8, 1)


def test_eight_devices(alone, tmp_path):
    """The last chunk is padded: 53 samples are 14 blocks of 4."""
    in_processes({"n": N, "chunk": 4, "output": f"{tmp_path}/x.npz"}, devices=8)
    found = np.load(tmp_path / "x.npz")
    assert (found["devices"], found["processes"]) == (8, 1)
    assert_same(found, r.arrays(alone))


def two_processes(folder, **configuration):
    """What both of them found, of two devices each."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    own = [dict(output=f"{folder}/{i}.npz", process=[2, i, address]) for i in range(2)]
    in_processes(*({"n": N, "chunk": 4, **configuration, **one} for one in own), devices=2)
    found = [np.load(folder / f"{i}.npz") for i in range(2)]
    assert all((x["devices"], x["processes"]) == (4, 2) for x in found)
    return found


def test_two_processes_on_one_store(tmp_path):
    whole = stored(tmp_path / "whole", chunk=4)
    for found in two_processes(tmp_path, store=f"{tmp_path}/both", quick=True):
        assert_same(found, r.arrays(whole))
    assert files(tmp_path / "both") == files(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("store", [True, False])
def test_two_processes(alone, tmp_path, store):
    path = f"{tmp_path}/store" if store else None
    expected = r.arrays(alone)
    if store:
        names = [name for name in expected if not name.startswith("['outputs']")]
        expected = {name: expected[name] for name in names}
    for found in two_processes(tmp_path, store=path):
        assert_same(found, expected)
    if store:
        check_stored(path, alone)


def check_stored(path, alone):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(path, mode="r")
    q = alone.outputs["motion"].q
    np.testing.assert_allclose(group["outputs/motion/q"][:], q, rtol=0, atol=1e-12)
    codes = jax.tree.leaves(alone.outputs["motion"].result)[0]
    np.testing.assert_array_equal(group["status"][:], codes)
    texts = group.attrs["jaxmbd.rollout"]["verdicts"]
    assert texts[group["status"][3]] == mbd.RESULTS[mbd.RESULTS.inconsistent_start]


@pytest.mark.parametrize("chunk", [1, 2, 64])
def test_statistics_do_not_depend_on_chunks(chunk):
    """To the last bit, where the outputs do not: neighbours are merged first, however they come."""
    options = dict(reductions=r.of_cheap(), store=mbd.rollout.Memory())
    some, others = (run(r.cheap, N, chunk=size, **options) for size in (chunk, 8))
    a, b = r.arrays(some), r.arrays(others)
    assert_same(a, b, tolerance=0.0)
    assert run(r.cheap, N, chunk=16).outputs["index"].tolist() == list(range(N))


# --- threads -------------------------------------------------------------------------------------


def use_threads(monkeypatch, count):
    monkeypatch.setattr("jaxmbd.rollout.program.cores", lambda: count)


@pytest.mark.parametrize("chunk", [1, 8, None])
def test_any_number_of_threads(monkeypatch, chunk):
    """The same outputs, verdicts and statistics to the last bit, in chunks that none of the threads
    fills, and in some that it shares."""
    found = []
    for count in (1, 2, 5):
        use_threads(monkeypatch, count)
        options = dict(reductions=r.reductions(), store=mbd.rollout.Memory(), chunk=chunk)
        found.append(run(r.one, r.samples(N), **options))
        assert found[-1].threads == count
    for other in found[1:]:
        assert_same(r.arrays(other), r.arrays(found[0]), tolerance=0.0)


def test_same_files_by_threads(monkeypatch, tmp_path):
    """Also when one of them goes on with what another number of them began."""
    for count in (1, 3):
        use_threads(monkeypatch, count)
        stored(tmp_path / f"{count}")
    use_threads(monkeypatch, 1)
    interrupted(tmp_path / "broken")
    use_threads(monkeypatch, 3)
    done = []
    stored(tmp_path / "broken", progress=lambda *x: done.append(x))
    assert done == [(48, N), (N, N)]
    assert files(tmp_path / "3") == files(tmp_path / "1") == files(tmp_path / "broken")


def called(fn):
    """A sample that calls `fn` of Python with its index, while it is computed."""

    def host(index):
        fn(int(index))
        return np.float64(index)

    return lambda index, key: jax.pure_callback(host, jax.ShapeDtypeStruct((), float), index)


@pytest.mark.parametrize("chunk", [1, 8])
def test_threads_compute_at_the_same_time(monkeypatch, chunk):
    """Each sample waits until another one is computed."""
    use_threads(monkeypatch, 2)
    both = threading.Barrier(2)
    found = run(called(lambda index: both.wait(timeout=60)), 8, chunk=chunk)
    np.testing.assert_array_equal(found.outputs, np.arange(8))


@pytest.mark.parametrize("count", [1, 3])
def test_error_in_a_thread(monkeypatch, count):
    """It comes through as the function raised it."""
    use_threads(monkeypatch, count)

    def one(index, key):
        return eqx.error_if(index.astype(float), index == 13, "unlucky")

    with pytest.raises(RuntimeError, match="The function of run raised an error: unlucky With"):
        run(one, N, chunk=8)


@pytest.mark.parametrize("count", [1, 2])
def test_interrupted_by_the_user(monkeypatch, count):
    """Ctrl-C stops the threads as soon as they have computed what they had begun."""
    use_threads(monkeypatch, count)
    pressed, seen, main = threading.Event(), [], threading.get_ident()

    def host(index):
        seen.append(index)
        if not pressed.is_set():
            pressed.set()
            signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.05)

    # A process in the background ignores the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(called(host), 64, chunk=8)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(seen) < 64


# --- statistics ----------------------------------------------------------------------------------


DATA = np.random.default_rng(3).normal(size=(200, 3)) + 1e6
FAILED = np.random.default_rng(4).random(200) < 0.1


def one_of_data(sample, key):
    x, failed = sample
    result = mbd.RESULTS.where(failed, mbd.RESULTS.drift, mbd.RESULTS.successful)
    return {"x": x, "whole": jnp.round(x[0]).astype(int)}, result


def of_data(reduction, chunk=16, data=DATA, failed=FAILED):
    return run(one_of_data, (data, failed), reductions=reduction, chunk=chunk).statistics


def test_moments():
    """Of good samples, and of numbers whose squares would lose all digits of the variance."""
    found, good = of_data(mbd.rollout.Moments()), DATA[~FAILED]
    assert found.count == len(good)
    np.testing.assert_allclose(found.mean["x"], good.mean(axis=0), rtol=1e-15)
    np.testing.assert_allclose(found.variance["x"], good.var(axis=0, ddof=1), rtol=1e-9)
    np.testing.assert_allclose(found.mean["whole"], np.round(good[:, 0]).mean(), rtol=1e-15)
    np.testing.assert_allclose(found.deviation["x"], good.std(axis=0, ddof=1), rtol=1e-9)
    error = good.std(axis=0, ddof=1) / np.sqrt(len(good))
    np.testing.assert_allclose(found.standard_error["x"], error, rtol=1e-9)
    mean = of_data(mbd.rollout.Mean(lambda y: y["x"]))
    np.testing.assert_allclose(mean, good.mean(axis=0), rtol=1e-15)


def test_covariance():
    found, good = of_data(mbd.rollout.Covariance(lambda y: y["x"])), DATA[~FAILED]
    np.testing.assert_allclose(found.covariance, np.cov(good.T), rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.correlation, np.corrcoef(good.T), rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.mean, good.mean(axis=0), rtol=1e-15)


def test_extremes():
    """And whose they are: of equal values, the first sample."""
    data = np.round(DATA, 1)
    found = of_data(mbd.rollout.Extremes(lambda y: y["x"]), data=data)
    masked = np.where(FAILED[:, None], np.nan, data)
    np.testing.assert_array_equal(found.min, np.nanmin(masked, axis=0))
    np.testing.assert_array_equal(found.max, np.nanmax(masked, axis=0))
    np.testing.assert_array_equal(found.argmin, np.nanargmin(masked, axis=0))
    np.testing.assert_array_equal(found.argmax, np.nanargmax(masked, axis=0))


def test_histogram():
    data = np.round(DATA - 1e6, 1)  # many on an edge
    edges = np.linspace(-1.0, 1.5, 6)
    found = of_data(mbd.rollout.Histogram(edges, lambda y: y["x"]), data=data)
    for column in range(3):
        x = data[~FAILED, column]
        np.testing.assert_array_equal(found.counts[column], np.histogram(x, edges)[0])
        assert found.below[column] == np.sum(x < -1.0) and found.above[column] == np.sum(x > 1.5)


class Word(mbd.rollout.AbstractReduction):
    """First and last index, and a product of rotations, which does not commute."""

    def single(self, output, index):
        angle = output["x"] - 1e6
        turn = mbd.quaternion_exp(angle)
        return index, index, turn

    def merge(self, a, b):
        return a[0], b[1], mbd.quaternion_product(a[2], b[2])

    def result(self, state):
        return jax.tree.map(np.asarray, state)


@pytest.mark.parametrize("chunk", [1, 32])
def test_a_reduction_of_ones_own(chunk):
    """Samples are merged in their order, without those that failed."""
    first, last, turn = of_data({"word": Word()}, chunk)["word"]
    good = np.flatnonzero(~FAILED)
    assert (first, last) == (good[0], good[-1])
    turns = jax.vmap(mbd.quaternion_exp)(DATA[good] - 1e6)
    expected, _ = jax.lax.scan(
        lambda a, b: (mbd.quaternion_product(a, b), None), jnp.array([1.0, 0, 0, 0]), turns
    )
    np.testing.assert_allclose(turn, expected, rtol=0, atol=1e-13)


def test_no_good_sample():
    found = run(
        one_of_data,
        (DATA, np.ones(200, bool)),
        reductions={"mean": mbd.rollout.Mean(), "moments": mbd.rollout.Moments()},
    )
    assert found.statistics == {"mean": None, "moments": None}
    assert "0 succeeded, 200 failed" in str(found)


def test_one_sample():
    found = of_data(mbd.rollout.Moments(), data=DATA[:1], failed=FAILED[:1])
    np.testing.assert_array_equal(found.mean["x"], DATA[0])
    assert np.all(np.isnan(found.variance["x"]))


# --- verdicts ------------------------------------------------------------------------------------


def test_every_verdict_counts():
    """Beside the outputs, anywhere in them, of diffrax, or of numbers that are not finite."""

    def one(i, key):
        bad = diffrax.RESULTS.where(
            i == 1, diffrax.RESULTS.max_steps_reached, diffrax.RESULTS.successful
        )
        nested = mbd.RESULTS.where(i == 2, mbd.RESULTS.drift, mbd.RESULTS.successful)
        x = jnp.where(i == 3, jnp.nan, jnp.where(i == 4, jnp.inf, 1.0))
        beside = mbd.RESULTS.where(i >= 5, mbd.RESULTS.gimbal_lock, mbd.RESULTS.successful)
        return {"x": x, "inside": [bad, nested]}, beside

    found = run(one, 7)
    names = ["max_steps_reached", "drift"] + 2 * ["nonfinite_output"] + 2 * ["gimbal_lock"]
    np.testing.assert_array_equal(found.failures.index, range(1, 7))
    codes = [jax.tree.leaves(getattr(mbd.RESULTS, name))[0] for name in names]
    np.testing.assert_array_equal(jax.tree.leaves(found.failures.result)[0], codes)
    assert set(found.outputs) == {"x", "inside"}
    text = str(found)
    assert text.startswith("7 samples: 1 succeeded, 6 failed") and "samples/s" in text
    assert "2 (5, 6): Roll-pitch-yaw coordinates reached gimbal lock" in text


# --- samples -------------------------------------------------------------------------------------


def test_policies_and_shared_parts():
    """A batch of networks, whose activation is no array; keys; and a memory map."""
    networks = eqx.filter_vmap(lambda key: eqx.nn.MLP(2, "scalar", 4, 1, key=key))(jr.split(KEY, 5))
    keys = jr.split(jr.key(1), 5)

    def one(sample, key):
        network, own = sample
        return network(jr.normal(own, (2,)))

    found = run(one, (networks, keys), chunk=2).outputs
    alone = eqx.filter_vmap(lambda network, key: one((network, key), key))(networks, keys)
    np.testing.assert_allclose(found, alone, rtol=1e-13)


def test_memory_map(tmp_path):
    np.save(tmp_path / "x.npy", DATA)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    found = run(lambda x, key: 2 * x, mapped, chunk=32)
    np.testing.assert_array_equal(found.outputs, 2 * DATA)


def test_random_keys_are_those_of_the_samples():
    draws = run(lambda i, key: jr.normal(key), 20, chunk=4).outputs
    expected = [jr.normal(jr.fold_in(KEY, i)) for i in range(20)]
    np.testing.assert_array_equal(draws, expected)
    assert not np.any(draws == run(lambda i, key: jr.normal(key), 20, key=jr.key(8)).outputs)
    old = run(lambda i, key: jr.normal(key), 20, key=jr.PRNGKey(7)).outputs
    np.testing.assert_array_equal(old, draws)


# --- compilation and memory ----------------------------------------------------------------------


class Counted(eqx.Module):
    gain: jax.Array
    traced: collections.Counter = eqx.field(static=True)

    def __call__(self, x, key):
        self.traced["times"] += 1
        return self.gain * x


class Hashable(collections.Counter):
    def __hash__(self):  # type: ignore
        return id(self)

    def __eq__(self, other):
        return self is other


def test_compiled_once():
    """For all chunks, the last of which is not full, and for other numbers in another run."""
    traced = Hashable()
    reductions = mbd.rollout.Mean()
    for gain in (2.0, 3.0):
        one = Counted(jnp.asarray(gain), traced)
        found = run(one, gain * DATA, chunk=16, reductions=reductions)
        np.testing.assert_allclose(found.statistics, gain**2 * DATA.mean(axis=0), rtol=1e-14)
    assert traced["times"] == 1


def wide(i, key):
    return jnp.full(1000, i)


def test_chunks_fit_the_memory():
    free = run(wide, 200)
    assert free.chunk == 256 and free.bytes > 256 * 8000
    tight = run(wide, 200, memory=free.bytes / 5)
    assert tight.chunk == 32 and tight.bytes <= free.bytes / 5
    np.testing.assert_array_equal(tight.outputs, free.outputs)


@pytest.mark.parametrize("chunk, words", [(None, "One sample"), (4, "A chunk of 4 samples")])
def test_too_little_memory(chunk, words):
    with pytest.raises(ValueError, match=f"{words} on each device takes .* KiB .* 1 KiB: .*saveat"):
        run(wide, 200, memory=1024, chunk=chunk)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads what Linux tells")
@pytest.mark.parametrize("store", [False, True])
def test_memory_is_flat(tmp_path, store):
    """Peak memory of a process: 100 times the samples, of 8 kB each, take no more of it."""
    peaks = {}
    for n in (1000, 100_000):
        path = f"{tmp_path}/{n}" if store else None
        [(_, printed)] = in_processes(dict(n=n, chunk=256, store=path, memory=True))
        peaks[n] = int(printed) / 1024
    print(f"peak memory in MiB, by the number of samples: {peaks}")
    assert peaks[100_000] < 1.1 * peaks[1000]


# --- on disk -------------------------------------------------------------------------------------


def files(path):
    """Names and contents of all files of a folder."""
    path = pathlib.Path(path)
    return {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file()}


def stored(path, one=r.cheap, n=N, **options):
    pytest.importorskip("zarr")
    options = {"reductions": r.of_cheap(), "chunk": 8, **options}
    return run(one, n, store=mbd.rollout.Zarr(path), **options)


class Stop(Exception):
    pass


def stop_after(count):
    def hook(done, total):
        assert total == N
        if done >= count:
            raise Stop

    return hook


def interrupted(path, count=40, **options):
    with pytest.raises(Stop):
        stored(path, progress=stop_after(count), **options)


@pytest.mark.parametrize("chunk", [8, 2, 32])
def test_goes_on_after_an_interruption(tmp_path, chunk):
    """Also in chunks of another size: the same files, byte for byte, statistics and failures."""
    whole = stored(tmp_path / "whole")
    interrupted(tmp_path / "broken")
    resumed = stored(tmp_path / "broken", chunk=chunk)
    assert 0 < resumed.computed < N and "of them from before" in str(resumed)
    assert files(tmp_path / "broken") == files(tmp_path / "whole")
    assert_same(r.arrays(resumed), r.arrays(whole), tolerance=0.0)
    again = stored(tmp_path / "broken")
    assert again.computed == 0
    assert_same(r.arrays(again), r.arrays(whole), tolerance=0.0)


@pytest.mark.parametrize("dies_at", h.slow_unless(lambda k: k == 20, [1, 7, 20, 21, 22]))
def test_killed(tmp_path, dies_at):
    """By SIGKILL at a write: the first and last one of the metadata, of the outputs of a chunk, of
    their status, and of their checksums."""
    whole = stored(tmp_path / "whole")
    broken = dict(n=N, chunk=8, store=f"{tmp_path}/broken", quick=True)
    [(status, _)] = in_processes({**broken, "dies_at": dies_at})
    assert status == -9
    assert files(tmp_path / "broken") != files(tmp_path / "whole")
    resumed = stored(tmp_path / "broken")
    # Seven files of metadata, then five of each chunk.
    assert resumed.computed == N - 8 * max(0, (dies_at - 1 - 7) // 5)
    assert files(tmp_path / "broken") == files(tmp_path / "whole")
    assert_same(r.arrays(resumed), r.arrays(whole), tolerance=0.0)


def damage(file, kind, rng):
    """As disks, copies and people do."""
    data = file.read_bytes()
    at = int(rng.integers(len(data)))
    if kind == "missing":
        file.unlink()
    elif kind == "empty":
        file.write_bytes(b"")
    elif kind == "truncated":
        file.write_bytes(data[:at])
    elif kind == "changed":
        file.write_bytes(data[:at] + bytes([data[at] ^ int(rng.integers(1, 256))]) + data[at + 1 :])
    elif kind == "zeros":
        file.write_bytes(data[:at] + bytes(len(data) - at))


DAMAGE = ["missing", "empty", "truncated", "changed", "zeros"]


@pytest.mark.parametrize("times", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_damaged(tmp_path, times):
    """Any file, anywhere: the samples are named and written again, with the same files."""
    pytest.importorskip("zarr")
    rng = np.random.default_rng(times)
    r.write_store(tmp_path, 10)
    before = files(tmp_path)
    for _ in range(times):
        name, kind = rng.choice(sorted(before)), rng.choice(DAMAGE)
        damage(tmp_path / name, kind, rng)
        chunk = name.partition("/c/")[2]
        expected = []
        if chunk and files(tmp_path) != before:  # unless zeros took the place of zeros
            first = r.BLOCK * int(chunk.partition("/")[0])
            expected = list(range(first, min(first + r.BLOCK, 10)))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            missing = r.write_store(tmp_path, 10)
        assert missing == expected, (name, kind)
        # Without its checksums, a chunk is one that was not finished.
        named = bool(expected) and not (name.startswith("checksums") and kind == "missing")
        assert len(caught) == named, (name, kind)
        if named:
            assert f"samples {expected[0]} to {expected[-1]} are" in str(caught[0].message)
        assert files(tmp_path) == before, (name, kind)


def test_goes_on_after_damage(tmp_path):
    """A missing chunk of the outputs, truncated ones of outputs and status, and truncated metadata:
    all of them are repaired at once, outputs and statistics are as before."""
    whole = stored(tmp_path / "x")
    before = files(tmp_path / "x")
    (tmp_path / "x/outputs/x/c/1/0").unlink()
    for name in ("outputs/large/c/3/0", "status/c/6", "zarr.json", "outputs/x/zarr.json"):
        file = tmp_path / "x" / name
        file.write_bytes(file.read_bytes()[:-5])
    words = (
        "outputs/x/c/1/0, outputs/large/c/3/0, status/c/6 differ from what was written: "
        "samples 8 to 15, 24 to 31, 48 to 52 are computed again"
    )
    with pytest.warns(UserWarning, match=words):
        again = stored(tmp_path / "x")
    assert again.computed == 8 + 8 + 5
    assert files(tmp_path / "x") == before
    assert_same(r.arrays(again), r.arrays(whole), tolerance=0.0)


def test_damaged_beyond_repair(tmp_path):
    """Both copies of what the run was started with."""
    r.write_store(tmp_path, 10)
    for name in ("zarr.json", "status/zarr.json"):
        file = tmp_path / name
        file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ValueError, match="`zarr.json` and `status/zarr.json` in it are both"):
        r.write_store(tmp_path, 10)


def test_chunk_in_the_place_of_another(tmp_path):
    """Both are sound, but are not what was computed there."""
    r.write_store(tmp_path, 10)
    column = tmp_path / "outputs/x/c"
    (column / "2/0").write_bytes((column / "1/0").read_bytes())
    with pytest.warns(UserWarning, match=r"outputs/x/c/2/0 differ .*: samples 8 to 9 are"):
        assert r.write_store(tmp_path, 10) == [8, 9]


@pytest.mark.slow
def test_killed_at_any_instant(tmp_path):
    """A hundred times by SIGKILL, each time going on where the one before ended, or anew when all
    is there: what is found is what was computed."""
    command = [sys.executable, str(HERE / "rollouts.py"), json.dumps({"kills": str(tmp_path)})]
    path = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    environment = dict(os.environ, JAX_PLATFORMS="cpu", PYTHONPATH=path)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    kills, went_on = map(int, done.stdout.split())
    print(f"{kills} kills, {went_on} processes went on with some chunks")
    assert kills == 100 and went_on >= 20


def test_outputs_on_disk(tmp_path):
    found = stored(tmp_path / "x")
    in_memory = run(r.cheap, N, chunk=8)
    for name in ("x", "index", "large"):
        np.testing.assert_array_equal(found.outputs[f"outputs/{name}"][:], in_memory.outputs[name])
    with pytest.raises(ValueError):
        found.outputs["status"][0] = 3


def test_values_that_are_no_group(tmp_path):
    """A single array, one without entries, and a part that is not there yet."""
    run(
        lambda i, key: i.astype(float),
        5,
        store=mbd.rollout.Zarr(tmp_path / "a"),
    )
    empty = run(
        lambda i, key: {"none": jnp.zeros((2, 0)), "b": i > 2},
        5,
        store=mbd.rollout.Zarr(tmp_path / "b"),
    )
    assert empty.outputs["outputs/none"].shape == (5, 2, 0)
    np.testing.assert_array_equal(empty.outputs["outputs/b"][:], np.arange(5) > 2)
    interrupted(tmp_path / "c", count=8)
    zarr = pytest.importorskip("zarr")
    x = zarr.open_group(str(tmp_path / "c"), mode="r")
    there = x["status"][:] >= 0
    assert np.all(np.isnan(x["outputs/x"][:][~there])) and np.all(np.isfinite(x["outputs/x"][:8]))


def other_shape(index, key):
    outputs, result = r.cheap(index, key)
    return {**outputs, "x": outputs["x"][:2]}, result


def other_value(index, key):
    outputs, result = r.cheap(index, key)
    return {**outputs, "x": 1.001 * outputs["x"]}, result


@pytest.mark.parametrize(
    "change, words",
    [
        (dict(n=N + 1), r"other samples \(53 there, 54 here\)"),
        (dict(key=jr.key(8)), r"other key \(\[0, 7\] there, \[0, 8\] here\)"),
        (dict(one=other_shape), r"other outputs .*'x': \['float64', 3\]"),
        (dict(one=other_value), "outputs of samples 0 to 7 differ from those that the function"),
    ],
    ids=["n", "key", "shape", "function"],
)
def test_refuses_to_go_on_with_something_else(tmp_path, change, words):
    interrupted(tmp_path / "x")
    with pytest.raises(ValueError, match=words):
        stored(tmp_path / "x", **{**change, "reductions": None})


def test_refuses_other_samples(tmp_path):
    where = mbd.rollout.Zarr(tmp_path / "x")
    run(lambda x, key: x[0], DATA, store=where)
    changed = DATA.copy()
    changed[-1, 1] += 1.0
    with pytest.raises(ValueError, match="other values of the samples"):
        run(lambda x, key: x[0], changed, store=where)


def test_refuses_what_is_no_store(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "thesis.tex").write_text("words")
    (tmp_path / "y").write_text("words")
    for name in ("x", "y"):
        with pytest.raises(ValueError, match="holds something other than rollouts"):
            stored(tmp_path / name)


# --- input ---------------------------------------------------------------------------------------


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


def test_bar(capsys):
    """It says how fast it goes and how many failed."""
    run(r.cheap, N, chunk=8, progress=True)
    shown = capsys.readouterr().err
    assert "samples/s" in shown and "11 failed" in shown and "53.0/53.0" in shown

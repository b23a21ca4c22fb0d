"""Rollouts on disk. After an interruption, a kill or damage they end in the same files, byte for
byte."""

import warnings

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import rollouts as r
from rollouts import DATA, N, Stop, files, in_processes, interrupted, run, stored

import jaxmbd as mbd


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Its folder, and what was found."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, stored(folder)


def is_whole(folder, found, whole):
    assert files(folder) == files(whole[0])
    r.assert_same(r.arrays(found), r.arrays(whole[1]), tolerance=0.0)


@pytest.mark.parametrize("chunk", [2, 32])
def test_goes_on_after_an_interruption(tmp_path, whole, chunk):
    """Also in chunks of another size: the same files, byte for byte, statistics and failures."""
    interrupted(tmp_path / "broken")
    resumed = stored(tmp_path / "broken", chunk=chunk)
    assert 0 < resumed.computed < N and "of them from before" in str(resumed)
    is_whole(tmp_path / "broken", resumed, whole)
    again = stored(tmp_path / "broken")
    assert again.computed == 0
    is_whole(tmp_path / "broken", again, whole)


@pytest.mark.parametrize("dies_at", [7, 20, 21, 22, pytest.param(0, marks=pytest.mark.slow)])
def test_killed(tmp_path, whole, dies_at, monkeypatch):
    """At a write: the last one of the metadata, of the outputs of a chunk, of their status, and of
    their checksums. At the 20th one also by SIGKILL."""
    if dies_at == 0:
        dies_at = 20
        [(status, _)] = in_processes(dict(n=N, chunk=8, store=f"{tmp_path}/broken", dies_at=20))
        assert status == -9
    else:

        def stop():
            raise Stop

        with monkeypatch.context() as patch, pytest.raises(Stop):
            r.ends_at(dies_at, stop, patch.setattr)
            stored(tmp_path / "broken")
    assert files(tmp_path / "broken") != files(whole[0])
    resumed = stored(tmp_path / "broken")
    # Seven files of metadata, then five of each chunk.
    assert resumed.computed == N - 8 * max(0, (dies_at - 1 - 7) // 5)
    is_whole(tmp_path / "broken", resumed, whole)


BLOCK = 4


def write_store(path, n=10):
    """All of n samples that is not there yet; which ones these are. What is found is right."""
    pytest.importorskip("zarr")
    output = {"x": jax.ShapeDtypeStruct((50,), float), "index": jax.ShapeDtypeStruct((), int)}
    record = mbd.rollout.Zarr(path).open(mbd.rollout.Layout(n, output, [0], "", BLOCK))
    missing = np.flatnonzero(record.status < 0).tolist()
    for first in range(0, n, BLOCK):
        index = np.arange(first, min(first + BLOCK, n))
        outputs = {"x": np.sin(index)[:, None] * np.ones(50), "index": index}
        status = (index % 3).astype(np.int16)
        if first in missing:
            record.write(first, outputs, status)
        jax.tree.map(np.testing.assert_array_equal, record.read(first, index[-1] + 1), outputs)
        np.testing.assert_array_equal(record.status[index], status)
    return missing


def damage(file, kind, rng):
    """As disks, copies and people do."""
    data = file.read_bytes()
    at = int(rng.integers(len(data)))
    if kind == "missing":
        return file.unlink()
    rest = {
        "empty": b"",
        "truncated": data[:at],
        "changed": data[:at] + bytes([data[at] ^ int(rng.integers(1, 256))]) + data[at + 1 :],
        "zeros": data[:at] + bytes(len(data) - at),
    }
    return file.write_bytes(rest[kind])


DAMAGE = ["missing", "empty", "truncated", "changed", "zeros"]


def test_damaged(tmp_path):
    """Any file, anywhere: the samples or the metadata are named and written again, with the same
    files."""
    rng = np.random.default_rng(20)
    write_store(tmp_path)
    before = files(tmp_path)
    for _ in range(20):
        name, kind = rng.choice(sorted(before)), rng.choice(DAMAGE)
        damage(tmp_path / name, kind, rng)
        chunk = name.partition("/c/")[2]
        expected = []
        changed = files(tmp_path) != before  # unless zeros took the place of zeros
        if chunk and changed:
            first = BLOCK * int(chunk.partition("/")[0])
            expected = list(range(first, min(first + BLOCK, 10)))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            missing = write_store(tmp_path)
        assert missing == expected, (name, kind)
        # Without its checksums, a chunk is one that was not finished.
        named = changed and not (name.startswith("checksums/c/") and kind == "missing")
        assert len(caught) == named, (name, kind)
        if named and not expected:
            words = f"metadata {name} are missing or differ from what was written"
            assert words in str(caught[0].message)
        if named and expected:
            assert f"samples {expected[0]} to {expected[-1]} are" in str(caught[0].message)
        assert files(tmp_path) == before, (name, kind)


def test_damage_in_several_places(tmp_path):
    """All is repaired at once: a missing and two truncated chunks, and metadata."""
    write_store(tmp_path)
    before = files(tmp_path)
    (tmp_path / "outputs/x/c/0/0").unlink()
    for name in ("outputs/index/c/1", "status/c/2", "zarr.json", "outputs/x/zarr.json"):
        file = tmp_path / name
        file.write_bytes(file.read_bytes()[:-5])
    words = "outputs/x/c/0/0, .*: samples 0 to 3, 4 to 7, 8 to 9 are computed again"
    metadata = "the metadata zarr.json, outputs/x/zarr.json are missing or differ from what was"
    with pytest.warns(UserWarning, match=metadata), pytest.warns(UserWarning, match=words):
        assert write_store(tmp_path) == list(range(10))
    assert files(tmp_path) == before


def test_outputs_on_disk(whole):
    found, in_memory = whole[1].outputs, run(r.cheap, N, chunk=8).outputs
    for name in ("x", "index", "large"):
        np.testing.assert_array_equal(found[f"outputs/{name}"][:], in_memory[name])
    text = found.attrs["jaxmbd.rollout"]["verdicts"][found["status"][2]]
    assert text == mbd.RESULTS[mbd.RESULTS.drift]
    with pytest.raises(ValueError, match="read-only"):
        found["status"][0] = 3


def test_values_that_are_no_group(tmp_path):
    """A single array, one without entries, one within others, and a part that is not there yet."""
    store, number = mbd.rollout.Zarr, lambda i, key: i.astype(float)
    one = run(number, 5, store=store(tmp_path / "a"))
    np.testing.assert_array_equal(one.outputs["outputs/output"][:], np.arange(5.0))
    parts = lambda i, key: {"none": jnp.zeros((2, 0)), "a": {"b": i > 2}}  # noqa: E731
    empty = run(parts, 5, store=store(tmp_path / "b"))
    assert empty.outputs["outputs/none"].shape == (5, 2, 0)
    np.testing.assert_array_equal(empty.outputs["outputs/a/b"][:], np.arange(5) > 2)
    interrupted(tmp_path / "c", count=8)
    zarr = pytest.importorskip("zarr")
    x = zarr.open_group(str(tmp_path / "c"), mode="r")
    there = x["status"][:] >= 0
    assert np.all(np.isnan(x["outputs/x"][:][~there])) and np.all(np.isfinite(x["outputs/x"][:8]))


def changed(change):
    """`cheap` with another x."""

    def one(index, key):
        outputs, result = r.cheap(index, key)
        return {**outputs, "x": change(outputs["x"])}, result

    return one


@pytest.mark.parametrize(
    "change, words",
    [
        (dict(n=N + 1), r"other samples \(53 there, 54 here\)"),
        (dict(key=jr.key(8)), r"other key \(\[0, 7\] there, \[0, 8\] here\)"),
        (dict(one=changed(lambda x: x[:2])), r"other outputs .*'x': \['float64', 3\]"),
        (dict(one=changed(lambda x: 1.001 * x)), "outputs of samples 0 to 7 differ from those"),
    ],
    ids=["n", "key", "shape", "function"],
)
def test_refuses_to_go_on_with_something_else(tmp_path, change, words):
    interrupted(tmp_path / "x")
    with pytest.raises(ValueError, match=words):
        stored(tmp_path / "x", **{**change, "reductions": None})


def test_refuses_other_samples(tmp_path):
    first, changed = (lambda x, key: x[0]), DATA.copy()
    changed[-1, 1] += 1.0
    options = dict(chunk=64, reductions=None)
    stored(tmp_path / "x", first, DATA, **options)
    with pytest.raises(ValueError, match="other values of the samples"):
        stored(tmp_path / "x", first, changed, **options)


def test_refuses_what_is_no_store(tmp_path):
    """Other files, and a store that has lost both copies of what its run was started with."""
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "thesis.tex").write_text("words")
    (tmp_path / "y").write_text("words")
    write_store(tmp_path / "z")
    for name in ("zarr.json", "status/zarr.json"):
        file = tmp_path / "z" / name
        file.write_bytes(file.read_bytes()[:-20])
    for name in ("x", "y", "z"):
        with pytest.raises(ValueError, match="something other than rollouts, or .* both damaged"):
            stored(tmp_path / name)

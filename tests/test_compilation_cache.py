"""Compiled programs on disk: a second process compiles nothing; where they are, and how large."""

import os
import subprocess
import sys

import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache

import jaxmbd as mbd


def swing(length, **options):
    state = mbd.State(0.0, [0.9, 0.0], [0.0, 0.0])
    method, options = mbd.UdwadiaKalaba(mbd.Cholesky()), {"t1": 0.03, "dt": 1e-2, **options}
    return mbd.simulate(h.Pendulum(length=length), method, state, **options)


def main(folder):
    """Compiles calls that raise, a gradient, an assembly and a batch. Prints how many programs are
    read, written and there."""
    jax.config.update("jax_enable_x64", True)
    jnp.sin(jnp.ones(3))  # JAX was used before
    cache = mbd.compilation_cache(folder)
    swing(jnp.array(0.9))
    jax.grad(lambda length: swing(length).q[-1, 1])(jnp.array(0.9))
    mbd.assemble(h.Pendulum(), [0.9, 0.1])
    end = lambda length, key: swing(length, throw=False).q[-1]  # noqa: E731
    mbd.rollout.run(end, np.full(4, 0.9), reductions=mbd.rollout.Mean(), progress=False)
    print(cache.read, cache.written, cache.programs)


def in_a_process(folder):
    code = f"import test_compilation_cache as here; here.main({str(folder)!r})"
    own = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=own, check=True, capture_output=True, text=True)
    return tuple(map(int, done.stdout.split()))


@pytest.fixture(autouse=True)
def cache_of_the_tests():
    """Comes back after each test."""
    folder = jax.config.jax_compilation_cache_dir
    yield
    jax.config.update("jax_compilation_cache_dir", folder)
    reset_cache()


def test_programs_are_read_again(tmp_path):
    """Of a simulation that raises, once JAX has forgotten it."""
    cache, counts = mbd.compilation_cache(tmp_path), []
    for _ in range(2):
        jax.clear_caches()
        before = cache.read, cache.written
        swing(np.array(0.9))
        counts.append((cache.read - before[0], cache.written - before[1]))
    (read, written), again = counts
    assert written == cache.programs > 0 and again == (read + written, 0)


@pytest.mark.slow
def test_a_second_process_compiles_nothing(tmp_path):
    """With `throw=True` too."""
    read, written, there = in_a_process(tmp_path)
    assert there == written > 4
    assert in_a_process(tmp_path) == (read + written, 0, there)


def test_default_folders(monkeypatch, tmp_path):
    """That of the user's caches, or the one that JAX was given."""
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert mbd.compilation_cache().folder == tmp_path / ".cache" / "jaxmbd"
    assert mbd.compilation_cache().max_bytes == 2**30
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert mbd.compilation_cache().folder == tmp_path / "other" / "jaxmbd"
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "given"))
    kept = mbd.compilation_cache(max_bytes=1)
    assert (kept.folder, kept.max_bytes) == (tmp_path / "given", float("inf"))
    assert mbd.compilation_cache(tmp_path / "named").folder == tmp_path / "named"
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "named")


def test_size_is_bounded(tmp_path):
    """What was not used for the longest time goes first; other files stay."""
    folder = tmp_path
    for i, name in enumerate(["b-cache", "a-cache", "c-cache", "a-atime", "notes.txt"]):
        (folder / name).write_bytes(bytes(1000))
        os.utime(folder / name, (1e9 + i, 1e9))
    os.utime(folder / "b-cache", (2e9, 1e9))  # it was read since
    cache = mbd.compilation_cache(folder, max_bytes=3000)
    assert (cache.programs, cache.bytes) == (3, 3000)
    cache = mbd.compilation_cache(folder, max_bytes=2500)
    assert sorted(x.name for x in folder.iterdir()) == ["b-cache", "c-cache", "notes.txt"]
    words = f"{folder}: 2 compiled programs, 1.953 KiB of at most 2.441 KiB; this process read "
    assert str(cache).startswith(words)


def test_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "x").write_text("words")
    with pytest.raises(ValueError, match=f"{tmp_path}/x/y for compiled .* `folder`"):
        mbd.compilation_cache(tmp_path / "x" / "y")

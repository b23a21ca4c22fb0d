"""Rollouts by any number of threads are the same to the last bit. Errors and Ctrl-C stop them."""

import signal
import threading
import time

import equinox as eqx
import jax
import numpy as np
import pytest
from rollouts import N, arrays, assert_same, files, in_memory, interrupted, run, stored


def use_threads(monkeypatch, count):
    monkeypatch.setattr("jaxmbd.rollout.program.cores", lambda: count)


def test_any_number_of_threads_and_chunks(monkeypatch):
    """The same outputs, verdicts and statistics to the last bit, in chunks that none of the threads
    fills, and in some that it shares: neighbours are merged first, however they come."""
    expected = arrays(in_memory(8))
    np.testing.assert_array_equal(expected["['outputs']['index']"], np.arange(N))
    for chunk, count in ((1, 1), (1, 5), (64, 2), (None, 2)):
        use_threads(monkeypatch, count)
        found = in_memory(chunk)
        assert found.threads == count
        assert_same(arrays(found), expected, tolerance=0.0)


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


def test_error_in_a_thread(monkeypatch):
    """It comes through in one line as the function raised it, with the remedy."""
    use_threads(monkeypatch, 3)

    def one(index, key):
        return eqx.error_if(index.astype(float), index == 13, "unlucky")

    words = (
        "^The function of run raised an error: unlucky With `throw=False` in it, .*others go on.$"
    )
    with pytest.raises(RuntimeError, match=words):
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

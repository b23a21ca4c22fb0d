"""What the tests of rollouts share: runs in this process and in others, on disk, interrupted.

python tests/rollout/rollouts.py '{"output": "x.npz", ...}' runs `main` in a process of its own,
with other devices than the tests have.
"""

import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd

N = 53
DATA = np.random.default_rng(3).normal(size=(200, 3)) + 1e6


def cheap(index, key):
    """No simulation; an index and a random number are what must be the same everywhere."""
    x = jax.random.normal(key, (3,))
    result = mbd.RESULTS.where(index % 5 == 2, mbd.RESULTS.drift, mbd.RESULTS.successful)
    return {"x": x, "index": index, "large": jnp.full(1000, x[0])}, result


def of_cheap():
    x = lambda y: y["x"]  # noqa: E731
    return [mbd.rollout.Moments(x), mbd.rollout.Histogram(jnp.linspace(-3.0, 3.0, 13), x)]


def run(one, samples, **options):
    return mbd.rollout.run(one, samples, **{"key": jax.random.key(7), "progress": False, **options})


def in_memory(chunk):
    return run(cheap, N, reductions=of_cheap(), store=mbd.rollout.Memory(), chunk=chunk)


def stored(path, one=cheap, n=N, **options):
    pytest.importorskip("zarr")
    options = {"reductions": of_cheap(), "chunk": 8, **options}
    return run(one, n, store=mbd.rollout.Zarr(path), **options)


class Stop(Exception):
    pass


def interrupted(path, count=40):
    def stop(done, total):
        assert total == N
        if done >= count:
            raise Stop

    with pytest.raises(Stop):
        stored(path, progress=stop)


def arrays(rollouts):
    """All that is found, by name."""
    tree = {
        "outputs": rollouts.outputs if isinstance(rollouts.outputs, dict) else None,
        "failed": rollouts.failures.index,
        "why": rollouts.failures.result,
        "statistics": jax.tree.map(vars, rollouts.statistics),
    }
    named = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(x) for path, x in named}


def assert_same(found, expected, tolerance=1e-12):
    assert found.keys() >= expected.keys()
    for name, x in expected.items():
        if np.issubdtype(x.dtype, np.inexact):
            scale = max(1.0, np.max(np.abs(x), initial=0.0))
            np.testing.assert_allclose(found[name], x, rtol=0, atol=tolerance * scale, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], x, err_msg=name)


def files(path):
    """Names and contents of all files of a folder."""
    path = pathlib.Path(path)
    return {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file()}


def in_processes(*configurations, devices=1):
    """Each runs `main`, all at once; their exit statuses and what they printed."""
    tests = pathlib.Path(__file__).resolve().parents[1]
    environment = dict(
        os.environ,
        JAX_PLATFORMS="cpu",
        PYTHONPATH=os.pathsep.join([str(tests.parent), str(tests)]),
        # glibc would raise its threshold and keep freed buffers for each of its threads: no leak,
        # but at random twice the memory.
        MALLOC_MMAP_THRESHOLD_=str(2**17),
        XLA_FLAGS=f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}",
    )
    options = dict(env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    command = [sys.executable, __file__]
    started = [subprocess.Popen([*command, json.dumps(x)], **options) for x in configurations]
    ended = [process.communicate(timeout=300) for process in started]
    for process, (_, errors) in zip(started, ended, strict=True):
        assert process.returncode <= 0, errors
    return [(p.returncode, printed) for p, (printed, _) in zip(started, ended, strict=True)]


def ends_at(count, end, patch=setattr):
    """`end` is called when a file is about to be finished for the `count`-th time."""
    replace, writes = pathlib.Path.replace, itertools.count(1)

    def counted(*args):
        if next(writes) == count:
            end()
        return replace(*args)

    patch(pathlib.Path, "replace", counted)


def main(n, chunk, output=None, process=None, store=None, dies_at=None, memory=False, kernel=None):
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)
    if process is not None:
        count, number, address = process
        jax.distributed.initialize(address, count, number)
    if dies_at is not None:
        ends_at(dies_at, lambda: os.kill(os.getpid(), signal.SIGKILL))
    where = mbd.rollout.Zarr(store) if store else None if memory else mbd.rollout.Memory()
    found = run(cheap, n, store=where, reductions=of_cheap(), chunk=chunk, kernel=kernel)
    if memory:
        # In KiB. That of `resource` would count the process by which this one was started.
        print(pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
    if output is not None:
        np.savez(output, devices=found.devices, processes=found.processes, **arrays(found))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))

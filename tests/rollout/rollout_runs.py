"""What the tests of rollouts share: runs in this process and in others, on disk, interrupted."""

import json
import os
import pathlib
import subprocess
import sys

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
        # glibc would raise its threshold and keep freed buffers for each of its threads: no leak,
        # but at random twice the memory.
        MALLOC_MMAP_THRESHOLD_=str(2**17),
        XLA_FLAGS=f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}",
    )
    command = [sys.executable, str(HERE / "rollouts.py")]
    options = dict(env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    started = [subprocess.Popen([*command, json.dumps(x)], **options) for x in configurations]
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


DATA = np.random.default_rng(3).normal(size=(200, 3)) + 1e6
FAILED = np.random.default_rng(4).random(200) < 0.1


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

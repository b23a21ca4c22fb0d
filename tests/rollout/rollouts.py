"""Rollouts that the tests run in processes of their own, with other devices than the tests have.

python tests/rollout/rollouts.py '{"output": "x.npz", ...}'; see `main`.
"""

import json
import os
import pathlib
import random
import select
import signal
import sys
import time
import traceback
import warnings

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import jaxmbd as mbd


class Pendulum(mbd.AbstractSystem):
    length: Array

    def mass_matrix(self, q):
        return jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.asarray([0.0, -9.81]) + u

    def constraint(self, q, t):
        return q @ q - self.length**2


class Pushed(eqx.Module):
    force: Array

    def __call__(self, t, q, v):
        return self.force


def samples(n):
    """Lengths of which every seventh does not fit the start, and pushes."""
    length, push = (np.random.default_rng(i).uniform(0.5, 2.0, n) for i in (5, 6))
    start = np.where(np.arange(n) % 7 == 3, 1.1 * length, length)
    return {"system": Pendulum(length), "start": start, "push": push - 1.0}


def one(sample, key):
    """A pushed pendulum, with a push that is random as well."""
    push = jnp.stack([sample["push"], jax.random.normal(key)])
    q = jnp.stack([sample["start"], jnp.zeros_like(sample["start"])])
    sol = mbd.simulate(
        sample["system"],
        mbd.LagrangeMultipliers(alpha=5.0, beta=5.0, solver=mbd.Cholesky()),
        mbd.State(0.0, q, jnp.zeros(2)),
        t1=0.05,
        dt=0.01,
        scheme=diffrax.Euler(),
        control=Pushed(push),
        saveat=diffrax.SaveAt(steps=2),
        throw=False,
    )
    return {"motion": sol, "push": push}


def cheap(index, key):
    """No simulation; an index and a random number are what must be the same everywhere."""
    x = jax.random.normal(key, (3,))
    result = mbd.RESULTS.where(index % 5 == 2, mbd.RESULTS.drift, mbd.RESULTS.successful)
    return {"x": x, "index": index, "large": jnp.full(1000, x[0])}, result


def reductions():
    last = lambda y: y["motion"].q[-1]  # noqa: E731
    return {
        "moments": mbd.rollout.Moments(last),
        "extremes": mbd.rollout.Extremes(last),
        "histogram": mbd.rollout.Histogram(jnp.linspace(0.0, 2.0, 9), last),
        "covariance": mbd.rollout.Covariance(lambda y: (y["push"], last(y))),
    }


def of_cheap():
    x = lambda y: y["x"]  # noqa: E731
    return [mbd.rollout.Moments(x), mbd.rollout.Histogram(jnp.linspace(-3.0, 3.0, 13), x)]


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


def _dies_at(count):
    """The process ends itself when it is about to finish a file for the `count`-th time."""
    replace, left = pathlib.Path.replace, [count]

    def counted(self, *args):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(self, *args)

    pathlib.Path.replace = counted


def _peak_memory():
    """In KiB. That of `resource` would count the process by which this one was started."""
    status = pathlib.Path("/proc/self/status").read_text()
    return status.split("VmHWM:")[1].split()[0]


KILLS, BLOCK = 40, 4


def block(first, stop):
    """Outputs and status of some samples, from their indices."""
    index = np.arange(first, stop)
    return {"x": np.sin(index)[:, None] * np.ones(50), "index": index}, (index % 3).astype(np.int16)


def write_store(path, n, pipe=None):
    """All of n samples that is not there yet; which ones these are. What is found is right."""
    output = {"x": jax.ShapeDtypeStruct((50,), float), "index": jax.ShapeDtypeStruct((), int)}
    record = mbd.rollout.Zarr(path).open(mbd.rollout.Layout(n, output, [0], "", BLOCK))
    missing = np.flatnonzero(record.status < 0).tolist()
    if pipe is not None:
        os.write(pipe, b"some" if len(missing) < n else b"none")
    for first in range(0, n, BLOCK):
        stop = min(first + BLOCK, n)
        outputs, status = block(first, stop)
        if first in missing:
            record.write(first, outputs, status)
        jax.tree.map(np.testing.assert_array_equal, record.read(first, stop), outputs)
        np.testing.assert_array_equal(record.status[first:stop], status)
    return missing


def kill_at_random(folder):
    """Processes that write a store, killed at random instants, and a last one that is not. Prints
    how many were killed, and how many found something there."""
    rng = random.Random(0)
    kills = stores = went_on = 0
    while True:
        begin, end = os.pipe()
        process = os.fork()
        if process == 0:
            status = 1
            try:
                warnings.simplefilter("error")  # nothing is damaged
                write_store(f"{folder}/{stores}", 100, end)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(end)
        if kills < KILLS:
            # Some time after its start, or after it begins to write.
            if rng.random() < 0.8:
                select.select([begin], [], [], 60)
            time.sleep(rng.uniform(0.0, 0.15))
            os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        went_on += os.read(begin, 10) == b"some"
        os.close(begin)
        if os.WIFSIGNALED(status):
            kills += 1
            continue
        assert status == 0
        if kills == KILLS:
            break
        stores += 1
    print(kills, went_on)


def main(n, chunk, output=None, process=None, store=None, dies_at=None, quick=False, memory=False):
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)
    if process is not None:
        count, number, address = process
        jax.distributed.initialize(address, count, number)
    if dies_at is not None:
        _dies_at(dies_at)
    where = mbd.rollout.Zarr(store) if store else None if memory else mbd.rollout.Memory()
    job = (cheap, n, of_cheap()) if quick or memory else (one, samples(n), reductions())
    found = mbd.rollout.run(
        *job[:2],
        key=jax.random.key(7),
        reductions=job[2],
        store=where,
        chunk=chunk,
        progress=False,
    )
    if memory:
        print(_peak_memory())
    if output is not None:
        np.savez(output, devices=found.devices, processes=found.processes, **arrays(found))


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    if "kills" in options:
        kill_at_random(options["kills"])
    else:
        main(**options)

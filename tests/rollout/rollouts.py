"""Rollouts that the tests run in processes of their own, with other devices than the tests have.

python tests/rollout/rollouts.py '{"output": "x.npz", ...}'; see `main`.
"""

import json
import os
import pathlib
import signal
import sys

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


def main(n, chunk, output=None, process=None, store=None, dies_at=None, memory=False):
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_enable_compilation_cache", False)
    if process is not None:
        count, number, address = process
        jax.distributed.initialize(address, count, number)
    if dies_at is not None:
        _dies_at(dies_at)
    where = mbd.rollout.Zarr(store) if store else None if memory else mbd.rollout.Memory()
    options = dict(key=jax.random.key(7), reductions=of_cheap(), chunk=chunk, progress=False)
    found = mbd.rollout.run(cheap, n, store=where, **options)
    if memory:
        print(_peak_memory())
    if output is not None:
        np.savez(output, devices=found.devices, processes=found.processes, **arrays(found))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))

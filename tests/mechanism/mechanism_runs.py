"""Runs of mechanisms and reference solutions, for the tests against published motions."""

import json

import diffrax
import jax.numpy as jnp

import jaxmbd as mbd

Z = [0.0, 0.0, 1.0]


def reference(shared, name):
    return json.loads((shared / "references" / f"{name}.json").read_text())


def simulate(system, state, *, dt, t1, times=None):
    """By RK4, with the states at `times`."""
    saveat = diffrax.SaveAt(t1=True) if times is None else diffrax.SaveAt(ts=jnp.asarray(times))
    sol = mbd.simulate(system, mbd.UdwadiaKalaba(), state, t1=t1, dt=dt, saveat=saveat, throw=False)
    assert sol.result == mbd.RESULTS.successful
    return sol

"""Linkages built by their lengths in any pose, and closed: those whose lengths cannot fit are told,
and no others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reported import BOX, Z

import jaxmbd as mbd

PLANE = mbd.Plane(normal=Z)


def linkage(lengths):
    """A four-bar whose bars lie on the x axis, each hinged at its ends."""
    base, *bars = lengths
    x = jnp.eye(3)[0]
    bodies = [mbd.Body(name, BOX) for name in ("crank", "coupler", "rocker")]
    ends = [(-length / 2 * x, length / 2 * x) for length in bars]
    (a0, a1), (b0, b1), (c0, c1) = ends
    crank, coupler, rocker = bodies
    hinges = [
        mbd.Revolute("A", "ground", crank, points=(0 * x, a0), axes=(Z, Z)),
        mbd.Revolute("B", crank, coupler, points=(a1, b0), axes=(Z, Z)),
        mbd.Revolute("C", coupler, rocker, points=(b1, c0), axes=(Z, Z)),
        mbd.Revolute("D", "ground", rocker, points=(base * x, c1), axes=(Z, Z)),
    ]
    return mbd.Mechanism(bodies, hinges, plane=PLANE)


def closed(lengths, key):
    """The linkage, closed from the first of some random poses from which it can be."""
    mechanism = linkage(lengths)
    drawn = mechanism.state()

    def attempt(key):
        q = drawn.q + jax.random.normal(key, drawn.q.shape)
        return mbd.close_joints(mechanism, mbd.State(0.0, q, drawn.v), throw=False)

    found = jax.vmap(attempt)(jax.random.split(key, 6))
    first = jnp.argmax(found.report.result == mbd.RESULTS.successful)
    return mechanism, jax.tree.map(lambda x: x[first], found)


def swung(lengths, key):
    mechanism, start = closed(lengths, key)
    options = dict(t0=0.0, num_steps=2, dt=1e-3, throw=False)
    state = mbd.State(0.0, start.q, start.v)
    motion = mbd.simulate(mechanism, mbd.VelocityImpulse(), state, **options)
    bars = [mechanism.joint_coordinates(motion.q[-1], name) for name in "ABCD"]
    return {"angles": jnp.stack(bars), "verdicts": (start.report.result, motion.result)}


@pytest.mark.parametrize("n", [100, pytest.param(2000, marks=pytest.mark.slow)])
def test_lengths_that_cannot_close(n):
    """Four bars close a loop in the plane exactly if none is longer than the others together."""
    lengths = np.random.default_rng(n).uniform(0.15, 1.0, (n, 4))
    possible = 2 * np.max(lengths, axis=1) <= np.sum(lengths, axis=1)
    assert 0 < np.sum(~possible) < n / 5
    found = mbd.rollout.run(swung, lengths, progress=False)
    np.testing.assert_array_equal(found.good, possible)
    np.testing.assert_array_equal(np.sort(found.failures.index), np.flatnonzero(~possible))

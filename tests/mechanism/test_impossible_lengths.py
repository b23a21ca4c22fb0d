"""Linkages built by their lengths in any pose, and closed: those whose lengths cannot fit are told,
and no others."""

import jax
import jax.numpy as jnp
import numpy as np
from reported import BOX, Z

import jaxmbd as mbd


def linkage(lengths):
    """A four-bar whose bars lie on the x axis, each hinged at its ends."""
    base, *bars = lengths
    x = np.eye(3)[0]
    crank, coupler, rocker = (mbd.Body(name, BOX) for name in ("crank", "coupler", "rocker"))
    (a0, a1), (b0, b1), (c0, c1) = ((-length / 2 * x, length / 2 * x) for length in bars)
    hinges = [
        mbd.Revolute("A", "ground", crank, points=(0 * x, a0), axes=(Z, Z)),
        mbd.Revolute("B", crank, coupler, points=(a1, b0), axes=(Z, Z)),
        mbd.Revolute("C", coupler, rocker, points=(b1, c0), axes=(Z, Z)),
        mbd.Revolute("D", "ground", rocker, points=(base * x, c1), axes=(Z, Z)),
    ]
    return mbd.Mechanism([crank, coupler, rocker], hinges, plane=mbd.Plane(normal=Z))


def test_lengths_that_cannot_close():
    """Four bars close a loop in the plane exactly if none is longer than the others together."""
    rng = np.random.default_rng(1)
    lengths, starts = rng.uniform(0.15, 1.0, (16, 4)), rng.normal(size=(16, 4, 9))
    lengths[:5, 2] = np.sum(lengths[:5], axis=1) - 0.95 * lengths[:5, 2]

    @jax.jit
    @jax.vmap
    def closes(lengths, starts):
        mechanism = linkage(lengths)
        drawn = mechanism.state()

        def attempt(dq):
            state = mbd.State(0.0, drawn.q + dq, drawn.v)
            found = mbd.close_joints(mechanism, state, throw=False)
            return found.report.result == mbd.RESULTS.successful

        return jnp.any(jax.vmap(attempt)(starts))

    possible = 2 * np.max(lengths, axis=1) <= np.sum(lengths, axis=1)
    assert 4 < np.sum(~possible) < 12
    np.testing.assert_array_equal(closes(lengths, starts), possible)

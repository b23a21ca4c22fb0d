"""Mechanisms with closed loops against published motions, the same systems written by hand, and
invariants."""

import functools

import diffrax
import jax
import numpy as np
import pytest
import slider_crank_from_bodies
from helpers import OPTIMISED

import jaxmbd as mbd


@pytest.mark.slow
def test_slider_crank_from_bodies():
    """Through its singular pose, with the system written by hand."""
    t1 = 1.25
    mechanism = slider_crank_from_bodies.slider_crank_from_bodies()
    sol = slider_crank_from_bodies.run(mechanism, t1)
    by_hand = slider_crank_from_bodies.run_by_hand(t1)
    crank = mbd.reports.joint_path(mechanism, "bearing", sol.t, sol.q, sol.v)[:, 0]
    assert crank[-1] > np.pi / 2
    np.testing.assert_allclose(crank, by_hand.q[:, 2], atol=1e-7)
    np.testing.assert_allclose(
        mechanism.twist(sol.v, "rod").angular[:, 2], by_hand.v[:, 3], atol=1e-6
    )
    assert np.max(sol.phi_norm) < 1e-10


def random_ring(kinds, key):
    """Bodies in a ring that begins and ends at the ground, with a joint of each of the kinds, at
    random places and along random axes; then a random velocity that the joints allow."""
    random = np.random.default_rng(key)
    count = len(kinds) - 1
    angles = 2 * np.pi * np.arange(len(kinds)) / len(kinds)
    places = np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    places += 0.2 * random.normal(size=places.shape)
    bodies = []
    for i in range(count):
        axes = np.linalg.qr(random.normal(size=(3, 3)))[0]
        orientation = axes * np.linalg.det(axes)
        size = random.uniform(0.2, 0.6, size=3)
        inertia = mbd.Inertia.box(size=size, mass=random.uniform(0.5, 2))
        inertia = inertia.moved(0.05 * random.normal(size=3))
        middle = (places[i] + places[i + 1]) / 2
        bodies.append(mbd.Body(f"body {i}", inertia, position=middle, orientation=orientation))
    chain = ["ground", *bodies, "ground"]
    joints = []
    for i, kind in enumerate(kinds):
        axes = np.linalg.qr(random.normal(size=(3, 3)))[0]
        orientation = axes * np.linalg.det(axes)
        joints.append(
            kind(f"joint {i}", chain[i], chain[i + 1], point=places[i], orientation=orientation)
        )
    # Free of gravity: 10^5 steps of a motion that stays of the same size.
    mechanism = mbd.Mechanism(bodies, joints, gravity=[0, 0, 0])
    wild = random.normal(size=6 * count)
    return mechanism, mbd.assemble(mechanism, mechanism.state().q, wild)


@pytest.mark.slow
def test_a_random_ring_stays_closed_over_a_long_time():
    """10^5 steps with two freedoms. The joints must hold, and the energy too."""
    kinds = [mbd.Universal, mbd.Spherical, mbd.Universal, mbd.Revolute]
    mechanism, state = random_ring(kinds, key=3)

    @functools.partial(jax.jit, compiler_options=OPTIMISED)
    def run():
        return mbd.simulate(
            mechanism,
            mbd.UdwadiaKalaba(),
            state,
            dt=1e-3,
            num_steps=100_000,
            saveat=diffrax.SaveAt(t0=True, steps=200),
            # Of every step, not of the saved ones alone.
            drift_tolerance=1e-10,
            throw=False,
        )

    sol = run()
    assert sol.result == mbd.RESULTS.successful
    assert np.max(sol.phi_norm) < 1e-10 and np.max(sol.phidot_norm) < 1e-8
    energies = jax.jit(jax.vmap(lambda q, v: mbd.reports.total_energy(mechanism, q, v)))(
        sol.q, sol.v
    )
    assert np.linalg.norm(sol.v[-1]) > 0.1
    np.testing.assert_allclose(energies, energies[0] * np.ones(len(sol.t)), rtol=1e-4)

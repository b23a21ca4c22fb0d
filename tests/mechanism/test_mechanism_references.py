"""Mechanisms with closed loops against published motions, the same systems written by hand, and
invariants."""

import functools

import diffrax
import jax
import numpy as np
import pytest
import six_r_loop
import slider_crank_from_bodies
import two_four_bars
from helpers import OPTIMISED
from mechanism_runs import Z, reference, simulate

import jaxmbd as mbd

# --- the examples of Braun and Goldfarb from bodies ---------------------------------------------


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


def two_four_bars_from_bodies():
    """Three cranks and two couplers of length 1, upright and moving at 1 m/s to the right; frames
    in the middles. 35 rows for 30 velocities with one freedom; in line they leave three."""
    bar = mbd.Inertia(1.0, [1 / 12, 1 / 12, 1 / 12])
    cranks = [
        mbd.Body(
            f"crank {i}",
            bar,
            position=[i, 0.5, 0],
            velocity=[0.5, 0, 0],
            angular_velocity=[0, 0, -1],
        )
        for i in range(3)
    ]
    couplers = [
        mbd.Body(f"coupler {i}", bar, position=[i + 0.5, 1, 0], velocity=[1, 0, 0])
        for i in range(2)
    ]
    a, b = couplers
    ends = [
        *(("ground", crank, [i, 0, 0]) for i, crank in enumerate(cranks)),
        (cranks[0], a, [0, 1, 0]),
        (cranks[1], a, [1, 1, 0]),
        (cranks[1], b, [1, 1, 0]),
        (cranks[2], b, [2, 1, 0]),
    ]
    joints = [
        mbd.Revolute(f"hinge {k}", body_a, body_b, point=point, axis=Z)
        for k, (body_a, body_b, point) in enumerate(ends)
    ]
    return mbd.Mechanism([*cranks, *couplers], joints, gravity=[0, -9.81, 0])


@pytest.mark.slow
def test_two_four_bars_from_bodies(shared):
    """A whole turn, twice through the pose in line, against the published motion and the system of
    six coordinates."""
    points = reference(shared, "bg_two_four_bar")["reference"]
    mechanism = two_four_bars_from_bodies()
    assert mbd.reports.mobility(mechanism).freedoms == 1
    times = np.linspace(0.1, 2.0, 20)

    # With this solver it runs longer than it compiles.
    @functools.partial(jax.jit, compiler_options=OPTIMISED)
    def run():
        method, saveat = mbd.UdwadiaKalaba(mbd.Pseudoinverse()), diffrax.SaveAt(ts=times)
        options = dict(t1=2.0, dt=1e-3, saveat=saveat, throw=False)
        return mbd.simulate(mechanism, method, mechanism.state(), **options)

    sol = run()
    assert sol.result == mbd.RESULTS.successful
    by_hand = simulate(
        two_four_bars.TwoFourBars(), two_four_bars.exact_start(), dt=1e-3, t1=2.0, times=times
    )
    middles = [np.asarray(mechanism.pose(sol.q, f"crank {i}").position) for i in range(3)]
    pins = np.concatenate([2 * x[:, :2] - [i, 0] for i, x in enumerate(middles)], axis=1)
    np.testing.assert_allclose(pins, by_hand.q, atol=1e-8)
    assert two_four_bars.exact_motion(2.0) > 2 * np.pi
    for point in points:
        if point["t"] in times.round(9):
            i = np.argmin(np.abs(times - point["t"]))
            np.testing.assert_allclose(pins[i], point["q"], atol=1e-8)
    assert np.max(sol.phi_norm) < 1e-10


# --- overconstrained and random loops -----------------------------------------------------------


@pytest.mark.slow
def test_six_hinges_in_a_ring():
    """Bricard's linkage moves though Grübler's count is 0: through a whole turn inside out, with
    the motion of its one freedom."""
    found = mbd.reports.mobility(six_r_loop.six_r_loop())
    assert (found.freedoms, found.grubler, found.rank) == (1, 0, 29)
    _, sol, hinges = six_r_loop.run(4.0)
    around = np.unwrap(np.arctan2(hinges[1], hinges[0]))
    assert abs(around[-1] - around[0]) > 2 * np.pi
    np.testing.assert_allclose(hinges[:2], six_r_loop.exact_motion(sol.t), atol=1e-8)
    np.testing.assert_allclose(hinges[2:], np.tile(hinges[:2], (2, 1)), atol=1e-8)
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


RINGS = {
    "four bodies, one freedom": [mbd.Revolute, mbd.Spherical, mbd.Revolute, mbd.Revolute,
                                 mbd.Revolute],
    "three bodies, two freedoms": [mbd.Universal, mbd.Spherical, mbd.Universal, mbd.Revolute],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kinds", RINGS.values(), ids=RINGS)
def test_random_rings_stay_closed_over_a_long_time(kinds):
    """10^5 steps. The joints must hold, and the energy too."""
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

"""Energy and momentum that steps keep."""

import diffrax
import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd._mechanism.body import middle_spin

WEIGHTLESS = [0.0, 0.0, 0.0]
OFFSET = [0.05, 0.03, -0.02]


@eqx.filter_jit
def _free_body(center, method):
    """Energies, momenta and angular momenta about the centre of mass of a body that flips about its
    middle axis."""
    inertia = mbd.Inertia(1.0, [2e-3, 4e-3, 5.7e-3], center=center)
    body = mbd.Body("b", inertia, angular_velocity=[0.5, 20.0, 0.5])
    mechanism = mbd.Mechanism([body], gravity=WEIGHTLESS)
    options = dict(t0=0.0, t1=2.0, dt=1e-3, saveat=diffrax.SaveAt(t0=True, steps=50))
    sol = mbd.simulate(mechanism, method, mechanism.state(), **options)

    def invariants(q, v):
        pose, twist = mechanism.pose(q, "b"), mechanism.twist(v, "b")
        momentum, spin = body.momentum(pose, twist)
        center = pose.point(inertia.center)
        return body.kinetic_energy(pose, twist), momentum, spin - jnp.cross(center, momentum)

    return jax.vmap(invariants)(sol.q, sol.v)


@pytest.mark.parametrize(
    "center, method",
    [
        (WEIGHTLESS, mbd.VelocityImpulse()),
        (OFFSET, mbd.VelocityImpulse()),
        (OFFSET, mbd.ContactImpulse()),
    ],
    ids=["centre", "offset", "contact"],
)
def test_a_free_body_keeps_energy_and_momentum(center, method):
    energy, momentum, spin = map(np.asarray, _free_body(np.array(center), method))
    np.testing.assert_allclose(energy, energy[0], rtol=1e-12)
    np.testing.assert_allclose(momentum, np.broadcast_to(momentum[0], momentum.shape), atol=1e-13)
    size = np.linalg.norm(spin, axis=1)
    np.testing.assert_allclose(size, size[0], rtol=1e-12)
    # Its direction to first order, without drift: the turn over a step is that of its end.
    assert np.max(np.linalg.norm(spin - spin[0], axis=1)) < 2e-2 * size[0]


DOWN = np.array([0, 0, -0.5])


@jax.jit
def _thrown(v):
    """Of two thin rods that hang from ball joints and spin: the largest growth of the energy in a
    step as a share of the first energy, the share left at the end, and the largest violation."""
    inertia = mbd.Inertia.cylinder(radius=0.005, length=0.5, mass=0.1).moved(DOWN / 2)
    upper, lower = (mbd.Body(f"rod {i}", inertia, position=i * DOWN) for i in range(2))
    joints = [
        mbd.Spherical("ball 0", "ground", upper, point=0 * DOWN),
        mbd.Spherical("ball 1", upper, lower, point=DOWN),
    ]
    rods = mbd.Mechanism([upper, lower], joints, gravity=WEIGHTLESS)
    every = diffrax.SaveAt(t0=True, steps=1)

    def one(v):
        state, method = mbd.State(0.0, rods.state().q, v), mbd.VelocityImpulse()
        sol = mbd.simulate(rods, method, state, t1=0.5, dt=2e-3, saveat=every)
        energy = jax.vmap(lambda q, v: rods.mechanical_energy(0.0, q, v))(sol.q, sol.v)
        return jnp.max(jnp.diff(energy)) / energy[0], energy[-1] / energy[0], jnp.max(sol.phi_norm)

    return jax.vmap(one)(v)


def test_impulses_never_give_energy():
    # Midpoint spins and straight centres of mass keep it, an impulse that stops what violates the
    # rows takes of it, and what the default feeds back is less. With Phi/h in full, a fifth of
    # these motions gain over a tenth of their energy. The impulses alone leave 0.75 of it.
    spins = 20 * np.random.default_rng(0).normal(size=(100, 3, 2))
    ends = np.stack([np.zeros((100, 3)), np.cross(spins[..., 0], DOWN)], axis=-1)
    v = np.stack([ends, spins], axis=1).reshape(100, 12)
    gained, left, phi = map(np.asarray, _thrown(v))
    assert np.max(gained) < 1e-9
    assert np.min(left) > 0.1 and np.median(left) > 0.97
    assert np.max(phi) < 0.05


def test_displacements_of_a_body_off_its_centre_are_inverse():
    inertia = mbd.Inertia(1.0, [2.0, 3.0, 4.0], center=OFFSET)
    mechanism = mbd.Mechanism([mbd.Body("a", inertia), mbd.Body("b", inertia)])

    @jax.jit
    def displaced(q, dp):
        end = mechanism.retract(q, dp)
        poses = [mechanism.pose(x, "a") for x in (q, end)]
        centers = [pose.point(jnp.array(OFFSET)) for pose in poses]
        return end, mechanism.difference(q, end), poses[0].position, *centers

    q = mechanism.state().q
    for dp in 0.5 * np.random.default_rng(0).normal(size=(3, 12)):
        q, difference, origin, before, after = map(np.asarray, displaced(q, dp))
        np.testing.assert_allclose(difference, dp, atol=1e-14)
        # The centre goes straight.
        turning = np.cross(dp[6::2], before - origin)
        np.testing.assert_allclose(after - before, dp[:6:2] + turning, atol=1e-14)


def test_derivatives_of_the_middle_spin():
    """Once and twice; and at rest, where it is the spin."""

    def spin(moments, omega, h):
        return middle_spin(jnp.diag(moments) + 0.1 * jnp.ones((3, 3)), omega, h)

    def slope(x):
        direction = tuple(jnp.cos(jnp.arange(y.size, dtype=float)).reshape(y.shape) for y in x)
        value, slope = jax.jvp(lambda *x: spin(*x) @ jnp.array([1.0, -2.0, 3.0]), x, direction)
        return value + slope

    helpers.check_scalar(
        slope, (np.array([1.0, 2, 2.5]), np.array([0.3, 2, -0.5]), np.asarray(0.2))
    )
    still = jax.jit(jax.jacrev(spin, argnums=1))(np.array([1.0, 2.0, 2.5]), np.zeros(3), 0.02)
    np.testing.assert_allclose(still, np.eye(3), atol=1e-14)


def test_derivative_where_no_energy_is_taken():
    """From a start on the constraint, with Phi = 0 and no energy taken or given, as beside it."""

    def height(length):
        start = mbd.State(0.0, np.array([0.9, 0.0]), np.array([0.0, 0.3]))
        options = dict(dt=0.01, num_steps=2, start_tolerance=jnp.inf)
        system, method = helpers.Pendulum(length=length), mbd.VelocityImpulse()
        return mbd.simulate(system, method, start, **options).q[-1, 1]

    found, step = jax.jit(lambda length: helpers.both_modes(height, length)), 1e-6
    difference = (float(found(0.9 + step)[0]) - float(found(0.9 - step)[0])) / (2 * step)
    np.testing.assert_allclose(found(0.9)[1:], [difference] * 2, atol=1e-8)

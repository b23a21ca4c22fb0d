"""Friction on a slope, against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_systems import G, flight, slope

import jaxmbd as mbd


# The cone is in test_contact.py.
@pytest.mark.slow
@pytest.mark.parametrize(
    "friction, factor",
    [
        # Inscribed: the line between corners at distance 1.
        (mbd.Pyramid(4), lambda a: 1 / (np.abs(np.cos(a)) + np.abs(np.sin(a)))),
        (
            mbd.Pyramid(4, circumscribed=True),
            lambda a: np.sqrt(2) / (np.abs(np.cos(a)) + np.abs(np.sin(a))),
        ),
    ],
)
def test_sticks_below_and_slides_above(friction, factor):
    """tan(alpha) = mu times a factor that depends on the direction."""
    directions = np.linspace(0.05, 6.3, 12)

    @jax.vmap
    def final(direction, tangent):
        system = slope(tangent, 0.4, direction)
        return flight(system, jnp.zeros(3), jnp.zeros(3), [0.5], 0.01, 0, friction=friction).v[-1]

    # Against a pyramid the force may turn aside, so it slides as soon as its reach that way ends.
    limit = 0.4 * factor(directions)
    below = final(jnp.asarray(directions), jnp.asarray(0.999 * limit))
    above = final(jnp.asarray(directions), jnp.asarray(1.001 * limit))
    assert np.abs(below).max() < 1e-12
    assert np.all(np.linalg.norm(above[:, :2], axis=1) > 1e-4)


@pytest.mark.slow
def test_slides_down():
    """x = g (sin a - mu cos a) t^2 / 2, in the direction of the slope; exact on a parabola."""
    system = slope(jnp.asarray(0.9), 0.4, jnp.asarray(0.7))
    a = np.arctan(0.9)
    distance = G * (np.sin(a) - 0.4 * np.cos(a)) / 2
    sol = flight(system, jnp.zeros(3), jnp.zeros(3), [1.0], 0.01, 1)
    along = np.array([np.cos(0.7), np.sin(0.7), 0.0])
    np.testing.assert_allclose(sol.q[-1], distance * along, atol=1e-10)
    force = sol.contact_force[-1, 0]
    np.testing.assert_allclose(force[0], 2.0 * G * np.cos(a), rtol=1e-12)
    np.testing.assert_allclose(force[1:], -0.4 * force[0] * along[:2], rtol=1e-9)


@pytest.mark.slow
def test_rests_for_a_minute():
    sol = flight(slope(jnp.asarray(0.39)), jnp.zeros(3), jnp.zeros(3), [60.0], 1e-2, 1)
    assert np.abs(sol.q[-1]).max() < 1e-8
    assert sol.result == mbd.RESULTS.successful


@pytest.mark.slow
def test_compliant_contact():
    """A mass dropped on a damped spring: oscillates about m g / k as the closed form says, and
    the force never pulls; stiff ones come to rest as rigid ones do."""
    k, d, m = 400.0, 4.0, 1.0
    system = slope(jnp.asarray(0.0), 0.0, mass=m, stiffness=k, damping=d)
    ts = np.array([0.05, 0.12, 0.2, 0.31])
    deflection, rate = m * G / k, d / (2 * m)
    omega = np.sqrt(k / m - rate**2)

    def exact(t):
        swing = np.cos(omega * t) + rate / omega * np.sin(omega * t)
        return -deflection * (1 - np.exp(-rate * t) * swing)

    errors = []
    for dt in (2e-4, 5e-5):
        sol = flight(system, jnp.zeros(3), jnp.zeros(3), ts, dt, 0)
        errors.append(np.abs(sol.q[:, 2] - exact(ts)).max())
        assert np.all(np.asarray(sol.contact_force[..., 0]) >= 0)
    assert errors[1] < 2e-3 * deflection * 10 and 3 < errors[0] / errors[1] < 5
    for stiffness in (1e9, 1e14):
        stiff = slope(jnp.asarray(0.0), 0.0, mass=m, stiffness=stiffness)
        end = flight(stiff, [0.0, 0.0, 0.1], jnp.zeros(3), [1.0], 1e-2, 0)
        np.testing.assert_allclose(end.q[-1, 2], -m * G / stiffness, rtol=1e-3, atol=1e-14)

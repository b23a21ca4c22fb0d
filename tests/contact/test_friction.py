"""Friction on a slope, against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contact_systems import G, flight, slope

import jaxmbd as mbd


@pytest.mark.parametrize(
    "friction, factor",
    [
        (mbd.Cone(), lambda a: np.ones_like(a)),
        # Inscribed: the line between corners at distance 1.
        pytest.param(
            mbd.Pyramid(4),
            lambda a: 1 / (np.abs(np.cos(a)) + np.abs(np.sin(a))),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            mbd.Pyramid(4, circumscribed=True),
            lambda a: np.sqrt(2) / (np.abs(np.cos(a)) + np.abs(np.sin(a))),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_sticks_below_and_slides_above(friction, factor):
    """tan(alpha) = mu in every direction for the cone, at the stated factor for pyramids."""
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
@pytest.mark.parametrize("impacts", [0, 1])
def test_slides_to_rest(impacts):
    """v^2 / (2 mu g), then stays: with positions of first order short by h v / 2, on parabolas
    exact but for the step in which it stops."""
    v, h = 1.7, 1e-3
    system = slope(jnp.asarray(0.0))
    sol = flight(system, jnp.zeros(3), [0.0, v, 0.0], [0.8, 1.6], h, impacts)
    distance = v**2 / (2 * 0.4 * G) - (0 if impacts else h * v / 2)
    np.testing.assert_allclose(sol.q[:, 1], distance, atol=2 * 0.4 * G * h**2)
    np.testing.assert_allclose(sol.q[1], sol.q[0], atol=1e-13)
    np.testing.assert_allclose(sol.v[1], 0.0, atol=1e-13)


@pytest.mark.slow
def test_rests_for_a_minute():
    sol = flight(slope(jnp.asarray(0.39)), jnp.zeros(3), jnp.zeros(3), [60.0], 1e-2, 1)
    assert np.abs(sol.q[-1]).max() < 1e-8
    assert sol.result == mbd.RESULTS.successful


@pytest.mark.slow
def test_static_and_kinetic_friction():
    """Holds up to the static coefficient, then slides with the kinetic one."""
    push = lambda t, q, v: jnp.stack([6.0 * t, 0.0 * t, 0.0 * t])  # noqa: E731
    system = slope(jnp.asarray(0.0), 0.5, mass=1.0, kinetic=0.3, speed=1e-5)
    start = 0.5 * G / 6.0
    ts = [0.98 * start, start + 0.6]
    sol = flight(system, jnp.zeros(3), jnp.zeros(3), ts, 1e-3, 0, control=push)
    assert np.abs(sol.v[0]).max() < 1e-12
    speed = 3.0 * (ts[1] ** 2 - start**2) - 0.3 * G * 0.6
    np.testing.assert_allclose(sol.v[1, 0], speed, rtol=5e-3)


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

"""Bodies that slide, roll, bounce and tip over, against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rimless_wheel
from contact_mechanisms import FLOOR, G, box, least_rates, run, sphere
from scipy.integrate import solve_ivp

import jaxmbd as mbd


@pytest.mark.slow
def test_ball_slides_then_rolls():
    """After 2 v / (7 mu g) it rolls with 5/7 of its speed."""
    v, mu, r = 1.0, 0.3, 0.2
    start = 2 * v / (7 * mu * G)
    mechanism = sphere(r, velocity=(v, 0.0, 0.0), friction=mu)
    sol = run(mechanism, 0.2, 1e-3, impacts=1, every=1)
    x = np.asarray(mechanism.twist(sol.v, "ball").linear)[:, 0]
    spin = np.asarray(mechanism.twist(sol.v, "ball").angular)[:, 1]
    t = np.asarray(sol.t)
    sliding = t < start - 1e-3
    np.testing.assert_allclose(x[sliding], v - mu * G * t[sliding], rtol=1e-9)
    np.testing.assert_allclose(spin[sliding], 5 * mu * G / (2 * r) * t[sliding], rtol=1e-9)
    rolling = t > start + 1e-3
    np.testing.assert_allclose(x[rolling], 5 / 7 * v, rtol=1e-9)
    np.testing.assert_allclose(r * spin[rolling], x[rolling], rtol=1e-9)
    # The time itself, from the path: sliding costs v t / 7 of what rolling from the start has.
    way = np.asarray(mechanism.pose(sol.q, "ball").position)[-1, 0]
    np.testing.assert_allclose(way, 5 / 7 * v * t[-1] + v * start / 7, atol=1e-6)


@pytest.mark.slow
def test_rimless_wheel():
    # Each spoke strikes as the one before it leaves: the way is a smooth function of the slope,
    # with one derivative from differences of rounding to those that change the steps of strikes.
    @jax.jit
    def walk(slope):
        mechanism, sol = rimless_wheel.walk(slope, t1=1.2, dt=8e-3)
        return mechanism.pose(sol.q, "wheel").position, mechanism, sol

    position, mechanism, sol = walk(jnp.asarray(rimless_wheel.SLOPE))
    assert np.max(np.abs(least_rates(mechanism, sol))) < 0.04
    assert np.max(np.abs(position[:, 1])) < 1e-12
    end = lambda slope: walk(jnp.asarray(slope))[0][-1, 0]  # noqa: E731
    slope = rimless_wheel.SLOPE
    slopes = [(end(slope + d) - end(slope - d)) / (2 * d) for d in (1e-8, 1e-6, 1e-2)]
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-5)
    np.testing.assert_allclose(slopes[0], slopes[2], rtol=2e-2)


@pytest.mark.slow
def test_rimless_wheel_at_first_order_and_its_derivatives():
    errors = [least_rates(*rimless_wheel.walk(rimless_wheel.SLOPE, 1.2, dt)) for dt in (8e-3, 4e-3)]
    np.testing.assert_allclose(2 * errors[1], errors[0], atol=2e-3)

    def way(slope):
        return rimless_wheel.way(slope, t1=1.0, dt=8e-3)

    every = jax.jit(lambda slope: (*jax.jvp(way, (slope,), (1.0,)), jax.grad(way)(slope)))
    _, forward, reverse = every(rimless_wheel.SLOPE)
    np.testing.assert_allclose(reverse, forward, rtol=1e-10)
    ends = [every(rimless_wheel.SLOPE + d)[0] for d in (1e-6, -1e-6)]
    difference = (ends[0] - ends[1]) / 2e-6
    np.testing.assert_allclose(forward, difference, rtol=1e-5)


@pytest.mark.slow
def test_rolling_and_torsional_friction():
    """Rolling slows down by (5/7) mu_r g / r, spinning on the spot by mu_t g / (2/5 r^2)."""
    r, v = 0.2, 1.0
    law = dict(friction=0.8, rolling=0.004, torsional=0.003)
    rolls = sphere(r, velocity=(v, 0, 0), spin=(0, v / r, 0), **law)
    sol = run(rolls, 0.5, 1e-2)
    expected = v - 5 / 7 * 0.004 * G / r * 0.5
    np.testing.assert_allclose(rolls.twist(sol.v, "ball").linear[-1, 0], expected, rtol=1e-8)
    spins = sphere(r, spin=(0, 0, 5.0), **law)
    sol = run(spins, 0.5, 1e-2)
    expected = 5.0 - 0.003 * G / (0.4 * r**2) * 0.5
    np.testing.assert_allclose(spins.twist(sol.v, "ball").angular[-1, 2], expected, rtol=1e-8)


@pytest.mark.slow
def test_bounce_and_its_derivatives():
    """Height of a dropped sphere after its first bounce, and its derivatives with respect to
    radius, restitution, mass and height, in both modes."""
    t = 0.6

    def height(p):
        mechanism = sphere(
            p[0],
            p[2],
            position=jnp.stack([0 * p[3], 0 * p[3], p[3]]),
            plane=mbd.Plane([0.0, -1.0, 0.0]),
            restitution=p[1],
        )
        sol = run(mechanism, t, 1e-2, impacts=1)
        height = mechanism.pose(sol.q[-1], "ball").position[2]
        return height, height

    def exact(p):
        landing = jnp.sqrt(2 * (p[3] - p[0]) / G)
        s = t - landing
        return p[0] + p[1] * G * landing * s - G * s**2 / 2

    p = jnp.array([0.2, 0.8, 1.5, 1.0])
    modes = jax.jacrev, jax.jacfwd
    both = jax.jit(lambda p: [mode(height, has_aux=True)(p) for mode in modes])
    expected, slope = jax.jit(jax.value_and_grad(exact))(p)
    for derivative, found in both(p):
        np.testing.assert_allclose(found, expected, rtol=1e-10)
        np.testing.assert_allclose(derivative, slope, rtol=1e-8, atol=1e-10)


@pytest.mark.slow
def test_derivatives_by_shapes_and_laws():
    """Of a motion of a box through an impact, by sizes, mass and friction."""
    p = dict(size=jnp.array([0.2, 0.3, 0.15]), mass=jnp.asarray(1.3), friction=jnp.asarray(0.4))

    def end(p):
        body = mbd.Body(
            "body",
            mbd.Inertia.box(size=(0.4, 0.6, 0.3), mass=p["mass"]),
            position=(0.02, 0.03, 0.75),
            orientation=(0.9, 0.3, 0.25, 0.1),
            velocity=(0.5, 0.2, -2.0),
        )
        law = dict(friction=p["friction"], restitution=0.3)
        contact = mbd.Contact("c", "ground", body, FLOOR, mbd.Box(p["size"]), **law)
        sol = run(mbd.Mechanism([body], contacts=[contact]), 0.3, 2e-3)
        weights = jnp.linspace(0.3, 1.0, 6)
        return jnp.sum(sol.q[-1, :6] * weights) + jnp.sum(sol.v[-1] * weights[::-1])

    along = jax.jit(lambda p, d: jax.jvp(end, (p,), (d,)))
    zero, found = jax.tree.map(jnp.zeros_like, p), {}
    for key, x in p.items():
        direction = zero | {key: jnp.ones_like(x)}
        found[key] = along(p, direction)[1]
        ends = [along(p | {key: x + s}, direction)[0] for s in (1e-6, -1e-6)]
        np.testing.assert_allclose(found[key], (ends[0] - ends[1]) / 2e-6, rtol=1e-5, atol=1e-7)
    assert abs(found["size"]) > 1e-2


@pytest.mark.slow
def test_box_tips_over_its_edge():
    """Turning about the edge as the ODE of a rigid body with a fixed axis says, with friction that
    holds it; the energy lost in the fall on its face is not tested, only that it comes to rest."""
    tilt = np.pi / 4 + 0.05
    c, s = np.cos(tilt / 2), np.sin(tilt / 2)
    height = np.sqrt(0.5) * np.sin(tilt + np.pi / 4)
    body = box("box", (0.0, 0.0, height), orientation=(c, 0.0, s, 0.0))
    floor = mbd.Contact("floor", "ground", body, FLOOR, mbd.Box((0.5, 0.5, 0.5)), friction=1.5)
    mechanism = mbd.Mechanism([body], contacts=[floor])
    sol = run(mechanism, 0.6, 1e-3, impacts=1)

    def rotation(t, y):
        return [y[1], -G * np.sqrt(0.5) * np.cos(y[0] + np.pi / 4) / (1 / 6 + 1 / 2)]

    exact = solve_ivp(rotation, (0, 0.6), [tilt, 0.0], rtol=1e-10, atol=1e-12).y[0, -1]
    w, _, y, _ = mechanism.pose(sol.q, "box").orientation[-1]
    np.testing.assert_allclose(2 * np.arctan2(y, w), exact, atol=2e-4)
    end = run(mechanism, 2.0, 5e-3)
    np.testing.assert_allclose(end.v[-1], 0.0, atol=1e-8)
    np.testing.assert_allclose(mechanism.pose(end.q, "box").position[-1, 2], 0.5, atol=1e-8)

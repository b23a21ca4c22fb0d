"""The programs of `docs/extending.md`, `docs/own-step.md` and `docs/own-law.md`, each alone as it
stands, against closed forms."""

import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pages
import pytest
from scipy.optimize import brentq

import jaxmbd as mbd

pytestmark = pytest.mark.slow

G = 9.81
PAGE = pages.ROOT / "docs" / "extending.md"
# A quarter of the period of a pendulum of 1 m from the horizontal, K(1/2) sqrt(l / g).
QUARTER = 1.8540746773013719 / np.sqrt(G)


@pytest.fixture(scope="module")
def program():
    """A function that runs the blocks with these numbers, in a module of their own, once."""
    found, here = {}, pages.blocks(PAGE)
    with pytest.MonkeyPatch.context() as patch:

        def get(*numbers):
            if numbers not in found:
                label = f"extending {numbers}"
                found[numbers] = pages.run(PAGE, [here[i] for i in numbers], label, patch)
            return found[numbers]

        yield get


def test_joint(program):
    """The ball circles at w = sqrt(g / p); and the derivative by p. In reports the joint takes one
    freedom of six."""
    p, radius, w = 0.4, 0.5, np.sqrt(G / 0.4)
    one, after = np.array(1.0), lambda p: program(0).after(p, radius)
    position, slope = jax.jit(lambda p: jax.jvp(after, (p,), (one,)))(np.array(p))
    expected = radius * np.array([np.cos(w), np.sin(w)])
    np.testing.assert_allclose(position, expected, atol=1e-6 * radius)
    expected = radius * w / (2 * p) * np.array([np.sin(w), -np.cos(w)])
    np.testing.assert_allclose(slope, expected, atol=1e-5 * radius)
    joint, origin = program(0).PointOnParaboloid, mbd.Pose.identity(float)
    ball = mbd.Body("ball", helpers.BOX, position=[0.4, 0.0, 0.2])
    dish = joint("dish", "ground", ball, p=0.4, frame_a=origin, frame_b=origin)
    assert mbd.reports.mobility(mbd.Mechanism([ball], [dish])).freedoms == 5


def test_enforcement(program):
    """After the quarter of a period it is at the bottom with the right speed, to fourth order. As
    x = l s(t / sqrt(l)), dx/dl = -v t / 2 l there, in both modes."""

    def bottom(length, steps=100):
        sol = program(1).swung(length, QUARTER, steps)
        return jnp.stack([sol.q[-1, 0], sol.v[-1, 0], sol.phi_norm[-1]])

    one = np.array(1.0)
    found = jax.jit(lambda x: (*helpers.both_modes(bottom, x), bottom(x, 50)))(one)
    fine, forward, reverse, coarse = map(np.asarray, found)
    errors = [np.linalg.norm(x[:2] - [0.0, -np.sqrt(2 * G)]) for x in (fine, coarse)]
    assert errors[0] < 1e-5 and 12 < errors[1] / errors[0] < 40 and fine[2] < 1e-8
    np.testing.assert_allclose([forward[0], reverse[0]], np.sqrt(2 * G) * QUARTER / 2, rtol=1e-6)


def test_step_of_its_own(monkeypatch):
    """The same with SHAKE, of first order, and on the circle to rounding."""
    page = pages.ROOT / "docs" / "own-step.md"
    shaken = pages.run(page, pages.blocks(page), "own step", monkeypatch).shaken

    def bottom(length, steps=400):
        sol = shaken(length, QUARTER, steps)
        return jnp.stack([sol.q[-1, 0], sol.v[-1, 0], sol.phi_norm[-1]])

    one = np.array(1.0)
    found = jax.jit(lambda x: (*helpers.both_modes(bottom, x), bottom(x, 200)))(one)
    fine, forward, reverse, coarse = map(np.asarray, found)
    errors = [np.linalg.norm(x[:2] - [0.0, -np.sqrt(2 * G)]) for x in (fine, coarse)]
    assert errors[0] < 0.05 and 1.8 < errors[1] / errors[0] < 2.2 and fine[2] < 1e-10
    np.testing.assert_allclose(forward[:2], reverse[:2], rtol=1e-8)
    np.testing.assert_allclose(forward[0], np.sqrt(2 * G) * QUARTER / 2, rtol=2e-2)


def test_law_and_coordinate_of_its_own(monkeypatch):
    """On a circle with k (r - play) r = m v^2; freely within the play; the power is the loss of
    the energy; and the law along a coordinate of the library."""
    page = pages.ROOT / "docs" / "own-law.md"
    program = pages.run(page, pages.blocks(page), "own law", monkeypatch)
    ends = jax.jit(lambda r, v: program.circled(r, v))
    angle = 2.0 / 0.5
    expected = 0.5 * np.array([np.cos(angle), np.sin(angle), 0.0])
    np.testing.assert_allclose(ends(0.5, 2.0), expected, atol=1e-9)
    np.testing.assert_allclose(ends(0.1, 0.2), [0.1, 0.2, 0.0], atol=1e-12)

    ball = program.held(0.5, 2.0)
    law = program.WithPlay(
        "slide", mbd.coordinates.Displacement(["ground", "ball"]), stiffness=3.0, play=0.1
    )
    ball = mbd.Mechanism(ball.bodies, (), [*ball.forces, law], gravity=[0.0, 0.0, 0.0])
    start, speed = ball.state(), np.array([0.3, 0.2, 0.7])
    state = mbd.State(0.0, start.q.at[:3].set([0.4, 0.3, -0.6]), start.v.at[:3].set(speed))
    powers = mbd.reports.powers(ball, state)
    np.testing.assert_allclose([x.lost for x in powers.values()], 0.0, atol=1e-12)
    radial = np.array([0.8, 0.6, 0.0]) @ speed
    np.testing.assert_allclose(powers["spring"].power, -40.0 * (0.5 - 0.3) * radial, rtol=1e-12)
    np.testing.assert_allclose(powers["slide"].power, -3.0 * (-0.6 + 0.1) * speed[2], rtol=1e-12)


def left(v, c):
    """What k d^(5/2) is proportional to where the speed is v: the integral of v / (1 + c v)."""
    return v / c - np.log1p(c * v) / c**2


def test_contact_law(program):
    """The speed v' after the contact has left(v) = left(-v'), whatever k is."""
    rebound, c, v = program(2, 3).rebound, 0.2, 2.0
    exact = lambda c: brentq(lambda x: left(-x, c) - left(v, c), 0.1, v, xtol=1e-14)  # noqa: E731
    np.testing.assert_allclose(rebound(jnp.array(c)), exact(c), rtol=1e-6)
    slope = (exact(c + 1e-4) - exact(c - 1e-4)) / 2e-4
    np.testing.assert_allclose(jax.jit(jax.grad(rebound))(jnp.array(c)), slope, rtol=1e-5)


def test_impact_law(program):
    """From a height of 2 m the speed after the impact is 0.8 v^(3/4)."""
    law = program(2, 3).Johnson()
    method = mbd.ContactImpulse(impact_law=law, impacts=mbd.Located(2))
    v = np.sqrt(2 * G * 2.0)
    fall, after = v / G, 0.8 * v**0.75
    start, ball = mbd.State(0.0, [0.0, 2.0], [0.0, 0.0]), helpers.Ball(*np.array([1.0, 0.0, 0.8]))
    sol = mbd.simulate(ball, method, start, t1=0.8, dt=1e-2)
    np.testing.assert_allclose(sol.v[-1, 1], after - G * (0.8 - fall), rtol=1e-10)

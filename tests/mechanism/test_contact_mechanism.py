"""Bodies that roll, walk and stand on each other, against closed forms; ropes and limits of joints,
budgets of contact points, and bad input."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rimless_wheel
import stack_of_boxes

import jaxmbd as mbd
from jaxmbd.mechanism.contact_rows import basis

G = 9.81
FLOOR = mbd.HalfSpace()


def run(mechanism):
    method, state = mbd.ContactImpulse(), mechanism.state()
    return mbd.simulate(mechanism, method, state, t1=0.5, dt=1e-2)


def sphere(radius, velocity=(0, 0, 0), spin=(0, 0, 0), **law):
    """One on the floor."""
    inertia, at = mbd.Inertia.sphere(radius=radius, mass=1.5), (0.0, 0.0, radius)
    body = mbd.Body("ball", inertia, position=at, velocity=velocity, angular_velocity=spin)
    contact = mbd.Contact("floor", "ground", body, FLOOR, mbd.Sphere(radius), **law)
    return mbd.Mechanism([body], contacts=[contact])


def box(name, position, size=(1.0, 1.0, 1.0), mass=1.0, **state):
    return mbd.Body(name, mbd.Inertia.box(size=size, mass=mass), position=position, **state)


def least_rates(mechanism, sol):
    """Of a rimless wheel before and between its strikes, less those of the closed form."""
    wheel = rimless_wheel
    rate = np.asarray(mechanism.twist(sol.v, "wheel").angular)[:, 1]
    after = np.searchsorted(sol.t, wheel.strikes(mechanism, sol)[0], side="right")
    k2 = wheel.INERTIA[1] / (wheel.MASS * wheel.LENGTH**2)
    climb = 2 * G * (1 - np.cos(wheel.HALF - wheel.SLOPE)) / (wheel.LENGTH * (1 + k2))
    expected = np.sqrt(np.append(wheel.START, wheel.rates(wheel.SLOPE, 2)[1]) ** 2 - climb)
    return np.array([swing.min() for swing in np.split(rate, after)]) - expected


@pytest.mark.slow
def test_rimless_wheel_at_first_order_and_its_derivatives():
    errors = [least_rates(*rimless_wheel.walk(rimless_wheel.SLOPE, 1.2, dt)) for dt in (8e-3, 4e-3)]
    assert np.max(np.abs(errors[0])) < 0.04
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
    rolls = sphere(r, (v, 0, 0), (0, v / r, 0), **law)
    sol = run(rolls)
    expected = v - 5 / 7 * 0.004 * G / r * 0.5
    np.testing.assert_allclose(rolls.twist(sol.v, "ball").linear[-1, 0], expected, rtol=1e-8)
    spins = sphere(r, spin=(0, 0, 5.0), **law)
    sol = run(spins)
    expected = 5.0 - 0.003 * G / (0.4 * r**2) * 0.5
    np.testing.assert_allclose(spins.twist(sol.v, "ball").angular[-1, 2], expected, rtol=1e-8)


@pytest.mark.slow
def test_example_stack_of_boxes():
    """The box that stays behind is pulled by mu g, has the derivative of that with respect to mu,
    and as it tips that of a difference quotient. Where one of several redundant corners is about
    to bear nothing, within rounding, the derivative of that step is off by up to 1e-4 of it."""
    mu, speed = jnp.asarray(stack_of_boxes.FRICTION), jnp.asarray(stack_of_boxes.SPEED)
    motion = jax.jit(lambda mu: stack_of_boxes.sensitivity(mu, speed, t1=0.1, count=3))
    x, slope = motion(mu)
    n = np.arange(1, 11)
    first = slice(stack_of_boxes.BEFORE, stack_of_boxes.BEFORE + 10)
    np.testing.assert_allclose(x[first], stack_of_boxes.pulled(n), rtol=1e-4)
    np.testing.assert_allclose(slope[first], stack_of_boxes.pulled(n) / mu, rtol=3e-4)
    quotient = (motion(mu + 1e-6)[0] - motion(mu - 1e-6)[0]) / 2e-6
    assert abs(slope[-1] - x[-1] / mu) > 1e-4  # no longer by the closed form
    np.testing.assert_allclose(slope[-1], quotient[-1], rtol=3e-4)


def test_rows_of_a_rope():
    """A user's gap: 1 m minus the distance of two bodies, with its rate by the velocities, and that
    at rest of a rope that grows."""
    inertia = mbd.Inertia.sphere(radius=0.1, mass=2.0)
    places = np.array([[0.1, 0.2, 0.0], [0.3, -0.1, -0.5]])
    bodies = [mbd.Body(name, inertia, position=x) for name, x in zip("ab", places, strict=True)]

    def slack(poses, t):
        d = poses[1].position - poses[0].position
        return 1.0 + 0.3 * t - jnp.sqrt(d @ d)

    mechanism = mbd.Mechanism(bodies, contacts=[mbd.Gap("rope", bodies, slack)])
    assert mechanism.contact_names == ("rope",)
    v = np.arange(12.0)

    @jax.jit
    def found(q, v):
        rows = mechanism.contact_rows(0.0, q)
        return rows.gap, rows.velocities(v), rows.drift

    gap, rate, drift = found(mechanism.state().q, v)
    d = places[1] - places[0]
    np.testing.assert_allclose(gap, [1.0 - np.linalg.norm(d)], rtol=1e-14)
    apart = v.reshape(6, 2)[:3] @ [-1.0, 1.0]
    np.testing.assert_allclose(rate, [[0.3 - apart @ d / np.linalg.norm(d)]], rtol=1e-13)
    np.testing.assert_allclose(drift, [[0.3]], rtol=1e-14)


def test_rows_of_the_limits_of_a_joint():
    """The angle to each limit, and its rate."""
    arm = mbd.Body("arm", mbd.Inertia.sphere(radius=0.1, mass=1.0), position=[0.5, 0.0, 0.0])
    z, limits = [0.0, 0.0, 1.0], (-0.5, 0.3)
    hinge = mbd.Revolute("hinge", "ground", arm, point=[0.0] * 3, axis=z, limits=limits)
    mechanism = mbd.Mechanism([arm], [hinge], contacts=[mbd.JointLimit(hinge, restitution=0.4)])
    v = np.array([0.0, 0.5, 0.0, 0.0, 0.0, 1.0])

    @jax.jit
    def found(q):
        rows = mechanism.contact_rows(0.0, q)
        return rows.gap, rows.velocities(jnp.asarray(v))[:, 0], rows.law.restitution

    for turned in (0.0, 0.1):
        x = np.array([np.cos(turned), np.sin(turned), 0.0]) / 2
        q = np.array([*x, np.cos(turned / 2), 0.0, 0.0, np.sin(turned / 2)])
        gap, rate, restitution = map(np.asarray, found(q))
        order = np.argsort(gap)
        np.testing.assert_allclose(gap[order], [0.3 - turned, 0.5 + turned], rtol=1e-12)
        np.testing.assert_allclose(rate[order], [-1.0, 1.0], rtol=1e-12)
        np.testing.assert_array_equal(restitution, 0.4)


@pytest.mark.slow
def test_overflow_in_the_last_step():
    """Of two balls there is room for the lower one. The other does not see the floor: in n steps it
    falls by g h^2 n (n + 1) / 2, through its gap of 15 mm in the sixth."""

    def fall(gap, steps, **options):
        inertia = mbd.Inertia.sphere(radius=0.1, mass=1.0)
        balls = [
            mbd.Body("low", inertia, position=(0.0, 0.0, 0.105)),
            mbd.Body("high", inertia, position=jnp.stack([jnp.ones(()), jnp.zeros(()), 0.1 + gap])),
        ]
        contacts = [mbd.Contact(b.name, "ground", b, FLOOR, mbd.Sphere(0.1)) for b in balls]
        mechanism = mbd.Mechanism(balls, contacts=contacts, contact_budget=1)
        method = mbd.ContactImpulse(contact_solver=mbd.ProjectedGaussSeidel(10))
        state = mechanism.state()
        return mbd.simulate(mechanism, method, state, t0=0.0, num_steps=steps, dt=1e-2, **options)

    def height(gap):
        sol = fall(gap, 6, throw=False)
        return sol.q.reshape(7, 2)[2, 1], sol

    # The steps themselves are good, and the state is the one that overlaps.
    gaps = jnp.array([0.015, 0.021])
    z, sol = jax.jit(jax.vmap(height))(gaps)
    overflow = sol.result == mbd.RESULTS.contact_overflow
    successful = sol.result == mbd.RESULTS.successful
    np.testing.assert_array_equal([overflow, successful], [[True, False], [False, True]])
    np.testing.assert_array_equal(sol.stats["num_steps"], 6)
    np.testing.assert_allclose(z, 0.1 + gaps - 21 * G * 1e-4, rtol=1e-12)
    assert fall(gaps[0], 5).result == mbd.RESULTS.successful
    with pytest.raises(eqx.EquinoxRuntimeError, match="contact_budget"):
        jax.block_until_ready(fall(gaps[0], 6))


def test_tangents():
    """A right-handed orthonormal basis that begins with the normal, everywhere."""
    n = np.concatenate([np.random.default_rng(0).normal(size=(50, 3)), np.eye(3), -np.eye(3)])
    n /= np.linalg.norm(n, axis=1, keepdims=True)
    B = np.asarray(jax.jit(basis)(n))
    np.testing.assert_allclose(B[:, 0], n, atol=1e-15)
    squares = np.broadcast_to(np.eye(3), B.shape)
    np.testing.assert_allclose(B @ np.swapaxes(B, 1, 2), squares, atol=1e-14)
    np.testing.assert_allclose(np.linalg.det(B), 1.0, atol=1e-14)
    np.testing.assert_array_equal(B[52], np.eye(3)[[2, 0, 1]])


BODY, OTHER, CUBE = (
    box("box", (0.0, 0.0, 0.5)),
    box("other", (0.0, 0.0, 2.0)),
    mbd.Box((0.5, 0.5, 0.5)),
)
HINGE = mbd.Revolute("hinge", "ground", BODY, point=(0, 0, 0), axis=(0.0, 1.0, 0.0))


def on_floor(shape=CUBE, **options):
    return mbd.Contact("floor", "ground", BODY, FLOOR, shape, **options)


@pytest.mark.parametrize(
    "make, error, words",
    [
        (lambda: mbd.Contact("c", BODY, BODY, CUBE, CUBE), ValueError, '"c".*two bodies'),
        (lambda: on_floor(friction=-1.0), ValueError, "friction.*-1"),
        (lambda: mbd.Contact("c", BODY, OTHER, FLOOR, FLOOR), ValueError, "HalfSpace"),
        (lambda: on_floor(0.5), ValueError, "shape"),
        (lambda: on_floor(law=mbd.ContactLaw(), friction=0.3), ValueError, "either `law`"),
        (
            lambda: mbd.Mechanism([BODY], contacts=[mbd.Contact("c", BODY, OTHER, CUBE, CUBE)]),
            ValueError,
            "other",
        ),
        (lambda: mbd.Mechanism([BODY], contact_budget=0), ValueError, "contact_budget.*0"),
        (lambda: mbd.JointLimit(HINGE), ValueError, "limits"),
        (
            lambda: mbd.Gap("gap", [BODY], lambda poses, t: t, friction=0.3),
            TypeError,
            'Gap "gap" has no argument `friction`',
        ),
        (
            lambda: mbd.Gap("gap", [BODY], lambda poses, t: [t, t]),
            ValueError,
            '`fn` of Gap "gap".*jnp.stack',
        ),
    ],
)
def test_bad_input(make, error, words):
    with pytest.raises(error, match=words):
        make()

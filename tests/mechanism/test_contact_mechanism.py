"""Bodies that slide, roll, tip over, stand on each other and land, against closed forms; ropes and
limits of joints, budgets of contact points, and bad input."""

import diffrax
import equinox as eqx
import helpers
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import rimless_wheel
import stack_of_boxes
from scipy.integrate import solve_ivp

import jaxmbd as mbd
from jaxmbd.mechanism.contact_rows import basis

G = 9.81
FLOOR = mbd.HalfSpace()


def run(mechanism, t1, dt, *, impacts=0, every=None, projection=None, throw=True, **options):
    steps = round(t1 / dt)
    return mbd.simulate(
        mechanism,
        mbd.ContactImpulse(impacts=helpers.located(impacts), **options),
        mechanism.state(),
        t0=0.0,
        t1=t1,
        dt=dt,
        projection=projection,
        saveat=diffrax.SaveAt(steps=steps if every is None else every),
        throw=throw,
    )


def sphere(
    radius=0.2, mass=1.5, *, position=None, velocity=(0, 0, 0), spin=(0, 0, 0), plane=None, **law
):
    """One on the floor."""
    body = mbd.Body(
        "ball",
        mbd.Inertia.sphere(radius=radius, mass=mass),
        position=(0.0, 0.0, radius) if position is None else position,
        velocity=velocity,
        angular_velocity=spin,
    )
    contact = mbd.Contact("floor", "ground", body, FLOOR, mbd.Sphere(radius), **law)
    return mbd.Mechanism([body], contacts=[contact], plane=plane)


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
    rolls = sphere(r, velocity=(v, 0, 0), spin=(0, v / r, 0), **law)
    sol = run(rolls, 0.5, 1e-2)
    expected = v - 5 / 7 * 0.004 * G / r * 0.5
    np.testing.assert_allclose(rolls.twist(sol.v, "ball").linear[-1, 0], expected, rtol=1e-8)
    spins = sphere(r, spin=(0, 0, 5.0), **law)
    sol = run(spins, 0.5, 1e-2)
    expected = 5.0 - 0.003 * G / (0.4 * r**2) * 0.5
    np.testing.assert_allclose(spins.twist(sol.v, "ball").angular[-1, 2], expected, rtol=1e-8)


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


@pytest.mark.slow
def test_stack_of_ten_rests():
    cube, bodies = mbd.Box((0.5, 0.5, 0.5)), [box(f"{i}", (0.0, 0.0, 0.5 + i)) for i in range(10)]
    pairs = zip(["ground", *bodies[:-1]], bodies, [FLOOR] + 9 * [cube], strict=True)
    contacts = [mbd.Contact(b.name, a, b, shape, cube, friction=0.5) for a, b, shape in pairs]
    mechanism = mbd.Mechanism(bodies, contacts=contacts, contact_budget=44)
    sol = run(mechanism, 0.5, 1e-2)
    places = np.asarray(sol.q).reshape(-1, 7, 10)[-1, :3]
    np.testing.assert_allclose(places, np.outer([0, 0, 1], 0.5 + np.arange(10.0)), atol=1e-8)
    assert sol.contact_residual[-1] < 1e-8
    np.testing.assert_allclose(sol.contact_force[-1, :, 0].sum(), G * 55, rtol=1e-6)


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


@pytest.mark.slow
def test_random_landings_are_solved():
    """250 cubes and 250 bricks thrown on a floor, of every pose, spin and friction, to the end."""

    def landing(half, key):
        keys = jr.split(key, 4)
        turn = jr.normal(keys[0], (4,))
        mu = jr.uniform(keys[1], minval=0.1, maxval=1.0)
        body = mbd.Body("box", mbd.Inertia.box(size=2 * half, mass=1.0), position=[0, 0, 0.3])
        floor = mbd.Contact("floor", "ground", body, mbd.HalfSpace(), mbd.Box(half), friction=mu)
        mechanism = mbd.Mechanism([body], contacts=[floor], gravity=[0.0, 0.0, -9.81])
        start = mechanism.state()
        q = start.q.at[3:].set(turn / jnp.linalg.norm(turn))
        v = jnp.concatenate([2 * jr.normal(keys[2], (3,)), 5 * jr.normal(keys[3], (3,))])
        method, state = mbd.ContactImpulse(), mbd.State(0.0, q, v)
        sol = mbd.simulate(mechanism, method, state, dt=2.5e-3, num_steps=480, throw=False)
        return sol.result == mbd.RESULTS.successful, sol.contact_residual[-1]

    land = jax.jit(jax.vmap(landing, (None, 0)), compiler_options=helpers.OPTIMISED)
    for half in ([0.1, 0.1, 0.1], [0.2, 0.1, 0.03]):
        solved, residual = land(jnp.array(half), jr.split(jr.key(0), 250))
        assert jnp.all(solved)
        assert jnp.max(residual) < 1e-8


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

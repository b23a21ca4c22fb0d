"""Bodies that roll and stand on each other, against closed forms; ropes and limits of joints."""

import chain_on_post
import equinox as eqx
import hopper
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import stack_of_boxes
import struck_pile
import wall
from helpers import assert_verdicts
from refusals import check_refused, refusals

import jaxmbd as mbd
from jaxmbd._mechanism.contact_rows import basis

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


@pytest.mark.slow
def test_example_struck_pile():
    """Strikes to the left and to the right are mirror images, and one in the middle leaves the
    upper ball there. Derivatives are those of difference quotients."""
    motion = jax.jit(lambda strike: struck_pile.sensitivity(strike, t1=0.3))
    run = lambda strike: jax.device_get(motion(strike))  # noqa: E731
    first, eps = struck_pile.FIRST, np.array([1e-6, 0.0])
    mirror, half = np.array([-1.0, 1.0]), np.array([-1.0, 1.0, 1.0])
    (slope, (x, _)), (turned, (other, _)) = run(first), run(first * mirror)
    assert abs(x[-1, 0]) > 1e-4
    np.testing.assert_allclose(other, x * half, atol=1e-9)
    np.testing.assert_allclose(turned[-1], slope[-1] * half[:, None] * mirror, atol=1e-6)
    np.testing.assert_allclose(run(0 * first + [0, 1.2])[1][0][-1, 0], 0.0, atol=1e-9)
    quotient = (run(first + eps)[1][0] - run(first - eps)[1][0]) / 2e-6
    np.testing.assert_allclose(slope[-1, :, 0], quotient[-1], rtol=1e-3)


@pytest.mark.slow
def test_example_hopper():
    """200 spheres run out of two outlets as by Beverloo's law. So few of them show its exponent in
    the median of many motions only: starts that differ by 1e-9 m/s lead to exponents from 1.2 to
    1.6, and one of 16 to an arch over the outlet. Flows that go with the width of the outlet
    itself, without the edge in which no sphere passes, would have an exponent 0.4 larger."""
    state, places = hopper.filled(count := 200)
    assert np.min(places[1]) > 0
    rng, outlets, flows = np.random.default_rng(0), hopper.OUTLETS[[0, 3]], []
    for outlet, motions in zip(outlets, (15, 1), strict=True):
        flows.append([])
        for _ in range(motions):
            start = state.replace(v=state.v + 1e-9 * rng.normal(size=state.v.shape))
            t, _, out, end = hopper.emptied(outlet, start, 0.6, count)
            assert end.result == mbd.RESULTS.successful
            assert end.contacts.residual < 1e-8
            flows[-1].append(hopper.flow(t, out))
    width = outlets - hopper.EDGE * hopper.DIAMETER
    exponent = np.diff(np.log([np.median(x) for x in flows])) / np.diff(np.log(width))
    np.testing.assert_allclose(exponent, 1.5, atol=0.15)


@pytest.mark.slow
def test_a_heap_of_rigid_spheres(monkeypatch):
    """150 rigid spheres come to rest in the closed hopper, where many more contacts than freedoms
    press. Each step is solved, no two spheres overlap, and then nothing moves."""
    monkeypatch.setattr(hopper, "LAW", mbd.ContactLaw(0.5))
    state, places = hopper.filled(count := 150)
    assert state.result == mbd.RESULTS.successful
    i, j = np.triu_indices(count, 1)
    gaps = np.linalg.norm(places[:, i] - places[:, j], axis=0) - hopper.RADII[i] - hopper.RADII[j]
    assert np.min(gaps) > -1e-9
    _, later, _ = hopper.onwards(np.float64(0.0), state, count)
    np.testing.assert_allclose(later, places, atol=1e-6)


@pytest.mark.slow
def test_example_wall():
    """Momentum changes by gravity and by the forces of the ground, and contacts add no energy.
    Redundant corners exchange their loads in the step of the strike."""
    rows, columns = 5, 4
    run = jax.jit(lambda speed: wall.simulate(speed, 0.06, rows, columns)[1])
    mechanism, sol = wall.wall_and_ball(jnp.asarray(6.0), rows, columns), run(jnp.asarray(6.0))
    assert sol.result == mbd.RESULTS.successful
    assert sol.contact_residual[-1] < 1e-8
    audit = mbd.reports.audit(mechanism, sol)
    mass = wall.MASS * (len(mechanism.bodies) - 1) + wall.HEAVY
    given = wall.ground_impulses(mechanism, sol)[1:] - [0, 0, wall.STEP * wall.GRAVITY * mass]
    assert np.max(given[:, 2]) > 1.0
    np.testing.assert_allclose(np.diff(audit.momentum, axis=0), given, atol=1e-9)
    # What the residual lets through, with the impulse of the ball.
    assert np.max(np.diff(audit.total)) < 1e-9 + sol.contact_residual[-1] * 6.0 * wall.HEAVY
    assert audit.total[0] - audit.total[-1] > 500.0


@pytest.mark.slow
def test_example_chain_on_post():
    """The ring flies along a parabola, though its joints and its contacts are solved for together,
    and then strikes the post: contacts take energy and add none."""
    run = jax.jit(lambda: chain_on_post.simulate(0.45, links=8)[1])
    mechanism, sol = chain_on_post.ring(8), run()
    assert sol.result == mbd.RESULTS.successful
    assert sol.contact_residual[-1] < 1e-8
    assert np.max(sol.phi_norm) < 3e-3
    audit = mbd.reports.audit(mechanism, sol)
    mass, touched = 8 * chain_on_post.MASS, np.any(sol.contact_force[..., 0] > 0, axis=1)
    flying = np.cumsum(touched) == 0
    assert 10 <= np.sum(flying) < 40
    fall = np.outer(sol.t, [0.0, 0.0, -chain_on_post.GRAVITY])
    expected = mass * (chain_on_post.VELOCITY + fall)
    np.testing.assert_allclose(audit.momentum[flying], expected[flying], atol=1e-9)
    assert np.max(np.diff(audit.total)) < 1e-9
    assert audit.total[0] - audit.total[-1] > 0.01


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

    def fall(gap, steps=6, **options):
        balls = [
            mbd.Body(name, mbd.Inertia.sphere(radius=0.1, mass=1.0), position=[x, 0.0, z])
            for name, x, z in (("low", 0.0, 0.105), ("high", 1.0, 0.1 + gap))
        ]
        contacts = [mbd.Contact(b.name, "ground", b, FLOOR, mbd.Sphere(0.1)) for b in balls]
        mechanism = mbd.Mechanism(balls, contacts=contacts, contact_budget=1)
        method, state = mbd.ContactImpulse(), mechanism.state()
        return mbd.simulate(mechanism, method, state, num_steps=steps, dt=1e-2, **options)

    # The steps themselves are good, and the state is the one that overlaps.
    sol = fall(0.015, throw=False)
    assert_verdicts(sol.result, mbd.RESULTS.contact_overflow)
    assert sol.stats["num_steps"] == 6
    np.testing.assert_allclose(np.asarray(sol.q)[-1, 5], 0.115 - 21 * G * 1e-4, rtol=1e-12)
    for enough in (fall(0.015, 5), fall(0.021)):
        assert_verdicts(enough.result, mbd.RESULTS.successful)
    with pytest.raises(eqx.EquinoxRuntimeError, match="contact_budget"):
        jax.block_until_ready(fall(0.015))


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


BODY, CUBE = box("box", (0.0, 0.0, 0.5)), mbd.Box(size=(1.0, 1.0, 1.0))
OTHER = box("other", (0.0, 0.0, 2.0))
HINGE = mbd.Revolute("hinge", "ground", BODY, point=(0, 0, 0), axis=(0.0, 1.0, 0.0))


def on_floor(shape=CUBE, **options):
    return mbd.Contact("floor", "ground", BODY, FLOOR, shape, **options)


@refusals(
    ("one-body", '"c".*two bodies', lambda: mbd.Contact("c", BODY, BODY, CUBE, CUBE)),
    ("friction", "friction.*-1", lambda: on_floor(friction=-1.0)),
    ("no-shape", "shape", lambda: on_floor(0.5)),
    ("two-laws", "either `law`", lambda: on_floor(law=mbd.ContactLaw(), friction=0.3)),
    ("unknown", "other", lambda: mbd.Mechanism(
        [BODY], contacts=[mbd.Contact("c", BODY, OTHER, CUBE, CUBE)])),
    ("budget", "contact_budget.*0", lambda: mbd.Mechanism([BODY], contact_budget=0)),
    ("no-limits", "limits", lambda: mbd.JointLimit(HINGE)),
    ("friction-of-a-gap", 'Gap "gap" has no argument `friction`',
     lambda: mbd.Gap("gap", [BODY], lambda poses, t: t, friction=0.3)),
    ("a-list-of-gaps", '`fn` of Gap "gap".*jnp.stack',
     lambda: mbd.Gap("gap", [BODY], lambda poses, t: [t, t])),
)  # fmt: skip
def test_bad_input(words, call):
    check_refused(call, words)

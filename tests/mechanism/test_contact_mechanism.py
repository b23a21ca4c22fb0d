"""Contacts between shapes, joint limits and loops in contact, against closed forms."""

import functools
import itertools

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


def sphere(radius=0.2, mass=1.5, *, position=None, velocity=(0, 0, 0), spin=(0, 0, 0), **law):
    """One on the floor."""
    body = mbd.Body(
        "ball",
        mbd.Inertia.sphere(radius=radius, mass=mass),
        position=(0.0, 0.0, radius) if position is None else position,
        velocity=velocity,
        angular_velocity=spin,
    )
    contact = mbd.Contact("floor", "ground", body, FLOOR, mbd.Sphere(radius), **law)
    return mbd.Mechanism([body], contacts=[contact])


def box(name, position, size=(1.0, 1.0, 1.0), mass=1.0, **state):
    return mbd.Body(name, mbd.Inertia.box(size=size, mass=mass), position=position, **state)


def boxes(positions, gravity=(0.0, 0.0, -G), friction=0.5, budget=None):
    """Unit boxes; those that can touch do."""
    bodies = [box(f"box {i}", p) for i, p in enumerate(positions)]
    shape = mbd.Box((0.5, 0.5, 0.5))
    contacts = []
    for i, p in enumerate(positions):
        if p[2] < 0.6:
            name = f"floor-{i}"
            contacts.append(mbd.Contact(name, "ground", bodies[i], FLOOR, shape, friction=friction))
        for j in range(i):
            if np.max(np.abs(np.subtract(p, positions[j]))) < 1.2:
                contacts.append(
                    mbd.Contact(f"{j}-{i}", bodies[j], bodies[i], shape, shape, friction=friction)
                )
    return mbd.Mechanism(bodies, contacts=contacts, gravity=gravity, contact_budget=budget)


def positions(mechanism, sol):
    return np.asarray(sol.q).reshape(len(sol.t), 7, -1)[:, :3]


@pytest.mark.slow
def test_box_on_a_slope():
    """Sticks below and slides above tan(a) = mu, to the distance of the steps' closed form."""
    for angle in (0.46, 0.5):
        gravity = G * np.array([np.sin(angle), 0.0, -np.cos(angle)])
        mechanism = boxes([(0.0, 0.0, 0.5)], gravity)
        sol = run(mechanism, 1.0, 1e-2)
        excess = max(0.0, np.sin(angle) - 0.5 * np.cos(angle))
        x = positions(mechanism, sol)[-1, :, 0]
        # h^2 (1 + ... + n) a
        np.testing.assert_allclose(x, [G * excess * 1.01 / 2, 0.0, 0.5], atol=1e-10)
        force = np.asarray(sol.contact_force[-1])
        np.testing.assert_allclose(force[:, 0].sum(), G * np.cos(angle), rtol=1e-9)
        assert mechanism.contact_names == ("floor-0",) * 8


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

    slope = jnp.asarray(rimless_wheel.SLOPE)
    forward = jax.jacfwd(way)(slope)
    np.testing.assert_allclose(jax.grad(way)(slope), forward, rtol=1e-10)
    difference = (way(slope + 1e-6) - way(slope - 1e-6)) / 2e-6
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
            p[0], p[2], position=jnp.stack([0 * p[3], 0 * p[3], p[3]]), restitution=p[1]
        )
        sol = run(mechanism, t, 1e-2, impacts=2)
        return sol.q[-1, 2]

    def exact(p):
        landing = jnp.sqrt(2 * (p[3] - p[0]) / G)
        s = t - landing
        return p[0] + p[1] * G * landing * s - G * s**2 / 2

    p = jnp.array([0.2, 0.8, 1.5, 1.0])
    np.testing.assert_allclose(height(p), exact(p), rtol=1e-10)
    np.testing.assert_allclose(jax.grad(height)(p), jax.grad(exact)(p), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(jax.jacfwd(height)(p), jax.grad(exact)(p), rtol=1e-8, atol=1e-10)


FALLS = {
    # name: (shape of the ground, of the body that falls on it, law)
    "box": (lambda p: FLOOR, lambda p: mbd.Box(p["size"]), dict(restitution=0.3)),
    "capsule on box": (
        lambda p: mbd.Box(jnp.concatenate([jnp.ones(2), p["size"][:1]])),
        lambda p: mbd.Capsule(p["size"][0], p["size"][1]),
        dict(restitution=0.3),
    ),
    "soft sphere": (lambda p: FLOOR, lambda p: mbd.Sphere(p["size"][0]), None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FALLS)
def test_derivatives_by_shapes_and_laws(name):
    """Of a motion through an impact, or soft contact, by sizes, mass, friction and stiffness."""
    ground, shape, law = FALLS[name]
    p = dict(
        size=jnp.array([0.2, 0.3, 0.15]),
        mass=jnp.asarray(1.3),
        friction=jnp.asarray(0.4),
        stiffness=jnp.asarray(4e3),
    )

    @jax.jit
    def end(p):
        soft = dict(stiffness=p["stiffness"], damping=0.01 * p["stiffness"])
        body = mbd.Body(
            "body",
            mbd.Inertia.box(size=(0.4, 0.6, 0.3), mass=p["mass"]),
            position=(0.02, 0.03, 0.75),
            orientation=(0.9, 0.3, 0.25, 0.1),
            velocity=(0.5, 0.2, -2.0),
        )
        contact = mbd.Contact(
            "c", "ground", body, ground(p), shape(p), friction=p["friction"], **(law or soft)
        )
        mechanism = mbd.Mechanism([body], contacts=[contact])
        sol = run(mechanism, 0.3, 2e-3)
        weights = jnp.linspace(0.3, 1.0, 6)
        return jnp.sum(sol.q[-1, :6] * weights) + jnp.sum(sol.v[-1] * weights[::-1])

    along = jax.jit(lambda p, d: jax.jvp(end, (p,), (d,))[1])
    zero, found = jax.tree.map(jnp.zeros_like, p), {}
    for key, x in p.items():
        found[key] = along(p, zero | {key: jnp.ones_like(x)})
        step = 1e-6 * jnp.maximum(1.0, jnp.max(x))
        ends = [end(p | {key: x + s}) for s in (step, -step)]
        np.testing.assert_allclose(
            found[key], (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-7
        )
    assert abs(found["size"]) > 1e-2


@pytest.mark.slow
def test_stack_of_ten_rests():
    mechanism = boxes([(0.0, 0.0, 0.5 + i) for i in range(10)], budget=44)
    sol = run(mechanism, 0.5, 1e-2, every=10)
    moved = positions(mechanism, sol) - positions(mechanism, sol)[:1]
    assert np.abs(moved).max() < 1e-8
    assert sol.contact_residual[-1] < 1e-8
    np.testing.assert_allclose(sol.contact_force[-1, :, 0].sum(), G * 55, rtol=1e-6)


@pytest.mark.slow
def test_wall_of_twenty_rests():
    """Bricks half over half, four rows of five: neither overlap nor energy grows."""
    places = [(i + 0.5 * (row % 2), 0.0, 0.5 + row) for row in range(4) for i in range(5)]
    mechanism = boxes(places, budget=200)
    sol = run(mechanism, 0.1, 1e-2, every=1)
    moved = positions(mechanism, sol) - positions(mechanism, sol)[:1]
    assert np.abs(moved).max() < 1e-7
    energy = jax.vmap(lambda q, v: mbd.total_energy(mechanism, q, v))(sol.q, sol.v)
    assert np.max(energy - energy[0]) < 1e-6
    gaps = jax.vmap(lambda q: mechanism.gap(q, 0.0))(sol.q)
    assert np.min(gaps) > -1e-8


@pytest.mark.slow
@pytest.mark.xfail(
    strict=False,
    reason="where one of several redundant corners is about to bear nothing, within rounding, the "
    "derivative of that step is off by up to 1e-4 of it",
)
def test_example_stack_of_boxes():
    """The box that stays behind is pulled by mu g, has the derivative of that with respect to mu,
    and as it tips that of a difference quotient."""
    mu, speed = jnp.asarray(stack_of_boxes.FRICTION), jnp.asarray(stack_of_boxes.SPEED)
    motion = jax.jit(lambda mu: stack_of_boxes.sensitivity(mu, speed, t1=0.1, count=3))
    x, slope = motion(mu)
    n = np.arange(1, 11)
    first = slice(stack_of_boxes.BEFORE, stack_of_boxes.BEFORE + 10)
    np.testing.assert_allclose(x[first], stack_of_boxes.pulled(n), rtol=1e-4)
    np.testing.assert_allclose(slope[first], stack_of_boxes.pulled(n) / mu, rtol=1e-4)
    quotient = (motion(mu + 1e-6)[0] - motion(mu - 1e-6)[0]) / 2e-6
    assert abs(slope[-1] - x[-1] / mu) > 1e-4  # no longer by the closed form
    np.testing.assert_allclose(slope[-1], quotient[-1], rtol=1e-5)


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


def on_table(shape, inertia, table, height, angle=0.0):
    """A body on a table of half height 0.5 that is inclined about y."""
    body = mbd.Body("body", inertia, position=(0.1, 0.2, 0.5 + height))
    contact = mbd.Contact("table", "ground", body, table, shape, friction=3.0)
    gravity = G * np.array([np.sin(angle), 0.0, -np.cos(angle)])
    return mbd.Mechanism([body], contacts=[contact], gravity=gravity)


def rests(mechanism, sol, weight, atol=1e-9):
    np.testing.assert_allclose(sol.q[-1], mechanism.state().q, atol=atol)
    force = mbd.contact_forces(mechanism, sol.q, sol.contact_force)[-1].sum(axis=0)
    np.testing.assert_allclose(force, -weight, atol=1e-8)


@pytest.mark.slow
def test_cylinder_stands_on_a_table_and_tips_over():
    """Where the line of its weight leaves the foot, at tan(angle) = r / (half height)."""
    r, half, mass = 0.3, 0.5, 2.0
    inertia = mbd.Inertia.cylinder(radius=r, length=2 * half, mass=mass)
    shape, table = mbd.Cylinder(r, half), mbd.Box((2.0, 2.0, 0.5))
    limit = np.arctan(r / half)
    for angle in (0.0, 0.98 * limit, 1.02 * limit):
        mechanism = on_table(shape, inertia, table, half, angle)
        sol = run(mechanism, 1.0, 1e-2)
        if angle < limit:
            rests(mechanism, sol, mass * np.asarray(mechanism.gravity))
        else:
            assert mechanism.twist(sol.v, "body").angular[-1, 1] > 0.1


@pytest.mark.slow
def test_hull_rests_on_a_hull():
    """A tetrahedron on its face, over the middle of a cube's."""
    corners = np.array([[0.0, 0.0, 0.6], [0.4, 0.0, -0.2], [-0.2, 0.35, -0.2], [-0.2, -0.35, -0.2]])
    cube = 0.5 * np.array(list(itertools.product((-1.0, 1.0), repeat=3)))
    inertia = mbd.Inertia.sphere(radius=0.3, mass=1.5)
    mechanism = on_table(mbd.ConvexPoints(corners), inertia, mbd.ConvexPoints(cube), 0.2)
    rests(mechanism, run(mechanism, 1.0, 1e-2), 1.5 * G * np.array([0.0, 0.0, -1.0]))


def four_bar(limits=None, contacts=(), **law):
    """Crank, coupler and rocker in the xz plane, a redundant loop in space."""
    points = [np.array(p) for p in ((0, 0, 0), (0.2, 0, 0.3), (0.9, 0, 0.5), (0.8, 0, 0))]
    bodies, joints = [], []
    for name, a, b in zip(("crank", "coupler", "rocker"), points[:-1], points[1:], strict=True):
        d = (b - a) / np.linalg.norm(b - a)
        turn = np.array([1 + d[2], 0.0, d[0], 0.0])
        bodies.append(
            mbd.Body(
                name,
                mbd.Inertia.box(size=(0.05, 0.05, np.linalg.norm(b - a)), mass=1.0),
                position=(a + b) / 2,
                orientation=turn / np.linalg.norm(turn),
            )
        )
    ends = ["ground", *bodies, "ground"]
    for i, p in enumerate(points):
        joints.append(
            mbd.Revolute(
                f"hinge {i}",
                ends[i],
                ends[i + 1],
                point=p,
                axis=(0.0, 1.0, 0.0),
                limits=limits if i == 0 else None,
            )
        )
    if limits is not None:
        contacts = [*contacts, mbd.JointLimit(joints[0], **law)]
    return mbd.Mechanism(
        bodies, joints, contacts=[c(bodies) if callable(c) else c for c in contacts]
    )


@pytest.mark.slow
@pytest.mark.parametrize("impacts", [0, 2])
def test_four_bar_hits_its_limit(impacts):
    """Rows of the redundant loop stay below 1e-9, the limit is kept, and the crank comes back with
    e times its rate."""
    mechanism = four_bar(limits=(-0.6, 0.35), restitution=0.5)
    sol = run(mechanism, 0.6, 1e-3, impacts=impacts, every=1, projection=mbd.Projection())
    angle = np.asarray(mechanism.joint_coordinates(sol.q, "hinge 0"))[:, 0]
    rate = np.asarray(mbd.joint_rates(mechanism, sol.q, sol.v, "hinge 0"))[:, 0]
    hits = np.flatnonzero(np.asarray(sol.contact_force)[:, :, 0].max(axis=1) > 0)
    assert hits.size
    assert sol.phi_norm.max() < 1e-9
    assert angle.max() < 0.35 + 1e-5 and angle.min() > -0.6 - 1e-5
    first = hits[0]
    np.testing.assert_allclose(rate[first] / rate[first - 1], -0.5, rtol=3e-2)


@pytest.mark.slow
def test_loop_in_contact():
    """A four-bar whose coupler comes to rest on a ball that is fixed: rows below 1e-9, at rest."""

    def stop(bodies):
        pose = mbd.Pose(jnp.array([0.6, 0.0, 0.2]), jnp.array([1.0, 0.0, 0.0, 0.0]))
        return mbd.Contact(
            "stop",
            "ground",
            bodies[1],
            mbd.Sphere(0.1),
            mbd.Capsule(0.02, 0.36),
            frame_a=pose,
            friction=0.4,
        )

    mechanism = four_bar(contacts=[stop])
    sol = run(mechanism, 2.0, 2e-3, every=10, projection=mbd.Projection())
    assert sol.phi_norm.max() < 1e-9
    gaps = jax.vmap(lambda q: mechanism.gap(q, 0.0))(sol.q)
    assert np.min(gaps) > -1e-5
    assert np.asarray(sol.contact_force)[-1, :, 0].max() > 0
    np.testing.assert_allclose(sol.v[-1], 0.0, atol=1e-6)


@pytest.mark.slow
def test_slider_with_dry_friction():
    """Guided along x by a joint and pressed on the floor: mu m g t less speed, to a stop."""
    body = box("slider", (0.0, 0.0, 0.5), mass=2.0, velocity=(1.0, 0.0, 0.0))
    guide = mbd.PointOnLine(
        "guide", "ground", body, points=((0.0, 0.0, 0.5), (0.0, 0.0, 0.5)), axis=(1.0, 0.0, 0.0)
    )
    floor = mbd.Contact("floor", "ground", body, FLOOR, mbd.Box((0.5, 0.5, 0.5)), friction=0.25)
    mechanism = mbd.Mechanism([body], [guide], contacts=[floor])
    sol = run(mechanism, 0.6, 1e-2, every=10)
    speed = np.maximum(1.0 - 0.25 * G * np.asarray(sol.t), 0.0)
    carried = np.asarray(sol.contact_force)[:, :, 0].sum(axis=1)
    # What the guide carries rubs nowhere.
    rub = np.asarray(sol.contact_force)[0, :, 1].sum()
    np.testing.assert_allclose(rub, -0.25 * carried[0], rtol=1e-8)
    if abs(carried[0] - 2.0 * G) < 1e-6:
        np.testing.assert_allclose(sol.v[:, 0], speed, atol=1e-8)
    assert sol.phi_norm.max() < 1e-9


def test_rope():
    """A user's gap: falls free until the rope is taut, and stays there, without bouncing."""
    body = mbd.Body("weight", mbd.Inertia.sphere(radius=0.1, mass=2.0), position=(0.0, 0.0, -0.5))

    def slack(poses, t):
        d = poses[1].position - poses[0].position
        return 1.0 - jnp.sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2])

    rope = mbd.Gap("rope", ["ground", body], slack)
    mechanism = mbd.Mechanism([body], contacts=[rope])
    sol = run(mechanism, 0.6, 1e-2, every=20)
    z = positions(mechanism, sol)[:, 2, 0]
    np.testing.assert_allclose(z[0], -0.5 - G * 0.2 * 0.21 / 2, atol=1e-12)
    np.testing.assert_allclose(z[-1], -1.0, atol=1e-9)
    np.testing.assert_allclose(sol.contact_force[-1, 0, 0], 2.0 * G, rtol=1e-8)
    assert mechanism.contact_names == ("rope",)


@pytest.mark.slow
def test_budget():
    """Balls in a row on the floor: with room for all they rest; with less the result says so."""
    balls = [
        mbd.Body(f"{i}", mbd.Inertia.sphere(radius=0.1, mass=1.0), position=(0.3 * i, 0, 0.1))
        for i in range(4)
    ]
    pieces = [("ground", FLOOR), *((b, mbd.Sphere(0.1)) for b in balls)]
    contacts = mbd.contacts_among(pieces, law=mbd.ContactLaw(0.3))
    assert len(contacts) == 4 + 6 and contacts[0].body_a in ("ground", "0", "1", "2", "3")
    for budget, result in ((4, "successful"), (3, "contact_overflow")):
        mechanism = mbd.Mechanism(balls, contacts=contacts, contact_budget=budget)
        sol = run(mechanism, 0.1, 1e-2, throw=False)
        assert sol.result == getattr(mbd.RESULTS, result)
        assert sol.contact_force.shape[1] == len(mechanism.contact_names) == 10
    np.testing.assert_allclose(positions(mechanism, sol)[-1, 2].max(), 0.1, atol=1e-10)


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
    (z, sol), slope = jax.vmap(jax.value_and_grad(height, has_aux=True))(gaps)
    overflow = sol.result == mbd.RESULTS.contact_overflow
    successful = sol.result == mbd.RESULTS.successful
    np.testing.assert_array_equal([overflow, successful], [[True, False], [False, True]])
    np.testing.assert_array_equal(sol.stats["num_steps"], 6)
    np.testing.assert_allclose(z, 0.1 + gaps - 21 * G * 1e-4, rtol=1e-12)
    np.testing.assert_allclose(slope, 1.0, rtol=1e-12)
    assert fall(gaps[0], 5).result == mbd.RESULTS.successful
    with pytest.raises(eqx.EquinoxRuntimeError, match="contact_budget"):
        jax.block_until_ready(fall(gaps[0], 6))


def test_tangents(getkey):
    """A right-handed orthonormal basis that begins with the normal, everywhere."""
    n = jax.random.normal(getkey(), (50, 3))
    n = jnp.concatenate([n, jnp.eye(3), -jnp.eye(3)])
    n = n / jnp.linalg.norm(n, axis=1, keepdims=True)
    B = basis(n)
    np.testing.assert_allclose(B[:, 0], n, atol=1e-15)
    np.testing.assert_allclose(
        B @ jnp.swapaxes(B, 1, 2), np.broadcast_to(np.eye(3), B.shape), atol=1e-14
    )
    np.testing.assert_allclose(jnp.linalg.det(B), 1.0, atol=1e-14)
    np.testing.assert_allclose(basis(jnp.array([0.0, 0.0, 1.0])), np.eye(3)[[2, 0, 1]], atol=0)


def test_bad_input():
    body = box("box", (0.0, 0.0, 0.5))
    other = box("other", (0.0, 0.0, 2.0))
    cube = mbd.Box((0.5, 0.5, 0.5))
    with pytest.raises(ValueError, match='"floor".*two bodies'):
        mbd.Contact("floor", body, body, cube, cube)
    with pytest.raises(ValueError, match="friction.*-1"):
        mbd.Contact("floor", "ground", body, FLOOR, cube, friction=-1.0)
    with pytest.raises(ValueError, match="HalfSpace"):
        mbd.Contact("floor", body, other, FLOOR, FLOOR)
    with pytest.raises(ValueError, match="shape"):
        mbd.Contact("floor", "ground", body, FLOOR, 0.5)
    with pytest.raises(ValueError, match="either `law`"):
        mbd.Contact("c", "ground", body, FLOOR, cube, law=mbd.ContactLaw(), friction=0.3)
    with pytest.raises(ValueError, match="other"):
        mbd.Mechanism([body], contacts=[mbd.Contact("c", body, other, cube, cube)])
    with pytest.raises(ValueError, match="contact_budget.*0"):
        mbd.Mechanism([body], contact_budget=0)
    hinge = mbd.Revolute("hinge", "ground", body, point=(0, 0, 0), axis=(0.0, 1.0, 0.0))
    with pytest.raises(ValueError, match="limits"):
        mbd.JointLimit(hinge)
    wide = mbd.Revolute(
        "wide", "ground", body, point=(0, 0, 0), axis=(0.0, 1.0, 0.0), limits=(-4.0, 4.0)
    )
    with pytest.raises(ValueError, match="less than a turn"):
        mbd.JointLimit(wide)
    with pytest.raises(TypeError, match='Gap "gap" has no argument `friction`'):
        mbd.Gap("gap", [body], lambda poses, t: poses[0].position[2], friction=0.3)
    with pytest.raises(ValueError, match='`fn` of Gap "gap".*jnp.stack'):
        mbd.Gap("gap", [body], lambda poses, t: [t, t])
    low = mbd.Mechanism(
        [box("low", (0.0, 0.0, 0.3))],
        contacts=[mbd.Contact("floor", "ground", "low", FLOOR, cube)],
    )
    sol = run(low, 0.02, 1e-2, throw=False)
    assert sol.result == mbd.RESULTS.overlapping_start


@pytest.mark.slow
@pytest.mark.parametrize("friction", [mbd.Cone(), mbd.Pyramid(4)], ids=["cone", "pyramid"])
@pytest.mark.parametrize("half", [[0.1, 0.1, 0.1], [0.2, 0.1, 0.03]], ids=["cube", "brick"])
def test_random_landings_are_solved(half, friction):
    """250 thrown on a floor, of every pose, spin and friction, to the end."""

    def landing(key):
        keys = jr.split(key, 4)
        turn = jr.normal(keys[0], (4,))
        mu = jr.uniform(keys[1], minval=0.1, maxval=1.0)
        size = [2 * x for x in half]
        body = mbd.Body("box", mbd.Inertia.box(size=size, mass=1.0), position=[0, 0, 0.3])
        floor = mbd.Contact("floor", "ground", body, mbd.HalfSpace(), mbd.Box(half), friction=mu)
        mechanism = mbd.Mechanism([body], contacts=[floor], gravity=[0.0, 0.0, -9.81])
        start = mechanism.state()
        q = start.q.at[3:].set(turn / jnp.linalg.norm(turn))
        v = jnp.concatenate([2 * jr.normal(keys[2], (3,)), 5 * jr.normal(keys[3], (3,))])
        method, state = mbd.ContactImpulse(friction=friction), mbd.State(0.0, q, v)
        sol = mbd.simulate(mechanism, method, state, dt=2.5e-3, num_steps=480, throw=False)
        return sol.result == mbd.RESULTS.successful, sol.contact_residual[-1]

    solved, residual = jax.jit(jax.vmap(landing))(jr.split(jr.key(0), 250))
    assert jnp.all(solved)
    assert jnp.max(residual) < 1e-8


@pytest.mark.parametrize("friction", [mbd.Cone(), mbd.Pyramid(4)], ids=["cone", "pyramid"])
@pytest.mark.parametrize("derivative", [jax.grad, jax.jacfwd])
def test_what_rests_without_friction_impulses_sticks_in_derivatives(friction, derivative):
    """A box on level ground: its friction is exactly 0, and holds it against any small pull."""
    body = box("box", [0.0, 0.0, 0.5])
    floor = mbd.Contact("floor", "ground", body, FLOOR, mbd.Box([0.5] * 3), friction=0.4)
    mechanism = mbd.Mechanism([body], contacts=[floor])

    def end(pull):
        pulled = eqx.tree_at(lambda m: m.gravity, mechanism, jnp.array([pull, 0.0, -G]))
        return run(pulled, 0.05, 0.01, friction=friction).q[-1, 0]

    free = 0.05**2 / 2
    assert abs(derivative(end)(0.0)) < 1e-9 * free


HEIGHTS = np.linspace(0.0, 0.01, 4)


def landed(impacts, height, speed):
    """Where a ball is that lands from that height, or from a little above the floor."""
    mechanism = sphere(velocity=[1.0, 0.3, -1.0], spin=[0.0, 2.0, 1.0], friction=0.4)
    start = mechanism.state()
    state = mbd.State(0.0, start.q.at[2].add(height), start.v * speed)
    method = mbd.ContactImpulse(impacts=helpers.located(impacts))
    return mbd.simulate(mechanism, method, state, dt=2e-3, num_steps=10, throw=False).q[-1]


@pytest.mark.parametrize("impacts", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_motions_in_a_batch_are_those_alone(impacts):
    """Balls that land one after the other: in each step some have to iterate, others do not."""
    end = lambda height: landed(impacts, height, jnp.ones(()))  # noqa: E731
    together = jax.jit(jax.vmap(end))(HEIGHTS)
    alone = jax.jit(lambda x: jax.lax.map(end, x))(HEIGHTS)
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("impacts", [0, 1])
def test_samples_of_a_batch_are_as_alone(impacts):
    """The same, up to rounding, with derivatives by the speed."""
    heights, end = jnp.asarray(HEIGHTS, float), functools.partial(landed, impacts)

    # Motion and slope from one program, since the long part of this is to compile.
    one = jnp.ones(())
    along = lambda height: jax.jvp(lambda x: end(height, x), (one,), (one,))  # noqa: E731
    together, slope = jax.jit(jax.vmap(along))(heights)
    alone, expected = jax.jit(lambda x: jax.lax.map(along, x))(heights)
    np.testing.assert_allclose(together, alone, rtol=1e-14, atol=1e-16)
    np.testing.assert_allclose(slope, expected, rtol=1e-9, atol=1e-12)
    back = jax.vmap(jax.grad(lambda height, x: end(height, x) @ jnp.arange(7.0), 1), (0, None))
    np.testing.assert_allclose(
        jax.jit(back)(heights, one), expected @ jnp.arange(7.0), rtol=1e-9, atol=1e-12
    )

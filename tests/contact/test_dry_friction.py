"""Dry friction that sticks: closed forms, an independent slider-crank, derivatives, refusals."""

from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from helpers import G, assert_verdicts, both_modes
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd.contacts import CoordinateLimit, DryFriction, Located

ALL = diffrax.SaveAt(steps=1)


class Block(mbd.AbstractSystem):
    """A block on a spring and on a plate, whose speed is amplitude cos(omega t) + belt."""

    mass: Array
    stiffness: Array
    dry: Array
    static: Array
    speed: Array
    amplitude: Array
    omega: Array
    belt: Array

    def __init__(self, **given):
        numbers = dict.fromkeys(type(self).__dataclass_fields__, 0.0) | {"speed": 1.0} | given
        for name, x in numbers.items():
            setattr(self, name, np.asarray(x, float) if isinstance(x, float) else x)

    def mass_matrix(self, q):
        return self.mass * jnp.eye(1, dtype=q.dtype)

    def force(self, t, q, v, u):
        return -self.stiffness * q

    def friction_rates(self, q, v, t):
        return v - self.amplitude * jnp.cos(self.omega * t) - self.belt

    def friction_bounds(self, q, v, t, multipliers, u):
        rate = self.friction_rates(q, v, t)
        return self.dry + (self.static - self.dry) * jnp.exp(-((rate / self.speed) ** 2))


def moved(system, q, v, t1, dt, **options):
    # As an array, which may be traced.
    q, v = (np.array([x]) if isinstance(x, float) else x[None] for x in (q, v))
    state = mbd.State(0.0, q, v)
    method = mbd.ContactImpulse(**options)
    return mbd.simulate(system, method, state, t1=t1, dt=dt, saveat=ALL, throw=False)


def test_a_block_on_a_plate_that_swings():
    """It goes with the plate to rounding, until the plate would take more than the friction. Then
    it slides at a constant deceleration, until both have the same speed again."""
    m, F, A, w = 2.0, 3.0, 1.0, 4.0
    system = Block(mass=m, dry=F, static=F, amplitude=A, omega=w)
    start = np.arcsin(F / (m * A * w)) / w
    plate = lambda t: A * np.cos(w * t)  # noqa: E731
    slide = lambda t: plate(start) - F / m * (t - start)  # noqa: E731
    end = scipy.optimize.brentq(lambda t: slide(t) - plate(t), 2 / w, 6 / w)
    left = []
    for dt in (2e-3, 1e-3):
        sol = jax.device_get(moved(system, 0.0, A, 1.3, dt))
        t, v, friction = sol.t, sol.v[:, 0], sol.contact_force[:, 0, 1]
        assert_verdicts(sol.result, mbd.RESULTS.successful)
        sticks = t < start - 2 * dt
        # The plate at the start of a step: surfaces that move are taken there.
        np.testing.assert_allclose(v[1:][sticks[1:]], plate(t[:-1])[sticks[1:]], atol=1e-12)
        slides = (t > start + 2 * dt) & (t < end - 2 * dt)
        np.testing.assert_allclose(friction[slides], -F, rtol=1e-12)
        left.append(np.max(np.abs(v - slide(t))[slides]))
    assert left[1] < 4e-3
    np.testing.assert_allclose(left[0] / left[1], 2.0, atol=0.3)


@pytest.mark.slow
def test_an_oscillation_ends_where_it_must():
    """With a spring each half swing ends 2 F / k nearer to the middle, and the last one within
    F / k of it. There it stays for 10^5 steps."""
    k, F, x0 = 100.0, 3.0, 0.5
    system = Block(mass=1.0, stiffness=k, dry=F, static=F)
    last = x0 - 2 * F / k * np.ceil((x0 - F / k) / (2 * F / k))
    errors = []
    for dt in (1e-3, 5e-4):
        sol = moved(system, x0, 0.0, 4.0, dt)
        errors.append(abs(abs(float(sol.q[-1, 0])) - abs(last)))
        half = np.pi / np.sqrt(k)
        turns = [float(sol.q[round(i * half / dt), 0]) for i in (1, 2, 3)]
        swings = [-(x0 - 2 * F / k), x0 - 4 * F / k, -(x0 - 6 * F / k)]
        np.testing.assert_allclose(turns, swings, atol=10 * dt)
    assert errors[0] < 5e-3
    assert errors[1] < 0.7 * errors[0]
    rest = mbd.simulate(system, mbd.ContactImpulse(), sol.state(), dt=1e-3, num_steps=100_000)
    assert_verdicts(rest.result, mbd.RESULTS.successful)
    np.testing.assert_allclose(rest.q[-1], sol.q[-1], rtol=0, atol=1e-12)
    assert abs(float(rest.v[-1, 0])) < 1e-13


def stick_slip(t1):
    """A block on a belt, by event location: it sticks until the spring pulls with the static
    friction, and slides until it has the speed of the belt again. Returns x and x' at t1."""
    m, k, dry, static, speed, belt = STICK_SLIP.values()

    def slides(t, y):
        falling = (static - dry) * np.exp(-(((y[1] - belt) / speed) ** 2))
        return [y[1], (dry + falling - k * y[0]) / m]

    t, x = 0.0, 0.0
    while True:
        breaks = t + (static / k - x) / belt
        if breaks >= t1:
            return x + belt * (t1 - t), belt
        t, start = breaks, [static / k, belt]

        def caught(s, y, start=t):
            return y[1] - belt if s > start + 1e-6 else -1.0

        caught.terminal, caught.direction = True, 1
        # At the speed of the belt exactly, the spring holds the friction: leave it at once.
        start[1] -= 1e-9
        found = scipy.integrate.solve_ivp(
            slides, (t, t1), start, events=caught, rtol=1e-11, atol=1e-13, max_step=1e-2
        )
        t, x = found.t[-1], found.y[0, -1]
        if not found.t_events[0].size:
            return x, found.y[1, -1]


STICK_SLIP = {
    "mass": 1.0,
    "stiffness": 50.0,
    "dry": 2.0,
    "static": 5.0,
    "speed": 0.05,
    "belt": 0.2031,  # so that it breaks away within a step
}


@pytest.mark.slow
def test_stick_slip_on_a_belt():
    """First order, and derivatives of both modes beside differences."""
    t1 = 2.9
    exact = stick_slip(t1)
    errors = []
    for dt in (1e-3, 5e-4, 2.5e-4):
        sol = moved(Block(**STICK_SLIP), 0.0, STICK_SLIP["belt"], t1, dt)
        assert_verdicts(sol.result, mbd.RESULTS.successful)
        errors.append(abs(float(sol.q[-1, 0]) - exact[0]))
    assert errors[2] < 2e-3
    assert errors[2] < 0.4 * errors[0]

    names = ("mass", "stiffness", "dry", "static", "belt")

    def end(x):
        given = STICK_SLIP | dict(zip(names, x, strict=True))
        return moved(Block(**given), 0.0, given["belt"], 1.0, 1e-3).q[-1]

    x, step = jnp.array([STICK_SLIP[name] for name in names]), 1e-6
    both = jax.jit(lambda x: both_modes(end, x))
    _, forward, reverse = both(x)
    value = lambda x: both(x)[0]  # noqa: E731
    differences = np.stack(
        [(value(x + step * one) - value(x - step * one)) / (2 * step) for one in np.eye(len(x))], 1
    )
    np.testing.assert_allclose(forward, reverse, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(forward, differences, rtol=1e-6, atol=1e-8)


def sled(restitution=0.5, **friction):
    body = mbd.Body("sled", mbd.Inertia.box(size=[0.1, 0.1, 0.1], mass=1.0))
    guide = mbd.Prismatic("guide", "ground", body, point=[0.0, 0.0, 0.0], axis=[1.0, 0.0, 0.0])
    x = mbd.OfJoint(guide)
    stop = CoordinateLimit("stop", x, upper=0.3, restitution=restitution)
    rail = DryFriction("rail", x, **(friction or {"dry": 2.0}))
    return mbd.Mechanism([body], [guide], contacts=[rail, stop], gravity=[0.0, 0.0, -G])


@pytest.mark.slow
@pytest.mark.parametrize(
    "options, within",
    [
        ({"impacts": Located(2)}, 1e-12),
        ({}, 4e-3),
        ({"friction": mbd.contacts.Pyramid(4)}, 4e-3),
        ({"contact_solver": mbd.solvers.ProjectedGaussSeidel()}, 4e-3),
        ({"impact_law": mbd.contacts.Poisson()}, 4e-3),
        ({"smoothing": 1e-4}, 4e-3),
    ],
    ids=["located", "start", "pyramid", "sweeps", "poisson", "smoothed"],
)
def test_a_sled_strikes_a_stop(options, within):
    """It slows down by its weight's friction, here by the load of the guide, bounces, and stops."""
    mechanism = sled(coefficient=2.0 / G)
    state = mechanism.state()
    state = mbd.State(0.0, state.q, state.v.at[0].set(2.0))
    sol = mbd.simulate(mechanism, mbd.ContactImpulse(**options), state, t1=1.2, dt=1e-3, saveat=ALL)
    assert_verdicts(sol.result, mbd.RESULTS.successful)
    hit = 1 - np.sqrt(1 - 0.3)
    back = -0.5 * (2 - 2 * hit)
    t = np.asarray(sol.t)
    s = np.minimum(t - hit, -back / 2)
    x = np.where(t < hit, 2 * t - t**2, 0.3 + back * s + s**2)
    moving = t < hit - back / 2 - 2e-3
    np.testing.assert_allclose(sol.q[moving, 0], x[moving], atol=within)
    np.testing.assert_allclose(sol.q[:, 0], x, atol=max(within, 2e-6))
    assert mechanism.contact_names == ("stop", "rail")
    if "smoothing" not in options:
        assert abs(float(sol.v[-1, 0])) < 1e-11
        np.testing.assert_allclose(sol.contact_force[5, 1], [2.0, -2.0], rtol=1e-8)
        np.testing.assert_allclose(sol.contact_force[-1, 1], [2.0, 0.0], rtol=1e-8, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"smoothing": 1e-4}], ids=["rigid", "smoothed"])
def test_overlap_is_removed_beside_dry_friction(options):
    """By a displacement, in which dry friction has no part."""
    mechanism = sled()
    state = mechanism.state()
    state = mbd.State(0.0, state.q.at[0].set(0.3 + 1e-6), state.v)
    sol = mbd.simulate(
        mechanism,
        mbd.ContactImpulse(**options),
        state,
        dt=1e-3,
        num_steps=2,
        start_tolerance=1e-5,
        throw=False,
    )
    assert_verdicts(sol.result, mbd.RESULTS.successful)
    assert float(sol.q[-1, 0]) < 0.3 + 1e-12


@pytest.mark.slow
def test_plots_and_files(tmp_path):
    mechanism = sled()
    state = mechanism.state()
    state = mbd.State(0.0, state.q, state.v.at[0].set(0.3))
    mbd.io.save(mechanism, tmp_path / "sled.json")
    mechanism = mbd.io.load(tmp_path / "sled.json").mechanism
    sol = mbd.simulate(mechanism, mbd.ContactImpulse(), state, t1=0.3, dt=1e-2, saveat=ALL)
    friction, bound = mbd.plots.contacts(mechanism, sol, ["rail"])[1].lines
    np.testing.assert_allclose(friction.get_ydata(), np.abs(sol.contact_force[:, 1, 1]))
    np.testing.assert_allclose(bound.get_ydata(), 2.0, rtol=1e-12)
    np.testing.assert_allclose(sol.q[-1, 0], 0.3**2 / 4, atol=3e-3)


# --- a slider-crank with friction by the load, beside equations of its own ------------------------

CRANK, ROD = 0.1, 0.3
MASSES, INERTIAS = (0.5, 0.8, 1.5), (1e-3, 7e-3)
GUIDE, BEARING, RADIUS = 0.25, 0.15, 0.02
ANGLE, RATE = 0.5, 15.0


def slopes(angle, rate):
    """Sine and cosine of the crank's and of the rod's angle, and the rod's rate."""
    s, c = np.sin(angle), np.cos(angle)
    sin = -CRANK * s / ROD
    cos = np.sqrt(1 - sin**2)
    return s, c, sin, cos, -CRANK * c * rate / (ROD * cos)


def crank_acceleration(angle, rate):
    """theta'' from the balances of all three bodies, with the reactions as unknowns, and friction
    of the guide and of the main bearing by their reactions, found by iteration."""
    s, c, sin, cos, rod_rate = slopes(angle, rate)
    # Accelerations are those along theta'' and a rest.
    k = -CRANK * c / (ROD * cos)
    k0 = (CRANK * s * rate**2 / ROD + sin * rod_rate**2) / cos
    pin = CRANK * np.array([-s, c]), -CRANK * rate**2 * np.array([c, s])

    def on_rod(at):
        along, across = np.array([cos, sin]), np.array([-sin, cos])
        return pin[0] + at * k * across, pin[1] + at * (k0 * across - rod_rate**2 * along)

    a = [(pin[0] / 2, pin[1] / 2), on_rod(ROD / 2), on_rod(ROD)]
    arm, half = CRANK / 2 * np.array([c, s]), ROD / 2 * np.array([cos, sin])
    sliding = -CRANK * s * rate - ROD * sin * rod_rate

    # Unknown: theta'', forces A on the crank, B on the rod, C on the slider, N of the guide.
    M, r = np.zeros((8, 8)), np.zeros(8)
    for i in range(2):
        weight = -G * i
        M[i, [0, 1 + i, 3 + i]] = MASSES[0] * a[0][0][i], -1, 1
        M[3 + i, [0, 3 + i, 5 + i]] = MASSES[1] * a[1][0][i], -1, 1
        r[i] = MASSES[0] * (weight - a[0][1][i])
        r[3 + i] = MASSES[1] * (weight - a[1][1][i])
    M[2, :5] = INERTIAS[0], -arm[1], arm[0], -arm[1], arm[0]
    M[5, [0, 3, 4, 5, 6]] = INERTIAS[1] * k, -half[1], half[0], -half[1], half[0]
    M[6, [0, 5]] = MASSES[2] * a[2][0][0], -1
    M[7, [6, 7]] = -1, -1
    r[5], r[6], r[7] = -INERTIAS[1] * k0, -MASSES[2] * a[2][1][0], -MASSES[2] * G
    x, friction = None, np.zeros(2)
    for _ in range(200):
        x = np.linalg.solve(M, r + friction @ np.eye(8)[[6, 2]])
        bearing = -BEARING * RADIUS * np.hypot(x[1], x[2]) * np.sign(rate)
        new = np.array([-GUIDE * abs(x[7]) * np.sign(sliding), bearing])
        done = np.max(np.abs(new - friction)) < 1e-14
        friction = new
        if done:
            break
    return x[0]


def slider_crank(guide, bearing, radius=RADIUS, plane=None):
    turned = lambda angle: [np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)]  # noqa: E731
    _, _, sin, cos, rod_rate = slopes(ANGLE, RATE)
    pin = CRANK * np.array([np.cos(ANGLE), np.sin(ANGLE), 0.0])
    wrist = pin + ROD * np.array([cos, sin, 0.0])
    z, inertia = (
        [0.0, 0.0, 1.0],
        [mbd.Inertia(m, i * np.eye(3)) for m, i in zip(MASSES, (*INERTIAS, 1e-3), strict=True)],
    )
    crank = mbd.Body("crank", inertia[0], position=pin / 2, orientation=turned(ANGLE))
    rod = mbd.Body(
        "rod", inertia[1], position=(pin + wrist) / 2, orientation=turned(np.arctan2(sin, cos))
    )
    slider = mbd.Body("slider", inertia[2], position=wrist)
    main = mbd.Revolute("main", "ground", crank, point=[0.0, 0.0, 0.0], axis=z)
    rail = mbd.Prismatic("rail", "ground", slider, point=wrist, axis=[1.0, 0.0, 0.0])
    joints = [
        main,
        mbd.Revolute("pin", crank, rod, point=pin, axis=z),
        mbd.Revolute("wrist", rod, slider, point=wrist, axis=z),
        rail,
    ]
    frictions = [
        DryFriction("guide", mbd.OfJoint(rail), coefficient=guide),
        DryFriction("bearing", mbd.OfJoint(main), coefficient=bearing, radius=radius),
    ]
    mechanism = mbd.Mechanism(
        [crank, rod, slider], joints, contacts=frictions, gravity=[0.0, -G, 0.0], plane=plane
    )
    ends = {
        "crank": RATE * np.array([-pin[1], pin[0], 0.0]) / 2,
        "slider": [-CRANK * np.sin(ANGLE) * RATE - ROD * sin * rod_rate, 0.0, 0.0],
    }
    ends["rod"] = ends["crank"] * 2 + ROD / 2 * rod_rate * np.array([-sin, cos, 0.0])
    spins = {"crank": RATE, "rod": rod_rate, "slider": 0.0}
    state = mechanism.state()
    v = np.zeros(state.v.shape)
    for name in ends:
        twist = np.concatenate([ends[name], [0.0, 0.0, spins[name]]])
        v[mechanism.indices(name).v] = twist if plane is None else twist[[0, 1, 5]]
    return mechanism, mbd.State(0.0, state.q, jnp.asarray(v))


@pytest.mark.slow
@pytest.mark.parametrize("planar", [False, True])
def test_friction_by_the_load_of_joints(planar):
    """Of first order, in a loop with redundant rows, and in the plane."""
    t1 = 0.15
    exact = scipy.integrate.solve_ivp(
        lambda t, y: [y[1], crank_acceleration(*y)],
        (0.0, t1),
        [ANGLE, RATE],
        rtol=1e-10,
        atol=1e-12,
        max_step=1e-3,
    ).y[:, -1]
    plane = mbd.Plane(normal=[0.0, 0.0, 1.0]) if planar else None
    mechanism, state = slider_crank(GUIDE, BEARING, plane=plane)
    errors = []
    for dt in (1e-3, 5e-4):
        sol = mbd.simulate(mechanism, mbd.ContactImpulse(), state, t1=t1, dt=dt)
        assert_verdicts(sol.result, mbd.RESULTS.successful)
        angle = float(mechanism.joint_coordinates(sol.q[-1], "main")[0]) + ANGLE
        rate = float(sol.v[-1][mechanism.indices("crank").v][-1])
        errors.append(np.array([angle, rate]) - exact)
        # Without friction it would turn faster by 5 rad/s.
        assert np.all(np.abs(errors[-1]) < [6 * dt, 70 * dt])
    np.testing.assert_allclose(errors[0] / errors[1], 2.0, atol=0.1)


@pytest.mark.slow
def test_derivatives_by_the_load():
    """Of the loop, in both modes, beside differences, while it slides. In single precision too,
    where turns end early, and the reverse pass computes them anew with other rounding errors."""
    plane = mbd.Plane(normal=[0.0, 0.0, 1.0])

    def end(x, dtype=jnp.float64):
        mechanism, state = slider_crank(x[0], x[1], x[2], plane)
        state = mbd.State(0.0, state.q.astype(dtype), state.v.astype(dtype))
        sol = mbd.simulate(mechanism, mbd.ContactImpulse(), state, t1=0.05, dt=1e-3)
        return sol.v[-1].astype(jnp.float64)

    x = jnp.array([GUIDE, BEARING, RADIUS])
    both = jax.jit(both_modes, static_argnums=0)
    _, forward, reverse = both(end, x)
    for single in both(lambda x: end(x, jnp.float32), x)[1:]:
        np.testing.assert_allclose(single, forward, rtol=2e-3, atol=2e-3 * np.max(np.abs(forward)))
    value, step = lambda x: both(end, x)[0], 1e-5
    differences = np.stack(
        [(value(x.at[i].add(step)) - value(x.at[i].add(-step))) / (2 * step) for i in range(3)], 1
    )
    np.testing.assert_allclose(forward, reverse, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(forward, differences, rtol=1e-6, atol=2e-6)


@pytest.mark.slow
def test_a_pendulum_stops_and_does_not_creep():
    """By the load of its hinge, with static friction. It holds its weight for 10^5 steps, with the
    torque that statics asks for."""
    m, length, radius = 1.2, 0.4, 0.05
    arm = mbd.Body("arm", mbd.Inertia(m, 0.03 * np.eye(3)), position=[length, 0.0, 0.0])
    hinge = mbd.Revolute("hinge", "ground", arm, point=[0.0, 0.0, 0.0], axis=[0.0, 1.0, 0.0])
    friction = DryFriction(
        "bearing",
        mbd.OfJoint(hinge),
        dry=0.05,
        static=0.08,
        coefficient=0.2,
        radius=radius,
        speed=0.05,
    )
    mechanism = mbd.Mechanism([arm], [hinge], contacts=[friction], gravity=[0.0, 0.0, -G])
    method, state = mbd.ContactImpulse(), mechanism.state()
    swung = mbd.simulate(mechanism, method, state, t1=25.0, dt=1e-3)
    rest = mbd.simulate(mechanism, method, swung.state(), dt=1e-3, num_steps=100_000)
    assert_verdicts((swung.result, rest.result), mbd.RESULTS.successful)
    angles = [float(mechanism.joint_coordinates(x.q[-1], "hinge")[0]) for x in (swung, rest)]
    assert abs(angles[1] - angles[0]) < 1e-12
    bound, torque = np.asarray(rest.contact_force[-1, 0])
    np.testing.assert_allclose(bound, 0.08 + 0.2 * radius * m * G, rtol=1e-9)
    np.testing.assert_allclose(torque, -m * G * length * np.cos(angles[1]), rtol=1e-6)
    assert abs(torque) < bound
    assert abs(angles[1] - np.pi / 2) > 1e-3  # not where it would hang without friction


@pytest.mark.slow
def test_a_chain_of_many_hinges_holds_its_weight():
    """Forty links, whose equations are sparse. Each hinge carries the moment of all beyond it."""
    count, m, length = 40, 0.2, 0.1
    inertia = mbd.Inertia.box(size=[length, 0.02, 0.02], mass=m)
    links = [
        mbd.Body(f"{i}", inertia, position=[(i + 0.5) * length, 0.0, 0.0]) for i in range(count)
    ]
    joints = [
        mbd.Revolute(f"{i}", a, b, point=[i * length, 0.0, 0.0], axis=[0.0, 1.0, 0.0])
        for i, (a, b) in enumerate(zip(["ground", *links[:-1]], links, strict=True))
    ]
    beyond = np.arange(count, 0, -1)
    moments = m * G * length * beyond**2 / 2
    frictions = [
        DryFriction(joint.name, mbd.OfJoint(joint), dry=1.01 * M)
        for joint, M in zip(joints, moments, strict=True)
    ]
    mechanism = mbd.Mechanism(links, joints, contacts=frictions, gravity=[0.0, 0.0, -G])
    sol = mbd.simulate(mechanism, mbd.ContactImpulse(), mechanism.state(), dt=1e-3, num_steps=50)
    assert_verdicts(sol.result, mbd.RESULTS.successful)
    np.testing.assert_allclose(sol.q[-1], mechanism.state().q, atol=1e-10)
    np.testing.assert_allclose(np.abs(sol.contact_force[-1, :, 1]), moments, rtol=1e-9)
    np.testing.assert_allclose(sol.contact_force[-1, :, 0], 1.01 * moments, rtol=1e-9)


@pytest.mark.slow
def test_a_locked_clutch_carries_exactly_its_torque():
    """Two discs on one axis, of which one is driven. Locked, the other takes its share of the
    torque; slipping, what the clutch can carry. In a batch."""
    J, T = np.array([0.02, 0.03]), 1.0
    discs = [
        mbd.Body(f"{i}", mbd.Inertia(1.0, j * np.eye(3)), position=[0.0, 0.0, 0.2 * i])
        for i, j in enumerate(J)
    ]
    z, point = [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]
    hinges = [
        mbd.Revolute(f"{i}", "ground", disc, point=point, axis=z) for i, disc in enumerate(discs)
    ]
    drive = mbd.forces.CoordinateSpring("drive", mbd.OfJoint(hinges[0]), actuator=T)
    slip = mbd.coordinates.WeightedSum([mbd.OfJoint(h) for h in hinges], [1.0, -1.0])

    @jax.jit
    @jax.vmap
    def turned(capacity):
        clutch = DryFriction("clutch", slip, dry=capacity)
        mechanism = mbd.Mechanism(discs, hinges, [drive], contacts=[clutch])
        state = mechanism.state()
        sol = mbd.simulate(
            mechanism, mbd.ContactImpulse(), state, dt=1e-3, num_steps=100, throw=False
        )
        return sol.result, sol.v[-1, [10, 11]], sol.contact_force[-1, 0]

    share = T * J[1] / J.sum()
    capacity = jnp.array([0.3, 0.99 * share, 1.01 * share, 5.0])
    result, rates, force = turned(capacity)
    assert_verdicts(result, mbd.RESULTS.successful)
    carried = np.minimum(capacity, share)
    np.testing.assert_allclose(-force[:, 1], carried, rtol=1e-10)
    np.testing.assert_allclose(
        rates, 0.1 * np.stack([(T - carried) / J[0], carried / J[1]], 1), rtol=1e-9
    )


class Wedge(mbd.AbstractSystem):
    """A point on an incline, with a friction along x by the load lambda."""

    gain: Array
    jumps: bool = False

    def mass_matrix(self, q):
        return jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.array([0.0, -1.0])

    def constraint(self, q, t):
        return q[1] - q[0]

    def friction_rates(self, q, v, t):
        return v[:1]

    def friction_bounds(self, q, v, t, multipliers, u):
        if self.jumps:
            return jnp.where(multipliers > 0, self.gain, 0.0)
        return jnp.maximum(2 + self.gain * multipliers, 0.0)


@pytest.mark.slow
def test_the_load_is_found_or_told():
    """While the point slides, lambda is (1 - F) / 2 and F = 2 + gain lambda. Turns find F though
    they may change it by twice what it was off. They tell where there is none."""
    state = mbd.State(0.0, jnp.zeros(2), jnp.full(2, 10.0))

    def slid(system):
        return mbd.simulate(system, mbd.ContactImpulse(), state, dt=1e-3, num_steps=3, throw=False)

    for gain in (-0.5, 0.5, 1.5, 4.0):
        sol = slid(Wedge(jnp.asarray(gain)))
        assert_verdicts(sol.result, mbd.RESULTS.successful)
        F = (2 + gain / 2) / (1 + gain / 2)
        np.testing.assert_allclose(sol.contact_force[-1, 0], [F, -F], rtol=1e-9)
    sol = slid(Wedge(jnp.asarray(4.0), jumps=True))
    assert sol.result == mbd.RESULTS.friction_unsettled
    assert np.all(np.isfinite(sol.q[-1]))


def test_refusals():
    body = mbd.Body("sled", mbd.Inertia.box(size=[0.1, 0.1, 0.1], mass=1.0))
    hinge = mbd.Revolute("hinge", "ground", body, point=[0.0, 0.0, 0.0], axis=[1.0, 0.0, 0.0])
    angle: Any = mbd.OfJoint(hinge)
    both = mbd.coordinates.WeightedSum([angle], [1.0])
    for options, words in [
        ({"dry": -1.0}, "dry"),
        ({"dry": 2.0, "static": 1.0}, "`static` .* must not be below `dry`"),
        ({"coefficient": 0.2}, "needs the `radius`"),
        ({"radius": 0.2}, "needs its `coefficient`"),
        ({"coefficient": 0.2, "static_coefficient": 0.1, "radius": 1.0}, "`static_coefficient`"),
        ({"backward_coefficient": 0.2}, "needs its `coefficient`"),
        (
            {"coefficient": 0.2, "backward_coefficient": 0.1, "radius": 1.0},
            "must be `pressed_by` a coupling",
        ),
    ]:
        with pytest.raises(ValueError, match=words):
            DryFriction("bearing", angle, **options)
    with pytest.raises(ValueError, match="needs the coordinate of a joint"):
        DryFriction("bearing", both, coefficient=0.1, radius=0.1)
    directed = DryFriction(
        "bearing", angle, coefficient=0.1, backward_coefficient=0.2, pressed_by="hinge"
    )
    with pytest.raises(ValueError, match='"hinge" is no coupling of coordinates'):
        mbd.Mechanism([body], [hinge], contacts=[directed])


@pytest.mark.slow
def test_others_refuse():
    mechanism = sled()
    mechanism = mbd.Mechanism(mechanism.bodies, mechanism.joints, contacts=mechanism.contacts[:1])
    state = mechanism.state()
    with pytest.raises(ValueError, match="1 dry friction, which `VelocityImpulse` ignores"):
        mbd.simulate(mechanism, mbd.VelocityImpulse(), state, t1=1.0, dt=0.1)
    with pytest.raises(ValueError, match="rests in many poses"):
        mbd.analysis.equilibrium(mechanism, state)
    model = mbd.analysis.linearise(mechanism, state)
    assert "without the forces of 1 dry friction" in str(model)

"""Drive trains: teeth with play, friction by the load of a drive, clutches, motors."""

import diffrax
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
from refusals import check_refused

import jaxmbd as mbd
from jaxmbd.coordinates import DriveTwist
from jaxmbd.forces import PlaySpring

FLAT = mbd.Plane(normal=[0.0, 0.0, 1.0])
INPUT, OUTPUT, RATIO = 0.02, 0.5, 4.0


def train(forces=(), contacts=(), joints=(), inertias=(INPUT, OUTPUT), **options):
    """Two wheels, each on a bearing of its own."""
    bodies, bearings = [], []
    for name, inertia in zip(("in", "out"), inertias, strict=True):
        body = mbd.Body(name, mbd.Inertia(1.0, inertia * np.eye(3)))
        bodies.append(body)
        bearings.append(
            mbd.Revolute(f"of {name}", "ground", body, point=[0.0] * 3, axis=[0.0, 0.0, 1.0])
        )
    return mbd.Mechanism(
        bodies, [*bearings, *joints], forces, contacts, gravity=[0.0] * 3, plane=FLAT, **options
    )


def angle(name):
    return mbd.OfJoint(f"of {name}")


def twist(**options):
    return DriveTwist(angle("in"), angle("out"), **{"ratio": RATIO, **options})


def turning(mechanism, first, second, t=0.0):
    """A start with these rates."""
    state = mechanism.state()
    v = jnp.zeros_like(state.v).at[4].set(first).at[5].set(second)
    return mbd.State(t, state.q, v)


def beside(fn, x, also=(), step=1e-6):
    """The values of fn in these points, and central differences of it at x, from one program."""
    x = np.asarray(x)
    units = step * np.eye(x.size)
    points = jnp.asarray(np.stack([*(x + units), *(x - units), *also]))
    found = np.asarray(jax.jit(lambda points: jax.lax.map(fn, points))(points))
    ahead, behind, values = np.split(found, [x.size, 2 * x.size])
    return values, np.moveaxis((ahead - behind) / (2 * step), 0, -1)


STIFFNESS, PLAY, DAMPING, HARDENING = 50.0, 0.2, 3.0, 4.0


def flank(e, rate):
    """The law of the teeth, written anew."""
    depth = abs(e) - PLAY / 2
    if depth <= 0:
        return 0.0
    elastic = STIFFNESS * depth * (1 + HARDENING * depth**2)
    damper = np.clip(DAMPING * rate * np.sign(e), -elastic, elastic)
    return -np.sign(e) * (elastic + damper)


def teeth(**options):
    given = dict(stiffness=STIFFNESS, play=PLAY, damping=DAMPING, hardening=HARDENING)
    return PlaySpring("teeth", twist(), **{**given, **options})


def test_teeth():
    """The law at points: no force within the play, never pulling, without jumps, and round corners
    that are off by what is stated."""
    x = np.linspace(-0.3, 0.3, 121) + 1e-3
    rates = np.array([-5.0, -0.3, 0.0, 0.5])
    rounding = 0.02

    @jax.jit
    def laws(x, rate):
        sharp = teeth(rest=1e-3)
        soft = teeth(rest=1e-3, smoothing=rounding, damping=0.0, hardening=None)
        each = jax.vmap(lambda x: sharp.force(x, rate, 0.0, None))(x)
        return each, jax.vmap(lambda x: soft.force(x, 0.0, 0.0, None))(x)

    found = [laws(x, rate) for rate in rates]
    exact = np.array([[flank(e - 1e-3, rate) for e in x] for rate in rates])
    np.testing.assert_allclose([sharp for sharp, _ in found], exact, rtol=1e-9, atol=1e-9)
    beyond = np.abs(x - 1e-3) - PLAY / 2
    linear = -np.sign(x - 1e-3) * STIFFNESS * np.maximum(beyond, 0.0)
    off = np.abs(found[2][1] - linear)
    allowed = np.minimum(rounding / 4, rounding**4 / (16 * np.maximum(np.abs(beyond), 1e-9) ** 3))
    assert np.max(off) > 0.99 * STIFFNESS * rounding / 4
    assert np.all(off <= STIFFNESS * allowed + 1e-12)


def test_teeth_within_the_play_have_no_derivatives():
    """At rest, between the flanks and where one just touches; so has a spring with slack."""
    slack = mbd.forces.CoordinateSpring(
        "slack", twist(), stiffness=STIFFNESS, rest=[-PLAY / 2, PLAY / 2]
    )

    @jax.jit
    @jax.vmap
    def slopes(x):
        law = jax.jacfwd(lambda x, rate: teeth().force(x, rate, 0.0, None), argnums=(0, 1))
        return law(x, 0.0), jax.grad(jax.grad(slack.stored))(x)

    for slope in jax.tree.leaves(slopes(np.array([0.0, PLAY / 2, -PLAY / 2]))):
        np.testing.assert_allclose(slope, 0.0, atol=1e-12)


@pytest.mark.slow
def test_twist_of_a_drive():
    """Torques on both ends, with the kinematic error, and the rate beside that of the value."""
    error, cycles, phase = 0.05, 2.0, 0.3
    x = twist(error=error, cycles=cycles, phase=phase)
    mechanism = train([PlaySpring("teeth", x, stiffness=STIFFNESS, damping=0.7)])
    still = np.zeros(4)
    q, v = np.array([*still, 1.3, -0.4]), np.array([*still, 0.9, 0.5])

    @jax.jit
    def found(q, v):
        here = lambda q: mechanism.mechanical_energy(0.0, q, jnp.zeros_like(v))  # noqa: E731
        return mechanism.force(0.0, q, v, None), jax.grad(here)(q)

    force, slope = found(q, v)
    value = 1.3 / RATIO + 0.4 + error * np.sin(cycles * 1.3 + phase)
    steep = 1 / RATIO + error * cycles * np.cos(cycles * 1.3 + phase)
    torque = -STIFFNESS * value - 0.7 * (steep * 0.9 - 0.5)
    np.testing.assert_allclose(force, torque * np.array([*still, steep, -1.0]), atol=1e-12)
    of_energy = STIFFNESS * value * np.array([*still, steep, -1.0])
    np.testing.assert_allclose(slope, of_energy, atol=1e-12)


@pytest.mark.slow
def test_to_and_fro_through_the_play():
    """The period of free wheels that fall from flank to flank, in closed form, in turns that are
    counted; derivatives beside differences, in single precision too."""
    k, b, w = 200.0, 0.1, 2.0
    reduced = 1 / (1 / (INPUT * RATIO**2) + 1 / OUTPUT)
    period = 2 * np.pi * np.sqrt(reduced / k) + 2 * b / w
    ends = OUTPUT / (INPUT * RATIO**2 + OUTPUT), -INPUT * RATIO**2 / (INPUT * RATIO**2 + OUTPUT)

    def after(x):
        along = twist(ratio=RATIO * x[3], error=x[4], cycles=2.0)
        gear = PlaySpring("gear", along, stiffness=k * x[0], play=b * x[1], damping=x[2])
        mechanism = train([gear])
        start = turning(mechanism, RATIO * w * ends[0] + 40.0 * RATIO, w * ends[1] + 40.0)
        start = mbd.State(0.0, start.q.astype(x.dtype), start.v.astype(x.dtype))
        return mbd.simulate(mechanism, mbd.UdwadiaKalaba(), start, t1=period, dt=2e-3).v[-1, 4:]

    exact = [RATIO * w * ends[0] + 40.0 * RATIO, w * ends[1] + 40.0]
    free, damped = np.array([1.0, 1.0, 0.0, 1.0, 0.0]), np.array([1.0, 1.0, 0.2, 1.0, 1e-3])
    values, differences = beside(after, damped, also=[free, damped])
    np.testing.assert_allclose(values[0], exact, atol=5e-3)
    _, forward, reverse = jax.jit(h.both_modes, static_argnums=0)(after, jnp.asarray(damped))
    scale = np.max(np.abs(differences))
    np.testing.assert_allclose(forward, reverse, atol=1e-9 * scale)
    np.testing.assert_allclose(forward, differences, atol=1e-6 * scale)
    single = jax.jit(after)(jnp.asarray(damped, jnp.float32))
    np.testing.assert_allclose(single, values[1], rtol=1e-4)


@pytest.mark.slow
def test_rattling_gears():
    """Rigid teeth with play strike each other: speeds, instants and energies in closed form."""
    w, e, free = 3.0, 0.8, 0.1
    limit = mbd.contacts.CoordinateLimit(
        "teeth", twist(), lower=-free / 2, upper=free / 2, restitution=e
    )
    mechanism = train(contacts=[limit])
    sol = mbd.simulate(
        mechanism,
        mbd.ContactImpulse(impacts=mbd.contacts.Located(2)),
        turning(mechanism, RATIO * (w + 1.0), 1.0),
        t1=0.3,
        dt=1e-3,
        saveat=diffrax.SaveAt(t0=True, steps=1),
        energy_tolerance=1e-9,
    )
    reflected = INPUT * RATIO**2
    reduced = reflected * OUTPUT / (reflected + OUTPUT)
    t, v = np.asarray(sol.t), np.asarray(sol.v)
    # The n-th impact is after the gap was crossed n - 1/2 times, more slowly each time.
    hits = np.cumsum(np.append(free / 2 / w, free / (w * e ** np.arange(1, 12))))
    n = np.searchsorted(hits, t)
    clear = np.min(np.abs(t[:, None] - hits), axis=1) > 1e-9
    relative = v[:, 4] / RATIO - v[:, 5]
    np.testing.assert_allclose(relative[clear], (w * (-e) ** n)[clear], rtol=1e-9)
    assert n[-1] >= 4
    account = mbd.reports.audit(mechanism, sol)
    lost = reduced * w**2 / 2 * (1 - e ** (2 * n))
    kinetic = account.kinetic
    np.testing.assert_allclose(kinetic[0] - kinetic[clear], lost[clear], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(account.imbalance[clear], -lost[clear], rtol=1e-9, atol=1e-12)


def torques(**of):
    return [
        mbd.forces.CoordinateSpring(f"on {name}", angle(name.rstrip("_")), actuator=x)
        for name, x in of.items()
    ]


def lossy(efficiency, drive, load, elastic=False, **options):
    """A drive with losses by its load, rigid or elastic, driven by two torques."""
    c = (1 / efficiency - 1) / RATIO
    mesh = mbd.contacts.DryFriction(
        "mesh", angle("in"), coefficient=c, pressed_by="gear", **options
    )
    forces, joints = torques(in_=drive, out=load), []
    if elastic:
        forces.append(PlaySpring("gear", twist(), stiffness=1e3, damping=2.0))
    else:
        joints.append(mbd.joints.CoordinateConstraint("gear", twist()))
    return train(forces, [mesh], joints)


@pytest.mark.slow
def test_efficiency_by_the_direction_of_power():
    """Of a rigid drive: accelerations where the input drives, and where the output does, with an
    efficiency of its own. Of a drive that cannot be driven by its output, and of one that can.
    Derivatives in closed form, and beside differences."""

    def end(x):
        efficiency, drive, load, speed = x[0], x[1], x[2], x[3]
        back = (1 - x[4]) / RATIO
        mechanism = lossy(efficiency, drive, load, backward_coefficient=back)
        start = turning(mechanism, RATIO * speed, speed)
        sol = mbd.simulate(mechanism, mbd.ContactImpulse(), start, t1=0.01, dt=1e-3, throw=False)
        return jnp.where(sol.result == mbd.RESULTS.successful, sol.v[-1, 5:], jnp.nan)

    x = np.array([0.8, 1.0, -5.0, -1.0, 2 - 1 / 0.8])
    apart = [[0.9, 2.0, -5.0, 1.0, 0.6], [0.9, 0.5, -5.0, -1.0, 0.6], [0.9, 0.5, 5.0, 1.0, 0.6]]
    cases = [
        *(x, [0.8, 2.0, -5.0, 1.0, 2 - 1 / 0.8]),
        *([0.4, 0.0, -5.0, 0.0, 0.0], [0.6, 0.0, -5.0, 0.0, 2 - 1 / 0.6]),
        *apart,
    ]
    found, differences = beside(end, x, also=cases)
    found = found[:, 0]
    for case, rate in zip(cases, found, strict=True):
        efficiency, drive, load, speed, back = case
        # The torque at the input for a torque of 1 at the output.
        carried = 1 / efficiency if load * speed < 0 else back
        a = (drive * RATIO + carried * load) / (INPUT * RATIO**2 + carried * OUTPUT)
        np.testing.assert_allclose(rate, speed + 0.01 * a, rtol=1e-9, atol=1e-12)
    assert abs(found[2]) < 1e-12 and found[3] < -0.01
    both = jax.jit(lambda x: h.both_modes(end, x))
    _, forward, reverse = both(jnp.asarray(x))
    np.testing.assert_allclose(forward, reverse, rtol=1e-9)
    np.testing.assert_allclose(forward, differences, rtol=1e-6)
    for case in apart:
        efficiency, drive, load, speed, back = case
        carried, by = (1 / efficiency, 0) if load * speed < 0 else (back, 4)
        inertia = INPUT * RATIO**2 + carried * OUTPUT
        slope = (load * inertia - OUTPUT * (drive * RATIO + carried * load)) / inertia**2
        exact = np.zeros(5)
        exact[by] = 0.01 * slope * (-1 / efficiency**2 if by == 0 else 1.0)
        own = np.asarray(both(jnp.asarray(case))[1])[0]
        np.testing.assert_allclose(own[[0, 4]], exact[[0, 4]], rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_losses_of_elastic_teeth():
    """A constant speed is kept by the torque that the efficiency asks for, forwards and backwards,
    and at rest any torque between both holds."""
    efficiency, load = 0.8, 5.0

    @jax.jit
    @jax.vmap
    def end(speed, share):
        mechanism = lossy(efficiency, share * load / RATIO, -load, elastic=True)
        start = turning(mechanism, RATIO * speed, speed)
        wound = start.q.at[4].set(RATIO * load / 1e3)
        start = mbd.State(0.0, wound, start.v)
        return mbd.simulate(mechanism, mbd.ContactImpulse(), start, t1=0.1, dt=1e-3).v[-1, 4:]

    speeds = np.array([2.0, -2.0, 0.0])
    v = end(jnp.asarray(speeds), jnp.array([1 / efficiency, 2 - 1 / efficiency, 1.1]))
    np.testing.assert_allclose(v, np.stack([RATIO * speeds, speeds], 1), atol=1e-10)


@pytest.mark.slow
def test_a_clutch_follows_the_control():
    """It slips at the torque of its pressure, catches, and then carries exactly its torque, until
    the pressure falls. Derivatives beside differences."""
    J1, J2, drive, most = INPUT, OUTPUT, 1.5, 4.0
    clutch = mbd.contacts.DryFriction(
        "clutch", DriveTwist(angle("in"), angle("out")), dry=most, pressure=mbd.FromControl(0)
    )
    mechanism = train(torques(in_=drive), [clutch])

    def pressure(t, q, v):
        return jnp.where(t < 0.05 - 1e-9, -1.0, jnp.where(t < 0.3 - 1e-9, 1.0, 0.1))[None]

    def run(factor, saveat=diffrax.SaveAt(t1=True), t1=0.4):
        control = lambda t, q, v: factor * pressure(t, q, v)  # noqa: E731
        start = turning(mechanism, 10.0, 0.0)
        dtype = jnp.result_type(factor)
        start = mbd.State(0.0, start.q.astype(dtype), start.v.astype(dtype))
        return mbd.simulate(
            mechanism, mbd.ContactImpulse(), start, t1=t1, dt=1e-3, control=control, saveat=saveat
        )

    sol = run(np.float64(1.0), diffrax.SaveAt(t0=True, steps=1))
    t, v = np.asarray(sol.t), np.asarray(sol.v)[:, 4:]
    torque = -np.asarray(sol.contact_force)[:, 0, 1]
    open_, shut = t < 0.05 + 1e-9, t > 0.05 + 1e-9
    np.testing.assert_allclose(v[open_, 1], 0.0, atol=1e-12)
    fast = 10.0 + drive / J1 * 0.05
    catches = 0.05 + fast / (most / J1 + most / J2 - drive / J1)
    slips = shut & (t < catches)
    s = t[slips] - 0.05
    np.testing.assert_allclose(torque[slips], most, rtol=1e-10)
    np.testing.assert_allclose(v[slips, 0], fast + (drive - most) / J1 * s, rtol=1e-9)
    locked = (t > catches + 2e-3) & (t < 0.3 + 1e-9)
    np.testing.assert_allclose(v[locked, 0], v[locked, 1], rtol=1e-12)
    np.testing.assert_allclose(torque[locked], drive * J2 / (J1 + J2), rtol=1e-10)
    np.testing.assert_allclose(torque[t > 0.3 + 1e-9], 0.1 * most, rtol=1e-10)

    def end(x):
        return run(x[0], t1=0.1).v[-1, 4:]

    x = jnp.array([0.9])
    value, forward, reverse = jax.jit(h.both_modes, static_argnums=0)(end, x)
    np.testing.assert_allclose(forward, reverse, rtol=1e-9)
    np.testing.assert_allclose(forward, beside(end, x)[1], rtol=1e-6)
    single = jax.jit(end)(x.astype(jnp.float32))
    np.testing.assert_allclose(single, value, rtol=1e-4)


MOTOR = dict(resistance=2.0, inductance=1e-3, constant=0.05)
RIPPLE, CYCLES, LIMIT = 0.3, 6.0, 3.0
HEAT = dict(capacity=0.1, resistance=2.0, coefficient=0.004, derating=[40.0, 80.0])
LOAD, VISCOUS = 2e-4, 1e-3


def motor_rates(t, y):
    """Of (angle, rate, current, temperature), written anew."""
    angle, rate, i, temperature = y
    warm = temperature - 25.0
    R = MOTOR["resistance"] * (1 + 0.004 * warm)
    k = MOTOR["constant"] * (1 + RIPPLE * np.sin(CYCLES * angle))
    most = LIMIT * np.clip((80.0 - temperature) / 40.0, 0.0, 1.0)
    volts = np.clip(30.0 * np.cos(20.0 * t), k * rate - R * most, k * rate + R * most)
    slope = (np.clip(volts, -24.0, 24.0) - R * i - k * rate) / MOTOR["inductance"]
    return [rate, (k * i - VISCOUS * rate) / LOAD, slope, (R * i**2 - warm / 2.0) / 0.1]


@pytest.mark.slow
def test_a_motor_with_ripple_limits_and_heat():
    """Beside equations of its own, where all of it acts; derivatives beside differences."""

    def end(x):
        heat = mbd.forces.WindingHeat(**HEAT | {"capacity": 0.1 * x[0]})
        motor = mbd.forces.DCMotor(
            "motor",
            angle("in"),
            **MOTOR,
            limits=[-24.0, 24.0],
            ripple=RIPPLE * x[1],
            cycles=CYCLES,
            current_limit=LIMIT * x[2],
            heat=heat,
        )
        friction = mbd.forces.JointFriction("of in", viscous=VISCOUS)
        mechanism = train([motor, friction], inertias=(LOAD, 1.0))
        assert mechanism.internal_names == ("motor.current", "motor.temperature")
        sol = mbd.simulate(
            mechanism,
            mbd.UdwadiaKalaba(),
            mechanism.state(),
            t1=0.2,
            dt=2e-4,
            control=lambda t, q, v: 30.0 * jnp.cos(20.0 * t)[None],
        )
        return jnp.concatenate([sol.v[-1, 4:5], sol.z[-1]])

    one = np.ones(3)
    found, differences = beside(end, one, also=[one], step=1e-5)
    exact = scipy.integrate.solve_ivp(
        motor_rates, (0.0, 0.2), [0, 0, 0, 25.0], "LSODA", rtol=1e-9, atol=1e-9, max_step=1e-3
    ).y[1:, -1]
    assert exact[2] > 45.0  # so that derating acts
    np.testing.assert_allclose(found[0], exact, rtol=1e-4, atol=1e-3)
    _, forward, reverse = jax.jit(h.both_modes, static_argnums=0)(end, jnp.asarray(one))
    scale = np.abs(differences).max(1, keepdims=True)
    np.testing.assert_allclose(forward / scale, reverse / scale, atol=1e-8)
    np.testing.assert_allclose(forward / scale, differences / scale, atol=1e-5)
    check_refused(
        lambda: mbd.forces.DCMotor("m", angle("in"), **MOTOR, heat=mbd.forces.WindingHeat(**HEAT)),
        'DCMotor "m" with `derating` needs the `current_limit`',
    )

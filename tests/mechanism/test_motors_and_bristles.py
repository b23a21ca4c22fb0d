"""Force elements with states of their own: a motor with its current, and friction with bristles."""

import diffrax
import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from refusals import check_refused, refusals
from scipy.linalg import expm

import jaxmbd as mbd
from jaxmbd import identify
from jaxmbd._results import succeeded

RESISTANCE, INDUCTANCE, CONSTANT, GEAR, INERTIA, ROTOR = 2.0, 1e-2, 0.05, 10.0, 0.02, 1e-5
SEAL = dict(dry=1.0, static=1.5, speed=1e-3, stiffness=1e5, damping=316.0, viscous=0.4)


def joint(kind=mbd.Revolute, name="hinge", inertia=INERTIA):
    body = mbd.Body(f"body of {name}", mbd.Inertia(1.0, [inertia] * 3))
    return body, kind(name, "ground", body, point=[0.0, 0.0, 0.0], axis=[0.0, 0.0, 1.0])


def motor(inductance=INDUCTANCE, resistance=RESISTANCE, name="motor", on="hinge", **options):
    return mbd.forces.DCMotor(
        name,
        mbd.OfJoint(on),
        resistance=resistance,
        inductance=inductance,
        constant=CONSTANT,
        gear=GEAR,
        rotor_inertia=ROTOR,
        **options,
    )


def drive(forces, joints=(), kind=mbd.Revolute):
    body, hinge = joint(kind)
    return mbd.Mechanism([body], [hinge, *joints], forces, gravity=[0.0, 0.0, 0.0])


def step_response(inductance, t, volts=12.0):
    """(angle, rate, current) from rest."""
    total = INERTIA + GEAR**2 * ROTOR
    A = np.zeros((4, 4))
    A[0, 1], A[1, 2] = 1, GEAR * CONSTANT / total
    A[2, 1:] = np.array([-GEAR * CONSTANT, -RESISTANCE, volts]) / inductance
    return (expm(A * t) @ np.array([0, 0, 0, 1]))[:3]


def twelve(t, q, v):
    return jnp.array([12.0])


class Reduced(mbd.AbstractSystem):
    """The same motor on the angle, as a user writes it."""

    inductance: Array = h.parameter(INDUCTANCE)
    initial_internal = np.zeros(1)

    def mass_matrix(self, q):
        return jnp.array([[INERTIA + GEAR**2 * ROTOR]])

    def force(self, t, q, v, u, z):
        return GEAR * CONSTANT * z

    def internal(self, t, q, v, u, z):
        return (u - RESISTANCE * z - GEAR * CONSTANT * v) / self.inductance


@pytest.mark.slow
@pytest.mark.parametrize(
    "method, tolerance",
    [
        (mbd.UdwadiaKalaba(), 1e-8),
        (mbd.GeneralisedAlpha(), 1e-4),
        (mbd.VelocityImpulse(), 5e-2),
    ],
)
def test_step_response(method, tolerance):
    """Against the closed form, and the motion of the same system as a user writes it."""
    mechanism = drive([motor()])
    options = dict(t1=0.1, dt=5e-4, control=twelve)
    sol = mbd.simulate(mechanism, method, mechanism.state(), **options)
    angle = mechanism.joint_coordinates(sol.q, "hinge")[-1]
    found = np.concatenate([angle, sol.v[-1, 5:], mechanism.internal_of(sol.z, "motor")[-1]])
    exact = step_response(INDUCTANCE, 0.1)
    np.testing.assert_allclose(found, exact, atol=tolerance * np.max(np.abs(exact)))
    rest = mbd.State(0.0, np.zeros(1), np.zeros(1))
    own = mbd.simulate(Reduced(), method, rest, **options)
    np.testing.assert_allclose(found, np.concatenate([own.q[-1], own.v[-1], own.z[-1]]), rtol=1e-10)


@pytest.mark.slow
def test_energy():
    """What the source gives is heat, energy of the winding, and work on the mechanism, which is
    what the account of the mechanism calls work."""
    mechanism = drive([motor()])
    sol = mbd.simulate(
        mechanism,
        mbd.UdwadiaKalaba(),
        mechanism.state(),
        t1=0.1,
        dt=2e-4,
        control=twelve,
        saveat=diffrax.SaveAt(t0=True, steps=1),
        energy_tolerance=1e-5,
    )
    account = mbd.reports.audit(mechanism, sol, twelve)
    i = np.asarray(mechanism.internal_of(sol.z, "motor"))[:, 0]
    given, heat = (np.trapezoid(x, sol.t) for x in (12.0 * i, RESISTANCE * i**2))
    work = given - heat - INDUCTANCE * i[-1] ** 2 / 2
    kinetic = account.kinetic[-1]
    assert kinetic > 0.1
    np.testing.assert_allclose([work, account.work[-1]], [kinetic, kinetic], rtol=1e-4)


@pytest.mark.slow
def test_stall_at_a_limit():
    """Current and reaction where the motor presses against a stop, through the contact problem."""
    body, hinge = joint()
    stop = mbd.contacts.CoordinateLimit("stop", mbd.OfJoint("hinge"), lower=-1.0, upper=0.5)
    mechanism = mbd.Mechanism([body], [hinge], [motor()], [stop], gravity=[0.0, 0.0, 0.0])
    sol = mbd.simulate(
        mechanism, mbd.ContactImpulse(), mechanism.state(), t1=1.0, dt=1e-3, control=twelve
    )
    stalled = 12.0 / RESISTANCE
    np.testing.assert_allclose(sol.z[-1], [stalled], rtol=1e-9)
    force = np.max(np.asarray(sol.contact_force)[-1, :, 0])
    np.testing.assert_allclose(force, GEAR * CONSTANT * stalled, rtol=1e-9)


@pytest.mark.slow
def test_fit():
    """Resistance and inductance from records of the angle and the current."""
    true, times = drive([motor()]), np.linspace(0.0, 0.2, 41)

    def volts(t, q, v):
        return jnp.array([12.0 * jnp.cos(20.0 * t)])

    sol = mbd.simulate(
        true,
        mbd.UdwadiaKalaba(),
        true.state(),
        t1=0.2,
        dt=1e-3,
        control=volts,
        saveat=diffrax.SaveAt(ts=times),
    )
    measured = [true.joint_coordinates(sol.q, "hinge"), true.internal_of(sol.z, "motor")]
    record = identify.Record(times, np.concatenate(measured, 1), control=volts, start=true.state())
    sensors = {
        "angle": identify.JointPosition("hinge"),
        "current": lambda sample: sample.mechanism.internal_of(sample.z, "motor"),
    }
    found = identify.fit(
        lambda p: drive([motor(p["L"], p["R"])]),
        {"L": 0.5 * INDUCTANCE, "R": 0.5 * RESISTANCE},
        record,
        sensors,
        dt=1e-3,
        progress=False,
    )
    np.testing.assert_allclose(found.values["L"], INDUCTANCE, rtol=1e-8)
    np.testing.assert_allclose(found.values["R"], RESISTANCE, rtol=1e-8)
    parted = identify.MultipleShooting(2)
    check_refused(
        lambda: identify.fit(
            lambda p: drive([motor(p["L"])]), {"L": 1e-2}, record, sensors, dt=1e-3, shooting=parted
        ),
        "Mechanism has internal states",
    )


def sealed(push=(), joints=(), **options):
    forces = [mbd.forces.LuGreFriction("seal", mbd.OfJoint("hinge"), **{**SEAL, **options})]
    return drive([*forces, *push], joints, mbd.Prismatic)


def pushed(force):
    """By a force that is reached in 1 s and then stays."""
    actuator = mbd.forces.CoordinateSpring(
        "push", mbd.OfJoint("hinge"), actuator=lambda t: force * jnp.minimum(t, 1.0)
    )
    return [actuator]


@pytest.mark.slow
@pytest.mark.parametrize(
    "method, dt, options",
    [
        (mbd.VelocityImpulse(), 1e-3, {}),
        (mbd.UdwadiaKalaba(), 1e-3, {}),
        (mbd.GeneralisedAlpha(), 1e-2, dict(stiffness=1e9, damping=3e4)),
    ],
)
def test_friction_holds(method, dt, options):
    """Above `dry` and below `static`, without drift; the last case with bristles 100 times faster
    than the step."""
    mechanism = sealed(pushed(1.4), **options)
    sol = mbd.simulate(
        mechanism,
        method,
        mechanism.state(),
        dt=dt,
        num_steps=4000,
        saveat=diffrax.SaveAt(steps=1000),
    )
    x = np.asarray(mechanism.joint_coordinates(sol.q, "hinge"))[1:, 0]
    stiffness = options.get("stiffness", SEAL["stiffness"])
    assert np.ptp(x) < 1e-12 and 1.4 / stiffness < x[0] < 10 / stiffness
    np.testing.assert_allclose(sol.z[-1], [1.4 / stiffness], rtol=1e-9)


@pytest.mark.slow
def test_pre_sliding_stiffness():
    mechanism = sealed(pushed(0.01))
    sol = mbd.simulate(mechanism, mbd.VelocityImpulse(), mechanism.state(), t1=2.0, dt=1e-3)
    x = mechanism.joint_coordinates(sol.q, "hinge")[-1, 0]
    np.testing.assert_allclose(x, 0.01 / SEAL["stiffness"], rtol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("method", [mbd.VelocityImpulse(), mbd.GeneralisedAlpha()])
def test_stribeck_curve(method):
    """The force that a constant speed takes."""

    @jax.jit
    def force(speed):
        along = mbd.joints.CoordinateConstraint(
            "drive", mbd.OfJoint("hinge"), motion=lambda t: speed * t
        )
        mechanism = sealed(joints=[along])
        state = mechanism.state()
        start = mbd.State(0.0, state.q, state.v.at[2].set(speed))
        sol = mbd.simulate(mechanism, method, start, dt=2e-3, num_steps=500, throw=False)
        return sol.multipliers[-1, mechanism.rows("drive")], sol.result

    for speed in (5e-4, -3e-3, 0.5):
        g = 1 + 0.5 * np.exp(-((speed / 1e-3) ** 2))
        found, result = force(speed)
        assert succeeded(result)
        np.testing.assert_allclose(found, g * np.sign(speed) + 0.4 * speed, rtol=1e-10)


@pytest.mark.slow
def test_derivatives_of_friction():
    """Sliding, by its parameters, against differences."""

    def end(x):
        mechanism = sealed(**x)
        state = mechanism.state()
        start = mbd.State(0.0, state.q, state.v.at[2].set(0.3))
        sol = mbd.simulate(mechanism, mbd.VelocityImpulse(), start, dt=1e-3, num_steps=20)
        return 10 * sol.v[-1, 2] + 1e5 * sol.z[-1, 0]

    h.check_scalar(end, {"dry": np.array(1.0), "viscous": np.array(0.4), "speed": np.array(0.2)})


GAINS = dict(proportional=8.0, integral=20.0, derivative=0.8)


def controlled(target, load=0.0, contacts=(), **options):
    body, hinge = joint()
    angle = mbd.OfJoint("hinge")
    forces = [
        mbd.forces.PIDController("pid", angle, target=target, **GAINS, **options),
        mbd.forces.CoordinateSpring("load", angle, actuator=load),
    ]
    return mbd.Mechanism([body], [hinge], forces, contacts, gravity=[0.0, 0.0, 0.0])


@pytest.mark.slow
def test_controller():
    """Against the closed form, with a load, and from an integral that is not 0."""
    p, i, d = GAINS.values()
    mechanism = controlled(0.5, load=-0.3, accumulated=0.02)
    sol = mbd.simulate(mechanism, mbd.UdwadiaKalaba(), mechanism.state(), t1=0.4, dt=2e-3)
    A = np.zeros((4, 4))
    A[0, 1], A[2, 0], A[2, 3] = 1, -1, 0.5
    A[1] = np.array([-p, -d, i, 0.5 * p - 0.3]) / INERTIA
    exact = (expm(0.4 * A) @ np.array([0, 0, 0.02, 1]))[:3]
    angle = mechanism.joint_coordinates(sol.q, "hinge")[-1]
    np.testing.assert_allclose(np.concatenate([angle, sol.v[-1, 5:], sol.z[-1]]), exact, atol=1e-6)


@pytest.mark.slow
def test_the_integral_does_not_wind_up():
    """Where a stop keeps the target out of reach, it ends where it gives the limit."""
    stop = mbd.contacts.CoordinateLimit("stop", mbd.OfJoint("hinge"), lower=-1.0, upper=0.2)
    mechanism = controlled(2.0, contacts=[stop], limits=[-1.0, 1.5])
    sol = mbd.simulate(mechanism, mbd.ContactImpulse(), mechanism.state(), dt=5e-3, num_steps=2000)
    np.testing.assert_allclose(sol.z[-1], [1.5 / GAINS["integral"]], rtol=1e-9)
    np.testing.assert_allclose(np.max(sol.contact_force[-1, :, 0]), 1.5, rtol=1e-9)


@pytest.mark.slow
def test_within_limits():
    """A speed in closed form, and its derivatives: by an activation that integrates up to its
    limit, and by a motor whose current follows at once."""
    duration, names = 0.3, ("a", "b")

    def end(x):
        u, most, volts, resistance = x
        bodies, hinges = zip(*(joint(name=name) for name in names), strict=True)
        forces = [
            mbd.forces.CoordinateActuator(
                "drive", mbd.OfJoint("a"), integrates=True, activation_limits=[-1.0, most]
            ),
            motor(None, resistance, on="b", voltage=volts),
        ]
        plane = mbd.Plane(normal=[0.0, 0.0, 1.0])
        mechanism = mbd.Mechanism(bodies, hinges, forces, gravity=[0.0] * 3, plane=plane)
        sol = mbd.simulate(
            mechanism,
            mbd.UdwadiaKalaba(),
            mechanism.state(),
            t1=duration,
            dt=1e-3,
            control=lambda t, q, v: u[None],
        )
        return sol.v[-1, 4:]

    u, most, volts, resistance = x = np.array([0.4003, 0.05, 12.0, RESISTANCE])
    k, total = GEAR * CONSTANT, INERTIA + GEAR**2 * ROTOR
    decay = np.exp(-(k**2) / (resistance * total) * duration)
    slower = volts / k * decay * k**2 / (resistance * total) * duration / resistance
    value, forward, reverse = jax.jit(h.both_modes, static_argnums=0)(end, jnp.asarray(x))
    exact = [(most * duration - most**2 / (2 * u)) / INERTIA, volts / k * (1 - decay)]
    np.testing.assert_allclose(value, exact, rtol=1e-5)
    slopes = [
        [most**2 / (2 * u**2) / INERTIA, (duration - most / u) / INERTIA, 0.0, 0.0],
        [0.0, 0.0, (1 - decay) / k, -slower],
    ]
    np.testing.assert_allclose(forward, slopes, rtol=1e-2, atol=1e-9)
    np.testing.assert_allclose(reverse, forward, rtol=1e-9, atol=1e-12)


def several():
    bodies, hinges = zip(joint(name="a"), joint(name="b"), joint(name="c"), strict=True)
    forces = [
        motor(name="m.1", on="a", current=1.0),
        mbd.forces.LuGreFriction("seal", mbd.OfJoint("b"), **SEAL, deflection=2.0),
        motor(name="m.2", on="c", current=3.0),
    ]
    return mbd.Mechanism(bodies, hinges, forces)


def test_names():
    """States stand kind by kind, as the elements do, and are found by the name of the element."""
    mechanism = several()
    assert mechanism.internal_names == ("m.1.current", "m.2.current", "seal.deflection")
    z = np.asarray(eqx.filter_jit(lambda system: system.initial_internal)(mechanism))
    np.testing.assert_array_equal(z, [1.0, 3.0, 2.0])
    many = np.stack([z, 2 * z])
    for name, value in (("m.1", 1.0), ("m.2", 3.0), ("seal", 2.0)):
        found = mechanism.internal_of(many, name)
        np.testing.assert_array_equal(found, [[value], [2 * value]])


class Nameless(mbd.forces.AbstractCoordinateForce):
    internal_names = ("level",)

    def force(self, x, rate, t, u, z):
        return z[0]


def of_nothing():
    return drive([mbd.forces.CoordinateSpring("s", mbd.OfJoint("hinge"), stiffness=1.0)])


@refusals(
    (
        "no resistance",
        "`resistance` of DCMotor",
        lambda: motor(resistance=0.0),
    ),
    (
        "limits",
        'limits` of DCMotor "motor" must be lower <= upper',
        lambda: motor(limits=[1.0, -1.0]),
    ),
    (
        "activation",
        '`activation_limits` of CoordinateActuator "a" need an activation',
        lambda: mbd.forces.CoordinateActuator(
            "a", mbd.OfJoint("hinge"), activation_limits=[-1.0, 1.0]
        ),
    ),
    (
        "lag",
        'CoordinateActuator "a" that `integrates` its control has no `lag`',
        lambda: mbd.forces.CoordinateActuator("a", mbd.OfJoint("hinge"), integrates=True, lag=1.0),
    ),
    (
        "two voltages",
        'DCMotor "motor" gets its voltage from its `controller`',
        lambda: motor(
            voltage=1.0,
            controller=mbd.forces.PIDController("p", mbd.OfJoint("hinge"), proportional=1.0),
        ),
    ),
    (
        "rate of no winding",
        '`current_rate` of DCMotor "motor" needs an `inductance`',
        lambda: motor(None, current_rate=1.0),
    ),
    (
        "follows nothing",
        '`proportional` of PIDController "p" must be positive',
        lambda: mbd.forces.PIDController("p", mbd.OfJoint("hinge"), proportional=0.0, integral=1.0),
    ),
    (
        "static",
        '`static` of LuGreFriction "seal" must not be below `dry`',
        lambda: sealed(static=0.5),
    ),
    (
        "no states",
        '"s" has no internal states',
        lambda: of_nothing().internal_of(np.zeros(1), "s"),
    ),
    (
        "no rates",
        r"`Nameless` has `internal_names`, but no method `internal_rate\(x, rate, t, u, z\)`",
        lambda: Nameless("n", mbd.OfJoint("hinge")).internal_rate(0.0, 0.0, 0.0, None, None),
    ),
)
def test_refused(words, call):
    check_refused(call, words)

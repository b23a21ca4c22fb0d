"""Rotor inertia of actuators, the part of M that bodies share."""

import itertools

import diffrax
import helpers
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd

Y, Z = [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]
BOX = mbd.Inertia.box(size=[0.2, 0.3, 0.5], mass=1.3)
GEAR, ROTOR = 7.0, 0.004
TIME = jnp.zeros(())


def idle(t, q, v):
    return jnp.zeros(1)


def drive(t, q, v):
    return jnp.array([0.3]) + jnp.sin(5 * t)


def chain(n, rotor=ROTOR):
    """Links on hinges about y and z in turn, each with a motor."""
    bodies, joints, motors, before = [], [], [], "ground"
    for i in range(n):
        body = mbd.Body(f"link {i}", BOX, position=[0.5 * i + 0.25, 0, 0])
        at = dict(point=[0.5 * i, 0, 0], axis=(Y, Z)[i % 2])
        bodies.append(body)
        joints.append(mbd.Revolute(f"hinge {i}", before, body, **at))
        motors.append(
            mbd.Motor(f"motor {i}", before, body, gear=GEAR + i, rotor_inertia=rotor, **at)
        )
        before = body
    return mbd.Mechanism(bodies, joints, motors)


def four_bar():
    """A parallelogram on hinges about y, redundant by 3, with motors on two of them."""
    places = [[0.0, 0, 0], [0.1, 0, 0.3], [0.6, 0, 0.3], [0.5, 0, 0.0]]
    middles = np.array([np.add(p, q) / 2 for p, q in itertools.pairwise(places)])
    a, b, c = (mbd.Body(name, BOX, position=p) for name, p in zip("abc", middles, strict=True))
    pairs = [("ground", a), (a, b), (b, c), (c, "ground")]
    joints = [
        mbd.Revolute(f"hinge {i}", *pair, point=place, axis=Y)
        for i, (pair, place) in enumerate(zip(pairs, places, strict=True))
    ]
    motors = [
        mbd.Motor(f"motor {i}", *pairs[i], point=places[i], axis=Y, gear=3.0, rotor_inertia=0.01)
        for i in (0, 1)
    ]
    return mbd.Mechanism([a, b, c], joints, motors)


def pendulum(gear=GEAR, rotor=ROTOR, speed=1.0):
    """A bar that starts level, and swings about y."""
    bar = mbd.Body(
        "bar", BOX, position=[0.4, 0, 0], velocity=[0.0, 0.0, -0.4 * speed],
        angular_velocity=[0.0, speed, 0.0],
    )  # fmt: skip
    at = dict(point=[0, 0, 0], axis=Y)
    motor = mbd.Motor("motor", "ground", bar, gear=gear, rotor_inertia=rotor, **at)
    return mbd.Mechanism([bar], [mbd.Revolute("hinge", "ground", bar, **at)], [motor])


METHODS = {
    "UdwadiaKalaba": mbd.UdwadiaKalaba(),
    "KKT": mbd.UdwadiaKalaba(solver=mbd.KKT()),
    "LagrangeMultipliers": mbd.LagrangeMultipliers(alpha=5.0, beta=5.0),
    "AugmentedLagrangian": mbd.AugmentedLagrangian(),
    "VelocityImpulse": mbd.VelocityImpulse(),
}


QUICK = ("VelocityImpulse",)


@pytest.mark.parametrize("method", helpers.slow_unless(lambda method: method in QUICK, METHODS))
def test_pendulum(method):
    """(I + m l^2 + gear^2 I_rotor) theta'' = m g l cos(theta) + gear u under every method, from
    level; by its energy, theta'^2 = theta_0'^2 + 2 (m g l sin(theta) + gear u theta) / (...)."""
    mechanism, u = pendulum(), 0.2
    sol = mbd.simulate(
        mechanism, METHODS[method], mechanism.state(), t1=0.2, dt=2e-4, scheme=mbd.RK4(),
        control=lambda t, q, v: jnp.array([u]),
    )  # fmt: skip
    theta = mechanism.joint_coordinates(sol.q[-1], "hinge")[0]
    inertia = 1.3 * (0.2**2 + 0.5**2) / 12 + 1.3 * 0.4**2 + GEAR**2 * ROTOR
    work = 1.3 * 9.81 * 0.4 * np.sin(theta) + GEAR * u * theta
    rate = np.sqrt(1.0 + 2 * work / inertia)
    assert theta > 0.3
    tolerance = 1e-3 if method == "VelocityImpulse" else 1e-9  # of first order
    np.testing.assert_allclose(mechanism.twist(sol.v[-1], "bar").angular[1], rate, rtol=tolerance)


MECHANISMS = {"chain": lambda: chain(9), "loop": four_bar}


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_sparse_elimination(name):
    """The motion is that of the dense matrices, also without the joints."""
    mechanism = MECHANISMS[name]()
    state = mechanism.state()
    rng = np.random.default_rng(3)
    n = len(mechanism.bodies)

    @jax.jit
    def solve(v, f, r):
        point = mbd.evaluate(mechanism, idle, TIME, state.q, v)
        M, rows = mechanism.mass_blocks(state.q), mechanism.linearised(TIME, state.q, v)
        found = mbd.solvers.ConstraintOperator(mbd.BlockSparse(), M, rows.J)
        a, lam = found.solve(f, r)
        return a, lam, found.free(f), M @ f, found.result(), point.M, point.rows.J

    v, f = rng.standard_normal((2, 6 * n))
    r = np.zeros(mechanism.constraint(state.q, TIME).shape)
    a, lam, free, image, result, M, J = solve(jnp.asarray(v), jnp.asarray(f), jnp.asarray(r))
    assert result == mbd.RESULTS.successful
    np.testing.assert_allclose(image, M @ f, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(M @ free, f, atol=1e-10)
    np.testing.assert_allclose(M @ a, f + J.T @ lam, atol=1e-7)
    np.testing.assert_allclose(J @ a, r, atol=1e-9)
    alone = mbd.Mechanism(mechanism.bodies, mechanism.joints).mass_matrix(state.q)
    added = np.linalg.eigvalsh(M - alone)
    assert np.sum(added > 1e-9) == len(mechanism.forces) and np.min(added) > -1e-12


def test_rotors_keep_energy_and_momentum():
    """Two bodies that float, and drive each other."""
    a = mbd.Body("a", BOX, velocity=[0.1, 0.2, 0.3], angular_velocity=[1.0, -0.4, 0.7])
    b = mbd.Body("b", BOX, position=[0.5, 0, 0.0], velocity=[0.1, 0.55, 0.5],
                 angular_velocity=[1.0, -0.4, 2.7])  # fmt: skip
    at = dict(point=[0.25, 0.0, 0.0], axis=Z)
    spindle = mbd.LinearActuator("spindle", a, b, gear=20.0, rotor_inertia=0.003, **at)
    motor = mbd.Motor("motor", a, b, gear=GEAR, rotor_inertia=ROTOR, **at)
    mechanism = mbd.Mechanism([a, b], (), [motor, spindle], gravity=[0, 0, 0])
    sol = mbd.simulate(
        mechanism, mbd.UdwadiaKalaba(), mechanism.state(), t1=0.3, dt=1e-3, scheme=mbd.RK4(),
        control=drive, saveat=diffrax.SaveAt(steps=True),
    )  # fmt: skip
    audit = mbd.reports.audit(mechanism, sol, drive)
    start = mechanism.state()
    rotors = mbd.reports.rotor_energies(mechanism, start.q, start.v)
    np.testing.assert_allclose(rotors["motor"], GEAR**2 * ROTOR * 2.0**2 / 2, rtol=1e-12)
    assert np.ptp(audit.total) > 0.3
    np.testing.assert_allclose(audit.imbalance, 0, atol=1e-7)
    for momentum in (audit.momentum, audit.angular_momentum):
        np.testing.assert_allclose(momentum - momentum[:1], 0, atol=1e-10)


@pytest.mark.slow
def test_derivatives():
    """Of a driven motion with respect to the rotor's inertia and the gear, one that is 0 too."""

    def end(x):
        mechanism = pendulum(x[0], x[1], x[2])
        sol = mbd.simulate(
            mechanism, mbd.VelocityImpulse(), mechanism.state(), t1=0.02, dt=1e-3,
            control=drive, throw=False,
        )  # fmt: skip
        rate = mechanism.twist(sol.v[-1], "bar").angular[1]
        return rate, rate

    modes, h = (jax.jacrev, jax.jacfwd), 1e-5
    both = jax.jit(lambda x: [mode(end, has_aux=True)(x) for mode in modes])
    value = lambda x: both(x)[0][1]  # noqa: E731
    for rotor in (0.0, ROTOR):
        x = jnp.array([GEAR, rotor, 1.0])
        # Inertia must not be negative: one-sided differences of second order.
        expected = [
            (-3 * value(x) + 4 * value(x + h * e) - value(x + 2 * h * e)) / (2 * h)
            for e in np.eye(3)
        ]
        for found, _ in both(x):
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_negative_inertia():
    with pytest.raises(ValueError, match='`rotor_inertia` of Motor "motor" must be finite and not'):
        pendulum(rotor=-1.0)

    @jax.jit
    def result(rotor):
        mechanism = pendulum(rotor=rotor)
        sol = mbd.simulate(
            mechanism, mbd.UdwadiaKalaba(), mechanism.state(), t1=2e-3, dt=1e-3, control=idle,
            throw=False,
        )  # fmt: skip
        return sol.result

    assert result(-1.0) == mbd.RESULTS.invalid_parameter
    assert result(1.0) == mbd.RESULTS.successful

"""Numbers of sensors and clocks, found beside those of the system: from motions in closed form, and
from simulated measurements of a pendulum."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import oscillation
from known_motions import BOTH, QUIET, decay, oscillator, position, state
from test_identify_mechanisms import VISCOUS, turning_bar

import jaxmbd as mbd
from jaxmbd import identify
from jaxmbd._compiler import to_jax
from jaxmbd._results import succeeded
from jaxmbd.identify import (
    IMU,
    Calibrated,
    Clock,
    Delayed,
    LowPass,
    MultipleShooting,
    Parameter,
    Positive,
    Quantised,
    Record,
    SecondOrderLowPass,
    Unwrapped,
)
from jaxmbd.identify.problem import SimulationOptions, make_problem

pytestmark = pytest.mark.slow

SAMPLING = 0.02
T = SAMPLING * np.arange(300)
FAST = dict(damping=0.4, stiffness=90.0)
NOISE = 0.002


def guess():
    return oscillator(damping=0.6, stiffness=85.0)


def noise(seed=0, columns=1):
    return NOISE * np.random.default_rng(seed).normal(size=(len(T), columns))


def record(measured, seed=0, **options):
    off = noise(seed)[:, 0]
    return Record(T, measured + off, state(), weights=np.full(len(T), 1 / NOISE), **options)


def at(t):
    """The angle, which did not change before the start."""
    return decay(np.maximum(t, 0.0), **FAST)


def fitted(records, sensor, extra, **options):
    return identify.fit(
        guess(), {**extra, **BOTH}, records, {"x": sensor}, dt=SAMPLING / 2, **QUIET, **options
    )


def within(found, truth, level=0.99):
    """The intervals contain the truth and tell something."""
    assert succeeded(found.result)
    low, high = found.interval(level).T
    truth = np.concatenate([np.ravel(x) for x in truth])
    assert np.all((low < truth) & (truth < high)), (found, truth)


def test_delay():
    """Of 3.7 samples to 0.01 of a sample, in one part, and in three, which each lose the samples
    that look back beyond their start."""
    delay = 3.7 * SAMPLING
    late = record(at(T - delay))
    sensor = Delayed(position, 0.05, longest=0.12)
    for shooting, lost in ((identify.SingleShooting(), 6), (MultipleShooting(3), 18)):
        found = fitted(late, sensor, {"sensors[x].delay": None}, shooting=shooting)
        assert found.prediction.records[0].count == 300 - lost
        assert found.names == ("sensors[x].delay", "damping", "stiffness")
        within(found, (delay, 0.4, 90.0))
        assert abs(found.entries[0] - delay) < 0.01 * SAMPLING
        assert found.sigma[0] < 0.01 * SAMPLING
        np.testing.assert_allclose(found.sensors["x"].delay, found.entries[0])
        # The sensor that was found reads other records.
        again = found.predict(Record(T, at(T - delay), state()))
        assert again.rms["x"] < NOISE / 2
    coverage = identify.bootstrap(
        fitted(late, sensor, {"sensors[x].delay": None}), jax.random.key(0), 200
    ).coverage()
    assert np.all((coverage > 0.90) & (coverage < 0.99)), coverage


def test_clock_of_a_device():
    """One column that comes early, with a rate that is on time: samples at the end are lost."""
    early, sensors = 0.031, {"x": Delayed(position, 0.0, longest=0.05, shortest=-0.1)}
    sensors["v"] = lambda sample: sample.v / 10
    x = oscillation(1.0, 90.0, 0.4, 1.0, 0.0, T + early)[0]
    v = oscillation(1.0, 90.0, 0.4, 1.0, 0.0, T)[1] / 10
    made = Record(T, np.stack([x, v], 1) + noise(columns=2), state(), weights=[1 / NOISE])
    free = {"sensors[x].delay": None, **BOTH}
    found = identify.fit(guess(), free, made, sensors, dt=SAMPLING / 2, **QUIET)
    within(found, (-early, 0.4, 90.0))
    weights = found.prediction.records[0].weights
    assert np.sum(weights > 0, axis=0).tolist() == [300 - 3 - 5, 300]


def test_common_delay():
    """A function may build the sensors too: position and rate come late by the same time."""
    delay = 0.031

    def build(values):
        late = lambda of: Delayed(of, values["delay"], longest=0.1)  # noqa: E731
        sensors = {"x": late(position), "v": late(lambda sample: sample.v / 10)}
        return oscillator(stiffness=values["stiffness"]), sensors

    early = np.maximum(T - delay, 0.0)
    x, v = oscillation(1.0, 90.0, 0.4, 1.0, 0.0, early)
    measured = np.stack([x, v / 10], axis=1) + noise(columns=2)
    made = Record(T, measured, state(), weights=[1 / NOISE])
    free = {"stiffness": Parameter(85.0, Positive()), "delay": 0.05}
    found = identify.fit(build, free, made, dt=SAMPLING / 2, **QUIET)
    within(found, (90.0, delay))
    assert list(found.sensors) == ["x", "v"]
    np.testing.assert_allclose(found.sensors["v"].delay, found.values["delay"])
    assert found.predict(made).rms["v"] < 1.2 * NOISE


def test_low_pass():
    """The filter of a decaying oscillation has forgotten its start after the samples that are left
    out: the response to e^(z t), z complex, is e^(z t) / (1 + z tau)."""
    tau, z = 0.06, complex(-0.2, np.sqrt(90.0 - 0.04))
    amplitude = 1 - 0.2j / z.imag  # of the oscillation from rest
    slow = np.real(amplitude * np.exp(z * T) / (1 + z * tau))
    both = {"sensors[x].time_constant": None}
    found = fitted(record(slow), LowPass(position, 0.04, settling=0.5), both)
    within(found, (tau, 0.4, 90.0))
    assert found.sigma[0] < 1e-3 and found.prediction.records[0].count == 275
    # From rest there is a transient, which the filter knows too.
    start = np.real(amplitude / (1 + z * tau))
    full = slow + (1 - start) * np.exp(-T / tau)
    found = fitted(record(full), LowPass(position, 0.04, settling=0.0), both)
    within(found, (tau, 0.4, 90.0))
    assert found.prediction.records[0].count == 300


def test_low_pass_of_second_order():
    """Of the same oscillation: e^(z t) w^2 / (z^2 + 2 zeta w z + w^2)."""
    frequency, damping, z = 2.5, 0.4, complex(-0.2, np.sqrt(90.0 - 0.04))
    w = 2 * np.pi * frequency
    response = w**2 / (z**2 + 2 * damping * w * z + w**2)
    measured = np.real((1 - 0.2j / z.imag) * response * np.exp(z * T))
    free = {f"sensors[x].{name}": None for name in ("frequency", "damping")}
    sensor = SecondOrderLowPass(position, 3.0, settling=2.0)
    found = fitted(record(measured), sensor, free)
    within(found, (frequency, damping, 0.4, 90.0))
    assert np.all(found.sigma[:2] < 0.02)


def test_clock():
    """One of two records has a clock that is off and drifts; both were started in the same way."""
    offset, drift = -0.043, 3e-3
    good, off = (
        record(at(T), 1),
        record(at(T + offset + drift * T), 2, name="camera", clock=Clock(0.15)),
    )
    paths = {f"records[camera].clock.{name}": None for name in ("offset", "drift")}
    found = fitted([good, off], position, paths)
    within(found, (offset, drift, 0.4, 90.0))
    assert found.sigma[0] < 1e-3
    assert [r.count for r in found.prediction.records] == [300, 284]
    assert found.predict(off).rms["x"] < 1.2 * NOISE


def test_calibration():
    """Gains, cross-axis sensitivities and biases of a sensor of two axes, with quantised readings,
    in one matrix and one vector."""
    gain, bias, step = np.array([[1.02, 0.03], [-0.02, 0.95]]), np.array([0.05, -0.04]), 0.004
    t, truth = T, oscillator(**FAST)
    both = lambda sample: jnp.concatenate([sample.q, sample.v / 10])  # noqa: E731
    sensor = Quantised(Calibrated(both, gain=gain, bias=bias), step)
    made = identify.measure(
        truth, {"x": sensor}, t, state(), dt=1e-3, noise=NOISE, key=jax.random.key(1), **QUIET
    )
    np.testing.assert_allclose(made.measured / step, np.round(made.measured / step), atol=1e-9)
    np.testing.assert_allclose(made.weights, 1 / np.sqrt(NOISE**2 + step**2 / 12))
    sensor = Quantised(Calibrated(both, gain=np.eye(2), bias=np.zeros(2)), step)
    paths = {f"sensors[x].sensor.{name}": None for name in ("gain", "bias")}
    found = fitted(made, sensor, paths)
    within(found, (gain, bias, 0.4, 90.0))
    assert 0.9 < found.noise < 1.1


def swinging_bar(position=(0.0, 0.0, 0.0), ball=True):
    """A bar on a ball joint, or on a hinge, kicked so that it turns about all of its axes."""
    inertia = mbd.Inertia.box(size=[0.1, 0.2, 1.0], mass=2.0).moved([0, 0, -0.5])
    c, s = np.cos(0.3), np.sin(0.3)
    omega = [1.0, 2.0, 3.0] if ball else [0.0, 2.0, 0.0]
    bar = mbd.Body("bar", inertia, orientation=[c, 0, s, 0], angular_velocity=omega)
    if ball:
        joint = mbd.Spherical("joint", "ground", bar, point=position)
    else:
        joint = mbd.Revolute("joint", "ground", bar, point=position, axis=[0, 1, 0])
    return mbd.Mechanism([bar], [joint])


@pytest.mark.filterwarnings("ignore:Nothing that was measured")
@pytest.mark.parametrize("ball", [True, False], ids=["ball", "hinge"])
def test_mounting(ball):
    """The place and the orientation of an inertial unit on a pendulum. On a hinge all readings are
    the same at any place along the axis, and the fit says so."""
    system, place = swinging_bar(ball=ball), np.array([0.03, -0.02, -0.7])
    turn = np.array([np.cos(0.2), *np.sin(0.2) * np.array([0.6, 0.0, 0.8])])
    sigma = np.array([0.05] * 3 + [0.01] * 3)
    made = identify.measure(
        system, {"imu": IMU("bar", place, turn)}, 0.01 * np.arange(200), system.state(),
        dt=2e-3, noise=sigma, key=jax.random.key(2), **QUIET,
    )  # fmt: skip
    sensors = {"imu": IMU("bar", [0.0, 0.0, -0.5])}
    paths = [f"sensors[imu].{name}" for name in ("point", "orientation")]
    found = identify.fit(system, paths, made, sensors, dt=0.01, **QUIET)
    known = np.concatenate([place, turn])
    certain = np.isfinite(found.sigma)
    assert certain.tolist() == [True, ball, *[True] * 5]
    low, high = found.interval(0.99).T
    assert np.all((low < known) & (known < high)), found
    assert np.all(found.sigma[certain] < 5e-3)
    assert 0.9 < found.noise < 1.1


def test_encoder():
    """Of a bar that turns over 3 times: counts, turns, marks that are off centre, and a delay, with
    a method that is of first order and impulsive."""
    system, off, delay = turning_bar(15.0), np.array([0.02, -0.01]), 0.0173
    mounted = lambda off, **late: {  # noqa: E731
        "x": Unwrapped(Delayed(identify.Encoder("hinge", 500, off), **late))
    }
    how = dict(dt=2e-3, enforcement=mbd.VelocityImpulse(), **QUIET)
    time = 0.01 * np.arange(200)
    made = identify.measure(system, mounted(off, delay=delay), time, system.state(), **how)
    counts = made.measured * 500 / (2 * np.pi)
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-8)
    assert np.ptp(made.measured) > 6 * np.pi and np.all(np.abs(np.diff(counts, axis=0)) < 250)
    np.testing.assert_allclose(made.weights, 500 * np.sqrt(12) / (2 * np.pi))
    sensors = mounted(np.zeros(2), delay=0.01, longest=0.05)
    paths = {
        "sensors[x].sensor.sensor.eccentricity": identify.Free(0.01),
        "sensors[x].sensor.delay": None,
        "forces[damper].damping": Parameter(0.12, Positive()),
    }
    found = identify.fit(system, paths, made, sensors, **how)
    within(found, (off, delay, VISCOUS))
    assert np.all(found.sigma < 2e-3) and 0.8 < found.noise < 1.2


def test_derivatives():
    """Of residuals by all numbers of a chain of instruments and of a clock, in forward and in
    reverse mode, against differences. On steps of the simulation too: the guess of the offset
    is 0."""
    chain = Quantised(
        Delayed(LowPass(Calibrated(position, gain=1.1, bias=0.2), 0.05, settling=0.1), 0.03), 0.1
    )
    paths = {
        "sensors[x].sensor.delay": None,
        "sensors[x].sensor.sensor.time_constant": Positive(),
        "sensors[x].sensor.sensor.sensor.gain": None,
        "sensors[x].sensor.sensor.sensor.bias": Parameter(0.2),
        "records[record].clock.offset": None,
        "records[record].clock.drift": None,
        "stiffness": Positive(),
    }
    problem = make_problem(
        guess(), paths, record(at(T), clock=Clock(0.1)), {"x": chain},
        SimulationOptions(SAMPLING / 2, mbd.UdwadiaKalaba(), None),
    )  # fmt: skip
    data, weights = problem.data, np.random.default_rng(0).normal(size=300)
    z = np.zeros(problem.size)
    forward = eqx.filter_jit(problem.residuals.jacobian)(to_jax(z), data)[1]
    loss = lambda z: weights @ problem.residuals(z, data)  # noqa: E731
    reverse = jax.jit(jax.grad(loss))(to_jax(z))
    e = 1e-5
    beside = jax.jit(jax.vmap(lambda z: problem.residuals(z, data)))
    off = np.asarray(beside(to_jax(np.concatenate([e * np.eye(7), -e * np.eye(7)]))))
    differences = (off[:7] - off[7:]) / (2 * e)
    size = np.abs(differences).max(axis=1, keepdims=True)
    np.testing.assert_allclose(np.asarray(forward).T / size, differences / size, atol=1e-6)
    np.testing.assert_allclose(reverse, weights @ np.asarray(forward), rtol=1e-9)

"""Sensors as they are, on motions in closed form: what they read, and its derivatives."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from known_motions import oscillator, position, state

import jaxmbd as mbd
from jaxmbd import identify
from jaxmbd._compiler import to_jax
from jaxmbd.identify import (
    IMU,
    Calibrated,
    Delayed,
    LowPass,
    Quantised,
    SecondOrderLowPass,
    Unwrapped,
)
from jaxmbd.identify.instruments import reach_of
from jaxmbd.identify.rig import Rig
from jaxmbd.identify.sample import SavedMotion

OMEGA, DT = 7.0, 0.01
LAGS = np.array([0.0237, 0.05])  # a delay of 2.37 steps, and a time constant of 5


def swinging(rounded=False):
    """q = sin(omega t) at 100 steps."""
    t = DT * np.arange(101)
    x = np.stack([np.sin(OMEGA * t), OMEGA * np.cos(OMEGA * t)], axis=1)
    t0, dt, x = to_jax(0.0), to_jax(DT), to_jax(x)
    return SavedMotion(oscillator(), None, t0, dt, x, 1, 1, points=6, rounded=rounded)


def lag(t, tau):
    """y of tau y' + y = sin(omega t), y(0) = 0."""
    turn = OMEGA * tau
    settled = np.sin(OMEGA * t) - turn * np.cos(OMEGA * t)
    return (settled + turn * np.exp(-t / tau)) / (1 + turn**2)


def lag_of_second_order(t, f, zeta):
    """y of y'' + 2 zeta w y' + w^2 y = w^2 sin(omega t), y(0) = y'(0) = 0."""
    w, z = 2 * np.pi * f, 1j * OMEGA
    gain = w**2 / (z**2 + 2 * zeta * w * z + w**2)
    decay, turn = zeta * w, w * np.sqrt(1 - zeta**2)
    y, rate = gain.imag, (gain * z).imag
    free = y * np.cos(turn * t) + (rate + decay * y) / turn * np.sin(turn * t)
    return (gain * np.exp(z * t)).imag - np.exp(-decay * t) * free


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [(3.0, 0.3), (0.8, 0.95), (40.0, 0.6)], ids=str)
def test_lag_of_second_order(numbers):
    """Of a sine, and its derivatives by frequency and damping, as below; slower and faster than the
    sine and the steps."""
    t = np.array([0.0, 0.0237, 0.1, 0.5555, 1.0])

    @jax.jit
    def read(numbers):
        def readings(numbers):
            slow = SecondOrderLowPass(position, *numbers, settling=0.5)
            motion = swinging()
            return jax.vmap(lambda t: slow(motion.at(t))[0])(to_jax(t))

        return readings(numbers), jax.jacfwd(readings)(numbers), jax.jacrev(readings)(numbers)

    found, forward, reverse = read(to_jax(numbers))
    np.testing.assert_allclose(found, lag_of_second_order(t, *numbers), atol=1e-8)
    for k, e in enumerate(1e-5 * np.eye(2)):
        ends = lag_of_second_order(t, *numbers + e), lag_of_second_order(t, *numbers - e)
        np.testing.assert_allclose(forward[:, k], (ends[0] - ends[1]) / 2e-5, atol=1e-7)
    np.testing.assert_allclose(reverse, forward, atol=1e-12)


@pytest.mark.slow
def test_lags_and_their_derivatives():
    """Of a sine: what a delay and a low-pass filter make of it, alone and one in the other, between
    steps and at them; and its derivatives by both lags. To the error of interpolation of sixth
    order, (omega dt)^6 / 60 = 2e-9, and for derivatives omega / dt times as much."""
    delayed, filtered = Delayed(position, LAGS[0]), LowPass(position, LAGS[1])
    t = np.array([0.0, 0.0237, 0.1, 0.25, 0.5555, 1.0])

    @jax.jit
    def read(t, lags):
        motion = swinging()

        def readings(lags):
            late = Delayed(position, lags[0], longest=0.1)
            slow = LowPass(position, lags[1], settling=0.5)
            both = Delayed(slow, lags[0], longest=0.1)
            return jnp.concatenate([each(motion.at(t)) for each in (late, slow, both)])

        return readings(lags), jax.jacfwd(readings)(lags)

    found, slopes = jax.vmap(read, in_axes=(0, None))(to_jax(t), to_jax(LAGS))

    def expected(delay, tau):
        early = np.maximum(t - delay, 0)
        return np.stack([np.sin(OMEGA * early), lag(t, tau), lag(early, tau)], axis=1)

    np.testing.assert_allclose(found, expected(*LAGS), atol=1e-8)
    for k, e in enumerate(1e-5 * np.eye(2)):
        known = (expected(*LAGS + e) - expected(*LAGS - e)) / 2e-5
        inside = t > 0.03
        np.testing.assert_allclose(slopes[inside, :, k], known[inside], atol=2e-6)
    assert delayed.reach == pytest.approx(2 * LAGS[0]) and filtered.reach == 10 * LAGS[1]
    fast = SecondOrderLowPass(position, 10.0, 0.5)
    assert fast.reach == pytest.approx(1 / np.pi)


@pytest.mark.slow
def test_chain_of_numbers():
    """Gain, cross-axis gain, bias and rounding, by hand; and turns counted along the motion."""
    x, cross = np.array([1.26, -0.5]), np.array([[1.1, 0.02], [-0.03, 0.9]])
    read = lambda sample: jnp.asarray(x)  # noqa: E731
    exact, rounded = (swinging(r).moment(jnp.array(0.0), jnp.zeros(2)) for r in (False, True))
    turning = lambda sample: (5 * sample.t + np.pi) % (2 * np.pi) - np.pi  # noqa: E731

    @jax.jit
    def found():
        return (
            Calibrated(read, gain=[2.0, 3.0], bias=0.5)(exact),
            Calibrated(read, gain=cross, bias=[0.1, 0.2])(exact),
            Quantised(Calibrated(read), 0.25)(exact),
            Quantised(Calibrated(read), [0.25, 2.0])(rounded),
            Unwrapped(turning)(swinging().at(0.9037)),
        )

    for gain, bias in ((np.ones(3), 0.0), (np.ones((2, 3)), 0.0), (cross, np.ones(3))):
        with pytest.raises(ValueError, match="2 numbers does not fit a gain of shape"):
            Calibrated(read, gain=gain, bias=bias)(exact)
    expected = 2.0 * x + [0, x[1]] + 0.5, cross @ x + [0.1, 0.2], x, [1.25, 0.0], [5 * 0.9037]
    for one, known in zip(found(), expected, strict=True):
        np.testing.assert_allclose(one, known, atol=1e-14)


class Scaled(identify.AbstractInstrument):
    """A sensor of the user, around any other."""

    sensor: Callable
    scales: list[Array]

    def __call__(self, sample):
        return self.scales[1] * self.sensor(sample)


@pytest.mark.slow
def test_paths_of_sensors():
    """In the order of the choice, beside those of the system, into lists and sensors of the user;
    each with the transform that suits it, and changed alone."""
    scaled = Scaled(Delayed(position, 0.1), [to_jax(2.0), to_jax(3.0)])
    sensors = {"z": LowPass(scaled, 0.2), "a": IMU("bar")}
    clock = identify.Clock(0.4, offset=0.3)
    record = identify.Record([0.0, 1.0], [0.0, 0.0], state(), name="one", clock=clock)
    rig = Rig(oscillator(), sensors, [record])
    chosen = {
        "sensors[z].sensor.scales[1]": None,
        "stiffness": identify.Positive(),
        "records[one].clock.offset": 0.2,
        "sensors[z].sensor.sensor.delay": None,
        "sensors[z].time_constant": identify.Parameter(0.5),
        "sensors[a].orientation": None,
    }
    found = rig.parameters(chosen)
    assert list(found) == list(chosen)
    guesses = [float(x.guess) for x in list(found.values())[:-1]]
    np.testing.assert_allclose(guesses, [3.0, 9.0, 0.2, 0.1, 0.5])
    free, positive, unit = identify.Free, identify.Positive, identify.UnitVector
    kinds = [free, positive, identify.Bounded, identify.Bounded, free, unit]
    assert [type(x.transform) for x in found.values()] == kinds
    bounds = [(x.transform.lower, x.transform.upper) for x in list(found.values())[2:4]]
    assert bounds == [(-0.4, 0.4), (0.0, 0.2)]
    made = rig({"sensors[z].sensor.scales[1]": to_jax(7.0), "stiffness": to_jax(8.0)})
    assert list(made.named) == ["z", "a"] and float(made.system.stiffness) == 8.0
    changed = eqx.tree_at(lambda x: x.sensor.scales[1], sensors["z"], to_jax(7.0))
    assert eqx.tree_equal(made.named["z"], changed)
    assert reach_of(made.named["z"]) == (2.0 + 0.2, 0.0)


@pytest.mark.slow
def test_accelerations_with_contacts():
    """A ball that rests on the ground is held by it: an accelerometer reads minus gravity, and not
    0 as in free fall."""
    ball = mbd.Body("ball", mbd.Inertia.sphere(radius=0.1, mass=2.0), position=[0.0, 0.0, 0.1])
    floor = mbd.Contact("floor", "ground", ball, mbd.HalfSpace(), mbd.Sphere(0.1))
    mechanism = mbd.Mechanism([ball], contacts=[floor], gravity=[0.0, 0.0, -9.81])
    state = mechanism.state()
    record = identify.Record(np.linspace(0.0, 0.1, 6), np.zeros((6, 3)), state)
    options = dict(dt=1e-2, enforcement=mbd.ContactImpulse(), progress=False)
    read = identify.Accelerometer("ball")
    found = identify.predict(mechanism, record, {"force": read}, **options)
    np.testing.assert_allclose(found.readings[0], np.tile([0.0, 0.0, 9.81], (6, 1)), atol=1e-9)
    with pytest.raises(ValueError, match="`multipliers` of a motion with contacts"):
        identify.predict(mechanism, record, {"lam": lambda sample: sample.multipliers}, **options)
    with pytest.raises(ValueError, match="accelerations with contacts or dry friction, need other"):
        read(identify.Sample(mechanism, None, 0.0, state.q, state.v))

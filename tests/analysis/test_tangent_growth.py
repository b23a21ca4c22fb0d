"""Growth of changes of the start, beside closed forms and variational equations."""

import warnings

import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from analysis_systems import Unit, all_are
from scipy.integrate import solve_ivp
from scipy.linalg import expm

import jaxmbd as mbd
from jaxmbd._compiler import array_namespace

IMPULSE = mbd.VelocityImpulse()


def largest(matrix):
    return np.linalg.norm(np.asarray(matrix), 2)


OSCILLATING = mbd.State(0.0, [0.7], [-0.4])


def oscillation(system):
    """A of y' = A y, and half a period, after which D is a multiple of 1."""
    m, k, c = (float(x) for x in (system.mass, system.stiffness, system.damping))
    return np.array([[0, 1], [-k / m, -c / m]]), np.pi / np.sqrt(k / m - (c / (2 * m)) ** 2)


class Pushed(h.Oscillator):
    """The same, pushed by u."""

    def force(self, t, q, v, u):
        return super().force(t, q, v, None) + (0.0 if u is None else u)


growth_of = mbd.analysis.tangent_growth


@pytest.mark.parametrize("by_control", [False, True])
def test_a_damped_oscillator(by_control):
    """D(t) = exp(A t) at the end of each piece; the last step is shorter, and the last piece. A
    feedback is a spring and a damper, too."""
    system, control = Pushed(), None
    A, half_period = oscillation(system)
    if by_control:
        k, c = system.stiffness, system.damping
        system = Pushed(stiffness=0.0, damping=0.0)
        control = lambda t, q, v: -k * q - c * v  # noqa: E731
    growth = growth_of(
        system, mbd.UdwadiaKalaba(), OSCILLATING, t1=half_period, dt=half_period / 49.5,
        every=7, control=control,
    )  # fmt: skip
    times = np.asarray(growth.t)
    assert times[-1] == pytest.approx(half_period, abs=1e-12)
    assert len(times) == np.ceil(50 / 7) + 1
    exact = [np.log(largest(expm(A * t))) for t in times]
    np.testing.assert_allclose(growth.log_growth, exact, atol=1e-6)
    assert not growth.exceeded and float(growth.reach) == np.inf


def test_rates_of_an_oscillator():
    """Without damping nothing grows for ever."""
    system = h.Oscillator(damping=0.0)
    _, half_period = oscillation(system)
    options = dict(t1=100 * half_period, dt=half_period / 40)
    growth = growth_of(system, mbd.UdwadiaKalaba(), OSCILLATING, **options)
    np.testing.assert_allclose(growth.rates, 0.0, atol=1e-5)
    assert np.asarray(growth.log_growth).max() < np.log(np.sqrt(5.0 / 1.3)) + 1e-3


def upright(length=0.9):
    system, xp = h.Pendulum(length=length), array_namespace(length)
    return system, mbd.State(0.0, xp.stack([0.0 * length, 1.0 * length]), np.zeros(2))


def test_constrained_coordinates_grow_as_minimal_ones():
    """A swinging pendulum, beside the variational equations of its angle by SciPy."""
    case = h.CASES["pendulum"]
    growth = growth_of(case.system, mbd.UdwadiaKalaba(), case.state, t1=3.0, dt=5e-3, every=60)
    k = 9.81 / 0.9

    def both(t, z):
        D = z[2:].reshape(2, 2)
        slope = np.array([[0.0, 1.0], [-k * np.cos(z[0]), 0.0]])
        return np.concatenate([[z[1], -k * np.sin(z[0])], (slope @ D).ravel()])

    def embedded(angle, rate):
        """The change of (q, v) by one of (angle, rate)."""
        c, s = np.cos(angle), np.sin(angle)
        return 0.9 * np.array([[c, 0], [s, 0], [-s * rate, c], [c * rate, s]])

    times = np.asarray(growth.t)
    z = solve_ivp(both, (0, 3), [2, 0, 1, 0, 0, 1], "DOP853", times, rtol=1e-11, atol=1e-11).y.T
    start = np.linalg.pinv(embedded(2.0, 0.0))
    expected = [np.log(largest(embedded(*x[:2]) @ x[2:].reshape(2, 2) @ start)) for x in z]
    assert growth.rates.shape == (2,)
    np.testing.assert_allclose(growth.log_growth, expected, atol=1e-6)


class Spinning(mbd.AbstractSystem):
    """A free rigid body, in body axes."""

    inertia: jax.Array = h.parameter((1.0, 2.0, 4.0))
    coordinates = mbd.QuaternionBody()

    def mass_matrix(self, q):
        return jnp.diag(self.inertia)

    def force(self, t, q, v, u):
        return -jnp.cross(v, self.inertia * v)


def test_quaternions_count_once():
    """About the middle axis, turning is unstable (Euler's equations): of six directions, not seven,
    one grows, one decays, the others neither."""
    omega, (a, b, c) = 3.0, (1.0, 2.0, 4.0)
    state = mbd.State(0.0, [1.0, 0.0, 0.0, 0.0], [0.0, omega, 0.0])
    growth = growth_of(Spinning(), mbd.UdwadiaKalaba(), state, t1=12.0, dt=1e-2)
    rate = omega * np.sqrt((b - a) * (c - b) / (a * c))
    assert growth.rates.shape == (6,)
    np.testing.assert_allclose(np.asarray(growth.rates)[[0, 5]], [rate, -rate], rtol=1e-3)
    assert np.max(np.abs(np.asarray(growth.rates)[1:5])) < 0.2


@pytest.mark.slow
def test_float32():
    system, state = h.cast(upright(), jnp.float32)
    with pytest.warns(UserWarning, match="growth exceeds 8.4e"):
        growth = growth_of(system, IMPULSE, state, t1=6.0, dt=1e-2)
    assert growth.log_growth.dtype == growth.rates.dtype == jnp.float32
    np.testing.assert_allclose(growth.rate, np.sqrt(9.81 / 0.9), rtol=2e-2)


def test_vmap():
    """Over lengths, with rates that do not exist at the end."""

    def of(length):
        system, state = upright(length)
        return growth_of(system, IMPULSE, state, t1=6.0, dt=5e-3)

    lengths = np.array([0.5, 0.9, 2.0])
    batch = jax.jit(jax.vmap(of))(lengths)
    assert batch.rates.shape == (3, 4)
    np.testing.assert_allclose(batch.rate, np.sqrt(9.81 / lengths), rtol=2e-2)
    assert np.all(np.isneginf(np.asarray(batch.rates)[:, 2:]))
    assert str(batch).startswith("motion 0 of 3")


def test_warns_where_growth_exceeds_the_bound():
    system, state = upright(0.5)
    rate = np.sqrt(9.81 / 0.5)
    options = dict(t1=10.0, dt=1e-2)
    with pytest.warns(UserWarning, match="Derivatives mean something up to"):
        growth = growth_of(system, IMPULSE, state, tolerance=1e-6, **options)
    assert growth.exceeded
    assert growth.bound == pytest.approx(1e-6 / np.finfo(float).eps)
    # Growth is exp(rate t) (rate + 1 / rate) / 2, but for what decays.
    crossing = np.log(2 * growth.bound / (rate + 1 / rate)) / rate
    assert growth.reach == pytest.approx(crossing, abs=0.06)
    assert float(growth.until(1e300)) == np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        growth = eqx.filter_jit(growth_of)(system, IMPULSE, state, t0=0.0, **options)
    assert growth.exceeded


class Rough(Unit):
    """Friction whose derivative does not exist at rest."""

    def force(self, t, q, v, u):
        return -jnp.sqrt(v @ v) * v - q


def test_derivatives_that_are_not_finite():
    state = mbd.State(0.0, [1.0, 0.0], [0.0, 0.0])
    with pytest.warns(UserWarning, match="not finite after 0 s"):
        growth = growth_of(Rough(), IMPULSE, state, t1=1.0, dt=1e-1)
    assert growth.exceeded and float(growth.reach) == 0
    assert all_are(growth.result, mbd.RESULTS.successful)


class Held(Unit):
    def constraint(self, q, t):
        return q


def test_bad_input():
    system, state = upright()
    for options, message in (
        (dict(every=0), "`every`.* must be .*at least 1"),
        (dict(tolerance=0.0), "`tolerance`.* must be positive"),
        (dict(num_steps=3), "either `t1` or `num_steps`"),
    ):
        with pytest.raises(ValueError, match=message):
            growth_of(system, IMPULSE, state, t1=1.0, dt=1e-2, **options)
    rest = mbd.State(0.0, np.zeros(1), np.zeros(1))
    with pytest.raises(ValueError, match="nothing that can grow"):
        growth_of(Held(), IMPULSE, rest, t1=1.0, dt=1e-2)
    away = mbd.State(0.0, np.asarray(state.q) + 1, state.v)
    found = growth_of(system, IMPULSE, away, t1=0.1, dt=1e-2, throw=False)
    assert all_are(found.result, mbd.RESULTS.inconsistent_start)

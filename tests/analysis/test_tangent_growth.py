"""Growth of changes of the start, beside closed forms and variational equations."""

import warnings

import equinox as eqx
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm

import jaxmbd as mbd

IMPULSE = mbd.VelocityImpulse()


def largest(matrix):
    return np.linalg.norm(np.asarray(matrix), 2)


OSCILLATING = mbd.State(0.0, jnp.array([0.7]), jnp.array([-0.4]))


def oscillation(system):
    """A of y' = A y, and half a period, after which D is a multiple of 1."""
    m, k, c = (float(x) for x in (system.mass, system.stiffness, system.damping))
    return np.array([[0, 1], [-k / m, -c / m]]), np.pi / np.sqrt(k / m - (c / (2 * m)) ** 2)


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.slow), 7])
def test_a_damped_oscillator(every):
    """D(t) = exp(A t) at the end of each piece; the last step is shorter, and the last piece."""
    system = h.Oscillator()
    _, half_period = oscillation(system)
    growth = mbd.analysis.tangent_growth(
        system, mbd.UdwadiaKalaba(), OSCILLATING, t1=half_period, dt=half_period / 49.5, every=every
    )
    exact = [np.log(largest(expm(A * t))) for t in growth.t]
    assert growth.t[-1] == pytest.approx(half_period, abs=1e-12)
    assert len(growth.t) == np.ceil(50 / every) + 1
    np.testing.assert_allclose(growth.log_growth, exact, atol=1e-6)
    assert not growth.exceeded and growth.reach == jnp.inf


@pytest.mark.parametrize("damping", [0.0, 0.4])
def test_rates_of_an_oscillator(damping):
    """Over half periods both are -c / 2m; without damping nothing grows for ever."""
    system = h.Oscillator(damping=damping)
    _, half_period = oscillation(system)
    growth = mbd.analysis.tangent_growth(
        system, mbd.UdwadiaKalaba(), OSCILLATING, t1=100 * half_period, dt=half_period / 40
    )
    np.testing.assert_allclose(growth.rates, -damping / (2 * 1.3), atol=1e-5)
    assert np.max(growth.log_growth) < np.log(np.sqrt(5.0 / 1.3)) + 1e-3


def test_feedback_counts():
    """A control is the spring and the damper."""
    controlled, guided = h.CASES["controlled_mass"], h.CASES["guided_mass"]
    options = dict(t1=2.0, dt=0.02)
    by_control = mbd.analysis.tangent_growth(
        controlled.system, IMPULSE, controlled.state, control=controlled.control, **options
    )
    by_force = mbd.analysis.tangent_growth(guided.system, IMPULSE, guided.state, **options)
    without = mbd.analysis.tangent_growth(controlled.system, IMPULSE, controlled.state, **options)
    np.testing.assert_allclose(by_control.log_growth, by_force.log_growth, atol=1e-10)
    assert np.max(np.abs(by_control.log_growth - without.log_growth)) > 0.1


def upright(length=0.9, damping=0.0):
    system = h.Pendulum(length=length, damping=damping)
    return system, mbd.State(0.0, jnp.array([0.0, 1.0]) * length, jnp.zeros(2))


METHODS = {
    "udwadia_kalaba": (lambda: h.Method(mbd.UdwadiaKalaba()), 1e-6),
    "impulse": (lambda: h.Method(IMPULSE), 2e-2),
    "multipliers": (lambda: h.Method(mbd.LagrangeMultipliers(alpha=8.0, beta=9.0)), 1e-6),
    "projected": (
        lambda: h.Method(mbd.LagrangeMultipliers(), mbd.Projection()),
        1e-6,
    ),
    "penalty": (lambda: h.Method(mbd.ImplicitPenalty(1e7, 1e4)), 2e-2),
    "contact": (lambda: h.Method(mbd.ContactImpulse()), 2e-2),
}


@pytest.mark.parametrize(
    "method", h.slow_unless(lambda m: m in ("udwadia_kalaba", "impulse"), METHODS)
)
def test_an_inverted_pendulum(method):
    """x'' = (g / l) x - (c / m) x'."""
    method, tolerance = METHODS[method]
    method = method()
    system, state = upright(damping=0.6)
    decay = float(system.damping / system.mass) / 2
    root = np.sqrt(float(system.gravity / system.length) + decay**2)
    growth = mbd.analysis.tangent_growth(
        system, method.enforcement, state, t1=8.0, dt=1e-2, projection=method.projection
    )
    # On both sides of the constraint one direction each.
    np.testing.assert_allclose(growth.rates, [root - decay, -root - decay], rtol=tolerance)
    assert growth.rate == growth.rates[0]


def variational(rates, jacobian, start, ts):
    """The solution of y' = rates(y), D' = jacobian(y) D from D = 1 at the times, by SciPy."""
    n = len(start)

    def both(t, z):
        D = z[n:].reshape(n, n)
        return np.concatenate([rates(z[:n]), (jacobian(z[:n]) @ D).ravel()])

    z0 = np.concatenate([start, np.eye(n).ravel()])
    solution = solve_ivp(both, (ts[0], ts[-1]), z0, "DOP853", t_eval=ts, rtol=1e-11, atol=1e-11)
    return solution.y[:n].T, solution.y[n:].T.reshape(-1, n, n)


def embedded(positions, y):
    """The change of (q, v) by one of y = (angles, rates), for q = positions(angles)."""

    def state(y):
        angles, rates = jnp.split(y, 2)
        return jnp.concatenate(jax.jvp(positions, (angles,), (rates,)))

    return np.asarray(jax.jit(jax.jacfwd(state))(jnp.asarray(y)))


def expected(positions, motion, D):
    start = np.linalg.pinv(embedded(positions, motion[0]))
    return [
        np.log(largest(embedded(positions, y) @ d @ start)) for y, d in zip(motion, D, strict=True)
    ]


class DoublePendulum(mbd.AbstractSystem):
    """Two equal point masses on two rods of length 1, in Cartesian coordinates."""

    gravity: jax.Array = h.parameter(9.81)

    def mass_matrix(self, q):
        return jnp.eye(4, dtype=q.dtype)

    def force(self, t, q, v, u):
        return -self.gravity * jnp.array([0.0, 1.0, 0.0, 1.0])

    def constraint(self, q, t):
        d = q[2:] - q[:2]
        return jnp.stack([q[:2] @ q[:2] - 1, d @ d - 1])


def double_pendulum_rates(y):
    """2 a'' + cos(a - b) b'' = -sin(a - b) b'^2 - 2 g sin a, and likewise for b."""
    a, b, da, db = y
    c, s, g = jnp.cos(a - b), jnp.sin(a - b), 9.81
    f = -s * db**2 - 2 * g * jnp.sin(a)
    k = s * da**2 - g * jnp.sin(b)
    det = 2 - c * c
    return jnp.stack([da, db, (f - c * k) / det, (2 * k - c * f) / det])


def two_rods(angles):
    ends = jnp.stack([jnp.sin(angles), -jnp.cos(angles)], axis=1)
    return jnp.cumsum(ends, axis=0).ravel()


def one_rod(angles):
    return 0.9 * jnp.stack([jnp.sin(angles[0]), -jnp.cos(angles[0])])


def test_constrained_coordinates_grow_as_minimal_ones():
    """A swinging pendulum; also beside SciPy."""
    case = h.CASES["pendulum"]
    growth = mbd.analysis.tangent_growth(
        case.system, mbd.UdwadiaKalaba(), case.state, t1=3.0, dt=5e-3, every=60
    )
    k = 9.81 / 0.9
    motion, D = variational(
        lambda y: np.array([y[1], -k * np.sin(y[0])]),
        lambda y: np.array([[0.0, 1.0], [-k * np.cos(y[0]), 0.0]]),
        np.array([2.0, 0.0]),
        np.asarray(growth.t),
    )
    assert growth.rates.shape == (2,)
    np.testing.assert_allclose(growth.log_growth, expected(one_rod, motion, D), atol=1e-6)


@pytest.mark.slow
def test_a_chaotic_motion():
    """The double pendulum beside SciPy, in angles; derivatives reach a few seconds."""
    angles = jnp.array([2.0, 2.6])
    state = mbd.State(0.0, two_rods(angles), jnp.zeros(4))
    growth = mbd.analysis.tangent_growth(
        DoublePendulum(), mbd.UdwadiaKalaba(), state, t1=6.0, dt=2e-3, every=100
    )
    rates = jax.jit(double_pendulum_rates)
    jacobian = jax.jit(jax.jacfwd(double_pendulum_rates))
    start = np.concatenate([angles, np.zeros(2)])
    motion, D = variational(rates, jacobian, start, np.asarray(growth.t))
    found = expected(two_rods, motion, D)
    assert found[-1] > 5
    np.testing.assert_allclose(growth.log_growth, found, atol=1e-4)
    # Both of the rest come from the energy: volume is conserved.
    assert growth.rate > 0.5 and abs(np.sum(growth.rates)) < 0.5
    crossing = np.interp(5.0, found, np.asarray(growth.t))
    assert growth.until(np.exp(5.0)) == pytest.approx(crossing, abs=0.2)


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
    state = mbd.State(0.0, jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([0.0, omega, 0.0]))
    growth = mbd.analysis.tangent_growth(Spinning(), mbd.UdwadiaKalaba(), state, t1=12.0, dt=1e-2)
    rate = omega * np.sqrt((b - a) * (c - b) / (a * c))
    assert growth.rates.shape == (6,)
    np.testing.assert_allclose(growth.rates[jnp.array([0, 5])], [rate, -rate], rtol=1e-3)
    assert np.max(np.abs(growth.rates[1:5])) < 0.2


@pytest.mark.slow
def test_float32():
    system, state = h.cast(upright(), jnp.float32)
    with pytest.warns(UserWarning, match="growth exceeds 8.4e"):
        growth = mbd.analysis.tangent_growth(system, IMPULSE, state, t1=6.0, dt=1e-2)
    assert growth.log_growth.dtype == growth.rates.dtype == jnp.float32
    np.testing.assert_allclose(growth.rate, np.sqrt(9.81 / 0.9), rtol=2e-2)


@pytest.mark.slow
def test_a_mechanism():
    """A bar that stands on its hinge, in maximal coordinates: one freedom, two directions."""
    inertia = mbd.Inertia.box(size=[0.1, 0.1, 1.0], mass=1.3)
    bar = mbd.Body("bar", inertia, position=[0.0, 0.0, 0.5])
    hinge = mbd.Revolute("hinge", "ground", bar, point=[0.0, 0.0, 0.0], axis=[0.0, 1.0, 0.0])
    mechanism = mbd.Mechanism([bar], [hinge])
    growth = mbd.analysis.tangent_growth(mechanism, IMPULSE, mechanism.state(), t1=4.0, dt=5e-3)
    rate = np.sqrt(9.81 * 0.5 / ((0.1**2 + 1.0**2) / 12 + 0.5**2))
    np.testing.assert_allclose(growth.rates, [rate, -rate], rtol=2e-2)


def test_vmap():
    """Over lengths, with rates that do not exist at the end."""

    def of(length):
        system, state = upright(length)
        return mbd.analysis.tangent_growth(system, IMPULSE, state, t1=6.0, dt=5e-3)

    lengths = jnp.array([0.5, 0.9, 2.0])
    batch = jax.jit(jax.vmap(of))(lengths)
    assert batch.rates.shape == (3, 4)
    np.testing.assert_allclose(batch.rate, np.sqrt(9.81 / lengths), rtol=2e-2)
    assert np.all(np.isneginf(batch.rates[:, 2:]))
    alone = of(lengths[1])
    np.testing.assert_allclose(batch.log_growth[1], alone.log_growth, atol=1e-9)
    assert str(batch).startswith("motion 0 of 3")


def test_warns_where_growth_exceeds_the_bound():
    system, state = upright(0.5)
    rate = np.sqrt(9.81 / 0.5)
    options = dict(t1=10.0, dt=1e-2)
    with pytest.warns(UserWarning, match="Derivatives mean something up to"):
        growth = mbd.analysis.tangent_growth(system, IMPULSE, state, tolerance=1e-6, **options)
    assert growth.exceeded
    assert growth.bound == pytest.approx(1e-6 / np.finfo(float).eps)
    # Growth is exp(rate t) (rate + 1 / rate) / 2, but for what decays.
    crossing = np.log(2 * growth.bound / (rate + 1 / rate)) / rate
    assert growth.reach == pytest.approx(crossing, abs=0.06)
    assert growth.until(1e300) == jnp.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        growth = eqx.filter_jit(mbd.analysis.tangent_growth)(
            system, IMPULSE, state, t0=0.0, **options
        )
    assert growth.exceeded


class Rough(mbd.AbstractSystem):
    """Friction whose derivative does not exist at rest."""

    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        return -jnp.sqrt(v @ v) * v - q


def test_derivatives_that_are_not_finite():
    state = mbd.State(0.0, jnp.array([1.0, 0.0]), jnp.zeros(2))
    with pytest.warns(UserWarning, match="not finite after 0 s"):
        growth = mbd.analysis.tangent_growth(Rough(), IMPULSE, state, t1=1.0, dt=1e-1)
    assert growth.exceeded and growth.reach == 0
    assert growth.result == mbd.RESULTS.successful


class Held(mbd.AbstractSystem):
    def mass_matrix(self, q):
        return jnp.eye(1)

    def force(self, t, q, v, u):
        return -q

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
            mbd.analysis.tangent_growth(system, IMPULSE, state, t1=1.0, dt=1e-2, **options)
    rest = mbd.State(0.0, jnp.zeros(1), jnp.zeros(1))
    with pytest.raises(ValueError, match="nothing that can grow"):
        mbd.analysis.tangent_growth(Held(), IMPULSE, rest, t1=1.0, dt=1e-2)
    away = mbd.State(0.0, state.q + 1, state.v)
    found = mbd.analysis.tangent_growth(system, IMPULSE, away, t1=0.1, dt=1e-2, throw=False)
    assert found.result == mbd.RESULTS.inconsistent_start

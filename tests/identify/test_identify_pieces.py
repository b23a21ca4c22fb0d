"""Transforms, records, inputs and tests of residuals, one by one."""

import math

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import Pendulum
from known_motions import BOTH, QUIET, TIMES, decay, oscillator, position, state

import jaxmbd as mbd
from jaxmbd import identify
from jaxmbd.identify import Bounded, Free, Parameter, Positive, Record
from jaxmbd.identify.identifiability import column_test
from jaxmbd.identify.problem import _consistent
from jaxmbd.identify.residuals import interpolated


def flat(tree):
    return jnp.concatenate([jnp.ravel(x) for x in jax.tree.leaves(tree)])


@eqx.filter_jit
def both(transform, guess, zs):
    value = lambda z: flat(transform.value(guess, z))  # noqa: E731
    return jax.vmap(lambda z: (value(z), jax.jacfwd(value)(z)))(zs)


def values(transform, guess, zs):
    """The values at several z, and their slopes."""
    return map(np.asarray, both(transform, guess, np.array(zs)))


TURN = np.array([0.5, -0.5, 0.5, 0.5])
TRANSFORMS = [
    (Free(), np.array([2.0, 0.0, -3.0]), lambda x: True),
    (Positive(), np.array([2.0, 1e-3]), lambda x: np.all(x > 0)),
    (identify.NotNegative(), np.array([2.0, 1e-3]), lambda x: np.all(x >= 0)),
    (Bounded(-1.0, 3.0), np.array([0.5, 2.9]), lambda x: np.all((x >= -1) & (x <= 3))),
    (identify.UnitVector(), np.array([0.6, 0.0, 0.8]), lambda x: abs(x @ x - 1) < 1e-12),
    (identify.UnitVector(), TURN, lambda x: abs(x @ x - 1) < 1e-12),
    (identify.LogCholesky(), mbd.Inertia.box(size=[0.1, 0.2, 0.4], mass=2.0), None),
    (identify.LogCholesky(), np.diag([3.0, 2.5, 2.0]), None),
]


@pytest.mark.parametrize("transform, guess, allowed", TRANSFORMS)
def test_transforms(transform, guess, allowed):
    """The guess at zero, only allowed values elsewhere, and as many directions as free numbers."""
    size = transform.size(guess)
    zs = np.stack([np.zeros(size), 0.7 * np.arange(1.0, size + 1) / size, np.full(size, -1.5)])
    x, slopes = values(transform, guess, np.clip(zs, *transform.bounds(guess)))
    at_guess = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(guess)])
    np.testing.assert_allclose(x[0], at_guess, rtol=1e-12, atol=1e-14)
    for value, slope in zip(x, slopes):
        assert np.linalg.matrix_rank(slope) == size
        if allowed is not None:
            assert allowed(value)
        else:
            mass, tensor = (1.0, value) if size == 6 else (value[0], value[1:10])
            a, b, c = np.linalg.eigvalsh(tensor.reshape(3, 3))
            assert mass > 0 and a > 0 and a + b > c


def test_units_of_transforms():
    """A unit change is a factor e, the size of the guess, and at the middle the whole range; at the
    bound the slope is whole too. Directions and quaternions turn by |z| and by 2 |z|."""
    zs = [[1.0], [0.0], [-1.0]]
    for transform, guess, value, slope in (
        (Positive(), 2.0, [2 * math.e, 2, 2 / math.e], [2 * math.e, 2, 2 / math.e]),
        (identify.NotNegative(), 3.0, [6, 3, 0], [3, 3, 3]),
        (Free(), -4.0, [0, -4, -8], [4, 4, 4]),
        (Bounded(1.0, 5.0), 3.0, None, [None, 4, None]),
    ):
        x, slopes = values(transform, np.array(guess), zs)
        if value is not None:
            np.testing.assert_allclose(np.hstack([x, slopes[:, 0]]).T, [value, slope])
        assert slopes[1, 0, 0] == pytest.approx(slope[1])
    turned, _ = values(identify.UnitVector(), np.array([0.0, 0, 1]), [[math.pi / 2, 0.0]])
    assert abs(turned[0, 2]) < 1e-12
    p, slopes = values(identify.UnitVector(), TURN, [[0.3, 0.0, 0.4], [0.0, 0, 0]])
    w, i, j, k = TURN * [1, -1, -1, -1]
    back = np.array([[w, -i, -j, -k], [i, w, -k, j], [j, k, w, -i], [k, -j, i, w]])  # conj(TURN) p
    expected = [math.cos(0.5), 0.6 * math.sin(0.5), 0.0, 0.8 * math.sin(0.5)]
    np.testing.assert_allclose(back @ p[0], expected, atol=1e-15)
    np.testing.assert_allclose(slopes[1].T @ slopes[1], np.eye(3), atol=1e-15)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_values_at_bounds_have_derivatives(dtype):
    """Whatever the rounding: whole ones, and the values are the bounds."""
    rng = np.random.default_rng(0)
    lower, width, share = rng.normal(size=200), rng.uniform(0.01, 3.0, 200), rng.uniform(size=200)
    lower[:20], share[20:30], share[30:40] = 0.0, 0.0, 1.0
    upper = lower + width
    transform, guess = Bounded(lower, upper), np.clip(lower + share * width, lower, upper)
    with jax.enable_x64(dtype == np.float64):
        bounds = transform.bounds(guess)

        @jax.jit
        def read(guess, z):
            return jax.jvp(lambda z: transform.value(guess, z), (z,), (jnp.ones_like(z),))

        for z, bound in zip(bounds, (lower, upper)):
            x, slope = read(dtype(guess), dtype(z))
            np.testing.assert_allclose(slope, width, rtol=1e-5)
            size = np.finfo(dtype).eps * (np.abs(guess) + np.abs(bound))
            assert np.all(np.abs(np.asarray(x) - bound) <= 10 * size)


def test_intervals_stay_where_values_may_be():
    """Those of the free numbers, mapped: factors for `Positive`, and ends at bounds. Entries that
    do not vary alone keep value -+ half."""
    parameters = identify.parameters.Parameters(
        {
            "share": Parameter(0.3, Bounded(0.0, 1.0)),
            "mass": Parameter(np.array([2.0, 5.0]), Positive()),
            "friction": Parameter(0.5, identify.NotNegative()),
            "lost": Parameter(0.5, Bounded(0.0, 1.0)),
            "free": Parameter(4.0, Free()),
            "axis": Parameter(np.array([0.0, 0.0, 1.0]), identify.UnitVector()),
        }
    )
    half = np.array([0.4, 1.0, 10.0, 0.7, np.inf, 6.0, 0.1, 0.1, 0.1])
    low, high = eqx.filter_jit(parameters.interval)(np.zeros(parameters.size), half)
    grown = np.exp([0.5, 2.0])
    expected = [0.0, *np.array([2.0, 5.0]) / grown, 0.0, 0.0, -2.0, -0.1, -0.1, 0.9]
    np.testing.assert_allclose(low, expected, rtol=1e-12, atol=1e-15)
    expected = [0.7, *np.array([2.0, 5.0]) * grown, 1.2, 1.0, 10.0, 0.1, 0.1, 1.1]
    np.testing.assert_allclose(high, expected, rtol=1e-12)


def test_starts_become_consistent():
    """A start on the circle of a pendulum stays as it is, and another one goes to the nearest point
    and its tangent."""
    system = Pendulum()
    q, v = float(system.length) * np.array([0.6, -0.8]), np.array([0.8, 0.6])
    for far, tolerance in ((1.0, 0.0), (1.01, 1e-9)):
        given = mbd.State(0.0, far * q, v + (far - 1.0) * q)
        found = _consistent(system, given, Record(TIMES, decay(TIMES), given))
        np.testing.assert_allclose(found.q, q, rtol=0, atol=tolerance)
        np.testing.assert_allclose(found.v, v, rtol=0, atol=tolerance)


def test_split_records():
    """The rest begins where the record does, and only its own samples count."""
    t = np.linspace(0.0, 1.0, 11)
    off = 0.01 * np.random.default_rng(0).normal(size=11)
    record = Record(t, -4.0 * t**2 + off, state(0.0), weights=[3.0])
    seen, unseen = record.split(0.35)
    assert seen.count == 4 and seen.time[-1] < 0.35 and unseen.count == 7
    np.testing.assert_array_equal(unseen.time, t)
    assert np.all(unseen.weights[:4] == 0) and np.all(unseen.weights[4:] == 3.0)
    found = identify.Prediction((unseen,), (-4.0 * t[:, None] ** 2,), (), ("reading",))
    assert found.rms["reading"] == pytest.approx(np.sqrt(np.mean(off[4:] ** 2)), rel=1e-9)
    for at in (0.05, 0.95):
        with pytest.raises(ValueError, match="split it where"):
            record.split(at)


def test_interpolation_is_of_sixth_order():
    """Exact for polynomials of degree 5 everywhere, at the ends too, and at steps for anything."""
    s = np.array([0.0, 0.3, 1.0, 4.5, 7.99, 9.0])
    fifth = lambda s: np.polynomial.polynomial.polyval(s, [1.0, -2.0, 0.5, 0.1, -0.3, 0.02])  # noqa: E731
    rough = np.random.default_rng(0).normal(size=10)
    of = jax.jit(interpolated, static_argnums=2)
    found = np.asarray(of(np.stack([fifth(np.arange(10.0)), rough], axis=1), s, 6)).T
    np.testing.assert_allclose(found[0], fifth(s), rtol=1e-9)
    np.testing.assert_array_equal(found[1, [0, 2, 5]], rough[[0, 1, 9]])
    between = np.asarray(of(rough[:, None], np.array([2.25]), 2))[0, 0]
    np.testing.assert_allclose(between, 0.75 * rough[2] + 0.25 * rough[3])


def test_measured_input():
    """Straight between samples, constant beyond."""
    control = identify.MeasuredInput([0.0, 1.0, 3.0], [0.0, 2.0, -2.0])
    times, q = np.array([-1.0, 0.5, 1.0, 2.0, 3.0, 9.0]), np.zeros(1)
    found = jax.jit(jax.vmap(lambda t: control(t, q, q)[0]))(times)
    np.testing.assert_allclose(found, [0.0, 1.0, 2.0, 0.0, -2.0, -2.0])


@pytest.mark.slow
def test_fit_with_an_input():
    control, saved = identify.MeasuredInput(TIMES, np.sin(3 * TIMES)), diffrax.SaveAt(ts=TIMES)
    options = dict(t1=4.0, dt=0.01, control=control, saveat=saved)
    sol = mbd.simulate(oscillator(), mbd.UdwadiaKalaba(), state(0.0), **options)
    record = Record(TIMES, np.asarray(sol.q), state(0.0), control=control)
    guess = oscillator(damping=0.5, stiffness=8.0)
    found = identify.fit(guess, BOTH, record, position, dt=0.01, **QUIET)
    np.testing.assert_allclose(found.entries, [0.4, 9.0], rtol=1e-6)


def test_residual_tests_tell_noise_from_structure():
    rng = np.random.default_rng(3)
    noise = column_test([rng.normal(size=500), rng.normal(size=300)])
    assert "like noise" in str(noise) and 0.7 < noise.correlation < 1.5
    # An AR(1) process with rho = 0.8: 1 + 2 sum rho^k = (1 + rho) / (1 - rho) = 9.
    process = np.zeros(6000)
    for i, kick in enumerate(rng.normal(size=5999)):
        process[i + 1] = 0.8 * process[i] + kick
    found = column_test([process])
    assert found.white < 1e-6 and found.correlation == pytest.approx(9.0, rel=0.3)
    skewed = column_test([rng.exponential(size=500)])
    assert skewed.mean < 1e-6 and skewed.normal < 1e-6 and skewed.outliers > 0


def test_columns_of_rounding_errors():
    """What nothing depends on may have derivatives of rounding errors that resemble another column.
    It takes no other number with it, however different their sizes."""
    J = np.random.default_rng(0).normal(size=(20, 3)) * [1.0, 1e-6, 0.0]
    r = np.ones(20)
    known = np.linalg.inv(J[:, :2].T @ J[:, :2]) * 20 / 17
    J[:, 2] = 1e-17 * J[:, 0]
    found = identify.covariance(J, r, 20)
    np.testing.assert_allclose(found[:2, :2], known, rtol=1e-9)
    assert np.isinf(found[2, 2])

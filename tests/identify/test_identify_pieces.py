"""Transforms, bounds, records, inputs and tests of residuals, one by one. Bad input is refused."""

import math
import warnings

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import Pendulum
from known_motions import QUIET, TIMES, decay, oscillator, position, state

import jaxmbd as mbd
from jaxmbd import identify
from jaxmbd.identify import Bounded, Free, Parameter, Positive, Record
from jaxmbd.identify.interpolation import interpolated
from jaxmbd.identify.problem import _consistent

# --- pieces ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "transform, guess",
    [
        (Free(), np.array([2.0, 0.0, -3.0])),
        (Positive(), np.array([2.0, 1e-3])),
        (identify.NotNegative(), np.array([2.0, 1e-3])),
        (Bounded(-1.0, 3.0), np.array([0.5, 2.9])),
        (identify.UnitVector(), np.array([0.6, 0.0, 0.8])),
        (identify.LogCholesky(), mbd.Inertia.box(size=[0.1, 0.2, 0.4], mass=2.0)),
    ],
    ids=lambda x: type(x).__name__,
)
def test_transforms(transform, guess):
    """The guess at zero, only allowed values elsewhere, and as many directions as free numbers."""
    size = transform.size(guess)
    flat = lambda tree: np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)])  # noqa: E731
    np.testing.assert_allclose(
        flat(transform.value(guess, jnp.zeros(size))), flat(guess), rtol=1e-12, atol=1e-14
    )
    value = lambda z: jnp.concatenate(  # noqa: E731
        [jnp.ravel(x) for x in jax.tree.leaves(transform.value(guess, z))]
    )
    lower, upper = transform.bounds(guess)
    for z in (jnp.zeros(size), 0.7 * jnp.arange(1.0, size + 1) / size, jnp.full(size, -1.5)):
        z = jnp.clip(z, lower, upper)
        D = jax.jacfwd(value)(z)
        assert np.linalg.matrix_rank(D) == size
        x = transform.value(guess, z)
        if isinstance(transform, Positive):
            assert np.all(x > 0)
        elif isinstance(transform, identify.NotNegative):
            assert np.all(x >= 0)
        elif isinstance(transform, Bounded):
            assert np.all((x >= -1) & (x <= 3))
        elif isinstance(transform, identify.UnitVector):
            assert np.linalg.norm(x) == pytest.approx(1.0, abs=1e-12)
        elif isinstance(transform, identify.LogCholesky):
            a, b, c = np.linalg.eigvalsh(x.tensor)
            assert x.mass > 0 and a > 0 and a + b > c


def test_transform_units():
    """A unit change is a factor e, the size of the guess, and at the middle the whole range."""
    one = jnp.ones(1)
    assert Positive().value(jnp.array(2.0), one) == pytest.approx(2 * math.e)
    for at in (0.0, -1.0):  # at the bound too, where half a derivative would be wrong
        slope = jax.jacfwd(lambda z: identify.NotNegative().value(jnp.array(3.0), z))(at * one)
        assert slope[0] == pytest.approx(3.0)
    assert identify.NotNegative().value(jnp.array(3.0), -2 * one) == 0.0
    assert Free().value(jnp.array(-4.0), one) == pytest.approx(0.0)
    slope = jax.jacfwd(lambda z: Bounded(1.0, 5.0).value(jnp.array(3.0), z))(jnp.zeros(1))
    assert slope[0] == pytest.approx(4.0)
    turned = identify.UnitVector().value(jnp.array([0.0, 0.0, 1.0]), jnp.array([math.pi / 2, 0.0]))
    assert abs(turned[2]) < 1e-12


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
    half = jnp.array([0.4, 1.0, 10.0, 0.7, np.inf, 6.0, 0.1, 0.1, 0.1])
    low, high = eqx.filter_jit(parameters.interval)(jnp.zeros(parameters.size), half)
    grown = np.exp([0.5, 2.0])
    expected = [0.0, *np.array([2.0, 5.0]) / grown, 0.0, 0.0, -2.0, -0.1, -0.1, 0.9]
    np.testing.assert_allclose(low, expected, rtol=1e-12, atol=1e-15)
    expected = [0.7, *np.array([2.0, 5.0]) * grown, 1.2, 1.0, 10.0, 0.1, 0.1, 1.1]
    np.testing.assert_allclose(high, expected, rtol=1e-12)


@pytest.mark.parametrize("far, tolerance", [(1.0, 0.0), (1.01, 1e-9)])
def test_starts_become_consistent(far, tolerance):
    """A start on the circle of a pendulum stays as it is, and another one goes to the nearest point
    and its tangent."""
    system = Pendulum()
    q, v = system.length * jnp.array([0.6, -0.8]), jnp.array([0.8, 0.6])
    given = mbd.State(0.0, far * q, v + (far - 1.0) * q)
    record = Record(TIMES, decay(TIMES), given)
    found = _consistent(system, given, record)
    np.testing.assert_allclose(found.q, q, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found.v, v, rtol=0, atol=tolerance)


def test_split_records():
    """The rest begins where the record does, and only its own samples count."""
    rng = np.random.default_rng(0)
    record = Record(TIMES, decay(TIMES) + 0.01 * rng.normal(size=41), state(), weights=[3.0])
    seen, unseen = record.split(1.0)
    assert seen.count == 10 and seen.time[-1] < 1.0 and unseen.count == 31
    np.testing.assert_array_equal(unseen.time, TIMES)
    assert np.all(unseen.weights[:10] == 0) and np.all(unseen.weights[10:] == 3.0)
    prediction = identify.predict(oscillator(), unseen, position, dt=0.02)
    off = np.asarray(decay(TIMES) - record.measured[:, 0])[10:]
    assert prediction.rms["reading"] == pytest.approx(np.sqrt(np.mean(off**2)), rel=1e-5)
    for at in (0.05, 3.95):
        with pytest.raises(ValueError, match="split it where"):
            record.split(at)


@pytest.mark.parametrize(
    "optimiser",
    [None, pytest.param(optax.lbfgs(), marks=pytest.mark.slow)],
    ids=["levenberg-marquardt", "lbfgs"],
)
def test_a_bound_that_holds(optimiser):
    """A motion that grows, as if damping were negative: it ends at zero, and the stiffness where it
    belongs without damping; a stiffness that may not go there ends at its bound."""
    record = Record(TIMES, decay(TIMES, damping=-0.1), state())
    without = {"stiffness": Parameter(8.0, Positive())}

    def found(parameters):
        system = oscillator(damping=0.0)
        options = dict(dt=0.05, optimiser=optimiser, tolerance=1e-10, max_steps=200)
        return identify.fit(system, parameters, record, position, **options, **QUIET)

    free = found(without)
    bounded = found(without | {"damping": Parameter(0.4, identify.NotNegative())})
    assert free.converged and bounded.converged
    assert bounded.values["damping"] == pytest.approx(0.0, abs=1e-15)
    assert bounded.values["stiffness"] == pytest.approx(float(free.values["stiffness"]), rel=1e-5)
    assert optimiser is not None or bounded.iterations < 20
    within = found({"stiffness": Parameter(8.0, Bounded(3.0, 8.5))})
    assert within.converged
    assert within.values["stiffness"] == pytest.approx(8.5, abs=1e-14)


def test_interpolation_is_of_sixth_order():
    """Exact for polynomials of degree 5 everywhere, at the ends too, and at steps for anything."""
    s = np.array([0.0, 0.3, 1.0, 4.5, 7.99, 9.0])
    grid = np.arange(10.0)
    coefficients = np.array([1.0, -2.0, 0.5, 0.1, -0.3, 0.02])
    x = jnp.asarray(np.polynomial.polynomial.polyval(grid, coefficients))[:, None]
    expected = np.polynomial.polynomial.polyval(s, coefficients)
    np.testing.assert_allclose(interpolated(x, jnp.asarray(s), 6)[:, 0], expected, rtol=1e-9)
    rough = jnp.asarray(np.random.default_rng(0).normal(size=(10, 2)))
    np.testing.assert_array_equal(
        interpolated(rough, jnp.array([3.0, 8.0]), 6), rough[jnp.array([3, 8])]
    )
    between = interpolated(rough, jnp.array([2.25]), 2)[0]
    np.testing.assert_allclose(between, 0.75 * rough[2] + 0.25 * rough[3])


def test_measured_input():
    """Straight between samples, constant beyond, and of no effect where a record is made longer."""
    control = identify.MeasuredInput([0.0, 1.0, 3.0], [0.0, 2.0, -2.0])
    q = jnp.zeros(1)
    found = [float(control(jnp.array(t), q, q)[0]) for t in (-1.0, 0.5, 1.0, 2.0, 3.0, 9.0)]
    np.testing.assert_allclose(found, [0.0, 1.0, 2.0, 0.0, -2.0, -2.0])


@pytest.mark.slow
def test_records_of_different_length_with_inputs():
    """As each fitted alone: the same sum of squares, so the same estimate as of both in one."""
    pushes = [np.sin(3 * TIMES), np.cos(2 * TIMES[:21])]
    truth, records = oscillator(), []
    for k, push in enumerate(pushes):
        time = TIMES[: len(push)]
        control = identify.MeasuredInput(time, push)
        sol = mbd.simulate(
            truth, mbd.UdwadiaKalaba(), state(0.0), t1=time[-1], dt=0.01, control=control,
            saveat=diffrax.SaveAt(ts=time),
        )  # fmt: skip
        records.append(Record(time, np.asarray(sol.q), state(0.0), control=control, name=str(k)))
    found = identify.fit(
        oscillator(damping=0.5, stiffness=8.0),
        {"damping": Positive(), "stiffness": Positive()},
        records,
        position,
        dt=0.01,
        **QUIET,
    )
    np.testing.assert_allclose(found.entries, [0.4, 9.0], rtol=1e-6)
    assert [len(r) for r in found.prediction.readings] == [41, 21]


def test_residual_tests_tell_noise_from_structure():
    rng = np.random.default_rng(3)
    noise = identify.residual_tests.column_test([rng.normal(size=500), rng.normal(size=300)])
    assert "like noise" in str(noise) and 0.7 < noise.correlation < 1.5
    # An AR(1) process with rho = 0.8: 1 + 2 sum rho^k = (1 + rho) / (1 - rho) = 9.
    process = np.zeros(20000)
    for i, kick in enumerate(rng.normal(size=19999)):
        process[i + 1] = 0.8 * process[i] + kick
    found = identify.residual_tests.column_test([process])
    assert found.white < 1e-6 and found.correlation == pytest.approx(9.0, rel=0.2)
    skewed = identify.residual_tests.column_test([rng.exponential(size=500)])
    assert skewed.mean < 1e-6 and skewed.normal < 1e-6 and skewed.outliers > 0


# --- bad input ------------------------------------------------------------------------------------


def bad(**changes):
    """`fit` of the oscillator with changed arguments."""
    record = Record(TIMES, decay(TIMES), state())
    arguments = dict(
        model=oscillator(), parameters=["stiffness"], records=record, sensors=position, dt=0.02
    )
    arguments.update(changes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        identify.fit(**arguments, **QUIET)


def record(time=TIMES, measured=None, **options):
    return Record(time, np.zeros(len(time)) if measured is None else measured, state(), **options)


def few():
    return bad(records=record(TIMES[:2]), parameters=["mass", "damping"])


def of_one(**parameter):
    """A model of a parameter that it does not use."""
    return bad(model=lambda values: oscillator(), parameters=parameter)


@pytest.mark.parametrize(
    "message, make",
    [
        ("nan in row 3, column 0", lambda: record(measured=np.where(TIMES == TIMES[3], np.nan, 1))),
        ("must increase", lambda: record([0.0, 2.0, 1.0])),
        ("stands in rows 1 and 2", lambda: record([0.0, 1.0, 1.0])),
        ("one row of measurements", lambda: record(measured=np.zeros(7))),
        ("`weights` of", lambda: record(weights=np.ones(3))),
        ("is NaN", lambda: record([0.0, np.nan])),
        ("array of numbers", lambda: record(["a", "b"])),
        ("no parameter `stifness`", lambda: bad(parameters=["stifness"])),
        ("chooses none", lambda: bad(parameters=lambda path, leaf: False)),
        ("must lie between", lambda: bad(parameters={"stiffness": Bounded(10.0, 20.0)})),
        ("must be positive", lambda: bad(parameters={"damping": Parameter(-1.0, Positive())})),
        ("must be finite and increase", lambda: Bounded(2.0, 1.0)),
        ("give `Parameter", lambda: of_one(k=Positive())),
        ("unit vector", lambda: of_one(n=Parameter(np.ones(3), identify.UnitVector()))),
        ("must return", lambda: bad(model=lambda values: 1.0, parameters={"k": 1.0})),
        ("nothing to find", lambda: bad(parameters=[])),
        ("nothing to compare with", lambda: bad(records=[])),
        ("give 2 numbers", lambda: bad(sensors={"q": position, "v": lambda s: s.v})),
        ("`dt`.* must be positive", lambda: bad(dt=0.0)),
        ("2 measurements cannot", lambda: few()),
        ("same columns", lambda: bad(records=[record(), record(measured=np.zeros((41, 2)))])),
        ("too few for 50 parts", lambda: bad(shooting=identify.MultipleShooting(50))),
        ("at least 1", lambda: identify.MultipleShooting(0)),
        ("has the shape", lambda: identify.Leaves(oscillator())({"mass": jnp.ones(2)})),
    ],
    ids=lambda x: x.replace(" ", "-") if isinstance(x, str) else "",
)
def test_bad_input(message, make):
    with pytest.raises(ValueError, match=message):
        make()

"""Searches from bad guesses, the check of a model before them, and the error of the step."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import identify
from jaxmbd._equations import equations
from jaxmbd._linalg import dense
from jaxmbd._results import succeeded
from jaxmbd.identify import (
    GraduatedSmoothing,
    GuidedShooting,
    Parameter,
    Positive,
    Record,
    SingleShooting,
)
from jaxmbd.identify.guide import _gains, guide_of
from jaxmbd.identify.problem import SimulationOptions, make_problem, with_guide
from jaxmbd.identify.step_error import step_error

QUIET = dict(progress=False)
OMEGA, NOISE, TIME = 7.0, 1e-2, np.linspace(0.0, 8.0, 201)
POSITION = {"x": lambda sample: sample.q}
slow = pytest.mark.slow


class Oscillator(mbd.AbstractSystem):
    omega: jax.Array

    def mass_matrix(self, q):
        return jnp.eye(1)

    def force(self, t, q, v, u):
        return -(self.omega**2) * q


def oscillator(values):
    return Oscillator(jnp.asarray(values["omega"]))


def at(omega, weights=1 / NOISE, noise=0.0, start=1.0, times=TIME):
    """A guess, and a record of cos(OMEGA t)."""
    measured = np.cos(OMEGA * times) + noise * np.random.default_rng(0).normal(size=len(times))
    state = mbd.State(0.0, np.array([start]), np.zeros(1))
    record = Record(times, measured, state, weights=weights)
    return {"omega": Parameter(omega, Positive())}, record


class Pendulum(mbd.AbstractSystem):
    """A bob in the plane at the end of a rod, with a second, redundant row for the rod."""

    mass: jax.Array

    def mass_matrix(self, q):
        return self.mass * jnp.eye(2)

    def force(self, t, q, v, u):
        return jnp.array([0.0, -9.81]) * self.mass

    def constraint(self, q, t):
        return jnp.array([1.0, 3.0]) * (q @ q - 1.0)


def test_gains_move_readings_along_constraints():
    """K moves the readings by what is asked, and the rows not at all."""
    system, q, v = Pendulum(np.array(2.0)), np.array([0.6, -0.8]), np.array([0.4, 0.3])
    read = lambda system, t, q, v, z: jnp.stack([q[0] ** 2, 3 * v[1]])  # noqa: E731

    @jax.jit
    def gains(q, v, largest):
        at, there = (0.0, q, v, None), jnp.array([True, True])
        return *_gains(system, at, read, there, (0,), (1,), largest), dense(
            equations(system).rows(0.0, q, v).J
        )

    K, L, largest, J = (np.asarray(x) for x in gains(q, v, np.zeros(2)))
    np.testing.assert_allclose(J @ K[0], 0, atol=1e-12)
    np.testing.assert_allclose(J @ L[0], 0, atol=1e-12)
    # What shares the corrections of readings that depend on each other takes a thousandth.
    np.testing.assert_allclose([2 * 0.6 * K[0, 0], 3 * L[0, 1]], 1 / 1.001, rtol=1e-9)
    # Near a turning point it is relative to the largest mobility so far, by which K stays small.
    # Here the mass is 2, and the mobility across the rod (0.6, -0.8) is half of (0.8, 0.6)^2.
    np.testing.assert_allclose(largest, [(1.2 * 0.8) ** 2 / 2, (3 * 0.6) ** 2 / 2], rtol=1e-9)
    K, L, kept, _ = (np.asarray(x) for x in gains(q, v, largest * [1e3, 0.1]))
    np.testing.assert_allclose(kept, largest * [1e3, 1], rtol=1e-12)
    np.testing.assert_allclose([2 * 0.6 * K[0, 0], 3 * L[0, 1]], [1 / 2, 1 / 1.001], rtol=1e-9)


@slow
@pytest.mark.parametrize(
    "method, scheme", [(mbd.VelocityImpulse(), None), (mbd.UdwadiaKalaba(), diffrax.Tsit5())]
)
def test_deviations_decay_at_the_rate(method, scheme):
    """Of a free mass, whose deviations (e, e') follow powers of a matrix with a double eigenvalue
    exp(-kappa h)."""
    guess, record = at(1e-9, start=1.5, times=np.linspace(0, 1, 11))
    record = Record(record.time, np.ones(11), record.start, weights=1.0)
    options = SimulationOptions(0.05, method, scheme)
    problem = make_problem(oscillator, guess, record, POSITION, options)
    kappa, h = 4.0, 0.05
    place = lambda p: p.residuals.simulation.guide.rate  # noqa: E731
    guided = eqx.tree_at(place, with_guide(problem), jnp.array(kappa))
    found = eqx.filter_jit(lambda p: p.residuals.motions(jnp.zeros(1), p.data))(guided)
    theta = np.exp(-kappa * h)
    share = 1 / 1.001
    pull = np.array([[1 - share * (1 - theta**2), 0.0], [-share * (1 - theta) ** 2 / h, 1.0]])
    once = np.array([[1.0, h], [0.0, 1.0]]) @ pull
    e = [np.linalg.matrix_power(once, 2 * n) @ [0.5, 0.0] for n in range(11)]
    np.testing.assert_allclose(found.readings[0, :, 0] - 1, np.array(e)[:, 0], atol=1e-9)


def test_sensors_that_cannot_pull():
    system, start = Oscillator(np.array(1.0)), mbd.State(0.0, np.ones(1), np.ones(1))
    sensors = {
        "push": lambda sample: sample.acceleration,
        "turns": identify.Unwrapped(lambda sample: sample.q),
        "late": identify.Delayed(lambda sample: jnp.stack([*sample.q, *sample.v]), 0.1),
        "nothing": lambda sample: jnp.zeros(1),
    }
    guide = guide_of(system, sensors, (1, 1, 2, 1), None, start)
    assert guide.sensors == (2, 3) and guide.columns == (2, 3, 4)
    assert guide.position == (0,) and guide.velocity == (1,)
    with pytest.raises(ValueError, match="needs a sensor of positions or velocities"):
        guide_of(system, {"push": sensors["push"]}, (1,), None, start)


@slow
@pytest.mark.parametrize("omega", [0.6 * OMEGA, 1.5 * OMEGA])
def test_guided_shooting_finds_what_single_shooting_misses(omega):
    """A frequency that is off by half: the phase is lost after one of nine periods."""
    guess, record = at(omega, noise=NOISE)
    arguments = (oscillator, guess, record, POSITION)
    single = identify.fit(*arguments, dt=0.04, shooting=SingleShooting(), **QUIET)
    assert single.noise > 30
    assert "times the noise that the weights state" in str(single)
    for shooting in (GuidedShooting(), None):
        found = identify.fit(*arguments, dt=0.04, shooting=shooting, **QUIET)
        assert succeeded(found.result) and found.noise < 1.2
        assert abs(found.entries[0] - OMEGA) < 4 * found.sigma[0] < 2e-3
        assert "times the noise" not in str(found)


class Block(mbd.AbstractSystem):
    """Pulled by a force that grows."""

    dry: jax.Array

    def mass_matrix(self, q):
        return jnp.eye(1)

    def force(self, t, q, v, u):
        return jnp.stack([6.0 * t])

    def friction_rates(self, q, v, t):
        return v

    def friction_bounds(self, q, v, t, multipliers, u):
        return self.dry[None]


@slow
def test_graduated_smoothing_lets_a_block_slide_that_sticks():
    """Its acceleration is 6 t - dry from t = dry / 6 on. With the guess it never moves, so that
    nothing depends on the guess, and readings of accelerations do not pull."""
    time, start = np.linspace(0.0, 1.0, 51), mbd.State(0.0, np.zeros(1), np.zeros(1))
    record = Record(time, np.maximum(6.0 * time - 2.0, 0.0), start)
    push = {"push": lambda sample: sample.acceleration}
    given = Block(jnp.array(9.0)), {"dry": Positive()}, record, push
    options = dict(dt=1e-3, enforcement=mbd.ContactImpulse(), progress=False)
    with pytest.warns(UserWarning, match="Nothing that was measured depends on"):
        lost = identify.fit(*given, shooting=SingleShooting(), **options)
    assert lost.entries[0] == 9.0
    with pytest.raises(ValueError, match="needs a sensor of positions or velocities"):
        identify.fit(*given, shooting=GuidedShooting(), **options)
    smoothed = GraduatedSmoothing(1.0)
    np.testing.assert_allclose(smoothed.widths, [1.0, 0.1, 0.01, 0.001])
    found = identify.fit(*given, shooting=smoothed, **options)
    assert succeeded(found.result)
    np.testing.assert_allclose(found.entries, 2.0, atol=5e-3)
    assert found.problem.residuals.simulation.enforcement.smoothing is None
    options["enforcement"] = mbd.UdwadiaKalaba()
    with pytest.raises(ValueError, match="needs an enforcement with a `smoothing`"):
        identify.fit(*given, shooting=smoothed, **options)


@slow
def test_error_of_the_step_and_what_it_does_to_a_fit():
    """`SemiImplicitEuler` moves as cos(w' (t + h/2)), with sin(w' h / 2) = w h / 2."""
    guess, record = at(OMEGA)
    h, scheme = 2.5e-3, mbd.methods.SemiImplicitEuler()
    options = SimulationOptions(h, mbd.UdwadiaKalaba(), scheme)
    arguments = (oscillator, guess, record, POSITION)
    error = step_error(make_problem(*arguments, options), jnp.zeros(1))
    assert abs(error.order - 1) < 0.1 and succeeded(error.result)
    fast = np.arcsin(OMEGA * h / 2) * 2 / h
    phase = fast * h / 2
    coarse = np.cos(fast * TIME + phase) / np.cos(phase)
    assert np.max(np.abs(coarse - np.cos(OMEGA * TIME))) > 0.008
    exact = np.cos(OMEGA * TIME) - coarse
    np.testing.assert_allclose(error.missing[0, :, 0], exact, atol=0.01 * np.abs(exact).max())

    check = identify.check_model(*arguments, dt=h, scheme=scheme, points=9, spread=0.2, **QUIET)
    biased = identify.fit(*arguments, dt=h, scheme=scheme, **QUIET)
    moved = float(np.log(biased.entries[0] / OMEGA)) / (biased.sigma[0] / OMEGA) * biased.noise
    np.testing.assert_allclose(check.step.bias["omega"], moved, rtol=0.05)
    rms = np.sqrt(np.mean(exact**2)) / NOISE
    np.testing.assert_allclose([check.step.off, check.rms], rms, rtol=0.02)
    np.testing.assert_allclose(check.step.needed, h * 0.1 / rms, rtol=0.3)
    mended = identify.fit(*arguments, dt=h, scheme=scheme, extrapolate=True, **QUIET)
    assert abs(mended.entries[0] / OMEGA - 1) < 0.02 * abs(biased.entries[0] / OMEGA - 1)
    np.testing.assert_allclose(mended.prediction.readings[0][:, 0], np.cos(OMEGA * TIME), atol=2e-3)


@slow
def test_slices_and_other_models():
    """Local minima where the closed form has them; another model changes what it must."""
    guess, record = at(OMEGA, noise=NOISE)
    mistuned = lambda values: oscillator({"omega": 1.001 * values["omega"]})  # noqa: E731
    check = identify.check_model(
        oscillator, guess, record, POSITION, dt=0.02, beside={"mistuned": mistuned},
        points=41, spread=0.5, **QUIET,
    )  # fmt: skip
    along = check.slices["omega"]
    omegas = OMEGA * np.exp(np.linspace(-0.5, 0.5, 41))
    np.testing.assert_allclose(along.value, omegas, rtol=1e-12)
    off = np.cos(omegas[:, None] * TIME) - record.measured[:, 0]
    rms = np.sqrt(np.mean(off**2, axis=1)) / NOISE
    np.testing.assert_allclose(along.rms, rms, rtol=2e-3)
    inner = (rms[1:-1] < rms[:-2]) & (rms[1:-1] < rms[2:])
    assert set(np.flatnonzero(inner) + 1) <= set(along.minima.tolist())
    assert check.multimodal == ("omega",) and "use `GuidedShooting()`" in str(check)
    change = np.cos(1.001 * OMEGA * TIME) - np.cos(OMEGA * TIME)
    other = check.beside["mistuned"]
    np.testing.assert_allclose(other.off, np.sqrt(np.mean(change**2)) / NOISE, rtol=1e-3)
    slope = -TIME * np.sin(OMEGA * TIME) * OMEGA / NOISE
    np.testing.assert_allclose(other.bias["omega"], 0.001 * np.linalg.norm(slope), rtol=0.02)
    axes = identify.plot_slices(check)
    assert len(axes) == 1 and axes[0].get_xlabel() == "omega"


class Exploding(Oscillator):
    def force(self, t, q, v, u):
        return self.omega * q**3


@slow
def test_failed_simulations_are_told_with_their_reason():
    guess, record = at(5.0)
    exploding = lambda values: Exploding(jnp.asarray(values["omega"]))  # noqa: E731
    arguments = (exploding, guess, record, POSITION)
    told = str(identify.check_model(*arguments, dt=0.02, points=3, **QUIET))
    assert "not known, since a simulation failed: A state or a parameter became NaN" in told
    assert "simulations failed along omega" in told and "one along each" not in told


@slow
def test_estimates_begin_another_fit():
    guess, record = at(0.99 * OMEGA, noise=NOISE)
    bounded = {"omega": Parameter(6.9, identify.Bounded(6.0, 6.95))}
    found = identify.fit(oscillator, bounded, record, POSITION, dt=0.02, **QUIET)
    assert found.at_bounds == ("omega",) and "at a bound: omega" in str(found)
    free = identify.fit(oscillator, guess, record, POSITION, dt=0.02, **QUIET)
    assert free.at_bounds == ()
    again = identify.fit(oscillator, free.parameters, record, POSITION, dt=0.02, **QUIET)
    np.testing.assert_allclose(again.entries, free.entries, rtol=1e-8)
    assert again.iterations <= 3 and isinstance(again.parameters["omega"].transform, Positive)


def test_extrapolation_needs_what_it_says():
    guess, record = at(OMEGA)
    with pytest.raises(ValueError, match="`extrapolate` needs a least-squares solver"):
        identify.fit(
            oscillator, guess, record, POSITION, dt=0.04, extrapolate=True,
            shooting=identify.MultipleShooting(2), **QUIET,
        )  # fmt: skip

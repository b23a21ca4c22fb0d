"""Simulations that fail end in a member of `RESULTS`, with the last good state.

Systems and starts are made to fail in known ways."""

import itertools

import diffrax
import helpers as h
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from short_runs import PENDULUM, START, UK, Wrong, simulate

import jaxmbd as mbd


def check_failure(expected, system=PENDULUM, enforcement=UK, state=START, **options):
    """With throw=False the verdict and finite numbers, with throw=True its message."""
    sol = simulate(system, enforcement, state, throw=False, **options)
    assert sol.result == expected, sol.result
    for x in (sol.q, sol.v, sol.phi_norm, sol.phidot_norm):
        assert np.all(np.isfinite(x))
    message = mbd.RESULTS[expected].splitlines()[0][:40]
    with pytest.raises(RuntimeError, match=message):
        simulate(system, enforcement, state, **options)
    return sol


class WithMass(Wrong):
    """A pendulum with that mass matrix, in one program for all."""

    mass: jax.Array

    def mass_matrix(self, q):
        return self.mass


ALL_METHODS = pytest.mark.parametrize(
    "method",
    h.slow_unless(lambda m: m not in h.VARIANTS, [m for m in h.METHODS if "project" not in m]),
)

MASSES = {
    "negative": np.diag([1.0, -1.0]),
    "singular": np.diag([1.0, 0.0]),
    "indefinite": np.array([[1.0, 2.0], [2.0, 1.0]]),
}


@pytest.mark.parametrize(
    "mass, method",
    [
        (mass, method)
        for mass in MASSES
        for method in ("udwadia_kalaba", "baumgarte", "impulse", "primal_penalty")
    ],
)
def test_indefinite_mass_matrix(mass, method):
    system = WithMass({}, jnp.asarray(MASSES[mass]))
    enforcement = h.method(method).enforcement
    check_failure(mbd.RESULTS.mass_matrix_indefinite, system, enforcement)


def test_mass_matrix_without_symmetry():
    """Only its lower half would enter otherwise."""
    system = Wrong({"mass_matrix": lambda q: jnp.array([[1.0, 0.3], [0.1, 1.0]])})
    check_failure(mbd.RESULTS.mass_matrix_indefinite, system)


@pytest.mark.parametrize(
    "method, solver",
    h.slow_unless(
        lambda method, solver: (solver == "cholesky") == (method in ("udwadia_kalaba", "impulse")),
        itertools.product(
            ("udwadia_kalaba", "multipliers", "impulse", "projected"), ("cholesky", "kkt")
        ),
    ),
)
def test_dependent_rows(method, solver):
    """Solvers for independent rows say so, and which others there are."""
    case, method = h.CASES["redundant_pendulum"], h.method(method, solver)
    check_failure(
        mbd.RESULTS.singular_constraints,
        case.system,
        method.enforcement,
        case.state,
        projection=method.projection,
    )


@ALL_METHODS
def test_inconsistent_start(method):
    """Rigid methods refuse; compliant ones take it as a deflection."""
    enforcement = h.method(method).enforcement
    state = mbd.State(0.0, np.array([0.95, 0.0]), np.zeros(2))
    if method in h.SOFT:
        assert simulate(enforcement=enforcement, state=state).result == mbd.RESULTS.successful
        return
    sol = check_failure(mbd.RESULTS.inconsistent_start, enforcement=enforcement, state=state)
    assert np.array_equal(sol.q[-1], state.q)


def test_inconsistent_velocity():
    """|Phi'| = 2 q . v = 0.018 against the tolerance, and a tolerance that allows it."""
    state = mbd.State(0.0, np.array([0.9, 0.0]), np.array([0.01, 0.0]))
    check_failure(mbd.RESULTS.inconsistent_start, state=state)
    assert simulate(state=state, start_tolerance=0.02).result == mbd.RESULTS.successful


def test_inconsistent_nonholonomic_start():
    case = h.CASES["skate"]
    state = mbd.State(0.0, case.state.q, case.state.v + jnp.array([0.0, 0.1, 0.0]))
    check_failure(mbd.RESULTS.inconsistent_start, case.system, state=state)


class Burst(mbd.AbstractSystem):
    """q'' = 0 until t = 0.025, NaN afterwards."""

    def mass_matrix(self, q):
        return jnp.eye(1, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.where(t > 0.025, jnp.nan, 0.0) * q


@pytest.mark.parametrize("enforcement", [UK, mbd.VelocityImpulse()])
def test_nan_in_flight(enforcement):
    """The state is held at the last good one, t = 0.03: force at 0, 0.01, 0.02 is finite."""
    start = mbd.State(0.0, np.array([1.0]), np.array([2.0]))
    saveat = diffrax.SaveAt(t0=True, steps=True)
    sol = check_failure(
        mbd.RESULTS.nonfinite_state, Burst(), enforcement, start, num_steps=6, saveat=saveat
    )
    np.testing.assert_allclose(sol.q[:4, 0], 1 + 2 * np.array([0, 0.01, 0.02, 0.03]), rtol=1e-15)
    assert np.all(sol.q[4:, 0] == sol.q[3, 0]) and np.all(sol.v == 2)
    assert int(sol.stats["num_steps"]) == 3


def test_nan_in_flight_between_steps():
    start = mbd.State(0.0, np.array([1.0]), np.array([2.0]))
    ts = [0.005, 0.015, 0.035, 0.06]
    sol = check_failure(
        mbd.RESULTS.nonfinite_state, Burst(), UK, start, num_steps=6, saveat=diffrax.SaveAt(ts=ts)
    )
    np.testing.assert_allclose(sol.q[2:, 0], 1.06, rtol=1e-15)


def test_nan_in_flight_of_adaptive_steps():
    """The controller takes it for a step too large, and halves it until the steps are used up."""
    start = mbd.State(0.0, np.array([1.0]), np.array([2.0]))
    sol = check_failure(
        mbd.RESULTS.max_steps_reached,
        Burst(),
        UK,
        start,
        t1=0.06,
        scheme=diffrax.Tsit5(),
        stepsize_controller=diffrax.PIDController(rtol=1e-6, atol=1e-6),
        saveat=diffrax.SaveAt(ts=[0.01, 0.05]),
        max_steps=100,
    )
    np.testing.assert_allclose(sol.q[:, 0], [1.02, 1.05], rtol=1e-4)  # held at t = 0.025


def test_verdict_of_adaptive_steps():
    """The same member as at fixed steps."""
    case = h.CASES["redundant_pendulum"]
    sol = simulate(
        case.system,
        mbd.UdwadiaKalaba(mbd.Cholesky()),
        case.state,
        t1=0.02,
        scheme=diffrax.Tsit5(),
        stepsize_controller=diffrax.PIDController(rtol=1e-6, atol=1e-6),
        throw=False,
    )
    assert sol.result == mbd.RESULTS.singular_constraints


def test_too_many_adaptive_steps():
    sol = simulate(
        t1=1.0,
        scheme=diffrax.Tsit5(),
        stepsize_controller=diffrax.PIDController(rtol=1e-9, atol=1e-9),
        max_steps=5,
        throw=False,
    )
    assert sol.result == mbd.RESULTS.max_steps_reached
    assert np.all(np.isfinite(sol.q)) and np.all(np.isfinite(sol.multipliers))


class Snap(mbd.AbstractSystem):
    """A force that saturates, where Newton's method at large steps goes to and fro."""

    def mass_matrix(self, q):
        return jnp.eye(1)

    def force(self, t, q, v, u):
        return -10 * jnp.arctan(1e3 * q)


@pytest.mark.parametrize("scheme", [mbd.CrankNicolson(), diffrax.ImplicitEuler()])
def test_implicit_scheme_that_does_not_converge(scheme):
    sol = mbd.simulate(
        Snap(),
        UK,
        mbd.State(0.0, np.array([1.0]), np.array([0.0])),
        t1=1.0,
        dt=0.5,
        scheme=scheme,
        throw=False,
    )
    assert sol.result == mbd.RESULTS.implicit_scheme_unsolved


@pytest.mark.parametrize("method", ["uncorrected", "impulse_drifting"])
def test_drift_tolerance(method):
    """Methods without position feedback leave the circle; with a tolerance they are stopped."""
    enforcement = h.method(method).enforcement
    state = mbd.State(0.0, np.array([0.9, 0.0]), np.array([0.0, 3.0]))
    options = dict(state=state, enforcement=enforcement, num_steps=40)
    free = simulate(**options)
    tolerance = float(free.phi_norm[-1]) / 4
    assert tolerance > 1e-4
    stopped = check_failure(mbd.RESULTS.drift, drift_tolerance=tolerance, **options)
    assert tolerance < stopped.phi_norm[-1] < 1.5 * tolerance  # at the first step beyond it
    assert 0 < int(stopped.stats["num_steps"]) < 40


def test_drift_tolerance_of_adaptive_steps():
    """The step that is too large is the last one."""
    state = mbd.State(0.0, np.array([0.9, 0.0]), np.array([0.0, 3.0]))
    sol = simulate(
        enforcement=mbd.LagrangeMultipliers(),
        state=state,
        t1=2.0,
        scheme=diffrax.Heun(),
        stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-3),
        drift_tolerance=1e-6,
        throw=False,
    )
    assert sol.result == mbd.RESULTS.drift
    assert sol.phi_norm[-1] > 1e-6
    assert sol.stats["num_accepted_steps"] == 1


class Gimbal(mbd.AbstractSystem):
    """Free body in roll-pitch-yaw, turning about world y at 1 rad/s: locked at t = pi/2."""

    coordinates = mbd.RollPitchYawWorld(tolerance=0.01)

    def mass_matrix(self, q):
        return jnp.eye(3, dtype=q.dtype)

    def force(self, t, q, v, u):
        return jnp.zeros_like(v)


@pytest.mark.parametrize("enforcement", [UK, mbd.VelocityImpulse()])
def test_gimbal_lock(enforcement):
    start = mbd.State(0.0, np.zeros(3), np.array([0.0, 1.0, 0.0]))
    step = np.pi / 2 / 10
    before = simulate(Gimbal(), enforcement, start, dt=step, num_steps=9)
    np.testing.assert_allclose(before.q[-1], [0, 9 * step, 0], rtol=0, atol=1e-12)
    sol = check_failure(
        mbd.RESULTS.gimbal_lock, Gimbal(), enforcement, start, dt=step, num_steps=12
    )
    np.testing.assert_allclose(sol.q[-1], [0, np.pi / 2, 0], rtol=0, atol=1e-12)


def test_vanished_quaternion():
    top = h.CASES["top"]
    state = mbd.State(0.0, top.state.q.at[3:].multiply(1e-3), top.state.v)
    sol = simulate(top.system, state=state, start_tolerance=jnp.inf, throw=False)
    assert sol.result == mbd.RESULTS.invalid_coordinates


def test_projection_that_cannot():
    """x^2 + 1 = 0 has no solution; the projection says so in the first step."""
    system = Wrong({"constraint": lambda q, t: q[0] ** 2 + 1.0})
    check_failure(
        mbd.RESULTS.projection_failed,
        system,
        mbd.ExplicitPenalty(0.0),
        projection=mbd.Projection(),
    )

"""Published and closed-form motions of the paper's examples.

Braun and Goldfarb (2009), Eliminating constraint drift in the numerical simulation of constrained
dynamical systems, CMAME 198, section 5. Every example is compared with a truth made here (elliptic
functions, minimal coordinates).
"""

import functools

import biped
import diffrax
import helpers
import jax
import numpy as np
import pendulum
import pytest
import slider_crank
import two_four_bars
from scipy.integrate import solve_ivp
from scipy.special import ellipj, ellipk

import jaxmbd as mbd


@functools.cache
def _compiled(enforcement, num_steps, every):
    def run(system, start, dt, start_tolerance, drift_tolerance):
        return mbd.simulate(
            system,
            enforcement,
            start,
            t0=0.0,
            dt=dt,
            num_steps=num_steps,
            saveat=diffrax.SaveAt(t0=True, steps=every),
            start_tolerance=start_tolerance,
            drift_tolerance=drift_tolerance,
        )

    # Short runs compile longer than they run.
    return jax.jit(run, compiler_options=None if num_steps <= 20_000 else helpers.OPTIMISED)


def simulate(
    system, enforcement, start, t1, dt, every=1, start_tolerance=1e-3, drift_tolerance=np.inf
):
    """`mbd.simulate` by RK4, with every n-th step and the start saved, compiled once for each
    number of steps."""
    run = _compiled(enforcement, round(t1 / dt), every)
    return jax.device_get(run(system, start, dt, start_tolerance, drift_tolerance))


def order(steps, errors):
    """Slope of a straight line through the logarithms."""
    return np.polyfit(np.log(steps), np.log(errors), 1)[0]


# --- pendulum -----------------------------------------------------------------------------------


def pendulum_truth(t, gravity=9.81):
    """(q, v, multiplier) of unit mass and length, released from the horizontal: sin(psi/2) =
    k sn(K + omega t), psi from the downward vertical; lam from the radial equation."""
    omega, m = np.sqrt(gravity), 0.5
    sn, cn, _, _ = ellipj(np.mod(ellipk(m) + omega * np.asarray(t), 4 * ellipk(m)), m)
    psi, rate = 2 * np.arcsin(np.sqrt(m) * sn), 2 * np.sqrt(m) * omega * cn
    q = np.stack([np.sin(psi), -np.cos(psi)], axis=-1)
    v = np.stack([np.cos(psi) * rate, np.sin(psi) * rate], axis=-1)
    return q, v, (-(rate**2) + gravity * q[..., 1]) / 2


def test_pendulum_motion_and_multiplier():
    # The constraint is held to 1e-12 at every step, or `simulate` raises.
    system, start = pendulum.Pendulum(), pendulum.exact_start()
    sol = simulate(system, mbd.UdwadiaKalaba(), start, 4.0, 1e-3, drift_tolerance=1e-12)
    q, v, lam = pendulum_truth(sol.t)
    np.testing.assert_allclose(sol.q, q, atol=1e-9)
    np.testing.assert_allclose(sol.v, v, atol=1e-8)
    np.testing.assert_allclose(sol.multipliers[:, 0], lam, rtol=1e-6, atol=1e-8)


# --- slider-crank -------------------------------------------------------------------------------


def crank_truth(t1, gravity=9.81):
    """(theta, theta') of theta2 = -theta1 = -theta, unit masses and lengths, as a function of
    time, from the kinetic energy of points along the bars."""
    # Gauss points integrate the quadratic energy of a uniform bar exactly.
    s, w = np.polynomial.legendre.leggauss(2)
    s, w = (1 + s) / 2, w / 2

    def inertia(theta):
        """Twice the kinetic energy at unit rate, and its slope."""
        sin, cos = np.sin(theta), np.cos(theta)
        crank = np.sum(w * s**2)
        rod = np.sum(w * ((1 + s) ** 2 * sin**2 + (1 - s) ** 2 * cos**2))
        slope = 2 * np.sum(w * ((1 + s) ** 2 - (1 - s) ** 2)) * sin * cos
        return crank + rod + 4 * sin**2, slope + 8 * sin * cos

    def rates(t, y):
        theta, omega = y
        mu, slope = inertia(theta)
        moment = 20 - 5 * omega - gravity * np.cos(theta)
        return [omega, (moment - slope * omega**2 / 2) / mu]

    motion = solve_ivp(rates, (0, t1), [0, 0], "DOP853", rtol=1e-13, atol=1e-13, dense_output=True)
    return motion.sol


def crank_run(t1, start=slider_crank.exact_start, **options):
    system = slider_crank.SliderCrank()
    return simulate(system, mbd.UdwadiaKalaba(), start(), t1, 1e-3, every=50, **options)


def test_slider_crank_through_singular_configurations():
    sol = crank_run(5.0, drift_tolerance=1e-15)
    theta, omega = crank_truth(5.0)(np.asarray(sol.t))
    assert theta[-1] > 4 * np.pi  # rank 2 at pi/2 + k pi: four passages at least
    q, v = np.asarray(sol.q), np.asarray(sol.v)
    np.testing.assert_allclose(q[:, 2], theta, atol=1e-8)
    np.testing.assert_allclose(q[:, 3], -theta, atol=1e-8)  # the branch is kept
    np.testing.assert_allclose(v[:, 2:], np.stack([omega, -omega], axis=1), atol=1e-7)
    assert sol.phi_norm.max() < 1e-15
    assert sol.phidot_norm.max() < 1e-12


@pytest.mark.slow
def test_slider_crank_over_100_seconds():
    sol = crank_run(100.0, drift_tolerance=1e-15)
    theta, _ = crank_truth(100.0)(np.asarray(sol.t))
    slider = slider_crank.slider_position(np.asarray(sol.q))
    assert np.abs(slider - 2 * np.cos(theta)).max() < 4.4e-8  # as published


# --- two four-bar linkages ----------------------------------------------------------------------


@functools.cache
def bars_truth(t1):
    """theta from the upward vertical: theta'' = (7/6) (g/l) sin(theta), theta'(0) = 1."""

    def rates(t, y):
        return [y[1], 7 / 6 * 9.81 * np.sin(y[0])]

    return solve_ivp(
        rates, (0, t1), [0, 1], "DOP853", rtol=1e-13, atol=1e-13, dense_output=True
    ).sol


def bars_state(theta, omega):
    """(q, v) of parallel cranks."""
    sin, cos, zero = np.sin(theta), np.cos(theta), np.zeros_like(theta)
    q = np.stack([sin, cos, 1 + sin, cos, 2 + sin, cos], axis=-1)
    rate = np.stack([cos * omega, -sin * omega], axis=-1)
    return q, np.concatenate([rate, rate, rate], axis=-1) + zero[..., None]


def bars_run(t1, dt, start=two_four_bars.exact_start):
    system = two_four_bars.TwoFourBars()
    return simulate(system, mbd.UdwadiaKalaba(), start(), t1, dt, start_tolerance=0.1)


def x3_error(sol, until=np.inf):
    t = np.asarray(sol.t)
    theta, _ = bars_truth(100.0)(t)
    return np.abs(np.asarray(sol.q)[:, 4] - 2 - np.sin(theta))[t <= until + 1e-9].max()


def test_four_bars_through_singular_configurations():
    # The same number of steps each, 1000: one compilation.
    coarse, middle, fine = [bars_run(1000 * dt, dt) for dt in (1e-2, 5e-3, 1e-3)]
    theta, omega = bars_truth(100.0)(np.asarray(coarse.t))
    assert theta[-1] > 10 * np.pi  # ten passages through rank 3
    q, v = bars_state(theta, omega)
    np.testing.assert_allclose(coarse.q, q, atol=2e-4)
    np.testing.assert_allclose(coarse.v, v, atol=2e-3)
    # Parallel cranks throughout: the other branches of the singular pose are not taken.
    found = np.asarray(coarse.q)
    np.testing.assert_allclose(found[:, 2:4] - found[:, :2], q[:, 2:4] - q[:, :2], atol=1e-7)
    assert coarse.phi_norm.max() < 1e-8
    assert fine.phi_norm.max() < 1e-13
    assert x3_error(fine) < 1e-9  # over 1 s, through the first passage
    assert order((1e-2, 5e-3), [x3_error(sol, 5.0) for sol in (coarse, middle)]) > 3.8


@pytest.mark.slow
def test_four_bars_over_100_seconds():
    # Published: 1e-2 and 1e-7, to one digit.
    assert x3_error(bars_run(100.0, 1e-2)) < 1.2e-2
    fine = bars_run(100.0, 1e-3)
    assert x3_error(fine) < 1.5e-7
    assert x3_error(fine, 10.0) < 5e-9
    assert fine.phi_norm.max() < 1e-13


# --- biped ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "exercise, t1, published",
    [(1, 1.0, 5.2e-11), *(pytest.param(*x, marks=pytest.mark.slow) for x in (
        (2, 2.0, 2.7e-11), (3, 100.0, 1.6e-12)
    ))],
)  # fmt: skip
def test_biped(exercise, t1, published):
    """Rows alone fix the motion, the last time dependent ones: by their residuals."""
    system, printed, solver, _, _ = biped.EXERCISES[exercise - 1]
    start = mbd.assemble(system(), np.array(printed), t=0.0)
    start = mbd.State(0.0, start.q, np.zeros(9))
    method = mbd.UdwadiaKalaba(solver)
    sol = simulate(system(), method, start, t1, 1e-2, start_tolerance=1e-12)
    assert np.ptp(sol.q, axis=0).max() > 0.05
    assert sol.phi_norm.max() < published
    # The published residuals are, to their two digits, those of the velocities.
    assert sol.phidot_norm.max() < 1.2 * published

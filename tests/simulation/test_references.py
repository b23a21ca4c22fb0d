"""The paper's examples against their closed forms, minimal coordinates and published errors.

Braun and Goldfarb (2009), Eliminating constraint drift in the numerical simulation of constrained
dynamical systems, CMAME 198, section 5.
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
from two_four_bars import x3_error

import jaxmbd as mbd

UK, SLOW = mbd.UdwadiaKalaba(), pytest.mark.slow


@functools.cache
def compiled(num_steps, every):
    def run(system, method, start, dt, tolerances):
        saveat = diffrax.SaveAt(t0=True, steps=every)
        options = dict(t0=0.0, dt=dt, num_steps=num_steps, saveat=saveat, **tolerances)
        return mbd.simulate(system, method, start, **options)

    # Short runs compile longer than they run.
    return jax.jit(run, compiler_options=None if num_steps <= 20_000 else helpers.OPTIMISED)


def simulate(system, start, t1, dt, method=UK, every=1, **tolerances):
    """By RK4, compiled once for each number of steps."""
    run = compiled(round(t1 / dt), every)
    return jax.device_get(run(system, method, start, dt, tolerances))


def rate(motion, t, h=1e-3):
    """Its derivative by differences of fourth order."""
    near, far = (motion(t + x) - motion(t - x) for x in (h, 2 * h))
    return (8 * near - far) / (12 * h)


def test_pendulum():
    # The constraint is held to 1e-12 at every step, or `simulate` raises.
    start = pendulum.exact_start()
    sol = simulate(pendulum.Pendulum(), start, 4.0, 1e-3, drift_tolerance=1e-12)
    q = pendulum.exact_motion(sol.t)
    np.testing.assert_allclose(sol.q, q, atol=1e-9)
    np.testing.assert_allclose(sol.v, rate(pendulum.exact_motion, sol.t), atol=1e-8)
    # The rod carries 3 m g cos(angle); the row is that of the squared length.
    np.testing.assert_allclose(sol.multipliers[:, 0], 1.5 * 9.81 * q[:, 1], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("t1, atol", [(5.0, 1e-8), pytest.param(100.0, 1e-7, marks=SLOW)])
def test_slider_crank_through_singular_configurations(t1, atol):
    system, start = slider_crank.SliderCrank(), slider_crank.exact_start()
    sol = simulate(system, start, t1, 1e-3, every=50, drift_tolerance=1e-15)
    exact = slider_crank.exact_motion(system, t1)
    theta = exact(sol.t)
    assert theta[-1] > 4 * np.pi  # rank 2 at pi/2 + k pi: four passages at least
    # The branch is kept.
    np.testing.assert_allclose(sol.q[:, 2:], np.stack([theta, -theta], 1), rtol=0, atol=atol)
    slider = slider_crank.slider_position(sol.q)
    assert np.abs(slider - 2 * np.cos(theta)).max() < 4.4e-8  # as published
    assert sol.phidot_norm.max() < 1e-12
    omega = rate(exact, sol.t[1:-1])
    np.testing.assert_allclose(sol.v[1:-1, 2:], np.stack([omega, -omega], 1), rtol=0, atol=2e-6)
    # Loads of the support, and of support and slider together: the momentum of the bars and the
    # slider is 4 cos(theta)' along x and sin(theta)' along y. Here the energy is mu omega^2 / 2.
    s, c, w = np.sin(theta), np.cos(theta), sol.v[:, 2]
    mu = 5 / 12 + (9 * s**2 + c**2) / 4 + 4 * s**2
    a = (20 - 5 * w - 9.81 * c - 6 * s * c * w**2) / mu
    loads = np.stack([-4 * (c * w**2 + s * a), c * a - s * w**2 + 3 * 9.81], 1)
    found = np.stack([sol.multipliers[:, 0], sol.multipliers[:, 1:].sum(1)], 1)
    np.testing.assert_allclose(found[1:], loads[1:], rtol=0, atol=1e-4)


def bars_run(t1, dt):
    start = two_four_bars.exact_start()
    return simulate(two_four_bars.TwoFourBars(), start, t1, dt)


def test_four_bars_through_singular_configurations():
    # The same number of steps each, 1000: one compilation.
    coarse, middle, fine = [bars_run(1000 * dt, dt) for dt in (1e-2, 5e-3, 1e-3)]
    theta = two_four_bars.exact_motion(coarse.t)
    assert theta[-1] > 10 * np.pi  # ten passages through rank 3
    tip = np.stack([2 + np.sin(theta), np.cos(theta)], axis=1)
    np.testing.assert_allclose(coarse.q[:, 4:], tip, atol=2e-4)
    # The speed by the energy: theta'' = (7/6) (g/l) sin(theta), theta'(0) = 1.
    speed = np.sqrt(1 + 7 / 3 * 9.81 * (1 - np.cos(theta)))
    velocity = speed[:, None] * np.stack([np.cos(theta), -np.sin(theta)], axis=1)
    np.testing.assert_allclose(coarse.v, np.tile(velocity, 3), atol=2e-3)
    # The cranks together hold three masses, and 3.5 weights of them, on the circle.
    cos = np.cos(two_four_bars.exact_motion(fine.t))
    held = (3.5 * 9.81 * cos - 3 * (1 + 7 / 3 * 9.81 * (1 - cos))) / 2
    np.testing.assert_allclose(fine.multipliers[:, :3].sum(axis=1), held, atol=1e-6)
    # Parallel cranks throughout: the other branches of the singular pose are not taken.
    couplers = np.diff(coarse.q.reshape(-1, 3, 2), axis=1)
    np.testing.assert_allclose(couplers - [1.0, 0.0], 0.0, atol=1e-7)
    assert coarse.phi_norm.max() < 1e-8
    assert fine.phi_norm.max() < 1e-13
    assert x3_error(fine).max() < 1e-9  # over 1 s, through the first passage
    assert np.log2(x3_error(coarse)[:501].max() / x3_error(middle).max()) > 3.8  # over 5 s


@SLOW
def test_four_bars_over_100_seconds():
    # Published: 1e-2 and 1e-7, to one digit.
    assert x3_error(bars_run(100.0, 1e-2)).max() < 1.2e-2
    fine = bars_run(100.0, 1e-3)
    assert x3_error(fine).max() < 1.5e-7
    assert x3_error(fine)[:10_001].max() < 5e-9
    assert fine.phi_norm.max() < 1e-13


@pytest.mark.parametrize(
    "exercise, t1, published",
    [(0, 1.0, 5.2e-11), *(pytest.param(*x, marks=SLOW) for x in (
        (1, 2.0, 2.7e-11), (2, 100.0, 1.6e-12)
    ))],
)  # fmt: skip
def test_biped(exercise, t1, published):
    """Rows alone fix the motion, the last time dependent ones: by their residuals."""
    system, printed, solver, _, _ = biped.EXERCISES[exercise]
    start = mbd.assemble(system(), np.array(printed), t=0.0)
    start = mbd.State(0.0, start.q, np.zeros(9))
    method = mbd.UdwadiaKalaba(solver)
    sol = simulate(system(), start, t1, 1e-2, method, start_tolerance=1e-12)
    assert np.ptp(sol.q, axis=0).max() > 0.05
    assert sol.phi_norm.max() < published
    # The published residuals are, to their two digits, those of the velocities.
    assert sol.phidot_norm.max() < 1.2 * published

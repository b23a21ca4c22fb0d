"""Published and closed-form motions of the paper's examples.

Braun and Goldfarb (2009), Eliminating constraint drift in the numerical simulation of constrained
dynamical systems, CMAME 198, section 5. Every example is compared with a truth made here (elliptic
functions, minimal coordinates, kinematics and virtual work in NumPy) and, where the folder of
reference data lies beside the checkout, with that too.
"""

import functools
import json
from typing import NamedTuple

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
    return run(system, start, dt, start_tolerance, drift_tolerance)


def reference(shared, name):
    return json.loads((shared / "references" / f"{name}.json").read_text())


def order(steps, errors):
    """Slope of a straight line through the logarithms."""
    return np.polyfit(np.log(steps), np.log(errors), 1)[0]


# --- pendulum -----------------------------------------------------------------------------------


class Motion(NamedTuple):
    t: np.ndarray
    q: np.ndarray
    v: np.ndarray
    multipliers: np.ndarray
    phi_norm: np.ndarray
    phidot_norm: np.ndarray


def pendulum_truth(t, gravity=9.81):
    """(q, v, multiplier) of unit mass and length, released from the horizontal: sin(psi/2) =
    k sn(K + omega t), psi from the downward vertical; lam from the radial equation."""
    omega, m = np.sqrt(gravity), 0.5
    sn, cn, _, _ = ellipj(np.mod(ellipk(m) + omega * np.asarray(t), 4 * ellipk(m)), m)
    psi, rate = 2 * np.arcsin(np.sqrt(m) * sn), 2 * np.sqrt(m) * omega * cn
    q = np.stack([np.sin(psi), -np.cos(psi)], axis=-1)
    v = np.stack([np.cos(psi) * rate, np.sin(psi) * rate], axis=-1)
    return q, v, (-(rate**2) + gravity * q[..., 1]) / 2


def swing(t1, dt, start=pendulum.exact_start, correct=True, **options):
    """Run after run of 2000 steps, of which one is compiled for all tests."""
    state, runs = start(), []
    for k in range(round(t1 / dt) // 2000):
        enforcement = mbd.UdwadiaKalaba(correct=correct)
        sol = simulate(pendulum.Pendulum(), enforcement, state, 2000 * dt, dt, **options)
        state = sol.state()
        runs.append(
            (sol.t + k * 2000 * dt, sol.q, sol.v, sol.multipliers, sol.phi_norm, sol.phidot_norm)
        )
    return Motion(*(np.concatenate([np.asarray(x[:-1]) for x in pieces]) for pieces in zip(*runs)))


def pendulum_error(sol):
    truth, _, _ = pendulum_truth(sol.t)
    return np.linalg.norm(np.asarray(sol.q) - truth, axis=-1).max()


def test_pendulum_truth(shared):
    for row in reference(shared, "bg_pendulum")["reference"]:
        q, v, lam = pendulum_truth(row["t"])
        # `sin` of a large argument keeps an absolute error of about t * omega * eps.
        tolerance = dict(rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(q, row["q"], **tolerance)
        np.testing.assert_allclose(v, row["v"], **tolerance)
        np.testing.assert_allclose(lam, row["lambda"], **tolerance)
        np.testing.assert_allclose(pendulum.exact_motion(row["t"]), row["q"], **tolerance)


def test_pendulum_motion_and_multiplier():
    # The constraint is held to 1e-12 at every step, or `simulate` raises.
    sol = swing(10.0, 1e-3, drift_tolerance=1e-12)
    q, v, lam = pendulum_truth(sol.t)
    np.testing.assert_allclose(sol.q, q, atol=1e-9)
    np.testing.assert_allclose(sol.v, v, atol=1e-8)
    np.testing.assert_allclose(sol.multipliers[:, 0], lam, rtol=1e-6, atol=1e-8)


def test_pendulum_order():
    # Corrections fed back in every stage would give 1e-3, 1e-4, 8e-6, 1e-6 here, at order 3.
    steps = (1e-2, 5e-3, 2e-3, 1e-3)
    sols = [swing(20.0, dt) for dt in steps]
    errors = [pendulum_error(sol) for sol in sols]
    assert all(np.array(errors) < 2 * np.array([6e-7, 9e-8, 3e-9, 2e-10])), errors
    assert abs(order(steps, errors) - 4) < 0.2, errors
    # The violation is the local error of one step, for which round-off comes into sight at 1e-3.
    violations = [sol.phi_norm.max() for sol in sols]
    assert abs(order(steps[:3], violations[:3]) - 5) < 0.2, violations


def test_pendulum_drifts_without_correction():
    steps = (1e-2, 5e-3)
    sols = [swing(20.0, dt, correct=False) for dt in steps]
    errors = [pendulum_error(sol) for sol in sols]
    drifts = [sol.phi_norm.max() for sol in sols]
    assert abs(order(steps, errors) - 4) < 0.1 and errors[0] > 1e-4, errors
    assert abs(order(steps, drifts) - 4) < 0.1 and drifts[0] > 1e-4, drifts
    for sol in sols:
        assert sol.phi_norm[-1] > 1.9 * sol.phi_norm[len(sol.t) // 2]  # it accumulates


def test_pendulum_forgets_an_imperfect_start():
    corrected = swing(20.0, 1e-3, pendulum.imperfect_start)
    drifting = swing(20.0, 1e-3, pendulum.imperfect_start, correct=False, start_tolerance=0.1)
    assert corrected.phi_norm[0] > 1e-5
    assert corrected.phi_norm[1] < 1e-9  # the first step takes it back
    assert corrected.phi_norm[3:].max() < 1e-13
    assert corrected.phidot_norm[3:].max() < 1e-11
    assert drifting.phi_norm[-1] > 50 * drifting.phi_norm[0]


@pytest.mark.slow
def test_pendulum_over_1000_seconds():
    def run(start, correct=True, drift_tolerance=np.inf):
        enforcement = mbd.UdwadiaKalaba(correct=correct)
        system, start = pendulum.Pendulum(), start()
        return simulate(
            system, enforcement, start, 1000.0, 1e-3, 10, drift_tolerance=drift_tolerance
        )

    sol = run(pendulum.exact_start, drift_tolerance=1e-12)
    assert pendulum_error(sol) < 6e-8  # published: 3e-7
    assert sol.phi_norm.max() < 1e-14  # published: 1e-12
    assert run(pendulum.imperfect_start).phi_norm[1:].max() < 1e-14
    drifting = run(pendulum.exact_start, correct=False)
    assert 5e-3 < pendulum_error(drifting) < 5e-2
    assert drifting.phi_norm[-1] > 5e-5


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


def crank_run(t1, gravity=9.81, start=slider_crank.exact_start, **options):
    system = slider_crank.SliderCrank(gravity=gravity)
    return simulate(system, mbd.UdwadiaKalaba(), start(), t1, 1e-3, every=50, **options)


def test_slider_crank_truth(shared):
    for variant in reference(shared, "bg_slider_crank")["variants"]:
        if variant["link_mass"] == "uniform":
            truth = crank_truth(10.0, variant["g"])
            for row in variant["reference"]:
                if row["t"] <= 10:
                    expected = row["theta"], row["omega"]
                    np.testing.assert_allclose(truth(row["t"]), expected, atol=1e-9)


def test_slider_crank_through_singular_configurations():
    for gravity in (9.81, 0.0):
        sol = crank_run(5.0, gravity, drift_tolerance=1e-15)
        theta, omega = crank_truth(5.0, gravity)(np.asarray(sol.t))
        assert theta[-1] > 4 * np.pi  # rank 2 at pi/2 + k pi: four passages at least
        np.testing.assert_allclose(sol.q[:, 2], theta, atol=1e-8)
        np.testing.assert_allclose(sol.q[:, 3], -theta, atol=1e-8)  # the branch is kept
        np.testing.assert_allclose(sol.v[:, 2], omega, atol=1e-7)
        np.testing.assert_allclose(sol.v[:, 3], -omega, atol=1e-7)
        assert sol.phi_norm.max() < 1e-15
        assert sol.phidot_norm.max() < 1e-12


def test_slider_crank_forgets_an_inconsistent_start():
    sol = crank_run(5.0, start=slider_crank.inconsistent_start, start_tolerance=0.1)
    assert sol.phi_norm[0] > 1e-2
    assert sol.phi_norm[1:].max() < 1e-14
    assert sol.q[-1, 2] > 4 * np.pi
    np.testing.assert_allclose(sol.q[1:, 3], -sol.q[1:, 2], atol=1e-12)


@pytest.mark.slow
def test_slider_crank_over_100_seconds():
    sol = crank_run(100.0, drift_tolerance=1e-15)
    theta, _ = crank_truth(100.0)(np.asarray(sol.t))
    slider = slider_crank.slider_position(np.asarray(sol.q))
    assert np.abs(slider - 2 * np.cos(theta)).max() < 4.4e-8  # as published
    exact = slider_crank.exact_motion(slider_crank.SliderCrank(), 100.0)(sol.t)
    np.testing.assert_allclose(exact, theta, atol=1e-9)


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


def test_four_bars_truth(shared):
    data = reference(shared, "bg_two_four_bar")
    for row in data["reference"]:
        # Over 100 s, DOP853 loses about three digits of the angle.
        theta, omega = bars_truth(100.0)(row["t"])
        np.testing.assert_allclose([theta, omega], [row["theta"], row["omega"]], atol=1e-9)
        q, v = bars_state(theta, omega)
        np.testing.assert_allclose(q, row["q"], atol=1e-9)
        np.testing.assert_allclose(v, row["v"], atol=1e-8)
        np.testing.assert_allclose(two_four_bars.exact_motion(row["t"]), row["theta"], atol=1e-12)
    published = data["published"]["EXUDYN fourBarMechanismIftomm.py, t = 10 s, h = 1.25e-4"]
    q, v = bars_state(*bars_truth(100.0)(10.0))
    np.testing.assert_allclose(q[:2], published["B0 position"], atol=2e-6)
    np.testing.assert_allclose(v[:2], published["B0 velocity"], atol=2e-6)


def test_four_bars_through_singular_configurations():
    # The same number of steps each, 1000: one compilation.
    sols = {dt: bars_run(1000 * dt, dt) for dt in (1e-2, 5e-3, 1e-3)}
    coarse = sols[1e-2]  # 10 s: five turns, ten passages through rank 3
    theta, omega = bars_truth(100.0)(np.asarray(coarse.t))
    assert theta[-1] > 10 * np.pi
    q, v = bars_state(theta, omega)
    np.testing.assert_allclose(coarse.q, q, atol=2e-4)
    np.testing.assert_allclose(coarse.v, v, atol=2e-3)
    # Parallel cranks throughout: the other branches of the singular pose are not taken.
    np.testing.assert_allclose(
        coarse.q[:, 2:4] - coarse.q[:, 0:2], q[:, 2:4] - q[:, 0:2], atol=1e-7
    )
    assert coarse.phi_norm.max() < 1e-8
    assert sols[1e-3].phi_norm.max() < 1e-13
    assert x3_error(sols[1e-3]) < 1e-9  # over 1 s, through the first passage
    steps = (1e-2, 5e-3)
    assert order(steps, [x3_error(sols[dt], 5.0) for dt in steps]) > 3.8


def test_four_bars_forget_an_inconsistent_start():
    sol = bars_run(10.0, 1e-2, two_four_bars.inconsistent_start)
    assert sol.phi_norm[0] > 1e-2
    assert sol.phi_norm[100:].max() < 1e-8
    assert sol.phi_norm[-200:].max() < 2 * sol.phi_norm[100:300].max()


@pytest.mark.slow
def test_four_bars_over_100_seconds():
    # Published: 1e-2 and 1e-7, to one digit.
    assert x3_error(bars_run(100.0, 1e-2)) < 1.2e-2
    fine = bars_run(100.0, 1e-3)
    assert x3_error(fine) < 1.5e-7
    assert x3_error(fine, 10.0) < 5e-9
    assert fine.phi_norm.max() < 1e-13


# --- biped --------------------------------------------------------------------------------------


class Anatomy:
    """The biped's points as literal sums of segments, for real or complex q."""

    L, M, g = 1.8, 75.0, 9.81
    l1, l2, l3, l4 = 0.288 * L, 0.245 * L, 0.246 * L, 0.152 * L
    bodies = (
        (0.678 * M, 0.496 * l1),
        *2 * ((0.1 * M, 0.323 * l2), (0.0465 * M, 0.302 * l3), (0.0145 * M, 0.475 * l4)),
    )

    def along(self, angle):
        return np.array([np.cos(angle), np.sin(angle)])

    def points(self, q):
        """Centres of mass (7, 2), and (heel, toe) of either leg."""
        centres, feet = [q[:2]], []
        hip = q[:2] - 0.626 * self.l1 * self.along(q[2])
        for thigh, shank, foot in (q[3:6], q[6:9]):
            knee = hip - self.l2 * self.along(thigh)
            ankle = knee - self.l3 * self.along(shank)
            sole = ankle + 0.039 * self.L * np.array([np.sin(foot), -np.cos(foot)])
            centres.append(hip - 0.433 * self.l2 * self.along(thigh))
            centres.append(knee - 0.433 * self.l3 * self.along(shank))
            centres.append(ankle + 0.25 * self.l4 * self.along(foot))
            feet.append(sole - 0.25 * self.l4 * self.along(foot))
            feet.append(sole + 0.75 * self.l4 * self.along(foot))
        return np.array(centres), feet

    def constraint(self, exercise, q, t):
        centres, (heel_f, toe_f, heel_b, toe_b) = self.points(q)
        bend = 1 - np.cos((2 * np.pi / 5 if exercise == 3 else np.pi) * t)
        knees = np.array([q[3] - q[4], q[6] - q[7]])
        upper_body = q[2] - 4 * np.pi / 9
        if exercise == 1:
            contacts = [toe_f[0] - 0.507, toe_f[1], heel_f[1]]
            contacts += [toe_b[0] + 0.097, toe_b[1], heel_b[1]]
            return np.array([*contacts, upper_body, *(knees - np.pi * bend / [6, 10])])
        if exercise == 2:
            contacts = [heel_f[0] - 0.262, heel_f[1], toe_b[0] + 0.038, toe_b[1]]
            lifts = [q[5] - np.pi / 9 + np.pi / 18 * bend, q[8] + np.pi / 18 * bend]
            return np.array([*contacts, upper_body, *lifts, knees[0], knees[1] - np.pi * bend / 10])
        masses = np.array([mass for mass, _ in self.bodies])
        lifts = q[[5, 8]] + np.pi / 27 * bend
        balance = masses @ centres[:, 0] / self.M
        return np.array([*toe_f, *toe_b, upper_body, *(knees - np.pi / 3 * bend), *lifts, balance])

    def solve(self, exercise, q, t):
        """The nearest q that satisfies the constraints, by Gauss-Newton."""
        for _ in range(20):
            J = derivative(lambda q: self.constraint(exercise, q, t), q)
            q = q - np.linalg.lstsq(J, self.constraint(exercise, q, t), rcond=1e-10)[0]
        return q

    def constraint_force(self, q, acceleration, angular_acceleration):
        """Virtual work of inertia and weight on each coordinate, from the accelerations of the
        centres of mass (7, 2) and of the angles (7,)."""
        J = derivative(lambda q: self.points(q)[0], q)
        Qc = np.zeros(9)
        for k, (mass, radius) in enumerate(self.bodies):
            Qc += J[k].T @ (mass * (acceleration[k] + [0, self.g]))
            Qc[2 + k] += mass * radius**2 * angular_acceleration[k]
        return Qc


def derivative(fn, q, step=1e-30):
    """d fn / dq by complex steps, exact to round-off."""
    columns = [fn(q + 1j * step * e).imag / step for e in np.eye(len(q))]
    return np.stack(columns, axis=-1)


def time_slope(exercise, q, t, step=1e-30):
    """dPhi/dt by a complex step."""
    return ANATOMY.constraint(exercise, q, t + 1j * step).imag / step


def second_difference(x, h):
    """x'' at the inner points, error of order h^4."""
    return (-x[4:] + 16 * x[3:-1] - 30 * x[2:-2] + 16 * x[1:-3] - x[:-4]) / (12 * h**2)


ANATOMY = Anatomy()
PUBLISHED_RESIDUAL = {1: 5.2e-11, 2: 2.7e-11, 3: 1.6e-12}


def forces(q, h, i):
    """The generalised constraint force at the i-th of equidistant configurations."""
    near = q[i - 2 : i + 3]
    centres = np.array([ANATOMY.points(x)[0] for x in near])
    accelerations = second_difference(centres, h), second_difference(near[:, 2:], h)
    return ANATOMY.constraint_force(q[i], accelerations[0][0], accelerations[1][0])


def exercise_run(exercise, t1):
    system, printed, solver, _, _ = biped.EXERCISES[exercise - 1]
    q0 = ANATOMY.solve(exercise, np.array(printed), 0.0)
    start = mbd.State(0.0, q0, np.zeros(9))
    return simulate(system(), mbd.UdwadiaKalaba(solver), start, t1, 1e-2, start_tolerance=1e-12)


@pytest.mark.parametrize("exercise", [1, 2, 3])
def test_biped_truth(shared, exercise):
    for row in reference(shared, "bg_biped")["exercises"][exercise - 1]["reference"]:
        times = row["t"] + 1e-3 * np.arange(-2, 3)
        q = np.array([ANATOMY.solve(exercise, np.array(row["q"]), t) for t in times])
        np.testing.assert_allclose(q[2], row["q"], atol=1e-12)
        scale = np.abs(row["Qc"]).max()
        np.testing.assert_allclose(forces(q, 1e-3, 2), row["Qc"], atol=1e-6 * scale)


@pytest.mark.parametrize(
    "exercise, t1",
    [(1, 2.0), *(pytest.param(*x, marks=pytest.mark.slow) for x in ((2, 2.0), (3, 5.0)))],
)
def test_biped(exercise, t1):
    sol = exercise_run(exercise, t1)
    assert sol.phi_norm.max() < PUBLISHED_RESIDUAL[exercise]
    q, lam = np.asarray(sol.q), np.asarray(sol.multipliers)
    for i in range(2, len(q) - 2, 25):
        t = float(sol.t[i])
        np.testing.assert_allclose(q[i], ANATOMY.solve(exercise, q[i], t), atol=1e-9)
        J = derivative(lambda q, t=t: ANATOMY.constraint(exercise, q, t), q[i])
        # Nine independent rows on nine coordinates: the constraints alone fix the motion.
        assert np.linalg.matrix_rank(J, tol=1e-9) == 9
        np.testing.assert_allclose(J @ sol.v[i], -time_slope(exercise, q[i], t), atol=1e-10)
        Qc = forces(q, 1e-2, i)
        np.testing.assert_allclose(J.T @ lam[i], Qc, atol=1e-4 * np.abs(Qc).max())
        if exercise == 3:  # ten rows: of all multipliers those of least norm
            *_, Vt = np.linalg.svd(J.T)
            assert abs(Vt[-1] @ lam[i]) < 1e-8 * np.linalg.norm(lam[i])


@pytest.mark.slow
def test_biped_over_100_seconds():
    exercise = 3  # the one with dependent rows
    sol = exercise_run(exercise, 100.0)
    assert sol.phi_norm.max() < PUBLISHED_RESIDUAL[exercise]
    # The published residuals are, to their two digits, those of the velocities.
    assert sol.phidot_norm.max() < 1.2 * PUBLISHED_RESIDUAL[exercise]

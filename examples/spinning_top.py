"""A spinning top on its tip: steady precession, and the nutation of one that is let go.

A top of a disc and two stems spins about its axis with its tip at a fixed point. At the right rate
it precesses steadily, its tilt theta unchanged,

    A W^2 cos(theta) - C w W + m g l = 0,

where W is the rate of precession, w the spin about the axis, C the moment of inertia about it, A
the one across it about the tip, m the mass, and l the distance of its centre from the tip. Let go
with its axis at rest instead, it falls, and the axis rises again in cusps: the tilt swings between
those two at which the cubic of Lagrange's top vanishes.

Reference: Goldstein, Poole and Safko (2002), Classical Mechanics, section 5.7.

    python examples/spinning_top.py --output spinning_top.png
"""

import argparse
import pathlib

import diffrax
import jax
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import ellipk

import jaxmbd as mbd

GRAVITY = 9.81
TILT = 0.5  # of the axis from the vertical, at the start [rad]
SPIN = 120.0  # about the axis [rad/s]


def inertia():
    """In a frame with the tip at its origin and its axis along z."""
    return (
        mbd.Inertia.cylinder(radius=0.04, length=0.01, mass=0.12).moved([0, 0, 0.04])
        + mbd.Inertia.cylinder(radius=0.003, length=0.04, mass=0.01).moved([0, 0, 0.02])
        + mbd.Inertia.cylinder(radius=0.003, length=0.03, mass=0.007).moved([0, 0, 0.055])
    )


def spinning_top(precession):
    """In the plane y = 0, its axis turning about the vertical at `precession` [rad/s]."""
    axis = np.array([np.sin(TILT), 0, np.cos(TILT)])
    # The spin is all there is about the axis; the precession adds what lies across it.
    up = np.array([0, 0, 1.0])
    omega = SPIN * axis + precession * (up - np.cos(TILT) * axis)
    orientation = [np.cos(TILT / 2), 0, np.sin(TILT / 2), 0]
    top = mbd.Body("top", inertia(), orientation=orientation, angular_velocity=omega)
    tip = mbd.Spherical("tip", "ground", top, point=[0, 0, 0])
    return mbd.Mechanism([top], [tip], gravity=[0, 0, -GRAVITY])


def moments():
    """(A, C, m g l)."""
    top = inertia()
    about_tip = np.asarray(top.about([0, 0, 0]))
    return about_tip[0, 0], about_tip[2, 2], float(top.mass * top.center[2]) * GRAVITY


def steady_precession():
    """The slower of the two rates."""
    A, C, weight = moments()
    a, b = A * np.cos(TILT), C * SPIN
    return 2 * weight / (b + np.sqrt(b**2 - 4 * a * weight))


def nutation():
    """Largest tilt, and the period of the tilt, of a top whose axis starts at rest. With
    u = cos(tilt),

        u'^2 = (u0 - u) (beta (1 - u^2) - b^2 (u0 - u)),    b = C w / A,  beta = 2 m g l / A,

    whose roots u1 < u0 < u2 give the period 4 K(k) / sqrt(beta (u2 - u1))."""
    A, C, weight = moments()
    b, beta, u0 = C * SPIN / A, 2 * weight / A, np.cos(TILT)
    u1, u2 = np.sort(np.roots([beta, -(b**2), b**2 * u0 - beta]))
    period = 4 * ellipk((u0 - u1) / (u2 - u1)) / np.sqrt(beta * (u2 - u1))
    return np.arccos(u1), period


def run(precession, t1, dt=1e-4, every=5):
    """Times, tilt and azimuth of the axis, and the solution."""
    mechanism = spinning_top(precession)
    saveat = diffrax.SaveAt(t0=True, steps=every)
    sol = mbd.simulate(
        mechanism, mbd.UdwadiaKalaba(), mechanism.state(), t1=t1, dt=dt, saveat=saveat
    )
    R = jax.vmap(mbd.rotations.quaternion_to_matrix)(mechanism.pose(sol.q, "top").orientation)
    axis = np.asarray(R[:, :, 2])
    tilt = np.arctan2(np.hypot(axis[:, 0], axis[:, 1]), axis[:, 2])
    azimuth = np.unwrap(np.arctan2(axis[:, 1], axis[:, 0]))
    return np.asarray(sol.t), tilt, azimuth, mechanism, sol


def peaks(t, x):
    """Times and values of the maxima, each of the parabola through the largest of three points."""
    i = np.flatnonzero((x[1:-1] > x[:-2]) & (x[1:-1] >= x[2:])) + 1
    slope, bend = (x[i + 1] - x[i - 1]) / 2, x[i + 1] - 2 * x[i] + x[i - 1]
    return t[i] - slope / bend * (t[1] - t[0]), x[i] - slope**2 / (2 * bend)


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/spinning_top.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=output, metavar="PNG")
    parser.add_argument("--seconds", type=float, default=3.0, help="of motion (%(default)s)")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    W = steady_precession()
    steady = run(W, arguments.seconds)
    t, tilt, azimuth, *_ = steady
    measured = (azimuth[-1] - azimuth[0]) / (t[-1] - t[0])
    print(f"steady precession: {measured:.9f} rad/s, formula {W:.9f} rad/s")
    print(f"  tilt                  {np.degrees(TILT):.4f} degrees, "
          f"changed by {np.abs(tilt - TILT).max():.1e} rad")  # fmt: skip

    falling = run(0.0, arguments.seconds)
    t, tilt, azimuth, mechanism, sol = falling
    lowest, period = nutation()
    times, tilts = peaks(t, tilt)
    measured = np.diff(times).mean()
    print(f"let go at rest: nutation period {1e3 * measured:.6f} ms, formula {1e3 * period:.6f} ms")
    print(f"  largest tilt          {np.degrees(tilts.mean()):.6f} degrees, "
          f"formula {np.degrees(lowest):.6f} degrees")  # fmt: skip
    audit = mbd.reports.audit(mechanism, sol)
    print(f"  energy                {np.ptp(audit.total):.1e} of {audit.total[0]:.4f} J")
    print(f"  vertical angular momentum {np.ptp(audit.angular_momentum[:, 2]):.1e} of "
          f"{audit.angular_momentum[0, 2]:.5f} kg m^2/s")  # fmt: skip
    print(f"  tip off its place     {sol.phi_norm.max():.1e} m")

    draw(steady, falling).savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")


def draw(steady, falling):
    figure = plt.figure(figsize=(11, 4.4), layout="constrained")
    path, history = figure.subplots(1, 2)
    for name, (t, tilt, azimuth, *_) in (("steady", steady), ("let go at rest", falling)):
        first = t < 1.0
        path.plot(np.sin(tilt) * np.cos(azimuth), np.sin(tilt) * np.sin(azimuth), lw=0.8,
                  label=name)  # fmt: skip
        history.plot(t[first], np.degrees(tilt[first]), lw=1, label=name)
    path.set(title="The axis from above", xlabel="x", ylabel="y")
    path.set_aspect("equal")
    history.set(title="Tilt", xlabel="t [s]", ylabel="[degrees]")
    for axis in (path, history):
        axis.legend(loc="upper right")
        axis.grid(alpha=0.3)
    return figure


if __name__ == "__main__":
    main()

"""Two four-bar linkages in natural coordinates, swung through their singularity for 100 s.

Three cranks of equal length, joined by two couplers, turn like one. When all five bars lie in one
line the constraints drop from rank 5 to rank 3, and for that instant three motions are possible.
The exact motion of the parallel cranks is theta'' = (7/6) (g/l) sin(theta), a Jacobi elliptic
function.

Reference: Braun and Goldfarb (2009), Eliminating constraint drift in the numerical simulation of
constrained dynamical systems, CMAME 198, section 5.3; also IFToMM benchmark A02.

    python examples/two_four_bars.py --output two_four_bars.png
"""

import argparse
import pathlib

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Array
from scipy.special import ellipj, ellipk

import jaxmbd as mbd


class TwoFourBars(mbd.AbstractSystem):
    """q = (x1, y1, x2, y2, x3, y3), the moving joints, y upwards; the pivots are at (0, 0),
    (l, 0) and (2 l, 0). The five bars are uniform.

    A uniform bar between points a and b has kinetic energy m (|a'|^2 + a'.b' + |b'|^2) / 6, and
    half its weight rests on either end.
    """

    length: Array = eqx.field(converter=jnp.asarray, default=1.0)
    mass: Array = eqx.field(converter=jnp.asarray, default=1.0)  # of each bar
    gravity: Array = eqx.field(converter=jnp.asarray, default=9.81)

    def mass_matrix(self, q):
        between_joints = np.array([[4, 1, 0], [1, 6, 1], [0, 1, 4]]) / 6
        return self.mass * jnp.asarray(np.kron(between_joints, np.eye(2)), q.dtype)

    def force(self, t, q, v, u):
        share = jnp.array([0, 1.0, 0, 1.5, 0, 1.0], q.dtype)
        return -self.mass * self.gravity * share

    def constraint(self, q, t):
        x1, y1, x2, y2, x3, y3 = q
        squares = jnp.stack(
            [
                x1**2 + y1**2,
                (x2 - self.length) ** 2 + y2**2,
                (x3 - 2 * self.length) ** 2 + y3**2,
                (x2 - x1) ** 2 + (y2 - y1) ** 2,
                (x3 - x2) ** 2 + (y3 - y2) ** 2,
            ]
        )
        return squares - self.length**2


def exact_motion(t, length=1.0, gravity=9.81, rate=1.0):
    """Crank angle theta at times t, from the upward vertical and clockwise, theta'(0) = `rate`.

    From the energy, theta'^2 = rate^2 + 2 a (1 - cos(theta)), a = 7 g / (6 l). Counted from the
    bottom, psi = theta - pi, this is psi'^2 = b^2 - 4 a sin(psi/2)^2 with b^2 = rate^2 + 4 a, so
    sin(psi/2) = sn(b (t - t_bottom) / 2 | 4 a / b^2), full turns.
    """
    a = 7 * gravity / (6 * length)
    b = np.sqrt(rate**2 + 4 * a)
    m = 4 * a / b**2
    quarter = ellipk(m)
    phase = b * np.asarray(t) / 2 - quarter
    turns = np.floor((phase + quarter) / (2 * quarter))
    sn, *_ = ellipj(phase - 2 * quarter * turns, m)
    return 2 * np.arcsin(sn) + np.pi + 2 * np.pi * turns


def exact_start():
    return mbd.State(0.0, [0.0, 1.0, 1.0, 1.0, 2.0, 1.0], [1.0, 0.0, 1.0, 0.0, 1.0, 0.0])


def inconsistent_start():
    """As the paper has it."""
    return mbd.State(0.0, [0.0, 1.01, 1.0, 1.01, 1.99, 1.0], [0.99, 0.0, 1.0, 0.0, 1.01, 0.0])


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/two_four_bars.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=output, metavar="PNG")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    def run(start, dt):
        return mbd.simulate(
            TwoFourBars(),
            mbd.UdwadiaKalaba(),
            start,
            t1=100.0,
            dt=dt,
            saveat=diffrax.SaveAt(t0=True, steps=1),
            start_tolerance=0.1,
            progress=diffrax.TqdmProgressMeter(),
        )

    coarse, fine = run(exact_start(), 1e-2), run(exact_start(), 1e-3)
    turns = exact_motion(100.0) / (2 * np.pi)
    print(f"RK4, 100 s: {turns:.1f} turns, {int(2 * turns + 0.5)} singular passages")
    for name, sol, published in (("1e-2", coarse, "1e-2"), ("1e-3", fine, "1e-7")):
        print(
            f"  dt = {name} s: error of x3 {x3_error(sol).max():.2e} m (published {published}), "
            f"|Phi| {sol.phi_norm.max():.1e} m^2"
        )
    inconsistent = run(inconsistent_start(), 1e-2)
    print(
        f"from the inconsistent start, dt = 1e-2 s: |Phi| {inconsistent.phi_norm[0]:.1e} m^2 "
        f"at first, at most {inconsistent.phi_norm[100:].max():.1e} m^2 after 1 s"
    )

    draw(coarse, fine, inconsistent).savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")


def x3_error(sol):
    return np.abs(np.asarray(sol.q)[:, 4] - 2 - np.sin(exact_motion(sol.t)))


def draw(coarse, fine, inconsistent):
    figure = plt.figure(figsize=(11, 8), layout="constrained")
    strobe, rank, accuracy, violation = figure.subplots(2, 2).flat

    pivots = np.array([[0, 0], [1, 0], [2, 0]])
    shown = np.flatnonzero((coarse.t > 95) & (coarse.t < 96.25))[::6]
    for index in shown:
        joints = np.asarray(coarse.q)[index].reshape(3, 2)
        colour = plt.cm.viridis((index - shown[0]) / (shown[-1] - shown[0]))
        strobe.plot(*joints.T, "o-", color=colour, ms=3, lw=1)
        for pivot, joint in zip(pivots, joints):
            strobe.plot(*np.stack([pivot, joint]).T, color=colour, lw=0.8)
    strobe.plot(*pivots.T, "k^", ms=7)
    strobe.set(title="95 s to 96.25 s, every 0.06 s", xlabel="x [m]", ylabel="y [m]")
    strobe.set_aspect("equal")

    period = np.asarray(fine.t) < 1.9425
    theta = exact_motion(np.asarray(fine.t)[period])
    singular_values = np.linalg.svd(jacobian(np.asarray(fine.q)[period]), compute_uv=False)
    rank.plot(np.degrees(theta), singular_values)
    rank.set(title="Singular values of J over one turn", xlabel="theta [degrees]")
    rank.set_xticks(range(0, 361, 90))
    for angle in (90, 270):
        rank.text(angle, -0.3, "rank 3", ha="center")
    rank.set_ylim(-0.5)

    for name, sol, published in (("dt = 1e-2 s", coarse, 1e-2), ("dt = 1e-3 s", fine, 1e-7)):
        worst = np.maximum.accumulate(x3_error(sol))
        (line,) = accuracy.loglog(sol.t[1:], worst[1:], label=name)
        accuracy.axhline(
            published, color=line.get_color(), ls=":", label=f"published, {published:.0e}"
        )
    accuracy.set(title="Largest error of x3 so far", xlabel="t [s]", ylabel="error [m]")
    accuracy.set_xlim(0.05, 100)
    accuracy.legend()

    violation.semilogy(inconsistent.t, inconsistent.phi_norm, lw=0.8, label="inconsistent start")
    violation.semilogy(coarse.t, np.asarray(coarse.phi_norm) + 1e-17, lw=0.8, label="exact start")
    violation.set(title="Violation at dt = 1e-2 s", xlabel="t [s]", ylabel="|Phi| [m$^2$]")
    violation.legend()
    for axis in (rank, accuracy, violation):
        axis.grid(alpha=0.3)
    return figure


def jacobian(q):
    """J at many configurations."""
    constraint = TwoFourBars().constraint
    return np.asarray(jax.vmap(jax.jacfwd(constraint), in_axes=(0, None))(jnp.asarray(q), 0.0))


if __name__ == "__main__":
    main()

"""Slider-crank with equal links, driven through its singular configuration for 100 s.

Two uniform bars of equal length and a slider on a horizontal line. When both bars are vertical,
the slider is above its support and the constraints lose a rank: there the mechanism could as well
go on turning about the support, with the slider standing still. The pseudoinverse passes through.
The exact motion is that of the crank angle alone, integrated by SciPy.

Reference: Braun and Goldfarb (2009), Eliminating constraint drift in the numerical simulation of
constrained dynamical systems, CMAME 198, section 5.2.

    python examples/slider_crank.py --output slider_crank.png
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
from scipy.integrate import solve_ivp

import jaxmbd as mbd


class SliderCrank(mbd.LagrangianSystem):
    """q = (x, y, theta1, theta2): the support point, and the angles of crank and rod,
    counterclockwise from the horizontal."""

    length: Array = eqx.field(converter=jnp.asarray, default=1.0)
    mass: Array = eqx.field(converter=jnp.asarray, default=1.0)  # of each bar
    slider_mass: Array = eqx.field(converter=jnp.asarray, default=1.0)
    torque: Array = eqx.field(converter=jnp.asarray, default=20.0)  # on the crank
    damping: Array = eqx.field(converter=jnp.asarray, default=5.0)  # of the crank's bearing
    gravity: Array = eqx.field(converter=jnp.asarray, default=9.81)

    def points(self, q):
        """Centres of crank and rod, and the slider; shape (3, 2)."""
        x, y, theta1, theta2 = q
        support = jnp.stack([x, y])
        crank = self.length * jnp.stack([jnp.cos(theta1), jnp.sin(theta1)])
        rod = self.length * jnp.stack([jnp.cos(theta2), jnp.sin(theta2)])
        return jnp.stack([support + crank / 2, support + crank + rod / 2, support + crank + rod])

    def masses(self):
        return jnp.stack([self.mass, self.mass, self.slider_mass])

    def kinetic_energy(self, q, v):
        _, velocity = jax.jvp(self.points, (q,), (v,))
        inertia = self.mass * self.length**2 / 12
        translation = self.masses() @ jnp.sum(velocity**2, axis=1)
        return translation / 2 + inertia * (v[2] ** 2 + v[3] ** 2) / 2

    def potential_energy(self, q):
        return self.gravity * self.masses() @ self.points(q)[:, 1]

    def dissipation(self, q, v):
        return self.damping * v[2] ** 2 / 2

    def generalised_force(self, t, q, v, u):
        return jnp.array([0.0, 0.0, self.torque, 0.0])

    def constraint(self, q, t):
        x, y, _, _ = q
        return jnp.stack([x, y, self.points(q)[2, 1]])


def exact_motion(system: SliderCrank, t1: float):
    """The crank angle theta as a function of time from rest at theta = 0, with theta2 = -theta,

        mu(theta) theta'' + mu'(theta) theta'^2 / 2 = torque - damping theta' - m g l cos(theta),

    where mu theta'^2 / 2 is the kinetic energy. Error about 1e-10."""
    length, m, slider, torque, damping, g = (
        float(x)
        for x in (
            system.length,
            system.mass,
            system.slider_mass,
            system.torque,
            system.damping,
            system.gravity,
        )
    )

    def rates(t, y):
        theta, omega = y
        s, c = np.sin(theta), np.cos(theta)
        mu = length**2 * (m * (1 / 4 + 1 / 6 + (9 * s**2 + c**2) / 4) + slider * 4 * s**2)
        slope = length**2 * (4 * m + 8 * slider) * s * c
        moment = torque - damping * omega - m * g * length * c
        return [omega, (moment - slope * omega**2 / 2) / mu]

    motion = solve_ivp(rates, (0, t1), [0, 0], "DOP853", rtol=1e-13, atol=1e-13, dense_output=True)
    return lambda t: motion.sol(np.asarray(t))[0]


def exact_start():
    return mbd.State(0.0, [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0])


def inconsistent_start():
    """As the paper has it."""
    return mbd.State(0.0, [1e-3, 1e-2, 1e-3, 1e-2], [1e-3, 1e-2, 1e-3, 1e-2])


def slider_position(q):
    """Horizontal position, for bars of unit length."""
    return q[..., 0] + np.cos(q[..., 2]) + np.cos(q[..., 3])


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/slider_crank.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=output, metavar="PNG")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    system, t1, dt = SliderCrank(), 100.0, 1e-3

    def run(start, enforcement):
        return mbd.simulate(
            system,
            enforcement,
            start,
            t1=t1,
            dt=dt,
            saveat=diffrax.SaveAt(t0=True, steps=10),
            start_tolerance=0.1,
            progress=diffrax.TqdmProgressMeter(),
            throw=False,
        )

    exact = run(exact_start(), mbd.UdwadiaKalaba())
    corrected = run(inconsistent_start(), mbd.UdwadiaKalaba())
    drifting = run(inconsistent_start(), mbd.UdwadiaKalaba(correct=False))

    theta = exact_motion(system, t1)(exact.t)
    error = np.abs(slider_position(np.asarray(exact.q)) - 2 * np.cos(theta))
    turns, passages = theta[-1] / (2 * np.pi), int(theta[-1] / np.pi + 0.5)
    print(f"RK4, dt = {dt} s, {t1:g} s: {turns:.1f} turns, {passages} singular passages")
    print(f"  slider error     {error.max():.2e} m (published 4.4e-8)")
    print(f"  |Phi|, |Phi'|    {exact.phi_norm.max():.1e} m, {exact.phidot_norm.max():.1e} m/s")
    print(f"  branch kept      |theta1 + theta2| = {np.abs(exact.q[:, 2:].sum(axis=1)).max():.1e}")
    print(f"from the inconsistent start: |Phi| after 0.1 s {corrected.phi_norm[10:].max():.1e} m,")
    print(f"  without correction {drifting.phi_norm.max():.1e} m")

    draw(exact, corrected, drifting, error).savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")


def draw(exact, corrected, drifting, error):
    figure = plt.figure(figsize=(11, 8), layout="constrained")
    strobe, slider, phi, accuracy = figure.subplots(2, 2).flat

    period = 1.861
    last = np.flatnonzero((exact.t > 97.5) & (exact.t < 97.5 + period))[::5]
    for index in last:
        x, y, theta1, theta2 = np.asarray(exact.q)[index]
        joints_x = x + np.cumsum([0, np.cos(theta1), np.cos(theta2)])
        joints_y = y + np.cumsum([0, np.sin(theta1), np.sin(theta2)])
        colour = plt.cm.viridis((index - last[0]) / (last[-1] - last[0]))
        strobe.plot(joints_x, joints_y, "o-", color=colour, ms=3, lw=0.8)
    strobe.plot([-2.2, 2.2], [0, 0], "k-", lw=0.5, zorder=0)
    strobe.set(title="One turn from t = 97.5 s, every 0.05 s", xlabel="x [m]", ylabel="y [m]")
    strobe.set_aspect("equal")

    first = np.asarray(exact.t) <= 10
    t = np.asarray(exact.t)[first]
    sigma = np.linalg.svd(jacobian(np.asarray(exact.q)[first]), compute_uv=False)[:, -1]
    slider.plot(t, slider_position(np.asarray(exact.q)[first]), label="slider position [m]")
    slider.plot(t, sigma, label="smallest singular value of J")
    slider.set(title="The first seconds: J loses a rank twice a turn", xlabel="t [s]")
    slider.set_ylim(-3.2, 2.2)
    slider.legend(loc="lower left")

    for name, sol in (("with correction (16)", corrected), ("without (17)", drifting)):
        phi.semilogy(sol.t, np.asarray(sol.phi_norm) + 1e-17, lw=0.8, label=name)
    phi.set(title="|Phi| from the inconsistent start", xlabel="t [s]", ylabel="|Phi| [m]")
    phi.legend()

    accuracy.semilogy(exact.t, error + 1e-17, lw=0.8)
    accuracy.axhline(4.4e-8, color="k", ls=":", label="published, 4.4e-8")
    accuracy.set(title="Slider error from the exact start", xlabel="t [s]", ylabel="error [m]")
    accuracy.set_ylim(1e-14)
    accuracy.legend()
    for axis in (slider, phi, accuracy):
        axis.grid(alpha=0.3)
    return figure


def jacobian(q):
    """J at many configurations."""
    constraint = SliderCrank().constraint
    return np.asarray(jax.vmap(jax.jacfwd(constraint), in_axes=(0, None))(jnp.asarray(q), 0.0))


if __name__ == "__main__":
    main()

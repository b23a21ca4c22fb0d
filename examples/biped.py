"""Seven-link biped that tracks its trajectories by constraints: three exercises of 100 s.

Ground contacts and prescribed joint motions are rows of the same Phi(q, t); the constraint forces
are then the ground reactions and the joint torques that the exercise needs. The third exercise
has ten rows on nine coordinates.

Reference: Braun and Goldfarb (2009), Eliminating constraint drift in the numerical simulation of
constrained dynamical systems, CMAME 198, section 5.4 and table 1 (body data after Winter 1990).
What the paper leaves to its figure 7 is completed so that its printed initial states fit.

    python examples/biped.py --output biped.png
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

import jaxmbd as mbd

# Upper body, thigh, shank, foot (table 1 of the paper): length of the body's height; distance of
# the centre of mass from the upper joint (of the foot: ahead of the ankle) and radius of gyration,
# both of the segment's length; mass of the body's mass. Then, of the height, the sole below the
# ankle, and, of the foot's length, the heel behind the ankle.
LENGTH = np.array([0.288, 0.245, 0.246, 0.152])
CENTRE = np.array([0.626, 0.433, 0.433, 0.250])
GYRATION = np.array([0.496, 0.323, 0.302, 0.475])
MASS = np.array([0.678, 0.1, 0.0465, 0.0145])
SOLE, HEEL = 0.039, 0.25

SEGMENTS = np.array([0, 1, 2, 3, 1, 2, 3])  # upper body, forward leg, backward leg


def geometry():
    """Coefficients, in body heights, of the segments' unit vectors in the points of the body.

    Returns those of the seven centres of mass, shape (7, 7), and of hip, knee, ankle, heel and toe
    of either leg, shape (2, 5, 7); and those of the unit vectors across the segments in the
    latter, which only heel and toe have."""
    torso, *legs = np.split(np.eye(7), [1, 4])
    hip = -CENTRE[0] * LENGTH[0] * torso[0]
    centres, joints = [np.zeros(7)], []
    for thigh, shank, foot in legs:
        knee = hip - LENGTH[1] * thigh
        ankle = knee - LENGTH[2] * shank
        heel = ankle - HEEL * LENGTH[3] * foot
        toe = heel + LENGTH[3] * foot
        centres += [
            hip - CENTRE[1] * LENGTH[1] * thigh,
            knee - CENTRE[2] * LENGTH[2] * shank,
            ankle + CENTRE[3] * LENGTH[3] * foot,
        ]
        joints.append([hip, knee, ankle, heel, toe])
    below = np.zeros((2, 5, 7))
    for leg, (_, _, foot) in enumerate(legs):
        below[leg, 3:] = -SOLE * foot
    return np.array(centres), np.array(joints), below


CENTRES_ALONG, JOINTS_ALONG, JOINTS_ACROSS = geometry()


class Biped(mbd.LagrangianSystem):
    """q = (x, y, theta, theta1 ... theta6): centre of mass of the upper body, and the angles,
    counterclockwise from the horizontal, of upper body, forward thigh, shank and foot, and
    backward thigh, shank and foot. Legs point upwards, from ankle to hip; a flat foot has angle 0.

    Every point of the body is (x, y) plus a constant combination of the segments' unit vectors.
    """

    height: Array = eqx.field(converter=jnp.asarray, default=1.8)
    mass: Array = eqx.field(converter=jnp.asarray, default=75.0)
    gravity: Array = eqx.field(converter=jnp.asarray, default=9.81)

    def centres(self, q):
        """Centres of mass of the seven segments, shape (7, 2)."""
        along = jnp.stack([jnp.cos(q[2:]), jnp.sin(q[2:])], axis=1)
        return jnp.asarray(CENTRES_ALONG) @ along * self.height + q[None, :2]

    def joints(self, q):
        """Hip, knee, ankle, heel and toe of the forward and the backward leg, (2, 5, 2)."""
        c, s = jnp.cos(q[2:]), jnp.sin(q[2:])
        along, across = jnp.stack([c, s], axis=1), jnp.stack([-s, c], axis=1)
        points = jnp.asarray(JOINTS_ALONG) @ along + jnp.asarray(JOINTS_ACROSS) @ across
        return points * self.height + q[None, None, :2]

    def masses(self):
        return self.mass * jnp.asarray(MASS[SEGMENTS])

    def inertias(self):
        radii = self.height * jnp.asarray((LENGTH * GYRATION)[SEGMENTS])
        return self.masses() * radii**2

    def kinetic_energy(self, q, v):
        _, velocity = jax.jvp(self.centres, (q,), (v,))
        translation = self.masses() @ jnp.sum(velocity**2, axis=1)
        return (translation + self.inertias() @ v[2:] ** 2) / 2

    def potential_energy(self, q):
        return self.gravity * self.masses() @ self.centres(q)[:, 1]


UPPER_BODY = 4 * np.pi / 9


class StandingExercise(Biped):
    """Knee bends in a stride, both feet flat on the ground."""

    VERTICAL, KNEE = (1, 2, 4, 5), 7  # rows of the vertical contacts and of the forward knee

    def constraint(self, q, t):
        (*_, heel_f, toe_f), (*_, heel_b, toe_b) = self.joints(q)
        bend = 1 - jnp.cos(np.pi * t)
        return jnp.stack(
            [
                toe_f[0] - 0.507,
                toe_f[1],
                heel_f[1],
                toe_b[0] + 0.097,
                toe_b[1],
                heel_b[1],
                q[2] - UPPER_BODY,
                q[3] - q[4] - np.pi / 6 * bend,
                q[6] - q[7] - np.pi / 10 * bend,
            ]
        )


class RollingExercise(Biped):
    """Standing on the forward heel and the backward toe, while both feet and a knee move."""

    VERTICAL, KNEE = (1, 3), 7

    def constraint(self, q, t):
        (*_, heel_f, _), (*_, toe_b) = self.joints(q)
        bend = 1 - jnp.cos(np.pi * t)
        return jnp.stack(
            [
                heel_f[0] - 0.262,
                heel_f[1],
                toe_b[0] + 0.038,
                toe_b[1],
                q[2] - UPPER_BODY,
                q[5] - np.pi / 18 * (2 - bend),
                q[8] + np.pi / 18 * bend,
                q[3] - q[4],
                q[6] - q[7] - np.pi / 10 * bend,
            ]
        )


class BalancingExercise(Biped):
    """Deep knee bends on the toes, parallel legs, the centre of mass above the toes: ten rows."""

    VERTICAL, KNEE = (1, 3), 5

    def constraint(self, q, t):
        (*_, toe_f), (*_, toe_b) = self.joints(q)
        bend = 1 - jnp.cos(2 * np.pi / 5 * t)
        return jnp.stack(
            [
                *toe_f,
                *toe_b,
                q[2] - UPPER_BODY,
                q[3] - q[4] - np.pi / 3 * bend,
                q[6] - q[7] - np.pi / 3 * bend,
                q[5] + np.pi / 27 * bend,
                q[8] + np.pi / 27 * bend,
                self.masses() @ self.centres(q)[:, 0] / self.mass,
            ]
        )


# Initial configurations as printed, to three digits, and constraint residuals as published. The
# upper body of the third start is printed at 1.363, in conflict with the angle prescribed for it.
# Independent rows take the fastest solver, redundant ones need a rank-revealing one.
EXERCISES = (
    (
        StandingExercise,
        [0.056, 1.220, 1.396, 1.920, 1.920, 0.0, 1.222, 1.222, 0.0],
        mbd.Cholesky(),
        2.0,
        5.2e-11,
    ),
    (
        RollingExercise,
        [0.056, 1.239, 1.396, 1.920, 1.920, 0.349, 1.292, 1.292, 0.0],
        mbd.Cholesky(),
        2.0,
        2.7e-11,
    ),
    (
        BalancingExercise,
        [0.046, 1.252, 1.396, 1.363, 1.363, 0.0, 1.363, 1.363, 0.0],
        mbd.Pseudoinverse(),
        5.0,
        1.6e-12,
    ),
)


def perform(biped, q, solver, t1, dt=1e-2, progress=diffrax.NoProgressMeter()):
    """The exercise from the consistent start nearest to q, by RK4."""
    return mbd.simulate(
        biped,
        mbd.UdwadiaKalaba(solver),
        mbd.assemble(biped, q),
        t1=t1,
        dt=dt,
        saveat=diffrax.SaveAt(t0=True, steps=1),
        progress=progress,
    )


def newton_mismatch(biped, sol):
    """Largest difference between the vertical ground reaction from the multipliers and Newton's
    second law for the centre of mass, with central differences of its height."""
    heights = jax.vmap(biped.centres)(sol.q)[:, :, 1] @ biped.masses()
    dt = sol.t[1] - sol.t[0]
    inertia_force = (heights[2:] - 2 * heights[1:-1] + heights[:-2]) / dt**2
    reaction = sol.multipliers[1:-1, jnp.array(biped.VERTICAL)].sum(axis=1)
    return jnp.max(jnp.abs(reaction - inertia_force - biped.mass * biped.gravity))


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/biped.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=output, metavar="PNG")
    parser.add_argument("--seconds", type=float, default=100.0)
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    figure = plt.figure(figsize=(12, 8), layout="constrained")
    axes = figure.subplots(2, 3, gridspec_kw={"height_ratios": [3, 2]})
    for (exercise, q, solver, period, published), column in zip(EXERCISES, axes.T):
        biped = exercise()
        meter = diffrax.TqdmProgressMeter()
        sol = perform(biped, q, solver, arguments.seconds, progress=meter)
        lam = np.asarray(sol.multipliers)
        contact, knee = lam[:, biped.VERTICAL].sum(axis=1), lam[:, biped.KNEE]
        print(f"{exercise.__name__}: {lam.shape[1]} rows, {len(q)} coordinates")
        print(
            f"  residuals |Phi| {sol.phi_norm.max():.1e}, |Phi'| {sol.phidot_norm.max():.1e} "
            f"(published {published:.1e})"
        )
        print(
            f"  vertical ground reaction {contact.min():.1f} to {contact.max():.1f} N, "
            f"Newton's law for the centre of mass within {newton_mismatch(biped, sol):.1e} N"
        )
        print(f"  torque of the forward knee {knee.min():.1f} to {knee.max():.1f} N m")
        draw(biped, sol, period, column)
    figure.savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")


def draw(biped, sol, period, axes):
    strobe, forces = axes
    first = np.asarray(sol.t) <= period
    shown = np.flatnonzero(np.asarray(sol.t) <= period / 2)[:: max(1, int(period * 5))]
    for index in shown:
        joints, theta = np.asarray(biped.joints(sol.q[index])), sol.q[index, 2]
        hip = joints[0, 0]
        head = hip + LENGTH[0] * biped.height * np.array([np.cos(theta), np.sin(theta)])
        colour = plt.cm.viridis(index / shown[-1])
        strobe.plot(*np.stack([hip, head]).T, color=colour, lw=1.5)
        for leg, style in zip(joints, ("-", "--")):
            strobe.plot(*leg[[0, 1, 2, 3, 4, 2]].T, style, color=colour, lw=0.9)
    strobe.axhline(0, color="k", lw=0.8, zorder=0)
    name = type(biped).__name__.removesuffix("Exercise").lower()
    strobe.set(title=f"{name}, half a period", xlabel="x [m]", ylabel="y [m]", aspect="equal")

    lam, t = np.asarray(sol.multipliers)[first], np.asarray(sol.t)[first]
    forces.plot(t, lam[:, biped.VERTICAL].sum(axis=1), "C0")
    forces.axhline(float(biped.mass * biped.gravity), color="C0", ls=":", lw=1)
    forces.set_ylabel("vertical ground reaction [N]", color="C0")
    forces.set(title="One period (dotted: weight)", xlabel="t [s]", ylim=(680, 820))
    torque = forces.twinx()
    torque.plot(t, lam[:, biped.KNEE], "C1")
    torque.set_ylabel("torque of the forward knee [N m]", color="C1")
    torque.set_ylim(-150, 20)
    forces.grid(alpha=0.3)


if __name__ == "__main__":
    main()

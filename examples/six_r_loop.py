"""A ring of six equal links that turns inside out for ever, though by counting it cannot move.

Six links of equal length, six hinges, each at right angles to the next, turned left and right by
turns: a threefold symmetric Bricard linkage. Six hinges take away 30 freedoms of the five links
that are free, so that the count leaves none. But the geometry makes one row redundant, and the
angles theta of hinges 1, 3, 5 and phi of hinges 2, 4, 6 move along the closed curve

    cos(theta / 2) cos(phi / 2) = 1 / 2.

One link is held; the others are set in motion and left alone. The truth is the one freedom: with
the kinetic energy mu s'^2 / 2 of a speed s' along the curve, s' = sqrt(2 E / mu).

Reference: Chen, You and Tarnai (2005), Threefold-symmetric Bricard linkages for deployable
structures, International Journal of Solids and Structures 42 (the geometry).

    python examples/six_r_loop.py --output six_r_loop.png
"""

import argparse
import pathlib

import diffrax
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from scipy.integrate import solve_ivp

import jaxmbd as mbd

LENGTH = 0.25  # of each link [m]
START = (0.5, 2 * np.arccos(0.5 / np.cos(0.25)))  # (theta, phi)
SPEED = 4.0  # along the curve, at the start [rad/s]

ORIGIN = np.zeros(3)
STRAIGHT = np.array([1.0, 0, 0, 0])
LEFT, RIGHT = (np.sqrt(0.5) * np.array([1.0, sign, 0, 0]) for sign in (1, -1))


def link(name, **motion):
    """Its frame lies at its first hinge, with the x axis along it."""
    inertia = mbd.Inertia.box(size=[LENGTH, 0.03, 0.03], mass=0.5).moved([LENGTH / 2, 0, 0])
    return mbd.Body(name, inertia, **motion)


def far_end(i):
    """The frame of the next hinge on link i, at its end, a quarter turn about the link away."""
    return mbd.Pose(np.array([LENGTH, 0, 0]), LEFT if i % 2 == 0 else RIGHT)


def near_end():
    """The frame of its own hinge on each link: that of the link."""
    return mbd.Pose(ORIGIN, STRAIGHT)


def links(angles):
    """Poses of the six links for (theta, phi), the first hinge being at the origin."""
    place, poses = near_end(), []
    for i in range(6):
        half = angles[i % 2] / 2
        turn = jnp.stack([jnp.cos(half), 0 * half, 0 * half, jnp.sin(half)])
        poses.append(place.compose(mbd.Pose(jnp.asarray(ORIGIN), turn)))
        place = poses[-1].compose(far_end(i))
    return poses


def along_the_curve(angles):
    """Unit tangent (theta', phi') of the curve."""
    theta, phi = angles
    slope = jnp.stack([-jnp.tan(phi / 2), jnp.tan(theta / 2)])
    return slope / jnp.linalg.norm(slope)


def twists(angles, rate):
    """Of the links, for rates of the angles."""
    poses, rates = jax.jvp(links, (angles,), (rate,))
    found = []
    for (_, (w, *xyz)), (velocity, (dw, *dxyz)) in zip(poses, rates):
        # omega = 2 p' p*, the vector part.
        xyz, dxyz = jnp.stack(xyz), jnp.stack(dxyz)
        found.append(mbd.Twist(velocity, 2 * (w * dxyz - dw * xyz - jnp.cross(dxyz, xyz))))
    return found


@jax.jit
def starting(angles):
    """Poses and twists of the links."""
    return links(angles), twists(angles, SPEED * along_the_curve(angles))


def six_r_loop():
    """The last link is the ground."""
    poses, velocities = starting(np.array(START))
    bodies = [
        link(
            f"link {i + 1}",
            position=pose.position,
            orientation=pose.orientation,
            velocity=twist.linear,
            angular_velocity=twist.angular,
        )
        for i, (pose, twist) in enumerate(zip(poses[:5], velocities))
    ]
    names = ["ground", *(body.name for body in bodies), "ground"]
    starts = [near_end(), *(far_end(i) for i in range(5))]
    ends = [near_end()] * 5 + [poses[5]]
    joints = [
        mbd.Revolute(f"hinge {i + 1}", names[i], names[i + 1], frame_a=starts[i], frame_b=ends[i])
        for i in range(6)
    ]
    return mbd.Mechanism(bodies, joints, gravity=[0, 0, 0])


def exact_motion(t):
    """(theta, phi) at times t, shape (2, ns), from the one freedom; error about 1e-10."""
    body = link("like all")

    def energy(angles, rate):
        pairs = zip(links(angles)[:5], twists(angles, rate))
        return sum(body.kinetic_energy(pose, twist) for pose, twist in pairs)

    angles = jnp.array(START)
    total = SPEED**2 * energy(angles, along_the_curve(angles))

    @jax.jit
    def rates(t, angles):
        tangent = along_the_curve(angles)
        return jnp.sqrt(total / energy(angles, tangent)) * tangent

    span = (0.0, float(t[-1]))
    motion = solve_ivp(rates, span, START, "DOP853", np.asarray(t), rtol=1e-12, atol=1e-12)
    return motion.y


def run(t1, dt=2e-3, every=5, **options):
    mechanism = six_r_loop()
    saveat = diffrax.SaveAt(t0=True, steps=every)
    sol = mbd.simulate(
        mechanism, mbd.UdwadiaKalaba(), mechanism.state(), t1=t1, dt=dt, saveat=saveat, **options
    )
    hinges = [mechanism.joint_coordinates(sol.q, f"hinge {i}")[:, 0] for i in range(1, 7)]
    return mechanism, sol, np.stack(hinges)


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/six_r_loop.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=output, metavar="PNG")
    parser.add_argument("--seconds", type=float, default=6.0, help="of motion (%(default)s)")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    print(mbd.reports.mobility(six_r_loop()))
    mechanism, sol, hinges = run(arguments.seconds, progress=diffrax.TqdmProgressMeter())
    theta, phi = hinges[0], hinges[1]
    exact = exact_motion(sol.t)
    around = np.unwrap(np.arctan2(phi, theta))
    audit = mbd.reports.audit(mechanism, sol)
    print(f"{sol.t[-1]:g} s, {abs(around[-1] - around[0]) / (2 * np.pi):.1f} times inside out:")
    print(f"  open joints, |Phi|                   {sol.phi_norm.max():.1e}")
    symmetry = np.abs(hinges.reshape(3, 2, -1) - hinges[:2]).max()
    print(f"  hinges 1, 3, 5 and 2, 4, 6 alike     {symmetry:.1e} rad")
    curve = np.abs(np.cos(theta / 2) * np.cos(phi / 2) - 0.5).max()
    print(f"  distance from the curve              {curve:.1e}")
    print(f"  angles from those of the one freedom {np.abs(hinges[:2] - exact).max():.1e} rad")
    print(f"  energy                               {np.ptp(audit.total):.1e} of "
          f"{audit.total[0]:.3f} J")  # fmt: skip

    draw(sol, hinges, exact).savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")


def draw(sol, hinges, exact):
    figure = plt.figure(figsize=(12, 4.2), layout="constrained")
    ring = figure.add_subplot(131, projection="3d")
    curve, error = figure.add_subplot(132), figure.add_subplot(133)
    round_once = np.arctan2(hinges[1], hinges[0])
    for k, at in enumerate(np.linspace(-np.pi, np.pi / 3, 4)):
        i = np.argmin(np.abs(round_once - at))
        corners = [pose.position for pose in links(jnp.asarray(hinges[:2, i]))]
        ring.plot(*np.transpose([*corners, corners[0]]), "o-", ms=3, color=plt.cm.viridis(k / 3))
    ring.set(title="Four poses of the ring")
    ring.set_aspect("equal")
    curve.plot(*np.degrees(hinges[:2]), lw=1)
    curve.set(title="Hinge angles", xlabel="theta [degrees]", ylabel="phi [degrees]")
    curve.set_aspect("equal")
    error.semilogy(sol.t, np.abs(hinges[0] - exact[0]) + 1e-17, label="theta from the exact [rad]")
    error.semilogy(sol.t, np.asarray(sol.phi_norm) + 1e-17, label="|Phi|")
    error.set(title="Errors", xlabel="t [s]")
    error.legend()
    for axis in (curve, error):
        axis.grid(alpha=0.3)
    return figure


if __name__ == "__main__":
    main()

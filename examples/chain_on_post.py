"""A closed chain of 100 links is thrown on a post.

Hinges close the chain to a ring, so 200 rows of joints and all contacts, with the post, the ground
and between links, are one system in each step. It is eliminated sparsely: its cost grows with the
links, and not with their cube. Motion is in a vertical plane.

While the ring flies, its centre of mass follows a parabola. Afterwards contacts take energy and add
none. Joints open by up to 2 mm at impacts, and are closed again by the next steps.

    python examples/chain_on_post.py --output chain_on_post.png
"""

import argparse
import pathlib

import diffrax
import jax
import matplotlib.pyplot as plt
import numpy as np

import jaxmbd as mbd

GRAVITY, FRICTION, STEP, EVERY = 9.81, 0.3, 2e-3, 5
LINKS, LENGTH, THICK, MASS = 100, 0.05, 0.024, 0.05
POST, HEIGHT = 0.08, 0.4  # radius and height of its axis
VELOCITY = np.array([-1.0, 0.0, 0.5])


def ring(links=LINKS):
    """Links in a circle above the post."""
    turn = 2 * np.pi / links * np.arange(links + 1)
    radius = LENGTH / (2 * np.sin(np.pi / links))
    nodes = radius * np.stack([np.cos(turn), 0 * turn, np.sin(turn)], axis=1)
    nodes = nodes + [0.3 * radius, 0.0, HEIGHT + POST + 0.02 + radius]
    inertia = mbd.Inertia.cylinder(radius=THICK / 2, length=LENGTH, mass=MASS)
    bodies = []
    for i in range(links):
        x, _, z = nodes[i + 1] - nodes[i]
        half = np.arctan2(x, z) / 2
        bodies.append(
            mbd.Body(
                f"{i}",
                inertia,
                position=(nodes[i] + nodes[i + 1]) / 2,
                orientation=[np.cos(half), 0.0, np.sin(half), 0.0],
                velocity=VELOCITY,
            )
        )
    joints = [
        mbd.Revolute(f"{i}", bodies[i - 1], bodies[i], point=nodes[i], axis=[0.0, 1.0, 0.0])
        for i in range(links)
    ]
    post = mbd.Pose(np.array([0.0, 0.0, HEIGHT]), np.array([1.0, 0.0, 0.0, 0.0]))
    capsule = mbd.Capsule(radius=THICK / 2, length=LENGTH)
    pieces = [("ground", mbd.HalfSpace()), ("ground", mbd.Sphere(POST), post)]
    contacts = mbd.contacts_among(
        [*pieces, *((body, capsule) for body in bodies)],
        law=mbd.ContactLaw(FRICTION),
        without=[(bodies[i - 1].name, bodies[i].name) for i in range(links)],
        pair_budget=8 * links,
        reach=0.02,
    )
    return mbd.Mechanism(
        bodies,
        joints,
        contacts=contacts,
        contact_budget=8 * links,
        plane=mbd.Plane(normal=[0.0, -1.0, 0.0], x_axis=[1.0, 0.0, 0.0]),
    )


def simulate(t1, links=LINKS):
    """Mechanism and motion."""
    mechanism = ring(links)
    return mechanism, mbd.simulate(
        mechanism,
        mbd.ContactImpulse(),
        mechanism.state(),
        t1=t1,
        dt=STEP,
        saveat=diffrax.SaveAt(steps=EVERY),
        throw=False,
    )


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/chain_on_post.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=output, metavar="PNG")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    mechanism = ring()
    sol = jax.jit(lambda: simulate(t1=1.0)[1])()
    print(f"result: {mbd.RESULTS[sol.result]}")
    energy = np.asarray(mbd.reports.audit(mechanism, sol).total)
    print(f"largest residual of contacts {sol.contact_residual[-1]:.1e} m/s")
    print(f"joints open by at most {np.max(sol.phi_norm):.1e} m")
    print(f"energy lost {energy[0] - energy[-1]:.1f} J of {energy[0]:.1f} J;", end=" ")
    print(f"largest gain between saved times {np.diff(energy).max():.1e} J")

    figure, axes = plt.subplots(1, 4, figsize=(10, 3), layout="constrained")
    for axis, t in zip(axes, (0.01, 0.35, 0.7, 1.0), strict=True):
        q = sol.q[round(t / (STEP * EVERY)) - 1]
        x, _, z = np.asarray(mechanism.pose_table(q))[:3]
        axis.add_patch(plt.Circle((0, HEIGHT), POST, color="0.6"))
        axis.axhline(0, color="0.4", linewidth=1)
        axis.plot([*x, x[0]], [*z, z[0]], ".-", color="#1d4ed8", markersize=3)
        axis.set(xlim=(-1.2, 1.2), ylim=(-0.1, 2.3), aspect="equal", title=f"t = {t:.2f} s")
    figure.savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")


if __name__ == "__main__":
    main()

"""A ball strikes a wall of boxes without mortar.

Boxes turn, slide and fall on each other, with several contact points a pair, and each step solves
Coulomb's law for all of them together. The boxes are rigid. Only pairs that are near each other are
looked at.

Whatever happens, the momentum of all bodies changes by gravity and by the forces of the ground
alone, and contacts add no energy.

    python examples/wall.py --output wall.png
"""

import argparse
import pathlib

import diffrax
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

import jaxmbd as mbd

GRAVITY, FRICTION, STEP = 9.81, 0.5, 2e-3
ROWS, COLUMNS, SIZE, MASS, JOINT = 5, 4, np.array([0.4, 0.2, 0.2]), 16.0, 0.005
RADIUS, HEAVY, SPEED = 0.3, 200.0, 6.0  # of the ball


def wall_and_ball(speed, rows=ROWS, columns=COLUMNS):
    """Rows of boxes, each on the joints of the row below, and a ball in front of the middle."""
    inertia = mbd.Inertia.box(size=SIZE, mass=MASS)
    boxes = []
    for row in range(rows):
        shift = (row % 2) / 2 - (columns - 1) / 2
        for i in range(columns - row % 2):
            place = [(SIZE[0] + JOINT) * (i + shift), 0.0, SIZE[2] * (row + 0.5)]
            boxes.append(mbd.Body(f"{row}.{i}", inertia, position=place))
    ball = mbd.Body(
        "ball",
        mbd.Inertia.sphere(radius=RADIUS, mass=HEAVY),
        position=[0.1, -SIZE[1] / 2 - RADIUS - 0.05, 0.6 * rows * SIZE[2]],
        velocity=jnp.stack([0 * speed, speed, 0 * speed]),
    )
    pieces = [("ground", mbd.HalfSpace()), *((box, mbd.Box(size=SIZE)) for box in boxes)]
    contacts = mbd.contacts_among(
        [*pieces, (ball, mbd.Sphere(RADIUS))],
        law=mbd.ContactLaw(FRICTION),
        pair_budget=6 * len(boxes),
        reach=0.05,
    )
    return mbd.Mechanism([*boxes, ball], contacts=contacts, contact_budget=20 * len(boxes))


def simulate(speed, t1, rows=ROWS, columns=COLUMNS):
    """Mechanism and motion, saved after every step."""
    mechanism = wall_and_ball(speed, rows, columns)
    return mechanism, mbd.simulate(
        mechanism,
        mbd.ContactImpulse(),
        mechanism.state(),
        t1=t1,
        dt=STEP,
        saveat=diffrax.SaveAt(steps=1),
        throw=False,
    )


def ground_impulses(mechanism, sol):
    """Of the ground on all bodies, in each step [N s]."""
    force = np.array(mbd.reports.contact_forces(mechanism, sol))
    force[np.asarray(sol.contact_pairs)[..., 0] != 0] = 0.0  # the ground is piece 0
    return STEP * force.sum(axis=1)


def faces(mechanism, q):
    """Corners of the faces of all boxes, `(faces, 4, 3)`."""
    corners = np.array(np.meshgrid(*[(-1, 1)] * 3, indexing="ij")).reshape(3, 8).T
    sides = [[0, 1, 3, 2], [4, 5, 7, 6], [0, 1, 5, 4], [2, 3, 7, 6], [0, 2, 6, 4], [1, 3, 7, 5]]
    found = []
    for body in mechanism.bodies[:-1]:
        x, p = mechanism.pose(q, body.name)
        turn = np.asarray(mbd.rotations.quaternion_to_matrix(p))
        found += list((np.asarray(x) + (corners * SIZE / 2) @ turn.T)[np.array(sides)])
    return np.array(found)


def show(axis, mechanism, q):
    """Boxes in colours by rows, and the ball."""
    boxes = faces(mechanism, q)
    rows = [int(body.name.split(".")[0]) for body in mechanism.bodies[:-1]]
    colors = plt.get_cmap("copper")(0.35 + 0.6 * np.repeat(rows, 6) / ROWS)
    u, w = np.meshgrid(np.linspace(0, 2 * np.pi, 25), np.linspace(0, np.pi, 13))
    x = np.stack([np.cos(u) * np.sin(w), np.sin(u) * np.sin(w), np.cos(w)], axis=-1)
    x = RADIUS * x + np.asarray(mechanism.pose(q, "ball").position)
    ball = np.stack([x[:-1, :-1], x[1:, :-1], x[1:, 1:], x[:-1, 1:]], axis=2).reshape(-1, 4, 3)
    colors = np.concatenate([colors, np.tile([[0.1, 0.3, 0.8, 1.0]], (len(ball), 1))])
    quads = np.concatenate([boxes, ball])
    axis.add_collection3d(Poly3DCollection(quads, facecolors=colors, edgecolors="k", lw=0.3))
    axis.set(xlim=(-1.3, 1.5), ylim=(-1.0, 2.4), zlim=(0, 1.2))
    axis.set_box_aspect((2.8, 3.4, 1.2), zoom=1.35)
    axis.view_init(18, -50)
    axis.axis("off")


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/wall.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=output, metavar="PNG")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    mechanism = wall_and_ball(jnp.asarray(SPEED))
    sol = jax.jit(lambda speed: simulate(speed, t1=1.2)[1])(jnp.asarray(SPEED))
    print(f"result: {mbd.RESULTS[sol.result]}")
    print(f"largest residual of all steps: {sol.contact_residual[-1]:.1e} m/s")
    audit = mbd.reports.audit(mechanism, sol)
    weight = GRAVITY * (MASS * (len(mechanism.bodies) - 1) + HEAVY)
    given = ground_impulses(mechanism, sol)[1:] - [0, 0, STEP * weight]
    wrong = np.abs(np.diff(audit.momentum, axis=0) - given).max()
    print(f"momentum of the ball {HEAVY * SPEED:.0f} N s, error in a step {wrong:.1e} N s")
    energy = np.asarray(audit.total)
    print(f"energy lost {energy[0] - energy[-1]:.0f} J of {energy[0]:.0f} J;", end=" ")
    print(f"largest gain of a step {np.diff(energy).max():.1e} J")

    figure, axes = plt.subplots(
        1, 3, figsize=(10, 3), layout="constrained", subplot_kw=dict(projection="3d")
    )
    for axis, t in zip(axes, (0.02, 0.3, 0.8), strict=True):
        show(axis, mechanism, sol.q[round(t / STEP) - 1])
        axis.set_title(f"t = {t:.2f} s", y=0.95)
    figure.savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")


if __name__ == "__main__":
    main()

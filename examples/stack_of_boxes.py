"""A ball knocks a box out of a stack, and how friction moves the box that was on it.

At first the stack stands, each box under the weight of those above it. A ball without friction
hits the second box from above in the middle and pushes it out. While that slides beneath the top
box, friction pulls this one with mu g, whatever the speed of the ball: n steps of h after the
impact it has moved by

    x = mu g h^2 (1 + 2 + ... + n),    dx / dmu = x / mu,

until it tips and falls, for which there is no closed form: there the derivative is compared with a
difference quotient.

    python examples/stack_of_boxes.py --output stack_of_boxes.png
    python examples/stack_of_boxes.py --animation stack_of_boxes.gif
"""

import argparse
import pathlib

import diffrax
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxmbd as mbd

GRAVITY, SIDE, RADIUS, MASS = 9.81, 0.2, 0.06, 1.0
COUNT, FRICTION, SPEED, GAP, STEP = 4, 0.3, 4.0, 0.05, 2e-3


def stack_and_ball(friction, speed, count=COUNT):
    """Boxes "1", "2", ... from below, and a ball beside the second one from above."""
    inertia = mbd.Inertia.box(size=[SIDE] * 3, mass=MASS)
    boxes = [mbd.Body(f"{i + 1}", inertia, position=[0, 0, SIDE * (i + 0.5)]) for i in range(count)]
    # Upwards by as much as it falls until it hits, so that it hits the middle.
    rise = GRAVITY * GAP / (2 * SPEED)
    ball = mbd.Body(
        "ball",
        mbd.Inertia.sphere(radius=RADIUS, mass=MASS),
        position=[-SIDE / 2 - RADIUS - GAP, 0, SIDE * (count - 1.5)],
        velocity=jnp.stack([speed, 0 * speed, rise * speed / SPEED]),
    )
    cube, sphere = mbd.Box(size=[SIDE] * 3), mbd.Sphere(RADIUS)
    pieces = [("ground", mbd.HalfSpace()), *((box, cube) for box in boxes)]
    contacts = mbd.contacts_among(pieces, law=mbd.ContactLaw(friction))
    contacts.append(mbd.Contact("ground-ball", "ground", ball, mbd.HalfSpace(), sphere))
    contacts += [mbd.Contact(f"ball-{box.name}", ball, box, sphere, cube) for box in boxes]
    return mbd.Mechanism([*boxes, ball], contacts=contacts, gravity=[0, 0, -GRAVITY])


def simulate(friction, speed, t1, count=COUNT):
    """Mechanism and motion, saved after every step."""
    mechanism = stack_and_ball(friction, speed, count)
    return mechanism, mbd.simulate(
        mechanism,
        mbd.ContactImpulse(),
        mechanism.state(),
        t1=t1,
        dt=STEP,
        saveat=diffrax.SaveAt(steps=1),
        throw=False,
    )


def loads(mechanism, sol):
    """Normal forces [N] at the end, from the ground and of each box on the next one."""
    force, owner = np.asarray(sol.contact_force)[-1, :, 0], np.asarray(mechanism.contact_names)
    boxes = [body.name for body in mechanism.bodies[:-1]]
    below = ["ground", *boxes]
    return [force[owner == f"{a}-{b}"].sum() for a, b in zip(below, boxes, strict=False)]


def top_box(friction, speed, t1, count=COUNT):
    """Its position along x [m] after each step."""
    mechanism, sol = simulate(friction, speed, t1, count)
    return mechanism.pose(sol.q, f"{count}").position[:, 0]


def sensitivity(friction, speed, t1, count=COUNT):
    """The same, and its derivative with respect to friction."""
    return jax.jvp(
        lambda friction: top_box(friction, speed, t1, count), (friction,), (jnp.ones(()),)
    )


def pulled(steps):
    """What the top box has moved so many steps after the impact, by its closed form [m]."""
    return FRICTION * GRAVITY * STEP**2 * steps * (steps + 1) / 2


# The last step before the one in which the ball arrives.
BEFORE = int(GAP / SPEED / STEP)


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/stack_of_boxes.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=output, metavar="PNG")
    parser.add_argument("--animation", type=pathlib.Path, metavar="GIF")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    mechanism = stack_and_ball(FRICTION, jnp.asarray(SPEED))
    run = jax.jit(lambda friction, speed: simulate(friction, speed, t1=1.0)[1])
    mu, speed = jnp.asarray(FRICTION), jnp.asarray(SPEED)
    rest = run(mu, 0 * speed)
    print("box   load [N]   weight of it and those above [N]   moved in 1 s [m]")
    for i, load in enumerate(loads(mechanism, rest)):
        moved = mechanism.pose(rest.q, f"{i + 1}").position - jnp.array([0, 0, SIDE * (i + 0.5)])
        weight = (COUNT - i) * MASS * GRAVITY
        print(f"{i + 1:3d} {load:10.5f} {weight:20.5f} {jnp.max(jnp.abs(moved)):26.1e}")

    sol = run(mu, speed)
    print(f"throw: {'successful' if sol.result == mbd.RESULTS.successful else sol.result}")
    # The gap closes in one step, the impact is in the next one; friction acts in both, under the
    # weight of one box and on that of two.
    struck = mechanism.twist(sol.v, f"{COUNT - 1}").linear[BEFORE + 1, 0]
    ideal = SPEED / 2 - 3 * FRICTION * GRAVITY * STEP
    print(f"struck box after the impact: {struck:.6f} m/s, by its closed form {ideal:.6f} m/s")

    x, slope = jax.jit(lambda friction: sensitivity(friction, speed, t1=0.2))(mu)
    eps = 1e-6
    ahead, back = (
        mechanism.pose(run(mu + e, speed).q, f"{COUNT}").position[:, 0] for e in (eps, -eps)
    )
    difference = (ahead - back) / (2 * eps)
    print("   t [s]   top box at [m]   closed form   d / d friction [m]   by differences")
    for n in (1, 5, 10, 40, 80):
        k = BEFORE + n - 1
        exact = f"{pulled(n):.9f}" if n <= 10 else "     -     "
        print(f"{sol.t[k]:8.3f} {x[k]:16.9f} {exact:>13s} {slope[k]:20.9f} {difference[k]:16.9f}")

    figure, axes = plt.subplots(2, 3, figsize=(10, 5.4), layout="constrained")
    for axis, t in zip(axes.ravel(), (0.0, 0.1, 0.2, 0.3, 0.4, 1.0), strict=True):
        k = max(0, round(t / STEP) - 1)
        mbd.plots.draw(mechanism, sol.q[k], axis, plane="xz", labels=False, frames=False)
        axis.set(xlim=(-0.4, 1.4), ylim=(-0.1, 1.0), title=f"t = {t:.1f} s")
    figure.savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")
    if arguments.animation:
        mbd.plots.animate(mechanism, sol, arguments.animation, plane="xz", speed=0.3)
        print(f"animation: {arguments.animation}")


if __name__ == "__main__":
    main()

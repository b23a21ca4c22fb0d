"""A ball that is thrown, bounces, slides and rolls.

Each bounce returns e of the vertical velocity, and friction turns slip into spin: at the first one
the impulse mu (1 + e) v_n acts against the slip, unless two sevenths of the slip stop it before.
From the last bounce on it slides until it rolls. Impacts are located within the steps, so times
and heights are those of the closed form

    t_k = sqrt(2 H / g) (1 + 2 e + ... + 2 e^(k-1)),    H_k = e^(2 k) H,

with H the height of fall, and so are their derivatives with respect to restitution.

    python examples/bouncing_ball.py --output bouncing_ball.png
"""

import argparse
import pathlib

import diffrax
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxmbd as mbd

GRAVITY, RADIUS, HEIGHT = 9.81, 0.1, 1.0
SPEED, FRICTION, RESTITUTION = 2.0, 0.15, 0.7


def thrown_ball(restitution):
    """At the height HEIGHT above where it lands, thrown along x without spin."""
    ball = mbd.Body(
        "ball",
        mbd.Inertia.sphere(radius=RADIUS, mass=0.5),
        position=[0, 0, HEIGHT + RADIUS],
        velocity=[SPEED, 0, 0],
    )
    floor = mbd.Contact(
        "floor",
        "ground",
        ball,
        mbd.HalfSpace(),
        mbd.Sphere(RADIUS),
        friction=FRICTION,
        restitution=restitution,
    )
    return mbd.Mechanism([ball], contacts=[floor], gravity=[0, 0, -GRAVITY])


def throw(restitution, t1=4.0, dt=1e-2):
    """Mechanism and motion, saved after every step."""
    mechanism = thrown_ball(restitution)
    method = mbd.ContactImpulse(impacts=mbd.Located(4))
    sol = mbd.simulate(
        mechanism, method, mechanism.state(), t1=t1, dt=dt, saveat=diffrax.SaveAt(steps=1)
    )
    return mechanism, sol


def bounces(count):
    """Times of the impacts, and heights of the flights after them."""
    fall, powers = np.sqrt(2 * HEIGHT / GRAVITY), RESTITUTION ** np.arange(1, count + 1)
    times = fall * (1 + 2 * np.concatenate([[0.0], np.cumsum(powers)[:-1]]))
    return times, HEIGHT * powers**2


def first_bounce():
    """Velocity along x after the first impact: sliding friction, or what it takes to roll."""
    slide = FRICTION * (1 + RESTITUTION) * np.sqrt(2 * GRAVITY * HEIGHT)
    return SPEED - min(slide, 2 / 7 * SPEED)


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/bouncing_ball.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=output, metavar="PNG")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    mechanism, sol = throw(RESTITUTION)
    t = np.asarray(sol.t)
    x, _, z = np.asarray(mechanism.pose(sol.q, "ball").position).T
    twist = mechanism.twist(sol.v, "ball")
    speed, spin = np.asarray(twist.linear)[:, 0], np.asarray(twist.angular)[:, 1]
    times, heights = bounces(5)
    print("bounce   time [s]   height after it [m]   simulated [m]   speed after it [m/s]")
    for k in range(4):
        flight = (t > times[k]) & (t < times[k + 1])
        # The top of the parabola through the states of the flight, whichever they are.
        i = np.flatnonzero(flight)[0]
        top = z[i] - RADIUS + np.asarray(twist.linear)[i, 2] ** 2 / (2 * GRAVITY)
        print(f"{k + 1:4d}   {times[k]:10.6f} {heights[k]:16.9f} {top:19.9f} {speed[i]:15.6f}")
    print(f"speed after the first impact, by its closed form: {first_bounce():.6f} m/s")

    def end(restitution):
        mechanism, sol = throw(restitution, t1=1.5)
        return mechanism.pose(sol.q, "ball").position[-1, 2]

    e = jnp.asarray(RESTITUTION)
    slope = jax.grad(end)(e)
    difference = (end(e + 1e-6) - end(e - 1e-6)) / 2e-6
    print(f"d height(1.5 s) / d restitution: {slope:.6f} m, by differences {difference:.6f} m")

    figure, (path, speeds) = plt.subplots(2, 1, figsize=(8, 6.5), layout="constrained")
    path.plot(x, z)
    path.axhline(0.0, color="k", lw=0.8)
    path.set(title="Path of the centre", xlabel="x [m]", ylabel="z [m]")
    speeds.plot(t, speed, label="speed along x")
    speeds.plot(t, RADIUS * spin, label="radius times spin")
    for time in times:
        speeds.axvline(time, color="k", lw=0.5, alpha=0.3)
    speeds.set(title="From sliding to rolling", xlabel="t [s]", ylabel="[m/s]")
    speeds.legend()
    for axis in (path, speeds):
        axis.grid(alpha=0.3)
    figure.savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")


if __name__ == "__main__":
    main()

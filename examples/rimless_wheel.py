"""A wheel of spokes without a rim walks down a slope: the simplest walker.

On each spoke it tips over like a pendulum turned upside down, until the next spoke strikes the
ground, plastically, and leaves a part of its speed:

    w+ = eta w-,    eta = (cos(2 a) + k^2) / (1 + k^2),

with 2 a the angle between the spokes and k the radius of gyration over their length l. Each step
down the slope c gains the energy m g 2 l sin(a) sin(c), so from strike to strike

    w-^2 -> eta^2 w-^2 + 4 g sin(a) sin(c) / (l (1 + k^2)),

which settles at a steady walk from wherever it has the speed to get over the spokes. The wheel
here is a body in an upright plane, with the ends of its spokes as contact points and friction;
nothing of the above is told to it. The slope is then sought on which it walks a given way,
by Newton's method with derivatives through all strikes.

Reference: McGeer (1990), Passive dynamic walking, Int. J. Robotics Research 9, section 3.

    python examples/rimless_wheel.py --output rimless_wheel.png
"""

import argparse
import pathlib

import diffrax
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxmbd as mbd

GRAVITY, LENGTH, MASS, SPOKES = 9.81, 0.5, 2.0, 8
HALF = np.pi / SPOKES  # half the angle between spokes
SLOPE, FRICTION, START, STEP, GOAL = 0.12, 1.2, 1.8, 2e-3, 4.0
INERTIA = np.array([0.11, 0.2, 0.11])  # about x, y (the axle), z


def wheel(slope, rate=START):
    """Standing on two spokes, in axes along the slope, and turning downhill at `rate` [rad/s]."""
    angles = 2 * HALF * np.arange(SPOKES) + HALF
    ends = [[LENGTH * np.sin(angle), 0.0, LENGTH * np.cos(angle)] for angle in angles]
    height = LENGTH * np.cos(HALF)
    # About the spokes in front: they are the ones that carry it on.
    arm = np.array([-LENGTH * np.sin(HALF), 0.0, height])
    body = mbd.Body(
        "wheel",
        mbd.Inertia(MASS, INERTIA),
        position=[0, 0, height],
        velocity=np.cross([0, rate, 0], arm),
        angular_velocity=[0, rate, 0],
    )
    shape = mbd.shapes.ConvexPoints(np.array(ends))
    ground = mbd.Contact("ground", "ground", body, mbd.HalfSpace(), shape, friction=FRICTION)
    gravity = GRAVITY * jnp.stack([jnp.sin(slope), 0 * slope, -jnp.cos(slope)])
    upright = mbd.Plane(normal=[0, -1, 0])
    return mbd.Mechanism([body], contacts=[ground], gravity=gravity, plane=upright)


def walk(slope, t1=4.0, dt=STEP):
    """Mechanism and motion, saved after every step."""
    mechanism = wheel(jnp.asarray(slope))
    sol = mbd.simulate(
        mechanism,
        mbd.ContactImpulse(impacts=mbd.Located(2)),
        mechanism.state(),
        t1=t1,
        dt=dt,
        saveat=diffrax.SaveAt(steps=1),
    )
    return mechanism, sol


def way(slope, t1=4.0, dt=STEP):
    """How far down the slope the wheel gets [m]."""
    mechanism, sol = walk(slope, t1, dt)
    return mechanism.pose(sol.q, "wheel").position[-1, 0]


def rates(slope, count):
    """Before the first strikes and after them [rad/s], by the closed form."""
    k2 = INERTIA[1] / (MASS * LENGTH**2)
    eta = (np.cos(2 * HALF) + k2) / (1 + k2)
    gain = 4 * GRAVITY * np.sin(HALF) * np.sin(slope) / (LENGTH * (1 + k2))
    before, rate = [], START
    for _ in range(count):
        before.append(np.sqrt(rate**2 + gain))
        rate = eta * before[-1]
    return np.array(before), eta * np.array(before)


def strikes(mechanism, sol):
    """Times of the strikes, and rates at the ends of the steps before and after."""
    rate = np.asarray(mechanism.twist(sol.v, "wheel").angular)[:, 1]
    k = np.flatnonzero(np.diff(rate) < -0.1 * np.abs(rate[:-1]))
    return np.asarray(sol.t)[k], rate[k], rate[k + 1]


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/rimless_wheel.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=output, metavar="PNG")
    parser.add_argument("--animation", type=pathlib.Path, metavar="GIF", help="write an animation")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    mechanism, sol = walk(SLOPE)
    times, before, after = strikes(mechanism, sol)
    expected = rates(SLOPE, len(times))
    print("strike   time [s]   rate before and after [rad/s]   closed form")
    for k, row in enumerate(zip(times, before, after, *expected, strict=True)):
        print("{:4d}   {:10.3f} {:13.4f} {:8.4f} {:15.4f} {:8.4f}".format(k + 1, *row))

    print(f"which slope takes it {GOAL} m down in 4 s?")
    derivative = jax.jit(lambda slope: jax.jvp(way, (slope,), (jnp.ones_like(slope),)))
    slope = jnp.asarray(SLOPE)
    for _ in range(4):
        value, slope_of_way = derivative(slope)
        print(f"  slope {slope:.6f}: {value:.6f} m, derivative {slope_of_way:.4f} m/rad")
        slope = slope + (GOAL - value) / slope_of_way

    figure, axis = plt.subplots(figsize=(8, 4.5), layout="constrained")
    axis.plot(sol.t, mechanism.twist(sol.v, "wheel").angular[:, 1])
    axis.plot(times, expected[0], "k.", label="before and after strikes, closed form")
    axis.plot(times, expected[1], "k.")
    axis.set(title="A rimless wheel walks down a slope", xlabel="t [s]", ylabel="rate [rad/s]")
    axis.legend()
    axis.grid(alpha=0.3)
    figure.savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")
    if arguments.animation is not None:
        mbd.plots.animate(mechanism, sol, arguments.animation, plane="xz")
        print(f"animation: {arguments.animation}")


if __name__ == "__main__":
    main()

"""Toe and camber of a wheel on two wishbones over its travel, and how high to mount the tie rod.

The front left wheel of a car, in space. Each wishbone turns about its axis on the chassis and holds
the upright by a ball joint, and a tie rod holds the steering arm of the upright. While the wheel
moves up and down, the end of the tie rod should move on the arc that upright and wishbones ask for;
where it does not, the wheel steers. This bump steer depends on the height of the inner end of the
tie rod above all. `kinematics` moves the wheel, with derivatives of toe by that height, and Gauss
and Newton's method finds the height with the least bump steer. For each height the tie rod is cut
to the length that gives no toe at rest, as in a workshop.

A tie rod between two ball joints would turn freely about itself. So one of them is a universal
joint, with both arms of its cross across the rod. The truth to compare with is a construction by
circles and spheres.

    python examples/double_wishbone.py --output double_wishbone.png
"""

import argparse
import functools
import pathlib

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import brentq

import jaxmbd as mbd
from jaxmbd.analysis import kinematics

# Places at rest [m]: x forwards, y to the left, z upwards, the origin amidst the axle on the road.
LOWER_AXIS = np.array([[0.16, 0.38, 0.21], [-0.20, 0.36, 0.20]])
UPPER_AXIS = np.array([[0.10, 0.44, 0.45], [-0.14, 0.43, 0.43]])
LOWER_BALL, UPPER_BALL = np.array([0.01, 0.70, 0.19]), np.array([-0.02, 0.66, 0.47])
OUTER, INNER = np.array([-0.13, 0.69, 0.26]), np.array([-0.10, 0.36, 0.25])  # of the tie rod
WHEEL, SPINDLE = np.array([0.0, 0.76, 0.31]), np.array([0.0, 1.0, 0.0])  # centre and axis
TRAVEL = np.linspace(-0.06, 0.06, 25)  # of the centre of the wheel [m]
FORWARDS = np.array([1.0, 0.0, 0.0])


def suspension(height):
    """In the pose at rest, with the inner end of the tie rod at a height [m]."""
    inner = jnp.stack([INNER[0], INNER[1], height])
    any_inertia = mbd.Inertia(1.0, [1.0, 1.0, 1.0])  # kinematics needs no masses
    lower = mbd.Body("lower wishbone", any_inertia, position=LOWER_AXIS.mean(axis=0))
    upper = mbd.Body("upper wishbone", any_inertia, position=UPPER_AXIS.mean(axis=0))
    upright = mbd.Body("upright", any_inertia, position=WHEEL)
    rod = mbd.Body("tie rod", any_inertia, position=inner)

    def hinge(name, wishbone, ends):
        along = (ends[0] - ends[1]) / np.linalg.norm(ends[0] - ends[1])
        return mbd.Revolute(name, "ground", wishbone, point=ends.mean(axis=0), axis=along)

    # The arm of the cross on the rod is at right angles to the rod and to the arm on the chassis.
    across = jnp.cross(OUTER - inner, FORWARDS)
    cross = FORWARDS, across / jnp.linalg.norm(across)
    joints = [
        hinge("lower hinge", lower, LOWER_AXIS),
        hinge("upper hinge", upper, UPPER_AXIS),
        mbd.Spherical("lower ball", lower, upright, point=LOWER_BALL),
        mbd.Spherical("upper ball", upper, upright, point=UPPER_BALL),
        mbd.Universal("inner end", "ground", rod, point=inner, axes=cross),
        mbd.Spherical("outer end", rod, upright, point=OUTER),
    ]
    return mbd.Mechanism([lower, upper, upright, rod], joints)


def alignment(spindle):
    """Toe and camber [rad] from the axis of the wheel, outwards, shape (..., 3). Toe is positive
    where the wheel points towards the car, camber where its top leans outwards."""
    x, y, z = jnp.moveaxis(jnp.asarray(spindle), -1, 0)
    return jnp.arctan2(x, y), -jnp.arctan2(z, jnp.hypot(x, y))


def moved(height, travel=TRAVEL):
    """Toe and camber over the travel, shapes (n,); and whether each pose was reached."""
    mechanism = suspension(height)

    def wheel_height(q):
        return mechanism.pose(q, "upright").position[2]

    heights = WHEEL[2] + travel
    found = kinematics(mechanism, mechanism.state(), wheel_height, heights, throw=False)
    return *alignment(mechanism.pose(found.q, "upright").direction(SPINDLE)), found.ok


# A short run: the compiler would take longer to optimise it than it lasts.
@functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
@jax.vmap
def curves(height):
    """Of each height: toe, camber, whether reached; and the derivative of toe by the height."""

    def twice(height):
        toe, *others = moved(height)
        return toe, (toe, *others)

    slope, (toe, camber, reached) = jax.jacfwd(twice, has_aux=True)(height)
    return toe, camber, reached, slope


def by_circles(height, travel=TRAVEL):
    """Toe and camber again, without the library. The lower ball joint moves on a circle; the upper
    one is where another circle meets a sphere around it; the end of the tie rod is where three
    spheres meet, and these three points carry the wheel."""
    inner = np.array([INNER[0], INNER[1], height])
    arms = UPPER_BALL - LOWER_BALL, OUTER - LOWER_BALL
    sizes = [np.linalg.norm(x) for x in (*arms, OUTER - UPPER_BALL, OUTER - inner)]

    def arc(ball, ends):
        """Centre, radius at rest, and the direction in which the ball joint then moves up."""
        along = (ends[0] - ends[1]) / np.linalg.norm(ends[0] - ends[1])
        centre = ends[1] + along * (along @ (ball - ends[1]))
        return centre, ball - centre, np.cross(ball - centre, along)

    def frame(low, high, outer):
        x = (high - low) / np.linalg.norm(high - low)
        z = np.cross(x, outer - low)
        z /= np.linalg.norm(z)
        return np.stack([x, np.cross(z, x), z], axis=1)

    def sphere_point(centres, radii):
        """Where three spheres meet, on the side of the outer end at rest."""
        a, b, c = centres
        R = frame(a, b, c)
        d, e, f = (b - a) @ R[:, 0], (c - a) @ R[:, 0], (c - a) @ R[:, 1]
        r, s, t = np.square(radii)
        x = (r - s + d * d) / (2 * d)
        y = (r - t + e * e + f * f - 2 * e * x) / (2 * f)
        rest = frame(LOWER_BALL, UPPER_BALL, inner)[:, 2] @ (OUTER - LOWER_BALL)
        return a + R @ [x, y, np.sign(rest) * np.sqrt(r - x * x - y * y)]

    def upright(angle):
        """Its turning since rest, and the centre of the wheel."""
        centre, out, up = arc(LOWER_BALL, LOWER_AXIS)
        low = centre + np.cos(angle) * out + np.sin(angle) * up
        # |centre + cos(b) out + sin(b) up - low| = size
        centre, out, up = arc(UPPER_BALL, UPPER_AXIS)
        off = centre - low
        c, s, rest = 2 * off @ out, 2 * off @ up, sizes[0] ** 2 - off @ off - out @ out
        bends = np.arctan2(s, c) + np.array([-1, 1]) * np.arccos(rest / np.hypot(c, s))
        bends = (bends + np.pi) % (2 * np.pi) - np.pi
        bend = bends[np.argmin(np.abs(bends - angle))]
        high = centre + np.cos(bend) * out + np.sin(bend) * up
        outer = sphere_point((low, high, inner), sizes[1:])
        R = frame(low, high, outer) @ frame(LOWER_BALL, UPPER_BALL, OUTER).T
        return R, low + R @ (WHEEL - LOWER_BALL)

    def spindle(rise):
        def left(angle):
            return upright(angle)[1][2] - WHEEL[2] - rise

        return upright(brentq(left, -0.4, 0.4, xtol=1e-14))[0] @ SPINDLE

    return alignment(np.stack([spindle(rise) for rise in travel]))


def least_bump_steer(height, iterations=4):
    """The height of the inner end [m] that makes the squares of toe over the travel least."""
    for _ in range(iterations):
        toe, _, _, slope = (x[0] for x in curves(jnp.full(3, height)))
        print(f"  {1e3 * height:8.3f} mm   toe {np.degrees(rms(toe)):.4f} degrees rms", flush=True)
        height -= float(slope @ toe / (slope @ slope))
    return height


def rms(x):
    return np.sqrt(np.mean(np.square(x)))


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/double_wishbone.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=output, metavar="PNG")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    print(mbd.reports.mobility(suspension(INNER[2])))
    print("(the travel of the wheel)\n")
    print("in search of the height of the inner end:")
    best = least_bump_steer(INNER[2])
    heights = best + 0.01 * np.array([0.0, -1.0, 1.0])
    toe, camber, reached, slope = map(np.asarray, curves(heights))
    if not reached.all():
        raise SystemExit("The wheel did not reach the whole travel.")

    print(f"\nwith the inner end at {1e3 * best:.1f} mm:")
    print("  travel [mm]   toe [deg]   camber [deg]   toe by height [deg/mm]")
    for i in range(0, len(TRAVEL), 4):
        angles = np.degrees([toe[0, i], camber[0, i], 1e-3 * slope[0, i]])
        print("  {:11.0f}   {:+z9.4f}   {:+z12.4f}   {:+z22.5f}".format(1e3 * TRAVEL[i], *angles))
    truth = [np.stack(by_circles(height)) for height in heights]
    error = np.abs(np.stack([toe, camber], axis=1) - truth).max()
    above, below = (by_circles(best + step)[0] for step in (1e-5, -1e-5))
    print(f"against circles and spheres: error {error:.0e} rad, of the derivative "
          f"{np.abs(slope[0] - (above - below) / 2e-5).max():.0e} rad/m")  # fmt: skip
    draw(heights, toe, camber, slope).savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")


def draw(heights, toe, camber, slope):
    figure = plt.figure(figsize=(12, 4.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3, sharey=True)
    travel = 1e3 * TRAVEL
    for height, one, style in zip(heights, toe, ("-", "--", ":")):
        left.plot(np.degrees(one), travel, style, label=f"{1e3 * height:.1f} mm")
    left.legend(title="inner end at", loc="center right")
    left.set(title="Toe", xlabel="[degrees], in is positive", ylabel="travel of the wheel [mm]")
    middle.plot(np.degrees(camber[0]), travel)
    middle.set(title="Camber", xlabel="[degrees], outwards is positive")
    right.plot(np.degrees(1e-3 * slope[0]), travel)
    right.set(title="Toe by the height of the inner end", xlabel="[degrees/mm]")
    for axis in (left, middle, right):
        axis.grid(alpha=0.3)
    return figure


if __name__ == "__main__":
    main()

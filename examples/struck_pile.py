"""Where to strike a pile of balls so that the upper one ends at a place.

Three balls on the ground touch each other and carry a fourth. A fifth one rolls towards them. Where
it hits, and how fast, decides where the upper ball comes to rest, after impacts of all of
them on each other, sliding, rolling and the fall. The derivatives of that place are those of the
motion, in forward mode through all contacts, and Newton's method finds the strike that leads to the
wanted place:

    x(side, speed) = wanted,    (side, speed) <- (side, speed) + J^-1 (wanted - x)

with shorter steps where the distance would grow. Difference quotients stand beside the derivatives.

    python examples/struck_pile.py --output struck_pile.png
"""

import argparse
import pathlib

import diffrax
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxmbd as mbd

GRAVITY, RADIUS, MASS, GAP = 9.81, 0.1, 1.0, 0.02
FRICTION, ROLLING, STEP = 0.3, 3e-3, 2e-3
WANTED = np.array([0.06, 0.14])
FIRST = np.array([-0.06, 1.2])  # side [m] and speed [m/s] to begin with


def pile_and_ball(strike):
    """Balls "1", "2", "3" on the ground and "4" on them, and a ball that rolls along y."""
    side, speed = strike
    zero, inertia = 0 * side, mbd.Inertia.sphere(radius=RADIUS, mass=MASS)
    angles = np.pi / 2 + 2 * np.pi / 3 * np.arange(3)
    ring = 2 / np.sqrt(3) * np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    places = [*(ring + [0, 0, 1]), [0, 0, 1 + np.sqrt(8 / 3)]]
    balls = [
        mbd.Body(f"{i + 1}", inertia, position=RADIUS * np.array(place))
        for i, place in enumerate(places)
    ]
    start = -RADIUS * (2 + 1 / np.sqrt(3)) - GAP
    ball = mbd.Body(
        "ball",
        inertia,
        position=jnp.stack([side, zero + start, zero + RADIUS]),
        velocity=jnp.stack([zero, speed, zero]),
        angular_velocity=jnp.stack([-speed / RADIUS, zero, zero]),
    )
    sphere = mbd.Sphere(RADIUS)
    pieces = [("ground", mbd.HalfSpace()), *((body, sphere) for body in [*balls, ball])]
    law = mbd.ContactLaw(FRICTION, rolling=ROLLING)
    contacts = mbd.contacts_among(pieces, law=law)
    return mbd.Mechanism([*balls, ball], contacts=contacts, gravity=[0, 0, -GRAVITY])


def simulate(strike, t1):
    """Mechanism and motion, saved after every step."""
    mechanism = pile_and_ball(strike)
    return mechanism, mbd.simulate(
        mechanism,
        mbd.ContactImpulse(),
        mechanism.state(),
        t1=t1,
        dt=STEP,
        saveat=diffrax.SaveAt(steps=1),
        throw=False,
    )


def track(strike, t1):
    """Positions of the upper ball after each step; and the motion."""
    mechanism, sol = simulate(strike, t1)
    return mechanism.pose(sol.q, "4").position, sol


def sensitivity(strike, t1):
    """The derivatives of `track` by side and speed; and positions and motion."""

    def both(strike):
        found, sol = track(strike, t1)
        return found, (found, sol)

    return jax.jacfwd(both, has_aux=True)(strike)


def aimed(run, strike, wanted, most=20):
    """The strike whose ball ends where it is wanted, by Newton's method; and all distances [m]."""
    slope, (x, _) = run(strike)
    missing, history = wanted - x[-1, :2], []
    for _ in range(most):
        history.append(float(np.linalg.norm(missing)))
        if history[-1] < 1e-6:
            break
        change = np.linalg.solve(slope[-1, :2], missing)
        # At most 2 cm and 0.3 m/s at once.
        length = min(1.0, 0.02 / abs(change[0]), 0.3 / abs(change[1]))
        for _ in range(6):
            tried = strike + length * change
            slope, (x, _) = run(tried)
            left = wanted - x[-1, :2]
            if np.linalg.norm(left) < history[-1]:
                break
            length /= 2
        strike, missing = tried, left
    return strike, history


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/struck_pile.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=output, metavar="PNG")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    run = jax.jit(lambda strike: sensitivity(strike, t1=1.0))
    slope, (x, sol) = run(FIRST)
    print(f"first strike: {'successful' if sol.result == mbd.RESULTS.successful else sol.result}")
    eps = np.array([1e-6, 0.0])
    quotient = (run(FIRST + eps)[1][0] - run(FIRST - eps)[1][0]) / 2e-6
    print("   t [s]   height [m]   d x / d side   by differences   d y / d side   by differences")
    for k in (49, 99, 199, 299, 499):
        x_side, y_side = slope[k, :2, 0]
        print(
            f"{sol.t[k]:8.2f} {x[k, 2]:12.5f} {x_side:14.6f} {quotient[k, 0]:16.6f}"
            f" {y_side:14.6f} {quotient[k, 1]:16.6f}"
        )
    strike, history = aimed(run, FIRST, WANTED)
    print("distance to the wanted place [m]: " + ", ".join(f"{d:.1e}" for d in history))
    print(f"strike {strike[0] * 1e3:.3f} mm beside the middle with {strike[1]:.6f} m/s")

    mechanism, first, last = pile_and_ball(jnp.asarray(FIRST)), x, run(strike)[1]
    figure, axes = plt.subplots(1, 4, figsize=(10, 3.6), layout="constrained")
    for axis, t in zip(axes, (0.0, 0.2, 0.5, 1.0), strict=True):
        k = max(0, round(t / STEP) - 1)
        mbd.plots.draw(mechanism, last[1].q[k], axis, plane="xy", labels=False, frames=False)
        axis.plot(*first[: k + 1, :2].T, ":", color="0.5", label="with the first strike")
        axis.plot(*last[0][: k + 1, :2].T, color="C3", label="path of the upper ball")
        axis.plot(*WANTED, "x", color="k", label="wanted")
        axis.set(xlim=(-0.45, 0.45), ylim=(-0.45, 0.85), title=f"t = {t:.1f} s")
    axes[0].legend(loc="upper left", fontsize="x-small")
    figure.savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")


if __name__ == "__main__":
    main()

"""Friction of a block on a slope, identified from a record of how it slides.

The block is pushed up the slope, comes to rest, and slides back: up with the deceleration
g (sin a + mu cos a), down with g (sin a - mu cos a), so that one record tells both the friction
and the angle. The record here is made up from that closed form, with noise; the model is a box in
contact, and the fit Gauss-Newton with forward sensitivities through the contact steps.

    python examples/block_on_slope.py --output block_on_slope.png
"""

import argparse
import pathlib

import diffrax
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxmbd as mbd

GRAVITY, SIZE, STEP = 9.81, (0.2, 0.1, 0.08), 1e-3
FRICTION, ANGLE, SPEED, NOISE = 0.35, 0.6, 2.5, 2e-3


def block(friction, angle, speed):
    """In axes along the slope: x points uphill."""
    body = mbd.Body(
        "block",
        mbd.Inertia.box(size=SIZE, mass=1.0),
        position=[0, 0, SIZE[2] / 2],
        velocity=jnp.stack([speed, 0 * speed, 0 * speed]),
    )
    shape = mbd.Box(size=SIZE)
    slope = mbd.Contact("slope", "ground", body, mbd.HalfSpace(), shape, friction=friction)
    down = GRAVITY * jnp.stack([-jnp.sin(angle), 0 * angle, -jnp.cos(angle)])
    return mbd.Mechanism([body], contacts=[slope], gravity=down)


def slide(parameters, ts):
    """Position along the slope [m] at times of the steps, for (friction, angle, speed)."""
    mechanism = block(*parameters)
    sol = mbd.simulate(
        mechanism,
        mbd.ContactImpulse(),
        mechanism.state(),
        t1=float(ts[-1]),
        dt=STEP,
        saveat=diffrax.SaveAt(ts=ts),
    )
    return mechanism.pose(sol.q, "block").position[:, 0]


def closed_form(ts):
    """The same, exactly."""
    up = GRAVITY * (np.sin(ANGLE) + FRICTION * np.cos(ANGLE))
    down = GRAVITY * (np.sin(ANGLE) - FRICTION * np.cos(ANGLE))
    turn = SPEED / up
    later = np.maximum(ts - turn, 0.0)
    return np.where(
        ts < turn, SPEED * ts - up * ts**2 / 2, SPEED**2 / (2 * up) - down * later**2 / 2
    )


def record(seed=0):
    """Times, and positions with noise."""
    ts = STEP * np.arange(20, 1201, 20)
    return ts, closed_form(ts) + NOISE * np.random.default_rng(seed).normal(size=ts.shape)


def identify(ts, measured, guess, steps=8):
    """Parameters by Gauss-Newton steps, and their standard deviations from the Jacobian and the
    residuals."""

    @jax.jit
    def linearised(parameters):
        def residuals(parameters):
            return slide(parameters, ts) - measured

        return residuals(parameters), jax.jacfwd(residuals)(parameters)

    found = jnp.asarray(guess)
    for step in range(steps):
        r, J = linearised(found)
        print(f"  step {step}: root mean square {jnp.sqrt(jnp.mean(r**2)):.5f} m, at {found}")
        found = found - jnp.linalg.lstsq(J, r)[0]
    r, J = linearised(found)
    variance = jnp.sum(r**2) / (len(ts) - len(found))
    return found, jnp.sqrt(jnp.diagonal(variance * jnp.linalg.inv(J.T @ J)))


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/block_on_slope.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=output, metavar="PNG")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    ts, measured = record()
    guess = [0.2, 0.45, 2.0]
    found, deviation = identify(ts, measured, guess)
    names, truths = ("friction", "angle [rad]", "speed [m/s]"), (FRICTION, ANGLE, SPEED)
    print("               truth    guess    found     95 % interval")
    for name, truth, first, value, sigma in zip(
        names, truths, guess, found, deviation, strict=True
    ):
        print(f"{name:12s} {truth:8.4f} {first:8.4f} {value:8.4f}  +- {1.96 * sigma:.4f}")

    figure, axis = plt.subplots(figsize=(7, 4.5), layout="constrained")
    axis.plot(ts, measured, "k.", ms=4, label="record")
    axis.plot(ts, slide(jnp.asarray(guess), ts), "C1--", label="guess")
    axis.plot(ts, slide(found, ts), "C0", label="fit")
    axis.set(xlabel="t [s]", ylabel="position up the slope [m]")
    axis.grid(alpha=0.3)
    axis.legend()
    figure.savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")


if __name__ == "__main__":
    main()

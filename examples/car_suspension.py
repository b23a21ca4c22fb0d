"""A quarter of a car on a bad road: stiffness and damping of its strut from a recorded drive.

The wheel sits on a trailing arm. Two rubber bushings hold the arm under the body of the car, in all
six directions elastic, so that there is no hinge at all; a strut, a spring with a damper, stands
between arm and body, and the body moves up and down only. Under the wheel the tyre, a spring and a
damper too, rolls over a road of known profile.

Sensors on body and wheel recorded their heights. Which stiffness and damping has the strut? Gauss
and Newton's method finds them, with derivatives through the simulation. The record is one of this
script's own, with noise, so that the truth is known. (Where the guess is poor, or the start
unknown: see `identify_spring_damper.py`.)

    python examples/car_suspension.py --output car_suspension.png
"""

import argparse
import functools
import math
import pathlib

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd.identify import covariance

TRUTH = 32e3, 2200.0  # stiffness and damping of the strut [N/m, N s/m]
GUESS = 22e3, 4000.0
NOISE = 2e-4  # of the sensors [m]
SPEED = 15.0  # [m/s]
DURATION, DT, EVERY = 1.6, 2e-3, 8

CAR, ARM = 320.0, 40.0  # masses, the latter with the wheel [kg]
TYRE_STIFFNESS, TYRE_DAMPING = 190e3, 200.0  # [N/m, N s/m]
# Places at rest [m]: x backwards, y to the side, z upwards.
WHEEL, FOOT, TOP = np.array([0.45, 0, 0.30]), np.array([0.38, 0, 0.36]), np.array([0.34, 0, 0.86])
BUSHINGS = {"left bushing": np.array([0, -0.2, 0.34]), "right bushing": np.array([0, 0.2, 0.34])}
# Of each bushing along and about x, y, z [N/m, N m/rad]: soft about the axis of the arm, y.
RUBBER = np.array([6e5, 3e5, 6e5, 300.0, 20.0, 300.0])


def road(t):
    """Height under the wheel [m]: a bump of 5 cm, then waves."""
    x = SPEED * t
    bump = 0.05 * jnp.where((x > 1) & (x < 3), jnp.sin(jnp.pi * (x - 1) / 2) ** 2, 0.0)
    waves = 0.012 * jnp.sin(2 * jnp.pi * x / 5) + 0.004 * jnp.sin(2 * jnp.pi * x / 1.3)
    return bump + jnp.where(x > 4, 1 - jnp.exp(-(((x - 4) / 2) ** 2)), 0.0) * waves


class Tyre(eqx.Module):
    """Force on the wheel from below; it carries enough never to leave the road."""

    load: Array = eqx.field(converter=jnp.asarray)  # at rest [N]

    def __call__(self, poses, twists, t, u):
        del u
        ground, rate = jax.jvp(road, (t,), (jnp.ones_like(t),))
        compression = ground - (poses[0].position[2] - WHEEL[2])
        force = self.load + TYRE_STIFFNESS * compression
        force += TYRE_DAMPING * (rate - twists[0].linear[2])
        o = jnp.zeros_like(force)
        return ((jnp.stack([o, o, force]), jnp.zeros(3)),)


def quarter_car(stiffness, damping):
    """At rest: strut, bushings and tyre are loaded by the weight already."""
    car = mbd.Body("car", mbd.Inertia.box(size=[1.0, 0.8, 0.4], mass=CAR), position=[0, 0, 0.7])
    # The frame of the arm lies in the middle of the wheel, its centre of mass ahead of it.
    inertia = mbd.Inertia(ARM, [1.2, 1.6, 1.5], [-0.05, 0, 0])
    arm = mbd.Body("arm", inertia, position=WHEEL)

    weight, load = 9.81 * ARM, 9.81 * (CAR + ARM)
    strut = (TOP - FOOT) / np.linalg.norm(TOP - FOOT)
    pivot = np.array([0, 0, 0.34])
    # Balance of the arm about the axis of its bushings, then of its forces.
    moment = load * WHEEL[0] - weight * (WHEEL[0] - 0.05)
    carried = moment / np.cross(strut, FOOT - pivot)[1]
    rest = carried * strut + np.array([0, 0, weight - load])  # of the bushings on the arm

    guide = mbd.Prismatic("guide", "ground", car, point=[0, 0, 0.7], axis=[0, 0, 1])
    rubber = dict(stiffness=RUBBER, damping=2e-3 * RUBBER, preload=[*(rest / 2), 0, 0, 0])
    forces = [mbd.Bushing(name, car, arm, point=at, **rubber) for name, at in BUSHINGS.items()]
    forces += [
        mbd.Spring(
            "strut",
            car,
            arm,
            points=(TOP, FOOT),
            stiffness=stiffness,
            damping=damping,
            rest_length=np.linalg.norm(TOP - FOOT) + carried / stiffness,
        ),
        mbd.Force("tyre", [arm], Tyre(load)),
    ]
    return mbd.Mechanism([car, arm], [guide], forces)


def drive(stiffness, damping, every=EVERY):
    mechanism = quarter_car(stiffness, damping)
    sol = mbd.simulate(
        mechanism,
        mbd.UdwadiaKalaba(),
        mechanism.state(),
        t1=DURATION,
        dt=DT,
        saveat=diffrax.SaveAt(steps=every),
        throw=False,
    )
    return mechanism, sol


# A short run: the compiler would take longer to optimise it than it lasts.
@functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
def heights_and_slopes(logarithms):
    """Of body and wheel above their places at rest [m], one after the other, shape (2 ns,), for
    the logarithms of stiffness and damping; and the derivatives with respect to these."""

    def heights(logarithms):
        mechanism, sol = drive(*jnp.exp(logarithms))
        rise = [mechanism.pose(sol.q, name).position[:, 2] for name in ("car", "arm")]
        rise = jnp.concatenate([rise[0] - 0.7, rise[1] - WHEEL[2]])
        return rise, rise

    slopes, rise = jax.jacfwd(heights, has_aux=True)(logarithms)
    return rise, slopes


def fitted(recorded, guess, iterations=6):
    """Logarithms of stiffness and damping, and what they are worth: their covariance, the heights,
    and those of the guess."""
    logarithms = jnp.log(jnp.asarray(guess))
    rise, slopes = heights_and_slopes(logarithms)
    first = rise
    for _ in range(iterations):
        k, d = np.exp(logarithms)
        error = 1e3 * np.sqrt(np.mean((rise - recorded) ** 2))
        print(f"  {k:8.1f} N/m {d:8.1f} N s/m   error {error:.4f} mm rms", flush=True)
        logarithms -= jnp.linalg.lstsq(slopes, rise - recorded)[0]
        rise, slopes = heights_and_slopes(logarithms)
    return logarithms, covariance(slopes, rise - recorded, len(rise)), rise, first


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/car_suspension.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=output, metavar="PNG")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    mechanism, sol = drive(*TRUTH, every=1)
    audit = mbd.reports.audit(mechanism, sol)
    print(f"drive of {DURATION:g} s, {sol.t.size} steps: guide open by {sol.phi_norm.max():.0e} m")
    lost = {name: -np.trapezoid(power, sol.t) for name, power in audit.powers.items()}
    print("  energy taken by " + ", ".join(f"{name} {x:.1f} J" for name, x in lost.items()))
    print(f"  balance of energy {np.abs(audit.imbalance).max():.1e} J")

    exact, _ = heights_and_slopes(jnp.log(jnp.asarray(TRUTH)))
    recorded = exact + NOISE * np.random.default_rng(0).normal(size=exact.shape)
    print("in search of the strut:", flush=True)
    logarithms, C, rise, first = fitted(recorded, GUESS)
    for i, (name, unit) in enumerate((("stiffness", "N/m"), ("damping", "N s/m"))):
        value, sigma = math.exp(logarithms[i]), math.sqrt(C[i, i])
        off = (logarithms[i] - math.log(TRUTH[i])) / sigma
        print(f"{name:10}{value:8.1f} +- {sigma * value:.1f} {unit}, off by {off:+.1f} sigma of "
              f"the true {TRUTH[i]:g}")  # fmt: skip
    error = 1e3 * np.sqrt(np.mean((rise - recorded) ** 2))
    print(f"residual {error:.3f} mm rms, where the noise is {1e3 * NOISE:g} mm")

    draw(recorded, rise, first).savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")


def draw(recorded, rise, first):
    figure = plt.figure(figsize=(11, 7), layout="constrained")
    axes = figure.subplots(2, 1, sharex=True)
    t = DT * EVERY * np.arange(1, len(rise) // 2 + 1)
    series = (first, "--", "first guess"), (rise, "-", "fitted"), (recorded, ".", "recorded")
    for i, (axis, name) in enumerate(zip(axes, ("body", "wheel"))):
        axis.plot(t, 1e3 * road(t), "k", lw=0.8, label="road")
        for heights, style, label in series:
            axis.plot(t, 1e3 * np.split(heights, 2)[i], style, ms=4, label=label)
        axis.set(title=f"Height of the {name}", ylabel="[mm]")
        axis.grid(alpha=0.3)
    axes[0].legend(ncols=4)
    axes[1].set_xlabel("t [s]")
    return figure


if __name__ == "__main__":
    main()

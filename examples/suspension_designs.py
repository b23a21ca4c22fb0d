"""A thousand designs of a car's suspension at once: where each rests, how fast it swings, and how
that changes with three lengths.

A quarter of a car on two wishbones, in the plane across the direction of travel: the body moves up
and down, the lower and the upper arm turn about it, and the upright with the wheel closes the loop.
A strut stands on the lower arm. Under the wheel is the tyre. For each design, `equilibrium` finds
the pose under the weight, `linearise` the linear model on the closed loop, and `modes` the natural
frequencies of body and wheel. One `vmap` does it for all designs, with the derivatives of the
frequencies by three lengths: of both arms, and from the pivot to the strut.

    python examples/suspension_designs.py --designs 1000
"""

import argparse
import functools
import pathlib
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd.analysis import equilibrium, linearise, modes

LENGTHS = "lower arm", "upper arm", "pivot to strut"
NOMINAL = np.array([0.38, 0.30, 0.26])  # [m]
BODY, WHEEL, TILTING = 320.0, 38.0, 0.9  # masses [kg], inertia of upright and wheel [kg m^2]
STRUT, DAMPING, TYRE = 42e3, 2400.0, 190e3  # [N/m, N s/m, N/m]
RADIUS, GRAVITY = 0.31, 9.81
# On the body, sideways and above its origin, which is at wheel height in the drawing [m].
LOWER, UPPER, TOP = np.array([0.32, -0.08]), np.array([0.38, 0.16]), np.array([0.50, 0.48])
UPRIGHT, HUB, OFFSET = 0.24, 0.09, 0.07  # between the ball joints; to the wheel, along and across
STRUT_LENGTH = 0.685  # without load


class Suspension(mbd.LagrangianSystem):
    """q = (height of the body, angles of lower and upper arm)."""

    lengths: Array

    def joints(self, q):
        """The ball joints at the ends of both arms."""
        up = jnp.stack([jnp.zeros_like(q[0]), q[0]])
        ends = []
        for pivot, length, angle in zip((LOWER, UPPER), self.lengths[:2], q[1:], strict=True):
            ends.append(pivot + up + length * jnp.stack([jnp.cos(angle), jnp.sin(angle)]))
        return ends

    def wheel(self, q):
        """The centre of the wheel, and the tilt of the upright."""
        low, high = self.joints(q)
        along = (high - low) / UPRIGHT
        across = jnp.stack([along[1], -along[0]])
        return low + HUB * along + OFFSET * across, jnp.atan2(-along[0], along[1])

    def strut(self, q):
        foot = LOWER + self.lengths[2] * jnp.stack([jnp.cos(q[1]), jnp.sin(q[1])])
        return jnp.sqrt(jnp.sum((TOP - foot) ** 2))

    def kinetic_energy(self, q, v):
        _, (velocity, turning) = jax.jvp(self.wheel, (q,), (v,))
        return (BODY * v[0] ** 2 + WHEEL * velocity @ velocity + TILTING * turning**2) / 2

    def potential_energy(self, q):
        centre, _ = self.wheel(q)
        weights = GRAVITY * (BODY * q[0] + WHEEL * centre[1])
        springs = STRUT * (self.strut(q) - STRUT_LENGTH) ** 2 + TYRE * (RADIUS - centre[1]) ** 2
        return weights + springs / 2

    def dissipation(self, q, v):
        rate = jax.jvp(self.strut, (q,), (v,))[1]
        return DAMPING * rate**2 / 2

    def constraint(self, q, t):
        low, high = self.joints(q)
        return (high - low) @ (high - low) - UPRIGHT**2


def frequencies(lengths):
    """Natural frequencies of body and wheel [Hz], and their damping ratios, shape (4,); and whether
    the design has a stable equilibrium."""
    system = Suspension(lengths)
    start = mbd.State(0.0, jnp.array([0.3, -0.05, 0.0]), jnp.zeros(3))
    rest = equilibrium(system, start, throw=False)
    found = modes(linearise(system, rest, size=4, throw=False))
    good = (rest.report.result == mbd.RESULTS.successful) & rest.report.stable
    return jnp.concatenate([found.frequency[::2], found.damping_ratio[::2]]), good


# A short run: the compiler would take longer to optimise it than it lasts.
@functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
@jax.vmap
def studied(lengths):
    """Of all designs: the frequencies, their derivatives by the lengths, and verdicts."""

    def valued(lengths):
        values, good = frequencies(lengths)
        return values, (values, good)

    slopes, (values, good) = jax.jacfwd(valued, has_aux=True)(lengths)
    return values, slopes, good


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/suspension_designs.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--designs", type=int, default=1000, help="at least 6")
    parser.add_argument("--output", type=pathlib.Path, default=output, metavar="PNG")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    random = np.random.default_rng(0)
    spread = random.uniform(-0.1, 0.1, size=(arguments.designs, 3))
    lengths = NOMINAL * (1 + spread)
    lengths[0] = NOMINAL
    began = time.perf_counter()
    run = studied.lower(lengths).compile()
    compiled = time.perf_counter()
    values, slopes, good = jax.block_until_ready(run(lengths))
    ended = time.perf_counter()
    values, slopes, good = np.asarray(values), np.asarray(slopes), np.asarray(good)

    print(f"{arguments.designs} designs in {ended - began:.1f} s, {compiled - began:.1f} s of them "
          f"compilation; {good.sum()} rest and are stable")  # fmt: skip
    print(f"the first: body {values[0, 0]:.4f} Hz (damping {values[0, 2]:.2f}), wheel "
          f"{values[0, 1]:.4f} Hz ({values[0, 3]:.2f})")  # fmt: skip
    # Difference quotients of the first design, by the same program.
    steps = 1e-5 * np.concatenate([np.eye(3), -np.eye(3)])
    shifted = np.asarray(run(np.resize(NOMINAL + steps, lengths.shape))[0])
    for i, name in enumerate(LENGTHS):
        quotient = (shifted[i] - shifted[i + 3]) / 2e-5
        print(f"  by the {name:15}{slopes[0, 0, i]:+9.4f} {slopes[0, 1, i]:+9.4f} Hz/m, by "
              f"differences {quotient[0]:+9.4f} {quotient[1]:+9.4f}")  # fmt: skip
    draw(lengths, values, slopes, good).savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")


def draw(lengths, values, slopes, good):
    figure = plt.figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    points = left.scatter(values[good, 0], values[good, 1], c=lengths[good, 2], s=8, cmap="viridis")
    figure.colorbar(points, label="pivot to strut [m]")
    left.plot(*values[0, :2], "k+", ms=12, mew=2)
    left.set(title="Natural frequencies", xlabel="body [Hz]", ylabel="wheel [Hz]")
    # The change of the frequency of the body by one per cent of each length.
    shifts = [slopes[good, 0, i] * lengths[good, i] / 100 for i in range(3)]
    right.boxplot(shifts, tick_labels=LENGTHS, showfliers=False)
    right.axhline(0, color="k", lw=0.6)
    right.set(title="Frequency of the body, by 1 % of a length", ylabel="change [Hz]")
    for axis in (left, right):
        axis.grid(alpha=0.3)
    return figure


if __name__ == "__main__":
    main()

"""Stiffness, play, friction and delay of a block that sticks and slips on a belt.

    wall --/\\/\\/-| |-- [ block ]      spring with play; a camera sees the block, late
                    ============      belt, runs to and fro

The camera takes 50 pictures a second and tells where the block was 3.7 pictures ago. The friction
of the belt is Stribeck's, and the block sticks in two fifths of all pictures. Seven numbers are
unknown. A simulation that is two hundred times finer than the fit's makes the measurements. Can the
intervals be trusted? `--fits 200` repeats measurement and fit, and counts how many intervals of
95 % contain the truth.
"""

import argparse
import pathlib

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Array
from tqdm import tqdm

import jaxmbd as mbd
from jaxmbd import identify

# N/m, m, s/m, N, N, m/s, s
TRUTH = {
    "stiffness": 40.0,
    "play": 0.01,
    "damping": 0.8,
    "sliding": 2.0,
    "static": 3.0,
    "stribeck": 0.1,
    "delay": 3.7 * 0.02,
}
NOISE, TIME = 2e-4, np.linspace(0.0, 6.0, 301)  # [m], [s]
STEP = 2e-3  # [s]
METHOD = mbd.ContactImpulse()


def belt(t):
    """Its velocity [m/s]."""
    return 0.05 + 0.35 * jnp.sin(2.1 * t) + 0.15 * jnp.sin(5.3 * t + 1)


class Block(mbd.AbstractSystem):
    """A mass of 1 kg. The ends of the spring push, and lose energy when they meet (Hunt and
    Crossley 1975)."""

    stiffness: Array
    play: Array
    damping: Array
    sliding: Array
    static: Array
    stribeck: Array

    def mass_matrix(self, q):
        return jnp.eye(1)

    def force(self, t, q, v, u):
        side, bent = jnp.sign(q), jnp.maximum(jnp.abs(q) - self.play, 0.0)
        push = self.stiffness * bent * (1 + self.damping * side * v)
        return -side * jnp.maximum(push, 0.0)

    def friction_rates(self, q, v, t):
        return v - belt(t)

    def friction_bounds(self, q, v, t, multipliers, u):
        falling = jnp.exp(-(((v - belt(t)) / self.stribeck) ** 2))
        return self.sliding + (self.static - self.sliding) * falling


def build(values):
    """The system and its camera."""
    late = identify.Delayed(lambda sample: sample.q, values["delay"], longest=0.2)
    numbers = {name: jnp.asarray(values[name]) for name in TRUTH if name != "delay"}
    return Block(**numbers), {"position": late}


def record_of(position):
    rest = mbd.State(TIME[0], np.zeros(1), np.zeros(1))
    return identify.Record(TIME, position, rest, weights=1 / NOISE)


def exact(step=STEP / 200, progress=False):
    """What a camera without noise sees [m], `(301, 1)`."""
    system, sensors = build(TRUTH)
    empty, options = record_of(0 * TIME), dict(dt=step, enforcement=METHOD, progress=progress)
    return identify.predict(system, empty, sensors, **options).readings[0]


def measured(position, seed=0):
    """With normal errors."""
    return record_of(position + NOISE * np.random.default_rng(seed).normal(size=position.shape))


def fitted(record, off=1.05, extrapolate=True, progress=False):
    """From the truth times `off`. At the end, what the step falsifies is removed."""
    guesses = {k: identify.Parameter(off * x, identify.Positive()) for k, x in TRUTH.items()}
    return identify.fit(
        build,
        guesses,
        record,
        dt=STEP,
        enforcement=METHOD,
        extrapolate=extrapolate,
        progress=progress,
    )


def distances(found):
    """From the truth, in standard deviations, and whether the intervals contain it."""
    truth, (low, high) = np.array(list(TRUTH.values())), np.transpose(found.interval())
    return (found.entries - truth) / found.sigma, (low <= truth) & (truth <= high)


def draw(found, off):
    rows = 3 if len(off) > 1 else 2
    figure, axes = plt.subplots(rows, 1, figsize=(10, 3 * rows), layout="constrained")
    [record], [reading] = found.problem.records, found.prediction.readings
    axes[0].plot(TIME, 1e3 * record.measured, ".", ms=3, color="0.5", label="measured")
    axes[0].plot(TIME, 1e3 * reading, lw=1, label="computed")
    play = 1e3 * float(found.values["play"])
    axes[0].axhspan(-play, play, alpha=0.1, lw=0, label="play found")
    axes[0].set(ylabel="position [mm]", xlabel="time [s]")
    axes[0].legend(loc="upper right", fontsize="small", ncols=3)
    [error] = found.prediction.errors
    axes[1].plot(TIME, 1e3 * error, ".-", ms=3, lw=0.4)
    axes[1].set(ylabel="computed - measured [mm]", xlabel="time [s]")
    if rows > 2:
        axes[2].violinplot(list(off.T), showextrema=False, widths=0.8)
        for each in (-1.96, 1.96):
            axes[2].axhline(each, color="k", lw=0.6, ls="--")
        axes[2].set_xticks(range(1, len(TRUTH) + 1), list(TRUTH))
        axes[2].set_ylabel(f"found - true, {len(off)} fits [sigma]")
    return figure


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    output = pathlib.Path(__file__).parent / "output/identify_belt.png"
    parser.add_argument("--fits", type=int, default=1, metavar="N", help="repetitions")
    parser.add_argument("--output", type=pathlib.Path, metavar="PNG", default=output)
    options = parser.parse_args()
    position, found, off, inside = exact(progress=True), None, [], []
    for seed in tqdm(range(options.fits), desc="fits", disable=options.fits == 1):
        again = fitted(measured(position, seed), progress=options.fits == 1)
        found = found or again
        for total, each in zip((off, inside), distances(again)):
            total.append(each)
        if again.result != mbd.RESULTS.successful:
            print(f"fit {seed}: {again.result}")
    print(found)
    print("off by standard deviations of", np.round(off[0], 1))
    if options.fits > 1:
        print(f"of {options.fits} intervals of 95 % contain the truth:")
        print("  ".join(f"{k} {100 * x:.1f} %" for k, x in zip(TRUTH, np.mean(inside, axis=0))))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    draw(found, np.array(off)).savefig(options.output, dpi=100)
    print(f"picture: {options.output}")


if __name__ == "__main__":
    main()

"""Find the springs, masses and damping of carts on an air track from their measured positions.

    |~~~ k1 ~~~[ cart ]~~~ k2 ~~~|              |~~~ k1 ~~~[ 1 ]~~~ kc ~~~[ 2 ]~~~ k2 ~~~|

Positions tell no force, so the mass of the first cart is 1. Of one cart, only k1 + k2 can be found:
`springs` is this sum, or (k1, k2, kc). How the motion began is found as well.

By default a simulation of two carts with known values makes the positions. Real ones are in the
repository `erwincoumans/tiny-differentiable-simulator` on GitHub, `data/schmidt-lipson-exp-data`:
`real_linear_h_1.txt` (one cart) and `real_double_linear_h_1.txt`, of Schmidt and Lipson (2009),
Science 324. Columns: trial, time [s], a position of each cart, and as many rates (not used).
"""

import argparse
import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import identify
from jaxmbd.identify import Free, Positive

TRUTH = dict(springs=[8.0, 11.0, 40.0], mass=[2.5], damping=[0.05, 0.02], equilibrium=[60.0, -55.0])
SENSORS = {"position": lambda sample: sample.q}
UNKNOWN = {"springs": Positive(), "mass": Positive()}
UNKNOWN |= {"damping": Free(scale=0.1), "equilibrium": Free(scale=100.0)}
STEP = 1 / 120  # a quarter of the time between two pictures of the camera [s]


def ends(count):
    """E, where E q is how much the springs of this many carts are stretched."""
    return np.concatenate([np.eye(count), np.diff(np.eye(count), axis=0)])


class AirTrack(mbd.AbstractSystem):
    """q holds the positions of the carts, `mass` the masses of all but the first. A spring pulls
    more by the share `uneven` when it is stretched by 100 units, and presses less by as much."""

    springs: Array
    mass: Array
    damping: Array
    equilibrium: Array
    uneven: Array

    def mass_matrix(self, q):
        return jnp.diag(jnp.append(1.0, self.mass))

    def force(self, t, q, v, u):
        E = ends(q.size)
        stretch = E @ (q - self.equilibrium)
        pull = self.springs * (stretch + self.uneven * stretch**2 / 100)
        return -E.T @ pull - self.mass_matrix(q) @ (self.damping * v)


def frequencies(p):
    E, root = ends(p["damping"].size), jnp.sqrt(jnp.append(1.0, p["mass"]))
    K = E.T @ (p["springs"][:, None] * E)
    rates = jnp.sqrt(jnp.linalg.eigvalsh(K / jnp.outer(root, root)))
    found = {f"natural frequency {i} [rad/s]": rate for i, rate in enumerate(rates, 1)}
    return found | {f"period {i} [s]": 2 * jnp.pi / rate for i, rate in enumerate(rates, 1)}


def record_of(time, position):
    """The start is a guess: of the velocities from the first rows."""
    q, v = position[0], np.polyfit(time[:4], position[:4], 1)[0]
    return identify.Record(time, position, mbd.State(time[0], jnp.array(q), jnp.array(v)))


def read_record(path):
    table = np.loadtxt(path, comments="%", ndmin=2)
    if np.any(table[:, 0] != table[0, 0]):
        raise ValueError(f"{path} holds more than one trial.")
    return record_of(table[:, 1], table[:, 2 : 1 + table.shape[1] // 2])


def made_record(noise=0.3, seed=0):
    """Of known truth, with normal errors, rounded to whole units."""
    system = AirTrack(*map(jnp.array, TRUTH.values()), uneven=jnp.array(0.0))
    empty = record_of(np.arange(495) / 30, np.tile([0.0, -140.0], (495, 1)))
    [exact] = identify.predict(system, empty, SENSORS, dt=STEP / 10).readings
    errors = noise * np.random.default_rng(seed).normal(size=exact.shape)
    return record_of(empty.time, np.round(exact + errors))


def fitted(record, system, unknown=UNKNOWN, progress=True):
    start = identify.UnknownStart(position=100.0, velocity=250.0)
    return identify.fit(system, unknown, record, SENSORS, dt=STEP, start=start, progress=progress)


def from_early_to_late(record, **options):
    """A crude guess is fitted to the first second, where a frequency that is far off has not lost
    the phase yet, and then to more and more."""
    carts = record.measured.shape[1]
    guess = 10.0 * np.ones(2 * carts - 1), np.ones(carts - 1), np.zeros(carts)
    system = AirTrack(*map(jnp.asarray, (*guess, record.measured.mean(axis=0), 0.0)))
    for seconds in (1.0, 2.0, 4.0, np.inf):
        early = record.time <= record.time[0] + seconds
        found = fitted(dataclasses.replace(record, weights=early), system, **options)
        system, record = found.system, dataclasses.replace(record, start=found.starts[0])
    return found


def without_outliers(found):
    """The record, with weight 0 for rows that are off by more than 5 robust standard deviations,
    and at the end from where they are off by more than 2."""
    [record], [errors] = found.prediction.records, found.prediction.errors
    off = np.abs(errors).max(axis=1) / (1.4826 * np.nanmedian(np.abs(errors)))
    used = ~(off > 5)
    if not used[-6:].all():
        used[np.flatnonzero(off < 2)[-1] + 1 :] = False
    return dataclasses.replace(record, weights=record.weights * used[:, None])


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    parser = argparse.ArgumentParser(description="Find springs, masses and damping of carts.")
    output = pathlib.Path(__file__).parent / "output/identify_air_track.png"
    parser.add_argument("--data", type=pathlib.Path, metavar="TXT", help="measured positions")
    parser.add_argument("--output", type=pathlib.Path, metavar="PNG", default=output)
    options = parser.parse_args()
    print(options.data or f"positions made here, with {TRUTH}")
    record = read_record(options.data) if options.data else made_record()
    found = from_early_to_late(record)
    for _ in range(3):
        record = without_outliers(found)
        found = fitted(record, found.system)
    out = record.weights[:, 0] == 0
    print(f"left out at {record.time[out]} s", found, sep="\n")
    for name, (value, sigma) in found.derived(frequencies).items():
        print(f"{name:30}{value:12.7g} +- {sigma:.2g}")
    print("Are the springs uneven?")
    print(fitted(record, found.system, UNKNOWN | {"uneven": Free()}))
    count = len(found.prediction.labels)
    axes = plt.subplots(2 * count, figsize=(12, 7 * count), sharex=True, layout="constrained")[1]
    identify.plot_fit(found, axes[:count])
    [axis.plot(record.time[out], x[out], "rx") for axis, x in zip(axes, record.measured.T)]
    identify.plot_residuals(found, axes[count:])
    options.output.parent.mkdir(parents=True, exist_ok=True)
    plt.savefig(options.output, dpi=150)
    print(f"picture: {options.output}")


if __name__ == "__main__":
    main()

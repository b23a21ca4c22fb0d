"""Frequency and friction of a real pendulum, from its measured angle.

The pendulum is a point on the unit circle,

    x'' = (0, -omega^2) - b x' - c |x'| x' - d x'/|x'| + lam (x, y),     x^2 + y^2 = 1,

omega its frequency for small swings [rad/s], b viscous friction [1/s], c drag of the air and d dry
friction, both per inertia. An angle knows no mass: nothing more can be told from it. The camera's
vertical may be a little off, and nobody knows how the record began: both are found as well.

Which friction is it? Each law is fitted to the first 60 % of the record and judged by the rest,
which it has not seen.

By default a simulation with viscous friction and drag makes the angles. Those of a real pendulum
are in the repository `erwincoumans/tiny-differentiable-simulator` on GitHub, as
`data/schmidt-lipson-exp-data/real_pend_h_1.txt`, of Schmidt and Lipson (2009), Science 324. The
columns are trial, time [s], angle [rad], and a rate that is not used, since it was made from the
angles.

    python examples/identify_pendulum.py --data real_pend_h_1.txt
"""

import argparse
import pathlib
import sys

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import identify

STEP = 0.02  # [s]
SLOW = 1e-2  # rate up to which dry friction is smoothed [rad/s]
TRAINING = 0.6  # share of the record
TRUTH = {"omega": 1.165, "tilt": 0.012, "viscous": 0.006, "drag": 0.006}  # of the angles made here
LAWS = {
    "viscous": ("viscous",),
    "dry": ("dry",),
    "drag": ("drag",),
    "viscous and drag": ("viscous", "drag"),
    "viscous and dry": ("viscous", "dry"),
}


class Pendulum(mbd.AbstractSystem):
    omega: Array
    tilt: Array
    viscous: Array
    drag: Array
    dry: Array

    def mass_matrix(self, q):
        return jnp.eye(2)

    def force(self, t, q, v, u):
        speed = jnp.sqrt(v @ v + SLOW**2)
        return self.omega**2 * jnp.array([0.0, -1.0]) - v * (
            self.viscous + self.drag * speed + self.dry / speed
        )

    def constraint(self, q, t):
        return q @ q - 1.0


def build(values):
    """The friction that a law leaves out is none."""
    p = {"viscous": 0.0, "drag": 0.0, "dry": 0.0} | values
    return Pendulum(*(jnp.asarray(p[name]) for name in Pendulum.__annotations__))


def angle(sample):
    x, y = sample.q
    return jnp.arctan2(x, -y) + sample.system.tilt


def read(path: pathlib.Path) -> identify.Record:
    table = np.loadtxt(path, comments="%", ndmin=2)
    if table.shape[1] < 3 or len(table) < 20:
        raise ValueError(f"{path} must hold 20 rows of trial, time and angle at least.")
    if len(np.unique(table[:, 0])) > 1:
        raise ValueError(f"{path} holds more than one trial.")
    return record_of(table[:, 1], table[:, 2], path.stem)


def made(noise: float = 0.01, seed: int = 0) -> identify.Record:
    """Of known truth, with normal errors [rad]."""
    time = np.linspace(0.0, 95.0, 557)
    empty = record_of(time, np.full(557, 1.2), "made")
    [exact] = identify.predict(build(TRUTH), empty, {"angle": angle}, dt=STEP / 4).readings
    errors = noise * np.random.default_rng(seed).normal(size=557)
    return record_of(time, exact[:, 0] + errors, "made")


def record_of(time, measured, name: str) -> identify.Record:
    """With a guess of how it began, from the first angles."""
    rate, first = np.polyfit(time[:4] - time[0], measured[:4], 1)
    q = jnp.array([np.sin(first), -np.cos(first)])
    v = rate * jnp.array([np.cos(first), np.sin(first)])
    return identify.Record(time, measured, mbd.State(time[0], q, v), name=name)


def frequency(record: identify.Record) -> float:
    """From the last swings, which are the smallest: half a period from zero to zero."""
    time, measured = record.time, record.measured[:, 0]
    turns = np.flatnonzero(np.diff(np.sign(measured)))[-5:]
    share = measured[turns] / (measured[turns] - measured[turns + 1])
    zeros = time[turns] + share * (time[turns + 1] - time[turns])
    return float(np.pi / np.median(np.diff(zeros)))


def fitted(record: identify.Record, law: tuple[str, ...]) -> identify.Estimate:
    parameters = {
        "omega": identify.Parameter(frequency(record), identify.Positive()),
        "tilt": identify.Parameter(0.0, identify.Free(scale=0.1)),
    }
    parameters |= {name: identify.Parameter(0.01, identify.NotNegative()) for name in law}
    return identify.fit(
        build,
        parameters,
        record,
        {"angle": angle},
        dt=STEP,
        start=identify.UnknownStart(),
        loss=identify.Huber(0.05),
        progress=sys.stderr.isatty(),
    )


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/identify_pendulum.png"
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=pathlib.Path, metavar="TXT", help="measured angles")
    parser.add_argument("--output", type=pathlib.Path, default=output)
    options = parser.parse_args()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    try:
        record = read(options.data) if options.data else made()
    except (ValueError, OSError) as error:
        sys.exit(f"{parser.prog}: {error}")
    print(options.data or f"angles made here, with {TRUTH}")
    begin, end = record.time[[0, -1]]
    seen, unseen = record.split(begin + TRAINING * (end - begin))

    figure, axes = plt.subplots(
        1 + len(LAWS), 1, figsize=(10, 10), sharex=True, layout="constrained"
    )
    best = None
    for axis, (name, law) in zip(axes[1:], LAWS.items()):
        found = fitted(seen, law)
        forecast = found.predict(unseen, starts=found.starts)
        trained, validated = found.prediction.rms["angle"], forecast.rms["angle"]
        print(f"--- {name}: {trained:.4f} rad rms, and {validated:.4f} rad where not fitted")
        print(found)
        identify.plot_residuals(found, [axis])
        axis.plot(unseen.time, forecast.errors[0], "C1.-", ms=2, lw=0.4)
        axis.set(title="", xlabel="", ylabel=f"{name}:\noff [rad]", ylim=(-0.3, 0.3))
        if best is None or validated < best[0]:
            best = validated, name, forecast
    _, name, forecast = best
    axes[0].plot(record.time, record.measured, "C0.", ms=3, label="measured")
    axes[0].plot(record.time, forecast.readings[0], "k", lw=0.8, label=f"computed: {name}")
    axes[0].axvline(seen.time[-1], color="C1")
    axes[0].set_ylabel("angle [rad]")
    axes[0].legend(loc="lower left", fontsize="small")
    axes[-1].set_xlabel("time [s]; right of the line not fitted")
    figure.savefig(options.output, dpi=120)
    print(f"forecasts best: {name}; picture: {options.output}")


if __name__ == "__main__":
    main()

"""Find the stiffness and damping of a flexible support from measured positions.

              crank, driven by a constant torque
             o--.__
      slider /     `--.__  rod
    support o             `--o slider ->  x      guide: y = 0
         |  ^ y
      spring, damper (unknown)

The crank bearing (the support) slides vertically on a spring and a damper, and the crank runs up
through their resonance. Measured are the support's height and the slider's position. Everything
but the spring and the damper is known.

By default a simulation with known values makes the measurements, and noise is added. Yours are read
by `--data FILE`, a CSV file whose first line is `time,support_y,slider_x`, in s and m. The crank
must start as `START` says.
"""

if __name__ == "__main__":  # before the slow imports
    print("finds a spring and a damper in half a minute or so; first it imports JAX", flush=True)

import argparse
import dataclasses
import pathlib
import time

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import identify

CRANK, ROD = 0.1, 0.3  # lengths [m]
SUPPORT_MASS, CRANK_MASS, ROD_MASS, SLIDER_MASS, FLYWHEEL = 2.0, 1.0, 0.8, 0.7, 0.05  # kg, kg m^2
TORQUE, GRAVITY = 1.0, 9.81  # N m, m/s^2
STEP = 2e-3  # [s]
START = [0.5, 0.0], [12.0, 0.0]  # crank angle and height of the support, and their rates
TRUTH = {"stiffness": 6000.0, "damping": 40.0}  # N/m, N s/m
GUESS = {"stiffness": 1500.0, "damping": 160.0}  # both wrong by a factor of four
SENSORS = {"support_y": lambda sample: sample.q[1], "slider_x": lambda sample: sample.q[4]}


class SliderCrank(mbd.AbstractSystem):
    """q holds the positions (x, y) of the support, of the pin between crank and rod, and of the
    slider. In these the mass matrix of a uniform bar is constant."""

    stiffness: Array
    damping: Array

    def mass_matrix(self, q):
        m1, m2, J = CRANK_MASS, ROD_MASS, FLYWHEEL / CRANK**2
        support = [SUPPORT_MASS + m1 / 3 + J, m1 / 6 - J, 0.0]
        pin = [m1 / 6 - J, (m1 + m2) / 3 + J, m2 / 6]
        slider = [0.0, m2 / 6, m2 / 3 + SLIDER_MASS]
        return jnp.kron(jnp.array([support, pin, slider]), jnp.eye(2))

    def force(self, t, q, v, u):
        weight = -GRAVITY * self.mass_matrix(q) @ jnp.array([0.0, 1.0, 0.0, 1.0, 0.0, 1.0])
        spring_damper = -self.stiffness * q[1] - self.damping * v[1]
        arm = q[2:4] - q[0:2]
        couple = TORQUE / CRANK**2 * jnp.stack([-arm[1], arm[0]])
        return weight.at[1].add(spring_damper).at[2:4].add(couple).at[0:2].add(-couple)

    def constraint(self, q, t):
        support, pin, slider = q.reshape(3, 2)
        crank, rod = pin - support, slider - pin
        return jnp.stack([support[0], crank @ crank - CRANK**2, rod @ rod - ROD**2, slider[1]])


def points(p):
    """q from two minimal coordinates p, the crank's angle and the height of the support."""
    x, y = CRANK * jnp.cos(p[0]), p[1] + CRANK * jnp.sin(p[0])
    return jnp.stack([0.0 * x, p[1], x, y, x + jnp.sqrt(ROD**2 - y**2), 0.0 * x])


def record_of(time, measured):
    """The record of a motion from the known start."""
    q, v = jax.jit(jax.jvp, static_argnums=0)(points, *((np.array(x),) for x in START))
    return identify.Record(time, measured, mbd.State(0.0, q, v))


def made_record(noise=2e-4, seed=2, times=np.linspace(0.0, 2.5, 251)):
    """Of known truth: from a simulation ten times finer than the fit's, with normal errors [m]."""
    truth = SliderCrank(*map(jnp.asarray, TRUTH.values()))
    empty = record_of(times, np.zeros((len(times), 2)))
    [exact] = identify.predict(truth, empty, SENSORS, dt=STEP / 10).readings
    return record_of(times, exact + noise * np.random.default_rng(seed).normal(size=exact.shape))


def read_record(path):
    table = np.genfromtxt(path, delimiter=",", names=True)
    return record_of(table["time"] - table["time"][0], np.stack([table[s] for s in SENSORS], 1))


def fitted(record, guess=GUESS, progress=True):
    """A poor guess loses the phase after a while, and the sum of squares then has many local
    minima. So the first part of the record is fitted first, and then more and more of it."""
    system = SliderCrank(*map(jnp.asarray, guess.values()))
    unknown = {"stiffness": identify.Positive(), "damping": identify.Positive()}
    for share in (0.1, 0.2, 0.4, 1.0):
        shown = {"progress": progress, "label": f"fit of {100 * share:.0f} %"}
        early = dataclasses.replace(record, weights=record.time <= share * record.time[-1])
        found = identify.fit(system, unknown, early, SENSORS, dt=STEP, **shown)
        system = found.system
    return found


def draw(record, found, truth):
    """Measured and fitted motions, what is left over, and the ellipses of 1, 2 and 3 sigma."""
    figure = plt.figure(figsize=(13, 7.5), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(2.2, 1))
    rows = left.subplots(4, 1, sharex=True, height_ratios=(3, 1, 3, 1))
    identify.plot_fit(found, rows[::2])
    identify.plot_residuals(found, rows[1::2])
    for axis, first in zip(rows[::2], found.predict(record, GUESS).readings[0].T):
        axis.plot(record.time, first, "--", color="0.6", lw=1, label="first guess")
    # Above the axes, where it hides no peak.
    rows[0].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, fontsize="small")
    rows[2].set_xlabel("")
    region, zoom = right.subplots(2, 1)
    region.loglog(*GUESS.values(), "o", color="0.5", label="first guess")
    angle = np.linspace(0, 2 * np.pi, 200)
    ellipse = np.linalg.cholesky(found.covariance) @ [np.cos(angle), np.sin(angle)]
    for n in (1, 2, 3):
        zoom.plot(*(found.entries[:, None] + n * ellipse), "C0", lw=1.8 / n, label=f"{n} sigma")
    for axis in (region, zoom):
        axis.plot(*found.entries, "C0o", label="estimate")
        axis.plot(*truth.values(), "k+", ms=14, label="truth")
        axis.set(xlabel="stiffness [N/m]", ylabel="damping [N s/m]")
        axis.legend()
    return figure


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    parser = argparse.ArgumentParser(description="Find a spring and a damper by their motion.")
    output = pathlib.Path(__file__).parent / "output/identify_spring_damper.png"
    parser.add_argument("--data", type=pathlib.Path, metavar="CSV", help="your measurements")
    parser.add_argument("--output", type=pathlib.Path, metavar="PNG", default=output)
    options = parser.parse_args()
    if not options.data:
        print("simulates the measurements, then fits more and more of them", flush=True)
    record = read_record(options.data) if options.data else made_record()
    begin = time.perf_counter()
    found = fitted(record)
    print(f"four searches in {time.perf_counter() - begin:.0f} s, with compilation; the last one:")
    print(found, f"\ncorrelation of the two: {found.correlation[0, 1]:+.2f}")
    if not options.data:
        off = found.entries - list(TRUTH.values())
        distance = np.sqrt(off @ np.linalg.solve(found.covariance, off))
        print(f"made with {TRUTH}, {distance:.2f} sigma away, both taken together")
    print("draws the picture", flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    draw(record, found, {} if options.data else TRUTH).savefig(options.output, dpi=150)
    print(f"picture: {options.output}")


if __name__ == "__main__":
    main()

"""Find the inertias, the play and the friction of a drive, from guesses that are half wrong.

    torque -> ( motor ) ---| |--- ( load ) ~ dry friction
                         play, spring

A motor turns a load through a coupling with play, whose teeth are elastic and lose energy when they
meet (Hunt and Crossley 1975). The bearing of the load sticks, and slides with a friction that falls
with the speed (Stribeck). Measured are both angles, and the torque is known. All eight numbers are
50 % off at the start. By default a simulation with known values makes the measurements; yours are
read by `--data FILE`, a CSV file whose first line is `time,motor,load,torque`, in s, rad and N m,
of a motion that starts at rest.
"""

if __name__ == "__main__":  # before the slow imports
    print("finds eight parameters in two minutes or so; first it imports JAX", flush=True)

import argparse
import pathlib

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import identify

# kg m^2, kg m^2, N m/rad, s/rad, rad, N m, N m, rad/s
TRUTH = {
    "motor": 0.01,
    "load": 0.04,
    "stiffness": 60.0,
    "damping": 0.3,
    "play": 0.02,
    "sliding": 0.3,
    "static": 0.5,
    "stribeck": 0.5,
}
NOISE, TIME = 1e-3, np.linspace(0.0, 2.0, 401)  # [rad], [s]
STEP = 5e-4  # [s]
SENSORS = {"angles": lambda sample: sample.q}
METHOD = mbd.ContactImpulse()


class Drive(mbd.AbstractSystem):
    """q holds the angles of motor and load; the control is the torque of the motor."""

    motor: Array
    load: Array
    stiffness: Array
    damping: Array
    play: Array
    sliding: Array
    static: Array
    stribeck: Array

    def mass_matrix(self, q):
        return jnp.diag(jnp.stack([self.motor, self.load]))

    def coupling(self, twist, rate):
        """The torque of the teeth, which push and never pull."""
        bent = jnp.maximum(jnp.abs(twist) - self.play, 0.0)
        side = jnp.sign(twist)
        push = self.stiffness * bent * (1 + self.damping * side * rate)
        return side * jnp.maximum(push, 0.0)

    def force(self, t, q, v, u):
        torque = self.coupling(q[0] - q[1], v[0] - v[1])
        return jnp.stack([u[0] - torque, torque])

    def friction_rates(self, q, v, t):
        return v[1:]

    def friction_bounds(self, q, v, t, multipliers, u):
        falling = jnp.exp(-((v[1:] / self.stribeck) ** 2))
        return self.sliding + (self.static - self.sliding) * falling


def build(values):
    return Drive(**{name: jnp.asarray(values[name]) for name in TRUTH})


def torque(time):
    """Three sines, so that the load turns round, sticks and rattles [N m]."""
    w = 2 * np.pi * time
    return 0.9 * np.sin(0.8 * w) + 0.7 * np.sin(2.3 * w + 1) + 0.4 * np.sin(5.1 * w + 2)


def record_of(time, angles, torque, noise=NOISE):
    control = identify.MeasuredInput(time, torque[:, None])
    rest = mbd.State(time[0], np.zeros(2), np.zeros(2))
    return identify.Record(time, angles, rest, control=control, weights=1 / noise)


def made_record(noise=NOISE, seed=1, step=1e-5):
    """Of known truth: from a simulation fifty times finer than the fit's, with normal errors."""
    empty = record_of(TIME, np.zeros((len(TIME), 2)), torque(TIME))
    exact = identify.predict(build(TRUTH), empty, SENSORS, dt=step, enforcement=METHOD).readings[0]
    angles = exact + noise * np.random.default_rng(seed).normal(size=exact.shape)
    return record_of(TIME, angles, torque(TIME), noise)


def read_record(path):
    table = np.genfromtxt(path, delimiter=",", names=True)
    return record_of(table["time"], np.stack([table["motor"], table["load"]], 1), table["torque"])


def guesses(seed=1):
    """The truth times 0.5 or 1.5."""
    factors = 1 + 0.5 * np.random.default_rng(seed).choice([-1, 1], size=len(TRUTH))
    return {
        name: identify.Parameter(value * factor, identify.Positive())
        for (name, value), factor in zip(TRUTH.items(), factors)
    }


def fitted(record, parameters, step=STEP, progress=True):
    """At first the measurements pull the simulation along. At the end, what the step falsifies is
    removed."""
    return identify.fit(
        build,
        parameters,
        record,
        SENSORS,
        dt=step,
        enforcement=METHOD,
        shooting=identify.GuidedShooting(),
        extrapolate=True,
        progress=progress,
    )


def draw(record, found, guess):
    figure, rows = plt.subplots(3, 1, figsize=(10, 8), sharex=True, layout="constrained")
    [first] = found.predict(record, guess).readings
    [last] = found.prediction.readings
    gap = [x[:, 0] - x[:, 1] for x in (record.measured, first, last)]
    rows[0].plot(record.time, record.measured, ".", ms=2, color="0.5")
    rows[0].plot(record.time, first, "--", color="C1", lw=0.8)
    rows[0].plot(record.time, last, "C0", lw=1)
    rows[0].set_ylabel("angles [rad]")
    rows[1].plot(record.time, gap[0], ".", ms=2, color="0.5", label="measured")
    rows[1].plot(record.time, gap[1], "--", color="C1", lw=0.8, label="first guess")
    rows[1].plot(record.time, gap[2], "C0", lw=1, label="found")
    play = found.values["play"]
    rows[1].axhspan(-play, play, color="C0", alpha=0.1, lw=0, label="play found")
    rows[1].set_ylabel("twist [rad]")
    rows[1].legend(loc="lower right", fontsize="small", ncols=4)
    [error] = found.prediction.errors
    rows[2].plot(record.time, 1e3 * error, ".-", ms=2, lw=0.4)
    rows[2].set(ylabel="computed - measured [mrad]", xlabel="time [s]")
    return figure


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    parser = argparse.ArgumentParser(description="Find the parameters of a drive with play.")
    output = pathlib.Path(__file__).parent / "output/identify_drive.png"
    parser.add_argument("--data", type=pathlib.Path, metavar="CSV", help="your measurements")
    parser.add_argument("--output", type=pathlib.Path, metavar="PNG", default=output)
    options = parser.parse_args()
    record = read_record(options.data) if options.data else made_record()
    parameters = guesses()
    found = fitted(record, parameters)
    print(found)
    if not options.data:
        off = (found.entries - list(TRUTH.values())) / found.sigma
        print("off by standard deviations of", np.round(off, 1))
    print("checks the model where it ended")
    fit = build, found.parameters, record, SENSORS
    print(identify.check_model(*fit, dt=STEP, enforcement=METHOD))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    guess = {name: each.guess for name, each in parameters.items()}
    draw(record, found, guess).savefig(options.output, dpi=150)
    print(f"picture: {options.output}")


if __name__ == "__main__":
    main()

"""Masses, inertias and friction of a real double pendulum, from its encoders and motor torques.

Two links hang from two motors. The motors were driven for ten seconds, and angles, rates and
torques recorded. Which masses, centres of mass, moments of inertia, viscous and dry friction make a
simulation with the measured torques follow the measured angles? The search starts with every
parameter 30 % off; another run of the rig, which the fit never sees, judges the result beside the
parameters that the laboratory has published.

Not everything can be known from such a motion: the report names the combinations of masses and
lengths that could be changed without anyone noticing. One thing that is no property of the rig is
found as well, the zeros of the torque sensors in the run: without them the residuals stay five
times as large, and friction is blamed for it.

By default both runs are made by a simulation of the laboratory's own model with its published
parameters. The real ones are in the repository `dfki-ric-underactuated-lab/double_pendulum` on
GitHub, the torque-driven double pendulum of DFKI's Underactuated Lab, in
`data/experiment_records/design_C.0/20220914/sys_id`.

    python examples/identify_rig.py --data trajectory_00.csv --validate trajectory_03.csv
"""

import argparse
import math
import pathlib
import sys

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Array

import jaxmbd as mbd
from jaxmbd import identify

LENGTH = 0.2  # from joint to joint [m]
ROTOR, GEAR = 9.937e-5, 6.0  # inertia of a rotor [kg m^2] and ratio, from the laboratory
STEP = 4e-3  # [s]
CREEP = 0.05  # rate up to which dry friction is smoothed [rad/s]
AXIS = [0.0, 1.0, 0.0]

# What the laboratory has published: m [kg], r [m], I about the joint [kg m^2], b [N m s/rad], and
# dry friction cf atan(100 w) [N m].
PUBLISHED = {
    "m1": 0.6416937799349799,
    "r1": 0.2,
    "I1": 0.02671076499939512,
    "m2": 0.563935954099688,
    "r2": 0.3212669909674605,
    "I2": 0.053878129629650884,
    "b1": 0.001,
    "b2": 0.001,
    "cf1": 0.093,
    "cf2": 0.078,
}
# By which factors the search starts off: 30 % up or down, so that nothing cancels.
OFF = dict(zip(PUBLISHED, (1.3, 0.7, 1.3, 1.3, 0.7, 1.3, 1.3, 0.7, 1.3, 0.7)))
SIGMA = {"angle": 0.01, "rate": 0.2}  # what the model may be off [rad], [rad/s]


def rig(values):
    """Two bodies on two hinges, hanging down at rest. I1 and I2 are about the centres of mass, dry
    friction is `dry`, and `zero` what the torque sensors show too little."""
    p = values

    def link(name, m, r, inertia, height):
        # Only the moment about the hinges is felt: the others are set equal.
        solid = mbd.Inertia(m, inertia * jnp.ones(3), jnp.stack([0 * r, 0 * r, -r]))
        return mbd.Body(name, solid, position=[0.0, 0.0, height])

    upper = link("upper link", p["m1"], p["r1"], p["I1"], 0.0)
    lower = link("lower link", p["m2"], p["r2"], p["I2"], -LENGTH)
    joints = [
        mbd.Revolute("shoulder", "ground", upper, point=[0.0, 0.0, 0.0], axis=AXIS),
        mbd.Revolute("elbow", upper, lower, point=[0.0, 0.0, -LENGTH], axis=AXIS),
    ]
    forces = [
        mbd.forces.JointFriction(joint, viscous=p[f"b{i}"], dry=p[f"dry{i}"], speed=CREEP)
        for i, joint in enumerate(joints, 1)
    ]
    forces += [
        mbd.Motor(
            f"{joint.name} motor",
            joint.body_a,
            joint.body_b,
            frame_a=joint.frame_a,
            frame_b=joint.frame_b,
            index=i,
            rotor_inertia=ROTOR * GEAR**2,
        )
        for i, joint in enumerate(joints)
    ]
    axis = jnp.asarray(AXIS)
    forces += [
        mbd.Torque("zeros on upper", upper, torque_world=(p["zero1"] - p["zero2"]) * axis),
        mbd.Torque("zeros on lower", lower, torque_world=p["zero2"] * axis),
    ]
    return mbd.Mechanism([upper, lower], joints, forces)


class MinimalRig(mbd.AbstractSystem):
    """The laboratory's own model: two angles, moments of inertia about the joints. Its published
    numbers are no pair of rigid bodies, I2 < m2 r2^2, so the mechanism above cannot have them."""

    p: dict[str, Array]

    def mass_matrix(self, q):
        p = self.p
        couple = p["m2"] * LENGTH * p["r2"] * jnp.cos(q[1])
        rotor = GEAR**2 * ROTOR
        m11 = p["I1"] + p["I2"] + LENGTH**2 * p["m2"] + 2 * couple + rotor
        m12 = p["I2"] + couple
        return jnp.array([[m11, m12], [m12, p["I2"] + rotor]])

    def force(self, t, q, v, u):
        p = self.p
        bend = p["m2"] * LENGTH * p["r2"] * jnp.sin(q[1])
        bias = jnp.stack([-bend * v[1] * (2 * v[0] + v[1]), bend * v[0] ** 2])
        low = 9.81 * p["m2"] * p["r2"] * jnp.sin(q[0] + q[1])
        high = 9.81 * (p["m1"] * p["r1"] + p["m2"] * LENGTH) * jnp.sin(q[0])
        b, cf = jnp.stack([p["b1"], p["b2"]]), jnp.stack([p["cf1"], p["cf2"]])
        friction = b * v + cf * jnp.arctan(100 * v)
        return u - bias - jnp.stack([high + low, low]) - friction


def angles(sample):
    if isinstance(sample.system, MinimalRig):
        return sample.q
    return jnp.concatenate(
        [sample.mechanism.joint_coordinates(sample.q, name) for name in ("shoulder", "elbow")]
    )


def rates(sample):
    if isinstance(sample.system, MinimalRig):
        return sample.v
    return jnp.concatenate(
        [mbd.reports.joint_rates(sample.mechanism, sample, name) for name in ("shoulder", "elbow")]
    )


SENSORS = {"angle": angles, "rate": rates}


def published_rig():
    return MinimalRig({name: jnp.asarray(x) for name, x in PUBLISHED.items()})


def hanging():
    """At rest, for the minimal model."""
    return mbd.State(0.0, jnp.zeros(2), jnp.zeros(2))


def read(path: pathlib.Path, start) -> identify.Record:
    """A run of the rig; the torques at all samples, the motion at every eighth."""
    table = np.genfromtxt(path, delimiter=",", names=True)
    columns = table.dtype.names or ()
    needed = ["time", *(f"{what}_meas{i}" for what in ("pos", "vel", "tau") for i in (1, 2))]
    missing = [name for name in needed if name not in columns]
    if missing:
        raise ValueError(f"{path} has no columns {missing}, but {list(columns)}.")
    time = table["time"]
    torque = np.stack([table["tau_meas1"], table["tau_meas2"]], axis=1)
    measured = np.stack([table[name] for name in needed[1:5]], axis=1)
    return record_of(time, measured, torque, start, path.stem)


def made(seed: int, start) -> identify.Record:
    """A run by the published model under torques that are sums of sines, with normal errors of the
    size `SIGMA`."""
    rng = np.random.default_rng(seed)
    time = np.arange(2000) / 200
    phases, rates = rng.uniform(0, 2 * np.pi, (4, 2)), rng.uniform(2.0, 8.0, (4, 2))
    torque = 0.2 * np.sin(rates * time[:, None, None] + phases).sum(axis=1)
    empty = record_of(time, np.zeros((2000, 4)), torque, hanging(), f"made run {seed}")
    [exact] = identify.predict(published_rig(), empty, SENSORS, dt=STEP / 4).readings
    measured = np.zeros((2000, 4))
    measured[::8] = exact + rng.normal(size=exact.shape) / empty.weights
    return record_of(time, measured, torque, start, f"made run {seed}")


def record_of(time, measured, torque, start, name: str) -> identify.Record:
    return identify.Record(
        time[::8],
        measured[::8],
        start,
        control=identify.MeasuredInput(time, torque),
        weights=np.repeat([1 / SIGMA["angle"], 1 / SIGMA["rate"]], 2),
        name=name,
    )


def guess():
    """30 % off the published values, in the terms of `rig`."""
    p = {name: OFF[name] * value for name, value in PUBLISHED.items()}
    positive = identify.Positive()
    friction = identify.NotNegative()  # the viscous part may be none
    found = {}
    for i in (1, 2):
        own = p[f"I{i}"] - p[f"m{i}"] * p[f"r{i}"] ** 2
        values = {"m": p[f"m{i}"], "r": p[f"r{i}"], "I": own, "b": p[f"b{i}"]}
        values["dry"] = math.pi / 2 * p[f"cf{i}"]
        # Within a factor of about two is all that is known before. It keeps the search from
        # drifting along the combinations that the motion does not tell.
        found |= {
            f"{name}{i}": identify.Parameter(x, friction if name == "b" else positive, sigma=x)
            for name, x in values.items()
        }
    zero = identify.Parameter(0.0, identify.Free(scale=0.1))
    return found | {"zero1": zero, "zero2": zero}


def told(p):
    """The combinations on which the motion depends."""
    about = {i: p[f"I{i}"] + p[f"m{i}"] * p[f"r{i}"] ** 2 for i in (1, 2)}
    return {
        "m1 r1 + m2 l [kg m]": p["m1"] * p["r1"] + p["m2"] * LENGTH,
        "m2 r2 [kg m]": p["m2"] * p["r2"],
        "I1 + m2 l^2, about shoulder [kg m^2]": about[1] + p["m2"] * LENGTH**2,
        "I2, about elbow [kg m^2]": about[2],
        "viscous friction, shoulder [N m s]": p["b1"],
        "viscous friction, elbow [N m s]": p["b2"],
        "dry friction, shoulder [N m]": p["dry1"],
        "dry friction, elbow [N m]": p["dry2"],
    }


def published_told():
    """The same of the published values, whose moments are about the joints."""
    p = dict(PUBLISHED)
    for i in (1, 2):
        p[f"I{i}"] = p[f"I{i}"] - p[f"m{i}"] * p[f"r{i}"] ** 2
        p[f"dry{i}"] = math.pi / 2 * p[f"cf{i}"]
    return told(p)


def report(found: identify.Estimate) -> None:
    """Beside the published values: estimates with intervals, as far as residuals are noise."""
    print(f"{'':37}{'found':>10}   95 % interval     published")
    published = published_told()
    for name, (value, sigma) in found.derived(told).items():
        half = 1.96 * found.inflation * sigma
        print(f"{name:37}{value:10.4f} +- {half:8.4f}{published[name]:16.4f}")
    print("Of this, the search knows nothing (each may be changed as a whole, unnoticed):")
    for combination in found.identifiability().undetermined:
        print(f"  {combination}")


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/identify_rig.png"
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", type=pathlib.Path, metavar="CSV", help="run to fit")
    add("--validate", type=pathlib.Path, metavar="CSV", help="run to judge the result by")
    add("--save", type=pathlib.Path, metavar="JSON", help="where to write the estimates")
    add("--resume", type=pathlib.Path, metavar="FILE", help="where to save the search, or go on")
    add("--output", type=pathlib.Path, metavar="PNG", default=output)
    options = parser.parse_args()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    print(options.data or "runs made here, by the published model")
    runs = (options.data, options.validate) if options.data else (3, 4)

    def run(which, start):
        return read(which, start) if options.data else made(which, start)

    try:
        parameters = guess()
        values = {name: jnp.asarray(each.guess) for name, each in parameters.items()}
        record = run(runs[0], rig(values).state())
        found = identify.fit(
            rig,
            parameters,
            record,
            SENSORS,
            dt=STEP,
            max_iterations=300,
            tolerance=1e-6,
            checkpoint=options.resume,
        )
        # The sensors of the other run are taken to have no zeros.
        predictions = (
            ()
            if runs[1] is None
            else (
                found.predict(run(runs[1], found.starts[0]), {"zero1": 0.0, "zero2": 0.0}),
                identify.predict(published_rig(), run(runs[1], hanging()), SENSORS, dt=STEP),
            )
        )
    except (ValueError, OSError) as error:
        sys.exit(f"{parser.prog}: {error}")
    print(found)
    report(found)
    for which, prediction in zip(("found", "published"), predictions):
        shoulder, elbow = (prediction.rms[f"angle[{i}]"] for i in (0, 1))
        print(f"validation, {which:10} shoulder {shoulder:.4f} rad rms, elbow {elbow:.4f} rad rms")
    if options.save:
        found.save(options.save)
    shown = predictions[0] if predictions else found.prediction
    figure, axes = plt.subplots(
        6, 1, figsize=(11, 13), sharex=True, layout="constrained", height_ratios=(2, 2, 2, 2, 1, 1)
    )
    identify.plot_fit(shown, axes[:4])
    for i, (which, prediction) in enumerate(zip(("found", "published"), predictions)):
        axes[4 + i].plot(prediction.records[0].time, prediction.errors[0][:, :2])
        axes[4 + i].set_ylabel(f"{which}:\nangles off [rad]")
    axes[0].set_title(shown.records[0].name)
    axes[3].set_xlabel("")
    axes[-1].set_xlabel("time [s]")
    figure.savefig(options.output, dpi=120)
    print(f"picture: {options.output}")


if __name__ == "__main__":
    main()

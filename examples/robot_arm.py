"""A robot arm whose controller is tuned by gradients.

Three joints, each with a motor, carry a load along a path: base, shoulder and elbow go from rest to
rest in a second. The controller knows the angles and their rates. It adds to a torque for the
weight of the arm, which it believes to be without load, a spring and a damper for each joint,

    u = weight(angles) + kp (wanted - angles) + kd (wanted rates - rates).

How strong should they be? The gradient of the tracking error, and of the torque that it costs,
with respect to all six gains goes backwards through the simulation, controller and all.

    python examples/robot_arm.py --output robot_arm.png
"""

import argparse
import pathlib

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
import tqdm
from jaxtyping import Array, Float

import jaxmbd as mbd

HEIGHT, UPPER, FORE = 0.4, 0.5, 0.4  # of the base, lengths of the arms [m]
MASSES = 6.0, 4.0, 2.5  # of base, upper arm and forearm [kg]
LOAD = 1.5  # in the hand [kg]
WANTED = np.array([1.2, -0.7, 1.1])  # where the angles go from 0 [rad]
DURATION, DT = 1.2, 5e-3  # the motion itself takes 1 s [s]
JOINTS = ("base", "shoulder", "elbow")
QUICK = {"xla_backend_optimization_level": 0}


def robot_arm():
    """Stretched out along the x axis, at rest."""
    shoulder, elbow = [0, 0, HEIGHT], [UPPER, 0, HEIGHT]
    tube = dict(radius=0.05, axis="x")
    upper = mbd.Inertia.cylinder(length=UPPER, mass=MASSES[1], **tube).moved([UPPER / 2, 0, 0])
    fore = mbd.Inertia.cylinder(length=FORE, mass=MASSES[2], **tube).moved([FORE / 2, 0, 0])
    load = mbd.Inertia.sphere(radius=0.05, mass=LOAD).moved([FORE, 0, 0])
    column = mbd.Body("column", mbd.Inertia.cylinder(radius=0.1, length=HEIGHT, mass=MASSES[0]))
    upper_arm = mbd.Body("upper arm", upper, position=shoulder)
    forearm = mbd.Body("forearm", fore + load, position=elbow)
    ends = [
        ("base", "ground", column, [0, 0, 0], [0, 0, 1]),
        ("shoulder", column, upper_arm, shoulder, [0, 1, 0]),
        ("elbow", upper_arm, forearm, elbow, [0, 1, 0]),
    ]
    joints = [mbd.Revolute(name, a, b, point=at, axis=axis) for name, a, b, at, axis in ends]
    motors = [
        mbd.Motor(f"{name} motor", a, b, point=at, axis=axis, index=i)
        for i, (name, a, b, at, axis) in enumerate(ends)
    ]
    return mbd.Mechanism([column, upper_arm, forearm], joints, motors)


def wanted(t):
    """Angles at time t: the polynomial of fifth degree from rest to rest, without jolt."""
    s = jnp.clip(t, 0.0, 1.0)
    return WANTED * s**3 * (10 - 15 * s + 6 * s**2)


class Controller(eqx.Module):
    """u = weight + kp (wanted - angles) + kd (wanted rates - rates) [N m]."""

    log_kp: Float[Array, "3"]
    log_kd: Float[Array, "3"]
    arm: mbd.Mechanism

    def angles(self, q, v):
        """And rates, as encoders would tell them."""
        angles = [self.arm.joint_coordinates(q, name)[0] for name in JOINTS]
        rates = [
            mbd.reports.joint_rates(self.arm, mbd.State(0.0, q, v), name)[0] for name in JOINTS
        ]
        return jnp.stack(angles), jnp.stack(rates)

    def weight(self, angles):
        """Torques that hold the arm without load, by statics; positive angles point downwards."""
        _, shoulder, elbow = angles
        fore = MASSES[2] * FORE / 2 * jnp.cos(shoulder + elbow)
        upper = (MASSES[1] / 2 + MASSES[2]) * UPPER * jnp.cos(shoulder)
        return -9.81 * jnp.stack([0 * fore, upper + fore, fore])

    def __call__(self, t, q, v):
        angles, rates = self.angles(q, v)
        goal, goal_rates = jax.jvp(wanted, (t,), (jnp.ones_like(t),))
        kp, kd = jnp.exp(self.log_kp), jnp.exp(self.log_kd)
        return self.weight(angles) + kp * (goal - angles) + kd * (goal_rates - rates)


def run(gains):
    """The motion under the logarithms (log kp, log kd) of the gains."""
    arm = robot_arm()
    controller = Controller(*gains, arm)
    sol = mbd.simulate(
        arm,
        mbd.UdwadiaKalaba(),
        arm.state(),
        t1=DURATION,
        dt=DT,
        control=controller,
        saveat=diffrax.SaveAt(t0=True, steps=2),
        throw=False,
    )
    angles, _ = jax.vmap(controller.angles)(sol.q, sol.v)
    torques = jax.vmap(controller)(sol.t, sol.q, sol.v)
    return sol, angles, torques


def cost(gains):
    """Mean square of the error [mrad^2] and, a little, of the changes of the torque: stiff
    controllers follow well, but shake the arm."""
    sol, angles, torques = run(gains)
    error = 1e3 * (angles - jax.vmap(wanted)(sol.t))
    shaking = jnp.diff(torques, axis=0) / jnp.diff(sol.t)[:, None]
    return jnp.mean(error**2) + 1e-2 * jnp.mean(shaking**2)


def tuned(gains, steps):
    """By Adam, on the logarithms, with progress."""
    slope = jax.jit(jax.value_and_grad(cost), compiler_options=QUICK)
    optimiser = optax.adam(0.3)
    memory, costs = optimiser.init(gains), []
    with tqdm.trange(steps, desc="tuning") as bar:
        for _ in bar:
            value, gradient = slope(gains)
            costs.append(float(value))
            bar.set_postfix(cost=f"{value:.3g}")
            change, memory = optimiser.update(gradient, memory)
            gains = optax.apply_updates(gains, change)
    return gains, costs


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/robot_arm.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=output, metavar="PNG")
    parser.add_argument("--steps", type=int, default=15, help="of the tuning (%(default)s)")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    first = (jnp.log(100.0) * jnp.ones(3), jnp.log(10.0) * jnp.ones(3))
    found, costs = tuned(first, arguments.steps)
    results = {}
    for name, gains in (("first", first), ("tuned", found)):
        kp, kd = np.exp(gains)
        sol, angles, torques = results[name] = jax.jit(run, compiler_options=QUICK)(gains)
        error = 1e3 * np.abs(angles - jax.vmap(wanted)(sol.t))
        print(f"{name} gains: kp {np.round(kp, 1)} N m/rad, kd {np.round(kd, 2)} N m s/rad")
        print(f"  error at most {error.max():6.2f} mrad, at the end {error[-1].max():6.2f} mrad; "
              f"torque at most {np.abs(torques).max():.1f} N m; joints open by "
              f"{sol.phi_norm.max():.0e}")  # fmt: skip
    arm = robot_arm()
    sol, _, torques = results["tuned"]
    controller = Controller(*found, arm)
    audit = mbd.reports.audit(arm, sol, controller)
    print(f"energy less work of the motors: {np.abs(audit.imbalance).max():.1e} J of "
          f"{np.ptp(audit.work):.2f} J")  # fmt: skip

    draw(results, costs).savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")


def draw(results, costs):
    figure = plt.figure(figsize=(11, 7), layout="constrained")
    motion, torque, error, history = figure.subplots(2, 2).flat
    sol, angles, torques = results["tuned"]
    for i, name in enumerate(JOINTS):
        motion.plot(sol.t, angles[:, i], f"C{i}", label=name)
        motion.plot(sol.t, jax.vmap(wanted)(sol.t)[:, i], "k:", lw=1)
        torque.plot(sol.t, torques[:, i], f"C{i}", label=name)
        for label, style in (("first", "--"), ("tuned", "-")):
            sol, angles_then, _ = results[label]
            off = 1e3 * (angles_then - jax.vmap(wanted)(sol.t))[:, i]
            error.plot(sol.t, off, f"C{i}{style}", lw=1)
    motion.set(title="Angles, tuned (dotted: wanted)", ylabel="[rad]")
    torque.set(title="Torques of the motors, tuned", ylabel="[N m]")
    error.set(title="Error (dashed: first gains)", ylabel="[mrad]")
    history.semilogy(costs, "o-", ms=3)
    history.set(title="Cost", xlabel="step of the tuning")
    for axis in (motion, torque, error):
        axis.set_xlabel("t [s]")
    for axis in (motion, torque):
        axis.legend()
    for axis in (motion, torque, error, history):
        axis.grid(alpha=0.3)
    return figure


if __name__ == "__main__":
    main()

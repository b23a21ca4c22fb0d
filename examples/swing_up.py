"""Swing-ups from rest by iterative LQR, from zero controls: a cart-pole, a pendubot and an acrobot.

The cart-pole is that of Kelly's tutorial: its optimum is recomputed with SciPy on hand-written
equations. The double pendulum has one motor with a limited torque, at the shoulder (pendubot) or
the elbow (acrobot); its other joint is loose, with friction only. Each plan is then followed on a
plant with other parameters, with and without the feedback gains that belong to it.

References: Kelly (2017), An introduction to trajectory optimization, SIAM Review 59, section 6;
parameters of the double pendulum: `double_pendulum`, design C.0, of the DFKI Robotics Innovation
Center (Wiebe et al., 2023, Open source dual-purpose acrobot and pendubot platform, IEEE Robotics
and Automation Magazine).

    python examples/swing_up.py --machine acrobot --output acrobot.png
"""

import argparse
import pathlib
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import scipy.optimize
from jaxtyping import Array

import jaxmbd as mbd


def number(default):
    """A parameter of a system."""
    return eqx.field(converter=jnp.asarray, default=default)


class CartPole(mbd.AbstractSystem):
    """A cart with a pole that hangs at angle 0: q = (place [m], angle [rad]), u = force [N]."""

    cart: Array = number(1.0)
    pole: Array = number(0.3)
    length: Array = number(0.5)
    gravity: Array = number(9.81)

    def mass_matrix(self, q):
        coupling = self.pole * self.length * jnp.cos(q[1])
        return jnp.array(
            [[self.cart + self.pole, coupling], [coupling, self.pole * self.length**2]]
        )

    def force(self, t, q, v, u):
        moment = self.pole * self.length * jnp.sin(q[1])
        return jnp.stack([u[0] + moment * v[1] ** 2, -moment * self.gravity])

    def points(self, q):
        tip = self.length * np.stack([np.sin(q[:, 1]), -np.cos(q[:, 1])], axis=1)
        cart = np.stack([q[:, 0], 0 * q[:, 0]], axis=1)
        return np.stack([cart, cart + tip], axis=1)


class Rig(mbd.AbstractSystem):
    """The double pendulum, q = (shoulder, elbow) [rad], hanging at 0, the elbow relative to the
    first link. `drive`: how much of the motor's torque u [N m] acts on each joint."""

    drive: Array = eqx.field(converter=jnp.asarray)
    mass: Array = number((0.6416937799349799, 0.563935954099688))
    centre: Array = number((0.2, 0.3212669909674605))
    inertia: Array = number((0.02671076499939512, 0.053878129629650884))
    rotor: Array = number(9.937281205437459e-05)
    ratio: Array = number(6.0)
    length: Array = number((0.2, 0.3))
    damping: Array = number((0.001, 0.001))
    friction: Array = number((0.093, 0.078))
    gravity: Array = number(9.81)
    # Coulomb friction turns over within this rate [rad/s].
    smoothing: Array = number(0.2)

    def mass_matrix(self, q):
        i1, i2 = self.inertia
        lever = self.mass[1] * self.length[0]
        both = i2 + lever * self.centre[1] * jnp.cos(q[1])
        first = i1 + both + lever * (self.length[0] + self.centre[1] * jnp.cos(q[1]))
        reflected = self.ratio**2 * self.rotor
        coupling = both - self.ratio * self.rotor
        return jnp.array([[first + reflected + self.rotor, coupling], [coupling, i2 + reflected]])

    def force(self, t, q, v, u):
        (m1, m2), (r1, r2), l1 = self.mass, self.centre, self.length[0]
        h = m2 * l1 * r2 * jnp.sin(q[1])
        bias = jnp.stack([-h * (2 * v[0] * v[1] + v[1] ** 2), h * v[0] ** 2])
        lower = m2 * r2 * jnp.sin(q[0] + q[1])
        weight = self.gravity * jnp.stack([(m1 * r1 + m2 * l1) * jnp.sin(q[0]) + lower, lower])
        rubbing = self.damping * v + self.friction * jnp.tanh(v / self.smoothing)
        return self.drive * u[0] - bias - weight - rubbing

    def points(self, q):
        angle, ends = 0.0, [np.zeros((len(q), 2))]
        for i, length in enumerate(np.asarray(self.length)):
            angle = angle + q[:, i]
            ends.append(ends[-1] + length * np.stack([np.sin(angle), -np.cos(angle)], axis=1))
        return np.stack(ends, axis=1)


class Effort(eqx.Module):
    """u^2."""

    def __call__(self, t, q, v, u):
        return jnp.sum(u**2)


class At(eqx.Module):
    """At rest at `goal`, with rates in units of 10 rad/s."""

    goal: Array = eqx.field(converter=jnp.asarray)

    def __call__(self, t, q, v):
        return jnp.concatenate([q - self.goal, v / 10])


def problem(machine):
    """The optimal control problem of a machine."""
    system, goal, duration, steps, limit = {
        "cart-pole": (CartPole(), [1.0, jnp.pi], 2.0, 60, 20.0),
        "pendubot": (Rig(drive=[1.0, 0.0]), [jnp.pi, 0.0], 1.5, 75, 6.0),
        "acrobot": (Rig(drive=[0.0, 1.0]), [jnp.pi, 0.0], 2.0, 100, 6.0),
    }[machine]
    rest = mbd.State(0.0, jnp.zeros(2), jnp.zeros(2))
    return mbd.trajopt.Problem(
        system,
        rest,
        duration,
        steps,
        nu=1,
        running_cost=Effort(),
        final=At(goal),
        lower=-limit,
        upper=limit,
        substeps=2,
    )


def independent_optimum(plan, substeps=2):
    """The cart-pole's least effort by SciPy, on equations solved by hand for the accelerations,
    from disturbed controls."""
    m1, m2, length, g = 1.0, 0.3, 0.5, 9.81
    steps = len(plan.u)
    h = 2.0 / steps / substeps

    def rate(x, u):
        s, c = np.sin(x[1]), np.cos(x[1])
        d = m1 + m2 * s * s
        a = (length * m2 * s * x[3] ** 2 + u + m2 * g * c * s) / d
        b = -(length * m2 * c * s * x[3] ** 2 + u * c + (m1 + m2) * g * s) / (length * d)
        return np.stack([x[2], x[3], a, b])

    def end(u):
        x = np.zeros((4, *np.shape(u)[1:]))
        for k in range(steps):
            for _ in range(substeps):
                k1 = rate(x, u[k])
                k2 = rate(x + h / 2 * k1, u[k])
                k3 = rate(x + h / 2 * k2, u[k])
                x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + rate(x + h * k3, u[k]))
        return x - np.array([1.0, np.pi, 0, 0]).reshape(4, *[1] * (x.ndim - 1))

    def slopes(u):
        return (
            end(u[:, None] + 1e-6 * np.eye(steps)) - end(u[:, None] - 1e-6 * np.eye(steps))
        ) / 2e-6

    dt = 2.0 / steps
    disturbed = np.asarray(plan.u[:, 0]) + np.random.default_rng(0).normal(size=steps)
    found = scipy.optimize.minimize(
        lambda u: dt * u @ u,
        disturbed,
        jac=lambda u: 2 * dt * u,
        method="SLSQP",
        bounds=[(-20, 20)] * steps,
        constraints=dict(type="eq", fun=end, jac=slopes),
        options=dict(ftol=1e-12, maxiter=500),
    )
    return found.fun


def other_plant(task, scale):
    """The problem with masses and inertias `scale` times as large, which gravity feels."""
    names = ("cart", "pole") if isinstance(task.system, CartPole) else ("mass", "inertia")
    where = lambda p: [getattr(p.system, name) for name in names]  # noqa: E731
    return eqx.tree_at(where, task, [scale * x for x in where(task)])


def main():
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/swing_up.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, default=output, metavar="PNG")
    parser.add_argument(
        "--machine", choices=("cart-pole", "pendubot", "acrobot"), default="cart-pole"
    )
    parser.add_argument("--scale", type=float, default=1.02, help="of the plant's masses")
    parser.add_argument("--no-progress", action="store_true")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    task = problem(arguments.machine)
    begin = time.perf_counter()
    plan = mbd.trajopt.ilqr(
        task,
        max_iterations=600,
        tolerance=1e-7,
        condition_tolerance=1e-7,
        progress=not arguments.no_progress,
    )
    print(f"{arguments.machine}, {time.perf_counter() - begin:.1f} s with compilation")
    print(plan)
    if arguments.machine == "cart-pole":
        print(f"  the same by SciPy's SLSQP {independent_optimum(plan):.9g}")

    plant = other_plant(task, arguments.scale)
    followed = {
        "with feedback": mbd.trajopt.perform(plant, plan.control),
        "controls alone": mbd.trajopt.perform(plant, plan.open_loop),
    }
    print(f"on a plant with masses times {arguments.scale:g}:")
    for name, motion in followed.items():
        off = np.abs(np.asarray(motion.q[-1] - plan.q[-1])).max()
        print(f"  {name:15s} ends {off:.3f} off its place")

    draw(task, plan, followed).savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")


def draw(task, plan, followed):
    figure, (places, motions, torques) = plt.subplots(1, 3, figsize=(14, 4.5), layout="constrained")
    shown = np.linspace(0, len(plan.t) - 1, 25).astype(int)
    points = task.system.points(np.asarray(plan.q))
    for k in shown:
        places.plot(*points[k].T, "o-", color=plt.colormaps["viridis"](k / len(plan.t)), ms=3)
    places.plot(*points[:, -1].T, "k:", lw=0.8)
    places.set(title="Motion, from dark to light", xlabel="x [m]", ylabel="y [m]", aspect="equal")
    for i, style in enumerate(("-", "--")):
        motions.plot(plan.t, plan.q[:, i], "C0" + style, label=f"q{i + 1}, planned")
        for (name, motion), colour in zip(followed.items(), ("C2", "C3"), strict=True):
            motions.plot(motion.t, motion.q[:, i], colour + style, lw=1, label=f"q{i + 1}, {name}")
    low, high = float(plan.q.min()), float(plan.q.max())
    motions.set(title="Coordinates", xlabel="t [s]", ylabel="[m], [rad]")
    motions.set_ylim(low - 0.5 * (high - low), high + 0.5 * (high - low))
    motions.legend(fontsize="small")
    torques.step(plan.t, np.append(plan.u[:, 0], plan.u[-1, 0]), where="post", label="planned")
    motion = followed["with feedback"]
    torques.step(plan.t, np.append(motion.u[:, 0], motion.u[-1, 0]), "C2", where="post", lw=1)
    for bound in (task.lower[0], task.upper[0]):
        torques.axhline(float(bound), color="k", lw=0.5, ls=":")
    torques.set(title="Control, and with feedback (green)", xlabel="t [s]", ylabel="u [N], [N m]")
    return figure


if __name__ == "__main__":
    main()

"""An arm of two links draws a circle within a millimetre, with the least effort of its two motors.

The arm is written by the places of elbow and tip, with the lengths of the links as constraints. The
circle is a condition on the path, a tube around the moving target. The motion in the tube is all
but prescribed, so the optimum is known: inverse dynamics of the two angles, by hand.

    python examples/arm_drawing_circle.py --output arm_drawing_circle.png
"""

import argparse
import pathlib

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Array

import jaxmbd as mbd

LENGTHS, MASSES, GRAVITY = (0.5, 0.4), (1.0, 0.6), 9.81
CENTRE, RADIUS, PERIOD = (0.55, 0.1), 0.15, 2.0


def parameter(default):
    return eqx.field(converter=jnp.asarray, default=default)


class Arm(mbd.AbstractSystem):
    """q = (elbow, tip), point masses in a vertical plane; u = torques of shoulder and elbow."""

    lengths: Array = parameter(LENGTHS)
    masses: Array = parameter(MASSES)
    gravity: Array = parameter(GRAVITY)

    def mass_matrix(self, q):
        return jnp.diag(jnp.repeat(self.masses, 2))

    def force(self, t, q, v, u):
        # A torque on a link is a pair of forces across it; those on the shoulder do no work.
        upper, fore = q[:2], q[2:] - q[:2]
        on_upper = (u[0] - u[1]) * across(upper)
        on_fore = u[1] * across(fore)
        weights = self.gravity * self.masses[:, None] * jnp.array([[0.0, -1.0]])
        return jnp.concatenate([on_upper - on_fore, on_fore]) + weights.ravel()

    def constraint(self, q, t):
        links = jnp.stack([q[:2], q[2:] - q[:2]])
        return jnp.sum(links**2, axis=1) - self.lengths**2


def across(link):
    return jnp.stack([-link[1], link[0]]) / (link @ link)


def target(t):
    """Where the tip should be: a circle that begins and ends at rest."""
    share = t / PERIOD
    angle = 2 * jnp.pi * share**3 * (10 - 15 * share + 6 * share**2)
    return jnp.array(CENTRE) + RADIUS * jnp.stack([jnp.cos(angle), jnp.sin(angle)])


class Effort(eqx.Module):
    """l = |u|^2."""

    def __call__(self, t, q, v, u):
        return u @ u


class Tube(eqx.Module):
    """|tip - target|^2 <= radius^2, in units of the radius squared."""

    radius: Array

    def __call__(self, t, q, v, u):
        miss = (q[2:] - target(t)) / self.radius
        return (miss @ miss - 1)[None]


def angles(t):
    """Both angles to the horizontal that put the tip on the target, elbow below."""
    x, y = np.asarray(target(t))
    (a, b), d = LENGTHS, np.hypot(x, y)
    shoulder = np.arctan2(y, x) - np.arccos((a**2 + d**2 - b**2) / (2 * a * d))
    elbow = a * np.exp(1j * shoulder)
    return np.array([shoulder, np.angle(complex(x, y) - elbow)])


def inverse_dynamics(t, h=1e-3):
    """The torques of the prescribed motion, by hand; rates by central differences, fourth order."""
    before, here, after = angles(t - h), angles(t), angles(t + h)
    far = angles(t + 2 * h), angles(t - 2 * h)
    rate = (8 * (after - before) - (far[0] - far[1])) / (12 * h)
    a = (16 * (after + before) - far[0] - far[1] - 30 * here) / (12 * h**2)
    (l1, l2), (m1, m2) = LENGTHS, MASSES
    c, s = np.cos(here[0] - here[1]), np.sin(here[0] - here[1])
    coupling = m2 * l1 * l2
    upper = (m1 + m2) * l1 * (l1 * a[0] + GRAVITY * np.cos(here[0]))
    upper += coupling * (c * a[1] + s * rate[1] ** 2)
    fore = m2 * l2 * (l2 * a[1] + GRAVITY * np.cos(here[1]))
    fore += coupling * (c * a[0] - s * rate[0] ** 2)
    return np.array([upper + fore, fore])


def start() -> mbd.State:
    upper, _ = angles(0.0)
    elbow = LENGTHS[0] * jnp.array([np.cos(upper), np.sin(upper)])
    return mbd.assemble(Arm(), jnp.concatenate([elbow, target(0.0)]))


def problem(steps: int, tube: float) -> mbd.trajopt.Problem:
    return mbd.trajopt.Problem(
        Arm(), start(), PERIOD, steps, nu=2, running_cost=Effort(), path=Tube(jnp.array(tube))
    )


def guess(steps: int) -> mbd.trajopt.Guess:
    """On the circle, without velocity and torque."""
    shoulder = np.array([angles(t)[0] for t in np.linspace(0, PERIOD, steps + 1)])
    elbow = LENGTHS[0] * np.stack([np.cos(shoulder), np.sin(shoulder)], axis=1)
    tip = jax.vmap(target)(jnp.linspace(0, PERIOD, steps + 1))
    q = jnp.concatenate([jnp.asarray(elbow), tip], axis=1)
    return mbd.trajopt.Guess(q, jnp.zeros_like(q), jnp.zeros((steps + 1, 2)))


def prescribed_effort(samples: int = 2000) -> float:
    """int |u|^2 dt of inverse dynamics."""
    t = np.linspace(0, PERIOD, samples + 1)
    effort = np.array([np.sum(inverse_dynamics(x) ** 2) for x in t])
    return float(np.trapezoid(effort, t))


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/arm_drawing_circle.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40, help="intervals of the grid")
    parser.add_argument("--tube", type=float, default=1e-3, help="radius around the target [m]")
    parser.add_argument("--output", type=pathlib.Path, default=output)
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    given = problem(arguments.steps, arguments.tube)
    plan = mbd.trajopt.transcription(given, guess(arguments.steps))
    print(plan)
    known = prescribed_effort(400)
    share = float(plan.cost) / known - 1
    print(f"inverse dynamics: {known:.6f} N^2 m^2 s; the plan has {share:+.2e} of it")
    torques = np.array([inverse_dynamics(float(t)) for t in plan.t])
    draw(plan, torques).savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")


def draw(plan, torques):
    figure = plt.figure(figsize=(10, 4.5), layout="constrained")
    place, torque = figure.subplots(1, 2)
    for q in np.asarray(plan.q)[::4]:
        place.plot([0, q[0], q[2]], [0, q[1], q[3]], "o-", color="0.7", ms=3)
    place.plot(plan.q[:, 2], plan.q[:, 3], "C0", label="tip")
    place.set(xlabel="x [m]", ylabel="y [m]", aspect="equal")
    place.legend()
    for i, name in enumerate(("shoulder", "elbow")):
        torque.plot(plan.t[:-1], plan.u[:, i], f"C{i}.", label=f"{name}, plan")
        torque.plot(plan.t, torques[:, i], f"C{i}-", lw=0.8, label=f"{name}, inverse dynamics")
    torque.set(xlabel="t [s]", ylabel="torque [N m]")
    torque.legend()
    return figure


if __name__ == "__main__":
    main()

"""Turn the crank of a slider-crank from rest to rest in the least time, with a limited torque.

The mechanism is written in redundant coordinates (angle of the crank, angle of the rod, place of
the slider), and only told where the crank should stop. The plan is compared with the exact optimum
of the one freedom that is left: full torque forwards over half of the angle, full torque backwards
over the other half, whatever the inertia on the way.

    python examples/minimum_time_slider_crank.py --output minimum_time_slider_crank.png
"""

import argparse
import pathlib

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Array
from scipy.integrate import quad

import jaxmbd as mbd


def parameter(default):
    return eqx.field(converter=jnp.asarray, default=default)


class SliderCrank(mbd.LagrangianSystem):
    """q = (a, b, x): angles of crank and rod to the x axis, and the slider on it. Uniform bars, in
    a horizontal plane; the control is the torque of the crank [N m]."""

    masses: Array = parameter((0.8, 0.5, 1.0))  # crank, rod, slider [kg]
    lengths: Array = parameter((0.2, 0.5))  # crank, rod [m]

    def centres(self, q):
        crank, rod = (
            length * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
            for length, angle in zip(self.lengths, q[:2])
        )
        slider = jnp.stack([q[2], jnp.zeros_like(q[2])])
        return jnp.stack([crank / 2, crank + rod / 2, slider])

    def kinetic_energy(self, q, v):
        _, velocity = jax.jvp(self.centres, (q,), (v,))
        spin = self.masses[:2] * self.lengths**2 / 12
        return (self.masses @ jnp.sum(velocity**2, axis=1) + spin @ v[:2] ** 2) / 2

    def potential_energy(self, q):
        return jnp.zeros((), q.dtype)

    def generalised_force(self, t, q, v, u):
        return jnp.concatenate([u, jnp.zeros(2, q.dtype)])

    def constraint(self, q, t):
        crank, rod = self.lengths
        x = crank * jnp.cos(q[0]) + rod * jnp.cos(q[1]) - q[2]
        return jnp.stack([x, crank * jnp.sin(q[0]) + rod * jnp.sin(q[1])])


class Stop(eqx.Module):
    """The crank at an angle, at rest."""

    angle: Array

    def __call__(self, t, q, v):
        return jnp.stack([q[0] - self.angle, v[0]])


class Time(eqx.Module):
    """l = 1: the cost is the duration."""

    def __call__(self, t, q, v, u):
        return jnp.ones((), q.dtype)


def reduced_inertia(system: SliderCrank, a: float) -> float:
    """I(a) of the one freedom, by hand: T = I(a) a'^2 / 2."""
    (m1, m2, m3), (r, l) = np.asarray(system.masses), np.asarray(system.lengths)  # noqa: E741
    b = -np.arcsin(r / l * np.sin(a))
    ratio = -r * np.cos(a) / (l * np.cos(b))  # b' / a'
    centre = np.array([-r * np.sin(a) - l / 2 * np.sin(b) * ratio, r / 2 * np.cos(a)])
    slider = -r * np.sin(a) - l * np.sin(b) * ratio
    return m1 * r**2 / 3 + m2 * (centre @ centre + l**2 / 12 * ratio**2) + m3 * slider**2


def least_time(system: SliderCrank, start: float, end: float, torque: float) -> float:
    """The exact optimum. Work of the torque is kinetic energy, I a'^2 / 2 = torque |a - a_0|, so
    the switch is half way, and T is an integral over the angle; with s^2 = |a - a_0| it is
    regular."""
    half = abs(end - start) / 2
    sign = np.sign(end - start)

    def side(s, begin, direction):
        return np.sqrt(2 * reduced_inertia(system, begin + direction * s**2) / torque)

    parts = [quad(side, 0, np.sqrt(half), args=x) for x in ((start, sign), (end, -sign))]
    return sum(value for value, _ in parts)


def problem(start: float, end: float, torque: float, steps: int) -> mbd.trajopt.Problem:
    """Rest to rest in the least time."""
    system = SliderCrank()
    rod = -np.arcsin(0.4 * np.sin(start))
    guess = [start, rod, 0.2 * np.cos(start) + 0.5 * np.cos(rod)]
    return mbd.trajopt.Problem(
        system,
        mbd.assemble(system, jnp.array(guess), fixed=[0]),
        duration=1.0,
        steps=steps,
        nu=1,
        running_cost=Time(),
        final=Stop(jnp.array(end)),
        lower=-torque,
        upper=torque,
        substeps=2,
    )


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/minimum_time_slider_crank.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40, help="intervals of the grid")
    parser.add_argument("--torque", type=float, default=2.0, help="largest torque [N m]")
    parser.add_argument("--output", type=pathlib.Path, default=output)
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    start, end = 0.3, 0.3 + 1.5 * np.pi
    given = problem(start, end, arguments.torque, arguments.steps)
    exact = least_time(given.system, start, end, arguments.torque)
    print(f"exact optimum of the reduced equation: {exact:.6f} s")
    plans = {}
    for method in (mbd.trajopt.Trapezoidal(), mbd.trajopt.HermiteSimpson()):
        plan = mbd.trajopt.transcription(given, method=method, duration=(0.05, 10.0))
        name = type(method).__name__
        plans[name] = plan
        print(f"\n{name}: {float(plan.cost):.6f} s, {float(plan.cost) / exact - 1:+.1e} of it")
        print(plan)
        performed = mbd.trajopt.perform(given, plan, substeps=20)
        beside = given.system.difference(plan.q[-1], performed.q[-1])[0]
        print(f"  simulated, its controls end {abs(float(beside)):.1e} rad beside")
    draw(plans, exact).savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")


def draw(plans, exact: float):
    figure, axes = plt.subplots(3, 1, sharex=True, figsize=(7, 7), layout="constrained")
    for name, plan in plans.items():
        axes[0].plot(plan.t, plan.q[:, 0], ".-", label=name)
        axes[1].plot(plan.t, plan.v[:, 0], ".-")
        t = jnp.linspace(plan.t[0], plan.t[-1], 1000)
        of = lambda t, plan=plan: plan.control(t, plan.q[0], plan.v[0])[0]  # noqa: E731
        axes[2].plot(t, jax.vmap(of)(t))
    for axis, label in zip(axes, ("crank [rad]", "speed [rad/s]", "torque [N m]")):
        axis.axvline(exact, color="0.7", linestyle="--")
        axis.set_ylabel(label)
    axes[0].legend()
    axes[2].set_xlabel("time [s]")
    return figure


if __name__ == "__main__":
    main()

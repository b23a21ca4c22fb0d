"""From a plan to a motion that can be performed: swing a slider-crank up, and hold it there.

The crank hangs in a vertical plane, its rod pulls a slider on a level guide, and a motor at the
crank shall bring it upright. The motor is too weak to lift it straight away. Three steps lead
there:

1. Collocation finds the torque that swings it up with the least effort.
2. LQR along the plan makes feedback of it. After the plan, LQR about the upright state goes on.
3. Starts that are disturbed show what the plan is worth, with the feedback and without.

    python examples/hold_a_plan.py --output hold_a_plan.png
"""

import argparse
import pathlib
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Array

import jaxmbd as mbd

PLANNED, LIMIT = 0.8, 1.4  # torque that the plan may use, and that the motor has [N m]


def parameter(default):
    return eqx.field(converter=jnp.asarray, default=default)


class SliderCrank(mbd.AbstractSystem):
    """q = (a, b, x): angles of crank and rod to the x axis, and the slider on it. Uniform bars; the
    control is the torque of the crank [N m]."""

    masses: Array = parameter((0.5, 0.5, 1.0))  # crank, rod, slider [kg]
    lengths: Array = parameter((0.3, 0.6))  # crank, rod [m]

    def mass_matrix(self, q):
        (crank, rod, slider), (r, l) = self.masses, self.lengths  # noqa: E741
        c = rod * r * l / 2 * jnp.cos(q[0] - q[1])
        own = jnp.diag(jnp.stack([(crank / 3 + rod) * r**2, rod * l**2 / 3, slider]))
        return own.at[0, 1].set(c).at[1, 0].set(c)

    def force(self, t, q, v, u):
        (crank, rod, _), (r, l) = self.masses, self.lengths  # noqa: E741
        s = rod * r * l / 2 * jnp.sin(q[0] - q[1])
        on_crank = u[0] - s * v[1] ** 2 - 9.81 * (crank / 2 + rod) * r * jnp.cos(q[0])
        on_rod = s * v[0] ** 2 - 9.81 * rod * l / 2 * jnp.cos(q[1])
        return jnp.stack([on_crank, on_rod, jnp.zeros_like(s)])

    def constraint(self, q, t):
        return self.points(q)[2] - jnp.stack([q[2], jnp.zeros_like(q[2])])

    def points(self, q):
        """The hinges from the ground to the slider, shape `(3, 2)`."""
        bars = self.lengths[:, None] * jnp.stack([jnp.cos(q[:2]), jnp.sin(q[:2])], axis=1)
        return jnp.stack([0 * bars[0], bars[0], bars[0] + bars[1]])


class Effort(eqx.Module):
    def __call__(self, t, q, v, u):
        return jnp.sum(u**2)


class At(eqx.Module):
    """The crank at an angle, at rest."""

    angle: Array

    def __call__(self, t, q, v):
        return jnp.stack([q[0] - self.angle, v[0]])


class Then(eqx.Module):
    """One control until a time, and another one after it."""

    first: Any
    until: Array
    second: Any

    def __call__(self, t, q, v):
        return jnp.where(t < self.until, self.first(t, q, v), self.second(t, q, v))


def equilibria(system: SliderCrank) -> tuple[mbd.State, mbd.State]:
    """Hanging, and upright as its mirror image."""
    guess = mbd.State(0.0, jnp.array([-1.6, 0.5, 0.5]), jnp.zeros(3))
    hanging = mbd.analysis.equilibrium(system, guess, jnp.zeros(1))
    return hanging, mbd.State(0.0, hanging.q * jnp.array([-1.0, -1.0, 1.0]), jnp.zeros(3))


def swing_up(system: SliderCrank, hanging, upright, steps: int, progress: bool = True):
    """The plan by collocation."""
    problem = mbd.trajopt.Problem(
        system,
        mbd.State(0.0, hanging.q, hanging.v),
        3.0,
        steps,
        nu=1,
        running_cost=Effort(),
        final=At(upright.q[0]),
        lower=-PLANNED,
        upper=PLANNED,
    )
    return mbd.trajopt.transcription(problem, progress=progress)


def hold(system: SliderCrank, plan, upright):
    """Feedback along the plan, and about the upright state after it."""
    weights = dict(Q=jnp.array([10.0, 0.0, 0.0, 1.0, 0.0, 0.0]), R=1.0)
    above = mbd.analysis.lqr(mbd.analysis.linearise(system, upright, jnp.zeros(1)), **weights)
    model = mbd.analysis.linearise_along(system, plan)
    along = mbd.analysis.lqr(model, **weights, final=above.value)
    return mbd.trajopt.Saturated(Then(along, plan.t[-1], above), -LIMIT, LIMIT)


def disturbed(state: mbd.State, system: SliderCrank, count: int):
    """States beside this one: angles of the crank by 0.1 rad, its speeds by 0.3 rad/s (standard
    deviations)."""

    def one(key):
        angle, rate = jr.normal(key, (2,)) * jnp.array([0.1, 0.3])
        found = mbd.assemble(system, state.q.at[0].add(angle), state.v.at[0].add(rate), fixed=[0])
        return found.q, found.v

    return jax.vmap(one)(jr.split(jr.key(0), count))


@eqx.filter_jit
def follow(system: SliderCrank, starts, control, t1: float):
    """The motions from many starts: times, states and the deviation of the crank from the end."""

    def one(q, v):
        sol = mbd.simulate(
            system,
            mbd.UdwadiaKalaba(),
            mbd.State(0.0, q, v),
            t1=t1,
            dt=0.005,
            control=control,
            saveat=diffrax.SaveAt(t0=True, steps=4),
            throw=False,
        )
        return sol.t, sol.q, sol.v

    return jax.vmap(one)(*starts)


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    mbd.compilation_cache()
    output = pathlib.Path(__file__).parent / "output/hold_a_plan.png"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40, help="intervals of the plan")
    parser.add_argument("--starts", type=int, default=20, help="number of disturbed starts")
    parser.add_argument("--output", type=pathlib.Path, default=output)
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)

    system = SliderCrank()
    hanging, upright = equilibria(system)
    plan = swing_up(system, hanging, upright, arguments.steps)
    print(plan)
    policy = hold(system, plan, upright)
    starts = disturbed(hanging, system, arguments.starts)
    t1 = float(plan.t[-1]) + 1.0
    motions = {}
    for name, control in (("with feedback", policy), ("torque alone", plan.control)):
        t, q, _ = follow(system, starts, control, t1)
        motions[name] = (t, q)
        off = np.abs(np.asarray(q)[:, :, 0] - float(upright.q[0]))
        print(
            f"{name}: starts up to {np.abs(starts[0][:, 0] - hanging.q[0]).max():.2f} rad beside "
            f"the plan end up to {off[:, -1].max():.1e} rad beside upright"
        )
    draw(system, plan, motions, upright).savefig(arguments.output, dpi=150)
    print(f"picture: {arguments.output}")


def draw(system: SliderCrank, plan, motions, upright):
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(10, 4), layout="constrained", width_ratios=(1, 1.6)
    )
    for i in np.linspace(0, plan.t.size - 1, 9).astype(int):
        shade = str(0.85 * (1 - i / (plan.t.size - 1)))
        left.plot(*np.asarray(system.points(plan.q[i])).T, "o-", ms=3, color=shade)
    left.set(title="The plan, from light to dark", xlabel="x [m]", ylabel="y [m]", aspect="equal")
    for (name, (t, q)), color in zip(motions.items(), ("C0", "C3")):
        right.plot(t[0], q[:, :, 0].T, color=color, lw=0.7)
        right.plot([], [], color=color, label=name)
    right.plot(plan.t, plan.q[:, 0], "k--", label="plan")
    around = float(upright.q[0]) + np.array([-5.5, 4.0])
    right.set(title="From disturbed starts", xlabel="time [s]", ylabel="crank [rad]", ylim=around)
    right.legend(loc="upper left")
    return figure


if __name__ == "__main__":
    main()

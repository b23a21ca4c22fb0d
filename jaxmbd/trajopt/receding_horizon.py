"""Model predictive control: plan ahead, take one step, plan again."""

from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from .._checks import check_system, with_dtype
from .._inputs import at_least, checked, not_negative, positive
from .._progress import progress_bar
from .._system import AbstractSystem, State
from .controls import Held
from .expansion import AbstractExpansion, SecondOrder
from .ilqr import make_options
from .iterating import iterate, once
from .motion import advance, running_cost
from .multipliers import Multipliers
from .problem import Problem
from .searching import Carry, Options, begun, iteration
from .starting import as_control, table, with_strong_types
from .status import STATUS


class Pursuit(eqx.Module):
    """What the plant did under a receding horizon.

    - `t`: starts of the periods and the end, shape `(n + 1,)` [s]. `q`, `v`: states of the plant
      there. `u`: controls that were applied, `(n, nu)`.
    - `cost`: the running cost of the plant's motion.
    - `status`: of each period's search, a member of `mbd.trajopt.STATUS` with shape `(n,)`; a
      search that stops at its limit of iterations is `running`, which is usual.
    - `iterations`: of each period's search, shape `(n,)`.
    - `good`: whether the simulation of the plant never failed.
    """

    t: Float[Array, " points"]
    q: Float[Array, "points nq"]
    v: Float[Array, "points nv"]
    u: Float[Array, "n nu"]
    cost: Float[Array, ""]
    status: STATUS
    iterations: Int[Array, " n"]
    good: Bool[Array, ""]

    def __str__(self) -> str:
        converged = int(np.sum(np.asarray(self.status == STATUS.converged)))
        return "\n".join(
            [
                "Receding horizon" + ("." if bool(self.good) else ": the plant's motion failed."),
                f"  periods            {self.u.shape[0]}, {converged} of which converged",
                f"  iterations         {float(jnp.mean(self.iterations)):.1f} a period, at most "
                f"{int(jnp.max(self.iterations))}",
                f"  time               {float(self.t[0]):g} to {float(self.t[-1]):g} s",
                f"  running cost       {float(self.cost):.9g}",
                f"  largest |u|        {float(jnp.max(jnp.abs(self.u))):.4g}",
            ]
        )


class _Period(NamedTuple):
    """Where the plant is, and what was planned before."""

    t: Any
    q: Any
    v: Any
    u: Any
    multipliers: Multipliers


@checked
def receding_horizon(
    problem: Problem,
    periods: Annotated[int, at_least(1)],
    *,
    plant: AbstractSystem | None = None,
    guess: Any = None,
    max_iterations: Annotated[int, at_least(1)] = 5,
    first_iterations: Annotated[int, at_least(1)] = 300,
    tolerance: Annotated[ArrayLike, not_negative] = 1e-6,
    condition_tolerance: Annotated[ArrayLike, not_negative] = 1e-4,
    penalty: Annotated[ArrayLike, positive] = 10.0,
    expansion: AbstractExpansion = SecondOrder(),
    progress: bool = True,
) -> Pursuit:
    """Control a plant by solving `problem` anew in each control interval, from where the plant is
    then: the first control of each plan is applied for one interval. Each search, by `ilqr`, begins
    with the last plan and its multipliers moved on by one interval, the last control repeated. The
    horizon recedes with the time: costs and conditions are functions of the time t that it is
    then, and those at the end apply `duration` ahead.

    **Arguments:**

    - `problem`: what to plan, from the start of the motion on; its grid gives the period
      `problem.dt`. `periods`: how many to control.
    - `plant`: the system that moves in truth, with coordinates like those of `problem.system`;
      that itself by default. `problem.enforcement` and `scheme` simulate it too.
    - `guess`: of the first plan, as of `ilqr`.
    - `max_iterations`: of the search in each period; `first_iterations`: in the first one.
    - others: as of `ilqr`.

    All periods share one compiled program.

    **Returns:** a `Pursuit`.

    **Raises:** `ValueError` when the plant does not fit the problem.

    Reference: Tassa, Erez and Todorov (2012), Synthesis and stabilization of complex behaviors
    through online trajectory optimization, IROS.
    """
    problem = with_strong_types(problem)
    state, dtype = problem.state, problem.state.q.dtype
    plant = problem.system if plant is None else with_dtype(plant, dtype)
    check_system(plant, Held(jnp.zeros(problem.nu, dtype)), state.q, state.v)
    first = make_options(problem, tolerance, condition_tolerance, first_iterations, expansion)
    options = make_options(problem, tolerance, condition_tolerance, max_iterations, expansion)
    penalty = jnp.asarray(penalty, dtype)
    # Room of one in the history, which nobody asks for: the same program for all periods.
    carry = begun(problem, as_control(problem, guess), penalty, None, 1)
    carry = _solved(problem, first, carry)
    here = _Period(state.t, state.q, state.v, carry.path.u, carry.multipliers)
    motion, record = [(here.t, here.q, here.v)], [(carry.status, carry.iteration)]
    applied = []
    with progress_bar(periods, "receding horizon", progress) as bar:
        for k in range(periods):
            if k:
                here, judged = once(_plan, (problem, options, penalty), here)
                record.append(judged)
            here, u, paid, good = once(_move, (problem, plant), here)
            motion.append((here.t, here.q, here.v))
            applied.append((u, paid, good))
            bar.update()
            bar.set_postfix_str(f"{int(record[-1][1])} iterations")
    stack = lambda *x: jnp.stack(x)  # noqa: E731
    t, q, v = jax.tree.map(stack, *motion)
    u, paid, good = jax.tree.map(stack, *applied)
    status, iterations = jax.tree.map(stack, *record)
    return Pursuit(t, q, v, u, jnp.sum(paid), status, iterations, jnp.all(good))


def _from(problem: Problem, here: _Period) -> Problem:
    return eqx.tree_at(lambda p: p.state, problem, State(here.t, here.q, here.v))


def _plan(args, here: _Period) -> tuple[_Period, Any]:
    """Plan from here, beginning with the plan of the period before."""
    problem, options, penalty = args
    problem = _from(problem, here)
    old = here.multipliers
    multipliers = Multipliers(old.final, _shifted(old.path), penalty)
    carry = begun(problem, table(problem, _shifted(here.u)), penalty, multipliers, 1)
    carry = _solved(problem, options, carry)
    here = here._replace(u=carry.path.u, multipliers=carry.multipliers)
    return here, (carry.status, carry.iteration)


def _move(args, here: _Period) -> tuple[_Period, Any, Any, Any]:
    """The plant under the first control of the plan."""
    problem, plant = args
    u = here.u[0]
    of_plant = eqx.tree_at(lambda p: p.system, problem, plant)
    q, v, good = advance(of_plant, here.t, here.q, here.v, Held(u))
    paid = running_cost(problem, here.t, here.q, here.v, u)
    return here._replace(t=here.t + problem.dt, q=q, v=v), u, paid, good


def _solved(problem: Problem, options: Options, carry: Carry) -> Carry:
    return iterate(
        iteration,
        (problem, options),
        carry,
        0,
        label="",
        describe=lambda _: "",
        progress=False,
    )


def _shifted(x: Array) -> Array:
    return jnp.concatenate([x[1:], x[-1:]])

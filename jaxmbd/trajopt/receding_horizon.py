"""Model predictive control: plan ahead, apply one control, and plan again."""

from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from .._checks import check_system, with_dtype
from .._inputs import at_least, checked, not_negative, positive
from .._printed import printed
from .._progress import progress_bar, says_when_compiling
from .._search import Multipliers, iterate, once
from .._system import AbstractSystem, State
from .control_guess import with_strong_types
from .controls import Feedback, Held
from .expansion import AbstractExpansion, SecondOrder
from .guess import as_guess
from .ilqr import first_guess, make_options, policy
from .ilqr_iteration import first_state, iteration
from .motion import advance, running_cost, startable
from .problem import Problem
from .status import STATUS


@printed
class Pursuit(eqx.Module):
    """The motion of a plant under `receding_horizon`.

    - `t`: the starts of the periods and the end, shape `(n + 1,)` [s]. `q`, `v`: the states of the
      plant there. `u`: the applied controls, `(n, nu)`.
    - `cost`: the running cost of the motion of the plant.
    - `status`: the status of each search, a member of `mbd.trajopt.STATUS` with shape `(n,)`.
    - `iterations`: the number of iterations of each search, shape `(n,)`.
    - `good`: whether the simulation of the plant never failed.

    Controls are also applied if their search did not converge, for instance at its limit of
    iterations. If a search finds no motion to start from, the previous policy is continued.
    """

    t: Float[Array, " points"]
    q: Float[Array, "points nq"]
    v: Float[Array, "points nv"]
    u: Float[Array, "n nu"]
    cost: Float[Array, ""]
    status: STATUS
    iterations: Int[Array, " n"]
    good: Bool[Array, ""]

    @property
    def unconverged(self) -> Int[Array, ""]:
        """The number of searches that did not converge."""
        return jnp.sum(self.status != STATUS.converged)

    @property
    def successful(self) -> Bool[Array, ""]:
        """Whether all searches converged and the simulation of the plant never failed."""
        return self.good & (self.unconverged == 0)

    def __str__(self) -> str:
        return "\n".join(
            [
                f"Receding horizon: {self._verdict()}.",
                f"  periods            {self.u.shape[0]}",
                f"  iterations         {float(jnp.mean(self.iterations)):.1f} a period, at most "
                f"{int(jnp.max(self.iterations))}",
                f"  time               {float(self.t[0]):g} to {float(self.t[-1]):g} s",
                f"  running cost       {float(self.cost):.9g}",
                f"  largest |u|        {float(jnp.max(jnp.abs(self.u))):.4g}",
            ]
        )

    def _verdict(self) -> str:
        if not bool(self.good):
            return "the plant's motion failed"
        if not int(self.unconverged):
            return "all searches converged"
        words = {
            "at the limit of iterations": STATUS.running,
            "stuck": STATUS.stuck,
            "infeasible": STATUS.infeasible,
            "without a motion to begin with": STATUS.failed_start,
        }
        counts = {word: int(jnp.sum(self.status == status)) for word, status in words.items()}
        found = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        return f"{int(self.unconverged)} of {self.u.shape[0]} searches did not converge ({found})"


class _Period(NamedTuple):
    """The state of the plant, and the last plan."""

    t: Any
    q: Any
    v: Any
    policy: Feedback
    multipliers: Multipliers


@checked
@says_when_compiling("receding horizon")
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
    """Control a plant by solving `problem` again in each control interval, from the current state
    of the plant. The first control of each plan is applied for one interval.

    Each search is done by `ilqr`. It starts with the policy of the last plan, followed from the
    current state, with its last interval repeated. The controls alone would not follow an unstable
    motion and would lead the search astray. The first search starts with states rather than a
    motion, and joins them (multiple shooting). The horizon recedes with time: costs and conditions
    are functions of the actual time t, and those at the end apply `duration` ahead.

    **Arguments:**

    - `problem`: the problem at the start. `periods`: the number of periods of `problem.dt` each.
    - `plant`: the real system, with coordinates like those of `problem.system`; default
      `problem.system`. It is simulated with `problem.enforcement` and `scheme` too.
    - `guess`: the guess for the first plan, as in `ilqr`; but the default is that of
      `transcription`.
    - `max_iterations`: the limit of each search. `first_iterations`: the limit of the first one.
    - others: as in `ilqr`.

    All periods share one compiled program.

    **Returns:** a `Pursuit`.

    **Raises:** `ValueError` if the plant does not fit the problem.

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
    # The history is not needed. Its length is one, so that all periods share one program.
    guess = as_guess(problem, None) if guess is None else first_guess(problem, guess)
    begin = first_state(problem, guess, penalty, None, 1)
    found, _ = iterate(iteration, (problem, first), begin, None)
    here = _Period(state.t, state.q, state.v, policy(problem, found), found.multipliers)
    motion, searches = [(here.t, here.q, here.v)], [(found.status, found.iteration)]
    applied = []
    with progress_bar(periods, "receding horizon", progress) as bar:
        for k in range(periods):
            if k:
                here, search = once(_plan, (problem, options, penalty), here)
                searches.append(search)
            here, u, paid, good = once(_move, (problem, plant), here)
            motion.append((here.t, here.q, here.v))
            applied.append((u, paid, good))
            bar.update()
            bar.set_postfix_str(f"{int(searches[-1][1])} iterations")
    stack = lambda *x: jnp.stack(x)  # noqa: E731
    t, q, v = jax.tree.map(stack, *motion)
    u, paid, good = jax.tree.map(stack, *applied)
    status, iterations = jax.tree.map(stack, *searches)
    return Pursuit(t, q, v, u, jnp.sum(paid), status, iterations, jnp.all(good))


def _plan(args, here: _Period) -> tuple[_Period, Any]:
    """Plan from here, starting with the policy of the previous period."""
    problem, options, penalty = args
    problem = eqx.tree_at(lambda p: p.state, problem, State(here.t, here.q, here.v))
    old = here.multipliers
    mu = jnp.concatenate([old.inequality[1:], old.inequality[-1:]])
    multipliers = Multipliers(old.equality, mu, penalty)
    begin = first_state(problem, here.policy, penalty, multipliers, 1)
    found, _ = iterate(iteration, (problem, options), begin, None)
    plan = here._replace(policy=policy(problem, found), multipliers=found.multipliers)
    failed = found.status == STATUS.failed_start
    select = lambda a, b: jnp.where(failed, a, b) if eqx.is_array(b) else b  # noqa: E731
    return jax.tree.map(select, here, plan), (found.status, found.iteration)


def _move(args, here: _Period) -> tuple[_Period, Any, Any, Any]:
    """Move the plant by the first control of the plan."""
    problem, plant = args
    u = here.policy(here.t, here.q, here.v)
    of_plant = eqx.tree_at(lambda p: p.system, problem, plant)
    good = startable(of_plant, here.t, here.q, here.v)
    q, v, reached = advance(of_plant, here.t, here.q, here.v, Held(u))
    paid = running_cost(problem, here.t, here.q, here.v, u)
    return here._replace(t=here.t + problem.dt, q=q, v=v), u, paid, good & reached

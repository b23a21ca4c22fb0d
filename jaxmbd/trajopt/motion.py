"""The motion under a control on the grid of a problem, its cost and its conditions."""

from typing import NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._compiler import loop, one_by_one
from .._equations import equations
from .._methods import RolledRK4
from .._results import RESULTS, first_failure
from .._search import Multipliers
from .._step import Stepper, off_branch
from .._system import AbstractSystem, State
from .._types import Control, RealScalarLike
from .controls import within
from .problem import Problem


class Trajectory(NamedTuple):
    """A motion on the grid: states at its points, and controls at the start of each interval.
    `good` is true if no step failed. After a failure the state stays constant."""

    q: Float[Array, "points nq"]
    v: Float[Array, "points nv"]
    u: Float[Array, "n nu"]
    good: Bool[Array, ""]


def stepper_of(problem: Problem) -> Stepper:
    """The stepper of a problem."""
    scheme = problem.scheme
    if scheme is None and problem.enforcement.continuous:
        # The default scheme, with its stages in a loop. Second derivatives compile twice as fast.
        scheme = RolledRK4()
    return Stepper(problem.system, problem.enforcement, scheme)


def startable(problem: Problem, t: RealScalarLike, q: Array, v: Array) -> Bool[Array, ""]:
    """Whether a motion can start here: the parameters are in their ranges and the mass matrix is
    symmetric. The constraints need not hold during the search."""
    start = stepper_of(problem).init(State(t, q, v), start_tolerance=jnp.inf)
    return start.result == RESULTS.successful


def advance(
    problem: Problem, t: RealScalarLike, q: Array, v: Array, control: Control
) -> tuple[Array, Array, Bool[Array, ""]]:
    """The state after one control interval from (t, q, v), and whether it was reached. It is not
    checked that a motion can start there."""
    stepper = stepper_of(problem)
    h = jnp.asarray(problem.dt / problem.substeps, q.dtype)
    state, _ = loop(
        lambda _, state: stepper.step(state, h, control),
        # The constraints need not hold during the search.
        stepper.init(State(t, q, v), start_tolerance=jnp.inf, check=False),
        problem.substeps,
        checkpoint_body=not stepper.has_checkpoints(q.dtype),
        meter=diffrax.NoProgressMeter(),
    )
    result = first_failure(state.result, stepper.end_result(state))
    # The next interval starts from the pose alone, which must not be of another turn.
    reached = (result == RESULTS.successful) & jnp.logical_not(off_branch(stepper.system, state))
    return state.q, state.v, reached


def follow(problem: Problem, control: Control) -> Trajectory:
    """The motion under a control. The reverse pass stores few states and recomputes the others."""
    return one_by_one(_followed, problem, control)


def _followed(problem: Problem, control: Control) -> Trajectory:
    state = problem.state

    def body(k, carry):
        q, v, _, good = carry
        t = problem.times[k]
        here = within(control, t, q, v)
        u = jnp.asarray(here(t, q, v), q.dtype)
        q, v, reached = advance(problem, t, q, v, here)
        return q, v, u, good & reached

    good = startable(problem, state.t, state.q, state.v)
    start = (state.q, state.v, jnp.zeros(problem.nu, state.q.dtype), good)
    _, (q, v, u, good) = loop(
        body,
        start,
        problem.steps,
        output=lambda carry: carry,
        meter=diffrax.NoProgressMeter(),
    )
    q, v = jnp.concatenate([state.q[None], q]), jnp.concatenate([state.v[None], v])
    return Trajectory(q, v, u, good[-1])


def cost_rate(problem: Problem, t, q, v, u) -> Float[Array, ""]:
    """The rate of the running cost, l(t, q, v, u)."""
    if problem.running_cost is None:
        return jnp.zeros((), q.dtype)
    return jnp.asarray(problem.running_cost(t, q, v, u), q.dtype)


def running_cost(problem: Problem, t, q, v, u) -> Float[Array, ""]:
    """The running cost of one interval, l dt."""
    return problem.dt * cost_rate(problem, t, q, v, u)


def final_cost(problem: Problem, t, q, v) -> Float[Array, ""]:
    """The final cost phi."""
    if problem.final_cost is None:
        return jnp.zeros((), q.dtype)
    return jnp.asarray(problem.final_cost(t, q, v), q.dtype)


def final_conditions(problem: Problem, t, q, v) -> Float[Array, " conditions"]:
    """The values that must be zero at the end."""
    return jnp.asarray([] if problem.final is None else problem.final(t, q, v), q.dtype)


def path_conditions(problem: Problem, t, q, v, u) -> Float[Array, " conditions"]:
    """The values that must not be positive at a point of the grid."""
    return jnp.asarray([] if problem.path is None else problem.path(t, q, v, u), q.dtype)


def cost(problem: Problem, path: Trajectory) -> Float[Array, ""]:
    """The cost sum_k l(t_k, q_k, v_k, u_k) dt + phi, integrated by the left rectangle rule."""
    t = problem.times
    running = jax.vmap(running_cost, (None, 0, 0, 0, 0))
    intervals = running(problem, t[:-1], path.q[:-1], path.v[:-1], path.u)
    return jnp.sum(intervals) + final_cost(problem, t[-1], path.q[-1], path.v[-1])


def conditions(
    problem: Problem, path: Trajectory
) -> tuple[Float[Array, " final"], Float[Array, "points path"]]:
    """The values of `final` at the end and of `path` at all points of the grid. The last point has
    the control of the last interval."""
    t = problem.times
    u = jnp.concatenate([path.u, path.u[-1:]])
    of_path = jax.vmap(path_conditions, (None, 0, 0, 0, 0))(problem, t, path.q, path.v, u)
    return final_conditions(problem, t[-1], path.q[-1], path.v[-1]), of_path


def augmented_cost(
    problem: Problem, multipliers: Multipliers, path: Trajectory
) -> Float[Array, ""]:
    """The augmented Lagrangian of a motion."""
    c, d = conditions(problem, path)
    of_path = multipliers.of_inequalities(multipliers.inequality, d)
    return cost(problem, path) + multipliers.of_equations(c) + of_path


@eqx.filter_jit
def largest_phi(system: AbstractSystem, t, q) -> Float[Array, " points"]:
    """|Phi| at each point."""

    def one(t, q):
        return jnp.max(jnp.abs(equations(system).positions(t, q)), initial=0.0)

    return jax.vmap(one)(t, q)

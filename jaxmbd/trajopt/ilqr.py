"""Iterative LQR with bounds of the controls, on the constrained motion."""

from typing import Annotated, Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import ArrayLike

from .._inputs import at_least, checked, not_negative, positive
from .._progress import says_when_compiling
from .._search import Monitor, iterate
from .control_guess import as_control, with_strong_types
from .controls import Feedback
from .expansion import AbstractExpansion, SecondOrder
from .guess import Guess, as_guess, constant_guess
from .ilqr_iteration import Options, SearchState, first_state, iteration
from .performance import with_rounding
from .plan import Plan, make_plan, without_repetition
from .problem import Problem
from .tangent import tangent_size


@checked
@says_when_compiling("iLQR")
def ilqr(
    problem: Problem,
    guess: Any = None,
    *,
    max_iterations: Annotated[int, at_least(1)] = 300,
    tolerance: Annotated[ArrayLike, not_negative] = 1e-9,
    condition_tolerance: Annotated[ArrayLike, not_negative] = 1e-6,
    penalty: Annotated[ArrayLike, positive] = 10.0,
    expansion: AbstractExpansion = SecondOrder(),
    progress: bool = True,
) -> Plan:
    r"""Minimise the cost of a `Problem` by iterative LQR: linearise the discrete motion and
    expand the costs about the last motion,

    $$
    \xi_{k+1} = A_k \xi_k + B_k\,\delta u_k, \qquad
    J \approx \sum_k \text{quadratic}(\xi_k, \delta u_k),
    $$

    solve this problem by dynamic programming, follow the policy that it gives with a line search,
    and repeat. The displacements xi are coordinates of the admissible tangent space: those changes
    of (q, v) that keep Phi, Phi' and Psi, in an orthonormal basis at each point of the grid. So
    loops, redundant rows and quaternions need nothing special, and a motion costs the same in
    whatever coordinates it is written.

    Bounds of u are kept in each step of the dynamic programming, by a small quadratic problem with
    bounds, and the feedback does not use controls that are held at one. `final` and `path` become
    terms of the cost by the method of multipliers, see `mbd.trajopt.Multipliers`.

    It takes few iterations and returns feedback gains; the time of each grows with the cube of the
    number of admissible directions. With second derivatives of the motion, the default, it is
    Newton's method near the optimum (differential dynamic programming by another name).

    **Arguments:**

    - `problem`: what to optimise.
    - `guess`: controls of shape `(steps, nu)` or `(nu,)`, or a callable (t, q, v) -> u, for
      instance `control` of another plan, which are followed from the start. Or states with their
      controls: a `Guess`, as from `mbd.trajopt.interpolated(problem)`, or a `Plan`. These need not
      be one motion: what is missing between the points of the grid is closed on the way (multiple
      shooting). Choose it for unstable systems, which controls alone take anywhere. By default
      zero controls; but where small errors grow more than a hundred times under them, or the
      motion fails, the start as states, held.
    - `max_iterations`: of linearisations in all.
    - `tolerance`: relative change of the cost below which the search ends.
    - `condition_tolerance`: of |final| and of positive entries of `path`.
    - `penalty`: rho of the first round of the method of multipliers; each round without success
      takes ten times more.
    - `expansion`: `mbd.trajopt.SecondOrder()` or `FirstOrder()`, see there.
    - `progress`: show a bar. Without one the whole search is one compiled loop, and so it is
      inside of `jax.jit` and `jax.vmap`.

    **Returns:** a `Plan`; its `control` is a `Feedback` along the motion.

    **Raises:** `ValueError` for a guess of the wrong shape.

    Reference: Tassa, Mansard and Todorov (2014), Control-limited differential dynamic programming,
    ICRA. Multipliers as in Howell, Jackson and Manchester (2019), ALTRO, IROS. Gaps as in Mastalli
    et al. (2020), Crocoddyl, ICRA.
    """
    problem = with_strong_types(problem)
    options = make_options(problem, tolerance, condition_tolerance, max_iterations, expansion)
    penalty = jnp.asarray(penalty, problem.state.q.dtype)
    otherwise = constant_guess(problem) if guess is None else None
    first = first_guess(problem, guess)
    state = first_state(problem, first, penalty, None, max_iterations + 1, otherwise)
    # One iteration more, for the gains along the last motion.
    monitor = Monitor("iLQR", max_iterations + 1, _report) if progress else None
    state, _ = iterate(iteration, (problem, options), state, monitor)
    return without_repetition(_plan(problem, state))


def first_guess(problem: Problem, guess: Any) -> Any:
    """States and controls, or a control to follow.

    **Raises:** `ValueError` for the wrong shape."""
    if isinstance(guess, Guess | Plan):
        return as_guess(problem, guess)
    return as_control(problem, guess)


def make_options(
    problem: Problem,
    tolerance: ArrayLike,
    condition_tolerance: ArrayLike,
    max_iterations: int,
    expansion: AbstractExpansion,
) -> Options:
    dtype = problem.state.q.dtype
    return Options(
        jnp.asarray(tolerance, dtype),
        jnp.asarray(condition_tolerance, dtype),
        jnp.asarray(max_iterations),
        expansion,
        tangent_size(problem),
    )


def _report(state: SearchState) -> str:
    cost = float(state.history[state.iteration])
    return f"cost {cost:.6g}, conditions {float(state.violation):.1e}"


def policy(problem: Problem, state: SearchState) -> Feedback:
    """Feedback along the last motion."""
    path = state.path
    return Feedback(
        problem.system,
        jnp.asarray(problem.state.t),
        problem.dt,
        path.q,
        path.v,
        path.u,
        state.gains,
        problem.lower,
        problem.upper,
    )


@eqx.filter_jit
def _plan(problem: Problem, state: SearchState) -> Plan:
    control, path = policy(problem, state), state.path
    found = with_rounding(path, state.growth, jnp.zeros_like(state.growth))
    return make_plan(problem, path, control, state.status, state.iteration, state.history, found)

"""Iterative LQR of constrained motions, with bounds of the controls."""

import dataclasses
from typing import Annotated, Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import ArrayLike

from .._concrete import to_jax
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
    r"""Minimise the cost of a `Problem` by iterative LQR. Each iteration linearises the discrete
    motion and expands the costs about the last motion,

    $$
    \xi_{k+1} = A_k \xi_k + B_k\,\delta u_k, \qquad
    J \approx \sum_k \text{quadratic}(\xi_k, \delta u_k),
    $$

    solves this problem by dynamic programming, and follows the resulting policy with a line search.
    The displacements xi are coordinates in the admissible tangent space: the changes of (q, v) that
    leave Phi, Phi' and Psi unchanged, in an orthonormal basis at each point of the grid. So loops,
    redundant rows and quaternions need no special treatment, and the time does not depend on the
    choice of coordinates.

    Each step of the dynamic programming satisfies the bounds of u by a small quadratic problem with
    bounds. Controls at a bound have no feedback. `final` and `path` become terms of the cost by the
    method of multipliers, see `mbd.trajopt.Multipliers`.

    The method takes few iterations and returns feedback gains. The time of an iteration grows with
    the cube of the number of admissible directions. With second derivatives of the motion, the
    default, it is Newton's method near the optimum, also called differential dynamic programming.

    **Arguments:**

    - `problem`: the problem to solve.
    - `guess`: controls of shape `(steps, nu)` or `(nu,)`, or a callable (t, q, v) -> u, such as the
      `control` of another plan. They are followed from the start. Or states with their controls: a
      `Guess`, as from `mbd.trajopt.interpolated(problem)`, or a `Plan`. These need not be one
      motion; the search closes the gaps between the points of the grid (multiple shooting). Choose
      them for unstable systems, where the motion under controls alone goes far astray. The default
      is zero controls. If small errors grow more than a hundred times under them, or the motion
      fails, it is the state at the start, repeated.
    - `max_iterations`: the largest number of linearisations in all.
    - `tolerance`: the relative change of the cost below which the search ends.
    - `condition_tolerance`: the tolerance of |final| and of positive entries of `path`.
    - `penalty`: rho of the first round of the method of multipliers. It grows tenfold after each
      round that gains little.
    - `expansion`: `mbd.trajopt.SecondOrder()` or `FirstOrder()`, see there.
    - `progress`: whether to show a bar. Without one, and inside of `jax.jit` and `jax.vmap`, the
      whole search is one compiled loop.

    **Returns:** a `Plan`. Its `control` is a `Feedback` along the motion.

    **Raises:** `ValueError` for a guess of the wrong shape.

    Reference: Tassa, Mansard and Todorov (2014), Control-limited differential dynamic programming,
    ICRA. Multipliers as in Howell, Jackson and Manchester (2019), ALTRO, IROS. Gaps as in Mastalli
    et al. (2020), Crocoddyl, ICRA.
    """
    problem = with_strong_types(problem)
    options = make_options(problem, tolerance, condition_tolerance, max_iterations, expansion)
    if guess is None:
        options = dataclasses.replace(options, otherwise=constant_guess(problem))
    penalty = jnp.asarray(penalty, problem.state.q.dtype)
    first = first_guess(problem, guess)
    state = first_state(problem, first, penalty, None, max_iterations + 1, guess is None)
    # One more iteration may replace the guess, and one computes the gains along the last motion.
    monitor = Monitor("iLQR", max_iterations + 2, _report) if progress else None
    state, _ = iterate(iteration, (problem, options), state, monitor)
    return without_repetition(_plan(problem, state))


def first_guess(problem: Problem, guess: Any) -> Any:
    """The user's guess as states and controls, or as a control to follow.

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
        jnp.asarray(to_jax(tolerance), dtype),
        jnp.asarray(to_jax(condition_tolerance), dtype),
        to_jax(max_iterations),
        expansion,
        None,
        tangent_size(problem),
    )


def _report(state: SearchState) -> str:
    cost = float(state.history[state.iteration])
    return f"cost {cost:.6g}, conditions {float(state.violation):.1e}"


def policy(problem: Problem, state: SearchState) -> Feedback:
    """The feedback along the last motion."""
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

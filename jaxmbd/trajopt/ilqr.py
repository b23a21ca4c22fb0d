"""Iterative LQR with bounds of the controls, on the constrained motion."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from .controls import Feedback, Held, Sampled, Saturated
from .expansion import AbstractExpansion, SecondOrder
from .iterating import iterate
from .linear_quadratic import Change, Model, best_change, model
from .motion import Path, advance, conditions, cost, follow
from .multipliers import Multipliers, augmented_cost, first_multipliers, violation
from .plan import Plan, make_plan, trimmed
from .problem import Problem
from .starting import as_control
from .status import STATUS
from .tangent import difference, tangent_size

# Tassa, Mansard and Todorov's schedule of the regularisation, and where it gives up.
_FACTOR, _LEAST, _MOST = 2.0, 1e-8, 1e10
_ARMIJO = 1e-4
_MAX_HALVINGS = 12
_PENALTY_GROWTH, _MOST_PENALTY = 10.0, 1e10
# Tolerance of rounds that leave conditions violated: relative, and as a share of the penalty.
_LOOSE, _SHARE = 1e-5, 1e-3
# A round that leaves more than this share of the violation is followed by a larger penalty.
_ENOUGH = 0.25


class Options(eqx.Module):
    """What `ilqr` is told, as arrays."""

    tolerance: Float[Array, ""]
    condition_tolerance: Float[Array, ""]
    size: int = eqx.field(static=True)
    expansion: AbstractExpansion


class Carry(NamedTuple):
    """Where the search is."""

    path: Path
    model: Model
    value: Float[Array, ""]
    multipliers: Multipliers
    regularisation: Float[Array, ""]
    factor: Float[Array, ""]
    violation: Float[Array, ""]
    round_violation: Float[Array, ""]
    iteration: Int[Array, ""]
    history: Float[Array, " iterations"]
    status: STATUS
    done: Bool[Array, ""]


def ilqr(
    problem: Problem,
    guess: Any = None,
    *,
    max_iterations: int = 300,
    tolerance: ArrayLike = 1e-9,
    condition_tolerance: ArrayLike = 1e-6,
    penalty: ArrayLike = 10.0,
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

    It takes few iterations and returns feedback gains; its cost grows with the cube of the number
    of admissible directions. Second derivatives of the motion are left out, so convergence is fast,
    but not quadratic, where the motion bends much and the costs at the end are not small.

    **Arguments:**

    - `problem`: what to optimise.
    - `guess`: controls of shape `(steps, nu)` or `(nu,)`, or a callable (t, q, v) -> u, for
      instance that of another plan; zero by default.
    - `max_iterations`: of linearisations in all.
    - `tolerance`: relative change of the cost below which the search ends.
    - `condition_tolerance`: of |final| and of positive entries of `path`.
    - `penalty`: rho of the first round of the method of multipliers; each round without success
      takes ten times more.
    - `progress`: show a bar. Without one the whole search is one compiled loop, and so it is
      inside of `jax.jit` and `jax.vmap`.

    **Returns:** a `Plan`; its `control` is a `Feedback` along the motion.

    **Raises:** `ValueError` for a guess of the wrong shape.

    Reference: Tassa, Mansard and Todorov (2014), Control-limited differential dynamic programming,
    ICRA. Multipliers as in Howell, Jackson and Manchester (2019), ALTRO, IROS.
    """
    if max_iterations < 1:
        raise ValueError(f"Argument `max_iterations` must be at least 1, but is {max_iterations}.")
    dtype = problem.state.q.dtype
    options = Options(
        jnp.asarray(tolerance, dtype),
        jnp.asarray(condition_tolerance, dtype),
        tangent_size(problem),
        expansion,
    )
    control = as_control(problem, guess)
    args = problem, options
    carry = start(args, control, jnp.asarray(penalty, dtype), max_iterations)
    carry = iterate(
        _iteration,
        args,
        carry,
        max_iterations,
        label="iLQR",
        describe=lambda c: (
            f"cost {float(c.history[c.iteration]):.6g}, conditions {float(c.violation):.1e}"
        ),
        progress=progress,
    )
    return trimmed(_finish(args, carry))


@eqx.filter_jit
def start(args: Any, control: Any, penalty: Array, max_iterations: int) -> Carry:
    """The first carry, from a guess."""
    problem, _ = args
    path = _held(problem, control)
    return _begun(args, path, first_multipliers(problem, path, penalty), max_iterations)


@eqx.filter_jit
def restarted(args: Any, control: Any, multipliers: Multipliers, max_iterations: int) -> Carry:
    """The first carry, with multipliers known from before."""
    return _begun(args, _held(args[0], control), multipliers, max_iterations)


@eqx.filter_jit
def solved(args: Any, carry: Carry, max_iterations: int) -> Carry:
    """The last carry, in one compiled loop."""
    return iterate(
        _iteration, args, carry, max_iterations, label="", describe=lambda _: "", progress=False
    )


def _held(problem: Problem, control: Any) -> Path:
    return follow(problem, Sampled(Saturated(control, problem.lower, problem.upper)))


def _begun(args, path: Path, multipliers: Multipliers, max_iterations) -> Carry:
    problem, options = args
    value = augmented_cost(problem, multipliers, path)
    good = path.good & jnp.isfinite(value)
    return Carry(
        path=path,
        model=model(problem, multipliers, path, options.size, options.expansion),
        value=value,
        multipliers=multipliers,
        regularisation=jnp.zeros_like(value),
        factor=jnp.ones_like(value),
        violation=violation(problem, path),
        round_violation=jnp.full_like(value, jnp.inf),
        iteration=jnp.array(0),
        history=jnp.full(max_iterations + 1, cost(problem, path)),
        status=STATUS.where(good, STATUS.running, STATUS.failed_start),
        done=~good,
    )


def _convex_change(problem: Problem, carry: Carry) -> tuple[Change, Array, Array, Array]:
    """The best change: with the curvature of the motion, if that is a minimum, else without, and
    with as little regularisation as makes it one; that regularisation, its factor, and whether it
    had to grow."""

    def change(regularisation, bent):
        return best_change(carry.model, problem, carry.path.u, regularisation, bent)

    def going(state):
        return ~state[0].convex & (state[1] < _MOST)

    def body(state):
        _, regularisation, factor, _ = state
        regularisation, factor = _grown(regularisation, factor)
        return change(regularisation, zero), regularisation, factor, jnp.array(True)

    one, zero = jnp.ones_like(carry.value), jnp.zeros_like(carry.value)
    bent = change(carry.regularisation, one)
    first = jax.lax.cond(bent.convex, lambda: bent, lambda: change(carry.regularisation, zero))
    state = (first, carry.regularisation, carry.factor, jnp.array(False))
    return jax.lax.while_loop(going, body, state)


def _grown(regularisation, factor):
    factor = jnp.maximum(_FACTOR, factor * _FACTOR)
    return jnp.maximum(regularisation * factor, _LEAST), factor


def _shrunk(regularisation, factor):
    factor = jnp.minimum(1 / _FACTOR, factor / _FACTOR)
    regularisation = regularisation * factor
    return jnp.where(regularisation > _LEAST, regularisation, 0.0), factor


def _followed(problem: Problem, old: Path, basis: Array, change: Change, scale: Array) -> Path:
    """The motion under the policy of `change`, with `scale` of its open part."""

    def body(carry, knot):
        q, v, good = carry
        t, q_old, v_old, u_old, Z, k, K = knot
        xi = Z.T @ difference(problem.system, (q_old, v_old), (q, v))
        u = jnp.clip(u_old + scale * k + K @ xi, problem.lower, problem.upper)
        q, v, reached = advance(problem, t, q, v, Held(u))
        return (q, v, good & reached), (q, v, u)

    state = problem.state
    knots = (problem.times[:-1], old.q[:-1], old.v[:-1], old.u, basis[:-1])
    (_, _, good), (q, v, u) = jax.lax.scan(
        body, (state.q, state.v, jnp.array(True)), (*knots, change.open, change.gains)
    )
    q, v = jnp.concatenate([state.q[None], q]), jnp.concatenate([state.v[None], v])
    return Path(q, v, u, good)


def _searched(problem: Problem, carry: Carry, change: Change) -> tuple[Path, Array, Array]:
    """The first of the scales 1, 1/2, 1/4, ... with enough of the expected decrease: the motion,
    its value, and whether there was one."""

    def tried(scale):
        path = _followed(problem, carry.path, carry.model.basis, change, scale)
        value = augmented_cost(problem, carry.multipliers, path)
        expected = -(scale * change.linear + scale**2 * change.quadratic)
        improved = (carry.value - value >= _ARMIJO * expected) & (carry.value > value)
        return path, value, improved & path.good & jnp.isfinite(value)

    def going(state):
        return ~state[1][2] & (state[0] > 0.5**_MAX_HALVINGS)

    def body(state):
        scale = state[0] / 2
        return scale, tried(scale)

    one = jnp.ones_like(carry.value)
    return jax.lax.while_loop(going, body, (one, tried(one)))[1]


def _iteration(args, carry: Carry) -> Carry:
    problem, options = args
    change, regularisation, factor, grew = _convex_change(problem, carry)
    expected = -(change.linear + change.quadratic)
    met = carry.violation <= options.condition_tolerance
    size = 1 + jnp.abs(carry.value)
    # As long as conditions are violated, the round need not be solved sharper than they are met.
    missing = _SHARE * carry.multipliers.penalty * carry.violation**2
    loose = jnp.where(met, 0.0, jnp.minimum(_LOOSE * size, missing))
    tolerance = jnp.maximum(options.tolerance * size, loose)
    small = change.convex & (expected <= tolerance)
    solved = small & (grew | (regularisation == 0))

    path, value, improved = _searched(problem, carry, change)
    improved = improved & change.convex & ~solved
    path = _where(improved, path, carry.path)
    value = jnp.where(improved, value, carry.value)
    shrink = improved | small
    regularisation, factor = _where(
        shrink, _shrunk(regularisation, factor), _grown(regularisation, factor)
    )
    stuck = regularisation >= _MOST

    left = violation(problem, path)
    multipliers = carry.multipliers
    next_round = (solved | stuck) & ~met
    growth = jnp.where(left > _ENOUGH * carry.round_violation, _PENALTY_GROWTH, 1.0)
    updated = multipliers.updated(*conditions(problem, path), growth)
    multipliers = _where(next_round, updated, multipliers)
    infeasible = multipliers.penalty > _MOST_PENALTY
    value = jnp.where(next_round, augmented_cost(problem, multipliers, path), value)
    regularisation = jnp.where(next_round, 0.0, regularisation)

    status = STATUS.where(stuck & ~next_round, STATUS.stuck, carry.status)
    status = STATUS.where(infeasible, STATUS.infeasible, status)
    status = STATUS.where(solved & met, STATUS.converged, status)
    later = jnp.arange(carry.history.shape[0]) > carry.iteration
    return Carry(
        path=path,
        model=jax.lax.cond(
            improved | next_round,
            lambda: model(problem, multipliers, path, options.size, options.expansion),
            lambda: carry.model,
        ),
        value=value,
        multipliers=multipliers,
        regularisation=regularisation,
        factor=factor,
        violation=left,
        round_violation=jnp.where(next_round, left, carry.round_violation),
        iteration=carry.iteration + 1,
        history=jnp.where(later, cost(problem, path), carry.history),
        status=status,
        done=status != STATUS.running,
    )


def _where(condition, new, old):
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


@eqx.filter_jit
def _finish(args, carry: Carry) -> Plan:
    problem, _ = args
    free = carry._replace(
        regularisation=jnp.zeros_like(carry.value), factor=jnp.ones_like(carry.value)
    )
    change, *_ = _convex_change(problem, free)
    path, Z = carry.path, carry.model.basis
    gains = jnp.einsum("kim,kxm->kix", change.gains, Z[:-1])
    feedback = Feedback(
        problem.system,
        problem.state.t,
        problem.dt,
        path.q,
        path.v,
        path.u,
        gains,
        problem.lower,
        problem.upper,
    )
    return make_plan(problem, path, feedback, carry.status, carry.iteration, carry.history)

"""Initial guesses of the search for a plan."""

from collections.abc import Callable
from typing import Any, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PyTree

from .._assemble import assemble
from .._compiler import as_one_program, picked, to_jax
from .._equations import equations
from .._inputs import checked, unjudged
from .._printed import counted, printed
from .._results import RESULTS
from .._search import DEPENDENT
from .._simulate import simulate
from .._tangent_space import displaced
from .._types import Control
from .controls import as_control
from .motion import final_conditions
from .plan import Plan
from .problem import Problem


@printed
class Guess(NamedTuple):
    """States and controls at the grid points. They need not satisfy the equations of motion.

    **Fields:**

    - `q`, `v`: shapes `(steps + 1, nq)`, `(steps + 1, nv)`. `u`: shape `(steps + 1, nu)`.
    """

    q: Float[Array, "points nq"]
    v: Float[Array, "points nv"]
    u: Float[Array, "points nu"]

    def __str__(self) -> str:
        sizes = f"{self.q.shape[-1]} coordinates, {counted(self.u.shape[-1], 'input')}"
        return f"guess of a motion: {counted(self.q.shape[-2], 'point')}, {sizes}"


@checked
def interpolated(
    problem: Problem,
    q: ArrayLike | None = None,
    v: ArrayLike | None = None,
    u: ArrayLike | None = None,
) -> Guess:
    """Interpolate linearly from the start to another state. Each point is moved onto the
    constraints by `assemble`. Where that fails, the previous point is repeated.

    **Arguments:**

    - `q`, `v`: the state at the end, shapes `(nq,)`, `(nv,)`; default: the start.
    - `u`: the constant control, shape `(nu,)`; default zero, or the bound nearest to it.
    """
    start = problem.state
    dtype = start.q.dtype
    q_end = start.q if q is None else jnp.asarray(q, dtype)
    v_end = start.v if v is None else jnp.asarray(v, dtype)
    for name, given, own in (("q", q_end, start.q), ("v", v_end, start.v)):
        if given.shape != own.shape:
            raise ValueError(
                f"Argument `{name}` must have shape {own.shape}, but has {given.shape}."
            )
    u = to_jax(np.zeros(problem.nu, dtype)) if u is None else jnp.asarray(u, dtype)
    if u.shape not in ((), (problem.nu,)):
        raise ValueError(f"Argument `u` must have shape ({problem.nu},), but has {u.shape}.")
    return _between(problem, q_end, v_end, u)


@eqx.filter_jit
def _between(problem: Problem, q_end, v_end, u) -> Guess:
    start, system, points = problem.state, problem.system, problem.steps + 1

    def point(t, s):
        q = start.q + s * (q_end - start.q)
        q = system.normalise(q)
        state = assemble(system, q, start.v + s * (v_end - start.v), t, throw=False)
        return state.q, state.v, state.report.result == RESULTS.successful

    share = jnp.linspace(0, 1, points, dtype=start.q.dtype)
    q, v, good = jax.vmap(point)(problem.times, share)
    # Where the straight line has no point of the manifold nearby, repeat the previous point.
    last = jax.lax.cummax(jnp.where(good, jnp.arange(points), 0))
    u = jnp.clip(jnp.broadcast_to(u, (problem.nu,)), problem.lower, problem.upper)
    return Guess(q[last], v[last], jnp.broadcast_to(u, (points, problem.nu)))


@checked
def simulated(problem: Problem, control: Control) -> Guess:
    """Simulate a control with the enforcement, scheme and substeps of the problem.

    **Arguments:**

    - `control`: u(t, q, v); it is clipped to the bounds.
    """

    def clipped(t, q, v):
        u = jnp.broadcast_to(jnp.asarray(control(t, q, v), q.dtype), (problem.nu,))
        return jnp.clip(u, problem.lower, problem.upper)

    motion = simulate(
        problem.system,
        problem.enforcement,
        problem.state,
        dt=problem.dt / problem.substeps,
        num_steps=problem.steps * problem.substeps,
        scheme=problem.scheme,
        control=clipped,
        saveat=diffrax.SaveAt(t0=True, steps=problem.substeps),
        throw=False,
    )
    assert motion.q is not None and motion.v is not None
    return Guess(motion.q, motion.v, jax.vmap(clipped)(motion.t, motion.q, motion.v))


@as_one_program
def constant_guess(problem: Problem) -> Guess:
    """The start, repeated at all points, with the controls nearest to zero. Unlike `interpolated`,
    it may violate constraints that move in time. The search corrects that as it closes the gaps."""
    points, state = problem.steps + 1, problem.state
    u = jnp.clip(jnp.zeros(problem.nu, state.q.dtype), problem.lower, problem.upper)
    return Guess(*(jnp.broadcast_to(x, (points, *x.shape)) for x in (state.q, state.v, u)))


def as_guess(problem: Problem, guess: Any) -> Guess:
    """The user's guess on the grid of the problem.

    **Raises:** `ValueError` for the wrong shape."""
    if guess is None:
        return _towards_end(problem)
    if isinstance(guess, Plan):
        return _resample(problem, guess)
    if not isinstance(guess, Guess):
        return simulated(problem, as_control(problem, guess))
    points = problem.steps + 1
    sizes = (problem.state.q.shape[0], problem.state.v.shape[0], problem.nu)
    dtype = problem.state.q.dtype
    parts = [
        unjudged(f"`{name}` of Guess", x, dtype, shape=None)
        for name, x in zip(Guess._fields, guess, strict=True)
    ]
    for name, x, size in zip(Guess._fields, parts, sizes, strict=True):
        if x.shape != (points, size):
            raise ValueError(
                f"`{name}` of the guess must have shape ({points}, {size}), one row for each point "
                f"of the grid, but has {x.shape}."
            )
    return Guess(*parts)


@eqx.filter_jit
def _final(problem: Problem):
    return final_conditions(problem, problem.times[-1], problem.state.q, problem.state.v)


@eqx.filter_jit
def _displace(problem: Problem, q, v, dx):
    return displaced(problem.system, q, v, dx)


def _remainder(dx, data):
    """The violation of the final conditions minus `left`, and of the constraints."""
    problem, t, q, v, left = data
    moved = displaced(problem.system, q, v, dx)
    on = equations(problem.system).violation(t, *moved)
    return jnp.concatenate([final_conditions(problem, t, *moved) - left, *on])


def _towards_end(problem: Problem) -> Guess:
    """A path from the start towards a state that meets the final conditions. Their violation falls
    evenly along the path, which follows the constraints, so that it stays on one branch of them."""
    state = problem.state
    if problem.final is None:
        return interpolated(problem)
    x, final = np.zeros(2 * state.v.shape[0]), np.asarray(_final(problem))
    q, v, path = state.q, state.v, [(state.q, state.v)]
    for k in range(1, problem.steps + 1):
        left = to_jax(final * (1 - k / problem.steps))
        t = picked(problem.times, k)
        dx = nearest_root(_remainder, x, (problem, t, q, v, left))
        q, v = _displace(problem, q, v, jnp.asarray(dx, q.dtype))
        path.append((q, v))
    return _along(problem, path)


@as_one_program
def _along(problem: Problem, path: list[tuple[Array, Array]]) -> Guess:
    q, v = (jnp.stack(x) for x in zip(*path, strict=True))
    u = jnp.clip(jnp.zeros(problem.nu, q.dtype), problem.lower, problem.upper)
    return Guess(q, v, jnp.broadcast_to(u, (problem.steps + 1, problem.nu)))


def _resample(problem: Problem, plan: Plan) -> Guess:
    """The motion of a plan, resampled on the grid of the problem and stretched to its duration."""
    old = jnp.linspace(0, 1, plan.t.shape[0], dtype=plan.t.dtype)
    new = jnp.linspace(0, 1, problem.steps + 1, dtype=plan.t.dtype)
    column = jax.vmap(jnp.interp, (None, None, 1), 1)
    q, v = column(new, old, plan.q), column(new, old, plan.v)
    q = jax.vmap(problem.system.normalise)(q)
    times = plan.t[0] + new * (plan.t[-1] - plan.t[0])
    return Guess(q, v, jax.vmap(plan.control)(times, q, v))


@eqx.filter_jit
def value_and_slope(rows: Callable, x: ArrayLike, data: PyTree) -> tuple[Array, Array]:
    """The values and Jacobian of rows(x, data). Define `rows` once, or it is compiled again."""
    return rows(x, data), jax.jacfwd(lambda x: rows(x, data))(x)


def nearest_root(
    rows: Callable, x: np.ndarray, data: PyTree, chosen: slice | np.ndarray = slice(None)
) -> np.ndarray:
    """A point near x where the `chosen` entries of rows(x, data) vanish, or the last iterate if
    none is found. It is x if the values or the Jacobian are not finite. By the Gauss-Newton method,
    so that the entries may be redundant."""
    found = x
    for _ in range(30):
        r, J = (np.asarray(part)[chosen] for part in value_and_slope(rows, found, data))
        if not (np.isfinite(J).all() and np.isfinite(r).all()):
            return x
        change = np.linalg.pinv(J, rcond=DEPENDENT) @ r
        found = found - change
        if np.abs(change).max(initial=0.0) < 1e-12 * (1 + np.abs(found).max(initial=0.0)):
            break
    return found

"""The result of an optimisation: the verdict, the plan, and the motion under its controls."""

import dataclasses
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int

from .._compiler import (
    array_namespace,
    as_one_program,
    is_known,
    picked,
    stop_gradient,
    to_jax,
)
from .._inputs import at_least, checked
from .._printed import judged, printed
from .._results import RESULTS, code, succeeded
from .._search import with_value
from .._system import AbstractStates, AbstractSystem
from .._tangent_space import difference, displaced
from .._types import Control
from .controls import PiecewiseConstant, as_control, with_strong_types, within
from .linear_quadratic import tangent
from .motion import Trajectory, advance, conditions, cost, follow, largest_phi
from .problem import Problem

_States = tuple[Array, Array]

# A plan is unstable if its drift exceeds this share of its path and errors grow more than so many
# times. A coarse grid alone does not cause that.
_SHARE, MUCH_GROWTH = 0.1, 100.0
_GIVEN = "simulated under a given control, not optimised"


class Performance(NamedTuple):
    """The effect of small errors.

    - `growth`: the largest factor by which a small deviation from the plan, at any time, has grown
      at its end. It is the largest singular value of the tangent maps to the end.
    - `drift`: how far the motion leaves the plan, to first order: the largest entry of a
      displacement and difference of velocity at any time.
    """

    growth: Float[Array, ""]
    drift: Float[Array, ""]


def performance(problem: Problem, path: Trajectory, control: Control) -> Performance:
    """The performance of a path under a control. With the tangent map A(k) of each interval, and
    its gap d(k) from the next point of the path to the end of the simulated interval,

        delta(k+1) = A(k) delta(k) + d(k).

    The result is a constant under differentiation."""
    problem, path, control = stop_gradient((problem, path, control))
    t, size = problem.times, 2 * path.v.shape[1]
    tangents = jax.vmap(lambda t, q, v: tangent(problem, t, q, v, size))(t, path.q, path.v)

    def interval(t, q, v, here, ahead, Z):
        def end(xi):
            q1, v1 = displaced(problem.system, q, v, here.Z @ xi)
            q1, v1, _ = advance(problem, t, q1, v1, within(control, t, q1, v1))
            return Z.T @ difference(problem.system, ahead, (q1, v1))

        return jax.jacfwd(with_value(end), has_aux=True)(jnp.zeros(size, v.dtype))

    here = jax.tree.map(lambda x: x[:-1], tangents)
    ahead = path.q[1:], path.v[1:]
    # A loop compiles faster than a batch.
    points = t[:-1], path.q[:-1], path.v[:-1], here, ahead, tangents.Z[1:]
    A, gaps = jax.lax.map(lambda x: interval(*x), points)

    def forth(delta, step):
        A, d, Z = step
        delta = A @ delta + d
        return delta, jnp.max(jnp.abs(Z @ delta))

    _, left = jax.lax.scan(forth, jnp.zeros(size, A.dtype), (A, gaps, tangents.Z[1:]))
    return with_rounding(path, growth_to_end(A), jnp.max(left))


def growth_to_end(A: Float[Array, "n m m"]) -> Float[Array, ""]:
    """The largest singular value of the products A(n-1) ... A(k) for all k; inf instead of NaN."""

    def back(carry, A):
        product, scale = carry
        product = product @ A
        size = jnp.max(jnp.abs(product), initial=0.0)
        # Scale the product to size one, so that nothing overflows.
        product, scale = product / jnp.where(size > 0, size, 1.0), scale + jnp.log(size)
        return (product, scale), (product, scale)

    identity = jnp.eye(A.shape[1], dtype=A.dtype)
    _, (products, scales) = jax.lax.scan(back, (identity, jnp.zeros((), A.dtype)), A, reverse=True)
    norms = jax.vmap(lambda x: jnp.linalg.norm(x, 2))(products)
    growth = jnp.max(norms * jnp.exp(scales), initial=0.0)
    return jnp.where(jnp.isnan(growth), jnp.inf, growth)


def with_rounding(path: Trajectory, growth: Array, drift: Array) -> Performance:
    """Add the rounding errors of the states to the drift. They grow as well."""
    size = jnp.maximum(jnp.max(jnp.abs(path.q)), jnp.max(jnp.abs(path.v)))
    drift = drift + growth * jnp.finfo(path.q.dtype).eps * size
    return Performance(growth, jnp.where(jnp.isnan(drift), jnp.inf, drift))


def verdict(problem: Problem, path: Trajectory, result: RESULTS, found: Performance) -> RESULTS:
    """The result, unless the motion leaves the path because it is unstable."""
    start = path.q[0], path.v[0]
    way = jnp.max(
        jnp.abs(jax.vmap(lambda q, v: difference(problem.system, start, (q, v)))(path.q, path.v))
    )
    # Not `>`, so that NaN counts as lost.
    lost = ~(found.drift <= _SHARE * way) & (found.growth > MUCH_GROWTH)
    fine = result == RESULTS.successful
    return RESULTS.where(lost & fine, RESULTS.unstable, result)


@printed
class Plan(AbstractStates):
    """A motion on the grid of a `Problem`, with its controls and the verdict on it.

    **Fields:**

    - `t`: the points of the grid, shape `(n + 1,)` [s].
    - `q`, `v`: the states there, shapes `(n + 1, nq)`, `(n + 1, nv)`.
    - `u`: the controls at the start of each interval, shape `(n, nu)`. They are constant in the
      interval unless `control` is continuous in time.
    - `cost`: the running and final cost together, without penalties.
    - `final_violation`: the largest |final|. `path_violation`: the largest positive entry of
      `path`. `bound_violation`: the largest violation of the bounds of u. `phi_norm`: the largest
      |Phi| at the points of the grid.
    - `growth`: the largest factor by which a small deviation from the plan has grown at its end.
    - `drift`: how far the motion under `control` leaves the plan, to first order and with rounding
      errors: the largest entry of a displacement and difference of velocity.
    - `result`: a member of `mbd.RESULTS`; `RESULTS[plan.result]` is the verdict in words.
    - `iterations`: the number of iterations taken.
    - `history`: the cost of the guess and after each iteration. If the number of iterations was
      not known when tracing, the last cost fills the rest.
    - `control`: the control for `simulate(control=...)` or `perform`: the optimised policy, or a
      `Feedback` along the motion.
    - `multipliers`: lam at the grid points, shape `(n + 1, nc)`, as in `Solution`; `None` for
      methods that do not compute them.
    - `message`: what there is to say beyond the result, such as by the solver.
    """

    t: Float[Array, "*batch points"]
    q: Float[Array, "*batch points nq"]
    v: Float[Array, "*batch points nv"]
    u: Float[Array, "*batch n nu"]
    cost: Float[Array, "*batch"]
    final_violation: Float[Array, "*batch"]
    path_violation: Float[Array, "*batch"]
    bound_violation: Float[Array, "*batch"]
    phi_norm: Float[Array, "*batch"]
    growth: Float[Array, "*batch"]
    drift: Float[Array, "*batch"]
    result: RESULTS
    iterations: Int[Array, "*batch"]
    history: Float[Array, "*batch iterations"]
    control: Control
    multipliers: Float[Array, "*batch points nc"] | None = None
    message: str = eqx.field(static=True, default="")

    @property
    def open_loop(self) -> PiecewiseConstant:
        """The controls u as a table in time, without feedback."""
        begin, end = (picked(self.t, (..., k)) for k in (0, 1))
        step = array_namespace(begin).subtract(end, begin)
        return PiecewiseConstant(begin, to_jax(step), self.u)

    def __str__(self) -> str:
        if np.ndim(self.cost):
            return f"Plan of {np.size(self.cost)} problems: `jax.vmap` over them to see one."
        return "\n".join(
            [
                self.message or judged(self.result, "converged", "not converged"),
                f"  cost               {float(self.cost):.9g}",
                f"  iterations         {int(self.iterations)}",
                f"  time               {np.asarray(self.t)[0]:g} to {np.asarray(self.t)[-1]:g} s, "
                f"{self.u.shape[0]} intervals",
                f"  largest |u|        {np.max(np.abs(self.u)):.4g}",
                f"  final conditions   {float(self.final_violation):.1e}",
                f"  path conditions    {float(self.path_violation):.1e}",
                f"  bounds             {float(self.bound_violation):.1e}",
                f"  |Phi|              {float(self.phi_norm):.1e}",
                f"  errors grow        {float(self.growth):.1e} times, to {float(self.drift):.1e}",
            ]
        )


def make_plan(
    problem: Problem,
    path: Trajectory,
    control: Control,
    result: RESULTS,
    iterations: ArrayLike,
    history: Array,
    found: Performance | None = None,
) -> Plan:
    """The plan of a motion under a control, with the verdict. `found`: the growth and drift, if
    they are already known."""
    c, d = conditions(problem, path)
    outside = jnp.maximum(problem.lower[None] - path.u, path.u - problem.upper[None])
    found = performance(problem, path, control) if found is None else found
    return Plan(
        problem.times,
        path.q,
        path.v,
        path.u,
        cost(problem, path),
        jnp.max(jnp.abs(c), initial=0.0),
        jnp.max(d, initial=0.0),
        jnp.max(outside, initial=0.0),
        jnp.max(largest_phi(problem.system, problem.times, path.q)),
        found.growth,
        found.drift,
        verdict(problem, path, result, found),
        jnp.asarray(iterations),
        history,
        control,
    )


@checked
def perform(
    problem: Problem, control: Any, *, substeps: Annotated[int | None, at_least(1)] = None
) -> Plan:
    """Simulate the motion of `problem` under a control, and evaluate its costs and conditions.

    Tables and `Feedback` give a constant u in each interval. Other callables act continuously, as
    in `simulate`. To try a plan on another system (other parameters, another start), change the
    problem: `eqx.tree_at(lambda p: p.system, problem, other)`.

    To see what the controls of a plan really do, give the plan. The accuracy of a collocated motion
    depends on its grid. Open-loop controls of an unstable motion drift on any grid.

    **Arguments:**

    - `control`: a callable (t, q, v) -> u, controls of shape `(steps, nu)` or `(nu,)`, or a `Plan`
      on the grid of the problem, whose control and duration are taken.
    - `substeps`: the steps of the simulation in each interval, default as in the problem.

    **Returns:** a `Plan`. Its `result` is `RESULTS.unstable` if rounding errors grow to the size of
    the motion, and `RESULTS.failed_start` if the simulation failed. Its `drift` from a plan that
    was given is measured.

    **Raises:** `ValueError` for controls of another shape, and for a plan on another grid.
    """
    problem, given = with_strong_types(problem), None
    if substeps is not None:
        problem = dataclasses.replace(problem, substeps=substeps)
    if isinstance(control, Plan):
        given = control
        if given.t.shape != (problem.steps + 1,):
            raise ValueError(
                f"A plan to perform must be on the grid of the problem, {problem.steps} intervals, "
                f"but has times of shape {given.t.shape}: use the problem that it is of."
            )
        control = given.control
        begin, end = (picked(given.t, k) for k in (0, -1))
        duration = to_jax(array_namespace(begin).subtract(end, begin))
        problem = eqx.tree_at(lambda p: p.duration, problem, duration)
    plan = _simulate(problem, as_control(problem, control, "control"))
    if given is not None:
        drift = _drift(problem.system, (given.q, given.v), (plan.q, plan.v))
        plan = dataclasses.replace(plan, drift=drift)
    good = is_known(code(plan.result)) and np.all(succeeded(plan.result))
    return dataclasses.replace(plan, message=_GIVEN) if good else plan


@eqx.filter_jit
def _simulate(problem: Problem, control: Control) -> Plan:
    path = follow(problem, control)
    result = RESULTS.where(path.good, RESULTS.successful, RESULTS.failed_start)
    value = cost(problem, path)
    return make_plan(problem, path, control, result, jnp.array(0), value[None])


def without_repetition(plan: Plan) -> Plan:
    """The plan without the repeated end of its history, if the number of iterations is concrete."""
    if plan.iterations.ndim or not is_known(plan.iterations):
        return plan
    history = picked(plan.history, np.s_[: int(plan.iterations) + 1])
    return eqx.tree_at(lambda p: p.history, plan, history)


@as_one_program
def _drift(system: AbstractSystem, planned: _States, simulated: _States) -> Array:
    """The largest entry of a displacement and difference of velocity at any time."""
    between = lambda x, y: difference(system, x, y)  # noqa: E731
    return jnp.max(jnp.abs(jax.vmap(between)(planned, simulated)))

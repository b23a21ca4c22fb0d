"""The result of an optimisation."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from .._concrete import numpy_if_concrete, picked, to_jax
from .._inputs import checked
from .._printed import printed
from .._results import code
from .control_guess import as_control, with_strong_types
from .controls import PiecewiseConstant
from .motion import Trajectory, conditions, cost, follow, largest_phi
from .performance import Performance, performance, verdict
from .problem import Problem
from .status import STATUS


@printed
class Plan(eqx.Module):
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
      errors: the largest entry of a displacement and difference of velocity, as `Replay.largest`.
    - `status`: a member of `mbd.trajopt.STATUS`; `STATUS[plan.status]` is the verdict in words.
    - `iterations`: the number of iterations taken.
    - `history`: the cost of the guess and after each iteration. If the number of iterations was
      not known when tracing, the last cost fills the rest.
    - `control`: the control for `simulate(control=...)` or `perform`: the optimised policy, or a
      `Feedback` along the motion.
    - `multipliers`: lam at the grid points, shape `(n + 1, nc)`, as in `Solution`; `None` for
      methods that do not compute them.
    - `message`: the message of the solver.
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
    status: STATUS
    iterations: Int[Array, "*batch"]
    history: Float[Array, "*batch iterations"]
    control: Any
    multipliers: Float[Array, "*batch points nc"] | None = None
    message: str = eqx.field(static=True, default="")

    @property
    def open_loop(self) -> PiecewiseConstant:
        """The controls u as a table in time, without feedback."""
        begin, end = (picked(self.t, (..., k)) for k in (0, 1))
        step = numpy_if_concrete(begin).subtract(end, begin)
        return PiecewiseConstant(begin, to_jax(step), self.u)

    def __str__(self) -> str:
        if np.ndim(self.cost):
            return f"Plan of {np.size(self.cost)} problems: `jax.vmap` over them to see one."
        doubts = STATUS.unstable, STATUS.turns_not_counted
        judged = any(int(code(self.status)) == int(code(doubt)) for doubt in doubts)
        return "\n".join(
            [
                STATUS[self.status] if judged else self.message or STATUS[self.status],
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
    control: Any,
    status: STATUS,
    iterations: Any,
    history: Any,
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
        verdict(problem, path, status, found),
        jnp.asarray(iterations),
        history,
        control,
    )


@checked
def perform(problem: Problem, control: Any) -> Plan:
    """Simulate the motion of `problem` under a control, and evaluate its costs and conditions.

    Tables and `Feedback` give a constant u in each interval. Other callables act continuously, as
    in `simulate`. To try a plan on another system (other parameters, another start), change the
    problem: `eqx.tree_at(lambda p: p.system, problem, other)`.

    **Arguments:**

    - `control`: a callable (t, q, v) -> u, or controls of shape `(steps, nu)` or `(nu,)`.

    **Returns:** a `Plan` with `STATUS.performed`; with `STATUS.unstable` if rounding errors grow to
    the size of the motion; or with `STATUS.failed_start` if the simulation failed.

    **Raises:** `ValueError` for controls of another shape.
    """
    problem = with_strong_types(problem)
    return _simulate(problem, as_control(problem, control, "control"))


@eqx.filter_jit
def _simulate(problem: Problem, control: Any) -> Plan:
    path = follow(problem, control)
    status = STATUS.where(path.good, STATUS.performed, STATUS.failed_start)
    value = cost(problem, path)
    return make_plan(problem, path, control, status, jnp.array(0), value[None])


def without_repetition(plan: Plan) -> Plan:
    """The plan without the repeated end of its history, if the number of iterations is concrete."""
    if isinstance(plan.iterations, Tracer) or plan.iterations.ndim:
        return plan
    history = picked(plan.history, np.s_[: int(plan.iterations) + 1])
    return eqx.tree_at(lambda p: p.history, plan, history)

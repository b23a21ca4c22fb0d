"""The comparison of a plan with the simulation of its controls."""

import dataclasses
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._concrete import as_one_program, numpy_if_concrete, picked, to_jax
from .._inputs import at_least, checked
from .._printed import largest, printed
from .._tangent_space import difference
from .plan import Plan, perform
from .problem import Problem


@printed
class Replay(eqx.Module):
    """The result of `replay`.

    **Fields:**

    - `simulated`: the simulated motion, as a `Plan` with `STATUS.performed`.
    - `drift`: the displacement and difference of velocity from the plan to the simulated motion at
      each point of the grid, shape `(n + 1, 2 nv)`.
    - `largest`: the largest entry of `drift` in absolute value.
    """

    simulated: Plan
    drift: Float[Array, "points nx"]
    largest: Float[Array, ""]

    def __str__(self) -> str:
        drift = f"{largest(self.largest):.3g}"
        return f"simulated again: the motion drifts from the plan by at most {drift}"


@checked
def replay(
    problem: Problem, plan: Plan, *, substeps: Annotated[int | None, at_least(1)] = None
) -> Replay:
    """Simulate the controls of a plan from its start, by the enforcement and scheme of the problem,
    and compare the motion with the plan. The accuracy of a collocated motion depends on its grid.
    Open-loop controls of an unstable motion drift on any grid.

    **Arguments:**

    - `problem`: the problem of the plan. The duration is taken from the plan.
    - `substeps`: the steps of the simulation in each interval, default as in the problem.
    """
    if plan.t.shape != (problem.steps + 1,):
        raise ValueError(
            f"Argument `plan` of replay must be on the grid of the problem, {problem.steps} "
            f"intervals, but has times of shape {plan.t.shape}: use the problem that it is of."
        )
    begin, end = (picked(plan.t, k) for k in (0, -1))
    duration = to_jax(numpy_if_concrete(begin).subtract(end, begin))
    problem = eqx.tree_at(lambda p: p.duration, problem, duration)
    if substeps is not None:
        problem = dataclasses.replace(problem, substeps=substeps)
    simulated = perform(problem, plan.control)
    return Replay(simulated, *_drift(problem, (plan.q, plan.v), (simulated.q, simulated.v)))


@as_one_program
def _drift(problem: Problem, planned: Any, simulated: Any) -> tuple[Array, Array]:
    """The deviations, and the largest of them."""
    drift = jax.vmap(lambda x, y: difference(problem.system, x, y))(planned, simulated)
    return drift, jnp.max(jnp.abs(drift))

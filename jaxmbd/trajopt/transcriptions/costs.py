"""The running cost and the conditions of a problem as arrays, also where it has none."""

import jax.numpy as jnp

from ..motion import final_conditions, path_conditions
from ..problem import Problem


def cost_rate(problem: Problem, t, q, v, u):
    """l(t, q, v, u), a scalar."""
    if problem.running_cost is None:
        return jnp.zeros((), q.dtype)
    return jnp.asarray(problem.running_cost(t, q, v, u), q.dtype)


def path_rows(problem: Problem, t, q, v, u):
    """Rows that must not be positive."""
    return jnp.asarray(path_conditions(problem, t, q, v, u), q.dtype)


def final_rows(problem: Problem, t, q, v):
    """Rows that must be zero at the end."""
    return jnp.asarray(final_conditions(problem, t, q, v), q.dtype)

"""The functions of a problem as arrays, also where it has none."""

import jax.numpy as jnp

from ..problem import Problem


def running_cost(problem: Problem, t, q, v, u):
    """Of a unit of time, a scalar."""
    if problem.running_cost is None:
        return jnp.zeros((), q.dtype)
    return jnp.asarray(problem.running_cost(t, q, v, u), q.dtype)


def final_cost(problem: Problem, t, q, v):
    """At the end, a scalar."""
    if problem.final_cost is None:
        return jnp.zeros((), q.dtype)
    return jnp.asarray(problem.final_cost(t, q, v), q.dtype)


def path_rows(problem: Problem, t, q, v, u):
    """Rows that must not be positive, flattened."""
    if problem.path is None:
        return jnp.zeros(0, q.dtype)
    return jnp.ravel(jnp.asarray(problem.path(t, q, v, u), q.dtype))


def final_rows(problem: Problem, t, q, v):
    """Rows that must be zero at the end, flattened."""
    if problem.final is None:
        return jnp.zeros(0, q.dtype)
    return jnp.ravel(jnp.asarray(problem.final(t, q, v), q.dtype))

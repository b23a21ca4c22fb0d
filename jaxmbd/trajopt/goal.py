"""The state to which the costs and conditions at the end of a problem lead."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._search import redundancy
from .._tangent_space import displaced, state_jacobian, violations
from .expansion import gradient_and_hessian
from .motion import cost_rate, final_conditions, final_cost
from .problem import Problem
from .tangent import is_constrained, tangent

_ITERATIONS, _SHORTEST = 30, 0.5**8
# The weight of the final conditions, beside costs of the usual sizes.
_WEIGHT = 1e4
# Steps of Newton's method back onto the constraints.
_CORRECTIONS = 3


@eqx.filter_jit
def goal(problem: Problem, size: int) -> tuple[Array, Array]:
    r"""The coordinates and velocities near the start, at rest first, that minimise

    $$ \phi(t_1, q, v) + T \, \ell(t_1, q, v, u_0) + w\, |\mathrm{final}(t_1, q, v)|^2 $$

    on the constraints, with the control u_0 nearest to zero. It is for guesses only: there may be
    no control that holds the system there, and a nearer minimum may be another one.

    Newton's method with a line search, in the `size` admissible directions. Directions along which
    the sum is concave are descended too (Nocedal and Wright 2006, Numerical Optimization, section
    3.4), and those that do not matter are left alone.
    """
    system, t = problem.system, problem.times[-1]
    dtype = problem.state.q.dtype
    u = jnp.clip(jnp.zeros(problem.nu, dtype), problem.lower, problem.upper)

    def value(q, v):
        paid = final_cost(problem, t, q, v) + problem.duration * cost_rate(problem, t, q, v, u)
        return paid + _WEIGHT * jnp.sum(final_conditions(problem, t, q, v) ** 2)

    def corrected(q, v):
        if not is_constrained(problem):
            return q, v

        def back(_, x):
            inverse = jnp.linalg.pinv(state_jacobian(system, t, *x), rtol=redundancy(dtype))
            return displaced(system, x[0], x[1], -inverse @ violations(system, t, *x))

        return jax.lax.fori_loop(0, _CORRECTIONS, back, (q, v))

    def step(q, v):
        Z = tangent(problem, t, q, v, size).Z
        g, H, *_ = gradient_and_hessian(
            lambda xi: (value(*displaced(system, q, v, Z @ xi)), ()), jnp.zeros(size, dtype)
        )
        curvature, along = jnp.linalg.eigh((H + H.T) / 2)
        curvature = jnp.abs(curvature)
        matters = curvature > redundancy(dtype) * jnp.max(curvature, initial=0.0)
        slope = along.T @ g
        return -Z @ (along @ jnp.where(matters, slope / jnp.where(matters, curvature, 1.0), 0.0))

    def body(state):
        q, v, old, dx, scale, count = state
        moved = corrected(*displaced(system, q, v, scale * dx))
        new = value(*moved)
        better = new < old
        q, v = jax.tree.map(lambda a, b: jnp.where(better, a, b), moved, (q, v))
        old = jnp.where(better, new, old)
        dx = jax.lax.cond(better, lambda: step(q, v), lambda: dx)
        return q, v, old, dx, jnp.where(better, 1.0, scale / 2), count + 1

    def going(state):
        *_, scale, count = state
        return (scale > _SHORTEST) & (count < _ITERATIONS)

    q, v = corrected(problem.state.q, jnp.zeros_like(problem.state.v))
    one, nothing = jnp.ones((), dtype), jnp.zeros(2 * v.shape[0], dtype)
    # The first round stays in place and computes the first step.
    first = q, v, jnp.full((), jnp.inf, dtype), nothing, one, jnp.array(0)
    return jax.lax.while_loop(going, body, first)[:2]

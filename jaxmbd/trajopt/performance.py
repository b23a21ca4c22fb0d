"""How far the motion under the controls of a plan departs from the plan."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._loop import stop_gradient
from .._search import with_value
from .._tangent_space import difference, displaced
from .controls import within
from .motion import Trajectory, advance
from .problem import Problem
from .status import STATUS
from .tangent import tangent

# A plan is unstable if its drift exceeds this share of its path and errors grow more than so many
# times. A coarse grid alone does not cause that.
_SHARE, MUCH_GROWTH = 0.1, 100.0


class Performance(NamedTuple):
    """The effect of small errors.

    - `growth`: the largest factor by which a small deviation from the plan, at any time, has grown
      at its end. It is the largest singular value of the tangent maps to the end.
    - `drift`: how far the motion leaves the plan, to first order: the largest entry of a
      displacement and difference of velocity at any time.
    """

    growth: Float[Array, ""]
    drift: Float[Array, ""]


def performance(problem: Problem, path: Trajectory, control: Any) -> Performance:
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


def verdict(problem: Problem, path: Trajectory, status: Any, found: Performance) -> Any:
    """The status, unless the motion leaves the path because it is unstable."""
    start = path.q[0], path.v[0]
    way = jnp.max(
        jnp.abs(jax.vmap(lambda q, v: difference(problem.system, start, (q, v)))(path.q, path.v))
    )
    # Not `>`, so that NaN counts as lost.
    lost = ~(found.drift <= _SHARE * way) & (found.growth > MUCH_GROWTH)
    fine = (status == STATUS.converged) | (status == STATUS.performed)
    return STATUS.where(lost & fine, STATUS.unstable, status)

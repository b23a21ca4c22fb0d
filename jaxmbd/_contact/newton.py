"""Newton's method on the natural map, whose derivative is that of the active set.

Where a contact separates, P does not depend on its argument; where it sticks, P is the identity;
where it slips, P moves along the edge of the set. So F(lam) = lam - P(lam - z) has the derivative

    H = 1 - D (1 - S) = C + D S,    D = dP,  C = 1 - D,

of which redundant contacts make a singular matrix: solves are damped.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .delassus import Blocks
from .problem import ContactProblem
from .rows import Impulses

# Step lengths that are tried, 1, 1/2, ...
_LENGTHS = 8


def natural_derivative(
    problem: ContactProblem, lam: Impulses, z: Impulses
) -> tuple[Blocks, Blocks]:
    """C and D at impulses and their velocities."""
    D = jax.vmap(jax.jacfwd(problem.groups.project))(lam - z, problem.mu, problem.smoothing)
    return jnp.eye(lam.shape[1], dtype=lam.dtype)[None] - D, D


def newton(
    problem: ContactProblem, lam: Impulses, steps: int, bound: Float[Array, ""]
) -> tuple[Impulses, Float[Array, ""], Array]:
    """Damped steps until the residual is below `bound` [m/s], until none of the tried lengths
    makes the natural map smaller, or `steps` of them. Returns impulses, residual, iterations."""
    lengths = jnp.asarray([0.5**k for k in range(_LENGTHS)], lam.dtype)

    def going(carry):
        *_, residual, iteration, moved = carry
        return moved & (residual > bound) & (iteration < steps)

    def step(carry):
        lam, z, r, _, iteration, _ = carry
        square = jnp.sum(r * r)
        # Damping fades with the residual: convergence is superlinear.
        damping = 1e-3 * jnp.minimum(square, 1.0) + 10 * jnp.finfo(r.dtype).eps ** 0.8
        d = -problem.S.damped_solve(*natural_derivative(problem, lam, z), r, damping)
        d = jnp.where(jnp.all(jnp.isfinite(d)), d, 0.0)
        dz = problem.S.times(d)
        tried = jax.vmap(lambda s: jnp.sum(problem.natural(lam + s * d, z + s * dz) ** 2))(lengths)
        best = jnp.argmin(tried)
        moved = tried[best] < square
        lam = jnp.where(moved, lam + lengths[best] * d, lam)
        return *at(lam), iteration + 1, moved

    def at(lam):
        z = problem.velocities(lam)
        r = problem.natural(lam, z)
        return lam, z, r, problem.norm(r)

    start = (*at(lam), jnp.asarray(0), jnp.asarray(True))
    lam, *_, iterations, _ = jax.lax.while_loop(going, step, start)
    return lam, problem.residual(lam), iterations

"""Newton's method on the natural map, with the derivative of the active set.

Where a contact separates, P does not depend on its argument. Where it sticks, P is the identity.
Where it slips, P moves along the edge of the set. So F(lam) = lam - P(lam - z) has the derivative

    H = 1 - D (1 - S) = C + D S,    D = dP,  C = 1 - D,

which is singular for redundant contacts. So each step d solves a proximal problem, in which rho
(lam - lam at the step) is added to z. This is a small compliance that fades:

    (C + D (S + rho)) d = -F.

Redundant contacts rarely agree. When the corners of a face rest, their gaps differ from a
plane by the square of its turn in a step. Then not all of them can press. Along the load that they
may exchange, F changes only by that small amount; across it, where friction bends F, it changes by
more. So near points that are no solutions no shorter step d reduces F. But d itself shows the way:
its part along that load is -F / rho, which takes load from contacts that separate and gives it to
those that penetrate. So where steps fail, d is followed until the first pressing contact carries no
load. Newton's method then goes on with this contact open, as after a pivot of the simplex method.

Friction fails in the same way, where a sticking contact starts to slip or a slipping one turns
along the edge of its set. There the path is curved: after any useful step F is larger at first. The
proximal problem itself is regular, also where the active set changes, and full steps solve it if
rho is not too small. Its solutions follow the curved path (proximal point method, Rockafellar
1976).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .delassus import Blocks
from .problem import ContactProblem
from .rows import Impulses

# Number of step lengths 1, 1/2, ... that are tried.
_LENGTHS = 8

# A step succeeds if it leaves less than this share of the square of F.
_GOOD = 0.9


def natural_derivative(
    problem: ContactProblem, lam: Impulses, z: Impulses
) -> tuple[Blocks, Blocks]:
    """Return C and D at impulses and their velocities."""
    D = jax.vmap(jax.jacfwd(problem.groups.project))(lam - z, problem.mu, problem.smoothing)
    return jnp.eye(lam.shape[1], dtype=lam.dtype)[None] - D, D


class _At(NamedTuple):
    """The current impulses with their velocities and natural map, and the best impulses so far."""

    lam: Impulses
    z: Impulses
    r: Impulses
    best: Impulses
    residual: Float[Array, ""]
    iteration: Int[Array, ""]
    moved: Bool[Array, ""]


def newton(
    problem: ContactProblem,
    lam: Impulses,
    steps: int,
    bound: Float[Array, ""],
    whole: Bool[Array, ""],
) -> tuple[Impulses, Float[Array, ""], Array]:
    """Take steps and pivots until the residual is below `bound` [m/s], until neither helps, or
    `steps` times. With `whole`, for regular problems, take full steps even if they increase F at
    first. Returns the best impulses, their residual and the number of iterations."""
    lengths = jnp.asarray([0.5**k for k in range(_LENGTHS)], lam.dtype)

    def going(at: _At):
        return at.moved & (at.residual > bound) & (at.iteration < steps)

    def step(at: _At):
        lam, z, r = at.lam, at.z, at.r
        square = jnp.sum(r * r)
        # rho fades with the residual: convergence is superlinear.
        rho = jnp.sqrt(1e-3 * jnp.minimum(square, 1.0) + 10 * jnp.finfo(r.dtype).eps ** 0.8)
        rho = jnp.where(whole, 0.0, rho)
        d = problem.S.proximal_solve(*natural_derivative(problem, lam, z), -r, rho)
        d = jnp.where(jnp.all(jnp.isfinite(d)), d, 0.0)
        dz = problem.S.times(d)
        tried = jax.vmap(lambda s: jnp.sum(problem.natural(lam + s * d, z + s * dz) ** 2))(lengths)
        shortest = jnp.where(whole, 0, jnp.argmin(tried))
        relieved, pivots = pivot(problem, lam, d)
        pivots = pivots & ~(tried[shortest] < _GOOD * square) & ~whole
        moved = (tried[shortest] < square) | whole
        stepped = jnp.where(moved, lam + lengths[shortest] * d, lam)
        lam = jnp.where(pivots, relieved, stepped)
        return reached(lam, at.best, at.residual, at.iteration + 1, moved | pivots)

    def reached(lam, best, least, iteration, moved):
        z = problem.velocities(lam)
        residual = problem.residual(lam)
        better = residual < least
        best = jnp.where(better, lam, best)
        least = jnp.where(better, residual, least)
        return _At(lam, z, problem.natural(lam, z), best, least, iteration, moved)

    none, infinite = jnp.asarray(0), jnp.asarray(jnp.inf, lam.dtype)
    end = jax.lax.while_loop(going, step, reached(lam, lam, infinite, none, jnp.asarray(True)))
    return end.best, end.residual, end.iteration


def pivot(problem: ContactProblem, lam: Impulses, d: Impulses) -> tuple[Impulses, Bool[Array, ""]]:
    """Move along d to where the first pressing contact carries no load. Returns the impulses, and
    whether there is such a contact. With a smoothed law there is none, since all contacts press."""
    n, change = lam[:, 0], d[:, 0]
    falls = (n > 0) & (change < 0)
    if problem.smoothing is not None:
        falls = falls & (problem.smoothing == 0)
    ends = jnp.where(falls, -n / jnp.where(falls, change, -1.0), jnp.inf)
    end = jnp.min(ends, initial=jnp.inf)
    found = jnp.isfinite(end)
    reached = lam + jnp.where(found, end, 0.0) * d
    return jnp.where((ends <= end)[:, None] & found, 0.0, reached), found

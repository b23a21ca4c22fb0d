"""Newton's method on the natural map, whose derivative is that of the active set.

Where a contact separates, P does not depend on its argument; where it sticks, P is the identity;
where it slips, P moves along the edge of the set. So F(lam) = lam - P(lam - z) has the derivative

    H = 1 - D (1 - S) = C + D S,    D = dP,  C = 1 - D,

of which redundant contacts make a singular matrix. Steps d are those of the proximal problem, in
which z has in addition rho (lam - lam at the step), a little compliance that fades:

    (C + D (S + rho)) d = -F.

Redundant contacts rarely agree: the corners of a face that rests have gaps which differ from those
of a plane by the square of its turn in a step. Then not all of them can press, but along the load
that they may shift among themselves F changes by that little only, and by more across it, where
friction bends. No shorter step d makes F smaller, near points that are no solutions. d itself tells
the way: its part along that load is F / rho, away from contacts that penetrate to those that
separate. So where steps do no good, d is followed until the first of the contacts that press is
relieved, and Newton's method goes on with this one open, as a pivot of the simplex method does.

Friction ends that way too, where a contact that sticks lets go or one that slips turns along the
edge of its set, and the way is bent: after any step of use F is larger at first. The proximal
problem itself is regular, also where the active set changes, and whole steps solve it, if rho is
not too small; its solutions lead along the bent way (the proximal point method, Rockafellar 1976).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .delassus import Blocks
from .problem import ContactProblem
from .rows import Impulses

# Step lengths that are tried, 1, 1/2, ...
_LENGTHS = 8

# Of the square of F: what a step has to leave less than, to do good.
_GOOD = 0.9


def natural_derivative(
    problem: ContactProblem, lam: Impulses, z: Impulses
) -> tuple[Blocks, Blocks]:
    """C and D at impulses and their velocities."""
    D = jax.vmap(jax.jacfwd(problem.groups.project))(lam - z, problem.mu, problem.smoothing)
    return jnp.eye(lam.shape[1], dtype=lam.dtype)[None] - D, D


class _At(NamedTuple):
    """Impulses, their velocities and natural map, and the best impulses so far."""

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
    """Steps and pivots until the residual is below `bound` [m/s], until there is neither, or
    `steps` of them; or, for regular problems, `whole` steps, whatever they do to F at first.
    Returns the best impulses, their residual, iterations."""
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
    """Along d to where the first contact that presses has no load left, and whether there is one.
    On a smoothed law all of them press."""
    n, change = lam[:, 0], d[:, 0]
    falls = (n > 0) & (change < 0)
    if problem.smoothing is not None:
        falls = falls & (problem.smoothing == 0)
    ends = jnp.where(falls, -n / jnp.where(falls, change, -1.0), jnp.inf)
    end = jnp.min(ends, initial=jnp.inf)
    found = jnp.isfinite(end)
    reached = lam + jnp.where(found, end, 0.0) * d
    return jnp.where((ends <= end)[:, None] & found, 0.0, reached), found

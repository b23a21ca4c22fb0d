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

With friction full steps may go in circles even so, where a contact finds itself on the wrong side
of each of its states: det H has another sign in one of them (Painleve's paradox), and F folds. The
path of Newton's directions goes through: from each change of a contact to the next F moves straight
towards 0, or straight away from it where the sign of the determinant has changed (global Newton
method, Smale 1976). With friction in a line or a polygon F is linear in between, and the path is
exact: it is the path of complementary pivots of Lemke (1965).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._compiler import materialise
from .._coordinates import length
from .delassus import Blocks
from .friction import Pyramid
from .problem import ContactProblem
from .rows import Impulses

# The shortest step of 1, 1/2, ... that is tried.
_SHORTEST = 0.5**7

# A path of Newton's directions looks ahead by this share of a step, and passes the end of a piece
# by this share of the piece. So many looks find the end, which is no farther than this.
_AHEAD, _BEYOND, _LOOKS, _FARTHEST = 1e-3, 1e-9, 50, 2.0**40

# A step succeeds if it leaves less than this share of the square of F.
_GOOD = 0.9


def natural_derivative(
    problem: ContactProblem, lam: Impulses, z: Impulses
) -> tuple[Blocks, Blocks]:
    """Return C and D at impulses and their velocities."""
    derivative = jax.vmap(jax.jacfwd(problem.groups.project))
    D = materialise(derivative(lam - z, problem.mu, problem.smoothing))
    return jnp.eye(lam.shape[1], dtype=lam.dtype)[None] - D, D


def fading(r: Impulses) -> Float[Array, ""]:
    """Return rho of a step. It fades with the residual: convergence is superlinear."""
    square = jnp.minimum(jnp.sum(r * r), 1.0)
    return jnp.sqrt(1e-4 * square + 10 * jnp.finfo(r.dtype).eps ** 0.8)


def moved(
    problem: ContactProblem,
    lam: Impulses,
    z: Impulses,
    r: Impulses,
    d: Impulses,
    dz: Impulses,
    whole: Bool[Array, ""],
) -> tuple[Impulses, Bool[Array, ""]]:
    """Return the impulses after a step along d, by which the velocities z change by dz, or after a
    pivot; and whether either helps. With `whole`, for regular problems, take the full step even if
    it increases the natural map r at first."""
    square, none = jnp.sum(r * r), jnp.asarray(0.0, r.dtype)

    def fails(at):
        length, _, least = at
        return (length >= _SHORTEST) & ~(least < _GOOD * square) & ~whole

    def shorter(at):
        length, best, least = at
        tried = jnp.sum(problem.natural(lam + length * d, z + length * dz) ** 2)
        better = tried < least
        return length / 2, jnp.where(better, length, best), jnp.where(better, tried, least)

    start = jnp.asarray(1.0, r.dtype), none, jnp.asarray(jnp.inf, r.dtype)
    _, length, least = jax.lax.while_loop(fails, shorter, start)
    length = jnp.where(whole, 1.0, jnp.where(least < square, length, none))
    relieved, pivots = pivot(problem, lam, d)
    pivots = pivots & ~(least < _GOOD * square) & ~whole
    return jnp.where(pivots, relieved, lam + length * d), pivots | (length > 0)


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


def followed(
    problem: ContactProblem,
    lam: Impulses,
    z: Impulses,
    d: Impulses,
    dz: Impulses,
    last: Impulses,
    sign: Float[Array, ""],
) -> tuple[Impulses, Float[Array, ""]]:
    """Move along the path of Newton's directions to the next place where a contact opens, closes,
    sticks or slips, or to its end. Returns the impulses and the new sign of the direction.

    `last`: lam - z at the last place; `sign`: that of the last direction. At a fold of the path the
    contact that has just changed would change back. From there the path goes on against Newton's
    direction, and the natural map grows, up to the next fold."""
    y, e = lam - z, d - dz
    points = jnp.stack([last, y, y + _AHEAD * sign * e])
    at_last, at_here, ahead = jax.vmap(lambda y: edges(problem, y))(points)
    before, here = sides(at_last), sides(at_here)
    changes = before != here
    # A contact that closes has no side of friction before.
    changes = changes.at[:, 1:].set(changes[:, 1:] & before[:, :1] & here[:, :1])
    back = changes & (here != (ahead > at_here))
    sign = jnp.where(2 * jnp.sum(back) > jnp.sum(changes), -sign, sign)

    def look(at):
        """Double the length until a contact changes, then halve the interval in which it does."""
        low, high, k, found = at
        tried = jnp.where(found, (low + high) / 2, high)
        changed = jnp.any(sides(edges(problem, y + sign * tried * e)) != here)
        farther = jnp.where(changed | found, high, 2 * high)
        return (
            jnp.where(changed, low, tried),
            jnp.where(changed, tried, farther),
            k + 1,
            changed | found,
        )

    def looks(at):
        # Newton's direction ends at 1. Against it the path has no end.
        _, high, k, found = at
        return (k < _LOOKS) & (found | (k == 0) | (sign < 0)) & (high < _FARTHEST)

    one, none = jnp.ones_like(sign), jnp.zeros_like(sign)
    start = none, one, jnp.asarray(0), jnp.asarray(False)
    _, end, _, found = jax.lax.while_loop(looks, look, start)
    rounding = jnp.finfo(e.dtype).eps * jnp.max(jnp.abs(lam))
    beyond = (1 + _BEYOND) * end + 1e2 * rounding / jnp.max(jnp.abs(e))
    return lam + sign * jnp.where(found, beyond, one) * d, sign


def edges(problem: ContactProblem, y: Impulses) -> Float[Array, "contacts sides"]:
    """Return by how much each contact presses, and by how much its friction impulses are beyond
    each side of their sets."""
    groups = problem.groups

    def one(y, mu):
        found = [y[:1]]
        for i, (friction, t) in enumerate(zip(groups.friction, groups.split(y), strict=True)):
            k, radius = t.shape[0], mu[i] * jnp.maximum(y[0], 0.0)
            facets = friction.facets(k)
            if facets is None and k == 1:  # so that no step passes over the set
                facets = Pyramid().facets(k)
            if facets is None:
                found.append((length(t) - radius)[None])
            else:
                c, n = (jnp.asarray(x, y.dtype) for x in (facets[:, 0], facets[:, 1:]))
                found.append(-c * radius - jnp.sum(n * t[None], axis=1))
        return jnp.concatenate(found)

    return jax.vmap(one)(y, problem.mu)


def sides(edges: Float[Array, "contacts sides"]) -> Bool[Array, "contacts sides"]:
    """Return which contacts press, and which of these slip."""
    positive = edges > 0
    return positive & positive[:, :1]

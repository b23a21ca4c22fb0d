"""An interior-point method that begins and ends with Newton's method on the active set."""

from typing import Annotated, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..._compiler import contract
from ..._inputs import at_least, checked, not_negative
from ..newton import newton
from ..problem import ContactProblem, Groups
from ..rows import Impulses
from . import second_order as cone
from .base import AbstractContactSolver, Solved, rounding

_TO_BOUNDARY = 0.99

# Share of the residual without impulses at which the interior-point method stops.
_ENOUGH = 1e-9

# rho of the first proximal problem; its factors after a problem that is solved, and after one that
# is not; and the share of the residual at the centre that a solution may leave.
_FIRST, _SHRINK, _GROW, _CLOSE = 1e-3, 0.3, 4.0, 0.1

# Share of the tolerance below which the first attempt needs no second one.
_STRIVE = 1e-2

# Normal velocities are clipped at this multiple of the largest that impulses have to change.
_FAR = 10.0


@checked
class InteriorPoint(AbstractContactSolver):
    """Solves to rounding, also with mass ratios of 1:10^4 and redundant contacts.

    1. Newton's method on the natural map from the warm start, with pivots where redundant contacts
       do not agree (see `newton.py`). One to three solves where the active set changes little.
    2. If it fails, a primal-dual interior-point method with the scaling of Nesterov and Todd and
       Mehrotra's predictor and corrector for

           z_n + shift = sum A_n^T w,    z_t = sum A_t^T w,    A lam in K,  w in K,  w.A lam = 0

       with the cones K of all contacts. The shift is the power that friction takes from the slip
       per unit normal force. With it the problem is Coulomb's law itself and not its
       convex relaxation, in which sliding contacts lift off (De Saxce and Feng 1998).
    3. Newton's method from the result, which finds the active set exactly.
    4. If that fails, the proximal point method from the best impulses so far. It solves problems
       in which rho (lam - centre) is added to z, by full steps of Newton's method. Each solution
       is the next centre. rho decreases after each problem that is solved and increases after each
       that is not. Slow, but reliable where the corners of a face nearly contradict each other.

    All of them iterate down to rounding.

    **Arguments:** `tolerance` [m/s] of the residual; the largest numbers of `newton_steps` each
    time, of `steps` in 2, and of `restarts`, the problems in 4.

    Reference: Mehrotra (1992); Vandenberghe (2010), The CVXOPT linear and quadratic cone program
    solvers; Rockafellar (1976), Monotone operators and the proximal point algorithm; Acary, Bremond
    and Huber (2018), On solving contact problems with Coulomb friction.
    """

    tolerance: Annotated[float, not_negative] = eqx.field(static=True, default=1e-8)
    newton_steps: Annotated[int, at_least(0)] = eqx.field(static=True, default=16)
    steps: Annotated[int, at_least(1)] = eqx.field(static=True, default=50)
    restarts: Annotated[int, at_least(0)] = eqx.field(static=True, default=64)

    def solve(self, problem, guess):
        if guess.shape[0] == 0:
            return self.solved(problem, guess, jnp.asarray(0))
        # Drop a guess that is worse than no impulses.
        zero = jnp.zeros_like(guess)
        # A loop, so that the residual is compiled once.
        guessed, idle = jax.lax.map(problem.residual, jnp.stack([guess, zero]))
        guess = jnp.where(guessed < idle, guess, zero)

        def attempt(at: _Reached) -> _Reached:
            # All attempts share one loop body, so that Newton's method is compiled once.
            central, proximal = at.number == 1, at.number > 1
            begin = jnp.where(central, zero, at.centre)
            start, inner = interior_point(problem, self.steps, begin, idle, central)
            # Iterate down to rounding: resting bodies would creep by the error that is accepted.
            bound = jnp.where(proximal, _CLOSE * at.left, rounding(problem, start))
            near = problem.proximal(at.centre, jnp.where(proximal, at.rho, 0.0))
            found, missing, outer = newton(near, start, self.newton_steps, bound, proximal)
            left = problem.residual(found)
            better = left < at.residual
            lam = jnp.where(better, found, at.lam)
            residual = jnp.where(better, left, at.residual)
            # The first centre is the best point so far. Later the residual may grow.
            reached = missing <= bound
            centre = jnp.where(proximal, jnp.where(reached, found, at.centre), lam)
            left = jnp.where(proximal, jnp.where(reached, left, at.left), residual)
            rho = jnp.where(proximal, jnp.where(reached, _SHRINK, _GROW), 1.0) * at.rho
            # Rounding is no reason for another attempt. The verdict has larger limits, so that it
            # does not depend on the last bit.
            share = jnp.where(at.number == 0, _STRIVE, 0.9)
            slack = rounding(problem, lam)
            enough = share * self.tolerance + 0.9 * slack
            going = (residual > enough) & (at.number <= self.restarts)
            number, iterations = at.number + 1, at.iterations + inner + outer
            return _Reached(number, lam, residual, slack, centre, left, rho, iterations, going)

        residual = jnp.where(guessed < idle, guessed, idle)
        none = jnp.asarray(0)
        rho = jnp.asarray(_FIRST, guess.dtype)
        slack = rounding(problem, guess)
        going = residual > slack
        problem = problem.prepared(going)
        start = _Reached(none, guess, residual, slack, guess, residual, rho, none, going)
        end = jax.lax.while_loop(lambda at: at.going, attempt, start)
        accepted = end.residual <= self.tolerance + end.slack
        return Solved(end.lam, end.residual, accepted, end.iterations)


class _Reached(NamedTuple):
    """The number of attempts so far; the best impulses, their residual and its rounding error
    [m/s]; the centre of the proximal problem, its residual and rho; the number of iterations; and
    whether to go on."""

    number: Int[Array, ""]
    lam: Impulses
    residual: Float[Array, ""]
    slack: Float[Array, ""]
    centre: Impulses
    left: Float[Array, ""]
    rho: Float[Array, ""]
    iterations: Int[Array, ""]
    going: Bool[Array, ""]


class _Cone(NamedTuple):
    """Rows A of one kind in each contact. They form one cone, or one cone each (`facets`)."""

    A: np.ndarray
    facets: bool

    def of(self, x: Impulses) -> Float[Array, "contacts cones k"]:
        """Return A x."""
        s = contract("sd,cd->cs", jnp.asarray(self.A, x.dtype), x)
        return s[:, :, None] if self.facets else s[:, None, :]

    def back(self, w: Float[Array, "contacts cones k"]) -> Impulses:
        """Return A^T w."""
        w = w.reshape(w.shape[0], -1)
        return contract("cs,sd->cd", w, jnp.asarray(self.A, w.dtype))

    def curvature(self, W: Float[Array, "contacts cones k k"]) -> Float[Array, "contacts d d"]:
        """Return A^T W W A."""
        A = jnp.asarray(self.A, W.dtype)
        A = A[:, None, :] if self.facets else A[None]
        WA = contract("cnij,njd->cnid", W, A)
        WA = WA.reshape(W.shape[0], -1, self.A.shape[1])
        return contract("cni,cnj->cij", WA, WA)


def _cones(groups: Groups) -> list[_Cone]:
    if not groups.sizes:
        return [_Cone(np.eye(1), False)]
    found = []
    for friction, start, size in zip(groups.friction, groups.starts, groups.sizes, strict=True):
        facets = friction.facets(size)
        rows = np.eye(1 + size) if facets is None else facets
        A = np.zeros((len(rows), groups.d))
        A[:, 0], A[:, start : start + size] = rows[:, 0], rows[:, 1:]
        found.append(_Cone(A, facets is not None))
    return found


class _Iterate(NamedTuple):
    x: Impulses
    w: list[Float[Array, "contacts cones k"]]
    best: Impulses
    residual: Float[Array, ""]
    iteration: Int[Array, ""]
    going: Bool[Array, ""]


def interior_point(
    problem: ContactProblem,
    steps: int,
    lam: Impulses,
    idle: Float[Array, ""],
    needed: Bool[Array, ""],
) -> tuple[Impulses, Int[Array, ""]]:
    """Return impulses and the number of iterations. The impulses `lam` come back if the method is
    not `needed` or finds none with a residual below `idle`, that without impulses.

    The unknown is x with lam = (x_n, mu x_t), so that the cones of contacts without friction
    (mu = 0) have an interior. A x is kept exact. The first two equations hold in the limit.
    """
    enough = _ENOUGH * idle  # from here Newton's method is better
    groups, (count, d) = problem.groups, problem.b.shape
    dtype, cones = problem.b.dtype, _cones(problem.groups)
    number = count * sum(A.A.shape[0] if A.facets else 1 for A in cones)
    stretch = jnp.concatenate(
        [jnp.ones((count, 1), dtype), *_spread(problem.mu, groups)], axis=1
    )  # lam = stretch x
    S = problem.S.scaled(stretch)
    eye = jnp.eye(d, dtype=dtype)[None]
    # Contacts far from closing would spoil the scale. Newton's method sees that they stay open.
    size = jnp.max(jnp.abs(problem.to_change)) + jnp.finfo(dtype).tiny ** 0.5
    b = stretch * problem.b.at[:, 0].min(_FAR * size)

    def power(z):
        """Return the power that friction takes per unit normal force. For a polygon it has no
        derivative: its corner may change in each step, and steps would be erratic."""
        lost = jnp.zeros((), dtype)
        for friction, t in zip(groups.friction, groups.split(z), strict=True):
            smooth = friction.facets(t.shape[0]) is None
            lost = lost + friction.support(t if smooth else jax.lax.stop_gradient(t))
        return lost

    def step(at: _Iterate) -> _Iterate:
        x, w = at.x, at.w
        z = S.times(x) + b
        shift, slope = jax.vmap(jax.value_and_grad(power))(z)
        s = [A.of(x) for A in cones]
        mean = sum(jnp.sum(a * c) for a, c in zip(s, w, strict=True)) / number
        # Near zero slip its direction and the slope are noise, which this factor suppresses.
        slipping = shift / jnp.sqrt(shift**2 + 1e-2 * mean)
        force = sum(A.back(y) for A, y in zip(cones, w, strict=True))
        missing = z.at[:, 0].add(shift) - force
        scaled = [cone.scaling(a, c) for a, c in zip(s, w, strict=True)]
        first, *others = (A.curvature(W) for A, (W, _) in zip(cones, scaled, strict=True))
        own = sum(others, first)
        # The equations are own dx + (1 + e_n slope^T) S dx = ...: lost power counts as velocity.
        along = eye[:, 0, :, None] * (slope * slipping[:, None])[:, None, :]
        factor = S.factorise(own, eye + along)

        def direction(r):
            """dx, A dx and dw with the equations and v o (W A dx + W^-1 dw) = r; and r over v."""
            t = [cone.quotient(v, y) for (_, v), y in zip(scaled, r, strict=True)]
            Wt = [cone.apply(W, y) for (W, _), y in zip(scaled, t, strict=True)]
            right = sum(A.back(y) for A, y in zip(cones, Wt, strict=True)) - missing
            dx = S.solve(factor, eye + along, right)
            ds = [A.of(dx) for A in cones]
            dw = [
                y - cone.apply(W, cone.apply(W, e))
                for (W, _), y, e in zip(scaled, Wt, ds, strict=True)
            ]
            return dx, ds, dw, t

        def longest(ds, dw):
            ends = [
                cone.longest_step(jnp.stack(point), jnp.stack(change))
                for point, change in zip(
                    zip(s, w, strict=True), zip(ds, dw, strict=True), strict=True
                )
            ]
            return jnp.min(jnp.stack([jnp.min(end) for end in ends]))

        squares = [cone.product(v, v) for _, v in scaled]

        def turn(_, at):
            """Predictor and corrector, compiled once: the direction for r, how far it leads, and r
            of the corrector, should this have been the predictor."""
            dx, ds, dw, t = direction(at[0])
            reach = longest(ds, dw)
            centre = (1 - jnp.minimum(reach, 1.0)) ** 3 * mean
            corrected = []
            for (W, v), y, e, sum_of_both in zip(scaled, squares, ds, t, strict=True):
                Wds = cone.apply(W, e)
                corrected.append(centre * cone.unit(v) - y - cone.product(Wds, sum_of_both - Wds))
            return corrected, dx, dw, reach

        predictor = ([-y for y in squares], jnp.zeros_like(x), w, mean)
        _, dx, dw, reach = jax.lax.fori_loop(0, 2, turn, predictor)
        length = jnp.minimum(_TO_BOUNDARY * reach, 1.0)
        good = jnp.isfinite(length) & jnp.all(jnp.isfinite(dx))
        good = good & jnp.all(jnp.stack([jnp.all(jnp.isfinite(e)) for e in dw]))
        x = jnp.where(good, x + length * dx, x)
        w = [jnp.where(good, c + length * e, c) for c, e in zip(w, dw, strict=True)]
        residual = problem.residual(stretch * x)
        better = residual < at.residual
        return _Iterate(
            x,
            w,
            jnp.where(better, stretch * x, at.best),
            jnp.where(better, residual, at.residual),
            at.iteration + 1,
            good & (at.iteration + 1 < steps) & (residual > enough),
        )

    x = jnp.zeros_like(problem.b).at[:, 0].set(size)
    w = [size * cone.unit(A.of(x)) for A in cones]
    start = _Iterate(x, w, lam, idle, jnp.asarray(0), needed)
    end = jax.lax.while_loop(lambda at: at.going, step, start)
    return end.best, end.iteration


def _spread(mu: Float[Array, "contacts groups"], groups: Groups) -> list[Array]:
    """Return the coefficient of each group for each of its components."""
    return [
        jnp.broadcast_to(mu[:, i : i + 1], (mu.shape[0], size))
        for i, size in enumerate(groups.sizes)
    ]

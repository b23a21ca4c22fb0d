"""An interior-point method that begins and ends with Newton's method on the active set.

Its steps are the turns of one loop, in which each of the three methods gives the equations of a
direction and then moves along it. So products with S, the elimination and the natural map are
compiled once.
"""

from typing import Annotated, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..._compiler import only_if, tree_where
from ..._inputs import at_least, checked, not_negative
from ..newton import fading, moved, natural_derivative
from ..problem import ContactProblem
from ..rows import Impulses
from .base import AbstractContactSolver, Solved, rounding
from .central_path import CentralPath, Direction, Points
from .projected_gauss_seidel import sweep

# Share of the residual without impulses at which the interior-point method stops.
_ENOUGH = 1e-9

# The residual at which Newton's method stops, in units of the machine precision times the largest
# impulse, as a velocity. Redundant contacts that nearly contradict each other leave no less.
_STILL = 4096

# Where the residual of the guess exceeds this share of that without impulses, so many sweeps, and
# one more for so many contacts, come before the first of Newton's steps. They find out most of the
# contacts that press, in piles at a tenth of the cost of a step. In large piles news travel far.
# Stacks at rest, whose guess is better, are worse for them.
_COLD, _SWEEPS, _CONTACTS = 0.1, 8, 16

# rho of the first proximal problem; its factors after a problem that is solved, and after one that
# is not; and the share of the residual at the centre that a solution may leave.
_FIRST, _SHRINK, _GROW, _CLOSE = 1e-3, 0.3, 4.0, 0.1

# Share of the tolerance below which the first attempt needs no second one.
_STRIVE = 1e-2

# The attempts: Newton's method from the guess; the interior-point method, and Newton's method from
# its end; then proximal problems.
_CENTRAL, _PROXIMAL = 1, 3


@checked
class InteriorPoint(AbstractContactSolver):
    """Solves to rounding, also with mass ratios of 1:10^4 and redundant contacts.

    1. Newton's method on the natural map from the warm start, with pivots where redundant contacts
       do not agree (see `newton.py`). One to three solves where the active set changes little.
       Where many bodies strike each other, some sweeps of Gauss and Seidel come first.
    2. If it fails, a primal-dual interior-point method with the scaling of Nesterov and Todd and
       Mehrotra's predictor and corrector (see `central_path.py`).
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
        zero, none = jnp.zeros_like(guess), jnp.asarray(0)
        r = problem.natural(zero, problem.b)
        idle = problem.norm(r)
        path = CentralPath.of(problem)
        infinite = jnp.asarray(jnp.inf, guess.dtype)
        start = _At(
            guess,
            path.start()[1],
            none,
            none,
            jnp.asarray(True),
            zero,
            infinite,
            zero,
            idle,
            # In double precision rounding is less than what ends the iteration.
            jnp.zeros_like(idle) if guess.dtype == jnp.float64 else rounding(problem, guess),
            zero,
            infinite,
            jnp.asarray(_FIRST, guess.dtype),
            problem.S.memory(),
            none,
            jnp.asarray(True),
        )
        turns = _Turns(self, problem, path, r, idle)
        end = jax.lax.while_loop(lambda at: at.going, turns.turn, start)
        accepted = end.residual <= self.tolerance + end.slack
        return Solved(end.best, end.residual, accepted, end.iterations)


class _At(NamedTuple):
    """The point of the iteration and the variables w of the central path; the number of attempts
    before, and of turns in this one; whether the last turn moved; the best impulses of this
    attempt, and the residual of its problem there; the best impulses of all, their residual and its
    rounding error [m/s]; the centre of the proximal problem, its residual and rho; the memory of
    eliminations; the number of iterations; and whether to go on."""

    lam: Impulses
    w: Points
    attempt: Int[Array, ""]
    turns: Int[Array, ""]
    moved: Bool[Array, ""]
    found: Impulses
    missing: Float[Array, ""]
    best: Impulses
    residual: Float[Array, ""]
    slack: Float[Array, ""]
    centre: Impulses
    left: Float[Array, ""]
    rho: Float[Array, ""]
    memory: PyTree
    iterations: Int[Array, ""]
    going: Bool[Array, ""]


class _Turns(NamedTuple):
    """The turns of one problem, whose natural map without impulses is `r`, with the residual
    `idle`."""

    solver: InteriorPoint
    problem: ContactProblem
    path: CentralPath
    r: Impulses
    idle: Float[Array, ""]

    def turn(self, at: _At) -> _At:
        """Look at a point; end the attempt there, or move on."""
        problem, solver = self.problem, self.solver
        central, proximal = at.attempt == _CENTRAL, at.attempt >= _PROXIMAL
        rho = jnp.where(proximal, at.rho, 0.0)
        z = problem.velocities(at.lam) + rho * (at.lam - at.centre)
        r = problem.natural(at.lam, z)
        residual = problem.norm(r)
        first = at.turns == 0
        # Drop a guess that is worse than no impulses.
        worse = first & (at.attempt == 0) & ~(residual < self.idle)
        idle = jnp.zeros_like(r), problem.b, self.r, self.idle
        lam, z, r, residual = tree_where(worse, idle, (at.lam, z, r, residual))
        at = at._replace(lam=lam)
        # At its centre a proximal problem has the residual of the problem itself.
        better = (~proximal | first) & (residual < at.residual)
        nearer = residual < at.missing
        at = at._replace(
            found=jnp.where(nearer, at.lam, at.found),
            missing=jnp.where(nearer, residual, at.missing),
            best=jnp.where(better, at.lam, at.best),
            residual=jnp.where(better, residual, at.residual),
            left=jnp.where(proximal & first, residual, at.left),
        )
        size = jnp.maximum(problem.norm(at.lam), self.idle)
        still = jnp.minimum(_STILL * jnp.finfo(r.dtype).eps * size, _STRIVE * solver.tolerance)
        still = jnp.maximum(still, at.slack)
        bound = jnp.where(central, _ENOUGH * self.idle, still)
        bound = jnp.where(proximal, _CLOSE * at.left, bound)
        cold = (at.attempt == 0) & (at.iterations == 0) & (at.residual > _COLD * self.idle)
        cold = cold & problem.S.has_cheap_rows
        reached = at.missing <= bound
        limit = jnp.where(central, solver.steps, solver.newton_steps)
        over = reached | ~at.moved | (at.turns >= limit) | (proximal & first & better)
        at = at._replace(going=~(over & (at.residual <= still)))
        if problem.S.has_cheap_rows:
            at = only_if(cold & ~over, self._swept, at)
        at = only_if(over & at.going, lambda at: self._next_attempt(at, reached), at)
        return only_if(~(over | cold), lambda at: self._step(at, z, r, rho), at)

    def _swept(self, at: _At) -> _At:
        number = _SWEEPS + jnp.asarray(self.problem.S.used) // _CONTACTS
        lam = sweep(self.problem, at.lam, number)
        return at._replace(
            lam=lam, missing=jnp.full_like(at.missing, jnp.inf), iterations=at.iterations + 1
        )

    def _next_attempt(self, at: _At, reached: Bool[Array, ""]) -> _At:
        central, proximal = at.attempt == _CENTRAL, at.attempt >= _PROXIMAL
        slack = rounding(self.problem, at.best)
        # Rounding is no reason for another attempt. The verdict has larger limits, so that it
        # does not depend on the last bit.
        share = jnp.where(at.attempt == 0, _STRIVE, 0.9)
        enough = share * self.solver.tolerance + 0.9 * slack
        # A proximal problem whose centre is the best point so far goes on.
        goes_on = proximal & (at.turns == 0)
        attempt = at.attempt + jnp.where(goes_on, 0, 1)
        # The first centre is the best point so far. Later the residual may grow.
        centre = jnp.where(proximal, jnp.where(reached | goes_on, at.found, at.centre), at.best)
        factor = jnp.where(reached, _SHRINK, _GROW)
        lam, w = self.path.start()
        ends = jnp.where(at.missing < self.idle, at.found, jnp.zeros_like(at.found))
        lam = jnp.where(at.attempt == 0, lam, jnp.where(central, ends, centre))
        return at._replace(
            lam=lam,
            w=w,
            attempt=attempt,
            turns=jnp.where(goes_on, 1, 0),
            moved=jnp.asarray(True),
            missing=jnp.where(goes_on, at.missing, jnp.inf),
            slack=slack,
            centre=centre,
            rho=jnp.where(proximal & ~goes_on, factor, 1.0) * at.rho,
            going=central | ((at.residual > enough) & (attempt <= self.solver.restarts + 2)),
        )

    def _step(self, at: _At, z: Impulses, r: Impulses, rho: Float[Array, ""]) -> _At:
        S, path, problem = self.problem.S, self.path, self.problem
        central, whole = at.attempt == _CENTRAL, at.attempt >= _PROXIMAL

        def of_path(at):
            return path.equations(at.lam, z, at.w)

        shapes = jax.eval_shape(of_path, at)
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

        def of_newton(at):
            C, D = natural_derivative(problem, at.lam, z)
            return C + rho * D, D, -r, *nothing[3:]

        C, P, right, here, product = jax.lax.cond(central, of_path, of_newton, at)
        fades = jnp.where(central | whole, 0.0, fading(r))
        factor, memory = S.factorise(C + fades * P, P, at.memory)

        def direction(_, carry):
            """Newton's direction, or first the predictor and then the corrector."""
            *_, right, to = carry
            d = S.solve(factor, P, right)

            def corrected(to):
                return path.direction(here, at.w, d, to.product)

            right, to = jax.lax.cond(central, corrected, lambda to: (right, to), to)
            return d, S.times(d), right, to

        turns = jnp.where(central, 2, 1)
        start = r, r, right, Direction(product, at.w, self.idle)
        d, Sd, _, to = jax.lax.fori_loop(0, turns, direction, start)

        def along_path(at):
            return path.moved(at.lam, at.w, d, to)

        def by_newton(at):
            good = jnp.where(jnp.all(jnp.isfinite(d)), d, 0.0)
            dz = jnp.where(jnp.all(jnp.isfinite(d)), Sd + rho * d, 0.0)
            lam, helps = moved(problem, at.lam, z, r, good, dz, whole)
            return lam, at.w, helps

        lam, w, helps = jax.lax.cond(central, along_path, by_newton, at)
        return at._replace(
            lam=lam,
            w=w,
            turns=at.turns + 1,
            moved=helps,
            memory=memory,
            iterations=at.iterations + 1,
        )

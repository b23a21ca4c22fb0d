"""Newton's method on the active set, with proximal problems and an interior point where it fails.

The steps of all of them are the turns of one loop, in which each method gives the equations of a
direction and then moves along it. So products with S, the elimination and the natural map are
compiled once.
"""

from typing import Annotated, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..._compiler import contract, entry, only_if, replaced, tree_where
from ..._inputs import at_least, checked, not_negative
from ..newton import fading, followed, moved, natural_derivative
from ..problem import ContactProblem
from ..rows import Impulses
from .base import AbstractContactSolver, Solved, rounding
from .central_path import CentralPath, Direction, Points
from .projected_gauss_seidel import sweep

# The residual at which Newton's method stops, in units of the machine precision times the largest
# impulse, as a velocity. Redundant contacts that nearly contradict each other leave no less; more
# than the second number leave more, in proportion.
_STILL, _STILL_OF = 4096, 64

# Impulses that a step did not make twice as good may leave so many times this residual.
_CALM = 16

# Velocities below so many times this residual are rounding.
_NOISE = 64

# Where the residual of the guess exceeds this share of that without impulses, so many sweeps, and
# one more for so many contacts, come before the first of Newton's steps. They find out most of the
# contacts that press, in piles at a tenth of the cost of a step. In large piles news travel far.
# Stacks at rest, whose guess is better, are worse for them.
_COLD, _SWEEPS, _CONTACTS = 0.1, 8, 32

# A contact takes part in sweeps if it presses, or would close if the others gave it this multiple
# of the mean velocity with which contacts approach.
_REACH = 4.0

# Where Newton's method leaves more than this share, so many sweeps for each contact come before the
# first proximal problem. They halve the number of contacts that have to switch in a heap of 500
# spheres.
_ROUGH, _MORE = 1e-3, 2

# rho of the first proximal problem, and the share of the residual at its centre that a solution
# may leave.
_FIRST, _CLOSE = 1e-3, 0.3

# A problem solved in at most so many steps is followed by one with rho times the factor. More steps
# than `_MANY` fail. The aim is a rho for which some contacts switch: with less the steps go in
# circles, with more the centre hardly moves.
_FEW, _SHRINK = 4, 0.5
_SOME, _RAISE = 6, 1.8
_MANY, _GROW = 10, 2.0

# Where Newton's steps fail, a proximal problem is solved along the path of their directions, for at
# most so many pieces. Most paths that lead to a solution are shorter; after others rho is
# multiplied by the factor.
_PIECES, _FARTHER = 40, 4.0

# The weight of friction in rho. Friction may make the path unstable, so that the centres go in
# circles. With this weight they do so in fewer steps of heaps than with 1.
_FRICTION = 0.3

# Where a step of Newton's method leaves no more than the first share of the residual, further steps
# take its factors again, as long as each leaves no more than the second share.
_CLOSE_BY, _AGAIN = 1e-2, 0.1

# So many proximal problems come before the interior-point method, which stops at this share of the
# residual without impulses. After it they are solved along paths too.
_BEFORE, _NEAR = 8, 1e-9

# Shares of the tolerance below which Newton's method needs no proximal problems, and these end.
_STRIVE, _ENOUGH = 1e-2, 0.9

# The kinds of attempts: Newton's method first, proximal problems, by full steps or along a path,
# the interior-point method and Newton's method from its end, and Newton's method last.
_NEWTON, _PROXIMAL, _PATH, _CENTRAL, _AFTER, _LAST = range(6)


@checked
class InteriorPoint(AbstractContactSolver):
    """Solves to rounding or nearly so, also with mass ratios of 1:10^4 and redundant contacts.

    1. Newton's method on the natural map from the warm start, with pivots where redundant contacts
       do not agree (see `newton.py`). One or two eliminations where the active set changes little:
       near a solution their factors serve for several steps, and for the change that the guess of
       the next step needs. Where many bodies strike each other, some sweeps of Gauss and Seidel
       come first, and more of them before 2.
    2. If it fails, the proximal point method from the best impulses so far. It solves problems
       in which rho (lam - centre) is added to z, by full steps of Newton's method. Each solution
       is the next centre. rho decreases after a problem that took few steps and increases after one
       that took many. Slow, but reliable where the corners of a face nearly contradict each other:
       the impulses then move along the loads that these corners can exchange, from one contact that
       opens or slips to the next.
    3. After some problems without success a primal-dual interior-point method, with the scaling of
       Nesterov and Todd and Mehrotra's predictor and corrector (see `central_path.py`), and
       Newton's method from its result. It solves small problems with much friction, in which 2 may
       go in circles. Then 2 goes on. Where its full steps now fail, it follows the path of their
       directions from one contact that changes to the next, through folds (see `newton.py`).
    4. At the end of 2, Newton's method removes what is left.

    **Arguments:** `tolerance` [m/s] of the residual; the largest numbers of `newton_steps` each
    time, of `steps` in 3, and of `restarts`, the attempts in 2 to 4.

    Reference: Alart and Curnier (1991), A mixed formulation for frictional contact problems prone
    to Newton like solution methods; Rockafellar (1976), Monotone operators and the proximal point
    algorithm; Smale (1976), A convergent process of price adjustment and global Newton methods;
    Mehrotra (1992); Vandenberghe (2010), The CVXOPT linear and quadratic cone program
    solvers; Acary, Bremond and Huber (2018), On solving contact problems with Coulomb friction.
    """

    tolerance: Annotated[float, not_negative] = eqx.field(static=True, default=1e-8)
    newton_steps: Annotated[int, at_least(0)] = eqx.field(static=True, default=16)
    steps: Annotated[int, at_least(1)] = eqx.field(static=True, default=50)
    restarts: Annotated[int, at_least(0)] = eqx.field(static=True, default=500)

    def solve(self, problem, guess):
        if guess.shape[0] == 0:
            return self.solved(problem, guess, jnp.asarray(0))
        zero, none = jnp.zeros_like(guess), jnp.asarray(0)
        r = problem.natural(zero, problem.b)
        idle = problem.norm(r)
        path = CentralPath.of(problem)
        start = _At(
            lam=guess,
            w=path.start()[1],
            kind=jnp.asarray(_NEWTON),
            attempt=none,
            turns=none,
            moved=jnp.asarray(True),
            best=zero,
            residual=idle,
            # In double precision rounding is less than what ends the iteration.
            slack=jnp.zeros_like(idle) if guess.dtype == jnp.float64 else rounding(problem, guess),
            centre=zero,
            left=idle,
            rho=jnp.asarray(_FIRST, guess.dtype),
            memory=problem.S.memory(),
            iterations=none,
            going=jnp.asarray(True),
            to_come=zero,
            last=zero,
            sign=jnp.ones_like(idle),
        )
        turns = _Turns(self, problem, path, r, idle)
        end = jax.lax.while_loop(lambda at: at.going, turns.turn, start)
        accepted = end.residual <= self.tolerance + end.slack
        expected = (end.best + end.to_come).at[:, 0].max(0.0)
        return Solved(end.best, end.residual, accepted, end.iterations, expected)


class _At(NamedTuple):
    """The point of the iteration and the variables w of the central path; the kind of this attempt,
    the number of attempts before, and of turns in this one; whether the last turn moved; the best
    impulses of all, their residual and its rounding error [m/s]; the centre of the proximal
    problem, its residual and rho; the memory of eliminations; the number of iterations; whether to
    go on; the change of the impulses that the next step will need; of a path lam - z at the last
    place, and the sign of the last direction."""

    lam: Impulses
    w: Points
    kind: Int[Array, ""]
    attempt: Int[Array, ""]
    turns: Int[Array, ""]
    moved: Bool[Array, ""]
    best: Impulses
    residual: Float[Array, ""]
    slack: Float[Array, ""]
    centre: Impulses
    left: Float[Array, ""]
    rho: Float[Array, ""]
    memory: PyTree
    iterations: Int[Array, ""]
    going: Bool[Array, ""]
    to_come: Impulses
    last: Impulses
    sign: Float[Array, ""]

    @property
    def proximal(self) -> Bool[Array, ""]:
        """Whether the attempt solves a proximal problem."""
        return (self.kind == _PROXIMAL) | (self.kind == _PATH)


class _Found(NamedTuple):
    """The search for a direction: the one found so far, and its product with S; the right side of
    the equations for the next one; the residual at its end, and whether this is close to a
    solution; the rest of a direction along the central path; the number of turns, and whether to go
    on; whether the direction leads to a solution, after which the last turn finds the change
    `to_come`."""

    d: Impulses
    Sd: Impulses
    right: Impulses
    residual: Float[Array, ""]
    close: Bool[Array, ""]
    to: Direction
    turns: Int[Array, ""]
    going: Bool[Array, ""]
    solved: Bool[Array, ""]
    to_come: Impulses


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
        first, proximal, central = at.turns == 0, at.proximal, at.kind == _CENTRAL
        weights = jnp.where(jnp.arange(at.lam.shape[1]) > 0, _FRICTION, 1.0)[None]
        rho = jnp.where(proximal, at.rho * weights, 0.0)
        z = problem.velocities(at.lam) + rho * (at.lam - at.centre)
        r = problem.natural(at.lam, z)
        residual = problem.norm(r)
        # Drop a guess that is worse than no impulses.
        worse = first & (at.kind == _NEWTON) & ~(residual < self.idle)
        idle = jnp.zeros_like(r), problem.b, self.r, self.idle
        lam, z, r, residual = tree_where(worse, idle, (at.lam, z, r, residual))
        # At its centre a proximal problem has the residual of the problem itself.
        better = (~proximal | first) & (residual < at.residual)
        idles = ~first & ~(residual < 0.5 * at.residual)
        at = at._replace(
            lam=lam,
            best=jnp.where(better, lam, at.best),
            residual=jnp.where(better, residual, at.residual),
            left=jnp.where(first, residual, at.left),
        )
        size = jnp.maximum(problem.norm(lam), self.idle)
        many = jnp.maximum(jnp.asarray(problem.S.used, r.dtype) / _STILL_OF, 1.0)
        still = _STILL * jnp.finfo(r.dtype).eps * size * many * jnp.where(idles, _CALM, 1)
        still = jnp.maximum(jnp.minimum(still, _STRIVE * solver.tolerance), at.slack)
        enough = jnp.maximum(still, _ENOUGH * (solver.tolerance + at.slack))
        good = at.residual <= jnp.where(proximal, enough, still)
        bound = jnp.where(central, _NEAR * self.idle, still)
        bound = jnp.where(proximal, _CLOSE * at.left, bound)
        reached = residual <= bound
        limit = jnp.where(central, solver.steps, solver.newton_steps)
        limit = jnp.where(proximal, jnp.where(at.kind == _PATH, _PIECES, _MANY), limit)
        over = good | reached | ~at.moved | (at.turns >= limit)
        at = at._replace(going=proximal | ~good)
        cold = (at.kind == _NEWTON) & (at.iterations == 0) & (at.residual > _COLD * self.idle)
        rough = first & proximal & (at.attempt == 1) & (at.residual > _ROUGH * self.idle)
        cold = (cold | rough) & problem.S.has_cheap_rows
        if problem.S.has_cheap_rows:
            at = only_if(cold & ~over, self._swept, at)
        at = only_if(over & at.going, lambda at: self._next_attempt(at, reached, good), at)
        return only_if(~(over | cold), lambda at: self._step(at, z, r, rho, bound), at)

    def _swept(self, at: _At) -> _At:
        proximal, among = at.kind == _PROXIMAL, self._within_reach(at.lam)
        number = jnp.where(proximal, _MORE * among[1], _SWEEPS + among[1] // _CONTACTS)
        lam = sweep(self.problem, at.lam, number, among)
        return at._replace(
            lam=lam,
            centre=jnp.where(proximal, lam, at.centre),
            attempt=jnp.where(proximal, at.attempt + 1, at.attempt),
            iterations=at.iterations + 1,
        )

    def _within_reach(self, lam: Impulses) -> tuple[Int[Array, " contacts"], Int[Array, ""]]:
        """Return the contacts that press or may soon do so, and their number. Most contacts of a
        pile are too far from closing."""
        problem = self.problem
        approach = jnp.maximum(-problem.b[:, 0], 0.0)
        mean = jnp.sum(approach) / jnp.maximum(jnp.sum((approach > 0).astype(lam.dtype)), 1.0)
        near = (lam[:, 0] > 0) | (problem.b[:, 0] < _REACH * mean)

        def put(i, found):
            which, count = found
            return replaced(which, i, count), count + entry(near, i).astype(count.dtype)

        used = jnp.asarray(problem.S.used)
        return jax.lax.fori_loop(0, used, put, (jnp.arange(lam.shape[0]), jnp.zeros_like(used)))

    def _next_attempt(self, at: _At, reached: Bool[Array, ""], good: Bool[Array, ""]) -> _At:
        solver, proximal, path = self.solver, at.proximal, at.kind == _PATH
        slack = rounding(self.problem, at.best)
        # Rounding is no reason to go on. The verdict has larger limits, so that it does not depend
        # on the last bit.
        fine = at.residual <= _STRIVE * solver.tolerance + _ENOUGH * slack
        stuck = jnp.where(at.attempt == _BEFORE, _CENTRAL, _PROXIMAL)
        follow = jnp.where(~reached & (at.attempt > _BEFORE), _PATH, stuck)
        after = jnp.stack(
            [
                stuck,
                jnp.where(good, _LAST, follow),
                jnp.where(good, _LAST, stuck),
                jnp.asarray(_AFTER),
                jnp.asarray(_PROXIMAL),
                jnp.asarray(_LAST),
            ]
        )
        kind = after[at.kind]
        follows = proximal & (kind == _PATH)
        goes_on = proximal & (follows | (kind == _PROXIMAL))
        # The first centre is the best point so far. Later the residual may grow.
        centre = jnp.where(goes_on, jnp.where(reached, at.lam, at.centre), at.best)
        raised = jnp.where(at.turns > _SOME, _RAISE, 1.0)
        raised = jnp.where(path, 1.0, raised)
        factor = jnp.where(reached, jnp.where(at.turns > _FEW, raised, _SHRINK), _GROW)
        factor = jnp.where(path & ~reached, _FARTHER, jnp.where(follows, 1.0, factor))
        lam, w = self.path.start()
        ends = fine & ((at.kind == _NEWTON) | (at.kind == _AFTER)) | (at.kind == _LAST)
        return at._replace(
            lam=jnp.where(kind == _CENTRAL, lam, centre),
            w=w,
            kind=kind,
            attempt=at.attempt + 1,
            turns=jnp.zeros_like(at.turns),
            moved=jnp.asarray(True),
            slack=slack,
            centre=centre,
            rho=jnp.where(goes_on, factor, 1.0) * at.rho,
            sign=jnp.ones_like(at.sign),
            going=~ends & ((at.attempt < solver.restarts) | (kind == _LAST)),
        )

    def _step(
        self,
        at: _At,
        z: Impulses,
        r: Impulses,
        rho: Float[Array, "1 d"],
        bound: Float[Array, ""],
    ) -> _At:
        S, path, problem = self.problem.S, self.path, self.problem
        central, whole = at.kind == _CENTRAL, at.proximal

        def of_path(at):
            return path.equations(at.lam, z, at.w)

        shapes = jax.eval_shape(of_path, at)
        nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

        def of_newton(at):
            C, D = natural_derivative(problem, at.lam, z)
            return C + rho[None] * D, D, -r, *nothing[3:]

        C, P, right, here, product = jax.lax.cond(central, of_path, of_newton, at)
        fades = jnp.where(central | whole, 0.0, fading(r))
        factor, memory = S.factorise(C + fades * P, P, at.memory)

        def direction(found):
            d = S.solve(factor, P, found.right)
            Sd = S.times(d)

            def of_path(found):
                """First the predictor, then the corrector."""
                right, to = path.direction(here, at.w, d, found.to.product)
                going = found.turns == 0
                return found._replace(d=d, Sd=Sd, right=right, to=to, going=going)

            def of_newton(found):
                """Newton's direction. Where it leads close to a solution, go on with the same
                factors; from a solution, to what the next step needs."""
                first, tried = found.turns == 0, (found.d + d, found.Sd + Sd)
                change = tried[1] + rho * tried[0]
                left = problem.natural(at.lam + tried[0], z + change)
                residual = problem.norm(left)
                close = residual <= jnp.where(first, _CLOSE_BY, _AGAIN) * found.residual
                kept = tree_where(first | close, tried, (found.d, found.Sd))
                solved = (residual <= bound) & ~whole & (problem.passing is not None)
                coming = self._coming(P, z + change, bound)
                return found._replace(
                    d=kept[0],
                    Sd=kept[1],
                    right=-left - jnp.where(solved, coming, 0.0),
                    residual=residual,
                    close=jnp.where(first, close, found.close),
                    going=solved | (close & (residual > bound)),
                    solved=solved,
                )

            def of_next_step(found):
                return found._replace(to_come=d, going=jnp.asarray(False))

            which = jnp.where(found.solved, 2, central.astype(jnp.int32))
            found = jax.lax.switch(which, [of_newton, of_path, of_next_step], found)
            return found._replace(turns=found.turns + 1)

        start = _Found(
            d=jnp.zeros_like(r),
            Sd=jnp.zeros_like(r),
            right=right,
            residual=problem.norm(r),
            close=jnp.asarray(False),
            to=Direction(product, at.w, self.idle),
            turns=jnp.zeros_like(at.turns),
            going=jnp.asarray(True),
            solved=jnp.asarray(False),
            to_come=jnp.zeros_like(r),
        )
        found = jax.lax.while_loop(lambda found: found.going, direction, start)

        finite = jnp.all(jnp.isfinite(found.d))
        d, change = (jnp.where(finite, x, 0.0) for x in (found.d, found.Sd + rho * found.d))

        def along_central_path(at):
            return *path.moved(at.lam, at.w, found.d, found.to), at.sign

        # Near a solution, contacts at the edge of their friction let no shorter step succeed.
        near = (at.turns == 0) & (at.residual <= self.solver.tolerance)
        full = whole | found.close | near

        def by_newton(at):
            lam, helps = moved(problem, at.lam, z, r, d, change, full)
            return lam, at.w, helps & finite, at.sign

        def to_next_piece(at):
            last = jnp.where(at.turns == 0, at.lam - z, at.last)
            lam, sign = followed(problem, at.lam, z, d, change, last, at.sign)
            return lam, at.w, finite, sign

        follows = (at.kind == _PATH) & ~found.close
        which = jnp.where(follows, 2, central.astype(jnp.int32))
        moves = [by_newton, along_central_path, to_next_piece]
        lam, w, helps, sign = jax.lax.switch(which, moves, at)
        return at._replace(
            lam=lam,
            w=w,
            turns=at.turns + 1,
            moved=helps,
            memory=memory,
            last=at.lam - z,
            sign=sign,
            iterations=at.iterations + 1,
            to_come=jnp.where(jnp.isfinite(found.to_come), found.to_come, 0.0),
        )

    def _coming(self, P: Array, z: Impulses, bound: Float[Array, ""]) -> Impulses:
        """By how much the next step changes the natural map of a solution, whose velocities are z,
        as far as this is rounding. The impulses that remove such velocities would be needed once
        only, and as the next guess would cause them again. What is larger comes back: contacts that
        roll, on round bodies, have a gap at the start of each step."""
        if self.problem.passing is None:
            return jnp.zeros_like(z)
        passing = self.problem.passing
        size = jnp.max(jnp.abs(passing / self.problem.scale[:, None]), axis=1, keepdims=True)
        change = z.at[:, 0].set(0.0) - passing
        return contract("cij,cj->ci", P, jnp.where(size < _NOISE * bound, change, 0.0))

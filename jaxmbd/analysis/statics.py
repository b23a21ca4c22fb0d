"""The static problem of a system, and the search for its solution."""

import abc
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._compiler import array_namespace, to_jax, tree_where
from .._linalg import AbstractConstraintSolver, dense
from .._methods import Point, point
from .._roots import implicit, least_solution
from .._step import as_control
from .._system import AbstractSystem
from .._types import Coordinates, RealScalarLike, Rows, Velocity

# The factors by which h may grow from step to step, and by which forces may grow in one step.
_FASTER, _WORSE = 10.0, 10.0

# The share of a displacement of 1, or of the forces there, below which a step moves nearly nothing.
_NEGLIGIBLE = 0.1

# The factor by which they may grow in a Newton step that goes uphill.
_WORSE_UPHILL = 2.0

# The largest number of evaluations on the way back onto the constraints after a step.
_CLOSING = 20

# A displacement back to the constraints must remove at least this share of the violation that it
# would remove if the rows were linear (Armijo's condition).
_DECREASE = 1e-4

Place = TypeVar("Place")
Forces = Float[Array, "contacts d"]


def no_negative(stiffness: Float[Array, "*batch nv"]) -> Bool[Array, "*batch"]:
    """Whether no stiffness is negative, up to rounding."""
    xp = array_namespace(stiffness)
    stiffness = xp.asarray(stiffness)
    finite = xp.where(xp.isfinite(stiffness), xp.abs(stiffness), 0.0)
    largest = xp.max(finite, axis=-1, keepdims=True)
    return to_jax(xp.all(stiffness >= -1e-9 * largest, axis=-1))


class Here(NamedTuple):
    """What the search knows of a place: the largest acceleration `left`; how far the rows are
    `missed`, relative to the coordinates, or to 1 if they are smaller; the largest acceleration by
    the forces that act; the eigenvalues of the stiffness relative to the mass, inf in directions
    that are not admissible, and the size of that stiffness; and the displacement `back` onto the
    constraints with their Phi, `None` where steps return to them by themselves."""

    left: Float[Array, ""]
    missed: Float[Array, ""]
    acting: Float[Array, ""]
    stiffness: Float[Array, " nv"]
    size: Float[Array, ""]
    back: tuple[Velocity, Rows] | None


# (h, share, whether it is a step of Newton's method) -> the next place, the h of the step, and
# whether its equations were solved.
Step = Callable[[Array, Array, Array], tuple[Place, Array, Array]]


class AtRest(NamedTuple):
    """The solution: q, and of `EquilibriumReport` the multipliers, contact forces, gaps, shares and
    pairs. `full`: whether pieces overlap for which there is no place; `None` with fixed places."""

    q: Coordinates
    multipliers: Rows
    force: Forces
    gap: Float[Array, " contacts"]
    share: Float[Array, " contacts"]
    pairs: Int[Array, "contacts 3"] | None = None
    full: Bool[Array, ""] | None = None


class AbstractStatics(eqx.Module, Generic[Place]):
    """The static problem of a system at a time, under inputs or a control u."""

    system: AbstractSystem
    u: PyTree
    t: Float[Array, ""]
    solver: AbstractConstraintSolver

    @abc.abstractmethod
    def start(self, q: Coordinates, rest: Velocity) -> Place:
        """The place at which the search begins."""

    @abc.abstractmethod
    def look(self, place: Place, rest: Velocity, before: Array) -> tuple[Here, Step]:
        """What the search needs to know there, and the steps from there. `before`: h of the step
        that led there."""

    @abc.abstractmethod
    def resting(self, place: Place, rest: Velocity) -> AtRest:
        """The solution at the end of the search, with the derivatives of the implicit function."""

    def point(self, q: Coordinates, rest: Velocity) -> Point:
        return point(self.system, as_control(self.u, q.dtype), self.t, q, rest)


class Statics(AbstractStatics[Coordinates]):
    """The static problem without contacts: rates of the overdamped motion as functions of the
    displacement p from q."""

    def operator(self, q, p):
        at = self.point(self.system.retract(q, p), jnp.zeros_like(p))
        return at, at.operator(self.solver)

    def parts(self, q, p):
        """The acceleration, the displacement back onto the constraints, and the multipliers."""
        at, operator = self.operator(q, p)
        still = jnp.zeros_like(at.rows.velocity)
        a, lam = operator.solve(at.f, still)
        back, _ = operator.correct(-at.rows.position(at.rows.phi), p)
        return a, back, lam

    def rates(self, q, p):
        a, back, _ = self.parts(q, p)
        return a + back

    def at_rest(self, q, p):
        """The acceleration a, the displacement back onto the constraints, the projector T onto
        admissible displacements, the stiffness K relative to the mass along them, T a(p + dp) =
        T a(p) - K dp, the eigenvalues of its symmetric part, inf in all other directions, Phi, and
        the largest acceleration by the forces that act: applied ones, those of constraints, and
        stiffness times a displacement of 1."""
        at, operator = self.operator(q, p)
        one = jnp.eye(p.shape[0], dtype=p.dtype)
        project = lambda x: x - operator.correct(operator.rows(x), x)[0]  # noqa: E731
        T = jax.vmap(project, in_axes=1, out_axes=1)(one)

        def along(dp):
            (a, back, _), (da, _, _) = jax.jvp(lambda p: self.parts(q, p), (p,), (dp,))
            return da, (a, back)

        slope, (a, back) = jax.vmap(along, in_axes=1, out_axes=(1, None))(one)
        K = -T @ slope @ T
        # In the variables R^T p, with M = R R^T, T is symmetric. So is K if the forces have a
        # potential.
        R = jnp.linalg.cholesky(dense(at.M))
        similar = lambda A: R.T @ A @ jnp.linalg.inv(R.T)  # noqa: E731
        alike, P = similar(K), similar(T)
        # Shift the eigenvalues of directions that are not admissible beyond all others.
        far = 1e3 * (1 + jnp.linalg.norm(alike))
        values = jnp.linalg.eigvalsh((alike + alike.T) / 2 + far * (one - (P + P.T) / 2))
        values = jnp.where(values > far / 2, jnp.inf, values)
        free = jax.scipy.linalg.cho_solve((R, True), at.f)
        acting = jnp.concatenate([free, free - a, jnp.ravel(slope)])
        return a, back, T, K, values, at.rows.phi, jnp.max(jnp.abs(acting), initial=0.0)

    def start(self, q, rest):
        return q

    def look(self, place, rest, before):
        a, back, T, K, stiffness, phi, acting = self.at_rest(place, rest)
        left, missed = (jnp.max(jnp.abs(x), initial=0.0) for x in (a, back))
        missed = missed / jnp.maximum(1.0, jnp.max(jnp.abs(place), initial=0.0))

        def step(h, share, short):
            # Of all solutions T gives the admissible one. The least one would leave the
            # constraints.
            slow = jnp.where(short, 0.0, 1 / h)
            dp = T @ least_solution(slow * T + K, a)
            dp = jnp.where(short, dp + back, share * dp)
            return self.system.retract(place, dp), h, jnp.array(True)

        return Here(left, missed, acting, stiffness, jnp.linalg.norm(K), (back, phi)), step

    def resting(self, place, rest):
        # p = 0 is the root near q. Its derivatives follow from all that the statics depend on.
        p, none = implicit(lambda p: self.rates(place, p), rest), jnp.zeros(0, place.dtype)
        lam = self.parts(place, p)[2]
        return AtRest(self.system.retract(place, p), lam, none[:, None], none, none)


class _Back(NamedTuple):
    """Displacements back onto the constraints: from a q, whose rows are violated by |Phi| = `size`,
    the `share` of the displacement dp that would close linear rows."""

    q: Coordinates
    dp: Velocity
    size: Float[Array, ""]
    share: Float[Array, ""]

    def next(self, q: Coordinates, dp: Velocity, phi: Rows, begin: Bool[Array, ""]) -> "_Back":
        """Go on from q, or go back and take half the share if the violation did not fall. `begin`:
        whether q is the first one."""
        size = jnp.linalg.norm(phi)
        falls = begin | (size <= (1 - _DECREASE * self.share) * self.size)
        one = jnp.ones_like(self.share)
        longer = jnp.where(begin, one, jnp.minimum(one, 2 * self.share))
        return tree_where(falls, _Back(q, dp, size, longer), self._replace(share=self.share / 2))


class Search(NamedTuple):
    """The state of the search: the current place; the `last` one that satisfied the constraints,
    with the largest acceleration `left` there, the `error` relative to the forces that act, and
    whether the step from there was `short`, to take a root; the stiffness; the step h; the `share`
    of it that is taken, and whether it went `uphill`; the way back onto the constraints and its
    number of evaluations in a row (`closing`); the iteration k; and whether the search has `ended`.
    """

    at: PyTree
    last: PyTree
    left: Float[Array, ""]
    error: Float[Array, ""]
    short: Bool[Array, ""]
    stiffness: Float[Array, " nv"]
    h: Float[Array, ""]
    share: Float[Array, ""]
    uphill: Bool[Array, ""]
    way: _Back | None
    closing: Int[Array, ""]
    k: Int[Array, ""]
    ended: Bool[Array, ""]


def search(
    statics: AbstractStatics[Place],
    q: Coordinates,
    rest: Velocity,
    first: RealScalarLike,
    newton: RealScalarLike,
    tolerance: RealScalarLike,
    max_iterations: int | Int[Array, ""],
) -> Search:
    """Search from q by steps of the overdamped motion. Where forces drive the system away, h is at
    most `newton`, or what still leads downhill, if that is more. `rest`: v = 0."""
    dtype, retract = q.dtype, statics.system.retract
    eps = jnp.finfo(dtype).eps

    def going(state):
        return ~state.ended & (state.k < max_iterations)

    # There is one evaluation in one place, because compile time grows with the program's size.
    def turn(state):
        here, step = statics.look(state.at, rest, state.h)
        left, missed, acting, stiffness, size, back = here
        begun = jnp.isfinite(state.left)
        # Without a way back, steps see to the rows themselves, and only an error is left of them.
        open_ = jnp.array(False) if back is None else ~(missed <= tolerance)
        most = jnp.where(begun, _CLOSING, max_iterations)
        worse = left > jnp.where(state.uphill, _WORSE_UPHILL, _WORSE) * state.left
        lost = ~jnp.isfinite(left + missed) | jnp.where(open_, state.closing >= most, worse)
        reached = ~lost & ~open_

        error = jnp.maximum(left / jnp.where(acting > 0, acting, 1.0), missed)
        driven = jnp.maximum(-jnp.min(stiffness), 0.0)
        if back is None:
            # Forces of contacts must have been found once.
            short, ended = jnp.array(False), reached & begun & (error <= tolerance)
        else:
            # Close to a root Newton's method takes all digits that rounding leaves, whatever the
            # tolerance. Where forces drive the system away, only what is within the tolerance
            # counts as close: the search goes downhill from beside an unstable equilibrium.
            close = jnp.where(no_negative(stiffness), jnp.maximum(eps**0.5, tolerance), tolerance)
            short = reached & (error <= close)
            ended = short & (error <= 2 * eps) | state.short & ~(error <= 0.5 * state.error)
        better = ~(state.short & (lost | open_ | (error > state.error)))

        # Forces that drive the system away grow before they fall. That is no reason for shorter
        # steps. But h must not exceed half their squared time constant, or the step overshoots.
        gain = state.left / jnp.where(left > 0, left, 1.0)
        gain = jnp.clip(gain, jnp.where(driven > 0, 1.0, 0.5), _FASTER)
        gain = jnp.where(begun, gain, 1.0)
        if back is not None:
            # Steps that move nearly nothing say nothing about the forces: weak ones need longer
            # steps.
            negligible = state.h * jnp.maximum(left, size) < _NEGLIGIBLE
            gain = jnp.where(open_, 1.0, jnp.where(negligible, _FASTER, gain))
        h = state.h * jnp.where(lost, jnp.where(state.uphill, 1.0, 0.25), gain)
        tiny = jnp.finfo(dtype).tiny
        h = jnp.minimum(h, jnp.maximum(newton, 0.5 / jnp.maximum(driven, tiny)))
        uphill = jnp.where(reached, h * driven > 1, state.uphill)
        # Newton's method, which goes uphill too, takes a shorter part of a step that fails.
        share = jnp.where(lost & state.uphill, 0.5 * state.share, state.share)
        longer = jnp.where(left < state.left, jnp.minimum(1.0, 2 * share), share)
        share = jnp.where(reached, jnp.where(uphill, longer, 1.0), share)
        ahead, h, solved = step(h, share, short)
        unsolved = ~solved & ~lost & ~ended
        way = state.way
        if back is not None:
            way = way.next(state.at, *back, state.closing == 0)
            ahead = tree_where(open_, retract(way.q, way.share * way.dp), ahead)
        last = tree_where(reached & better, state.at, state.last)
        return Search(
            tree_where(lost | unsolved, tree_where(lost, state.last, state.at), ahead),
            last,
            jnp.where(reached & better, left, state.left),
            jnp.where(reached & better, error, state.error),
            short,
            jnp.where(better, stiffness, state.stiffness),
            jnp.where(unsolved, 0.25 * h, h),
            share,
            uphill,
            way,
            jnp.where(open_ & ~lost, state.closing + 1, 0),
            state.k + 1,
            ended,
        )

    inf, one = jnp.asarray(jnp.inf, dtype), jnp.ones((), dtype)
    count, no, h = jnp.array(0), jnp.array(False), jnp.asarray(first, dtype)
    at = statics.start(q, rest)
    closes = jax.eval_shape(lambda: statics.look(at, rest, h)[0]).back is not None
    way = _Back(q, rest, inf, 0 * one) if closes else None
    start = Search(at, at, inf, inf, no, rest, h, one, no, way, count, count, no)
    return jax.lax.while_loop(going, turn, start)

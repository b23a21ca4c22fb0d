"""The contact problems of a step, and the laws in them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..._compiler import (
    any_of_batch,
    checkpointed,
    one_by_one,
    save_for_reverse,
    stop_gradient,
    tree_where,
)
from ..._contact import (
    AbstractContactJacobian,
    AbstractContactSolver,
    AbstractDelassus,
    AbstractFriction,
    ContactEquations,
    ContactRows,
    Groups,
    Impulses,
    InteriorPoint,
    at_solution,
    delassus,
)
from ..._coordinates import length
from ..._linalg import ConstraintOperator
from ..._results import RESULTS, first_failure
from ..._types import RealScalarLike, Rows, Velocity

# Gaps and overlaps [m] below this are rounding errors.
_SLOP = 1e-12


class Resolved(NamedTuple):
    """The solution of a contact problem: the change of the velocities, the impulses of the equality
    rows and of the contacts, which contacts carry load, the residual [m/s], a verdict, and the
    impulses that are expected of the next step."""

    change: Velocity
    multipliers: Rows
    impulses: Impulses
    pressed: Bool[Array, " contacts"]
    residual: Float[Array, ""]
    result: RESULTS
    expected: Impulses

    @classmethod
    def nothing(cls, like: Velocity, rows: int, impulses: Impulses) -> "Resolved":
        """Return the solution without impulses."""
        count, dtype = impulses.shape[0], impulses.dtype
        return cls(
            jnp.zeros_like(like),
            jnp.zeros(rows, dtype),
            jnp.zeros_like(impulses),
            jnp.zeros(count, bool),
            jnp.zeros((), dtype),
            RESULTS.where(jnp.array(True), RESULTS.successful, RESULTS.contact_unsolved),
            jnp.zeros_like(impulses),
        )

    def then(self, next: "Resolved") -> "Resolved":
        """Return the sum of both, where `next` is solved after this one."""
        return Resolved(
            self.change + next.change,
            self.multipliers + next.multipliers,
            self.impulses + next.impulses,
            self.pressed | next.pressed,
            jnp.maximum(self.residual, next.residual),
            first_failure(self.result, next.result),
            self.expected + next.expected,
        )


class Given(NamedTuple):
    """The data of one contact problem: relative velocities b [m/s] without contact impulses, bias
    included; friction coefficients of the groups; compliance [1/kg]; initial guess of the impulses;
    whether there is anything to solve; the part of b that is `passing`; the largest impulses of the
    dry friction among them, `None` without any."""

    b: Impulses
    mu: Float[Array, "contacts groups"]
    compliance: Float[Array, " contacts"]
    guess: Impulses
    needed: Bool[Array, ""]
    passing: Impulses | None = None
    dry: Float[Array, " dry"] | None = None

    def with_dry(self, S: AbstractDelassus, smoothing: Float[Array, ""] | None) -> "Given":
        """Return the problem in which dry friction has its largest impulse m as its normal one, for
        the coefficient 1. A row that moves nothing, with the compliance c and the bias -c m, has
        this impulse: 0 <= n perp c n - c m >= 0. With c as the mobility along the friction, the
        problem is as well conditioned as before."""
        if self.dry is None:
            return self
        count = self.dry.shape[0]
        c = jnp.trace(S.blocks()[-count:], axis1=1, axis2=2)
        c = jnp.where(c > 0, c, 1.0)
        bias = -c * self.dry
        if smoothing is not None:
            # The smoothed law n z = (smoothing scale)^2 has the same impulse for this z.
            d, eps = self.b.shape[1], jnp.finfo(c.dtype).eps
            none = eps * jnp.maximum(smoothing, eps) / c
            bias = bias + smoothing**2 * (d / (2 * c)) / jnp.maximum(self.dry, none)
        normal = jnp.concatenate([self.b[:-count, 0], bias])
        compliance = jnp.concatenate([self.compliance[:-count], c])
        return self._replace(b=self.b.at[:, 0].set(normal), compliance=compliance)


class ContactProblems(NamedTuple):
    """What all contact problems at one q have in common.

    **Fields:** `solver` and `smoothing` of the method; `operator` of the equality rows, and their
    number `rows`; `J` of the contacts; `groups` of their impulses."""

    solver: AbstractContactSolver
    smoothing: Float[Array, ""] | None
    operator: ConstraintOperator
    rows: int
    J: AbstractContactJacobian
    groups: Groups

    def resolve(self, given: Given, exact: bool | Bool[Array, ""] = False) -> Resolved:
        """Solve one of the problems; an `exact` one by `InteriorPoint` and without smoothing."""
        smoothing, solver = self.smoothing, self.solver
        if smoothing is not None:
            smoothing = jnp.where(exact, 0.0, smoothing)
        # Built for each problem: in most steps one at most has to be solved.
        S = delassus(self.operator, self.rows, self.J, self.groups.d)
        given = given.with_dry(S, smoothing)
        equations = ContactEquations(
            self.operator, self.J, given.b, given.mu, given.compliance, smoothing, self.groups
        )
        problem = equations.problem(S, given.passing)
        guess = jax.lax.stop_gradient(given.guess) / problem.scale[:, None]

        def solve(solver, exact, problem, guess):
            if isinstance(solver, InteriorPoint):
                return solver.solve(problem, guess)
            return jax.lax.cond(exact, InteriorPoint().solve, solver.solve, problem, guess)

        solved = save_for_reverse(
            one_by_one(solve, *stop_gradient((solver, exact, problem, guess)))
        )
        lam, change, multipliers, differentiable = at_solution(
            equations, problem, solved.impulses, self.rows, solved.accepted
        )
        assert differentiable is not None
        good = solved.accepted & differentiable
        result = RESULTS.where(good, RESULTS.successful, RESULTS.contact_unsolved)
        pressed = problem.pressed(solved.impulses)
        expected = solved.expected * problem.scale[:, None]
        return Resolved(change, multipliers, lam, pressed, solved.residual, result, expected)

    def in_turn(
        self,
        first: Given,
        like: Velocity,
        follow: Sequence[Callable],
        state: PyTree,
        repeats: int = 1,
    ) -> tuple[PyTree, Resolved]:
        """Solve several problems in turn, each of which depends on the solutions before it.
        `follow[k](state, solution)` returns the state after problem k and the data of the next
        problem; the first of them is applied `repeats` times. The last problem is exact. Returns
        the state and the solution of the last problem.
        The problems are the turns of one loop, so that the solver is compiled once."""
        nothing = Resolved.nothing(like, self.rows, first.b)
        last = len(follow) + repeats - 1

        def turn(carry, k):
            given, state, _ = carry

            def solve():
                found = self.resolve(given, k == last)
                return tree_where(given.needed, found, nothing)

            found = jax.lax.cond(any_of_batch(given.needed), solve, lambda: nothing)
            followed = [*follow, lambda state, _: (state, given)]
            which = k if repeats == 1 else jnp.maximum(k - (repeats - 1), 0)
            state, given = save_for_reverse(jax.lax.switch(which, followed, state, found))
            return (given, state, found), None

        # To compute a turn again, its solution given, is less to compile than to keep all of it.
        carry, _ = jax.lax.scan(checkpointed(turn), (first, state, nothing), jnp.arange(last + 1))
        return carry[1:]


def contact_groups(friction: AbstractFriction, contacts: ContactRows) -> Groups:
    """Return the groups of impulses of these contacts."""
    law, k = contacts.law, contacts.tangents
    rest = contacts.drift.shape[1] - 1 - k - (law.torsional is not None)
    moments = [(law.torsional, 1), (law.rolling, rest)]
    sizes = tuple(size for coefficient, size in moments if coefficient is not None)
    sizes = (k, *sizes) if k else sizes
    return Groups(sizes, (friction,) * len(sizes))


def coefficients(
    contacts: ContactRows, slip: Float[Array, "contacts d"]
) -> Float[Array, "contacts groups"]:
    """Return the coefficient of each group at the relative velocities at the start of the step."""
    law, count, k = contacts.law, slip.shape[0], contacts.tangents
    moments = [x for x in (law.torsional, law.rolling) if x is not None]
    found = [jnp.broadcast_to(x, (count,)).astype(slip.dtype) for x in moments]
    if k:
        speed = length(slip[:, 1 : 1 + k])
        found = [law.coefficient(speed).astype(slip.dtype), *found]
    return jnp.stack(found, axis=1) if found else jnp.zeros((count, 0), slip.dtype)


class Normal(NamedTuple):
    """The normal law of a step: bias velocity [m/s] of contacts that do not bounce; velocity u <= 0
    [m/s] before the impact and restitution e of those that do; compliance [1/kg]."""

    bias: Float[Array, " contacts"]
    before: Float[Array, " contacts"]
    restitution: Float[Array, " contacts"]
    compliance: Float[Array, " contacts"]


def bouncing(
    contacts: ContactRows,
    bias: Float[Array, " contacts"],
    before: Float[Array, " contacts"],
    hits: Bool[Array, " contacts"],
) -> Normal:
    """Return the law of rigid contacts. Those that `hits` selects bounce, with the normal
    velocities `before` the impact."""
    e = jnp.broadcast_to(contacts.law.restitution, bias.shape)
    hits = hits & (e * before < 0)
    zero = jnp.zeros_like(bias)
    return Normal(
        jnp.where(hits, zero, bias),
        jnp.where(hits, before, zero),
        jnp.where(hits, e, zero),
        zero,
    )


def normal_law(
    contacts: ContactRows,
    before: Float[Array, " contacts"],
    free: Float[Array, " contacts"],
    h: RealScalarLike,
) -> Normal:
    """Return the law of a step, from normal velocities at its start and without contact
    impulses."""
    law, gap = contacts.law, contacts.gap
    normal = bouncing(contacts, lift(gap) / h, before, gap + h * free < 0)
    if law.stiffness is None:
        return normal
    flexibility = 1 / law.stiffness
    relaxation = law.damping * flexibility
    pressed = (gap < 0) & is_compliant(contacts)
    return normal._replace(
        bias=jnp.where(pressed, gap / (h + relaxation), normal.bias),
        compliance=jnp.broadcast_to(flexibility / (h * (h + relaxation)), gap.shape),
    )


def lift(gap: Float[Array, " contacts"]) -> Float[Array, " contacts"]:
    """Return the part of the gaps that a step may close. To close a gap that is rounding would be a
    motion, which the next step would have to stop, so that bodies would never rest. Its derivative
    is no rounding: the contact stays closed."""
    rounding = gap - jax.lax.stop_gradient(gap)
    return jnp.where(gap > _SLOP, gap, jnp.where(gap < -_SLOP, 0.0, rounding))


def as_overlap(gap: Float[Array, " contacts"]) -> Float[Array, " contacts"]:
    """Return the gaps of contacts that touch as overlaps that are just large enough to be removed.
    They have the derivatives of the gaps."""
    value = jax.lax.stop_gradient(gap)
    return jnp.minimum(value, -2 * _SLOP) + (gap - value)


def is_compliant(contacts: ContactRows) -> Bool[Array, " contacts"]:
    """Return which contacts have a finite stiffness."""
    stiffness = contacts.law.stiffness
    finite = False if stiffness is None else jnp.isfinite(stiffness)
    return jnp.broadcast_to(finite, contacts.gap.shape)


def overlaps(
    contacts: ContactRows, groups: Groups, ahead: Float[Array, " contacts"], h: RealScalarLike
) -> Given:
    """Return the problem of the displacement of least kinetic energy that removes all overlap and
    opens no contact without need. `ahead` are the gaps at the end of the step, as the velocities
    predict them. The unknowns are the velocities that make this displacement in the time h. The
    residual [m/s], times h, is the remaining overlap, which cannot vanish where overlaps contradict
    each other."""
    rigid = ~is_compliant(contacts)
    ahead = jnp.where(rigid, ahead, jnp.maximum(ahead, 0.0))
    none = jnp.zeros((ahead.shape[0], groups.d), ahead.dtype)
    return Given(
        none.at[:, 0].set(ahead / h),
        jnp.zeros((ahead.shape[0], len(groups.sizes)), ahead.dtype),
        jnp.zeros_like(ahead),
        none,
        jnp.any((ahead < -_SLOP) & rigid),
        none,
        jnp.zeros(contacts.dry, ahead.dtype) if contacts.dry else None,
    )

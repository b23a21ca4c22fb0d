"""Steps with contacts: one problem a step, or impacts located within it."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._checks import is_concrete
from .._constraints import mass_matrix, positions, row_count
from .._enforcement.base import point_at
from .._enforcement.contradiction import contradiction_of
from .._enforcement.stepping import (
    AbstractStepper,
    Problem,
    Step,
    free_field,
    free_step,
    stepper_of,
)
from .._linalg import ConstraintOperator
from .._loop import recomputed
from .._results import RESULTS, first_failure
from .._types import Coordinates, RealScalarLike, Rows, Velocity
from .contact_impulse import (
    ContactImpulse,
    ContactProblems,
    Given,
    Normal,
    Resolved,
    bouncing,
    coefficients,
    contact_groups,
    is_compliant,
    normal_law,
    overlaps,
)
from .problem import Groups
from .rows import ABSENT, ContactRows, contact_rows
from .tally import ContactTally
from .time_of_impact import Path, to_first_impact, touch

# Overlaps [m] by which contacts were missed that were left out.
_OVERFLOW = 1e-9

# Overlap per step [m/s] that may be left where no displacement takes it back. Overlaps that
# rounding makes, between bodies that joints hold, are far below.
_LEFT = 1e-3

# The rest of a step, as a share of it, that is nothing.
_NOTHING = 1e-9

# A share of a step on which a way is not bent but by rounding.
_SHORT = 1e-5

_T = TypeVar("_T")


class _Phase(NamedTuple):
    """The state within a step, the impulses and verdicts so far, which contacts were solved for
    last, and which of them pressed without a bounce."""

    t: RealScalarLike
    q: Coordinates
    v: Velocity
    multipliers: Rows
    impulses: Float[Array, "contacts d"]
    residual: Float[Array, ""]
    watched: Bool[Array, " contacts"]
    resting: Bool[Array, " contacts"]
    scheme_state: Any
    result: RESULTS


class _Equations(NamedTuple):
    """All that acts at one q: rows of equality, contacts, and the velocities after a step without
    contacts."""

    operator: ConstraintOperator
    rows: int
    contacts: ContactRows
    groups: Groups
    v_free: Velocity
    multipliers: Rows
    scheme_state: Any
    result: RESULTS


class ContactStepper(AbstractStepper):
    """The scheme on the free motion, then the impulses; y = (q, v, mean multipliers, mean contact
    forces, greatest residual so far, which contacts were solved for last, which of them rest, the
    `ContactTally` since the last saved time)."""

    problem: Problem
    scheme: diffrax.AbstractSolver

    @property
    def checkpoints(self):
        return self.problem.enforcement.impacts > 0

    def start(self, t, h, q, v):
        system = self.problem.system
        contacts = eqx.filter_eval_shape(contact_rows, system, t, q, v)
        if self.problem.enforcement.impacts and contacts.law.stiffness is not None:
            raise ValueError(
                "A contact with `stiffness` has no instant of impact: leave out `impacts` of "
                "`ContactImpulse`, or `stiffness`."
            )
        d = (contacts.total, contacts.drift.shape[1])
        rows = row_count(system, t, q, v)
        zero, none = jnp.zeros((), q.dtype), jnp.zeros(d, q.dtype)
        watched, resting = jnp.ones(d[0], bool), jnp.zeros(d[0], bool)
        tally = ContactTally(zero, none, none)
        y = (q, v, jnp.zeros(rows, q.dtype), none, zero, watched, resting, tally)
        terms = diffrax.ODETerm(free_field)
        return y, self.scheme.init(terms, t, t + h, (q, v), self.problem)

    def start_result(self, t, q, v, tolerance):
        contacts = contact_rows(self.problem.system, t, q, v)
        apart = jnp.all((contacts.gap >= -tolerance) | is_compliant(contacts))
        return RESULTS.where(apart, RESULTS.successful, RESULTS.overlapping_start)

    def end_result(self, t, y):
        q, v, *_, watched, _, _ = y
        return _missed(contact_rows(self.problem.system, t, q, v), watched)

    def step(self, t0, t1, y, scheme_state):
        system, h = self.problem.system, t1 - t0
        q, v, multipliers, force, worst, watched, resting, tally = y
        start = _Phase(
            t0,
            q,
            v,
            jnp.zeros_like(multipliers),
            jnp.zeros_like(force),
            jnp.zeros_like(worst),
            watched,
            resting,
            scheme_state,
            system.result(q),
        )
        phi = jnp.abs(positions(system, t0, q))
        if self.problem.enforcement.impacts and force.shape[0]:
            end = self._located(start, t1, force)
        else:
            end = self._stepped(start, t1, force)
        q, v, projected = self.problem.project(t1, end.q, end.v)
        result = first_failure(end.result, projected)
        worst = jnp.maximum(worst, end.residual)
        force = end.impulses / h
        tally = tally.plus(h, force)
        y = (q, v, end.multipliers / h, force, worst, end.watched, end.resting, tally)
        return Step(y, end.scheme_state, result, phi)

    def between(self, t0, h, t, y):
        _, scheme_state = self.start(t0, h, y[0], y[1])
        if self.problem.enforcement.impacts:
            return self.step(t0, t, y, scheme_state).y
        # Along the step itself: position moves with the new velocity, velocity linearly.
        q, v, *rest, _ = self.step(t0, t0 + h, y, scheme_state).y
        s, tally = (t - t0) / h, y[-1].plus(t - t0, rest[1])
        return (self.problem.system.retract(y[0], s * h * v), y[1] + s * (v - y[1]), *rest, tally)

    def multipliers(self, t, y):
        del t
        return y[2]

    @property
    def keeps_energy(self):
        return False  # impacts and friction take it

    def row_energy(self, t, y):
        contacts = contact_rows(self.problem.system, t, y[0], y[1])
        if contacts.law.stiffness is None:
            return jnp.zeros((), y[0].dtype)
        K, depth = contacts.law.stiffness, jnp.maximum(-contacts.gap, 0.0)
        return jnp.sum(jnp.where(jnp.isinf(K), 0.0, K) * depth**2) / 2

    def driving_power(self, t, y):
        contacts = contact_rows(self.problem.system, t, y[0], y[1])
        of_surfaces = -jnp.sum(contacts.of_kept(y[3]) * contacts.drift)
        return super().driving_power(t, y) + of_surfaces

    def held(self, good, new, old):
        # The residual tells why a step was not good.
        q, v, multipliers, force, _, *states = super().held(good, new, old)
        residual = jnp.where(jnp.isfinite(new[4]), new[4], old[4])
        return q, v, multipliers, force, residual, *states

    def contacts(self, y):
        return y[3], y[4]

    def tally(self, y):
        return y[-1]

    def with_tally(self, y, tally):
        return (*y[:-1], tally)

    def _equations(
        self, at: _Phase, t1: RealScalarLike, flows: Bool[Array, ""] | None = None
    ) -> _Equations:
        """On a parabola, if it `flows`, the rows have their accelerations; in a step they take
        their velocities."""
        system, enforcement, h = self.problem.system, self.problem.enforcement, t1 - at.t
        free = free_step(self.problem, self.scheme, at.t, t1, at.q, at.v, at.scheme_state)
        here = free.point
        operator = here.operator(enforcement.solver)
        feedback = here.rows.position(enforcement.stabilisation.feedback(free.phi, h))
        velocities = -(free.drift + feedback)
        if flows is not None:
            onwards = operator.rows(at.v) + h * here.rows.gamma
            velocities = jnp.where(flows, onwards, velocities)
        change, multipliers = operator.steer(velocities, here.v)
        contacts = contact_rows(system, at.t, at.q, at.v)
        missed = _missed(contacts, at.watched)
        contradict = contradiction_of(here, enforcement.solver, operator, free.phi)
        result = first_failure(at.result, operator.result(), contradict, free.result, missed)
        return _Equations(
            operator,
            velocities.shape[0],
            contacts,
            contact_groups(enforcement, contacts),
            here.v + change,
            multipliers,
            free.scheme_state,
            result,
        )

    def _solve(
        self,
        equations: _Equations,
        v: Velocity,
        normal: Normal,
        before: Float[Array, "contacts d"],
        guess: Float[Array, "all d"],
        moved: Callable[[Resolved], tuple[_T, Float[Array, " contacts"]]],
        h: RealScalarLike,
    ) -> tuple[Resolved, _T, Resolved]:
        """Contact impulses that act on the velocities v; `before`: relative velocities from which
        friction has its coefficients; `guess`: impulses of all contacts. Returns them, what
        `moved` tells of them besides the gaps that follow, and what takes back those that overlap
        then, with velocities over the time h."""
        contacts, groups = equations.contacts, equations.groups
        enforcement, rows = self.problem.enforcement, equations.rows
        guess = contacts.of_kept(guess)
        nothing = Resolved.nothing(v, rows, guess)
        if guess.shape[0] == 0:
            return nothing, moved(nothing)[0], nothing
        problems = ContactProblems.of(enforcement, equations.operator, rows, contacts.J, groups)
        mu, newton = coefficients(contacts, before), enforcement.impact_law == "newton"

        def impact(change, bias, guess):
            b = contacts.velocities(v + change).at[:, 0].add(bias)
            return Given(b, mu, normal.compliance, guess, jnp.array(True))

        def rebound(state, compression):
            again = normal.restitution[:, None] * compression.impulses
            kick, reactions = equations.operator.solve(
                contacts.J.reaction(again), jnp.zeros_like(compression.multipliers)
            )
            solved = compression._replace(
                change=compression.change + kick,
                multipliers=compression.multipliers + reactions,
                impulses=compression.impulses + again,
            )
            return (solved, state[1]), impact(solved.change, normal.bias, jnp.zeros_like(again))

        def move(state, found):
            solved = state[0].then(found)
            told, ahead = moved(solved)
            return (solved, told), overlaps(contacts, groups, ahead, h)

        told, _ = eqx.filter_eval_shape(moved, nothing)
        told = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), told)
        first = impact(nothing.change, normal.bias + (normal.rebound if newton else 0), guess)
        follow = [move] if newton else [rebound, move]
        (solved, told), back = problems.in_turn(first, v, follow, (nothing, told))
        return solved, told, back

    def _stepped(self, at: _Phase, t1: RealScalarLike, force: Float[Array, "all d"]) -> _Phase:
        """One problem for the whole step, at the end of which q moves with the new velocities."""
        h = t1 - at.t
        equations = self._equations(at, t1)
        contacts, v_free = equations.contacts, equations.v_free
        before = contacts.velocities(at.v)
        normal = normal_law(contacts, before[:, 0], contacts.velocities(v_free)[:, 0], h)

        def moved(solved):
            v = v_free + solved.change
            return v, contacts.gap + h * contacts.velocities(v)[:, 0]

        solved, v, back = self._solve(equations, v_free, normal, before, force * h, moved, h)
        reactions = equations.multipliers + solved.multipliers
        move = h * (v + back.change)
        return self._advanced(at, t1, equations, solved, back, v, move, reactions, solved.impulses)

    def _located(self, at: _Phase, t1: RealScalarLike, force: Float[Array, "all d"]) -> _Phase:
        """Flow, impact, flow, ..., flow with as many impacts as there may be, and what is left
        after one impact more as in `_stepped`. They share one contact problem in the compiled code.
        An impact at the end of the step is the first one of the next step."""
        impacts = self.problem.enforcement.impacts
        h = t1 - at.t
        least = _NOTHING * h

        def onwards(carry, k):
            at, hits = carry
            rest = jnp.maximum(t1 - at.t, least)
            last = k == 2 * impacts + 1
            go = (hits & ~last) | (t1 - at.t > least)
            act = lambda at: self._flow_or_impact(at, rest, h, force, hits & ~last, last)  # noqa: E731
            # Recomputed in the reverse pass: what a branch keeps, the other one fills with zeros.
            act = recomputed(act)
            return jax.lax.cond(go, lambda: act(at), lambda: carry), None

        start = (at, jnp.asarray(False))
        (at, _), _ = jax.lax.scan(onwards, start, jnp.arange(2 * impacts + 2))
        return at

    def _flow_or_impact(
        self,
        at: _Phase,
        h: RealScalarLike,
        duration: RealScalarLike,
        force: Float[Array, "all d"],
        hits: Bool[Array, ""],
        last: Bool[Array, ""],
    ) -> tuple[_Phase, Bool[Array, ""]]:
        """If a contact `hits`, the impact law at this instant. Else on a parabola to the next
        impact, for at most the time h that is left of the step's `duration`; the `last` time
        without looking for it. Returns also whether there is one."""
        equations = self._equations(at, at.t + h, ~last)
        contacts, v_free = equations.contacts, equations.v_free
        before = contacts.velocities(at.v)
        # Between impacts those contacts act that rest, although a step leaves a curved way by
        # O(h^2), which the bias takes back, and those that touch and neither fly nor strike.
        resting = contacts.of_kept(at.resting)
        bend = (contacts.velocities(v_free)[:, 0] - before[:, 0]) / h
        touching, flying, striking = touch(contacts.gap, before[:, 0], bend)
        striking = striking & ~resting
        closed = resting | (touching & (hits | ~(flying | striking)))
        lifted = jnp.where(hits, 0.0, jnp.maximum(contacts.gap, 0.0) / h)
        bias = jnp.where(closed, lifted, 1.0)
        flow = bouncing(contacts, bias, before[:, 0], touching & ~resting & hits)
        step = normal_law(contacts, before[:, 0], contacts.velocities(v_free)[:, 0], h)
        normal = jax.tree.map(lambda x, y: jnp.where(last, x, y), step, flow)
        v_free = jnp.where(hits, at.v, v_free)
        reactions = jnp.where(hits, 0.0, equations.multipliers)
        equations = equations._replace(
            contacts=contacts.where(closed | last), v_free=v_free, multipliers=reactions
        )
        whole = hits | last  # the new velocities hold at once, or all the time
        has_rows, operator = equations.rows > 0, equations.operator

        def moved(solved):
            v = v_free + solved.change
            path = Path(
                self.problem.system,
                at.t,
                at.q,
                jnp.where(whole, v, at.v),
                jnp.where(whole, 0.0, (v - at.v) / h),
                operator if has_rows else None,
            )
            flown = to_first_impact(
                path, equations.rows, contacts, ~(closed | whole), striking, jnp.where(hits, 0.0, h)
            )
            s = flown.after
            share = jnp.where(whole, 1.0, s / h)
            v = path.velocity(s)
            reactions = share * (equations.multipliers + solved.multipliers)
            if has_rows:
                # Half of what the rows do acts at the start, and what they do to the way between.
                short = _SHORT * duration
                over = jnp.where(whole | (s < short), 0.0, 1 / jnp.maximum(s, short))
                held = jnp.where(whole, 1.0, 0.5)
                between = jax.tree.map(lambda x, y: over * (x - y), flown.back, flown.before)
                free = operator.free(operator.reaction(reactions))
                v = v - (1 - held) * free + between.displacement
                reactions = held * reactions + between.impulses
            move = path.displacement(s) + flown.back.displacement
            ahead = contacts.gap + contacts.J.rows(move)[:, 0] + s * contacts.drift[:, 0]
            ahead = jnp.where((closed | last) & ~hits, ahead, 1.0)
            return (flown.hit, s, v, move, reactions, share * solved.impulses), ahead

        guess = jnp.where(hits, 0.0, force * h)
        solved, told, back = self._solve(equations, v_free, normal, before, guess, moved, duration)
        hit, s, v, move, reactions, impulses = told
        move = move + duration * back.change
        end = self._advanced(at, at.t + s, equations, solved, back, v, move, reactions, impulses)
        if has_rows:
            end = self._onto_rows(end)
        rests = closed & solved.pressed & (normal.restitution == 0) & ~last
        return end._replace(resting=contacts.of_all(rests)), hit

    def _onto_rows(self, at: _Phase) -> _Phase:
        """With velocities that the rows of equality allow."""
        system = self.problem.system
        M = mass_matrix(system, at.q)
        here = point_at(system, at.t, at.q, at.v, jnp.zeros_like(at.v), M)
        operator = here.operator(self.problem.enforcement.solver)
        change, impulses = operator.correct(-here.rows.velocity, at.v)
        result = first_failure(at.result, operator.result())
        return at._replace(v=at.v + change, multipliers=at.multipliers + impulses, result=result)

    def _watched(self, contacts: ContactRows) -> Bool[Array, " all"]:
        """Contacts that are solved for, and those that do not exist here: that one appears where
        bodies touch is no sign of a small budget."""
        kept = contacts.of_all(jnp.ones_like(contacts.gap, bool))
        if contacts.of_everything is None:
            return kept
        return kept | (contacts.of_everything >= ABSENT / 2)

    def _advanced(
        self,
        at: _Phase,
        t: RealScalarLike,
        equations: _Equations,
        solved: Resolved,
        back: Resolved,
        v: Velocity,
        move: Velocity,
        reactions: Rows,
        impulses: Float[Array, "contacts d"],
    ) -> _Phase:
        """At t, `move` from where it was; `reactions` and `impulses` have acted."""
        left = back.residual
        taken = RESULTS.where(left <= _LEFT, RESULTS.successful, RESULTS.contact_unsolved)
        system, contacts = self.problem.system, equations.contacts
        q = system.retract(at.q, move)
        return _Phase(
            t,
            q,
            system.carried(at.q, q, v),
            at.multipliers + reactions,
            at.impulses + contacts.of_all(impulses),
            jnp.maximum(at.residual, jnp.maximum(solved.residual, left)),
            self._watched(contacts),
            at.resting,
            equations.scheme_state,
            first_failure(equations.result, solved.result, taken),
        )


def _missed(contacts: ContactRows, watched: Bool[Array, " all"]) -> RESULTS:
    """Whether contacts overlap that were not `watched` in the step before."""
    if contacts.of_everything is None:
        return RESULTS.successful
    missed = jnp.any((contacts.of_everything < -_OVERFLOW) & ~watched)
    return RESULTS.where(missed, RESULTS.contact_overflow, RESULTS.successful)


@stepper_of.register
def _(enforcement: ContactImpulse, problem: Problem, scheme, default) -> AbstractStepper:
    del default
    if is_concrete(enforcement.smoothing) and np.asarray(enforcement.smoothing) == 0:
        # So that what smooths is not computed.
        problem = eqx.tree_at(lambda p: p.enforcement.smoothing, problem, None)
    return ContactStepper(problem, diffrax.Euler() if scheme is None else scheme)

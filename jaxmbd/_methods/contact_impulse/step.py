"""Steps with contacts: one problem a step, or impacts located within it."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..._compiler import any_of_batch, checkpointed, sums_at, tree_where
from ..._contact import (
    ABSENT,
    OVERFLOW,
    AbstractContactJacobian,
    ContactRows,
    Groups,
    Known,
    Located,
    Pairs,
    Path,
    Together,
    contact_rows,
    to_first_impact,
    touch,
)
from ..._equations import among, pieces_of
from ..._linalg import ConstraintOperator
from ..._results import RESULTS, first_failure
from ..._system import AbstractSystem
from ..._types import Coordinates, DType, RealScalarLike, Rows, Scalar, Velocity
from ..base import SimulationProblem, Step
from ..point import contradiction_of, point_at
from ..split import free_step
from ..state import ContactMemory, StepperState
from .dry import TURNS, DryFriction, LoadSearch
from .problems import (
    ContactProblems,
    Given,
    Normal,
    Resolved,
    as_overlap,
    bouncing,
    coefficients,
    contact_groups,
    is_compliant,
    lift,
    normal_law,
    overlaps,
)

# Overlap per step [m/s] that may remain where no displacement removes it. Overlaps that rounding
# causes, between bodies that joints connect, are far smaller.
_LEFT = 1e-3

# Without locating impacts, a remainder of a step below this share of it counts as nothing.
_NOTHING = 1e-9

_T = TypeVar("_T")


class _Phase(NamedTuple):
    """The state within a step, the impulses and verdicts so far, which contacts were solved for
    last, which of these pressed without a bounce, the overlap that is allowed, and `shift`: for
    each velocity the time by which the impact of its bodies is later than t, or, after it, minus
    this time. It is 0, but has derivatives where several impacts coincide. `ran_out`: whether there
    were more impacts than are located. `expected`: the impulses of the next step, as far as they
    are known. `pairs`: those to which the contacts belong."""

    t: RealScalarLike
    q: Coordinates
    v: Velocity
    multipliers: Rows
    impulses: Float[Array, "contacts d"]
    residual: Float[Array, ""]
    watched: Bool[Array, " contacts"]
    resting: Bool[Array, " contacts"]
    allowed: Float[Array, ""]
    shift: Velocity
    ran_out: Bool[Array, ""]
    memory: PyTree
    result: RESULTS
    expected: Float[Array, "contacts d"]
    pairs: Pairs | None = None


class _Equations(NamedTuple):
    """The equations at one q: equality rows, contacts, the velocities after a step without
    contacts, and the `displacement` of the rows, in which the gaps of the contacts include it;
    where the contacts were among those of the step before."""

    operator: ConstraintOperator
    rows: int
    contacts: ContactRows
    groups: Groups
    v_free: Velocity
    multipliers: Rows
    displacement: Velocity | None
    memory: PyTree
    result: RESULTS
    known: Known | None


class _Move(NamedTuple):
    """The effect of a step or a part of it: the displacement, the velocities at its end, and the
    impulses of rows and contacts that have acted."""

    displacement: Velocity
    v: Velocity
    multipliers: Rows
    impulses: Float[Array, "contacts d"]


class _Turn(NamedTuple):
    """A turn within a step with located impacts: the time that is left of the `duration` of the
    step; whether a contact hits at this instant; whether it is the `last` turn, which looks for no
    impact; whether it may look for one, and whether the turn after it may apply the impact law."""

    rest: Float[Array, ""]
    duration: Float[Array, ""]
    hits: Bool[Array, ""]
    last: Bool[Array, ""]
    looks: Bool[Array, ""]
    goes_on: Bool[Array, ""]

    def span(self) -> Float[Array, ""]:
        """The time over which accelerations are taken, as differences of velocities: the rest,
        unless rounding would spoil them."""
        whole = self.hits | (~self.last & (self.rest < _short(self.rest) * self.duration))
        return jnp.where(whole, self.duration, self.rest)


class ContactStep(eqx.Module):
    """A step of `ContactImpulse`: a free step of the scheme, then the impulses of equality rows and
    contacts, once for the whole step or at each impact that is located within it."""

    problem: SimulationProblem

    def to(self, state: StepperState, t: Scalar) -> Step:
        """The step from a state to the time t."""
        problem, past = self.problem, state.contacts
        assert past is not None and state.multipliers is not None
        of, h = problem.equations, t - state.t
        start = _Phase(
            state.t,
            state.q,
            state.v,
            jnp.zeros_like(state.multipliers),
            jnp.zeros_like(past.force),
            jnp.zeros_like(past.residual),
            past.watched,
            past.resting,
            past.allowed,
            jnp.zeros_like(state.v),
            jnp.asarray(False),
            state.memory,
            problem.system.result(state.q),
            past.expected,
            past.pairs,
        )
        phi = jnp.abs(of.positions(state.t, state.q))
        if locates(problem) and past.force.shape[0]:
            end = self._located_among_near(start, t, past.force)
        else:
            end = self._stepped(start, t, past.force)
        q, v, projected = problem.project(t, end.q, end.v)
        residual = jnp.maximum(past.residual, end.residual)
        unlocated = past.unlocated
        if unlocated is not None:
            unlocated = unlocated + jnp.where(end.ran_out, 1, 0)
        load = None if end.pairs is None else load_of_pieces(problem.system, end) / h
        state = state.replace(
            t=t,
            q=q,
            v=v,
            multipliers=end.multipliers / h,
            contacts=ContactMemory(
                end.impulses / h,
                end.expected / h,
                residual,
                end.watched,
                end.resting,
                end.allowed,
                unlocated,
                end.pairs,
                load,
            ),
            memory=end.memory,
        )
        return Step(state, first_failure(end.result, projected), phi)

    def _equations(
        self, at: _Phase, t1: RealScalarLike, flows: Bool[Array, ""] | None = None
    ) -> _Equations:
        """Evaluate the equations. On a parabola (`flows`) the rows prescribe accelerations; in a
        step they prescribe velocities."""
        system, enforcement, h = self.problem.system, self.problem.enforcement, t1 - at.t
        free = free_step(self.problem, t1, at)
        here = free.point
        operator = here.operator(enforcement.solver)
        phi, drift = free.phi, free.drift
        if flows is not None:
            onwards = operator.rows(at.v) + h * here.rows.gamma
            phi, drift = jnp.where(flows, 0.0, phi), jnp.where(flows, -onwards, drift)
        by_rows = enforcement.stabilisation.impulse(operator, here, phi, drift, h)
        displacement = by_rows.displacement
        contacts = contact_rows(system, at.t, at.q, at.v)
        start = overlapping(contacts, at.allowed)
        known = contacts.known(at.pairs)
        unseen = missed(contacts, at.watched, known)
        contradict = contradiction_of(here, enforcement.solver, operator, free.phi)
        result = first_failure(at.result, start, operator.result(), contradict, free.result, unseen)
        return _Equations(
            operator,
            drift.shape[0],
            contacts if displacement is None else contacts.after(displacement),
            contact_groups(enforcement.friction, contacts),
            here.v + by_rows.change,
            by_rows.impulses,
            displacement,
            free.memory,
            result,
            known,
        )

    def _solve(
        self,
        equations: _Equations,
        v: Velocity,
        normal: Normal,
        before: Float[Array, "contacts d"],
        guess: Float[Array, "all d"],
        past: Float[Array, "all d"],
        moved: Callable[[Resolved], tuple[_T, Float[Array, " contacts"]]],
        h: RealScalarLike,
        dry: DryFriction,
    ) -> tuple[Resolved, _T, Resolved]:
        """Solve for the contact impulses that act on the velocities v. `before`: relative
        velocities at which the coefficients of friction are taken. `guess`: impulses of all
        contacts; `past`: those of the step before. `moved` returns what follows from the impulses,
        and the gaps ahead. Returns the impulses, the first of these two, and the correction of
        overlap in the time h."""
        contacts, groups = equations.contacts, equations.groups
        enforcement, rows = self.problem.enforcement, equations.rows
        guess = contacts.of_kept(guess)
        nothing = Resolved.nothing(v, rows, guess)
        if guess.shape[0] == 0:
            return nothing, moved(nothing)[0], nothing
        solver, smoothing = enforcement.contact_solver, enforcement.smoothing
        problems = ContactProblems(solver, smoothing, equations.operator, rows, contacts.J, groups)
        mu, law, e = coefficients(contacts, before), enforcement.impact_law, normal.restitution

        bias = normal.bias - law.separation(e, normal.before)
        by_load = dry.by_load(equations.multipliers)
        none = jnp.zeros(contacts.dry, v.dtype) if contacts.dry else None
        # In the next step contacts that hold no longer move, and gaps that closed are 0.
        closes = jnp.where((normal.compliance > 0) | contacts.is_dry, 0.0, 2 * bias)
        passing = before.at[:, 0].add(closes)

        def impact(change, bias, guess, largest):
            b = contacts.velocities(v + change).at[:, 0].add(bias)
            # Without impulses no contact approaches. Smoothed laws have impulses at any distance.
            needed = ~jnp.all(b[:, 0] >= 0) if smoothing is None else jnp.array(True)
            if largest is not None:
                needed = needed | jnp.any(largest > 0)
            return Given(b, mu, normal.compliance, guess, needed, passing, largest)

        def settle(state, found):
            solved, told, turn = latest(state, found)
            largest = dry.largest(equations.multipliers + solved.multipliers)
            assert largest is not None
            turn = turn.next(largest)
            again = impact(nothing.change, bias, solved.impulses, turn.used)
            return (solved, told, turn), again._replace(needed=turn.exists)

        def latest(state, found):
            # By what was decided in the turn before: decided anew in the reverse pass, it could
            # differ by rounding.
            solved, told, turn = state
            return tree_where(turn.exists, found, solved), told, turn

        def once_settled(fn):
            def follow(state, found):
                solved, *rest = latest(state, found)
                return fn((nothing, *rest), solved)

            return follow

        def rebound(state, found):
            compression = state[0].then(found)
            again = law.expansion(e, compression.impulses)
            kick, reactions = equations.operator.solve(
                contacts.J.reaction(again), jnp.zeros_like(compression.multipliers)
            )
            solved = compression._replace(
                change=compression.change + kick,
                multipliers=compression.multipliers + reactions,
                impulses=compression.impulses + again,
            )
            # Dry friction has acted.
            left = impact(solved.change, normal.bias, jnp.zeros_like(again), none)
            return (solved, *state[1:]), left

        def move(state, found):
            solved = state[0].then(found)
            if by_load:
                solved = solved._replace(result=first_failure(solved.result, state[2].result))
            told, ahead = moved(solved)
            return (solved, told, *state[2:]), overlaps(contacts, groups, ahead, h)

        told, _ = eqx.filter_eval_shape(moved, nothing)
        told = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), told)
        follow = [move] if law.expansion(e, guess) is None else [rebound, move]
        state, repeats = (nothing, told), 1
        if by_load:
            # From the bounds of the step before, with their derivatives.
            largest = contacts.of_kept(past)[guess.shape[0] - contacts.dry :, 0]
            state = (*state, LoadSearch.first(largest))
            follow, repeats = [settle, once_settled(follow[0]), *follow[1:]], TURNS
        else:
            largest = dry.largest(equations.multipliers)
        first = impact(nothing.change, bias, guess, largest)
        state, back = problems.in_turn(first, v, follow, state, repeats)
        return state[0], state[1], back

    def _dry(self, contacts: ContactRows, at: _Phase, h: RealScalarLike) -> DryFriction:
        """The dry friction of a part of a step of the duration h."""
        of = self.problem
        return DryFriction(of.system, contacts.dry, at.t, at.q, at.v, h, of.control)

    def _stepped(self, at: _Phase, t1: RealScalarLike, force: Float[Array, "all d"]) -> _Phase:
        """Solve one problem for the whole step, then move q with the new velocities."""
        h = t1 - at.t
        equations = self._equations(at, t1)
        contacts, v_free = equations.contacts, equations.v_free
        before = contacts.velocities(at.v)
        normal = normal_law(contacts, before[:, 0], contacts.velocities(v_free)[:, 0], h)

        def moved(solved):
            v = v_free + solved.change
            return v, contacts.gap + h * contacts.velocities(v)[:, 0]

        past, guess = (contacts.carried(x * h, equations.known) for x in (force, at.expected))
        dry = self._dry(contacts, at, h)
        solved, v, back = self._solve(equations, v_free, normal, before, guess, past, moved, h, dry)
        reactions = equations.multipliers + solved.multipliers
        move = _Move(h * (v + back.change), v, reactions, solved.impulses)
        return self._advanced(at, t1, equations, move, solved, back)

    def _located_among_near(
        self, at: _Phase, t1: RealScalarLike, force: Float[Array, "all d"]
    ) -> _Phase:
        """`_located`, in which contacts without a fixed place keep theirs throughout the step: they
        are those that are near at its start."""
        if at.pairs is None:
            return self._located(at, t1, force)
        contacts = contact_rows(self.problem.system, at.t, at.q, at.v)
        known = contacts.known(at.pairs)
        unseen = missed(contacts, at.watched, known)
        start = at._replace(
            resting=contacts.carried(at.resting, known),
            result=first_failure(at.result, unseen),
            pairs=contacts.pairs,
        )
        fixed = among(self.problem.system, contacts.pairs)
        problem = eqx.tree_at(lambda p: p.system, self.problem, fixed)
        return ContactStep(problem)._located(start, t1, contacts.carried(force, known))

    def _located(self, at: _Phase, t1: RealScalarLike, force: Float[Array, "all d"]) -> _Phase:
        """Alternate flow and impact, with as many impacts as are allowed and a flow at the end.
        After that the rest of the step is done as in `_stepped`. All share one contact problem in
        the compiled code. An impact at the end of the step is the first one of the next step."""
        most = self.problem.enforcement.impacts.max_per_step
        h = jnp.asarray(t1 - at.t)

        def onwards(carry, k):
            at, hits, done = carry
            final = k == 2 * most + 1
            rest = t1 - at.t
            last = final & (rest > _NOTHING * h)
            turn = _Turn(rest, h, hits & ~final, last, ~final, k < 2 * most)
            act = lambda at: self._flow_or_impact(at, turn, force)  # noqa: E731
            # Recomputed in the reverse pass: what one branch saves, the other fills with zeros.
            act = checkpointed(act)
            # A step is done after a flow to its end. If an impact ends the step, this flow takes no
            # time, but the derivative of the time is not 0.
            return jax.lax.cond(done, lambda: carry, lambda: act(at)), None

        start = (at, jnp.asarray(False), jnp.asarray(False))
        (at, _, _), _ = jax.lax.scan(onwards, start, jnp.arange(2 * most + 2))
        return at

    def _flow_or_impact(
        self, at: _Phase, turn: _Turn, force: Float[Array, "all d"]
    ) -> tuple[_Phase, Bool[Array, ""], Bool[Array, ""]]:
        """Apply the impact law at this instant if a contact hits. Otherwise move on a parabola to
        the next impact, or to the end of the step. Returns the end, whether there is an impact, and
        whether the step is done."""
        hits, last = turn.hits, turn.last
        h = turn.span()
        system = self.problem.system
        at = at._replace(q=system.retract(at.q, at.shift * at.v))
        equations = self._equations(at, at.t + h, ~last)
        contacts, v_free = equations.contacts, equations.v_free
        late = at.shift * (v_free - at.v) / h
        at = at._replace(v=jnp.where(hits, at.v + late, at.v))
        before = contacts.velocities(at.v)
        # Between impacts two kinds of contacts act. Resting ones do; a step leaves a curved path by
        # O(h^2), which the bias corrects. Touching ones do if they neither open nor strike.
        resting = contacts.of_kept(at.resting)
        bend = (contacts.velocities(v_free)[:, 0] - before[:, 0]) / h
        touching, flying, striking = touch(contacts.gap, before[:, 0], bend)
        striking = striking & ~resting
        closed = resting | (touching & (hits | ~(flying | striking)))
        if contacts.dry:
            closed = closed | contacts.is_dry
        # Contacts that begin to press without a strike: a gap between them, which rounding makes
        # or which only derivatives see, is closed by a displacement, as an overlap is.
        meeting = closed & touching & ~(resting | striking | last)
        lifted = jnp.where(hits | meeting, 0.0, lift(contacts.gap) / h)
        bias = jnp.where(closed, lifted, 1.0)
        flow = bouncing(contacts, bias, before[:, 0], touching & ~resting & hits)
        step = normal_law(contacts, before[:, 0], contacts.velocities(v_free)[:, 0], h)
        normal = tree_where(last, step, flow)
        v_free = jnp.where(hits, at.v, jnp.where(last, v_free + late, v_free))
        reactions = jnp.where(hits, 0.0, equations.multipliers)
        J = contacts.J
        equations = equations._replace(
            contacts=contacts.where(closed | last), v_free=v_free, multipliers=reactions
        )
        whole = hits | last  # the new velocities hold at once, or throughout
        has_rows, operator = equations.rows > 0, equations.operator

        def moved(solved):
            v = v_free + solved.change
            a = jnp.where(whole, 0.0, (v - at.v) / h)
            path = Path(
                self.problem.equations,
                at.t,
                at.q,
                jnp.where(whole, v, at.v) + at.shift * a,
                a,
                operator if has_rows else None,
            )
            awaited = ~(closed | whole) & turn.looks
            flight = jnp.where(hits, 0.0, turn.rest)
            flown = to_first_impact(path, equations.rows, contacts, awaited, striking, flight)
            s = flown.after
            share = jnp.where(whole, 1.0, s / h)
            v = path.velocity(s)
            reactions = share * (equations.multipliers + solved.multipliers)
            if has_rows:
                # Half of the rows' impulse acts at the start. What bends the path replaces the
                # other half.
                short = _short(s) * turn.duration
                over = jnp.where(whole | (s < short), 0.0, 1 / jnp.maximum(s, short))
                held = jnp.where(whole, 1.0, 0.5)
                between = jax.tree.map(lambda x, y: over * (x - y), flown.back, flown.before)
                free = operator.free(operator.reaction(reactions))
                v = v - (1 - held) * free + between.displacement
                reactions = held * reactions + between.impulses
            shift = self._shift(equations, J, flown.together)
            shift = jnp.where(turn.goes_on, shift, 0.0)
            move = path.displacement(s) + flown.back.displacement
            ahead = contacts.gap + contacts.J.rows(move)[:, 0] + s * contacts.drift[:, 0]
            meets = meeting & solved.pressed
            ahead = jnp.where((closed | last) & (~hits | jnp.any(meets)), ahead, 1.0)
            ahead = jnp.where(meets, as_overlap(ahead), ahead)
            told = (flown.hit, s, shift, _Move(move, v, reactions, share * solved.impulses))
            return told, ahead

        guess = jnp.where(hits, 0.0, force * h)
        acts = jnp.where(hits, 0.0, h)
        dry = self._dry(contacts, at, acts)
        solved, told, back = self._solve(
            equations, v_free, normal, before, guess, guess, moved, turn.duration, dry
        )
        hit, s, shift, move = told
        move = move._replace(displacement=move.displacement + turn.duration * back.change)
        end = self._advanced(at, at.t + s, equations, move, solved, back)
        if has_rows:
            end = self._onto_rows(end)
        # A step that ran out of impacts leaves gaps of O(h^2) behind. What pressed and does not
        # bounce rests from there. Otherwise each gap would be an impact of the next step, which
        # would run out of them again.
        e = jnp.where(last, contacts.law.restitution, normal.restitution)
        rests = (closed | last) & solved.pressed & (e == 0)
        shift = jnp.where(hits, -at.shift, shift)
        result = end.result
        if self.problem.enforcement.impacts.strict:
            within = RESULTS.where(last, RESULTS.impacts_unlocated, RESULTS.successful)
            result = first_failure(result, within)
        end = end._replace(
            resting=contacts.of_all(rests), shift=shift, ran_out=at.ran_out | last, result=result
        )
        return end, hit, ~(hits | hit)

    def _shift(
        self, equations: _Equations, J: AbstractContactJacobian, together: Together
    ) -> Velocity:
        """Return for each velocity the time by which the impact of its bodies is later than the
        first one: the mean of the times of the contacts whose normal impulses change it."""
        contacts, operator = equations.contacts, equations.operator
        normal = jnp.arange(contacts.drift.shape[1]) == 0

        def force(x):
            rest = jnp.zeros(equations.rows, x.dtype)
            return J.reaction(jnp.where(normal, x[:, None], 0.0)), rest

        def of_each():
            struck = together.struck.astype(together.later.dtype)
            (change, _), (later, _) = operator.solve_fixed_each(
                force(struck), force(together.later)
            )
            change = jax.lax.stop_gradient(change)
            moved = jnp.abs(change) > 1e-9 * jnp.max(jnp.abs(change))
            return jnp.where(moved, later / jnp.where(moved, change, 1.0), 0.0)

        several = any_of_batch(jnp.sum(together.struck) > 1)
        return jax.lax.cond(several, of_each, lambda: jnp.zeros_like(equations.v_free))

    def _onto_rows(self, at: _Phase) -> _Phase:
        """Project the velocities on those that the equality rows allow."""
        of = self.problem.equations
        here = point_at(of, at.t, at.q, at.v, jnp.zeros_like(at.v), of.mass(at.q))
        operator = here.operator(self.problem.enforcement.solver)
        change, impulses = operator.correct(-here.rows.velocity, at.v)
        result = first_failure(at.result, operator.result())
        return at._replace(v=at.v + change, multipliers=at.multipliers + impulses, result=result)

    def _watched(self, contacts: ContactRows) -> Bool[Array, " all"]:
        """Return the contacts that are solved for or do not exist here. A contact that appears
        where bodies touch is no sign of a small budget."""
        kept = contacts.of_all(jnp.ones_like(contacts.gap, bool))
        if contacts.of_everything is None:
            return kept
        return kept | (contacts.of_everything >= ABSENT / 2)

    def _advanced(
        self,
        at: _Phase,
        t: RealScalarLike,
        equations: _Equations,
        move: _Move,
        solved: Resolved,
        back: Resolved,
    ) -> _Phase:
        """Return the phase at t after a move, with the verdicts on impulses and corrected
        overlap."""
        left = back.residual
        taken = RESULTS.where(left <= _LEFT, RESULTS.successful, RESULTS.contact_unsolved)
        system, contacts = self.problem.system, equations.contacts
        displacement = move.displacement
        if equations.displacement is not None:
            displacement = displacement + equations.displacement
        q = system.retract(at.q, displacement)
        return _Phase(
            t,
            q,
            system.carried(at.q, q, move.v),
            at.multipliers + move.multipliers,
            at.impulses + contacts.of_all(move.impulses),
            jnp.maximum(at.residual, jnp.maximum(solved.residual, left)),
            self._watched(contacts),
            at.resting,
            any_overlap(at.q.dtype),
            at.shift,
            at.ran_out,
            equations.memory,
            first_failure(equations.result, solved.result, taken),
            contacts.of_all(solved.expected),
            contacts.pairs,
        )


def load_of_pieces(system: AbstractSystem, at: _Phase) -> Float[Array, " pieces"]:
    """Return the sum of the normal impulses on each piece of contacts without a fixed place."""
    assert at.pairs is not None
    pieces, count = pieces_of(system, at.pairs)
    normal = jnp.repeat(at.impulses[:, :1], 2, axis=0)
    return sums_at(normal, pieces.ravel(), count + 1)[:count, 0]


def _short(h: Array) -> float:
    """The share of a step h below which a path bends only by rounding."""
    return float(jnp.finfo(h.dtype).eps) ** (1 / 3)


def locates(problem: SimulationProblem) -> bool:
    """Whether impacts are located within steps."""
    return isinstance(problem.enforcement.impacts, Located)


def any_overlap(dtype: DType) -> Float[Array, ""]:
    """Return more than any overlap, but finite: the state of a good step is."""
    return jnp.asarray(jnp.finfo(dtype).max, dtype)


def overlapping(contacts: ContactRows, allowed: Float[Array, ""]) -> RESULTS:
    """Return whether no rigid contact overlaps by more than is allowed."""
    apart = jnp.all((contacts.gap >= -allowed) | is_compliant(contacts))
    return RESULTS.where(apart, RESULTS.successful, RESULTS.overlapping_start)


def missed(
    contacts: ContactRows, watched: Bool[Array, " all"], known: Known | None = None
) -> RESULTS:
    """Return whether contacts overlap that were not `watched` in the step before, or, without fixed
    places, not among the `known`."""
    if contacts.pairs is not None and contacts.lost is not None and known is not None:
        left_out = contacts.lost | contacts.overlaps_unlike(known)
    elif contacts.of_everything is None:
        return RESULTS.successful
    else:
        left_out = jnp.any((contacts.of_everything < -OVERFLOW) & ~watched)
    return RESULTS.where(left_out, RESULTS.contact_overflow, RESULTS.successful)

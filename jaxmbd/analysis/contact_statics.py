"""Equilibria with contacts."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._compiler import without_tangents
from .._contact import ContactRows, Groups, Pairs, contact_rows
from .._coordinates import length
from .._equations import among
from .._linalg import ConstraintOperator, dense
from .._methods import (
    ContactImpulse,
    ContactProblems,
    Given,
    coefficients,
    contact_groups,
    is_compliant,
)
from .._results import RESULTS
from .._roots import implicit
from .._search import redundancy
from .._types import Coordinates, Rows, Velocity
from .statics import AbstractStatics, AtRest, Forces, Here

# The largest h, in units of the squared time constant of the stiffest direction.
_LONGEST = 1e8

# Friction above this share of its bound counts as being at the limit, and normal forces below this
# share of the largest one as none.
_LIMIT, _NONE = 1 - 1e-6, 1e-10


class Acting(NamedTuple):
    """Which components of the contact forces act as rows: `closed` contacts in the normal
    direction, and friction that `sticks`. The `slip` of friction at its limit gives the direction
    of the friction force, a unit vector; it is zero for friction that sticks."""

    closed: Bool[Array, " contacts"]
    sticks: Bool[Array, "contacts k"]
    slip: Float[Array, "contacts k"]


# q, multipliers, contact forces, and the pairs to which these belong if they have no fixed places.
_Place = tuple[Coordinates, Rows, Forces, Pairs | None]


class ContactStatics(AbstractStatics[_Place]):
    """The static problem with contacts, at coordinates, multipliers and contact forces. Contacts
    without a fixed place are listed anew at each place, and keep theirs in the step from there.

    In a step, displacements take the place of velocities, and forces that of impulses, so it is a
    contact problem like that of a time step."""

    law: ContactImpulse

    def contacts(self, q: Coordinates, rest: Velocity) -> ContactRows:
        return contact_rows(self.system, self.t, q, rest)

    def acting(self, contacts: ContactRows, force: Forces) -> Acting:
        """Which rows the contact forces, of the kept contacts, belong to."""
        normal = force[:, 0]
        closed = normal > _NONE * jnp.max(normal, initial=0.0)
        mu = coefficients(contacts, jnp.zeros_like(force))
        sticks, slip = [], []
        for i, t in enumerate(_split(contact_groups(self.law.friction, contacts), force)):
            size = jnp.linalg.norm(t, axis=1)
            moves = size >= _LIMIT * mu[:, i] * normal
            held = jnp.broadcast_to((closed & ~moves)[:, None], t.shape)
            unit = t / jnp.where(size > 0, size, 1.0)[:, None]
            sticks.append(held)
            slip.append(jnp.where((closed & moves)[:, None], unit, 0.0))
        none = jnp.zeros((normal.shape[0], 0), force.dtype)
        return Acting(
            closed,
            jnp.concatenate([none.astype(bool), *sticks], axis=1),
            jnp.concatenate([none, *slip], axis=1),
        )

    def start(self, q, rest):
        rows = eqx.filter_eval_shape(self.point, q, rest).rows.velocity.shape
        contacts = eqx.filter_eval_shape(self.contacts, q, rest)
        pairs = None if contacts.pairs is None else self.contacts(q, rest).pairs
        force = (contacts.total, contacts.drift.shape[1])
        return q, jnp.zeros(rows, q.dtype), jnp.zeros(force, q.dtype), pairs

    def among(self, pairs: Pairs | None) -> "ContactStatics":
        """The problem with contacts of these pairs."""
        return eqx.tree_at(lambda own: own.system, self, among(self.system, pairs))

    def look(self, place, rest, before):
        q, lam, force, pairs = place
        if pairs is None:
            return self._look(place, rest, before)
        contacts = self.contacts(q, rest)
        known = contacts.known(pairs)
        assert known is not None
        here = q, lam, contacts.carried(force, known), contacts.pairs
        found, step = self.among(contacts.pairs)._look(here, rest, before, contacts.reach)
        # Pieces came from beyond the list: a shorter step will see them.
        unseen = contacts.overlaps_unlike(known)
        return found._replace(left=jnp.where(unseen, jnp.inf, found.left)), step

    def _look(self, place, rest, before, reach=None):
        q, lam, force, pairs = place

        def unbalanced(p):
            here = self.system.retract(q, p)
            at, contacts = self.point(here, rest), self.contacts(here, rest)
            J = dense(at.rows.J)
            F = at.f + lam @ J + contacts.J.reaction(contacts.of_kept(force))
            return F, (dense(at.M), at.f, J, at.rows.position(at.rows.phi), at.tilt, contacts)

        # The unbalanced force F, the slope K = -dF/dp, and the equations.
        one = jnp.eye(rest.shape[0], dtype=rest.dtype)
        along = lambda dp: jax.jvp(unbalanced, (rest,), (dp,), has_aux=True)  # noqa: E731
        F, slope, others = jax.vmap(along, in_axes=1, out_axes=(None, 1, None))(one)
        K, (M, f, J, phi, tilt, contacts) = -slope, others
        kept = contacts.of_kept(force)
        L = jnp.linalg.cholesky(M)
        terms = jnp.stack([F, f, lam @ J, contacts.J.reaction(kept)], axis=1)
        terms = jnp.abs(jax.scipy.linalg.cho_solve((L, True), jnp.hstack([terms, K])))
        left, acting = jnp.max(terms[:, 0], initial=0.0), jnp.max(terms[:, 1:], initial=0.0)
        flexibility = _flexibility(contacts)
        pressed = kept[:, 0] > 0
        depth = contacts.gap + flexibility * kept[:, 0]
        depth = jnp.where(pressed, jnp.abs(depth), jnp.maximum(-depth, 0.0))
        missed = jnp.maximum(jnp.max(jnp.abs(phi), initial=0.0), jnp.max(depth, initial=0.0))
        missed = missed / jnp.maximum(1.0, jnp.max(jnp.abs(q), initial=0.0))

        # In the variables L^T p the mass is 1. P projects on what rows and acting contacts admit.
        whitened = jax.scipy.linalg.solve_triangular(L, (K + K.T) / 2, lower=True)
        K = jax.scipy.linalg.solve_triangular(L, whitened.T, lower=True)
        acts = self.acting(contacts, kept)
        held = jnp.concatenate([acts.closed[:, None], acts.sticks], axis=1)
        B = jnp.concatenate([J, contacts.J.matrix() * held.reshape(-1, 1).astype(q.dtype)])
        B = jax.scipy.linalg.solve_triangular(L, B.T, lower=True).T
        P = one - jnp.linalg.pinv(B, rtol=redundancy(q.dtype)) @ B
        size = jnp.linalg.norm(K)
        far = 1e3 * (1 + size)
        stiffness = jnp.linalg.eigvalsh(P @ K @ P + far * (one - P))
        stiffness = jnp.where(stiffness > far / 2, jnp.inf, stiffness)

        def step(h, share, short):
            del share, short  # all steps go downhill
            h = jnp.minimum(h, _LONGEST / (size + 1 / before))
            # Stiffness across the rows changes no displacement, and makes A positive definite where
            # the equilibrium is stable.
            values, V = jnp.linalg.eigh(one / h + K + (size + 1 / h) * (one - P))
            floor = jnp.finfo(q.dtype).eps ** 0.5 / h
            R = L @ V
            A = (R * jnp.maximum(jnp.abs(values), floor)[None]) @ R.T
            operator = ConstraintOperator(self.solver, A, J, tilt=tilt)
            dp, lam = operator.solve(f, -phi)
            # Surfaces that move pull along the direction of their motion, however slow it is.
            drift = (jnp.sqrt(h) * contacts.drift).at[:, 0].set(contacts.gap)
            mu = coefficients(contacts, jnp.zeros_like(kept))
            law, groups = self.law, contact_groups(self.law.friction, contacts)
            problems = ContactProblems(
                law.contact_solver, law.smoothing, operator, lam.shape[0], contacts.J, groups
            )
            b = contacts.J.rows(dp) + drift
            solved = problems.resolve(Given(b, mu, flexibility, kept, jnp.array(True)))
            dp = dp + solved.change
            ahead = (
                self.system.retract(q, dp),
                lam + solved.multipliers,
                contacts.of_all(solved.impulses),
                pairs,
            )
            good = solved.result == RESULTS.successful
            if reach is not None:
                good = good & (2 * jnp.max(jnp.abs(dp), initial=0.0) <= reach)
            return ahead, h, good

        return Here(left, missed, acting, stiffness, size, None), step

    def resting(self, place, rest):
        q, lam, force, pairs = place
        if pairs is None:
            return self._resting(place, rest)

        def listed():
            contacts = self.contacts(q, rest)
            return contacts.carried(force, contacts.known(pairs)), contacts.pairs, contacts.lost

        force, pairs, full = without_tangents(listed)
        found = self.among(pairs)._resting((q, lam, force, pairs), rest)
        return found._replace(pairs=pairs, full=full)

    def _resting(self, place, rest):
        # p = 0 is the root near q of the statics in which acting contacts are rows, and friction at
        # its limit is a force.
        q, lam, force, _ = place

        def fixed():
            contacts = self.contacts(q, rest)
            kept, J = contacts.of_kept(force), contacts.J.matrix()
            acting = self.acting(contacts, kept)
            return contacts, kept, acting, J.reshape(*kept.shape, -1)[:, 1:]

        contacts, kept, acting, Jt = without_tangents(fixed)
        groups = contact_groups(self.law.friction, contacts)
        closed, sticks = acting.closed, acting.sticks.astype(q.dtype)

        def parts(p, normal):
            here = self.system.retract(q, p)
            at, contacts = self.point(here, rest), self.contacts(here, rest)
            J = dense(at.rows.J)
            Jc = contacts.J.matrix().reshape(*kept.shape, -1)
            soft = is_compliant(contacts)
            rigid = (closed & ~soft).astype(q.dtype)
            flexibility = jnp.where(soft, _flexibility(contacts), 1.0)
            sprung = jnp.where(closed & soft, -contacts.gap / flexibility, 0.0)
            mu = coefficients(contacts, jnp.zeros_like(kept))
            spread = jnp.concatenate([mu[:, :0], *_spread(groups, mu)], axis=1)
            friction = acting.slip * spread * normal[:, None]
            f = at.f + sprung @ Jc[:, 0] + jnp.einsum("ck,ckn->n", friction, Jc[:, 1:])
            rows = [J, rigid[:, None] * Jc[:, 0]]
            rows += [(sticks[..., None] * Jc[:, 1:]).reshape(-1, p.shape[0])]
            rows = jnp.concatenate(rows)
            stuck = sticks * jnp.einsum("ckn,n->ck", Jt, p)
            phi = [at.rows.position(at.rows.phi), rigid * contacts.gap, stuck.ravel()]
            phi = jnp.concatenate(phi)
            operator = ConstraintOperator(self.solver, dense(at.M), rows, tilt=at.tilt)
            a, found = operator.solve(f, jnp.zeros_like(phi))
            back, _ = operator.correct(-phi, p)
            count, contact = J.shape[0], closed.shape[0]
            reaction = found[count : count + contact] * rigid + sprung
            held = found[count + contact :].reshape(sticks.shape) * sticks
            loads = jnp.concatenate([reaction[:, None], held + friction], axis=1)
            return a + back, reaction, found[:count], loads, contacts.gap, mu

        def rates(x):
            p, normal = x[: rest.shape[0]], x[rest.shape[0] :]
            rate, reaction, *_ = parts(p, normal)
            return jnp.concatenate([rate, normal - reaction])

        x = implicit(rates, jnp.concatenate([rest, kept[:, 0]]))
        p, normal = x[: rest.shape[0]], x[rest.shape[0] :]
        _, _, multipliers, loads, gap, mu = parts(p, normal)
        # The values come from the search, which stays within the cones; where contacts are
        # redundant, the derivatives belong to the reactions of least norm.
        follow = lambda value, x: value + (x - jax.lax.stop_gradient(x))  # noqa: E731
        force = follow(kept, loads)
        shares = [jnp.zeros(closed.shape, q.dtype)]
        for i, t in enumerate(_split(groups, force)):
            bound = mu[:, i] * force[:, 0]
            some = closed & (bound > 0)
            shares.append(jnp.where(some, length(t) / jnp.where(some, bound, 1.0), 0.0))
        # Contacts beyond the budget are open.
        gaps = gap if contacts.of_everything is None else contacts.of_everything
        share = contacts.of_all(jnp.max(jnp.stack(shares), axis=0))
        q, lam = self.system.retract(q, p), follow(lam, multipliers)
        return AtRest(q, lam, contacts.of_all(force), gaps, share)


def _flexibility(contacts: ContactRows) -> Float[Array, " contacts"]:
    """1 / stiffness [m/N], 0 for rigid contacts."""
    stiffness = contacts.law.stiffness
    if stiffness is None:
        return jnp.zeros_like(contacts.gap)
    return jnp.broadcast_to(1 / stiffness, contacts.gap.shape).astype(contacts.gap.dtype)


def _split(groups: Groups, force: Forces) -> list[Float[Array, "contacts k"]]:
    """The components of each group of friction."""
    return [
        force[:, start : start + size]
        for start, size in zip(groups.starts, groups.sizes, strict=True)
    ]


def _spread(
    groups: Groups, mu: Float[Array, "contacts groups"]
) -> list[Float[Array, "contacts k"]]:
    """The coefficient of each group for each of its components."""
    return [
        jnp.broadcast_to(mu[:, i : i + 1], (mu.shape[0], size))
        for i, size in enumerate(groups.sizes)
    ]

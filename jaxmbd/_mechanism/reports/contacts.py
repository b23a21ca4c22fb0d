"""Forces of contacts between shapes, and whether the contacts stick or slip."""

import enum
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..._compiler import as_one_program, sums_at
from ..._coordinates import cross, length
from ..._inputs import checked
from ..._printed import counted, largest, printed
from ..._simulate import Solution
from ..._system import AbstractStates
from ..._types import FetchedArray
from ..batching import batched
from ..mechanism import Mechanism
from .violation import points_of

# Share of kinetic friction below which a contact that moves at the end of a step rolls or tilts.
# Sliding reaches 1 with a cone, and 0.71 with the coarsest pyramid.
_SLIDING = 0.7


class ContactState(enum.IntEnum):
    """State of a contact point: `OPEN` 0 without force, `STICK` 1, `SLIP` 2."""

    OPEN = 0
    STICK = 1
    SLIP = 2


@printed
class ContactStates(NamedTuple):
    """Contact points between shapes along a motion, in the order of `Mechanism.contact_names`.

    **Fields:**

    - `state`: members of `ContactState`.
    - `speed`: tangential velocity of b relative to a there, also without contact [m/s].
    - `share`: |f_t| / (mu f_n) with the static coefficient mu of the contact's law. It is at most 1
      with a friction cone, less while sliding with a lower kinetic coefficient, and 0 without
      normal force or friction.
    """

    state: Int[Array, "*batch times points"]
    speed: Float[Array, "*batch times points"]
    share: Float[Array, "*batch times points"]

    def __str__(self) -> str:
        state = np.asarray(self.state)
        rows = [f"{counted(state.shape[-1], 'contact point')} at {state[..., 0].size} times"]
        for kind in ContactState:
            share = np.mean(state == kind) if state.size else 0.0
            rows.append(f"  {kind.name}: {share:.1%}")
        used = largest(self.share)
        return "\n".join([*rows, f"at most {used:.0%} of the friction is used"])


@checked
def contact_forces(
    mechanism: Mechanism,
    state: AbstractStates,
    force: Float[Array, "*batch contacts d"] | None = None,
    pairs: Int[Array, "*batch contacts 3"] | None = None,
) -> Float[Array, "*batch points 3"]:
    """Forces on body b at the contact points between shapes, in world axes. Body a gets the
    opposite forces.

        f = mbd.reports.contact_forces(mechanism, sol)    # (times, points, 3)

    The directions are those of the contact points at the given times, but the forces of a solution
    are means over the step before. The two differ by the motion of one step.

    **Arguments:** `state`: a `State` or a `Solution`, with any leading axes. `force`: the contact
    forces there [N], by default `Solution.contact_force`. `pairs`: those to which they belong with
    `NearContacts`, by default `Solution.contact_pairs`.

    **Returns:** forces [N], in the order of `Mechanism.contact_points`, or with `NearContacts` in
    the order of `Solution.contact_pairs`. Moments are left out, and so are gaps and joint limits.
    Differentiable.

    **Raises:** `ValueError` for forces of a wrong number of contacts or components, and for a state
    of a mechanism with `NearContacts` that is no `Solution`, without `pairs`.
    """
    force = contact_force_of(state) if force is None else force
    expected = (len(mechanism.contact_names), mechanism.contact_set.layout.d)
    if force.shape[-2:] != expected:
        raise ValueError(
            f"Argument `force` must have shape (..., {expected[0]}, {expected[1]}) for the "
            f"contacts of this mechanism, but has {force.shape}. Give `Solution.contact_force`."
        )
    pairs = pairs_of(mechanism, state) if pairs is None else pairs
    return _forces(mechanism, points_of(mechanism, state)[1], force, pairs)


@checked
def piece_forces(mechanism: Mechanism, state: AbstractStates) -> Float[Array, "*batch pieces 3"]:
    """Forces on the pieces of `NearContacts`, in world axes: the resultant of all contact points of
    each piece, friction included. On a wall it is what the wall carries.

        f = mbd.reports.piece_forces(mechanism, sol)    # (times, pieces, 3)

    Forces are those of `contact_forces`, means over the step before a saved time.
    `Solution.piece_loads` has normal forces over all steps.

    **Arguments:** `state`: a `Solution` of a mechanism with `NearContacts`, or a batch of them.

    **Returns:** forces [N], with the pieces in the order of `NearContacts.body_names`, those of one
    element after those of another. Differentiable.

    **Raises:** `ValueError` without `NearContacts` or contact forces."""
    if not mechanism.contact_set.near:
        raise ValueError(
            "Argument `mechanism` of piece_forces must have `NearContacts`, but has none: "
            "`contact_forces` has the forces of contacts with fixed places."
        )
    force, pairs = contact_forces(mechanism, state), pairs_of(mechanism, state)
    return _on_pieces(mechanism, force, pairs)


def pairs_of(mechanism: Mechanism, state: AbstractStates) -> Int[Array, "*batch contacts 3"] | None:
    """The pairs to which the contacts of a solution belong; `None` if all have fixed places.

    **Raises:** `ValueError` if they are not known."""
    pairs = getattr(state, "contact_pairs", None)
    if pairs is None:
        pairs = getattr(getattr(state, "report", None), "contact_pairs", None)
    if pairs is None and mechanism.contact_set.near:
        names = [near.contacts.name for near in mechanism.contact_set.near]
        raise ValueError(
            f"The forces of the `NearContacts` {names} have no fixed places: give the `Solution`, "
            "whose `contact_pairs` tell to which pairs they belong, or these pairs."
        )
    return pairs


def over_intervals(sol: Solution) -> Solution:
    """Return the solution with the means since the previous saved time as contact forces, if it has
    them. Then no impact between saved times is lost."""
    if sol.contact_loads is None or sol.contact_force is None:
        return sol
    return eqx.tree_at(lambda sol: sol.contact_force, sol, sol.contact_loads.mean)


@checked
def contact_states(mechanism: Mechanism, sol: Solution, *, rest: float = 1e-4) -> ContactStates:
    """Which contact points between shapes are open, stick or slip, how fast they slip, and what
    share of the available friction they use.

    A point is open if its normal force is 0, or negligible beside the largest one. It slips if it
    moves along the surface with friction near its bound. Otherwise it sticks. Forces are means over
    the step before a saved time, but speeds belong to that time, so the state at a change may be
    either. `Solution.contact_loads` tells what happened between saved times.

    **Arguments:** `sol`: a solution of `ContactImpulse`, or a batch of them. `rest`: slip speeds up
    to this one count as 0 [m/s].

    **Returns:** `ContactStates`.

    **Raises:** `ValueError` for solutions without states or without contact forces.
    """
    _, q, v = points_of(mechanism, sol)
    force = contact_force_of(sol)
    return _states(mechanism, q, v, force, pairs_of(mechanism, sol), rest)


def contact_force_of(state: AbstractStates) -> Float[FetchedArray, "*batch contacts d"]:
    """The contact forces of a solution. **Raises:** `ValueError` without any."""
    force = getattr(state, "contact_force", None)
    if force is None:
        raise ValueError(
            "The solution has no contact forces: they come from `simulate` with `ContactImpulse`."
        )
    return force


def no_force(dtype: jnp.dtype) -> float:
    """Share of the largest force of a motion below which one counts as 0. Solvers leave less."""
    return float(jnp.finfo(dtype).eps) ** 0.4


@as_one_program
def _states(mechanism, q, v, contact_force, pairs, rest) -> ContactStates:
    tangents = mechanism.contact_set.layout.sliding
    speed, mu, kinetic = _slips(mechanism, q, v, pairs)
    force = contact_force[..., : speed.shape[-1], :]
    normal = jnp.maximum(force[..., 0], 0.0)
    friction = length(force[..., 1 : 1 + tangents])
    bound = mu * normal
    share = jnp.where(bound > 0, friction / jnp.where(bound > 0, bound, 1.0), 0.0)
    gaps = contact_force.shape[-2] - mechanism.contact_set.dry_count
    largest = jnp.max(contact_force[..., :gaps, 0], axis=(-2, -1), keepdims=True, initial=0.0)
    slips = (speed > rest) & (friction >= _SLIDING * kinetic * normal)
    state = jnp.where(slips, ContactState.SLIP, ContactState.STICK)
    state = jnp.where(normal > no_force(normal.dtype) * largest, state, ContactState.OPEN)
    return ContactStates(state, speed, share)


@eqx.filter_jit
def _forces(mechanism, q, force, pairs):
    components = 1 + mechanism.contact_set.layout.sliding

    def one(q, force, *pairs):
        normal = mechanism.contact_set.points(q, *pairs).normal
        axes = mechanism.contact_set.axes(normal)[:, :components]
        return jnp.einsum("pk,pki->pi", force[: axes.shape[0], :components], axes)

    known = () if pairs is None else ((pairs, 2),)
    return batched(one, (q, 1), (force, 2), *known)


@eqx.filter_jit
def _on_pieces(mechanism, force, pairs):
    def one(force, pairs):
        pieces, count = mechanism.contact_set.pieces_of(pairs)
        # Gaps and dry friction, the last contacts, are between no pieces.
        pieces = pieces[: force.shape[0]]
        both = jnp.stack([-force, force], axis=1).reshape(-1, 3)
        return sums_at(both, pieces.ravel(), count + 1)[:count]

    return batched(one, (force, 2), (pairs, 2))


def _slips(mechanism, q, v, pairs):
    """Slip speeds of all points, whatever the budget, and their coefficients of friction."""
    contact_set = mechanism.contact_set
    kinds = [(contacts, contacts[0].count) for contacts in contact_set.between_shapes]

    def coefficients(contacts, k):
        def of_contact(contact):
            law = contact.law.dense
            return jnp.stack([jnp.broadcast_to(x, (k,)) for x in (law.friction, law.kinetic)])

        return jnp.swapaxes(contacts.map(of_contact), 1, 2).reshape(2, -1).astype(q.dtype)

    def of_all(law, k):
        law = law.dense
        both = (law.friction, law.kinetic)
        return jnp.stack([jnp.broadcast_to(x.reshape(-1), (k,)) for x in both]).astype(q.dtype)

    def speed(q, v, *pairs):
        points = contact_set.points(q, *pairs)
        a, b = contact_set.bodies_of_points
        if pairs:
            a, b = contact_set.bodies_of_pairs(*pairs)
        x = mechanism.tables.twists_with_ground(v)
        position = mechanism.tables.poses_with_ground(q)[:3]

        def at(body):
            arm = points.position.T - position[:, body]
            return x[:3, body] + jax.vmap(cross, 1, 1)(x[3:, body], arm)

        velocity = (at(b) - at(a)).T
        along = jnp.sum(velocity * points.normal, axis=1, keepdims=True)
        return length(velocity - along * points.normal)

    none = jnp.zeros((2, 0), q.dtype)
    found = [coefficients(c, k) for c, k in kinds]
    found += [of_all(near.contacts.law, near.room) for near in contact_set.near]
    mu, kinetic = jnp.concatenate([none, *found], axis=1)
    known = () if pairs is None else ((pairs, 2),)
    return batched(speed, (q, 1), (v, 1), *known), *(
        jnp.broadcast_to(x, (*q.shape[:-1], x.size)) for x in (mu, kinetic)
    )

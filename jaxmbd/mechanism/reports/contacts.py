"""What contacts between shapes transmit, and whether they stick or slip."""

import enum
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..._coordinates import cross, length
from ..._inputs import checked
from ..._simulation import Solution
from ..batching import batched
from ..contact_rows import basis
from ..mechanism import Mechanism

# Of kinetic friction: below that a contact that moves at the end of a step does so because it
# rolls or tilts. Sliding reaches 1 with a cone, and 0.71 with the coarsest pyramid.
_SLIDING = 0.7


class ContactState(enum.IntEnum):
    """What a contact point does: `OPEN` 0 without force, `STICK` 1, `SLIP` 2."""

    OPEN = 0
    STICK = 1
    SLIP = 2


class ContactStates(NamedTuple):
    """Contact points between shapes over a motion, in the order of `Mechanism.contact_names`.

    **Fields:**

    - `state`: members of `ContactState`.
    - `speed`: tangential velocity of b against a there, also without contact [m/s].
    - `share`: |f_t| / (mu f_n) with the static coefficient mu of the contact's law: at most 1 with
      a friction cone, and less while sliding with a lower kinetic one; 0 without normal force or
      friction.
    """

    state: Int[Array, "*batch times points"]
    speed: Float[Array, "*batch times points"]
    share: Float[Array, "*batch times points"]


@checked
def contact_forces(
    mechanism: Mechanism, q: Float[Array, "*batch nq"], force: Float[Array, "*batch contacts d"]
) -> Float[Array, "*batch points 3"]:
    """Forces in the world that act on body b at the contact points between shapes; the opposite
    ones act on a.

        f = mbd.reports.contact_forces(mechanism, sol.q, sol.contact_force)    # (times, points, 3)

    The directions are those of the contact points at q, while the forces of a solution are means
    over the step before: between both lies the motion of one step.

    **Arguments:** `q`: coordinates, and `force`: `Solution.contact_force` there [N], with any
    leading axes.

    **Returns:** forces [N], in the order of `Mechanism.contact_points`: those of gaps and joint
    limits, and moments, are left out. Differentiable.

    **Raises:** `ValueError` for forces of another number of contacts or components.
    """
    expected = (len(mechanism.contact_names), mechanism.contact_set.layout.d)
    if force.shape[-2:] != expected:
        raise ValueError(
            f"Argument `force` must have shape (..., {expected[0]}, {expected[1]}) for the "
            f"contacts of this mechanism, but has {force.shape}. Give `Solution.contact_force`."
        )
    return _forces(mechanism, mechanism.checked_q(q), force)


def over_intervals(sol: Any) -> Any:
    """The solution with means since the saved time before as its contact forces, where it has
    them, so that no impact between saved times is lost."""
    if sol.contact_loads is None or sol.contact_force is None:
        return sol
    return eqx.tree_at(lambda sol: sol.contact_force, sol, sol.contact_loads.mean)


@checked
def contact_states(mechanism: Mechanism, sol: Solution, *, rest: float = 1e-4) -> ContactStates:
    """Which contact points between shapes are open, stick or slip, how fast they slip, and how much
    of the friction they may have they use.

    A point is open without normal force, or with one that is nothing beside the largest one; it
    slips if it moves along the surface and friction is near its bound; otherwise it sticks. Forces
    are means over the step before a saved time, speeds those at that time, so that the state at a
    change may be either. What happened between saved times is in `Solution.contact_loads`.

    **Arguments:** `sol`: a solution of `ContactImpulse`, or a batch of them. `rest`: slip speeds up
    to this one count as none [m/s].

    **Returns:** `ContactStates`.

    **Raises:** `ValueError` for solutions without states or without contact forces.
    """
    if sol.q is None or sol.v is None:
        raise ValueError("States were not saved: `SaveAt(fn=...)` chose other outputs.")
    if sol.contact_force is None:
        raise ValueError(
            "The solution has no contact forces: they come from `simulate` with `ContactImpulse`."
        )
    tangents = 2 * mechanism.contact_set.layout.tangents
    speed, mu, kinetic = _slips(mechanism, sol.q, sol.v)
    force = sol.contact_force[..., : speed.shape[-1], :]
    normal = jnp.maximum(force[..., 0], 0.0)
    friction = length(force[..., 1 : 1 + tangents])
    bound = mu * normal
    share = jnp.where(bound > 0, friction / jnp.where(bound > 0, bound, 1.0), 0.0)
    largest = jnp.max(sol.contact_force[..., 0], axis=(-2, -1), keepdims=True, initial=0.0)
    slips = (speed > rest) & (friction >= _SLIDING * kinetic * normal)
    state = jnp.where(slips, ContactState.SLIP, ContactState.STICK)
    state = jnp.where(normal > no_force(normal.dtype) * largest, state, ContactState.OPEN)
    return ContactStates(state, speed, share)


def no_force(dtype: Any) -> float:
    """Of the largest force of a motion: what is below counts as none. Solvers leave less."""
    return float(jnp.finfo(dtype).eps) ** 0.4


@eqx.filter_jit
def _forces(mechanism, q, force):
    components = 1 + 2 * mechanism.contact_set.layout.tangents

    def one(q, force):
        axes = basis(mechanism.contact_points(q).normal)[:, :components]
        return jnp.einsum("pk,pki->pi", force[: axes.shape[0], :components], axes)

    return batched(one, (q, 1), (force, 2))


@eqx.filter_jit
def _slips(mechanism, q, v):
    """Slip speeds of all points, whatever the budget, and their coefficients."""
    kinds = [(contacts, contacts[0].count) for contacts in mechanism.contact_set.between_shapes]
    a, b = mechanism.contact_set.bodies_of_points

    def coefficients(contacts, k):
        def of_contact(contact):
            law = contact.law.dense
            return jnp.stack([jnp.broadcast_to(x, (k,)) for x in (law.friction, law.kinetic)])

        return jnp.swapaxes(contacts.map(of_contact), 1, 2).reshape(2, -1).astype(q.dtype)

    def speed(q, v):
        points = mechanism.contact_points(q)
        x, position = mechanism.tables.with_ground(v), mechanism.tables.with_ground(q)[:3]

        def at(body):
            arm = points.position.T - position[:, body]
            return x[:3, body] + jax.vmap(cross, 1, 1)(x[3:, body], arm)

        velocity = (at(b) - at(a)).T
        along = jnp.sum(velocity * points.normal, axis=1, keepdims=True)
        return length(velocity - along * points.normal)

    none = jnp.zeros((2, 0), q.dtype)
    mu, kinetic = jnp.concatenate([none, *(coefficients(c, k) for c, k in kinds)], axis=1)
    return batched(speed, (q, 1), (v, 1)), *(
        jnp.broadcast_to(x, (*q.shape[:-1], x.size)) for x in (mu, kinetic)
    )

"""Whether a contact acts on a motion that was computed without contacts."""

import jax
import jax.numpy as jnp

from .._checks import contact_counts
from .._compiler import stop_gradient
from .._contact import contact_rows
from .._methods import is_compliant
from .._results import RESULTS
from .._system import AbstractSystem
from .._types import Coordinates, RealScalarLike, Velocity

# The gap [m] up to which contacts touch, and rates [m/s] and accelerations [m/s^2] of gaps below
# which these are rounding, or what a contact solver leaves; in double and in single precision.
_SMALL = 1e-6, 1e-4


def contact_verdict(
    system: AbstractSystem, t: RealScalarLike, q: Coordinates, v: Velocity, dv: Velocity
) -> RESULTS:
    """`RESULTS.contact_acts` if a contact that touches strikes, or would be entered with the
    accelerations dv, which are those without contacts; also if a compliant contact is compressed.
    Contacts that touch and open do not act, and neither do those that nothing presses."""
    if not contact_counts(system, q, v)[0]:
        return RESULTS.where(jnp.array(True), RESULTS.successful, RESULTS.contact_acts)
    system, t, q, v, dv = stop_gradient((system, jnp.asarray(t, q.dtype), q, v, dv))

    def rates(t, q, v):
        return contact_rows(system, t, q, v).velocities(v)[:, 0]

    moving = jnp.ones_like(t), system.qdot(q, v), dv
    rate, bend = jax.jvp(rates, (t, q, v), moving)
    small = _SMALL[0] if q.dtype == jnp.float64 else _SMALL[1]
    presses = (rate < -small) | ((rate <= small) & (bend < -small))
    contacts = contact_rows(system, t, q, v)
    soft = is_compliant(contacts)
    touches = contacts.gap <= jnp.where(soft, 0.0, small)
    acts = (touches & presses) | (soft & (contacts.gap < -small))
    return RESULTS.where(jnp.any(acts), RESULTS.contact_acts, RESULTS.successful)

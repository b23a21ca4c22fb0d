"""Velocity-level stepping with contacts: a free step, then all impulses of equality rows and
contacts."""

from typing import Annotated, ClassVar

import diffrax
import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._contact import (
    AbstractContactSolver,
    AbstractFriction,
    AbstractImpactLaw,
    AtStepStart,
    Cone,
    InteriorPoint,
    Located,
    Newton,
    Pyramid,
    contact_rows,
)
from ..._equations import pieces_of
from ..._inputs import checked, not_negative
from ..._linalg import AbstractConstraintSolver, Automatic
from ..base import AbstractEnforcement
from ..split import along
from ..stabilisation import AbstractStabilisation, PassiveDeadBeat
from ..state import ContactMemory
from .step import ContactStep, any_overlap, locates, missed, overlapping


@checked
class ContactImpulse(AbstractEnforcement):
    """Time stepping with unilateral contacts, friction and impacts, for systems with a `gap` and
    mechanisms with `contacts`. Each step solves one problem for all impulses,

        M (v(n+1) - v*) = J^T Lam + J_c^T lam,    J v(n+1) = -Phi_t - s Phi/h,
        0 <= lam_n  perp  J_n v(n+1) + g_t + bias >= 0,
        lam_t within mu lam_n takes most power from J_t v(n+1),
        q(n+1) = q(n) (+) h N v(n+1),

    where v* is the velocity after a free step of the scheme. The bias of an open contact is g/h, so
    that the contact may close within the step but not penetrate. For a contact that closes with the
    approach velocity u(n) and has the restitution e it is e u(n) (Newton's law). For a contact that
    overlaps it is 0. Overlap is corrected by a displacement of least kinetic energy. Bodies
    keep their velocities along it, in their own axes, so that it adds no energy.

    Compliant contacts, with stiffness k and damping d, are springs in series with the rows:

        0 <= lam_n  perp  J_n v(n+1) + g_t + lam_n / (h^2 k + h d) + g / (h + d/k) >= 0

    Their force is -(k g + d g') at the end of the step (implicit). The limit k = inf is rigid
    contact.

    Equality rows are eliminated from the contact problem, so they hold as in `VelocityImpulse`,
    whatever the contacts do. The method is of first order. The returned `multipliers` and contact
    forces are means over a step.

    **Arguments:**

    - `contact_solver`: `InteriorPoint()` (default) or `ProjectedGaussSeidel()`.
    - `friction`: `Cone()` (default) or `Pyramid(directions)`, the same for all contacts.
    - `solver`, `stabilisation`: for the equality rows, as in `VelocityImpulse`.
    - `impact_law`: `Newton()` (default) or `Poisson()`. They differ where several contacts or
      friction act at once.
    - `impacts`: `AtStepStart()` (default), or `Located(n)`, with up to n impacts located in each
      step.
    - `smoothing`: velocity [m/s] by which the laws are smoothed, for `Cone` only; `None` (default)
      for none, which compiles less than 0 does. With s > 0 the normal impulse and velocity of a
      contact satisfy lam_n z_n = s^2 / S_nn instead of 0, and friction passes smoothly from one
      direction to the other. For optimisation, derivatives then exist also where a contact opens,
      closes, sticks or slips. The error is of order s.

    Reference: Stewart and Trinkle (1996); Anitescu and Potra (1997), Formulating dynamic
    multi-rigid-body contact problems with friction as solvable linear complementarity problems.
    """

    contact_solver: AbstractContactSolver = InteriorPoint()
    friction: AbstractFriction = Cone()
    solver: AbstractConstraintSolver = Automatic()
    stabilisation: AbstractStabilisation = PassiveDeadBeat()
    impact_law: AbstractImpactLaw = Newton()
    impacts: AtStepStart | Located = AtStepStart()
    smoothing: Annotated[Float[Array, ""] | None, not_negative] = eqx.field(
        converter=lambda x: None if x is None else jnp.asarray(x), default=None
    )
    rigid: ClassVar[bool] = True
    unilateral: ClassVar[bool] = True
    default_scheme: ClassVar = diffrax.Euler()

    def __check_init__(self):
        if self.smoothing is not None and isinstance(self.friction, Pyramid):
            raise ValueError(
                f"Argument `smoothing` of ContactImpulse, {self.smoothing}, needs "
                "`friction=mbd.contacts.Cone()`: a `Pyramid` has corners that it does not smooth."
            )

    @property
    def keeps_energy(self):
        return False  # impacts and friction take it

    def has_checkpoints(self, problem):
        return locates(problem)

    def init(self, problem, t, q, v):
        contacts, located = eqx.filter_eval_shape(contact_rows, problem.system, t, q, v), None
        pairs = load = None
        if contacts.pairs is not None:
            pairs = contact_rows(problem.system, t, q, v).pairs
            assert pairs is not None
            load = jnp.zeros(pieces_of(problem.system, pairs)[1], q.dtype)
        if locates(problem):
            if contacts.law.stiffness is not None:
                raise ValueError(
                    "A contact with `stiffness` has no instant of impact: leave out `impacts="
                    f"{self.impacts}` of `ContactImpulse`, or `stiffness`."
                )
            located = jnp.array(0)
        count, d = contacts.total, contacts.drift.shape[1]
        past = ContactMemory(
            jnp.zeros((count, d), q.dtype),
            jnp.zeros((count, d), q.dtype),
            jnp.zeros((), q.dtype),
            jnp.ones(count, bool),
            jnp.zeros(count, bool),
            any_overlap(q.dtype),
            located,
            pairs,
            load,
        )
        return super().init(problem, t, q, v).replace(contacts=past)

    def with_start_tolerance(self, start, tolerance):
        assert start.contacts is not None
        return start.replace(contacts=start.contacts._replace(allowed=tolerance))

    def start_result(self, problem, start):
        assert start.contacts is not None
        contacts = contact_rows(problem.system, start.t, start.q, start.v)
        return overlapping(contacts, start.contacts.allowed)

    def end_result(self, problem, state):
        contacts = contact_rows(problem.system, state.t, state.q, state.v)
        assert state.contacts is not None
        return missed(contacts, state.contacts.watched, contacts.known(state.contacts.pairs))

    def step(self, problem, state, t):
        return ContactStep(problem).to(state, t)

    def between(self, problem, state, h, t):
        if locates(problem):
            return super().between(problem, state, h, t)
        return along(problem, state, h, t)

    def row_energy(self, problem, state):
        contacts = contact_rows(problem.system, state.t, state.q, state.v)
        if contacts.law.stiffness is None:
            return jnp.zeros((), state.q.dtype)
        K, depth = contacts.law.stiffness, jnp.maximum(-contacts.gap, 0.0)
        return jnp.sum(jnp.where(jnp.isinf(K), 0.0, K) * depth**2) / 2

    def driving_power(self, problem, state):
        contacts = contact_rows(problem.system, state.t, state.q, state.v)
        assert state.contacts is not None
        force = contacts.carried(state.contacts.force, contacts.known(state.contacts.pairs))
        of_surfaces = -jnp.sum(contacts.of_kept(force) * contacts.drift)
        return super().driving_power(problem, state) + of_surfaces

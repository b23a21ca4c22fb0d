"""Velocity-level stepping with contacts: a free step, then the impulses of equality rows and
contacts together."""

import dataclasses
from typing import Annotated, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._checks import is_concrete
from .._coordinates import length
from .._enforcement.base import AbstractEnforcement
from .._enforcement.stabilisation import AbstractStabilisation, DeadBeat
from .._inputs import at_least, checked, not_negative
from .._linalg import AbstractConstraintSolver, Automatic, ConstraintOperator
from .._loop import kept
from .._results import RESULTS
from .._types import RealScalarLike, Rows, Velocity
from .friction import AbstractFriction, Cone, Pyramid
from .implicit import ContactEquations, at_solution
from .problem import Groups, frictionless
from .rows import AbstractContactJacobian, ContactRows, Impulses
from .solvers import AbstractContactSolver, InteriorPoint


@checked
class ContactImpulse(AbstractEnforcement):
    """Time stepping with unilateral contacts, friction and impacts, for systems with a `gap` and
    mechanisms with `contacts`. One problem a step for all impulses,

        M (v(n+1) - v*) = J^T Lam + J_c^T lam,    J v(n+1) = -Phi_t - feedback(Phi),
        0 <= lam_n  perp  J_n v(n+1) + g_t + bias >= 0,
        lam_t within mu lam_n takes most power from J_t v(n+1),
        q(n+1) = q(n) (+) h N v(n+1),

    with v* from the scheme on the free motion. The bias is g/h for an open contact, so that it may
    close within the step but not pass; e u(n) for one that closes with the approach velocity u(n)
    and has a restitution e (Newton's law); 0 for one that overlaps. An overlap is taken back by a
    displacement alone, the one of least kinetic energy, so that it adds none.

    Compliant contacts, of stiffness k and damping d, are springs in series with the rows: with

        0 <= lam_n  perp  J_n v(n+1) + g_t + lam_n / (h^2 k + h d) + g / (h + d/k) >= 0

    the force is -(k g + d g') at the end of the step, implicitly, and k = inf is the rigid contact.

    Equality rows are eliminated from the contact problem, so that they hold as in `VelocityImpulse`
    whatever contacts do. First order; impacts are resolved at the start of the step in which they
    happen. `multipliers` and contact forces returned are means over a step.

    **Arguments:**

    - `contact_solver`: `InteriorPoint()` (default) or `ProjectedGaussSeidel()`.
    - `friction`: `Cone()` (default) or `Pyramid(directions)`, the same for all contacts.
    - `solver`, `stabilisation`: of the equality rows, as in `VelocityImpulse`.
    - `impact_law`: "newton", the velocity of separation is e times that of approach; or "poisson",
      the impulses of compression act a second time, e times as large and friction with them, and a
      second problem keeps contacts from approaching again. They differ where several contacts or
      friction act at once: there Newton's law may gain energy, and Poisson's leaves it to the
      impulses which contacts separate.
    - `impacts`: how many impacts may be located within a step, 0 for none. The motion until an
      impact is then a parabola in the coordinates, of second order, and the impact law acts where
      the gap vanishes, so that bounces, and derivatives with respect to heights and restitution,
      are accurate; what is left of a step after that many, and the flow to the next one, is done
      as without. Rows of equality hold along it, at the ends of steps to rounding, as in RATTLE
      (Andersen 1983), which costs a second factorisation a step. Rigid contacts only.
    - `smoothing`: velocity [m/s] by which the laws are smoothed, 0 for none; for `Cone` only. With
      s the normal impulse and velocity of a contact satisfy lam_n z_n = s^2 / S_nn instead of 0,
      and friction passes smoothly from one direction to the other: then derivatives exist also
      where a contact opens, closes, sticks or slips, for optimisation; the error is of the order
      of s.

    Reference: Stewart and Trinkle (1996); Anitescu and Potra (1997), Formulating dynamic
    multi-rigid-body contact problems with friction as solvable linear complementarity problems.
    """

    contact_solver: AbstractContactSolver = InteriorPoint()
    friction: AbstractFriction = Cone()
    solver: AbstractConstraintSolver = Automatic()
    stabilisation: AbstractStabilisation = DeadBeat()
    impact_law: Literal["newton", "poisson"] = eqx.field(static=True, default="newton")
    impacts: Annotated[int, at_least(0)] = eqx.field(static=True, default=0)
    smoothing: Annotated[Float[Array, ""], not_negative] = eqx.field(
        converter=jnp.asarray, default_factory=lambda: jnp.zeros(())
    )
    rigid: ClassVar[bool] = True
    unilateral: ClassVar[bool] = True

    def __check_init__(self):
        smooth = is_concrete(self.smoothing) and self.smoothing > 0
        if smooth and isinstance(self.friction, Pyramid):
            raise ValueError(
                f"Argument `smoothing` of ContactImpulse, {self.smoothing}, needs "
                "`friction=mbd.Cone()`: a `Pyramid` has corners that it does not smooth."
            )


class Resolved(NamedTuple):
    """Change of the velocities, impulses of the equality rows and of the contacts, which contacts
    press, and a verdict: the residual [m/s] and a member of `RESULTS`."""

    change: Velocity
    multipliers: Rows
    impulses: Impulses
    pressed: Bool[Array, " contacts"]
    residual: Float[Array, ""]
    result: RESULTS


def resolve(
    enforcement: ContactImpulse,
    operator: ConstraintOperator,
    rows: int,
    J: AbstractContactJacobian,
    b: Impulses,
    mu: Float[Array, "contacts groups"],
    compliance: Float[Array, " contacts"],
    groups: Groups,
    guess: Impulses,
) -> Resolved:
    """Solve one contact problem."""
    equations = ContactEquations(operator, J, b, mu, compliance, enforcement.smoothing, groups)
    problem = equations.problem(rows)
    scale = problem.scale[:, None]
    solved = kept(enforcement.contact_solver.solve(problem, jax.lax.stop_gradient(guess) / scale))
    lam, change, multipliers = at_solution(equations, problem, solved.impulses, rows)
    result = RESULTS.where(solved.accepted, RESULTS.successful, RESULTS.contact_unsolved)
    pressed = problem.pressed(solved.impulses)
    return Resolved(change, multipliers, lam, pressed, solved.residual, result)


def contact_groups(enforcement: ContactImpulse, contacts: ContactRows) -> Groups:
    """The groups of impulses of these contacts."""
    law, k = contacts.law, contacts.tangents
    moments = [(law.torsional, 1), (law.rolling, 2)]
    sizes = tuple(size for coefficient, size in moments if coefficient is not None)
    sizes = (k, *sizes) if k else sizes
    return Groups(sizes, (enforcement.friction,) * len(sizes))


def coefficients(
    contacts: ContactRows, slip: Float[Array, "contacts d"]
) -> Float[Array, "contacts groups"]:
    """Of each group, at the relative velocities at the start of the step."""
    law, count, k = contacts.law, slip.shape[0], contacts.tangents
    moments = [x for x in (law.torsional, law.rolling) if x is not None]
    found = [jnp.broadcast_to(x, (count,)).astype(slip.dtype) for x in moments]
    if k:
        speed = length(slip[:, 1 : 1 + k])
        found = [law.coefficient(speed).astype(slip.dtype), *found]
    return jnp.stack(found, axis=1) if found else jnp.zeros((count, 0), slip.dtype)


class Normal(NamedTuple):
    """What acts along the normals in a step: bias velocity [m/s] of contacts that do not bounce,
    rebound e u <= 0 [m/s] and restitution e of those that do, and compliance [1/kg]."""

    bias: Float[Array, " contacts"]
    rebound: Float[Array, " contacts"]
    restitution: Float[Array, " contacts"]
    compliance: Float[Array, " contacts"]


def bouncing(
    contacts: ContactRows,
    bias: Float[Array, " contacts"],
    before: Float[Array, " contacts"],
    hits: Bool[Array, " contacts"],
) -> Normal:
    """Rigid contacts, of which those that hit something with the velocities `before` bounce."""
    e = jnp.broadcast_to(contacts.law.restitution, bias.shape)
    hits = hits & (e * before < 0)
    zero = jnp.zeros_like(bias)
    return Normal(
        jnp.where(hits, zero, bias),
        jnp.where(hits, e * before, zero),
        jnp.where(hits, e, zero),
        zero,
    )


def normal_law(
    contacts: ContactRows,
    before: Float[Array, " contacts"],
    free: Float[Array, " contacts"],
    h: RealScalarLike,
) -> Normal:
    """From the normal velocities at the start of the step and those without contact impulses."""
    law, gap = contacts.law, contacts.gap
    normal = bouncing(contacts, jnp.maximum(gap, 0.0) / h, before, gap + h * free < 0)
    if law.stiffness is None:
        return normal
    flexibility = 1 / law.stiffness
    relaxation = law.damping * flexibility
    pressed = (gap < 0) & is_compliant(contacts)
    return normal._replace(
        bias=jnp.where(pressed, gap / (h + relaxation), normal.bias),
        compliance=jnp.broadcast_to(flexibility / (h * (h + relaxation)), gap.shape),
    )


def is_compliant(contacts: ContactRows) -> Bool[Array, " contacts"]:
    """Which contacts have a finite stiffness."""
    stiffness = contacts.law.stiffness
    finite = False if stiffness is None else jnp.isfinite(stiffness)
    return jnp.broadcast_to(finite, contacts.gap.shape)


def recovery(
    enforcement: ContactImpulse,
    operator: ConstraintOperator,
    rows: int,
    contacts: ContactRows,
    ahead: Float[Array, " contacts"],
    h: RealScalarLike,
) -> tuple[Velocity, Float[Array, ""]]:
    """The displacement of least kinetic energy that takes back what overlaps, given the gaps at the
    end of the step as far as velocities tell, and opens no contact that it does not have to. Also
    by how much, over h [m/s], it misses that, as it must where overlaps contradict each other."""
    ahead = jnp.where(is_compliant(contacts), jnp.maximum(ahead, 0.0), ahead)
    # A contact problem as any other, for the velocities that would do it in the time h.
    exact = dataclasses.replace(
        enforcement, contact_solver=InteriorPoint(), smoothing=jnp.zeros((), ahead.dtype)
    )
    back = resolve(
        exact,
        operator,
        rows,
        contacts.J.normals(),
        ahead[:, None] / h,
        jnp.zeros((ahead.shape[0], 0), ahead.dtype),
        jnp.zeros_like(ahead),
        frictionless(),
        jnp.zeros_like(ahead)[:, None],
    )
    return h * back.change, back.residual

"""Equilibria of a system."""

from typing import Annotated

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._checks import (
    check_gaps,
    check_no_frictions,
    check_no_nan,
    check_system,
    contact_counts,
    with_dtype,
)
from .._compiler import (
    array_namespace,
    compiled_quickly,
    stop_gradient,
    to_jax,
    without_tangents,
)
from .._inputs import at_least, checked, positive
from .._linalg import AbstractConstraintSolver, Automatic
from .._methods import ContactImpulse
from .._printed import counted, judged, printed, span
from .._raising import raise_failure
from .._results import RESULTS, first_failure
from .._step import as_control, near
from .._system import AbstractSystem, State
from .._types import RealScalarLike, Rows
from .contact_statics import ContactStatics
from .statics import AbstractStatics, Search, Statics, no_negative, search

# Contacts that are listed in print.
_LISTED = 10


@printed
class EquilibriumReport(eqx.Module):
    """The report of `equilibrium`.

    - `multipliers`: lam of the rows at the equilibrium, `(nc,)`.
    - `stiffness`: the eigenvalues [1/s^2] of the stiffness relative to the mass, in the directions
      that constraints, closed contacts and sticking friction admit, `(nv,)`; inf for the other
      directions. If no force depends on velocities, they are the squares of the natural frequencies
      [rad/s].
    - `residual`: the largest acceleration that remains.
    - `iterations`: the number of steps and of displacements back onto the constraints together.
    - `contact_force`: the forces of all contacts [N], `(contacts, d)`, the normal one first, as in
      `Solution.contact_force`; `gap`: their gaps [m].
    - `share`: of each contact, |f_t| / (mu f_n), the share of the available friction that is used:
      1 where it is about to slip, 0 without friction or normal force.
    - `result`: `RESULTS.successful`; `RESULTS.equilibrium_not_found`; or
      `RESULTS.tolerance_out_of_reach` if `tolerance` is less than what rounding leaves. With
      `NearContacts` also `RESULTS.contact_overflow`.
    - `contact_pairs`: of contacts of `NearContacts` the numbers of the pieces and of the point, as
      in `Solution.contact_pairs`; `None` without such.

    `stiffness` and `residual` are constants under differentiation. For derivatives of natural
    frequencies use `modes`.
    """

    multipliers: Rows
    stiffness: Float[Array, " nv"]
    residual: Float[Array, ""]
    iterations: Int[Array, ""]
    contact_force: Float[Array, "contacts d"]
    gap: Float[Array, " contacts"]
    share: Float[Array, " contacts"]
    result: RESULTS
    contact_pairs: Int[Array, "contacts 3"] | None = None

    def __str__(self) -> str:
        if np.ndim(self.residual):
            left = f"remaining accelerations {span(self.residual)}"
            return f"{judged(self.result, 'equilibrium found', 'no equilibrium found')}\n{left}"
        k = np.asarray(self.stiffness)
        k = k[np.isfinite(k)]
        kind = "stable" if bool(self.stable) else "unstable"
        found = f"equilibrium found: {kind}, " + (
            f"the smallest stiffness is {k.min():.6g} 1/s^2" if k.size else "without any freedom"
        )
        steps = counted(int(self.iterations), "iteration")
        rows = [
            judged(self.result, found, "no equilibrium found"),
            f"the largest acceleration left is {float(self.residual):.1e}, after {steps}",
        ]
        force, share, loaded = map(np.asarray, (self.contact_force, self.share, self.closed))
        if loaded.size:
            rows.append(f"{int(loaded.sum())} of {counted(loaded.size, 'contact')} carry load")
        for i in np.nonzero(loaded)[0][:_LISTED]:
            used = f"{share[i]:.0%} of the friction is used"
            rows.append(f"  contact {i}: {force[i, 0]:.6g} N, {used}")
        return "\n".join(rows)

    @property
    def closed(self) -> Bool[Array, "*batch contacts"]:
        """Which contacts carry load, beyond rounding."""
        xp = array_namespace(self.contact_force)
        normal = xp.asarray(self.contact_force)[..., 0]
        return to_jax(normal > 1e-10 * xp.max(normal, axis=-1, initial=0.0, keepdims=True))

    @property
    def stable(self) -> Bool[Array, "*batch"]:
        """Whether forces drive each small displacement back: no stiffness is negative, up to
        rounding."""
        return no_negative(self.stiffness)


@checked
def equilibrium(
    system: AbstractSystem,
    state: State,
    u: PyTree = None,
    *,
    first: Annotated[RealScalarLike | None, positive] = None,
    tolerance: Annotated[float | None, positive] = None,
    max_iterations: Annotated[int, at_least(1)] = 500,
    solver: AbstractConstraintSolver = Automatic(),
    throw: bool = True,
) -> State:
    r"""Find an equilibrium of a system under constant inputs,

    $$ f(t, q, 0, u) + J^\mathsf{T} \lambda = 0, \qquad \Phi(q, t) = 0. $$

    At an equilibrium, the constrained acceleration $a(q)$ at $v = 0$ and the smallest displacement
    $c(q)$ back onto the constraints both vanish. The search takes implicit steps of the overdamped
    motion $dq/ds = a + c$,

    $$ \left(\frac{1}{h} - \frac{\partial (a + c)}{\partial p}\right) dp = a + c. $$

    The first steps are short and follow the forces downhill from far away. Steps grow as the forces
    fall, until they are Newton steps. So the search ends where the system would come to rest, at a
    stable equilibrium, unless it starts at an unstable one.

    **Arguments:**

    - `system`: the system. `state`: the start of the search, which need not satisfy the
      constraints: the search begins by closing them. Moving constraints and forces are taken at its
      time. Its velocities are ignored.
    - `u`: the inputs, or a control u(t, q, v).
    - `first`: h of the first step, the square of a time [s^2], by default 0.1, or less where that
      is too long to go downhill. A value that is given is taken as it is. Values much larger than
      the squared time constants of the system, such as 1e3, give Newton steps from the start, which
      find an equilibrium nearby, stable or unstable. With contacts all steps go downhill.
    - `tolerance`: for accelerations, relative to those of the forces that act: of applied forces,
      of constraint forces, and of stiffness times a displacement of 1; and for displacements back
      onto the constraints, relative to the coordinates, or to 1 if they are smaller. Default 1e-10
      (1e-4 in float32). Without contacts the last steps go on until rounding ends them, so the
      result is more accurate than that.
    - `throw`: whether to raise if no equilibrium was found. If `False`, see `state.report`.

    **Returns:** a `State` at rest with `report`, an `EquilibriumReport`. It can be differentiated
    with respect to the system, inputs and time, in both modes and to any order, also with redundant
    rows. It is differentiated as an implicit function. The derivative with respect to the
    start is zero. If the system can move without forces (a degree of freedom without stiffness),
    equilibria are not isolated. Then the result depends on the start, and derivatives are not
    defined.

    **Contacts.** The same motion, with $J_c$ of the contacts, the displacement $dp$ of a step and
    forces $\lambda_c$ that obey the laws of contact:

    $$ 0 \le \lambda_n \perp g + J_n dp \ge 0, \qquad |\lambda_t| \le \mu \lambda_n
       \text{ opposes } J_t dp . $$

    Friction makes sets of equilibria. The search stops at the first one on its way. So a start at
    which friction can hold the system is returned as it is. Otherwise the system slides until
    friction holds it. `report.share` tells how much of the friction is used. Static coefficients
    count, and so do torsional and rolling friction and compliant contacts. If contacts are
    redundant, such as the four corners of a box, their forces are not unique.

    Derivatives are those with the closed contacts closed. Contacts with a `share` below 1 hold
    their points, wherever these are. Contacts at the limit move such that they stay there.

    Rows of `nonholonomic` hold too: what rolls without slipping rolls to its equilibrium. Such
    equilibria depend on the path, and derivatives are not defined.

    **Raises:** `ValueError` for wrong shapes; a run-time error if no equilibrium was found and
    `throw` is true.

    Reference: Kelley and Keyes (1998), Convergence analysis of pseudo-transient continuation, SIAM
    J. Numer. Anal. 35, 508-523. Pang and Trinkle (1996), Complementarity formulations and existence
    of solutions of dynamic multi-rigid-body contact problems with Coulomb friction, Math.
    Programming 73, 199-226.
    """
    check_no_nan(system=system, state=state, u=u)
    check_system(system, as_control(u, state.q.dtype), state.q, state.v)
    dtype = state.q.dtype
    # h that is not given is no reason to leave the way downhill.
    zero = jnp.zeros((), dtype)
    newton = zero if first is None else to_jax(first, dtype)
    first = to_jax(0.1 if first is None else first, dtype)
    check_gaps(system, state.q, state.v)
    check_no_frictions(system, state.q, state.v)
    contacts, _ = contact_counts(system, state.q, state.v)
    if tolerance is None:
        tolerance = 1e-10 if dtype == jnp.float64 else 1e-4
    t = jnp.asarray(state.t, dtype)
    system, u = with_dtype((near(system, state.angles), u), dtype)
    if contacts:
        statics, newton = ContactStatics(system, u, t, solver, ContactImpulse()), zero
    else:
        statics = Statics(system, u, t, solver)
    found = _equilibrium(statics, state.q, state.v, first, newton, tolerance, max_iterations)
    found = State(found.t, found.q, found.v, found.report, state.angles)
    return raise_failure(found, found.report.result) if throw else found


def _equilibrium(statics: AbstractStatics, q, v, first, newton, tolerance, max_iterations) -> State:
    # Outside of `jit`, the search is a program of its own, which derivatives do not enlarge.
    options = first, newton, tolerance, max_iterations
    end = _searched(*stop_gradient((statics, q, v, options)))
    return _at_solution(statics, end, v, tolerance)


@compiled_quickly
def _searched(statics: AbstractStatics, q, v, options) -> Search:
    return without_tangents(search, statics, q, jnp.zeros_like(v), *options)


@compiled_quickly
def _at_solution(statics: AbstractStatics, end: Search, v, tolerance) -> State:
    rest = jnp.zeros_like(v)
    at = statics.resting(end.last, rest)
    failed = RESULTS.where(end.ended, RESULTS.tolerance_out_of_reach, RESULTS.equilibrium_not_found)
    result = RESULTS.where(end.error <= tolerance, RESULTS.successful, failed)
    if at.full is not None:
        seen = RESULTS.where(at.full, RESULTS.contact_overflow, RESULTS.successful)
        result = first_failure(seen, result)
    numbers = at.multipliers, end.stiffness, end.left, end.k, at.force, at.gap, at.share
    return State(statics.t, at.q, rest, EquilibriumReport(*numbers, result, at.pairs))

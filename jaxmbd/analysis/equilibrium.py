"""Equilibria of a system."""

from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._checks import check_gaps, check_no_nan, check_system, with_dtype
from .._compiler import (
    compiled_quickly,
    numpy_if_concrete,
    stop_gradient,
    to_jax,
    tree_where,
    without_tangents,
)
from .._inputs import at_least, checked, positive
from .._linalg import AbstractConstraintSolver, Automatic, dense
from .._methods import ContactImpulse, point
from .._printed import counted, judged, printed, span
from .._raising import raise_failure
from .._results import RESULTS
from .._roots import implicit, least_solution
from .._step import as_control, near
from .._system import AbstractSystem, State
from .._types import Coordinates, RealScalarLike, Rows, Velocity
from .contact_statics import ContactStatics

# The factors by which h may grow from step to step, and by which forces may grow in one step.
_FASTER, _WORSE = 10.0, 10.0

# The share of a displacement of 1, or of the forces there, below which a step moves nearly nothing.
_NEGLIGIBLE = 0.1

# The factor by which they may grow in a Newton step that goes uphill.
_WORSE_UPHILL = 2.0

# The largest number of evaluations on the way back onto the constraints after a step.
_CLOSING = 20

# A displacement back to the constraints must remove at least this share of the violation that it
# would remove if the rows were linear (Armijo's condition).
_DECREASE = 1e-4

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
      `RESULTS.tolerance_out_of_reach` if `tolerance` is less than what rounding leaves.

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
        xp = numpy_if_concrete(self.contact_force)
        normal = xp.asarray(self.contact_force)[..., 0]
        return to_jax(normal > 1e-10 * xp.max(normal, axis=-1, initial=0.0, keepdims=True))

    @property
    def stable(self) -> Bool[Array, "*batch"]:
        """Whether forces drive each small displacement back: no stiffness is negative, up to
        rounding."""
        return no_negative(self.stiffness)


def no_negative(stiffness: Float[Array, "*batch nv"]) -> Bool[Array, "*batch"]:
    """Whether no stiffness is negative, up to rounding."""
    xp = numpy_if_concrete(stiffness)
    stiffness = xp.asarray(stiffness)
    finite = xp.where(xp.isfinite(stiffness), xp.abs(stiffness), 0.0)
    largest = xp.max(finite, axis=-1, keepdims=True)
    return to_jax(xp.all(stiffness >= -1e-9 * largest, axis=-1))


@checked
def equilibrium(
    system: AbstractSystem,
    state: State,
    u: Any = None,
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
    rows. The derivatives are those of the implicit function. The derivative with respect to the
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
    newton = jnp.asarray(0.0 if first is None else first, dtype)
    first = jnp.asarray(0.1 if first is None else first, dtype)
    check_gaps(system, state.q, state.v)
    contacts = jax.eval_shape(system.gap, state.q, jax.ShapeDtypeStruct((), dtype)).size
    if tolerance is None:
        tolerance = 1e-10 if dtype == jnp.float64 else 1e-4
    t = jnp.asarray(state.t, dtype)
    system, u = with_dtype((near(system, state.angles), u), dtype)
    if contacts:
        statics = ContactStatics(system, u, t, solver, ContactImpulse())
        found = _settled(statics, state.q, state.v, first, tolerance, max_iterations)
    else:
        statics = Statics(system, u, t, state.q, solver)
        found = _equilibrium(statics, state.v, first, newton, tolerance, max_iterations)
    found = State(found.t, found.q, found.v, found.report, state.angles)
    return raise_failure(found, found.report.result) if throw else found


class Statics(eqx.Module):
    """The static problem near q: rates of the overdamped motion as functions of the displacement p
    from there."""

    system: AbstractSystem
    u: Any
    t: Float[Array, ""]
    q: Coordinates
    solver: AbstractConstraintSolver

    def at(self, q: Coordinates) -> "Statics":
        """The same problem near another q."""
        return Statics(self.system, self.u, self.t, q, self.solver)

    def operator(self, p):
        rest = jnp.zeros_like(p)
        here = self.system.retract(self.q, p)
        at = point(self.system, as_control(self.u, self.q.dtype), self.t, here, rest)
        return at, at.operator(self.solver)

    def parts(self, p):
        """The acceleration, the displacement back onto the constraints, and the multipliers."""
        at, operator = self.operator(p)
        still = jnp.zeros_like(at.rows.velocity)
        a, lam = operator.solve(at.f, still)
        back, _ = operator.correct(-at.rows.position(at.rows.phi), p)
        return a, back, lam

    def rates(self, p):
        a, back, _ = self.parts(p)
        return a + back

    def at_rest(self, p):
        """The acceleration a, the displacement back onto the constraints, the projector T onto
        admissible displacements, the stiffness K relative to the mass along them, T a(p + dp) =
        T a(p) - K dp, the eigenvalues of its symmetric part, inf in all other directions, Phi, and
        the largest acceleration by the forces that act: applied ones, those of constraints, and
        stiffness times a displacement of 1."""
        at, operator = self.operator(p)
        one = jnp.eye(p.shape[0], dtype=p.dtype)
        project = lambda x: x - operator.correct(operator.rows(x), x)[0]  # noqa: E731
        T = jax.vmap(project, in_axes=1, out_axes=1)(one)

        def along(dp):
            (a, back, _), (da, _, _) = jax.jvp(self.parts, (p,), (dp,))
            return da, (a, back)

        slope, (a, back) = jax.vmap(along, in_axes=1, out_axes=(1, None))(one)
        K = -T @ slope @ T
        # In the variables R^T p, with M = R R^T, T is symmetric. So is K if the forces have a
        # potential.
        R = jnp.linalg.cholesky(dense(at.M))
        similar = lambda A: R.T @ A @ jnp.linalg.inv(R.T)  # noqa: E731
        alike, P = similar(K), similar(T)
        # Shift the eigenvalues of directions that are not admissible beyond all others.
        far = 1e3 * (1 + jnp.linalg.norm(alike))
        values = jnp.linalg.eigvalsh((alike + alike.T) / 2 + far * (one - (P + P.T) / 2))
        values = jnp.where(values > far / 2, jnp.inf, values)
        free = jax.scipy.linalg.cho_solve((R, True), at.f)
        acting = jnp.concatenate([free, free - a, jnp.ravel(slope)])
        return a, back, T, K, values, at.rows.phi, jnp.max(jnp.abs(acting), initial=0.0)


class _Back(NamedTuple):
    """Displacements back onto the constraints: from a q, whose rows are violated by |Phi| = `size`,
    the `share` of the displacement dp that would close linear rows."""

    q: Coordinates
    dp: Velocity
    size: Float[Array, ""]
    share: Float[Array, ""]

    def next(self, q: Coordinates, dp: Velocity, phi: Rows, begin: Bool[Array, ""]) -> "_Back":
        """Go on from q, or go back and take half the share if the violation did not fall. `begin`:
        whether q is the first one."""
        size = jnp.linalg.norm(phi)
        falls = begin | (size <= (1 - _DECREASE * self.share) * self.size)
        one = jnp.ones_like(self.share)
        longer = jnp.where(begin, one, jnp.minimum(one, 2 * self.share))
        return tree_where(falls, _Back(q, dp, size, longer), self._replace(share=self.share / 2))


class _Search(NamedTuple):
    """The state of the search: the current q; the `last` one that satisfied the constraints, with
    the largest acceleration `left` there, the `error` relative to the forces that act, and whether
    the step from there was `short`, to take a root; the stiffness; the step h; the `share` of it
    that is taken, and whether it went `uphill`; the way back onto the constraints and its number of
    evaluations in a row (`closing`); the iteration k; and whether the search has `ended`."""

    q: Coordinates
    last: Coordinates
    left: Float[Array, ""]
    error: Float[Array, ""]
    short: Bool[Array, ""]
    stiffness: Float[Array, " nv"]
    h: Float[Array, ""]
    share: Float[Array, ""]
    uphill: Bool[Array, ""]
    back: _Back
    closing: Int[Array, ""]
    k: Int[Array, ""]
    ended: Bool[Array, ""]


def _search(statics: "Statics", origin, first, newton, tolerance, max_iterations) -> _Search:
    """Search from the q of `statics`. Where forces drive the system away, h is at most `newton`, or
    what still leads downhill, if that is more. `origin`: the displacement zero."""
    dtype, retract = statics.q.dtype, statics.system.retract
    eps = jnp.finfo(dtype).eps

    def going(state):
        return ~state.ended & (state.k < max_iterations)

    # There is one evaluation in one place, because compile time grows with the program's size.
    def turn(state):
        q, last, h = state.q, state.last, state.h
        a, back, T, K, stiffness, phi, scale = statics.at(q).at_rest(origin)
        missed, left = (jnp.max(jnp.abs(x), initial=0.0) for x in (back, a))
        missed = missed / jnp.maximum(1.0, jnp.max(jnp.abs(q), initial=0.0))
        open_ = ~(missed <= tolerance)
        begun = jnp.isfinite(state.left)
        most = jnp.where(begun, _CLOSING, max_iterations)
        worse = left > jnp.where(state.uphill, _WORSE_UPHILL, _WORSE) * state.left
        lost = ~jnp.isfinite(left + missed) | jnp.where(open_, state.closing >= most, worse)

        # Close to a root Newton's method takes all digits that rounding leaves, whatever the
        # tolerance. Where forces drive the system away, only what is within the tolerance counts as
        # close: the search goes downhill from beside an unstable equilibrium.
        error = jnp.maximum(left / jnp.where(scale > 0, scale, 1.0), missed)
        driven = jnp.maximum(-jnp.min(stiffness), 0.0)
        level = jnp.where(no_negative(stiffness), jnp.maximum(eps**0.5, tolerance), tolerance)
        short = ~lost & ~open_ & (error <= level)
        ended = short & (error <= 2 * eps) | state.short & ~(error <= 0.5 * state.error)
        better = ~(state.short & (lost | open_ | (error > state.error)))

        # Forces that drive the system away grow before they fall. That is no reason for shorter
        # steps. But h must not exceed half their squared time constant, or the step overshoots.
        gain = jnp.clip(state.left / left, jnp.where(driven > 0, 1.0, 0.5), _FASTER)
        # Steps that move nearly nothing say nothing about the forces: weak ones need longer steps.
        negligible = h * jnp.maximum(left, jnp.linalg.norm(K)) < _NEGLIGIBLE
        gain = jnp.where(negligible, _FASTER, jnp.where(begun, gain, 1.0))
        gain = jnp.where(open_, 1.0, gain)
        h = h * jnp.where(lost, jnp.where(state.uphill, 1.0, 0.25), gain)
        tiny = jnp.finfo(dtype).tiny
        h = jnp.minimum(h, jnp.maximum(newton, 0.5 / jnp.maximum(driven, tiny)))
        reached = ~lost & ~open_
        uphill = jnp.where(reached, h * driven > 1, state.uphill)
        # Newton's method, which goes uphill too, takes a shorter part of a step that fails.
        share = jnp.where(lost & state.uphill, 0.5 * state.share, state.share)
        longer = jnp.where(left < state.left, jnp.minimum(1.0, 2 * share), share)
        share = jnp.where(reached, jnp.where(uphill, longer, 1.0), share)
        # Of all solutions T gives the admissible one. The least one would leave the constraints.
        slow = jnp.where(short, 0.0, 1 / h)
        step = T @ (least_solution(slow * T + K, a))
        step = jnp.where(short, step + back, share * step)
        way = state.back.next(q, back, phi, state.closing == 0)
        ahead = tree_where(open_, retract(way.q, way.share * way.dp), retract(q, step))
        return _Search(
            jnp.where(lost, last, ahead),
            jnp.where(reached & better, q, last),
            jnp.where(reached & better, left, state.left),
            jnp.where(reached & better, error, state.error),
            short,
            jnp.where(better, stiffness, state.stiffness),
            h,
            share,
            uphill,
            way,
            jnp.where(open_ & ~lost, state.closing + 1, 0),
            state.k + 1,
            ended,
        )

    q = statics.q
    inf, zero, one = jnp.asarray(jnp.inf, dtype), jnp.zeros((), dtype), jnp.ones((), dtype)
    none, count, no = _Back(q, origin, inf, zero), jnp.array(0), jnp.array(False)
    h = jnp.asarray(first, dtype)
    start = _Search(q, q, inf, inf, no, origin, h, one, no, none, count, count, no)
    return jax.lax.while_loop(going, turn, start)


def _equilibrium(given: "Statics", v, first, newton, tolerance, max_iterations) -> State:
    # Outside of `jit`, the search is a program of its own, which derivatives do not enlarge.
    options = first, newton, tolerance, max_iterations
    end = _searched(*stop_gradient((given, v, options)))
    return _at_solution(given, end, v, tolerance)


@compiled_quickly
def _searched(given: "Statics", v, options) -> _Search:
    return without_tangents(_search, given, jnp.zeros_like(v), *options)


@compiled_quickly
def _at_solution(given: "Statics", end: _Search, v, tolerance) -> State:
    q, origin = end.last, jnp.zeros_like(v)

    # p = 0 is the root near q. Its derivatives follow from everything that the statics depend on.
    statics = given.at(q)
    p = implicit(statics.rates, origin)
    _, _, lam = statics.parts(p)
    failed = RESULTS.where(end.ended, RESULTS.tolerance_out_of_reach, RESULTS.equilibrium_not_found)
    result = RESULTS.where(end.error <= tolerance, RESULTS.successful, failed)
    none = jnp.zeros(0, q.dtype)
    report = EquilibriumReport(
        lam, end.stiffness, end.left, end.k, none[:, None], none, none, result
    )
    return State(given.t, given.system.retract(q, p), jnp.zeros_like(v), report)


@eqx.filter_jit
def _settled(statics: ContactStatics, q, v, first, tolerance, max_iterations) -> State:
    rest = jnp.zeros_like(v)
    found = statics.settle(jax.lax.stop_gradient(q), rest, first, tolerance, max_iterations)
    report = EquilibriumReport(
        found.multipliers,
        found.stiffness,
        found.residual,
        found.iterations,
        found.force,
        found.gap,
        found.share,
        found.result,
    )
    return State(statics.t, found.q, rest, report)

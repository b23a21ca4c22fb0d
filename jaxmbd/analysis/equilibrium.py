"""Where a system rests."""

from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._checks import check_no_nan, check_system, with_dtype
from .._enforcement import point
from .._inputs import at_least, checked, positive
from .._linalg import AbstractConstraintSolver, Automatic, dense
from .._loop import stop_gradient
from .._raising import raise_failure
from .._results import RESULTS
from .._simulation import as_control
from .._system import AbstractSystem, State
from .._types import Coordinates, RealScalarLike, Rows

# By how much steps may grow from one to the next, and by how much forces may grow in one.
_FASTER, _WORSE = 10.0, 10.0

# Steps of Newton's method back onto the rows, at most.
_CLOSING = 20

# Singular values below this part of the largest count as zero.
_CUTOFF = 1e-11


class EquilibriumReport(eqx.Module):
    """What `equilibrium` found.

    - `multipliers`: lam of the rows there, `(nc,)`.
    - `stiffness`: eigenvalues [1/s^2] of the stiffness beside the mass, in the directions that the
      constraints admit, `(nv,)`, inf for the others; squares of natural frequencies [rad/s] where
      no force depends on velocities.
    - `residual`: the largest acceleration that is left.
    - `iterations`: taken, steps and displacements back onto the rows.
    - `result`: `RESULTS.successful` or `RESULTS.equilibrium_not_found`.
    """

    multipliers: Rows
    stiffness: Float[Array, " nv"]
    residual: Float[Array, ""]
    iterations: Int[Array, ""]
    result: RESULTS

    @property
    def stable(self) -> Bool[Array, ""]:
        """Whether each small displacement is driven back, up to rounding: no stiffness is
        negative."""
        finite = jnp.where(jnp.isfinite(self.stiffness), jnp.abs(self.stiffness), 0.0)
        return jnp.all(self.stiffness >= -1e-9 * jnp.max(finite))


@checked
def equilibrium(
    system: AbstractSystem,
    state: State,
    u: Any = None,
    *,
    first: Annotated[RealScalarLike, positive] = 0.1,
    tolerance: Annotated[float | None, positive] = None,
    max_iterations: Annotated[int, at_least(1)] = 500,
    solver: AbstractConstraintSolver = Automatic(),
    throw: bool = True,
) -> State:
    r"""Find where a system rests under constant inputs,

    $$ f(t, q, 0, u) + J^\mathsf{T} \lambda = 0, \qquad \Phi(q, t) = 0. $$

    With $v = 0$ the constrained acceleration $a(q)$ and the smallest displacement $c(q)$ back onto
    the rows vanish together. Implicit steps of the overdamped motion $dq/ds = a + c$,

    $$ \left(\frac{1}{h} - \frac{\partial (a + c)}{\partial p}\right) dp = a + c, $$

    begin as short ones, which follow the forces downhill from far away, and grow as the forces
    fall, until they are Newton's. So they end where the system would come to rest, at a stable
    equilibrium, unless the start lies on an unstable one.

    **Arguments:**

    - `system`. `state`: where the search begins, need not satisfy the constraints; its time is that
      of moving constraints and forces, its velocities do not count.
    - `u`: inputs, or a control u(t, q, v).
    - `first`: h of the first step, as the square of a time [s^2]. Large values take Newton's steps
      at once, which find the nearest equilibrium, unstable ones too.
    - `tolerance`: of accelerations, and of displacements back onto the rows, relative to the
      accelerations of the start or 1, whichever is larger; default 1e-10 (1e-4 in float32).
    - `throw`: raise if none was found; with `False` see `state.report`.

    **Returns:** a `State` at rest with `report`, an `EquilibriumReport`. Its derivatives by system,
    inputs and time are those of the implicit function, in both modes and of any order, at redundant
    rows too. By the start there are none. Where the system can move without forces (a freedom
    without stiffness), equilibria are not isolated: the one found depends on the start, and
    derivatives are not defined.

    Contacts and `nonholonomic` rows, which do not act at rest, are not looked at.

    **Raises:** `ValueError` for wrong shapes and for systems with contacts; a run-time error if no
    equilibrium was found and `throw` is true.

    Reference: Kelley and Keyes (1998), Convergence analysis of pseudo-transient continuation, SIAM
    J. Numer. Anal. 35, 508-523.
    """
    check_no_nan(system=system, state=state, u=u)
    check_system(system, as_control(u, state.q.dtype), state.q, state.v)
    dtype = state.q.dtype
    if jax.eval_shape(system.gap, state.q, jax.ShapeDtypeStruct((), dtype)).size:
        raise ValueError(
            "`equilibrium` does not look at contacts, and the system has some: let it come to rest "
            "by `simulate`, or leave them out where they are open."
        )
    if tolerance is None:
        tolerance = 1e-10 if dtype == jnp.float64 else 1e-4
    t = jnp.asarray(state.t, dtype)
    system, u = with_dtype((system, u), dtype)
    statics = _Statics(system, u, t, state.q, solver)
    found = _equilibrium(statics, state.v, first, tolerance, max_iterations)
    return raise_failure(found, found.report.result) if throw else found


class _Statics(eqx.Module):
    """The static problem near the start: rates of the overdamped motion as functions of the
    displacement p from there."""

    system: AbstractSystem
    u: Any
    t: Float[Array, ""]
    q: Coordinates
    solver: AbstractConstraintSolver

    def at(self, q: Coordinates) -> "_Statics":
        """The same near another q."""
        return _Statics(self.system, self.u, self.t, q, self.solver)

    def operator(self, p):
        rest = jnp.zeros_like(p)
        here = self.system.retract(self.q, p)
        at = point(self.system, as_control(self.u, self.q.dtype), self.t, here, rest)
        return at, at.operator(self.solver)

    def parts(self, p):
        """The acceleration, the displacement back onto the rows, and the multipliers."""
        at, operator = self.operator(p)
        still = jnp.zeros_like(at.rows.velocity)
        a, lam = operator.solve(at.f, still)
        back, _ = operator.correct(-at.rows.position(at.rows.phi), p)
        return a, back, lam

    def rates(self, p):
        a, back, _ = self.parts(p)
        return a + back

    def at_rest(self, p):
        """The acceleration a, the displacement back onto the rows, the projector T on admissible
        displacements, the stiffness K beside the mass along them, T a(p + dp) = T a(p) - K dp, and
        the eigenvalues of its symmetric part, inf for directions that are not admissible."""
        at, operator = self.operator(p)
        one = jnp.eye(p.shape[0], dtype=p.dtype)
        project = lambda x: x - operator.correct(operator.rows(x), x)[0]  # noqa: E731
        T = jax.vmap(project, in_axes=1, out_axes=1)(one)

        def along(dp):
            (a, back, _), (da, _, _) = jax.jvp(self.parts, (p,), (dp,))
            return da, (a, back)

        slope, (a, back) = jax.vmap(along, in_axes=1, out_axes=(1, None))(one)
        K = -T @ slope @ T
        # In the variables R^T p, M = R R^T, T is symmetric, and so is K of forces that have a
        # potential.
        R = jnp.linalg.cholesky(dense(at.M))
        similar = lambda A: R.T @ A @ jnp.linalg.inv(R.T)  # noqa: E731
        alike, P = similar(K), similar(T)
        # What is not admissible is moved beyond all others.
        far = 1e3 * (1 + jnp.linalg.norm(alike))
        values = jnp.linalg.eigvalsh((alike + alike.T) / 2 + far * (one - (P + P.T) / 2))
        return a, back, T, K, jnp.where(values > far / 2, jnp.inf, values)


class _Search(NamedTuple):
    """Where the search is and where it was `last` on the rows, the largest acceleration that was
    `left` there and at the `first` such place, the stiffness, the step h, how many displacements
    back onto the rows it has made, the turn, and whether it has `found` an equilibrium."""

    q: Coordinates
    last: Coordinates
    left: Float[Array, ""]
    first: Float[Array, ""]
    stiffness: Float[Array, " nv"]
    h: Float[Array, ""]
    closing: Int[Array, ""]
    k: Int[Array, ""]
    found: Bool[Array, ""]


@eqx.filter_jit
def _equilibrium(given: "_Statics", v, first, tolerance, max_iterations) -> State:
    fixed, system = stop_gradient(given), given.system
    origin = jnp.zeros_like(v)

    def going(state):
        return ~state.found & (state.k < max_iterations)

    # One evaluation a turn, at one place: what a program holds is what it takes to compile.
    def turn(state):
        q, last, h = state.q, state.last, state.h
        here = fixed.at(q)
        a, back, T, K, stiffness = here.at_rest(origin)
        missed, left = (jnp.max(jnp.abs(x), initial=0.0) for x in (back, a))
        goal = tolerance * jnp.maximum(1.0, state.first)
        open_ = ~(missed <= goal)
        lost = ~jnp.isfinite(left + missed) | jnp.where(
            open_, state.closing >= _CLOSING, left > _WORSE * state.left
        )
        # Where forces drive away they grow before they fall, which is no reason for short steps;
        # but an implicit step of more than half their time overshoots.
        driven = jnp.maximum(-jnp.min(stiffness), 0.0)
        gain = jnp.clip(state.left / left, jnp.where(driven > 0, 1.0, 0.5), _FASTER)
        gain = jnp.where(jnp.isinf(state.left), 1.0, gain)
        h = h * jnp.where(lost, 0.25, jnp.where(open_, 1.0, gain))
        h = jnp.minimum(h, 0.5 / jnp.maximum(driven, jnp.finfo(q.dtype).tiny))
        found = ~lost & ~open_ & (left <= goal)
        step = jnp.linalg.pinv(T / h + K, rtol=_CUTOFF) @ a
        ahead = system.retract(q, jnp.where(open_, back, step))
        reached = ~lost & ~open_
        return _Search(
            jnp.where(lost, last, jnp.where(found, q, ahead)),
            jnp.where(reached, q, last),
            jnp.where(reached, left, state.left),
            jnp.where(jnp.isinf(state.left) & reached, left, state.first),
            stiffness,
            h,
            jnp.where(open_ & ~lost, state.closing + 1, 0),
            state.k + 1,
            found,
        )

    q = fixed.q
    inf = jnp.asarray(jnp.inf, q.dtype)
    zero, h = jnp.zeros((), q.dtype), jnp.asarray(first, q.dtype)
    start = _Search(q, q, inf, zero, origin, h, jnp.array(0), jnp.array(0), jnp.array(False))
    end = jax.lax.while_loop(going, turn, start)
    q = end.last

    # p = 0 is the root near q, which moves with all that the statics depend on.
    statics = given.at(q)

    def solve(linear, y):
        slope = jax.jacfwd(linear)(jnp.zeros_like(y))
        return jnp.linalg.pinv(slope, rtol=_CUTOFF) @ y

    p = jax.lax.custom_root(lambda p: statics.rates(p), origin, lambda _, p: p, solve)
    _, _, lam = statics.parts(p)
    result = RESULTS.where(end.found, RESULTS.successful, RESULTS.equilibrium_not_found)
    report = EquilibriumReport(lam, end.stiffness, end.left, end.k, result)
    return State(given.t, system.retract(q, p), jnp.zeros_like(v), report)

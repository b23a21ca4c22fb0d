"""Consistent initial conditions: the nearest q with Phi = 0, and v with J v = -Phi_t, Psi = 0."""

from collections.abc import Callable, Sequence
from typing import Annotated, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from ._checks import check_no_nan, check_system, with_dtype
from ._compiler import array_namespace, compiled_quickly, each, to_jax, tree_where
from ._equations import equations, specialised
from ._inputs import at_least, checked, finite, positive, shown
from ._linalg import dense
from ._printed import counted, judged, largest, printed
from ._progress import says_when_traced
from ._raising import raise_failure
from ._results import RESULTS
from ._system import AbstractSystem, State, writes_own_qdot
from ._types import Coordinates, RealScalarLike, Rows, Velocity

_MAX_HALVINGS = 12


@printed
class AssemblyReport(eqx.Module):
    """The report of `assemble`.

    - `phi`: remaining Phi, shape `(nh,)`; `velocity`: remaining (Phi', Psi), `(nc,)`.
    - `open`: rows whose Phi exceeds the tolerance, `(nh,)`; `moving`: rows whose Phi' or Psi does,
      `(nc,)`, holonomic ones first; `unsatisfied`: rows of which either does, `(nc,)`.
    - `rank`: number of independent rows there. There are redundant rows if `rank < nc`.
    - `displacement`: weighted distance from the given q; `change`: weighted size of the change of
      the given v.
    - `iterations`: their number.
    - `result`: `RESULTS.successful` or `RESULTS.assembly_failed`.
    """

    phi: Float[Array, " nh"]
    velocity: Rows
    open: Bool[Array, " nh"]
    moving: Bool[Array, " nc"]
    rank: Int[Array, ""]
    displacement: Float[Array, ""]
    change: Float[Array, ""]
    iterations: Int[Array, ""]
    result: RESULTS

    def __str__(self) -> str:
        found = "successful: the constraints are closed"
        rows = [judged(self.result, found, "not closed")]
        if np.ndim(self.rank) == 0:
            for what, which in (("Phi", self.open), ("Phi' or Psi", self.moving)):
                if np.any(which):
                    rows.append(f"{what} is left in the rows {np.nonzero(np.asarray(which))[0]}")
            rows.append(
                f"{counted(self.velocity.shape[-1], 'row')}, {int(self.rank)} of them independent; "
                f"{counted(int(self.iterations), 'iteration')}"
            )
        rows.append(
            f"the largest |Phi| is {largest(self.phi):.1e}; coordinates moved by "
            f"{largest(self.displacement):.3g}, velocities changed by {largest(self.change):.3g}"
        )
        return "\n".join(rows)

    @property
    def unsatisfied(self) -> Bool[Array, " nc"]:
        xp = array_namespace(self.moving, self.open)
        moving, n = xp.asarray(self.moving), self.open.shape[0]
        return to_jax(xp.concatenate([moving[:n] | xp.asarray(self.open), moving[n:]]))


@checked
def assemble(
    system: AbstractSystem,
    q: ArrayLike | Sequence[float | int],
    v: ArrayLike | Sequence[float | int] | None = None,
    t: RealScalarLike = 0.0,
    *,
    weights: Annotated[ArrayLike | None, positive] = None,
    fixed: ArrayLike | Sequence[int] = (),
    fixed_velocities: ArrayLike | Sequence[int] = (),
    tolerance: Annotated[float | None, positive] = None,
    max_iterations: Annotated[int, at_least(1)] = 50,
    throw: bool = True,
) -> State:
    """Find the consistent state of a system that is nearest to given coordinates and velocities,

        q  <- q (+) N p,   p = arg min p^T W p / 2   subject to Phi(q (+) N p, t) = 0,
        v  <- v + d,       d = arg min d^T W d / 2   subject to J (v + d) = -Phi_t, Psi = 0,

    with W = diag(weights). Redundant rows and singular poses are allowed. The derivative with
    respect to q, v, t and the parameters of the system is the implicit derivative of the minimum.

    `assemble` identifies rows by their numbers. For a mechanism, `close_joints` does the same by
    the names of joints. `place_bodies` turns joint coordinates into a state, without closing loops.

    **Arguments:**

    - `q`: approximate coordinates, shape `(nq,)`. `v`: approximate velocities, `(nv,)`, by default
      at rest.
    - `t`: time [s]. A Python number stays one, so that `simulate` knows it when tracing.
    - `weights`: resistance of each component of the displacement to moving, `(nv,)`, positive.
    - `fixed`: components of the displacement that must not move: indices, or a Boolean mask of
      shape `(nv,)`. With q' = v these are the coordinates. `fixed_velocities`: likewise for v.
    - `tolerance`: for each row, by default 1e-10 (1e-5 in float32).
    - `throw`: raise if rows remain unsatisfied. With `False` see `state.report`.

    **Returns:** a `State` with a `report`, an `AssemblyReport`.

    **Raises:** `ValueError` for wrong shapes; a run-time error if the constraints could not be
    satisfied and `throw` is true.

    Reference: Haug (1989), Computer Aided Kinematics and Dynamics of Mechanical Systems, section
    4.4 (assembly as minimisation); second-order conditions after Nocedal and Wright (2006),
    Numerical Optimization, section 18.
    """
    options = AssemblyOptions(weights, fixed, fixed_velocities, tolerance, max_iterations)
    return assembled(system, None, q, v, t, options, throw=throw)


class AssemblyOptions(NamedTuple):
    """The arguments of `assemble`, by the same names."""

    weights: ArrayLike | None
    fixed: ArrayLike | Sequence[int]
    fixed_velocities: ArrayLike | Sequence[int]
    tolerance: float | None
    max_iterations: int


def assembled(
    system: AbstractSystem,
    held: Callable[..., tuple[AbstractSystem, AbstractSystem]] | None,
    q: ArrayLike | Sequence[float | int],
    v: ArrayLike | Sequence[float | int] | None,
    t: RealScalarLike,
    options: AssemblyOptions,
    *,
    throw: bool,
) -> State:
    """`assemble`, with further rows beside those of the system. `held` turns the system into two:
    the first has the holonomic rows that must vanish, the second the rows that the velocities must
    satisfy. The rows of `system` come first in both. The report covers the rows of `system`, but
    the assembly fails also if other rows remain unsatisfied."""
    says_when_traced("assemble")
    q, system = finite("`q` of assemble", q, shape=None), specialised(system)
    if v is None:
        if writes_own_qdot(system):
            raise ValueError(
                "Give `v`: with a hand-written `qdot` its size is not known. Or name `coordinates`."
            )
        nv = system.coordinates.nv
        v = to_jax(np.zeros(q.shape[0] if nv is None else nv, q.dtype))
    v = finite("`v` of assemble", v, shape=None)
    system, held = with_dtype((system, held), q.dtype)
    check_system(system, None, q, v, with_force=False, with_internal=True)
    check_no_nan(system=system)
    weights, fixed, fixed_velocities, tolerance, max_iterations = options
    if tolerance is None:
        tolerance = 1e-10 if q.dtype == jnp.float64 else 1e-5
    xp = array_namespace(weights)
    weights = np.ones(v.shape, q.dtype) if weights is None else xp.asarray(weights, q.dtype)
    if weights.shape != v.shape:
        raise ValueError(f"Argument `weights` must have shape {v.shape}, but has {weights.shape}.")
    # In the variables W^(1/2) p the norm is Euclidean. A fixed component has a zero column.
    mobility = 1 / xp.sqrt(weights)
    q_scale = xp.where(_mask(fixed, v, "fixed"), xp.zeros_like(mobility), mobility)
    v_scale = xp.where(
        _mask(fixed_velocities, v, "fixed_velocities"), xp.zeros_like(mobility), mobility
    )
    scales = q_scale, v_scale
    state, report = _assemble(system, held, q, v, t, scales, tolerance, max_iterations)
    state = State(t, state.q, state.v, report)
    return raise_failure(state, report.result) if throw else state


def _mask(chosen, v, name):
    chosen = np.asarray(chosen)
    if chosen.size and chosen.dtype.kind not in "bi":
        raise ValueError(
            f"Argument `{name}` of assemble must hold indices or be a Boolean mask, but is "
            f"{shown(chosen)}."
        )
    if chosen.dtype == bool:
        if chosen.shape != v.shape:
            raise ValueError(f"Mask `{name}` must have shape {v.shape}, but has {chosen.shape}.")
        return chosen
    mask = np.zeros(v.shape, bool)
    if chosen.size and not (0 <= chosen.min() and chosen.max() < v.shape[0]):
        raise ValueError(f"`{name}` must hold indices below {v.shape[0]}, but is {chosen}.")
    mask[chosen.astype(int)] = True
    return mask


@compiled_quickly
def _assemble(system, held, q, v, t, scales, tolerance, max_iterations):
    q_scale, v_scale = scales
    t, v_given = jnp.asarray(t, q.dtype), v
    in_place, in_motion = (system, system) if held is None else held(system)
    given = _problem(in_place, q, t, q_scale)
    p, iterations, stationary = _nearest(given, tolerance, max_iterations)
    q = system.retract(q, q_scale * p)
    # One solve suffices if the rows are linear in v, as they nearly always are. Otherwise Newton's
    # method runs.
    steps = 5 if jax.eval_shape(system.nonholonomic, q, v, t).size else 1

    # The last turn of the loop computes the remaining violation. So the rows occur only once in the
    # program, which saves compilation time.
    def improved(state, i):
        v, *_ = state
        rows = equations(in_motion).rows(t, q, v)
        J = dense(rows.J)
        change = pseudoinverse(J * v_scale[None, :]) @ -rows.velocity
        return (v + jnp.where(i < steps, v_scale * change, 0.0), rows.phi, rows.velocity, J), None

    like = jax.eval_shape(lambda v: improved((v,), 0)[0], v)
    start = v, *(jnp.zeros(x.shape, x.dtype) for x in like[1:])
    (v, phi, kept, J), _ = jax.lax.scan(improved, start, jnp.arange(steps + 1))
    # Rows of the system itself come first.
    count = equations(system).row_count(t, q, v)
    velocity, J = kept[:count], J[:count]
    limit = tolerance * (1 + jnp.max(jnp.abs(J), initial=0.0))
    # Negated, so that NaN counts as unsatisfied.
    open, moving = ~(jnp.abs(phi) <= tolerance), ~(jnp.abs(velocity) <= limit)
    # Contradictory rows leave a residual after any solve. This fails too, also in rows of `held`.
    ok = stationary & ~jnp.any(open) & ~jnp.any(moving) & jnp.all(jnp.abs(kept) <= limit)
    scale = jnp.where(v_scale > 0, v_scale, 1.0)
    report = AssemblyReport(
        jax.lax.stop_gradient(phi),
        jax.lax.stop_gradient(velocity),
        open,
        moving,
        _rank(J),
        jnp.linalg.norm(jax.lax.stop_gradient(p)),
        jnp.linalg.norm(jax.lax.stop_gradient((v - v_given) / scale)),
        iterations,
        RESULTS.where(ok, RESULTS.successful, RESULTS.assembly_failed),
    )
    return State(t, q, v), report


def _rank(J):
    if J.size == 0:
        return jnp.array(0)
    return jnp.linalg.matrix_rank(jax.lax.stop_gradient(J))


class _Problem(eqx.Module):
    """g(p) = Phi(q (+) N S p, t), to vanish at the p nearest to the origin. S is `scale`."""

    g: Callable[[Velocity], Rows]
    scale: Velocity

    def none(self, p: Velocity) -> Rows:
        """Multipliers that are zero."""
        return jnp.zeros(jax.eval_shape(self.g, p).shape, p.dtype)

    def pull(self, p: Velocity, mu: Rows) -> tuple[Rows, Velocity]:
        """g, and J^T mu with J = dg/dp."""
        g, transposed = jax.vjp(self.g, p)
        return g, transposed(mu)[0]

    def linearised(self, p: Velocity, mu: Rows) -> "_Linearised":
        def along(direction):
            at, slopes = jax.jvp(lambda p: self.pull(p, mu), (p,), (direction,))
            return at[0], *slopes

        # One direction after the other compiles faster, where a loop costs nothing.
        g, J, W = each(along, jnp.eye(p.shape[0], dtype=p.dtype))
        return _Linearised(p, g[0], J.T, pseudoinverse(J.T), W)


def _problem(
    system: AbstractSystem, q: Coordinates, t: RealScalarLike, scale: Velocity
) -> _Problem:
    def g(p):
        return equations(system).positions(t, system.retract(q, scale * p))

    # What functions in the system close over becomes a part of g. `custom_jvp` would take it for a
    # constant in reverse mode, and cannot take it in forward mode.
    return _Problem(eqx.filter_closure_convert(g, jnp.zeros_like(scale)), scale)


class _Linearised(NamedTuple):
    """g, J, J^+, and W = sum mu d2g/dp2 at p."""

    p: Velocity
    g: Rows
    J: Float[Array, "rows nv"]
    X: Float[Array, "nv rows"]
    W: Float[Array, "nv nv"]

    @property
    def mu(self) -> Rows:
        """The least squares solution of p = J^T mu."""
        return self.X.T @ self.p

    def newton(self, tangential: Velocity, normal: Rows) -> Velocity:
        """Return dp from the linearised equations of the minimum, p = J^T mu and g = 0:
        H dp - J^T dmu = tangential, J dp = normal, with H = 1 - W.

        Across the constraints dp = J^+ normal. Along them, with P = 1 - J^+ J,
        P H P dp = P (tangential - H J^+ normal). H is replaced by 1 where it is not positive
        there."""
        identity = jnp.eye(self.p.shape[0], dtype=self.p.dtype)
        H, P = identity - self.W, identity - self.X @ self.J
        A = P @ H @ P + identity - P
        convex = jnp.all(jnp.isfinite(jnp.linalg.cholesky(jax.lax.stop_gradient(A))))
        A, H = jnp.where(convex, A, identity), jnp.where(convex, H, identity)
        across = self.X @ normal
        return across + P @ jnp.linalg.solve(A, P @ (tangential - H @ across))


def pseudoinverse(J: Float[Array, "rows nv"]) -> Float[Array, "nv rows"]:
    """J^+, with the derivative at constant rank."""
    return jnp.linalg.pinv(J, rtol=1e-10 if J.dtype == jnp.float64 else 1e-5)


@eqx.filter_custom_jvp
def _nearest(problem, tolerance, max_iterations):
    """Return p, the number of iterations, and whether p is a minimum."""

    # One loop does both stages, so that each function occurs once in the program, which saves
    # compilation. The first stage satisfies the rows. The second, `sharp`, finds the nearest p.
    def error(at, sharp):
        stationarity = jnp.where(sharp, at.p - at.J.T @ at.mu, 0.0)
        return jnp.maximum(
            jnp.max(jnp.abs(at.g), initial=0.0), jnp.max(jnp.abs(stationarity), initial=0.0)
        )

    def body(state):
        at, k, best, _, sharp = state
        first = k < 0
        dp = jax.lax.cond(
            sharp,
            lambda at: at.newton(at.J.T @ at.mu - at.p, -at.g),
            lambda at: -at.X @ at.g,
            at,
        )
        dp = jnp.where(first, 0.0, dp)

        # Take the longest step of dp, dp/2, ... that reduces the error.
        def worse(search):
            _, value, s = search
            return ~(value < best) & (s > 0.5**_MAX_HALVINGS) & ~(first & (s <= 1))

        def shorter(search):
            s = 0.5 * search[2]
            # The multipliers before the step do for W: they converge too, and J is not known yet.
            new = problem.linearised(at.p + s * dp, at.mu)
            return new, error(new, sharp), s

        begin = at, jnp.full_like(best, jnp.inf), jnp.full_like(best, 2.0)
        new, value, _ = jax.lax.while_loop(worse, shorter, begin)
        improved = (value < best) | first
        at = tree_where(improved, new, at)
        k, best = k + 1, jnp.minimum(value, best)
        closed = ~sharp & ~going((at, k, best, improved, sharp))
        best = jnp.where(closed, error(at, True), best)
        return at, k, best, improved | closed, sharp | closed

    def going(state):
        _, k, best, improved, _ = state
        return (best > 0.01 * tolerance) & improved & (k < max_iterations)

    origin = jnp.zeros_like(problem.scale)
    # Zeros stand for an evaluation, which the first turn makes.
    like = jax.eval_shape(problem.linearised, origin, problem.none(origin))
    at = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
    start = (
        at,
        jnp.array(-1),
        jnp.full((), jnp.inf, origin.dtype),
        jnp.array(True),
        jnp.array(False),
    )
    at, k, best, _, _ = jax.lax.while_loop(going, body, start)
    return at.p, k, best <= 1e3 * tolerance


@_nearest.def_jvp
def _nearest_jvp(primals, tangents):
    problem, tolerance, max_iterations = primals
    d_problem, _, _ = tangents
    p, k, stationary = _nearest(problem, tolerance, max_iterations)

    # Twice, since W needs the multipliers.
    def linearised(mu, _):
        at = problem.linearised(p, mu)
        return at.mu, at

    _, twice = jax.lax.scan(linearised, problem.none(p), length=2)
    at = jax.tree.map(lambda x: x[-1], twice)
    # p = J^T mu and g = 0 hold also for the problem changed by d_problem.
    _, (d_g, d_pull) = eqx.filter_jvp(
        lambda problem: problem.pull(p, at.mu), (problem,), (d_problem,)
    )
    dp = at.newton(
        jnp.zeros_like(p) if d_pull is None else d_pull,
        jnp.zeros_like(at.g) if d_g is None else -d_g,
    )
    return (p, k, stationary), (dp, None, None)

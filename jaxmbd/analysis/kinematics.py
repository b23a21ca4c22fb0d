"""Positions, velocities and accelerations of driven mechanisms."""

from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._checks import check_no_nan, check_system, with_dtype
from .._compiler import array_namespace, broadcast, picked, to_jax, tree_where, without_tangents
from .._equations import equations
from .._inputs import Numbers, at_least, checked, finite, positive
from .._mechanism import WithDrives, drive_functions
from .._printed import counted, in_a_line, judged, printed, span
from .._raising import raise_failure
from .._results import RESULTS, first_failure, succeeded
from .._roots import implicit, newton_root, root
from .._search import nonzero, redundancy
from .._system import AbstractStates, AbstractSystem, State
from .._types import Coordinates, Velocity

# The ratio of singular values up to which a pose counts as singular.
_SINGULAR = 1e-7


@printed
class Kinematics(AbstractStates):
    """The result of `kinematics`, for n samples.

    **Fields:**

    - `t`: times, `(n,)`. `values`: those of the drives, `(n, drives)`; or times, `(n,)`.
    - `q`, `v`, `a`: coordinates, velocities and accelerations v', `(n, nq)` and `(n, nv)`.
    - `ratio`: the smallest singular value of the driven Jacobian, relative to the largest one,
      `(n,)`. It vanishes at dead points, at which the drive does not determine the motion.
    - `orientation`: the sign of the determinant of the driven Jacobian relative to that of the
      first sample, `(n,)`: 1 on its branch, -1 on the other one.
    - `result`: of each sample: `RESULTS.successful`; `assembly_failed` if the mechanism does not
      reach the value; `dead_point`; or `underdriven` if the drives leave freedoms. Samples that
      failed hold the last good pose, with v = a = 0.

    `ratio` and `orientation` are constants under differentiation.
    """

    t: Float[Array, " n"]
    values: Float[Array, "n ..."]
    q: Float[Array, "n nq"]
    v: Float[Array, "n nv"]
    a: Float[Array, "n nv"]
    ratio: Float[Array, " n"]
    orientation: Float[Array, " n"]
    result: RESULTS

    def __str__(self) -> str:
        n, ratio = self.values.shape[0], np.asarray(self.ratio)
        rows = [
            f"{counted(n, 'pose')} of a driven system, over {span(self.values)}",
            judged(self.result, "the drive determines the motion", "failed"),
        ]
        if ratio.ndim > 1:
            return "\n".join(rows)
        if n:
            i = int(np.argmin(ratio))
            value = in_a_line(picked(self.values, i))
            rows.append(f"closest to a dead point at sample {i}, {value}: ratio {ratio[i]:.3g}")
        for i in np.nonzero(np.asarray(self.branch_changes))[0]:
            rows.append(f"on another branch from sample {i}")
        return "\n".join(rows)

    @property
    def ok(self) -> Bool[Array, " n"]:
        """Which samples are successful."""
        return to_jax(succeeded(self.result))

    @property
    def branch_changes(self) -> Bool[Array, " n"]:
        """Which samples lie on another branch than the sample before."""
        xp = array_namespace(self.orientation)
        orientation = xp.asarray(self.orientation)
        return to_jax(orientation != xp.concatenate([orientation[:1], orientation[:-1]]))


class _Driven(WithDrives):
    """A system with rows x(q) - (value + rate s + acceleration s^2 / 2) for its drives, at the time
    s = 0 of the rows, while the time of the system stands still. Without drives s is its time."""

    angles: tuple[bool, ...] = eqx.field(static=True)
    t: Float[Array, ""]
    target: Float[Array, "3 drives"]

    def constraint(self, q, t):
        if not self.drives:
            return self.system.constraint(q, t)
        own = jnp.ravel(jnp.asarray(self.system.constraint(q, self.t), q.dtype))
        value, rate, bend = self.target
        x = jnp.stack([jnp.asarray(drive(q), q.dtype) for drive in self.drives])
        x = x - (value + rate * t + bend * t**2 / 2)
        whole = jnp.round(jax.lax.stop_gradient(x) / (2 * np.pi))
        turns = jnp.where(np.asarray(self.angles), whole, 0.0)
        return jnp.concatenate([own, x - 2 * np.pi * turns])


class _Pose(NamedTuple):
    """The last good pose: a basis of the range of the driven Jacobian J there, the sign of the
    determinant of J in it, and the orientation. Before the first sample `known` is false."""

    q: Coordinates
    basis: Float[Array, "rows nv"]
    sign: Float[Array, ""]
    orientation: Float[Array, ""]
    known: Bool[Array, ""]


@checked
def kinematics(
    system: AbstractSystem,
    state: State,
    drive: Any = None,
    values: Any = None,
    *,
    rate: Numbers = 1.0,
    acceleration: Numbers = 0.0,
    tolerance: Annotated[float | None, positive] = None,
    max_iterations: Annotated[int, at_least(1)] = 30,
    throw: bool = True,
) -> Kinematics:
    r"""Move a mechanism by its drives: positions, velocities and accelerations at each value,

    $$ \Phi(q, t) = 0, \quad x(q) = x_i, \qquad
       J_x v = (-\Phi_t, \dot x), \qquad J_x \dot v = (\gamma, \ddot x - \dot J v) . $$

    No masses and forces are involved. Redundant rows are allowed. Each sample begins at the one
    before, by Newton's method. So the mechanism stays on its branch if the samples are dense
    enough.

    **Arguments:**

    - `system`: an `AbstractSystem` or `Mechanism`, whose nonholonomic rows are refused. `state`: a
      pose near the first value. It need not satisfy the constraints.
    - `drive`: x, one or a sequence of these: the name of a joint of a mechanism; an
      `AbstractScalarCoordinate`, such as `OfJoint(joint, 1)`; or a function of q. `None` if the
      rows of the system itself drive it, such as `PrescribedMotion` or Phi(q, t).
    - `values`: x_i, shape `(n,)` or `(n, drives)` [m, rad]. Angles of joints are taken modulo a
      turn. Without `drive`, times [s].
    - `rate`, `acceleration`: x' and x'' of the drives, one number or one for each value.
    - `tolerance`: for each row, by default 1e-10 (1e-5 in float32).
    - `throw`: raise if a sample fails.

    **Returns:** `Kinematics`. It can be differentiated with respect to the system and the values,
    in both modes and to any order, under `jit` and `vmap`.

    **Raises:** `ValueError` for arguments of wrong shape and unknown joints; a run-time error if a
    sample fails and `throw` is true.

    Reference: Haug (1989), Computer Aided Kinematics and Dynamics of Mechanical Systems, sections
    3.6 and 4.
    """
    system, state, drives, angles = _prepared("kinematics", system, state, drive)
    dtype = state.q.dtype
    if values is None:
        raise ValueError("`values` of kinematics is missing: give values of the drives, or times.")
    values = finite("`values` of kinematics", values, dtype, shape=None)
    count = len(drives)
    xp = array_namespace(values, rate, acceleration)
    table = xp.asarray(values)[:, None] if drives and values.ndim == 1 else values
    if values.shape[:1] != table.shape[:1] or table.ndim != (2 if drives else 1):
        raise ValueError(
            f"`values` of kinematics must have shape (n,) or (n, {count}), but has {values.shape}."
        )
    if drives and table.shape[1] != count:
        raise ValueError(
            f"`values` of kinematics needs a column for each of the {count} drives, but has shape "
            f"{values.shape}."
        )

    def each(name, x):
        x = xp.asarray(x, dtype)
        x = x[:, None] if x.ndim == 1 and values.ndim == 1 else x
        try:
            return xp.broadcast_to(x, table.shape)
        except ValueError:
            raise ValueError(
                f"`{name}` of kinematics must be one number or have the shape of `values`, "
                f"{values.shape}, but has {x.shape}."
            ) from None

    if tolerance is None:
        tolerance = 1e-10 if dtype == jnp.float64 else 1e-5
    if drives:
        targets = xp.stack([table, each("rate", rate), each("acceleration", acceleration)], axis=1)
        times = xp.zeros(len(table), dtype)
    else:
        targets, times = xp.zeros((len(table), 3, 0), dtype), table
    table, targets, times = map(to_jax, (table, targets, times))
    driven = _Driven(system, drives, angles, jnp.asarray(state.t, dtype), picked(targets, 0))
    found = _kinematics(driven, targets, times, state.q, state.v, tolerance, max_iterations)
    t = broadcast(driven.t, times.shape) if drives else times
    moved = Kinematics(t, table, *found)
    return raise_failure(moved, moved.result) if throw else moved


def _prepared(caller: str, system: AbstractSystem, state: State, drive: Any) -> Any:
    """The system, the state, the drives as functions of q, and which of them are angles.

    **Raises:** `ValueError`."""
    check_no_nan(system=system, state=state)
    dtype = state.q.dtype
    check_system(system, None, state.q, state.v, with_force=False, with_internal=True)
    t = jax.ShapeDtypeStruct((), dtype)
    if jax.eval_shape(system.nonholonomic, state.q, state.v, t).size:
        raise ValueError(
            f"`{caller}` needs a system without nonholonomic rows, since its poses would depend on "
            "the path. Use `simulate`."
        )
    system = with_dtype(system, dtype)
    drives, angles = drive_functions(caller, system, state.q, drive)
    return system, State(state.t, state.q, state.v), drives, angles


@eqx.filter_jit
def _kinematics(driven, targets, times, q, v, tolerance, max_iterations) -> Any:
    rest = jnp.zeros_like(v)
    rows = eqx.filter_eval_shape(driven.constraint, q, times[0]).size
    one = jnp.eye(rest.shape[0], dtype=q.dtype)

    def sample(last, given):
        target, s = given
        here = eqx.tree_at(lambda d: d.target, driven, target)
        pose, ratio, X, result = without_tangents(
            _posed, here, s, last, rest, tolerance, max_iterations
        )
        ok, q = result == RESULTS.successful, pose.q

        # Derivatives are those of the equations X Phi = 0, X (J v + Phi_t) = 0 and so on.
        def positions(p):
            return equations(here).positions(s, here.retract(q, p))

        q = here.retract(q, implicit(positions, rest, X))
        A = X @ equations(here).position_jacobian(s, q, rest)
        A = A + jax.lax.stop_gradient(one - A)
        still = equations(here).rows(s, q, rest)
        v = jnp.linalg.solve(A, -X @ still.velocity)
        a = jnp.linalg.solve(A, X @ equations(here).rows(s, q, v).gamma)
        v, a = (jnp.where(ok, x, 0.0) for x in (v, a))
        return tree_where(ok, pose, last), (q, v, a, ratio, pose.orientation, result)

    unknown = jnp.zeros((), q.dtype)
    q = jax.lax.stop_gradient(q)
    start = _Pose(
        q, jnp.zeros((rows, rest.shape[0]), q.dtype), unknown, unknown + 1, jnp.array(False)
    )
    return jax.lax.scan(sample, start, (targets, times))[1]


def _posed(here: _Driven, s, last: _Pose, rest, tolerance, max_iterations) -> Any:
    """The pose near the last one; the ratio of singular values; J^+; the verdict."""
    nv, count = rest.shape[0], len(here.drives)

    def linearised(q):
        return equations(here).positions(s, q), equations(here).position_jacobian(s, q, rest)

    q, _, left, _ = newton_root(
        linearised,
        last.q,
        here.retract,
        max_iterations=max_iterations + 1,
        tolerance=1e-3 * tolerance,
        size=lambda q, d, phi: jnp.max(jnp.abs(phi), initial=0.0),
        rtol=_SINGULAR,
    )
    reached = (left <= tolerance) & jnp.all(jnp.isfinite(q))
    q = jnp.where(reached, q, last.q)
    J = equations(here).position_jacobian(s, q, rest)
    U, values, _ = jnp.linalg.svd(jnp.concatenate([J, jnp.zeros((nv, nv), q.dtype)]))
    ratio = values[nv - 1] / jnp.where(values[0] > 0, values[0], 1.0)
    own = jnp.linalg.svd(J[: J.shape[0] - count], compute_uv=False)
    free = nv - jnp.sum(nonzero(own, redundancy(q.dtype)))
    judged = RESULTS.where(ratio > _SINGULAR, RESULTS.successful, RESULTS.dead_point)
    if count:
        judged = RESULTS.where(free > count, RESULTS.underdriven, judged)
    result = first_failure(
        RESULTS.where(reached, RESULTS.successful, RESULTS.assembly_failed), judged
    )

    # The sign of the determinant of J in the basis of the pose before, relative to there.
    basis = U[: J.shape[0], :nv]
    sign = lambda basis: jnp.linalg.slogdet(basis.T @ J)[0]  # noqa: E731
    turned = jnp.where(last.known, last.sign * sign(last.basis), 1.0)
    turned = jnp.where(result == RESULTS.successful, turned, 1.0)
    pose = _Pose(q, basis, sign(basis), last.orientation * turned, jnp.array(True))
    return pose, ratio, jnp.linalg.pinv(J, rtol=_SINGULAR), result


@printed
class DeadPoint(eqx.Module):
    """The result of `dead_point`.

    **Fields:** `value`: of the drive there, an extreme one [m, rad]; `state`: the pose;
    `direction`: the motion dp that the drive cannot make, of length 1; `result`:
    `RESULTS.successful` or `RESULTS.dead_point_not_found`.
    """

    value: Float[Array, ""]
    state: State
    direction: Velocity
    result: RESULTS

    def __str__(self) -> str:
        found = f"dead point found: the drive reaches its extreme value {in_a_line(self.value)}"
        return judged(self.result, found, "no dead point found")


@checked
def dead_point(
    system: AbstractSystem,
    state: State,
    drive: Any,
    *,
    tolerance: Annotated[float | None, positive] = None,
    max_iterations: Annotated[int, at_least(1)] = 50,
    throw: bool = True,
) -> DeadPoint:
    r"""Find the dead point of a drive next to a pose of a mechanism with one freedom,

    $$ \Phi(q) = 0, \qquad J \varphi = 0, \quad x_q N \varphi = 0, \quad
       \varphi \cdot \varphi = 1, $$

    where x(q) has an extreme value along the motion $\varphi$. The drive cannot move the mechanism
    beyond it, and the branches meet there.

    **Arguments:** `system`, `state`, `drive`: as in `kinematics`, with one drive. Begin near the
    dead point, such as at the last good sample of `kinematics`.

    **Returns:** a `DeadPoint`. It can be differentiated with respect to the system, in both modes,
    under `jit` and `vmap`.

    **Raises:** `ValueError` for arguments of wrong shape; a run-time error if Newton's method does
    not converge and `throw` is true.

    Reference: Gosselin and Angeles (1990), Singularity analysis of closed-loop kinematic chains,
    IEEE Trans. Robotics and Automation 6 (singularities of the first kind).
    """
    system, state, drives, angles = _prepared("dead_point", system, state, drive)
    if len(drives) != 1:
        raise ValueError(f"`dead_point` needs one `drive`, but got {len(drives)}.")
    if tolerance is None:
        tolerance = 1e-10 if state.q.dtype == jnp.float64 else 1e-5
    t = jnp.asarray(state.t, state.q.dtype)
    nothing = to_jax(np.zeros((3, 1), state.q.dtype))
    driven = _Driven(system, drives, angles, t, nothing)
    found = _dead_point(driven, state.q, state.v, tolerance, max_iterations)
    return raise_failure(found, found.result) if throw else found


@eqx.filter_jit
def _dead_point(given: _Driven, q, v, tolerance, max_iterations) -> DeadPoint:
    nv, rest, zero = v.shape[0], jnp.zeros_like(v), jnp.zeros((), q.dtype)

    def stopping(at, d):
        q, phi = at[0], at[1] + d[nv:]
        rows = lambda p: equations(given).positions(zero, given.retract(q, p))  # noqa: E731
        values, along = jax.jvp(rows, (d[:nv],), (phi,))
        return jnp.concatenate([values[:-1], along, (phi @ phi - 1)[None] / 2])

    def moved(at, d):
        return given.retract(at[0], d[:nv]), at[1] + d[nv:]

    def freest():
        J = equations(given).position_jacobian(zero, q, rest)[:-1]
        return jnp.linalg.svd(J, full_matrices=True)[2][-1]

    # The direction is not known at first: no step turns it by more than a part of its length.
    options: Any = dict(max_iterations=max_iterations, longest=0.5, rtol=_SINGULAR)
    (q, phi), size = root(stopping, (q, without_tangents(freest)), moved, 2 * nv, **options)
    left = jnp.max(jnp.abs(stopping((q, phi), jnp.zeros(2 * nv, q.dtype))))
    enough = jnp.maximum(jnp.finfo(q.dtype).eps ** 0.7, tolerance)
    converged = (size <= enough) & (left <= tolerance)
    result = RESULTS.where(converged, RESULTS.successful, RESULTS.dead_point_not_found)
    value = jnp.asarray(given.drives[0](q), q.dtype)
    return DeadPoint(value, State(given.t, q, rest), phi, result)

"""The linear model of a constrained system along a motion."""

from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .._checks import check_no_nan, check_system, with_dtype
from .._compiler import (
    any_staged,
    as_one_program,
    compiled_quickly,
    picked,
    refuted,
    stop_gradient,
)
from .._inputs import at_least, checked, not_negative_or_infinite
from .._linalg import AbstractConstraintSolver, Automatic
from .._printed import counted, judged, printed, span
from .._raising import raise_failure
from .._results import RESULTS, code, first_failure
from .._simulate import Solution
from .._step import as_control
from .._structured import by_structure
from .._system import AbstractSystem, State
from .._tangent_space import nearer_to_constraints
from .._types import Control, RealScalarLike
from ..trajopt import Plan
from .linearise import Near, admissible, independent, verdict
from .tracking import Nominal, nominal


class Stages(eqx.Module):
    """The linear model at the beginning, the middle and the end of each interval of a motion, in
    components xi = G^T dx that are the same throughout the interval, dx = Z xi.

    - `rates`: the dx' for each xi, `(n, 3, nx, m)`. `pushes`: the dx' for each input.
    - `Z`: `(n, 3, nx, m)`, with G^T Z = 1. `G`: `(n, nx, m)`.
    """

    rates: Float[Array, "n 3 nx m"]
    pushes: Float[Array, "n 3 nx nu"]
    Z: Float[Array, "n 3 nx m"]
    G: Float[Array, "n nx m"]

    @property
    def A(self) -> Float[Array, "n 3 m m"]:
        """G^T rates, of xi' = A xi + B du."""
        return jnp.einsum("kxi,ksxj->ksij", self.G, self.rates)

    @property
    def B(self) -> Float[Array, "n 3 m nu"]:
        """G^T pushes."""
        return jnp.einsum("kxi,ksxj->ksij", self.G, self.pushes)


@printed
class LinearMotion(eqx.Module):
    """The linear model xi' = A(t) xi + B(t) du for small deviations from a motion, at the points at
    which the motion is given.

    The deviation of the state is (dp, dv) = Z xi, of coordinates and velocities, measured from the
    moving state. The columns of Z span the deviations that the constraints admit there. They are
    carried along the motion with the least turning, so that A, B and xi are smooth.

    **Fields:** with m independent deviations and nu inputs,

    - `t`, `(n + 1,)`. `A`, `(n + 1, m, m)`. `B`, `(n + 1, m, nu)`.
    - `Z`: `(n + 1, 2 nv, m)`. The columns are orthonormal.
    - `nominal`: the motion, between the points too. `stages`: the model within the intervals.
    - `result`: `RESULTS.successful`, or why the model is not to be trusted: a state violates the
      constraints, the equations could not be solved, or the number of independent deviations is
      not `size` everywhere.
    """

    t: Float[Array, " points"]
    A: Float[Array, "points m m"]
    B: Float[Array, "points m nu"]
    Z: Float[Array, "points nx m"]
    nominal: Nominal
    stages: Stages
    result: RESULTS

    def __str__(self) -> str:
        m, nu = self.B.shape[-2:]
        what = f"{counted(m, 'deviation')}, {counted(nu, 'input')}, {self.t.shape[-1]} points"
        verdict = judged(self.result, "successful", "failed")
        return f"linear model along a motion from {span(self.t, 's')}: {what}\n{verdict}"

    @as_one_program
    def in_all_coordinates(
        self,
    ) -> tuple[Float[Array, "points nx nx"], Float[Array, "points nx nu"]]:
        """A and B of dx' = A dx + B du, for all deviations dx = (dp, dv) that the constraints
        admit. Other deviations have no effect."""
        rates, pushes = self._at_points(self.stages.rates), self._at_points(self.stages.pushes)
        G = jnp.concatenate([self.stages.G, self.stages.G[-1:]])
        return jnp.einsum("kxi,kyi->kxy", rates, _onto(G, self.Z)), pushes

    def discretised(self) -> "DiscreteMotion":
        """The model from point to point, with du constant in each interval. The error is of fourth
        order in the intervals."""
        return DiscreteMotion(*self._discretised(), self)

    @as_one_program
    def _discretised(self) -> tuple[Float[Array, "n m m"], Float[Array, "n m nu"]]:
        n, nu = self.stages.G.shape[0], self.B.shape[-1]
        both = jnp.concatenate([self.stages.A, self.stages.B], axis=-1)
        both = jnp.pad(both, ((0, 0), (0, 0), (0, nu), (0, 0)))
        flow = jax.vmap(lambda x, h: jax.scipy.linalg.expm(magnus(x, h)))(both, jnp.diff(self.t))
        m = self.A.shape[-1]
        into, out = self.changes()
        A, B = out @ flow[:, :m, :m] @ into, out @ flow[:, :m, m:]
        return A, B.reshape(n, m, nu)

    def changes(self) -> tuple[Float[Array, "n m m"], Float[Array, "n m m"]]:
        """For each interval, the matrix from xi at its beginning to the components of `stages`, and
        the one from these to xi at its end."""
        into = jnp.einsum("kxi,kxj->kij", self.stages.G, self.Z[:-1])
        return into, jnp.einsum("kxi,kxj->kij", self.S[1:], self.stages.Z[:, 2])

    @property
    def S(self) -> Float[Array, "points nx m"]:
        """xi = S^T dx: Z as a constant under differentiation."""
        return jax.lax.stop_gradient(self.Z)

    def _at_points(self, x: Array) -> Array:
        return jnp.concatenate([x[:, 0], x[-1:, 2]])


@printed
class DiscreteMotion(eqx.Module):
    """The linear model xi(k+1) = A(k) xi(k) + B(k) du(k) from point to point of a motion, with du
    constant in each interval. `lqr` makes a control of it for a digital controller.

    **Fields:** `A`, `(n, m, m)`. `B`, `(n, m, nu)`. `motion`: the `LinearMotion`, with the points
    and the bases.
    """

    A: Float[Array, "n m m"]
    B: Float[Array, "n m nu"]
    motion: LinearMotion

    def __str__(self) -> str:
        return f"from point to point, with inputs held: {self.motion}"


def _onto(G, Z):
    """The matrix W with W^T dx = G^T dx for admissible dx = Z xi, and 0 for dx across Z."""
    return jnp.einsum("kxj,kyj,kyi->kxi", Z, Z, G)


def magnus(A: Float[Array, "3 m m"], h: Float[Array, ""]) -> Float[Array, "m m"]:
    """The matrix whose exponential is the flow of x' = A x over a time h, up to fourth order, from
    A at the beginning, in the middle and at the end.

    Reference: Blanes, Casas, Oteo and Ros (2009), The Magnus expansion and some of its
    applications, Physics Reports 470, section 5.4."""
    turn = A[0] @ A[2] - A[2] @ A[0]
    return h / 6 * (A[0] + 4 * A[1] + A[2]) - h**2 / 12 * turn


@checked
def linearise_along(
    system: AbstractSystem,
    motion: Plan | Solution,
    control: PyTree = None,
    *,
    size: Annotated[int | None, at_least(0)] = None,
    solver: AbstractConstraintSolver = Automatic(),
    start_tolerance: Annotated[float, not_negative_or_infinite] = 1e-3,
    throw: bool = True,
) -> LinearMotion:
    r"""Linearise a system along a motion, on the constraints.

    The deviation from the motion is $dx = (q \ominus \bar q(t),\; v - \bar v(t))$. It is measured
    from the moving state, so it is right for quaternions. The constraints admit the deviations
    $dx = Z \xi$, and to first order

    $$ \xi' = Z^\mathsf{T} F_x Z \,\xi + Z^\mathsf{T} F_u \, du . $$

    `lqr` makes a control of it that holds the system on the motion.

    **Arguments:**

    - `system`: the system.
    - `motion`: a `Plan`, or a `Solution` with saved states that are dense enough for cubics
      between them. It must be a motion of this system under `control`. The first saved state
      should be the start, `SaveAt(t0=True, steps=True)`.
    - `control`: the control of the motion, u(t, q, v), or constant inputs. The default is that of
      the plan. Only its values along the motion count. So for the feedback of `ilqr`, the model is
      that of the system without the feedback.
    - `size`: the number of independent deviations. By default they are counted at the first state,
      which needs concrete numbers. So `size` must be given under `jax.jit` and `jax.vmap`.
    - `solver`: the solver of the constraints.
    - `start_tolerance`: the largest violation of the constraints in a state, as in `simulate`.
    - `throw`: raise if `result` is not successful.

    **Returns:** a `LinearMotion`. It can be differentiated as a `LinearModel` can, if the motion
    changes with the parameters as motions of the system do, or not at all.

    **Raises:** `ValueError` for batches, for motions without states or with times that do not
    increase, and for a missing `size` under `jax.jit`; a run-time error if `result` is not
    successful and `throw` is true.
    """
    if control is None and isinstance(motion, Plan):
        control = motion.control
    check_no_nan(system=system, control=control)
    t, q, v = points_of(motion)
    control = as_control(control, q.dtype)
    system = with_dtype(system, q.dtype)
    first = State(picked(t, 0), picked(q, 0), picked(v, 0))
    check_system(system, control, first.q, first.v)
    if size is None:
        size = independent(system, first, "linearise_along")
    if control is not None and not any_staged((t, q, v)):
        shapes = (jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in (t, q, v))
        control = by_structure(control, *shapes)
    found = _linearise_along(system, control, t, q, v, size, solver, start_tolerance)
    return raise_failure(found, found.result) if throw else found


def points_of(motion: Plan | Solution) -> tuple[Array, Array, Array]:
    """t, q and v of a motion.

    **Raises:** `ValueError` for motions that cannot be followed from point to point."""
    t, q, v = motion.points()
    if t.ndim != 1:
        raise ValueError(
            f"Argument `motion` must be one motion, but has times of shape {t.shape}. Take one, "
            "`jax.tree.map(lambda x: x[i], motion)`, or use `jax.vmap`."
        )
    if t.shape[0] < 2:
        raise ValueError(
            f"Argument `motion` must have at least two points, but has {t.shape[0]}: choose more "
            "saved times, `saveat=diffrax.SaveAt(t0=True, steps=True)`."
        )
    if refuted(lambda t: np.diff(t) > 0, t):
        k, times = int(np.argmax(~(np.diff(t) > 0))), np.asarray(t)
        raise ValueError(
            "Argument `motion` must have times that increase, but after "
            f"{times[k]:g} s comes {times[k + 1]:g} s. If the simulation failed, its times "
            "stand still: see `motion.result`."
        )
    return t, q, v


@compiled_quickly
def _linearise_along(
    system: AbstractSystem,
    control: Control | None,
    t: Array,
    q: Array,
    v: Array,
    size: int,
    solver: AbstractConstraintSolver,
    tolerance: RealScalarLike,
) -> LinearMotion:
    of = nominal(system, solver, control, t, q, v)
    n = t.shape[0] - 1

    def stage(k, s):
        at, u = t[k] + s * (t[k + 1] - t[k]), of.u(k, s)
        # Between the points the state is interpolated, and violates the constraints a little.
        state = State(at, *nearer_to_constraints(system, at, *of.state(k, s)))
        near = Near(system, solver, state)
        S, Z, right_size = admissible(system, state, size)
        rates, pushes = near.slopes(Z, u, of.structured)
        return S, Z, right_size, rates, pushes

    shares = jnp.asarray([0.0, 0.5, 1.0], q.dtype)
    k = jnp.arange(n)
    S, Z, right_size, rates, pushes = jax.vmap(jax.vmap(stage, (None, 0)), (0, None))(k, shares)
    G = S[:, 1]
    # Z G^T dx = dx for admissible dx, so rates and Z are those of components xi = G^T dx.
    mix = jnp.linalg.inv(jnp.einsum("kxi,ksxj->ksij", G, Z))
    stages = Stages(rates @ mix, pushes, Z @ mix, G)

    S, Z = (jnp.concatenate([x[:, 0], x[-1:, 2]]) for x in (S, Z))
    turn = _carried(S)
    S, Z = S @ turn, Z @ turn
    rates, pushes = (jnp.concatenate([x[:, 0], x[-1:, 2]]) for x in (stages.rates, stages.pushes))
    to_stage = jnp.einsum("kxi,kxj->kij", jnp.concatenate([G, G[-1:]]), Z)
    A = jnp.einsum("kxi,kxj->kij", S, rates @ to_stage)
    B = jnp.einsum("kxi,kxj->kij", S, pushes)

    def judged(k, s):
        u = jax.tree_util.Partial(lambda u, *_: u, of.structured(of.u(k, s)))
        return verdict(
            system, solver, u, of.t[k] + s * (t[k + 1] - t[k]), *of.state(k, s), tolerance
        )

    ends = jnp.append(k, n - 1), jnp.append(jnp.zeros(n, q.dtype), jnp.ones((), q.dtype))
    solved = jax.vmap(judged)(*ends)
    first = jnp.argmax(code(solved) != code(RESULTS.successful))
    solved = jax.tree.map(lambda x: x[first], solved)
    counted = jnp.all(right_size[:, 0]) & right_size[-1, 2]
    counted = RESULTS.where(counted, RESULTS.successful, RESULTS.wrong_size)
    return LinearMotion(t, A, B, Z, of, stages, first_failure(solved, counted))


def _carried(S: Float[Array, "points nx m"]) -> Float[Array, "points m m"]:
    """Orthogonal matrices W such that each S W is as near as possible to the one before."""
    steps = stop_gradient(jnp.einsum("kxi,kxj->kij", S[1:], S[:-1]))
    left, _, right = jnp.linalg.svd(steps)

    def carry(W, turn):
        W = turn @ W
        return W, W

    one = jnp.eye(S.shape[-1], dtype=S.dtype)
    _, turns = jax.lax.scan(carry, one, left @ right)
    return jnp.concatenate([one[None], turns])

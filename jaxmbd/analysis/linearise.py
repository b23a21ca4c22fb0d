"""The motion of a constrained system near a state, and its linear model."""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Complex, Float, PyTree

from .._checks import check_no_nan, check_system, contact_counts, with_dtype
from .._compiler import array_namespace, as_one_program, compiled_quickly, need_known, to_jax
from .._equations import equations
from .._inputs import at_least, checked, not_negative, not_negative_or_infinite, positive
from .._linalg import AbstractConstraintSolver, Automatic
from .._methods import UdwadiaKalaba, point
from .._printed import counted, in_a_line, judged, printed
from .._raising import raise_failure
from .._results import RESULTS, first_failure
from .._search import nonzero, redundancy
from .._step import as_control, near
from .._structured import by_structure
from .._system import AbstractSystem, State, displacement
from .._tangent_space import admissible_count, difference, displaced, state_jacobian
from .._types import Control, Coordinates, RealScalarLike, Rows, Velocity

# What has no linear model: forces that act on one side, or that hold.
_LEFT_OUT = "contact", "dry friction"


def acceleration(
    system: AbstractSystem,
    solver: AbstractConstraintSolver,
    control: Control | None,
    t: RealScalarLike,
    q: Coordinates,
    v: Velocity,
) -> tuple[Velocity, Rows]:
    """Solve M v' = f + J^T lam, J v' = gamma for v' and lam."""
    here = point(equations(system), control, t, q, v)
    method = UdwadiaKalaba(solver, correct=False)
    motion = method.motion(here, method.factorise(here))
    return motion.acceleration, motion.multipliers


def verdict(
    system: AbstractSystem,
    solver: AbstractConstraintSolver,
    control: Control | None,
    t: RealScalarLike,
    q: Coordinates,
    v: Velocity,
    tolerance: RealScalarLike,
) -> RESULTS:
    """Whether the state satisfies the constraints to `tolerance`, and whether its accelerations
    can be solved for."""
    here = point(equations(system), control, t, q, v)
    rows = here.rows
    violation = jnp.concatenate([rows.phi, rows.velocity])
    consistent = jnp.all(jnp.abs(violation) <= tolerance)  # false for NaN
    number = jnp.all(jnp.isfinite(here.f))
    return first_failure(
        RESULTS.where(number, RESULTS.successful, RESULTS.nonfinite_state),
        RESULTS.where(consistent, RESULTS.successful, RESULTS.inconsistent_start),
        here.operator(solver).result(),
    )


class Near(eqx.Module):
    """The rates x' = (dp', dv') of displacements x = (dp, dv) from a state that moves, under inputs
    u."""

    system: AbstractSystem
    solver: AbstractConstraintSolver
    state: State

    @property
    def size(self) -> int:
        return 2 * self.state.v.shape[0]

    def at(self, x: Float[Array, " nx"]) -> tuple[Coordinates, Velocity]:
        """q and v after the displacement x."""
        return displaced(self.system, self.state.q, self.state.v, x)

    def along(
        self,
        dx: Float[Array, " nx"],
        u: Float[Array, " nu"],
        du: Float[Array, " nu"],
        as_u: Callable[[Float[Array, " nu"]], PyTree],
    ) -> Float[Array, " nx"]:
        """The derivative of x' along (dx, du), at x = 0, for the inputs `as_u(u)`."""
        system, t, q, v = self.system, self.state.t, self.state.q, self.state.v
        dp = dx[: v.shape[0]]

        def rates(s):
            q, v = self.at(s * dx)
            control = as_control(as_u(u + s * du), q.dtype)
            return system.qdot(q, v), acceleration(system, self.solver, control, t, q, v)[0]

        zero, one = jnp.zeros((), q.dtype), jnp.ones((), q.dtype)
        _, (d_rate, d_acceleration) = jax.jvp(rates, (zero,), (one,))
        # dq = N(q) dp along the motion, hence N dp' = dq' - N' dp.
        _, turn = jax.jvp(lambda q: system.qdot(q, dp), (q,), (system.qdot(q, v),))
        dp = displacement(system, q, d_rate - turn, v.shape[0])
        return jnp.concatenate([dp, d_acceleration])

    def slopes(
        self,
        Z: Float[Array, "nx n"],
        u: Float[Array, " nu"],
        as_u: Callable[[Float[Array, " nu"]], PyTree],
    ) -> tuple[Float[Array, "nx n"], Float[Array, "nx nu"]]:
        """The derivatives of x' along the columns of Z, and along each input."""
        # All in one `vmap`: two would hold the equations of motion twice.
        n, nu = Z.shape[1], u.shape[0]
        dx = jnp.concatenate([Z.T, jnp.zeros((nu, Z.shape[0]), Z.dtype)])
        du = jnp.concatenate([jnp.zeros((n, nu), u.dtype), jnp.eye(nu, dtype=u.dtype)])
        found = jax.vmap(lambda dx, du: self.along(dx, u, du, as_u), out_axes=1)(dx, du)
        return found[:, :n], found[:, n:]


def admissible(
    system: AbstractSystem, state: State, size: int
) -> tuple[Float[Array, "nx size"], Float[Array, "nx size"], Bool[Array, ""]]:
    """Two bases (S, Z) of the `size` displacements that violate no row. S is orthonormal and a
    constant under differentiation. Z has the same values, and its derivatives follow the null
    space such that S^T Z = 1. Displacements are dx = Z xi with xi = S^T dx."""
    C = state_jacobian(system, state.t, state.q, state.v)
    if C.shape[0] == 0:
        one = jnp.eye(C.shape[1], dtype=C.dtype)
        return one, one, jnp.asarray(size == C.shape[1])
    fixed = jax.lax.stop_gradient(C)
    _, s, Vh = jnp.linalg.svd(fixed, full_matrices=True)
    S = Vh[Vh.shape[0] - size :].T
    # The null space turns by -C^+ dC S. The value of C S is zero up to rounding.
    turn = jnp.linalg.pinv(fixed, rtol=redundancy(s.dtype)) @ (C @ S)
    right_size = C.shape[1] - jnp.sum(nonzero(s, redundancy(s.dtype))) == size
    return S, S - (turn - jax.lax.stop_gradient(turn)), right_size


@printed
class LinearModel(eqx.Module):
    """The linear model xi' = A xi + B du, dy = C xi + D du for small deviations from a state.

    The deviation of the state is (dp, dv) = Z xi, of coordinates and velocities. The columns of Z
    span the deviations that the constraints admit. Conversely, xi = S^T (dp, dv), with S^T Z = 1.

    **Fields:** with n independent deviations (twice the degrees of freedom of a holonomic system),
    nu inputs and ny outputs,

    - `A`, `(n, n)`, `B`, `(n, nu)`, `C`, `(ny, n)`, `D`, `(ny, nu)`.
    - `Z`, `S`: `(2 nv, n)`.
    - `rates`: the (dp', dv') for each xi, `(2 nv, n)`. `pushes`: those for each input.
    - `system`, `state`, `u`: the point of the linearisation.
    - `result`: `RESULTS.successful`, or why the model is not to be trusted: the state violates the
      constraints, the equations could not be solved, or `size` is wrong.
    """

    A: Float[Array, "n n"]
    B: Float[Array, "n nu"]
    C: Float[Array, "ny n"]
    D: Float[Array, "ny nu"]
    Z: Float[Array, "nx n"]
    S: Float[Array, "nx n"]
    rates: Float[Array, "nx n"]
    pushes: Float[Array, "nx nu"]
    system: AbstractSystem
    state: State
    u: PyTree
    result: RESULTS

    def __str__(self) -> str:
        n, nu = self.B.shape[-2:]
        rows = [
            f"linear model: {counted(n, 'deviation')}, {counted(nu, 'input')}, "
            f"{counted(self.C.shape[-2], 'output')}",
            judged(self.result, "successful", "failed"),
        ]
        if self.A.ndim == 2:
            poles = np.sort_complex(np.linalg.eigvals(np.asarray(self.A)))
            rows.insert(1, f"poles [1/s]: {in_a_line(poles)}")
            counts = contact_counts(self.system, self.state.q, self.state.v)
            told = [counted(n, what) for n, what in zip(counts, _LEFT_OUT, strict=True) if n]
            if told:
                rows.append(f"without the forces of {' and '.join(told)}")
        return "\n".join(rows)

    @property
    def poles(self) -> Array:
        """The eigenvalues of A [1/s]. Use `modes` for their derivatives."""
        return jnp.linalg.eigvals(self.A)

    @as_one_program
    def deviation(self, q: Coordinates, v: Velocity) -> Float[Array, " n"]:
        """xi of a nearby state (q, v)."""
        return self.S.T @ difference(self.system, (self.state.q, self.state.v), (q, v))

    def in_all_coordinates(self) -> "LinearModel":
        """The same model in all dx = (dp, dv): dx' = A dx + B du, of which the constraints admit
        dx = Z xi. Other deviations have no effect."""
        xp = array_namespace(self.rates, self.C, self.S)
        S = xp.asarray(self.S)
        A, C = to_jax(xp.asarray(self.rates) @ S.T), to_jax(xp.asarray(self.C) @ S.T)
        one = to_jax(xp.eye(S.shape[0], dtype=S.dtype))
        return dataclasses.replace(self, A=A, B=self.pushes, C=C, Z=one, S=one, rates=A)

    @checked
    @as_one_program
    def discretised(
        self, dt: Annotated[RealScalarLike, positive]
    ) -> tuple[Float[Array, "n n"], Float[Array, "n nu"]]:
        """A_d and B_d of xi(t + dt) = A_d xi(t) + B_d du, with du constant over dt [s]."""
        n, nu = self.B.shape
        both = jnp.concatenate([self.A, self.B], axis=1)
        both = jnp.concatenate([both, jnp.zeros((nu, n + nu), both.dtype)])
        found = jax.scipy.linalg.expm(jnp.asarray(dt, both.dtype) * both)
        return found[:n, :n], found[:n, n:]

    @checked
    @as_one_program
    def frequency_response(
        self, frequency: Annotated[Float[Array, " k"], not_negative]
    ) -> Complex[Array, "k ny nu"]:
        """The transfer matrix G = C (2 pi i f - A)^-1 B + D of dy = G du at frequencies f [Hz]."""
        A, B, C, D = (
            jax.lax.complex(x, jnp.zeros_like(x)) for x in (self.A, self.B, self.C, self.D)
        )
        one = jnp.eye(A.shape[0], dtype=A.dtype)

        def at(s):
            return C @ jnp.linalg.solve(s * one - A, B) + D

        w = 2 * jnp.pi * jnp.asarray(frequency, self.A.dtype)
        return jax.vmap(at)(jax.lax.complex(jnp.zeros_like(w), w))

    def to_scipy(self) -> Any:
        """The model as a `scipy.signal.StateSpace`, for Bode plots, step responses and the like.
        `control.ss` of python-control also takes (A, B, C, D)."""
        from scipy.signal import StateSpace

        return StateSpace(*map(np.asarray, (self.A, self.B, self.C, self.D)))


@checked
def linearise(
    system: AbstractSystem,
    state: State,
    u: PyTree = None,
    *,
    output: Callable[..., PyTree] | None = None,
    size: Annotated[int | None, at_least(0)] = None,
    solver: AbstractConstraintSolver = Automatic(),
    start_tolerance: Annotated[RealScalarLike, not_negative_or_infinite] = 1e-3,
    throw: bool = True,
) -> LinearModel:
    r"""Linearise a system about a state, on the constraints.

    In the deviations $dx = (dp, dv)$, with $q = \bar q(t) \oplus dp$ and $v = \bar v(t) + dv$, the
    motion is $x' = F(x, u)$. The constraints admit the deviations with
    $\partial(\Phi, \Phi', \Psi)/\partial x \; dx = 0$. $Z$ is a basis of these, and $S$ another one
    with $S^\mathsf{T} Z = 1$. So

    $$ \xi' = S^\mathsf{T} F_x Z \,\xi + S^\mathsf{T} F_u \, du . $$

    About an equilibrium this is the usual linear model. In a state that moves, it describes the
    deviation from the motion at this instant, measured from the moving state. For a rotor that
    turns steadily, A is constant. `linearise_along` follows a motion. Forces of contacts and of dry
    friction are left out, and the printed model says so.

    **Arguments:**

    - `system`: the system. `state`: the state to linearise about; it must satisfy the constraints
      (see `assemble`).
    - `u`: the inputs at the state, any pytree of numbers. A control u(t, q, v) instead gives the
      closed loop, without inputs.
    - `output`: y = output(t, q, v, u), any pytree of numbers. Default: all of (dp, dv).
    - `size`: the number n of independent deviations. By default they are counted, which needs
      concrete numbers. So `size` must be given under `jax.jit` and `jax.vmap`.
    - `solver`: the solver of the constraints.
    - `start_tolerance`: the largest violation of the constraints in the state, as in `simulate`.
    - `throw`: raise if `result` is not successful.

    **Returns:** a `LinearModel`. It can be differentiated with respect to everything, also with
    redundant rows. They are derivatives of A, B, C, D in the basis S.

    **Raises:** `ValueError` for arguments of wrong shape, and for a missing `size` under `jax.jit`;
    a run-time error if `result` is not successful and `throw` is true.

    Reference: Negrut and Ortiz (2006), A practical approach for the linearization of the
    constrained multibody dynamics equations, J. Comput. Nonlinear Dynamics 1, 230-239.
    """
    check_no_nan(system=system, state=state, u=u)
    check_system(system, as_control(u, state.q.dtype), state.q, state.v)
    size = independent(system, state, "linearise") if size is None else size
    dtype, given = state.q.dtype, state.angles
    state = State(jnp.asarray(state.t, dtype), state.q, state.v)
    system, u = with_dtype((near(system, given), u), dtype)
    control, inputs = u, u
    if callable(u):
        control = by_structure(u, state.t, state.q, state.v)
        inputs = jax.eval_shape(control, state.t, state.q, state.v)
    if output is not None:
        output = by_structure(output, state.t, state.q, state.v, inputs)
    model = _linearise(system, state, control, output, size, solver, start_tolerance)
    model = dataclasses.replace(model, u=u)
    return raise_failure(model, model.result) if throw else model


def independent(system: AbstractSystem, state: State, caller: str) -> int:
    """The number of independent deviations (dp, dv).

    **Raises:** `ValueError` for traced numbers."""
    need_known(
        (system, state),
        f"Under `jax.jit` and `jax.vmap`, `{caller}` needs `size`, the number of independent "
        "deviations (twice the freedoms of a holonomic system), since shapes depend on it.",
    )
    system = with_dtype(system, state.q.dtype)
    return admissible_count(system, jnp.asarray(state.t, state.q.dtype), state.q, state.v)


@compiled_quickly
def _linearise(system, state, u, output, size, solver, tolerance):
    near = Near(system, solver, state)
    S, Z, right_size = admissible(system, state, size)
    if u is None or callable(u):
        inputs, as_u = jnp.zeros(0, state.q.dtype), lambda _: u
    else:
        inputs, as_u = ravel_pytree(u)
    at_rest = jnp.zeros(near.size, Z.dtype)

    rates, pushes = near.slopes(Z, inputs, as_u)

    def y(x, inputs):
        if output is None:
            return x
        q, v = near.at(x)
        of = as_u(inputs)
        return ravel_pytree(output(state.t, q, v, of(state.t, q, v) if callable(of) else of))[0]

    of_x, D = jax.jacfwd(y, argnums=(0, 1))(at_rest, inputs)
    control = as_control(as_u(inputs), Z.dtype)
    solved = verdict(system, solver, control, state.t, state.q, state.v, tolerance)
    counted = RESULTS.where(right_size, RESULTS.successful, RESULTS.wrong_size)
    result = first_failure(solved, counted)
    A, B, C = S.T @ rates, S.T @ pushes, of_x @ Z
    return LinearModel(A, B, C, D, Z, S, rates, pushes, system, state, u, result)

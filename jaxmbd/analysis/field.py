"""The motion of a system near a state, in the displacements (dp, dv) from it."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._equations import equations
from .._linalg import AbstractConstraintSolver
from .._methods import UdwadiaKalaba, point
from .._results import RESULTS, first_failure
from .._search import nonzero, redundancy
from .._step import as_control
from .._system import AbstractSystem, State, displacement
from .._tangent_space import displaced, state_jacobian
from .._types import Control, Coordinates, RealScalarLike, Rows, Velocity


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
        as_u: Callable[[Float[Array, " nu"]], Any],
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
        as_u: Callable[[Float[Array, " nu"]], Any],
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

"""The equations of motion at one instant, for given multipliers."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..._linalg import inverse
from ..._methods import point
from ..._system import AbstractSystem
from ..._types import Coordinates, RealScalarLike, Rows, Velocity
from ..controls import Held


class Instant(NamedTuple):
    """The motion at (t, q, v, u, lam): q', v', and the residuals of the chosen rows."""

    qdot: Coordinates
    acceleration: Velocity
    position: Rows
    velocity: Rows
    level: Rows  # at the level of acceleration: J v' - gamma
    J: Float[Array, "rows nv"]
    M: Float[Array, "nv nv"]


@jax.custom_jvp
def solve(M: Float[Array, "n n"], b: Float[Array, " n"]) -> Float[Array, " n"]:
    """Compute M^-1 b. Derivatives of all orders and in all directions reuse one inverse. The
    derivatives of an elimination would go through each of its operations."""
    return inverse(M)[0] @ b


@solve.defjvp
def _solve_jvp(primals, tangents):
    (M, b), (dM, db) = primals, tangents
    a = solve(M, b)
    return a, solve(M, db - dM @ a)


class Dynamics(eqx.Module):
    """The equations M v' = f + J^T lam with only the independent `rows`, one entry of lam for each.

    - `holonomic`: the independent rows of Phi. `rows`: those of (Phi, Psi), holonomic ones first.
    """

    system: AbstractSystem
    holonomic: Int[Array, " nh"]
    rows: Int[Array, " nc"]

    def at(self, t: RealScalarLike, q: Coordinates, v: Velocity, u: Any, lam: Rows) -> Instant:
        """The motion at one instant."""
        here = point(self.system, Held(u), t, q, v).dense()
        J = here.rows.J[self.rows]
        a = solve(here.M, here.f + J.T @ lam)
        return Instant(
            self.system.qdot(q, v),
            a,
            here.rows.phi[self.holonomic],
            here.rows.velocity[self.rows],
            J @ a - here.rows.gamma[self.rows],
            J,
            here.M,
        )

    def ends(self, interval: Any) -> tuple[Instant, Instant]:
        """The motion at both ends of an interval."""
        t, h, begin, end, _ = interval
        times = jnp.stack([t, t + h])
        knots = jax.tree.map(lambda a, b: jnp.stack([a, b]), begin, end)
        both = jax.vmap(self.at)(times, *knots)  # two calls would take longer to compile
        return jax.tree.map(lambda x: x[0], both), jax.tree.map(lambda x: x[1], both)

    def normal(self, instant: Instant, slack: Rows) -> Velocity:
        """J^T slack with the holonomic rows of J: a displacement across the constraints."""
        return instant.J[: self.holonomic.shape[0]].T @ slack

    def multipliers(self, t, q, v, u) -> Rows:
        """The lam of least norm that satisfies the chosen rows."""
        free = self.at(t, q, v, u, jnp.zeros(self.rows.shape[0], q.dtype))
        G = free.J @ jax.vmap(solve, (None, 1), 1)(free.M, free.J.T)
        return -jnp.linalg.pinv(G, hermitian=True) @ free.level

    @eqx.filter_jit
    def all_multipliers(self, t, q, v, u) -> Float[Array, "points nc"]:
        """`multipliers` at many points."""
        return jax.vmap(self.multipliers)(t, q, v, u)

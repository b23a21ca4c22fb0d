"""Phi and Psi -> rows: values, Jacobian and right sides, by forward-mode differentiation."""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._linalg import AbstractEquationMap, BlockDiagonal, BlockRows, CoupledBlocks
from ._system import AbstractSystem, has_plain_coordinates, kinematic_matrix
from ._types import Coordinates, Force, RealScalarLike, Rows, Velocity

# q, or what a structured system has made of it: see `placed`.
Configuration: TypeAlias = Coordinates | Any


class ConstraintRows(NamedTuple):
    """All rows at one (t, q, v), holonomic ones first.

    - `phi`: Phi, shape `(nh,)`; nonholonomic rows have no position level.
    - `velocity`: (Phi', Psi) = (J v + Phi_t, Psi), shape `(nc,)`.
    - `J`: (Phi_q N, dPsi/dv), shape `(nc, nv)`; `BlockRows` of a structured system.
    - `gamma`: right side of J v' = gamma, shape `(nc,)`: minus the time derivative of `velocity`
      at constant v, so with J' v, Phi_qt, Phi_tt and N' all included.
    """

    phi: Float[Array, " nh"]
    velocity: Rows
    J: Any
    gamma: Rows

    def position(self, holonomic: Float[Array, " nh"]) -> Rows:
        """Extend values of the holonomic rows by zeros for the nonholonomic ones."""
        missing = self.velocity.shape[0] - self.phi.shape[0]
        return jnp.concatenate([holonomic, jnp.zeros(missing, holonomic.dtype)])


class AbstractStructuredSystem(AbstractSystem):
    """A system that knows how sparse its equations are, and linearises them itself: M is block
    diagonal, but for inertia that few blocks share, and each row touches few of its blocks.

    Methods take q, or what `placed` makes of it."""

    @abc.abstractmethod
    def placed(self, q: Configuration) -> Any:
        """q with what they all need of it, derived once."""

    @abc.abstractmethod
    def mass_blocks(self, q: Configuration) -> BlockDiagonal | CoupledBlocks:
        """M(q)."""

    @abc.abstractmethod
    def inertia(self, q: Configuration, a: Velocity) -> Force:
        """M(q) a, without M."""

    @abc.abstractmethod
    def inertial_force(
        self, q: Configuration, v: Velocity, h: RealScalarLike | None = None
    ) -> Force:
        """The part of f that weight and inertia make: at (q, v), or its mean over a step `h` from
        there, such that inertia by itself neither makes nor takes energy in it."""

    @abc.abstractmethod
    def external_force(self, t: RealScalarLike, q: Configuration, v: Velocity, u: Any) -> Force:
        """The rest of f."""

    @abc.abstractmethod
    def linearised(self, t: RealScalarLike, q: Configuration, v: Velocity) -> ConstraintRows:
        """All rows at (t, q, v), with J as `BlockRows`, those of Phi first."""

    @abc.abstractmethod
    def reach(self, J: BlockRows) -> Rows:
        """By how much a turn of its blocks by 1 changes each row, at most [Phi's unit / rad]."""

    @abc.abstractmethod
    def contact_rows(self, t: RealScalarLike, q: Configuration) -> Any:
        """The contacts, as `ContactRows`."""

    @abc.abstractmethod
    def row_map(
        self, t: RealScalarLike, q: Configuration, v: Velocity
    ) -> Callable[[Velocity], Float[Array, " nc"]]:
        """The linear function x -> J x of all rows, without J."""


def placed(system: AbstractSystem, q: Coordinates) -> Any:
    """What the functions below are best given for q: of a structured system, with all that they
    need of it."""
    return system.placed(q) if isinstance(system, AbstractStructuredSystem) else q


@eqx.filter_jit
def mass_matrix(system: AbstractSystem, q: Configuration) -> Any:
    """M(q), in the dtype of the state whatever constants the user wrote; in blocks of a structured
    system."""
    if isinstance(system, AbstractStructuredSystem):
        return system.mass_blocks(q)
    return system.mass_matrix(q).astype(q.dtype)


@eqx.filter_jit
def _phi(system: AbstractSystem, q, t):
    phi = jnp.ravel(jnp.asarray(system.constraint(q, t), q.dtype))
    return phi if system.active is None else jnp.where(system.active[: phi.shape[0]], phi, 0.0)


@eqx.filter_jit
def _psi(system: AbstractSystem, q, v, t):
    psi = jnp.ravel(jnp.asarray(system.nonholonomic(q, v, t), q.dtype))
    if system.active is None:
        return psi
    return jnp.where(system.active[system.active.shape[0] - psi.shape[0] :], psi, 0.0)


def _row_map(system: AbstractStructuredSystem, t, q, v) -> Callable[[Velocity], Rows]:
    rows = system.row_map(t, q, v)
    active = system.active
    return rows if active is None else lambda x: jnp.where(active, rows(x), 0.0)


@eqx.filter_jit
def _linearised(system: AbstractStructuredSystem, t, q, v) -> ConstraintRows:
    rows = system.linearised(t, q, v)
    if system.active is None:
        return rows
    acts = system.active.astype(q.dtype)
    return ConstraintRows(
        rows.phi * acts[: rows.phi.shape[0]],
        rows.velocity * acts,
        rows.J.switched(acts),
        rows.gamma * acts,
    )


def positions(system: AbstractSystem, t: RealScalarLike, q: Configuration) -> Float[Array, " nh"]:
    """Phi(q, t), flattened."""
    return _phi(system, q, t)


def row_count(system: AbstractSystem, t: RealScalarLike, q: Coordinates, v: Velocity) -> int:
    """How many rows there are, of Phi and Psi."""
    phi = eqx.filter_eval_shape(_phi, system, q, t)
    psi = eqx.filter_eval_shape(_psi, system, q, v, t)
    return phi.size + psi.size


def position_jacobian(
    system: AbstractSystem, t: RealScalarLike, q: Configuration, v: Velocity
) -> Any:
    """J = Phi_q N of the holonomic rows. Of `v` only the shape is used."""
    if isinstance(system, AbstractStructuredSystem):
        return _linearised(system, t, q, v).J.first(_phi(system, q, t).shape[0])

    # Phi along q + N dp to first order in dp: the linear map is differentiated only once.
    def displaced(dp):
        return _phi(system, q + system.qdot(q, dp), t)

    return jax.jacfwd(displaced)(jnp.zeros_like(v))


def velocities(system: AbstractSystem, t: RealScalarLike, q: Coordinates, v: Velocity) -> Rows:
    """(Phi', Psi) at (t, q, v)."""
    t = jnp.asarray(t, q.dtype)
    rate = (system.qdot(q, v), jnp.ones_like(t))
    _, phidot = jax.jvp(lambda q, t: _phi(system, q, t), (q, t), rate)
    return jnp.concatenate([phidot, _psi(system, q, v, t)])


class SystemMap(AbstractEquationMap):
    """M a, J a and J^T lam of a system at (t, q, v), by directional derivatives. Each is traced and
    differentiated once for all solves with such a system."""

    system: AbstractSystem
    t: RealScalarLike
    q: Configuration
    v: Velocity

    def _displaced(self, dp):
        """The rows after a displacement dp, to first order."""
        q = self.q + self.system.qdot(self.q, dp)
        phi = _phi(self.system, q, self.t)
        return jnp.concatenate([phi, _psi(self.system, self.q, self.v + dp, self.t)])

    @eqx.filter_jit
    def inertia(self, a):
        if isinstance(self.system, AbstractStructuredSystem):
            return self.system.inertia(self.q, a)
        return mass_matrix(self.system, self.q) @ a

    @eqx.filter_jit
    def rows(self, a):
        if isinstance(self.system, AbstractStructuredSystem):
            return _row_map(self.system, self.t, self.q, self.v)(a)
        return jax.jvp(self._displaced, (jnp.zeros_like(a),), (a,))[1]

    @eqx.filter_jit
    def reaction(self, lam):
        if isinstance(self.system, AbstractStructuredSystem):
            rows = _row_map(self.system, self.t, self.q, self.v)
            return jax.linear_transpose(rows, self.v)(lam)[0]
        return jax.vjp(self._displaced, jnp.zeros_like(self.v))[1](lam)[0]

    @eqx.filter_jit
    def left(self, a, lam, w):
        if isinstance(self.system, AbstractStructuredSystem):
            rows = _row_map(self.system, self.t, self.q, self.v)
        else:
            rows = jax.linearize(self._displaced, jnp.zeros_like(a))[1]
        return self.inertia(a) - jax.linear_transpose(rows, a)(lam)[0], rows(w)


@eqx.filter_jit
def tilt(
    system: AbstractSystem, q: Configuration, v: Velocity, J: Any, phi: Float[Array, " nh"]
) -> Float[Array, ""] | None:
    """By how much the violation `phi` may have turned the rows [rad], at most: |Phi_i| beside what
    a turn by 1 would change it by, judged from the lengths in J, or in q. `None` where rows are
    independent anyway. Of `v` only the shape is used."""
    J, q, phi = jax.lax.stop_gradient((J, q, phi))
    if J.shape[0] < 2:
        return None
    if isinstance(system, AbstractStructuredSystem):
        if J.independent:
            return None
        reach = system.reach(J)
    else:
        size = jnp.abs(q)
        if not has_plain_coordinates(system):
            size = size @ jnp.abs(kinematic_matrix(system, q, v.shape[0]))
        # One size for all coordinates: some vanish in places without being small.
        reach = jnp.sum(jnp.abs(J), axis=1) * jnp.max(size)
    tiny = jnp.finfo(q.dtype).tiny
    return jnp.max(jnp.abs(phi) / (reach[: phi.shape[0]] + tiny), initial=0.0)


def constraint_rows(
    system: AbstractSystem, t: RealScalarLike, q: Configuration, v: Velocity
) -> ConstraintRows:
    """All rows of `system` at (t, q, v)."""
    t = jnp.asarray(t, q.dtype)
    if isinstance(system, AbstractStructuredSystem):
        return _linearised(system, t, q, v)
    rate = (system.qdot(q, v), jnp.ones_like(t))
    velocity, drift = jax.jvp(lambda q, t: velocities(system, t, q, v), (q, t), rate)
    J = jnp.concatenate(
        [
            position_jacobian(system, t, q, v),
            jax.jacfwd(lambda v: _psi(system, q, v, t))(v),
        ]
    )
    return ConstraintRows(_phi(system, q, t), velocity, J, -drift)

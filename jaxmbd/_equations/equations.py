"""The equations of a system: mass matrix, force, and rows with their derivatives.

Only this file distinguishes systems that know the structure of their equations from others. All
other files call `equations(system)`, whose methods return arrays or blocks.
"""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._checks import expect_shape
from .._compiler import MAX_REDUCED, largest
from .._linalg import AbstractEquationMap, MatrixMap
from .._system import AbstractSystem, has_plain_coordinates, kinematic_matrix
from .._types import Control, Coordinates, Force, RealScalarLike, Rows, Velocity
from .internal import inputs
from .structured import AbstractStructuredSystem, Configuration, ConstraintRows


class AbstractEquations(eqx.Module):
    """The equations of a system, with the rows of (Phi, Psi) that are `active`, or all for `None`.
    Inactive rows are zero, so that the shapes do not depend on which rows act.

    Methods take q, or the result of `kinematics(q)`.
    """

    system: eqx.AbstractVar[AbstractSystem]
    active: eqx.AbstractVar[Bool[Array, " rows"] | None]

    # Whether M and J are blocks rather than arrays.
    in_blocks: ClassVar[bool]

    @abc.abstractmethod
    def kinematics(self, q: Configuration) -> Any:
        """q together with quantities that several methods derive from it. Pass the result to them
        in place of q, so that these quantities are computed once."""

    @abc.abstractmethod
    def mass(self, q: Configuration) -> Any:
        """M(q)."""

    @abc.abstractmethod
    def inertia(self, q: Configuration, a: Velocity) -> Force:
        """M(q) a."""

    @abc.abstractmethod
    def mean_inertial_force(self, q: Configuration, v: Velocity, h: RealScalarLike) -> Force | None:
        """The mean of the forces of inertia and weight over a step h, to be passed to `force` as
        `inertial`; `None` if the system does not separate them from its other forces."""

    @abc.abstractmethod
    def force(
        self,
        control: Control | None,
        t: RealScalarLike,
        q: Coordinates,
        v: Velocity,
        inertial: Force | None = None,
        here: Any = None,
    ) -> Force:
        """f(t, q, v, u) plus the nonideal constraint force C(q, v, t). Adding C to f gives Udwadia
        and Kalaba's nonideal term: the multipliers balance its part across the admissible motion.
        `inertial`: the forces of inertia and weight, if they are known already. `here`: the result
        of `kinematics(q)`, if it is known already."""

    @eqx.filter_jit
    def internal(
        self,
        control: Control | None,
        t: RealScalarLike,
        q: Coordinates,
        v: Velocity,
        z: Float[Array, " nz"],
    ) -> Float[Array, " nz"]:
        """z' of the internal states."""
        u, *_ = inputs(control, t, q, v)
        rate = self.system.internal(t, q, v, u, z)
        expect_shape("`internal(t, q, v, u, z)`", rate, z.shape, f"nz = {z.shape[0]}")
        return rate.astype(z.dtype)

    @abc.abstractmethod
    def applied_force(
        self, control: Control | None, t: RealScalarLike, q: Coordinates, v: Velocity
    ) -> Force:
        """`force` without the forces of inertia, which follow from M."""

    @abc.abstractmethod
    def rows(self, t: RealScalarLike, q: Configuration, v: Velocity) -> ConstraintRows:
        """All rows at (t, q, v)."""

    @abc.abstractmethod
    def position_jacobian(self, t: RealScalarLike, q: Configuration, v: Velocity) -> Any:
        """J = Phi_q N of the holonomic rows. Of `v` only the shape is used."""

    @abc.abstractmethod
    def reach(self, q: Configuration, v: Velocity, J: Any) -> Rows | None:
        """An upper bound on the change of each row by a rotation of 1 rad [unit of Phi / rad],
        estimated from the lengths in J or q; `None` if the rows are known to be independent."""

    @abc.abstractmethod
    def row_map(self, t: RealScalarLike, q: Configuration, v: Velocity) -> Any:
        """The linear function x -> J x."""

    def contacts(self, t: RealScalarLike, q: Configuration) -> Any:
        """The contacts as `ContactRows`; `None` if they follow from `gap` and `slip`."""
        del t, q
        return None

    @eqx.filter_jit
    def positions(self, t: RealScalarLike, q: Configuration) -> Float[Array, " nh"]:
        """Phi(q, t), flattened."""
        phi = jnp.ravel(jnp.asarray(self.system.constraint(q, t), q.dtype))
        return phi if self.active is None else jnp.where(self.active[: phi.shape[0]], phi, 0.0)

    @eqx.filter_jit
    def nonholonomic(self, t: RealScalarLike, q: Configuration, v: Velocity) -> Rows:
        """Psi(q, v, t), flattened."""
        psi = jnp.ravel(jnp.asarray(self.system.nonholonomic(q, v, t), q.dtype))
        if self.active is None:
            return psi
        return jnp.where(self.active[self.active.shape[0] - psi.shape[0] :], psi, 0.0)

    def velocities(self, t: RealScalarLike, q: Coordinates, v: Velocity) -> Rows:
        """(Phi', Psi)."""
        t = jnp.asarray(t, q.dtype)
        rate = (self.system.qdot(q, v), jnp.ones_like(t))
        _, phidot = jax.jvp(lambda q, t: self.positions(t, q), (q, t), rate)
        return jnp.concatenate([phidot, self.nonholonomic(t, q, v)])

    def violation(
        self, t: RealScalarLike, q: Coordinates, v: Velocity
    ) -> tuple[Float[Array, " nh"], Rows]:
        """Phi and (Phi', Psi), all zero on the constraints."""
        return self.positions(t, q), self.velocities(t, q, v)

    def row_count(self, t: RealScalarLike, q: Coordinates, v: Velocity) -> int:
        """The number of rows of Phi and Psi."""
        phi = eqx.filter_eval_shape(type(self).positions, self, t, q)
        psi = eqx.filter_eval_shape(type(self).nonholonomic, self, t, q, v)
        return phi.size + psi.size

    @eqx.filter_jit
    def tilt(
        self, q: Configuration, v: Velocity, J: Any, phi: Float[Array, " nh"]
    ) -> Float[Array, ""] | None:
        """An upper bound on the angle by which the violation `phi` may have rotated the rows [rad]:
        the largest |Phi_i| / `reach`_i. `None` if the rows are known to be independent. Of `v` only
        the shape is used."""
        J, q, phi = jax.lax.stop_gradient((J, q, phi))
        reach = None if J.shape[0] < 2 else self.reach(q, v, J)
        if reach is None:
            return None
        tiny = jnp.finfo(q.dtype).tiny
        return largest(phi / (reach[: phi.shape[0]] + tiny))

    def map(self, t: RealScalarLike, q: Configuration, v: Velocity) -> "EquationMap":
        """M and J at (t, q, v) as linear functions."""
        return EquationMap(self, t, q, v)

    @abc.abstractmethod
    def map_of(
        self, M: Any, J: Any, t: RealScalarLike, q: Configuration, v: Velocity
    ) -> AbstractEquationMap:
        """The same where the matrices M and J are known: the functions to differentiate."""


class Differentiated(AbstractEquations):
    """The equations of a system whose functions a user wrote, by forward-mode differentiation."""

    system: AbstractSystem
    active: Bool[Array, " rows"] | None
    in_blocks: ClassVar[bool] = False

    def kinematics(self, q):
        return q

    @eqx.filter_jit
    def mass(self, q):
        # In the dtype of the state, whatever the dtype of constants in the user's function.
        return self.system.mass_matrix(q).astype(q.dtype)

    def inertia(self, q, a):
        return self.mass(q) @ a

    def mean_inertial_force(self, q, v, h):
        return None

    @eqx.filter_jit
    def force(self, control, t, q, v, inertial=None, here=None):
        assert inertial is None
        f = self.system.force(t, q, v, *inputs(control, t, q, v))
        sizes = f"nq = {q.shape[0]}, nv = {v.shape[0]}"
        expect_shape("`force(t, q, v, u)`", f, v.shape, sizes)
        return f.astype(q.dtype) + self.system.nonideal_force(q, v, t).astype(q.dtype)

    def applied_force(self, control, t, q, v):
        return self.force(control, t, q, v) - self._inertial_force(q, v)

    def _inertial_force(self, q, v):
        """The part of f that is due to inertia, by Hamel's equations as in `LagrangianSystem`, with
        the derivative of `difference` as the left inverse of N."""
        system, qdot = self.system, self.system.qdot(q, v)

        def transposed(q, w):  # N^T w
            return jax.linear_transpose(lambda x: system.qdot(q, x), v)(w)[0]

        p, p_rate = jax.jvp(lambda q: self.inertia(q, v), (q,), (qdot,))
        if has_plain_coordinates(system):
            return jax.grad(lambda q: v @ self.inertia(q, v) / 2)(q) - p_rate
        _, pull = jax.vjp(lambda x: system.coordinates.difference(q, x), q)
        w = pull(p)[0]
        along = jax.grad(lambda q: v @ self.inertia(q, v) / 2 - w @ system.qdot(q, v))(q)
        _, turning = jax.jvp(lambda q: transposed(q, w), (q,), (qdot,))
        return transposed(q, along) - p_rate + turning

    def rows(self, t, q, v):
        t = jnp.asarray(t, q.dtype)
        rate = (self.system.qdot(q, v), jnp.ones_like(t))
        velocity, drift = jax.jvp(lambda q, t: self.velocities(t, q, v), (q, t), rate)
        J = jnp.concatenate(
            [
                self.position_jacobian(t, q, v),
                jax.jacfwd(lambda v: self.nonholonomic(t, q, v))(v),
            ]
        )
        return ConstraintRows(self.positions(t, q), velocity, J, -drift)

    def position_jacobian(self, t, q, v):
        # Phi along q + N dp, to first order in dp. So the linear map is differentiated only once.
        def displaced(dp):
            return self.positions(t, q + self.system.qdot(q, dp))

        return jax.jacfwd(displaced)(jnp.zeros_like(v))

    def reach(self, q, v, J):
        size = jnp.abs(q)
        if not has_plain_coordinates(self.system):
            size = size @ jnp.abs(kinematic_matrix(self.system, q, v.shape[0]))
        # The largest entry stands for all coordinates, since a coordinate may vanish at q without
        # being small elsewhere.
        return jnp.sum(jnp.abs(J), axis=1) * jnp.max(size)

    def map_of(self, M, J, t, q, v):
        # One directional derivative of the user's functions for each product. Through J it would
        # be one for each column.
        return self.map(t, q, v)

    def row_map(self, t, q, v):
        def displaced(dp):
            phi = self.positions(t, q + self.system.qdot(q, dp))
            return jnp.concatenate([phi, self.nonholonomic(t, q, v + dp)])

        return jax.linearize(displaced, jnp.zeros_like(v))[1]


class Structured(AbstractEquations):
    """The equations of a system that linearises itself."""

    system: AbstractStructuredSystem
    active: Bool[Array, " rows"] | None
    in_blocks: ClassVar[bool] = True

    def kinematics(self, q):
        return self.system.kinematics(q)

    @eqx.filter_jit
    def mass(self, q):
        return self.system.mass_blocks(q)

    def inertia(self, q, a):
        return self.system.inertia(q, a)

    def mean_inertial_force(self, q, v, h):
        return self.system.inertial_force(q, v, h)

    @eqx.filter_jit
    def force(self, control, t, q, v, inertial=None, here=None):
        given = inputs(control, t, q, v)
        here = self.system.kinematics(q) if here is None else here
        inertial = self.system.inertial_force(here, v) if inertial is None else inertial
        f = inertial + self.system.external_force(t, here, v, *given)
        return f.astype(q.dtype) + self.system.nonideal_force(q, v, t).astype(q.dtype)

    def applied_force(self, control, t, q, v):
        weight = self.system.inertial_force(q, jnp.zeros_like(v))
        return self.force(control, t, q, v, weight)

    @eqx.filter_jit
    def _linearised(self, t, q, v):
        rows = self.system.linearised(t, q, v)
        if self.active is None:
            return rows
        acts = self.active.astype(q.dtype)
        return ConstraintRows(
            rows.phi * acts[: rows.phi.shape[0]],
            rows.velocity * acts,
            rows.J.switched(acts),
            rows.gamma * acts,
        )

    def rows(self, t, q, v):
        return self._linearised(jnp.asarray(t, q.dtype), q, v)

    def position_jacobian(self, t, q, v):
        return self._linearised(t, q, v).J.first(self.positions(t, q).shape[0])

    def reach(self, q, v, J):
        return None if J.independent else self.system.reach(J)

    def contacts(self, t, q):
        return self.system.contact_rows(t, q)

    def map_of(self, M, J, t, q, v):
        # The cotangents of all products with J add up to the cotangent of J, so that a gradient
        # differentiates the geometry once. Through the functions it would do so for each product,
        # and a step with redundant rows takes twelve. Of larger J the products are written out (see
        # `contracted`), and their cotangents would take longer than the functions.
        small = all(piece.size <= MAX_REDUCED for piece in J.pieces)
        return MatrixMap(M, J) if small else self.map(t, q, v)

    def row_map(self, t, q, v):
        rows, active = self.system.row_map(t, q, v), self.active
        return rows if active is None else lambda x: jnp.where(active, rows(x), 0.0)


def equations(
    system: AbstractSystem | AbstractEquations, active: Bool[Array, " rows"] | None = None
) -> AbstractEquations:
    """The equations of a system with these active rows. Equations are returned unchanged."""
    if isinstance(system, AbstractEquations):
        return system
    structured = isinstance(system, AbstractStructuredSystem)
    return Structured(system, active) if structured else Differentiated(system, active)


def specialised(system: Any, on: bool = True) -> Any:
    """`AbstractStructuredSystem.specialised`; other systems unchanged."""
    return system.specialised(on) if isinstance(system, AbstractStructuredSystem) else system


def among(system: Any, pairs: Int[Array, "contacts 3"] | None) -> Any:
    """`AbstractStructuredSystem.among`."""
    assert isinstance(system, AbstractStructuredSystem)
    assert pairs is not None
    return system.among(pairs)


def pieces_of(system: Any, pairs: Int[Array, "contacts 3"]) -> tuple[Int[Array, "contacts 2"], int]:
    """`AbstractStructuredSystem.pieces_of`."""
    assert isinstance(system, AbstractStructuredSystem)
    return system.pieces_of(pairs)


class EquationMap(AbstractEquationMap):
    """M a, J a and J^T lam at (t, q, v), by directional derivatives, without the matrices. Each
    function is traced and differentiated once for all solves with systems of the same
    structure."""

    equations: AbstractEquations
    t: RealScalarLike
    q: Configuration
    v: Velocity

    def _rows(self):
        return self.equations.row_map(self.t, self.q, self.v)

    @eqx.filter_jit
    def inertia(self, a):
        return self.equations.inertia(self.q, a)

    @eqx.filter_jit
    def rows(self, a):
        return self._rows()(a)

    @eqx.filter_jit
    def reaction(self, lam):
        return self._transposed(self._rows(), lam)

    @eqx.filter_jit
    def left(self, a, lam, w):
        rows = self._rows()
        return self.inertia(a) - self._transposed(rows, lam), rows(w)

    def _transposed(self, rows, lam):
        # JAX prints callables that are no plain functions, jaxpr and all, to name them.
        return jax.linear_transpose(lambda x: rows(x), self.v)(lam)[0]

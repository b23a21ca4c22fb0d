"""Projection of position and velocity onto the constraints, after any step."""

import abc
from typing import Annotated

import equinox as eqx
import jax.numpy as jnp

from .._equations import AbstractEquations, equations
from .._inputs import at_least, checked, positive
from .._linalg import AbstractConstraintSolver, Automatic, ConstraintOperator
from .._results import RESULTS
from .._system import AbstractSystem, has_plain_coordinates, kinematic_matrix
from .._types import Coordinates, MassMatrix, RealScalarLike, Velocity


class AbstractNorm(eqx.Module):
    """The norm in which a correction is the smallest."""

    @abc.abstractmethod
    def metric(self, system: AbstractSystem, q: Coordinates, v: Velocity) -> MassMatrix:
        """W of dp^T W dp. Of `v` only the shape is used."""


class KineticEnergy(AbstractNorm):
    """dp^T M dp: heavy parts move least. The norm does not depend on the choice of coordinates."""

    def metric(self, system, q, v):
        del v
        return equations(system).mass(q)


class Euclidean(AbstractNorm):
    """|N dp|^2, the Euclidean distance in the coordinates along the kinematic map, so that
    quaternions stay on the unit sphere."""

    def metric(self, system, q, v):
        if has_plain_coordinates(system):
            return jnp.eye(v.shape[0], dtype=q.dtype)
        N = kinematic_matrix(system, q, v.shape[0])
        return N.T @ N


@checked
class Projection(eqx.Module):
    """Newton iterations for Phi(q, t) = 0, then one linear solve for the velocity,

        dp = -W^-1 J^T (J W^-1 J^T)^+ Phi,    q <- q (+) N dp,    J v = -Phi_t and Psi = 0,

    with W = M or 1. Use it with any enforcement method: `simulate(..., projection=Projection())`.
    The number of iterations is fixed, and each is differentiated exactly, so that gradients belong
    to the returned numbers. From a violation of O(h^2) two iterations reach rounding.

    **Arguments:**

    - `solver`: the constraint solver. Redundant rows need a rank-revealing one, such as the
      default.
    - `norm`: `KineticEnergy()` (default) or `Euclidean()`.
    - `iterations`: Newton iterations for the position; 0 for no change of the position.
    - `velocity`: whether the velocity is projected too.
    - `tolerance`: the largest |Phi|, beyond which the result is `RESULTS.projection_failed`;
      default 1e-9 (1e-4 in float32).

    Reference: Castro (2025), Notes on constrained multibody dynamics, section 4.1, equations (13)
    to (24), with J = Phi_q N in the kinetic-energy form.
    """

    solver: AbstractConstraintSolver = Automatic()
    norm: AbstractNorm = KineticEnergy()
    iterations: Annotated[int, at_least(0)] = eqx.field(default=2, static=True)
    velocity: bool = eqx.field(default=True, static=True)
    tolerance: Annotated[float | None, positive] = eqx.field(default=None, static=True)

    def project_position(
        self,
        system: AbstractSystem | AbstractEquations,
        t: RealScalarLike,
        q: Coordinates,
        v: Velocity,
    ) -> tuple[Coordinates, RESULTS]:
        """q on the constraints at time t, and the verdict on the tolerance."""
        of = equations(system)
        for _ in range(self.iterations):
            W = self.norm.metric(of.system, q, v)
            J, phi = of.position_jacobian(t, q, v), of.positions(t, q)
            operator = ConstraintOperator(self.solver, W, J, tilt=of.tilt(q, v, J, phi))
            dp, _ = operator.correct(-phi, v)
            q = of.system.retract(q, dp)
        tolerance = self.tolerance
        if tolerance is None:
            tolerance = 1e-9 if q.dtype == jnp.float64 else 1e-4
        phi = of.positions(t, q)
        met = jnp.all(jnp.abs(phi) <= tolerance) | (self.iterations == 0)
        return q, RESULTS.where(met, RESULTS.successful, RESULTS.projection_failed)

    def project_velocity(
        self,
        system: AbstractSystem | AbstractEquations,
        t: RealScalarLike,
        q: Coordinates,
        v: Velocity,
    ) -> Velocity:
        """v with J v = -Phi_t and Psi = 0; to first order if Psi is not linear in v."""
        of = equations(system)
        W, rows = self.norm.metric(of.system, q, v), of.rows(t, q, v)
        turned = of.tilt(q, v, rows.J, rows.phi)
        operator = ConstraintOperator(self.solver, W, rows.J, tilt=turned)
        change, _ = operator.correct(-rows.velocity, v)
        return v + change

    def __call__(
        self,
        system: AbstractSystem | AbstractEquations,
        t: RealScalarLike,
        q: Coordinates,
        v: Velocity,
    ) -> tuple[Coordinates, Velocity, RESULTS]:
        """Project (q, v) at time t."""
        q, result = self.project_position(system, t, q, v)
        if self.velocity:
            v = self.project_velocity(system, t, q, v)
        return q, v, result

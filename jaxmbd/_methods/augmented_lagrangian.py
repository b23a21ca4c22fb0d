"""Bayo and Ledesma's augmented Lagrangian with mass-orthogonal projections."""

from typing import Annotated, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._compiler import held
from .._inputs import at_least, checked, not_negative, positive
from .._linalg import dense, without_rows
from .._types import RealScalarLike
from .continuous import AbstractContinuousEnforcement, Correction, Motion
from .penalties import stiffened_operator


class AugmentedLagrangian(AbstractContinuousEnforcement):
    """Penalised equations iterated to the rigid limit with one matrix,

        (M + J^T a J) v'(i+1) = M v'(i) + J^T a r,    M v'(0) = f,
        lam(i+1) = lam(i) + a (r - J v'(i+1)),        lam(0) = 0,
        r = gamma - 2 xi omega Phi' - omega^2 Phi,

    where each iteration multiplies the residual by 1 / (1 + a J M^-1 J^T). The same matrix and
    iteration project position and velocity mass-orthogonally once per step, so that constraints do
    not drift. Redundant rows and singular poses need no special treatment. Multipliers are
    distributed over dependent rows.

    **Arguments:**

    - `penalty`: a > 0, scalar, large against M / J^2 (default 1e7).
    - `iterations`: their fixed number, default 4.
    - `omega` [rad/s], `xi` [-]: stabilisation between the projections; default none.

    Reference: Bayo and Ledesma (1996), Augmented Lagrangian and mass-orthogonal projection methods
    for constrained multibody dynamics, Nonlinear Dynamics 9.
    """

    penalty: Float[Array, ""]
    omega: Float[Array, ""]
    xi: Float[Array, ""]
    iterations: int = eqx.field(static=True)
    rigid: ClassVar[bool] = True

    @checked
    def __init__(
        self,
        penalty: Annotated[RealScalarLike, positive] = 1e7,
        iterations: Annotated[int, at_least(1)] = 4,
        omega: Annotated[RealScalarLike, not_negative] = 0.0,
        xi: Annotated[RealScalarLike, not_negative] = 1.0,
    ):
        self.penalty = held(penalty)
        self.omega = held(omega)
        self.xi = held(xi)
        self.iterations = iterations

    def factorise(self, point):
        point = point.dense()
        weight = jnp.broadcast_to(self.penalty, point.rows.velocity.shape)
        return without_rows(point.M), stiffened_operator(point.M, point.rows.J, weight)

    def _iterate(self, stiffened, rows, x, r):
        # Written in terms of the residual r - J x(i). M x(i) = f + J^T lam(i) holds at every
        # iterate, so (M + J^T a J) dx = J^T a (r - J x). This avoids the cancellation of the
        # printed form.
        J, lam = dense(rows.J), jnp.zeros_like(r)
        for _ in range(self.iterations):
            remainder = r - J @ x
            dx = stiffened.free(J.T @ (self.penalty * remainder))
            x = x + dx
            lam = lam + self.penalty * (remainder - J @ dx)
        return x, lam

    def motion(self, point, factor):
        rows = point.rows
        feedback = 2 * self.xi * self.omega * rows.velocity
        feedback = feedback + rows.position(self.omega**2 * rows.phi)
        free, stiffened = factor
        start = free.free(point.f)
        return Motion(point.v, *self._iterate(stiffened, rows, start, rows.gamma - feedback))

    def correction(self, point, factor):
        _, stiffened = factor
        rows, rest = point.rows, jnp.zeros_like(point.v)
        position, _ = self._iterate(stiffened, rows, rest, -rows.position(rows.phi))
        velocity, _ = self._iterate(stiffened, rows, rest, -rows.velocity)
        return Correction(position, velocity)

    def result(self, point, factor, correction):
        del point, correction
        free, _ = factor
        return free.result()

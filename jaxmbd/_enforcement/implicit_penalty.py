"""Springs and dampers in place of constraints, integrated implicitly: from soft to rigid."""

import abc
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._linalg import AbstractConstraintSolver, Automatic, ConstraintOperator
from .._results import RESULTS
from .._types import Rows, Velocity
from .base import AbstractSplitEnforcement, Point, per_row
from .penalty import stiffened_operator


class AbstractPenaltyForm(eqx.Module):
    """Which of the two equivalent linear systems is solved."""

    @abc.abstractmethod
    def solve(
        self, point: Point, weight: Rows, row_velocity: Rows, pull: Rows
    ) -> tuple[Velocity, Rows, RESULTS]:
        """(v(n+1) - v*, Lam, result) of Lam = -W (J v(n+1) + drift) - h K Phi, with
        `weight` W = h (h K + D), `row_velocity` = J v* + drift, `pull` = K Phi / (h K + D)."""


class Primal(AbstractPenaltyForm):
    """(M + J^T W J)(v(n+1) - v*) = -J^T W (J v* + drift + pull): a system of the size of v, well
    conditioned for moderate stiffness; its condition number grows like W J M^-1 J^T."""

    def solve(self, point, weight, row_velocity, pull):
        J = point.rows.J
        operator = stiffened_operator(point.M, J, weight)
        change = operator.free(-J.T @ (weight * (row_velocity + pull)))
        return change, -weight * (row_velocity + pull + J @ change), operator.result()


class Dual(AbstractPenaltyForm):
    """(G + W^-1) Lam = -(J v* + drift + pull): a system of the size of the rows, well conditioned
    up to infinite stiffness, where it is the rigid impulse; it needs W > 0 in each row.

    **Arguments:** `solver`: how G + W^-1 is solved.
    """

    solver: AbstractConstraintSolver = Automatic()

    def solve(self, point, weight, row_velocity, pull):
        J = point.rows.J
        tiny = jnp.finfo(J.dtype).tiny
        rigid = jnp.isinf(weight)
        compliance = jnp.where(rigid, 0.0, 1 / (jnp.where(rigid, 1.0, weight) + tiny))
        # Rows scaled by S to a unit diagonal of S (G + W^-1) S, whatever the stiffness.
        diagonal = jnp.sum(J * J / jnp.diagonal(point.M)[None, :], axis=1)
        S = 1 / jnp.sqrt(compliance + diagonal + tiny)
        operator = ConstraintOperator(self.solver, point.M, S[:, None] * J, S**2 * compliance)
        change, scaled = operator.correct(-S * (row_velocity + pull), point.v)
        return change, S * scaled, operator.result()


class ImplicitPenalty(AbstractSplitEnforcement):
    """Each row is a spring and a damper, taken at the end of the step,

        Lam = -h [K Phi(n+1) + D Phi'(n+1)],    Phi(n+1) = Phi + h (J v(n+1) + Phi_t),
        (M + h J^T (h K + D) J) v(n+1) = M v* - h J^T [K (Phi + h Phi_t) + D Phi_t],
        q(n+1) = q(n) (+) h N v(n+1),

    unconditionally stable for any K, D >= 0, numerically damped. First order. Choose it for
    compliant mounts, or for rigid ones when their force need not be exact; redundant rows share
    the load. With K = inf (dual form) a row is rigid.

    **Arguments:**

    - `stiffness`: K, scalar or one value for each holonomic row [N/m for Phi in m].
    - `damping`: D, scalar or one value for each row [N s/m]; nonholonomic rows have no stiffness.
    - `form`: `Dual()` (default) or `Primal()`; both give the same motion.

    Reference: Castro (2025), Notes on constrained multibody dynamics, section 5, equations (27)
    to (33), with the factor h (h k_p + k_d) and h Phi_t that their derivation gives.
    """

    stiffness: Float[Array, "..."]
    damping: Float[Array, "..."]
    form: AbstractPenaltyForm
    rigid: ClassVar[bool] = False

    def __init__(
        self,
        stiffness: ArrayLike,
        damping: ArrayLike = 0.0,
        form: AbstractPenaltyForm | None = None,
    ):
        self.stiffness = jnp.asarray(stiffness)
        self.damping = jnp.asarray(damping)
        self.form = Dual() if form is None else form

    def impulse(self, point, phi, drift, h):
        rows = point.rows
        K = rows.position(per_row(self.stiffness, phi.shape[0], "stiffness"))
        D = per_row(self.damping, drift.shape[0], "damping")
        rigid = jnp.isinf(K)
        finite_K = jnp.where(rigid, 1.0, K)
        # K / (h K + D), also in the rigid limit and for rows that have neither.
        gain = jnp.where(rigid, 1 / h, finite_K / (h * finite_K + D + jnp.finfo(K.dtype).tiny))
        row_velocity = rows.J @ point.v + drift
        pull = gain * rows.position(phi)
        return self.form.solve(point, h * (h * K + D), row_velocity, pull)

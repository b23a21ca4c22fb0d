"""Springs and dampers in place of constraints: explicit, and implicit from soft to rigid."""

import abc
from typing import Annotated, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from .._checks import one_each
from .._compiler import held, product
from .._inputs import checked, not_negative, not_negative_or_infinite
from .._linalg import AbstractConstraintSolver, Automatic, ConstraintOperator, without_rows
from .._results import RESULTS, first_failure
from .._types import Jacobian, MassMatrix, RealScalarLike, Rows, Velocity
from .base import spring_energy
from .continuous import AbstractContinuousEnforcement, Motion, no_correction
from .point import Point
from .split import AbstractSplitEnforcement, RowImpulse


class ExplicitPenalty(AbstractContinuousEnforcement):
    """Each row is a spring and a damper,

        M v' = f + J^T lam,    lam = -(K Phi + D Phi'),    -D Psi for nonholonomic rows.

    Only M is solved for, and redundant rows share the load. An explicit scheme needs h < 2 / sqrt(K
    J M^-1 J^T), so stiff rows need `ImplicitPenalty` or an implicit scheme. The rows deflect by
    about lam / K. This is a model of compliance; small steps do not make it rigid.

    **Arguments:**

    - `stiffness`: K, scalar or one value for each holonomic row [N/m for Phi in m].
    - `damping`: D, scalar or one value for each row [N s/m].

    Reference: Castro (2025), Notes on constrained multibody dynamics, section 5, equation (27).
    """

    stiffness: Float[Array, "..."]
    damping: Float[Array, "..."]
    rigid: ClassVar[bool] = False

    @checked
    def __init__(
        self,
        stiffness: Annotated[ArrayLike, not_negative],
        damping: Annotated[ArrayLike, not_negative] = 0.0,
    ):
        self.stiffness = held(stiffness)
        self.damping = held(damping)

    def stored_energy(self, phi):
        return spring_energy(self.stiffness, phi)

    def factorise(self, point):
        return without_rows(point.M)

    def motion(self, point, factor):
        rows = point.rows
        K = one_each(self.stiffness, rows.phi.shape[0], "stiffness")
        D = one_each(self.damping, rows.velocity.shape[0], "damping")
        lam = -(D * rows.velocity + rows.position(K * rows.phi))
        return Motion(point.v, factor.free(point.f + point.equations.reaction(lam)), lam)

    def correction(self, point, factor):
        del factor
        return no_correction(point)

    def result(self, point, factor, correction):
        del point, correction
        return factor.result()


def stiffened_operator(M: MassMatrix, J: Jacobian, weight: Rows) -> ConstraintOperator:
    """The operator of M + J^T W J, W = diag(weight). It is positive definite for any rows,
    including redundant ones."""
    return without_rows(M + product(J.T * weight[None, :], J))


class AbstractPenaltyForm(eqx.Module):
    """The choice between two equivalent linear systems."""

    @abc.abstractmethod
    def solve(
        self, point: Point, K: Rows, D: Rows, phi: Rows, row_velocity: Rows, h: RealScalarLike
    ) -> tuple[Velocity, Rows, RESULTS]:
        """(v(n+1) - v*, Lam, result) of Lam = -W (J v(n+1) + drift) - h K Phi with
        W = h (h K + D); `row_velocity` is J v* + drift."""


class Primal(AbstractPenaltyForm):
    """(M + J^T W J)(v(n+1) - v*) = -J^T [W (J v* + drift) + h K Phi]: a system of the size of v. It
    is well conditioned for moderate stiffness; its condition number grows like W J M^-1 J^T."""

    def solve(self, point, K, D, phi, row_velocity, h):
        J = point.rows.J
        weight, spring = h * (h * K + D), h * K * phi
        operator = stiffened_operator(point.M, J, weight)
        change = operator.free(-J.T @ (weight * row_velocity + spring))
        impulse = -(weight * (row_velocity + J @ change) + spring)
        return change, impulse, first_failure(without_rows(point.M).result(), operator.result())


@checked
class Dual(AbstractPenaltyForm):
    """(G + W^-1) Lam = -[J v* + drift + K Phi / (h K + D)]: a system of the size of the rows. It is
    well conditioned up to infinite stiffness, where it is the rigid impulse. Each row needs a
    stiffness or a damping.

    **Arguments:** `solver`: how G + W^-1 is solved.
    """

    solver: AbstractConstraintSolver = Automatic()

    def solve(self, point, K, D, phi, row_velocity, h):
        J, tiny = point.rows.J, jnp.finfo(phi.dtype).tiny
        rigid = jnp.isinf(K) | jnp.isinf(D)
        finite_K, finite_D = jnp.where(rigid, 1.0, K), jnp.where(rigid, 0.0, D)
        total = h * finite_K + finite_D + tiny
        gain = jnp.where(jnp.isinf(D), 0.0, jnp.where(rigid, 1 / h, finite_K / total))
        compliance = jnp.where(rigid, 0.0, 1 / (h * total))
        # S scales the rows, so that the diagonal of S (G + W^-1) S is about 1 for any stiffness.
        diagonal = jnp.sum(J * J / jnp.diagonal(point.M)[None, :], axis=1)
        S = 1 / jnp.sqrt(compliance + diagonal + tiny)
        operator = ConstraintOperator(self.solver, point.M, S[:, None] * J, S**2 * compliance)
        change, scaled = operator.correct(-S * (row_velocity + gain * phi), point.v)
        return change, S * scaled, operator.result()


class ImplicitPenalty(AbstractSplitEnforcement):
    """Each row is a spring and a damper, taken at the end of the step,

        Lam = -h [K Phi(n+1) + D Phi'(n+1)],    Phi(n+1) = Phi + h (J v(n+1) + Phi_t),
        (M + h J^T (h K + D) J) v(n+1) = M v* - h J^T [K (Phi + h Phi_t) + D Phi_t],
        q(n+1) = q(n) (+) h N v(n+1),

    which is unconditionally stable for any K, D >= 0, numerically damped, and of first order.
    Choose it for compliant mounts, or for rigid ones whose force need not be exact. Redundant rows
    share the load. With K = inf (dual form) a row is rigid.

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

    @checked
    def __init__(
        self,
        stiffness: Annotated[ArrayLike, not_negative_or_infinite],
        damping: Annotated[ArrayLike, not_negative_or_infinite] = 0.0,
        form: AbstractPenaltyForm | None = None,
    ):
        self.stiffness = held(stiffness)
        self.damping = held(damping)
        self.form = Dual() if form is None else form

    def stored_energy(self, phi):
        return spring_energy(self.stiffness, phi)

    def impulse(self, point, phi, drift, h):
        point = point.dense()
        rows = point.rows
        K = rows.position(one_each(self.stiffness, phi.shape[0], "stiffness"))
        D = one_each(self.damping, drift.shape[0], "damping")
        row_velocity = rows.J @ point.v + drift
        position = rows.position(phi)
        change, impulses, result = self.form.solve(point, K, D, position, row_velocity, h)
        return RowImpulse(change, impulses), result

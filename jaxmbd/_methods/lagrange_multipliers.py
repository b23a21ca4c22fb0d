"""Lagrange multipliers at acceleration level, with Baumgarte's stabilisation as an option."""

from typing import Annotated, ClassVar

from jaxtyping import Array, ArrayLike, Float

from .._checks import one_each
from .._compiler import array_namespace, held, to_jax
from .._inputs import checked, not_negative
from .._linalg import AbstractConstraintSolver, Automatic
from .._results import first_failure
from .continuous import AbstractContinuousEnforcement, Motion, no_correction
from .point import contradiction_of


class LagrangeMultipliers(AbstractContinuousEnforcement):
    """Index-1 equations of motion with multipliers,

        M v' = f + J^T lam,    J v' = gamma - d Phi' - k Phi,

    so that Phi'' + 2 alpha Phi' + beta^2 Phi = 0 with d = 2 alpha, k = beta^2 (Baumgarte), and
    Psi' + d Psi = 0 for nonholonomic rows. With alpha = beta = 0 (default) the constraints drift;
    alpha = beta is critically damped, and beta h must stay well below 1 for an explicit scheme.
    The scheme keeps its order; the violation is its error divided by beta^2.

    `solver=mbd.solvers.KKT()` solves the full system of (v', lam); the other solvers use its Schur
    complement G = J M^-1 J^T.

    **Arguments:**

    - `solver`: the constraint solver.
    - `alpha`, `beta`: Baumgarte's parameters [1/s]; or
    - `k`, `d`: the same as feedback gains [1/s^2], [1/s]; scalars or one value for each row.

    **Raises:** `ValueError` when both pairs are given.

    Reference: Baumgarte (1972), Stabilization of constraints and integrals of motion in dynamical
    systems, CMAME 1; Baraff and Witkin's course notes (1997) for k and d.
    """

    solver: AbstractConstraintSolver
    k: Float[Array, "..."]
    d: Float[Array, "..."]
    rigid: ClassVar[bool] = True

    @checked
    def __init__(
        self,
        solver: AbstractConstraintSolver | None = None,
        *,
        alpha: Annotated[ArrayLike | None, not_negative] = None,
        beta: Annotated[ArrayLike | None, not_negative] = None,
        k: Annotated[ArrayLike | None, not_negative] = None,
        d: Annotated[ArrayLike | None, not_negative] = None,
    ):
        if (alpha is not None or beta is not None) and (k is not None or d is not None):
            raise ValueError("Give either `alpha` and `beta` or `k` and `d`, not both pairs.")
        if k is None and d is None:
            xp = array_namespace(alpha, beta)
            k = to_jax(xp.square(xp.asarray(0.0 if beta is None else beta)))
            d = to_jax(2 * xp.asarray(0.0 if alpha is None else alpha))
        self.solver = Automatic() if solver is None else solver
        self.k = held(0.0 if k is None else k)
        self.d = held(0.0 if d is None else d)

    def factorise(self, point):
        return point.operator(self.solver)

    def motion(self, point, factor):
        rows = point.rows
        k = one_each(self.k, rows.phi.shape[0], "k")
        d = one_each(self.d, rows.velocity.shape[0], "d")
        feedback = d * rows.velocity + rows.position(k * rows.phi)
        return Motion(point.v, *factor.solve(point.f, rows.gamma - feedback))

    def correction(self, point, factor):
        del factor
        return no_correction(point)

    def result(self, point, factor, correction):
        del correction
        contradict = contradiction_of(point, self.solver, factor, point.rows.phi)
        return first_failure(factor.result(), contradict)

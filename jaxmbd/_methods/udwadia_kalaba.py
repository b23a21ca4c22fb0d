"""The fundamental equation of constrained motion, with drift correction."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp

from .._inputs import checked
from .._linalg import AbstractConstraintSolver, Automatic, ConstraintOperator
from .._results import first_failure
from .._types import Rows, Velocity
from .continuous import AbstractContinuousEnforcement, Correction, Motion, no_correction
from .point import contradiction


class _Factor(NamedTuple):
    """The operator, the constrained acceleration with its multipliers, and the part `excess` of the
    velocity that violates the rows."""

    operator: ConstraintOperator
    acceleration: Velocity
    multipliers: Rows
    excess: Velocity


@checked
class UdwadiaKalaba(AbstractContinuousEnforcement):
    """Udwadia and Kalaba's equation in the form of Braun and Goldfarb,

        q' = N [v + M^-1 J^T G^+ (b_q - J v - Phi/h)],            b_q = -Phi_t,
        v' = a  + M^-1 J^T G^+ (gamma - J a - Phi'/h),            a = M^-1 f,

    with Phi/h and Phi'/h evaluated once at the start of each step of length h and constant through
    the stages of the scheme. The corrections are the smallest possible in the norms of kinetic
    energy and of acceleration energy (Gauss's principle). The scheme keeps its order.
    Constraints hold to the local error of one step, without accumulation. The default solver
    handles redundant rows and singular poses.

    **Arguments:**

    - `solver`: the constraint solver, which applies G^+.
    - `correct`: `False` leaves out all corrections, for comparison. This is equation (17), whose
      drift grows with time.

    Reference: Braun and Goldfarb (2009), Eliminating constraint drift in the numerical simulation
    of constrained dynamical systems, CMAME 198, equations (16), (17), (20), (21).
    """

    solver: AbstractConstraintSolver = Automatic()
    correct: bool = eqx.field(default=True, static=True)
    rigid: ClassVar[bool] = True

    def factorise(self, point):
        operator = point.operator(self.solver)
        rows, rest = point.rows, jnp.zeros_like(point.v)
        if not self.correct:
            return _Factor(operator, *operator.solve(point.f, rows.gamma), rest)
        both = operator.solve_each((point.f, rows.gamma), (rest, rows.velocity))
        (acceleration, lam), (excess, _) = both
        return _Factor(operator, acceleration, lam, excess)

    def motion(self, point, factor):
        return Motion(point.v - factor.excess, factor.acceleration, factor.multipliers)

    def correction(self, point, factor):
        if not self.correct:
            return no_correction(point)
        rows = point.rows
        position, _ = factor.operator.correct(-rows.position(rows.phi), point.v)
        return Correction(position, -factor.excess)

    def result(self, point, factor, correction):
        solved = factor.operator.result()
        if not self.correct:
            return solved
        phi = point.rows.phi
        left = phi + (point.rows.J @ correction.position)[: phi.shape[0]]
        return first_failure(solved, contradiction(point, self.solver, phi, left))

"""The fundamental equation of constrained motion, with drift correction."""

from typing import ClassVar

import equinox as eqx

from .._linalg import AbstractConstraintSolver, Automatic
from .base import AbstractContinuousEnforcement, Correction, Motion, no_correction


class UdwadiaKalaba(AbstractContinuousEnforcement):
    """Udwadia and Kalaba's equation in the form of Braun and Goldfarb,

        q' = N [v + M^-1 J^T G^+ (b_q - J v - Phi/h)],            b_q = -Phi_t,
        v' = a  + M^-1 J^T G^+ (gamma - J a - Phi'/h),            a = M^-1 f,

    with Phi/h and Phi'/h taken once, at the start of each step of length h, and held through the
    stages of the scheme. Both corrections are the smallest possible in the norm of kinetic and
    of acceleration energy (Gauss's principle). The order is that of the scheme; constraints are
    met to the local error of one step, without accumulation; redundant rows and singular poses
    are no obstacle with the default solver.

    **Arguments:**

    - `solver`: how G^+ is applied.
    - `correct`: `False` leaves out all corrections, equation (17), whose drift grows with time;
      for comparison.

    Reference: Braun and Goldfarb (2009), Eliminating constraint drift in the numerical simulation
    of constrained dynamical systems, CMAME 198, equations (16), (17), (20), (21).
    """

    solver: AbstractConstraintSolver = Automatic()
    correct: bool = eqx.field(default=True, static=True)
    rigid: ClassVar[bool] = True

    def factorise(self, point):
        return point.operator(self.solver)

    def motion(self, point, factor):
        acceleration, lam = factor.solve(point.f, point.rows.gamma)
        if not self.correct:
            return Motion(point.v, acceleration, lam)
        excess, _ = factor.correct(point.rows.velocity, point.v)
        return Motion(point.v - excess, acceleration, lam)

    def correction(self, point, factor):
        if not self.correct:
            return no_correction(point)
        rows = point.rows
        position, _ = factor.correct(-rows.position(rows.phi), point.v)
        velocity, _ = factor.correct(-rows.velocity, point.v)
        return Correction(position, velocity)

    def result(self, factor):
        return factor.result()

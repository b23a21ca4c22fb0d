"""A velocity-level method: a free step, then the impulse that restores the constraints."""

from typing import ClassVar

from .._inputs import checked
from .._linalg import AbstractConstraintSolver, Automatic
from .._results import first_failure
from .point import contradiction_of
from .split import AbstractSplitEnforcement
from .stabilisation import AbstractStabilisation, PassiveDeadBeat


@checked
class VelocityImpulse(AbstractSplitEnforcement):
    """One impulse per step,

        M (v(n+1) - v*) = J^T Lam,    J v(n+1) = -Phi_t - s Phi/h,
        q(n+1) = q(n) (+) N [h v(n+1) + (1 - s) d],    d = -M^-1 J^T G^+ Phi,

    with v* from a scheme on the free motion M v' = f: `diffrax.Euler()` (default), any explicit
    scheme, or an implicit one for stiff forces. J is evaluated at q(n). Phi_t is the secant over
    the step, so that driven constraints meet their motion at t(n+1). The method is of first order.
    The multipliers are the mean forces Lam / h.

    **Arguments:**

    - `solver`: the constraint solver, which applies G^+.
    - `stabilisation`: `PassiveDeadBeat()` (default, with the largest share s <= 1 that gives no
      energy), `DeadBeat()` (s = 1), or with Phi/tau or 0 in place of Phi/h and without d
      `Relaxation(tau)` and `NoStabilisation()`.

    Reference: Castro (2025), Notes on constrained multibody dynamics, section 3, equations (10) to
    (12), and (26), with J M^-1 J^T in (12).
    """

    solver: AbstractConstraintSolver = Automatic()
    stabilisation: AbstractStabilisation = PassiveDeadBeat()
    rigid: ClassVar[bool] = True

    def impulse(self, point, phi, drift, h):
        operator = point.operator(self.solver)
        by_rows = self.stabilisation.impulse(operator, point, phi, drift, h)
        contradict = contradiction_of(point, self.solver, operator, phi)
        return by_rows, first_failure(operator.result(), contradict)

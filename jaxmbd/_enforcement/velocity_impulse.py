"""A velocity-level method: a free step, then the impulse that restores the constraints."""

from typing import ClassVar

from .._inputs import checked
from .._linalg import AbstractConstraintSolver, Automatic
from .._results import first_failure
from .base import AbstractSplitEnforcement
from .contradiction import contradiction_of
from .stabilisation import AbstractStabilisation, DeadBeat


@checked
class VelocityImpulse(AbstractSplitEnforcement):
    """One impulse per step,

        M (v(n+1) - v*) = J^T Lam,    J v(n+1) = -Phi_t - feedback(Phi),
        q(n+1) = q(n) (+) h N v(n+1),

    with v* from a scheme on the free motion M v' = f: `diffrax.Euler()` (default), any explicit
    scheme, or an implicit one for stiff forces. J is evaluated at q(n). Phi_t is the secant over
    the step, so that driven constraints meet their motion at t(n+1). The method is of first order.
    The multipliers are the mean forces Lam / h.

    **Arguments:**

    - `solver`: the constraint solver, which applies G^+.
    - `stabilisation`: `NoStabilisation()`, `DeadBeat()` (Phi/h, default) or `Relaxation(tau)`.

    Reference: Castro (2025), Notes on constrained multibody dynamics, section 3, equations (10) to
    (12), and (26), with J M^-1 J^T in (12).
    """

    solver: AbstractConstraintSolver = Automatic()
    stabilisation: AbstractStabilisation = DeadBeat()
    rigid: ClassVar[bool] = True

    def impulse(self, point, phi, drift, h):
        rows = point.rows
        operator = point.operator(self.solver)
        feedback = rows.position(self.stabilisation.feedback(phi, h))
        change, impulse = operator.steer(-(drift + feedback), point.v)
        contradict = contradiction_of(point, self.solver, operator, phi)
        return change, impulse, first_failure(operator.result(), contradict)

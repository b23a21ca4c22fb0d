"""Springs and dampers in place of constraints."""

from typing import Annotated, ClassVar

from jaxtyping import Array, ArrayLike, Float

from .._checks import one_each
from .._concrete import held
from .._inputs import checked, not_negative
from .._linalg import without_rows
from .base import spring_energy
from .continuous import AbstractContinuousEnforcement, Motion, no_correction


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

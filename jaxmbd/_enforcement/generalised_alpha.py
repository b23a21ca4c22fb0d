"""The generalised-alpha method."""

from typing import Annotated, ClassVar

from jaxtyping import Array, Float

from .._concrete import to_jax
from .._inputs import checked, within
from .._linalg import AbstractConstraintSolver, Automatic
from .._types import RealScalarLike
from .base import AbstractImplicitEnforcement


class GeneralisedAlpha(AbstractImplicitEnforcement):
    r"""The generalised-alpha method for stiff systems with constraints. Each step solves

        M(q) w = f(t, q, v, u) + J^T lam    at t(n+1),
        (1 - alpha_m) a(n+1) + alpha_m a(n) = (1 - alpha_f) w(n+1) + alpha_f w(n),
        v(n+1) = v(n) + h [(1 - gamma) a(n) + gamma a(n+1)],
        q(n+1) = q(n) (+) (h v(n) + h^2 [(1/2 - beta) a(n) + beta a(n+1)] + M^-1 J^T mu),
        Phi = 0 and (Phi', Psi) = 0         at t(n+1)

    by Newton's method. Positions, velocities and multipliers are of second order. All forces act at
    the end of the step, so that the method is stable for linear forces of any stiffness, and
    oscillations that the step does not resolve are damped: each step multiplies them by `rho_inf`.
    Those that it resolves are hardly damped. Phi, Phi' and Psi hold to rounding. Rows may be
    redundant.

    The multipliers lam follow from the velocity constraints and mu from those of the position
    (stabilised index-2 form). a(n) belongs to the time t(n) + (alpha_m - alpha_f) h. A motion
    begins with the a(0) of this time, since a(0) = v'(0) would make the first multipliers wrong by
    O(h).

    Forces and rows must be smooth. If Newton's method fails, the result is
    `RESULTS.implicit_scheme_unsolved`. There is no `scheme` to choose.

    **Arguments:**

    - `rho_inf`: the spectral radius for h = inf, from 0 (such oscillations vanish in two steps) to
      1 (no damping). The default 0.8 suits most systems; take less if forces or multipliers
      oscillate.
    - `solver`: the constraint solver.

    Reference: Chung and Hulbert (1993), A time integration algorithm for structural dynamics with
    improved numerical dissipation, J. Applied Mechanics 60, equations (25), (29) for the
    parameters; Arnold and Brüls (2007), Convergence of the generalized-alpha scheme for constrained
    mechanical systems, Multibody System Dynamics 18; Brüls, Cardona and Arnold (2012), Lie group
    generalized-alpha time integration of constrained flexible multibody systems, Mechanism and
    Machine Theory 48; Arnold, Brüls and Cardona (2015), Error analysis of generalized-alpha Lie
    group time integration methods for constrained mechanical systems, Numerische Mathematik 129,
    for the stabilised form and a(0).
    """

    rho_inf: Float[Array, ""]
    solver: AbstractConstraintSolver
    rigid: ClassVar[bool] = True

    @checked
    def __init__(
        self,
        rho_inf: Annotated[RealScalarLike, within(0, 1)] = 0.8,
        solver: AbstractConstraintSolver | None = None,
    ):
        self.rho_inf = to_jax(rho_inf, float)
        self.solver = Automatic() if solver is None else solver

    @property
    def alpha_m(self) -> Float[Array, ""]:
        return (2 * self.rho_inf - 1) / (self.rho_inf + 1)

    @property
    def alpha_f(self) -> Float[Array, ""]:
        return self.rho_inf / (self.rho_inf + 1)

    @property
    def gamma(self) -> Float[Array, ""]:
        return 0.5 + self.alpha_f - self.alpha_m

    @property
    def beta(self) -> Float[Array, ""]:
        return (self.gamma + 0.5) ** 2 / 4

"""A variational integrator with constraints."""

from typing import ClassVar

from .._inputs import checked
from .._linalg import AbstractConstraintSolver, Automatic
from .base import AbstractImplicitEnforcement


@checked
class Variational(AbstractImplicitEnforcement):
    r"""A variational integrator for long motions: RATTLE, for any kinematic map. With the discrete
    action of the kinetic energy T = v . M v / 2 along the motion of constant velocity x,

        S(q(n), q(n+1)) = h T(q(n) (+) h x / 2, x),    q(n+1) = q(n) (+) h x,

    a step solves

        M v(n) + h/2 Q(t(n), q(n), x) + J(n)^T Lam = -D_1 S,        Phi(q(n+1)) = 0,
        M v(n+1) = D_2 S + h/2 Q(t(n+1), q(n+1), x) + J(n+1)^T Lam',    (Phi', Psi) = 0,

    the first line by Newton's method, the second as linear equations. Q are the forces f without
    those of inertia, which follow from S. The method is of second order, symmetric in time and,
    for conservative forces, symplectic: the energy oscillates and does not drift, however long the
    motion. Momenta that the system conserves are conserved to rounding. Phi, Phi' and Psi hold to
    rounding. Rows may be redundant.

    Nonholonomic rows hold at the middle of a step, Psi(q(n) (+) h x / 2, x) = 0, and at its ends.

    Conservative forces act at the ends of the steps, so stiff springs limit the step as in explicit
    methods, to h < 2 / omega. Damping does not. If Newton's method fails, the result is
    `RESULTS.implicit_scheme_unsolved`. There is no `scheme` to choose. Systems with a `qdot` of
    their own need `coordinates` instead.

    **Arguments:**

    - `solver`: the constraint solver.

    Reference: Andersen (1983), RATTLE: a velocity version of the SHAKE algorithm for molecular
    dynamics calculations, J. Computational Physics 52; Marsden and West (2001), Discrete mechanics
    and variational integrators, Acta Numerica 10, sections 3.2 and 3.4; Bobenko and Suris (1999),
    Discrete time Lagrangian mechanics on Lie groups, with an application to the Lagrange top,
    Communications in Mathematical Physics 204.
    """

    solver: AbstractConstraintSolver = Automatic()
    rigid: ClassVar[bool] = True

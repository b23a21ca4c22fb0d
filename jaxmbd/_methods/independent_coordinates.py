"""Equations of motion in independent coordinates."""

import abc
from collections.abc import Sequence
from typing import Annotated, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._compiler import each
from .._extensible import Extensible
from .._inputs import at_least, checked, inside, positive
from .._linalg import (
    AbstractConstraintSolver,
    Automatic,
    ConstraintOperator,
    cutoff,
    dense,
    partition,
)
from .._results import RESULTS, first_failure
from .continuous import AbstractContinuousEnforcement, Motion, no_correction
from .dependents import Dependents
from .point import Point, contradiction_of


class AbstractIndependentSet(Extensible):
    """The choice of the independent variables in a step."""

    @abc.abstractmethod
    def inverse(
        self, point: Point, operator: ConstraintOperator
    ) -> tuple[Float[Array, "nv nc"], Float[Array, "nc nv"], RESULTS]:
        """K, J and the verdict on the choice: J K J = J, and the columns of K are changes of the
        dependent variables alone. If the choice is constant in derivatives, so are K and J."""


class NullSpace(AbstractIndependentSet):
    """Independent are the motions along the null space of J at the start of each step. Dependent
    are those that are orthogonal to it in the norm of kinetic energy, along the columns of
    M^-1 J^T. There is no discrete choice, so the motion is a smooth function of the start and of
    all parameters. It does not depend on the units or on the choice of the coordinates q. A step
    takes one more solve for each row.

    Reference: Mani, Haug and Atkinson (1985), Application of singular value decomposition for
    analysis of mechanical system dynamics, Journal of Mechanisms, Transmissions, and Automation in
    Design 107; Potra and Yen (1991), Implicit numerical integration for Euler-Lagrange equations
    via tangent space parametrization, Mechanics of Structures and Machines 19.
    """

    def inverse(self, point, operator):
        units = jnp.eye(point.rows.velocity.shape[0], dtype=point.v.dtype)

        def correction(unit):
            return operator.correct(unit, point.v)[0]

        return each(correction, units).T, dense(point.rows.J), RESULTS.successful


@checked
class CoordinatePartitioning(AbstractIndependentSet):
    """Independent are some components of v, and the displacements of q in the same directions:
    coordinates themselves where q' = v. They are the columns of J without a pivot in an
    elimination with complete pivoting, in which columns are scaled by their inertia. Redundant rows
    have no pivot. The choice is made anew in each step, so a slider-crank may be moved by its
    slider, and near the dead point by its crank.

    Two choices give motions that differ by the error of the scheme. So the motion jumps by that
    much between parameters for which the choice is different at a step. Derivatives hold the choice
    fixed. `NullSpace` has no such jumps.

    **Arguments:**

    - `independent`: indices of the independent velocities in v, for a choice of your own, as many
      as there are freedoms. Then a model with these minimal coordinates has the same motion, to
      rounding. If they depend on each other at the start of a step, or nearly so, as when a
      slider-crank is moved by its slider over the dead point, the result is
      `RESULTS.not_independent`. Default: chosen in each step.
    - `rtol`: a row counts as dependent if less than this part of its length is left after
      elimination. The default is 1e-10 (1e-3 in float32), and more if the violation of the rows may
      have rotated redundant rows against each other.

    Reference: Wehage and Haug (1982), Generalized coordinate partitioning for dimension reduction
    in analysis of constrained dynamic systems, Journal of Mechanical Design 104.
    """

    independent: Sequence[Annotated[int, at_least(0)]] | None = eqx.field(default=None, static=True)
    rtol: Annotated[float | None, inside(0, 1)] = eqx.field(default=None, static=True)

    def __check_init__(self):
        named = self.independent or ()
        if len(set(named)) < len(named):
            raise ValueError(
                "Argument `independent` of CoordinatePartitioning must name each velocity once, "
                f"but is {named}."
            )

    def inverse(self, point, operator):
        del operator
        point = jax.lax.stop_gradient(point.dense())
        J, nv = point.rows.J, point.v.shape[0]
        eligible = np.ones(nv, bool)
        for i in self.independent or ():
            if i >= nv:
                raise ValueError(
                    "Argument `independent` of CoordinatePartitioning must hold indices of the "
                    f"{nv} velocities, up to {nv - 1}, but is {self.independent}."
                )
            eligible[i] = False
        mobility = 1 / jnp.sqrt(jnp.abs(jnp.diagonal(point.M)))
        rtol = cutoff(self.rtol, 1e-10, 1e-3, point.tilt, J.dtype)
        K, dependent, determined = partition(J, mobility, jnp.asarray(eligible), rtol)
        fits = determined & jnp.all(dependent == eligible) | (self.independent is None)
        return K, J, RESULTS.where(fits, RESULTS.successful, RESULTS.not_independent)


@checked
class IndependentCoordinates(AbstractContinuousEnforcement):
    r"""Equations of motion of as many variables as there are freedoms. Let the rows J v = -Phi_t be
    solved for dependent velocities, so that v = T z + b with J T = 0 and J b = -Phi_t. Then

        T^T M T z' = T^T (f - M (T' z + b')),

    and Phi = 0, J v = -Phi_t give the dependent part of q and v. The scheme integrates the
    independent part alone, as in a model with minimal coordinates: whenever it has moved the
    state, at its stages and at the end of a step, the dependent part is solved anew by Newton's
    method, to rounding, and the independent part stays as it is. So Phi, Phi' and Psi hold to
    rounding at each evaluation of the forces, and the scheme keeps its order.

    z' is not computed from the equation above but from the multipliers, M v' = f + J^T lam and
    J v' = gamma, which give the same numbers: T^T J^T = 0. So any constraint solver serves, and
    redundant rows need no care.

    Newton's method uses the Jacobian at the start of the step. If its corrections do not converge,
    as within a step of a singular pose or if steps are too large, the best of its iterates is
    taken, and the next steps remove the rest. If |Phi| is then beyond `tolerance`, the result is
    `RESULTS.dependents_unsolved`.

    **Arguments:**

    - `solver`: the constraint solver.
    - `independent`: which variables are independent, `NullSpace()` (default) or
      `CoordinatePartitioning()`.
    - `tolerance`: the largest |Phi| after a step; default 1e-6 (1e-4 in float32).

    Reference: García de Jalón and Bayo (1994), Kinematic and dynamic simulation of multibody
    systems, chapter 5; Haug (1989), Computer aided kinematics and dynamics of mechanical systems,
    section 7.3.
    """

    solver: AbstractConstraintSolver = Automatic()
    independent: AbstractIndependentSet = NullSpace()
    tolerance: Annotated[float | None, positive] = eqx.field(default=None, static=True)
    rigid: ClassVar[bool] = True

    def factorise(self, point):
        return point.operator(self.solver)

    def motion(self, point, factor):
        return Motion(point.v, *factor.solve(point.f, point.rows.gamma))

    def correction(self, point, factor):
        del factor
        return no_correction(point)

    def result(self, point, factor, correction):
        del correction
        contradict = contradiction_of(point, self.solver, factor, point.rows.phi)
        return first_failure(factor.result(), contradict)

    def dependents(self, point, factor):
        if point.rows.velocity.shape[0] == 0:
            return None
        tolerance = self.tolerance
        if tolerance is None:
            tolerance = 1e-6 if point.v.dtype == jnp.float64 else 1e-4
        K, J, result = self.independent.inverse(point, factor)
        return Dependents(K, J, jnp.asarray(tolerance, J.dtype), result)

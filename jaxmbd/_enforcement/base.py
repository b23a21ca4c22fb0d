"""The interface of enforcement methods, and the equations at a point, from which they are built."""

import abc
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import check_system, one_each, with_dtype
from .._equations import AbstractEquations, ConstraintRows, equations
from .._extensible import Extensible
from .._inputs import checked
from .._linalg import AbstractConstraintSolver, AbstractEquationMap, ConstraintOperator, dense
from .._results import RESULTS
from .._system import AbstractSystem
from .._types import (
    Control,
    Coordinates,
    Force,
    RealScalarLike,
    Rows,
    Scalar,
    Velocity,
)


class Point(NamedTuple):
    """The equations of the system at one (t, q, v), on which a method works."""

    v: Velocity
    M: Any
    f: Force
    rows: ConstraintRows
    equations: AbstractEquationMap
    tilt: Float[Array, ""] | None = None

    def dense(self) -> "Point":
        """The same point with M and J as arrays, for methods that combine them."""
        return self._replace(M=dense(self.M), rows=self.rows._replace(J=dense(self.rows.J)))

    def operator(self, solver: AbstractConstraintSolver) -> ConstraintOperator:
        """The operator of M and J, factorised by `solver`."""
        return ConstraintOperator(
            solver, self.M, self.rows.J, tilt=self.tilt, equations=self.equations
        )


@eqx.filter_jit
def point(
    system: AbstractSystem | AbstractEquations,
    control: Control | None,
    t: RealScalarLike,
    q: Coordinates,
    v: Velocity,
) -> Point:
    """The point at (t, q, v)."""
    of = equations(system)
    here = of.kinematics(q)
    f = of.force(control, t, q, v, here=here)
    return point_at(of, t, here, v, f, of.mass(here))


@checked
def evaluate(
    system: AbstractSystem,
    control: Control | None,
    t: RealScalarLike,
    q: Coordinates,
    v: Velocity,
) -> Point:
    """The equations of the system at (t, q, v): `M`, `f`, and `rows` with `phi`, `velocity`, `J`
    and `gamma`, as arrays.

    **Raises:** `ValueError` if q or v does not have the size of the system."""
    check_system(system, control, q, v)
    system, control, t = with_dtype((system, control, t), q.dtype)
    return point(system, control, t, q, v).dense()


def point_at(
    of: AbstractEquations, t: RealScalarLike, q: Any, v: Velocity, f: Force, M: Any
) -> Point:
    """The point at (t, q, v), with the force f and M(q) given. `q`: the result of
    `kinematics(q)`."""
    rows = of.rows(t, q, v)
    return Point(v, M, f, rows, of.map_of(M, rows.J, t, q, v), of.tilt(q, v, rows.J, rows.phi))


class Motion(NamedTuple):
    """The constrained motion at a point: q' = N(q) velocity, v' = acceleration."""

    velocity: Velocity
    acceleration: Velocity
    multipliers: Rows


class RowImpulse(NamedTuple):
    """The impulses of the rows, the change v(n+1) - v* by them, and the displacement of the step
    beyond h v(n+1), `None` for none."""

    change: Velocity
    impulses: Rows
    displacement: Velocity | None = None


class Correction(NamedTuple):
    """A change of the state, q (+) N position and v + velocity, made over one step."""

    position: Velocity
    velocity: Velocity


class Dependents(NamedTuple):
    """How the dependent variables follow from the constraints within a step, by corrections -K r of
    the state for the violations r of the rows.

    - `inverse`: K, a generalised inverse of J: J K J = J. Independent are the variables that no
      correction changes.
    - `J`: the Jacobian at the start of the step, constant in derivatives if K is.
    - `tolerance`: the largest |Phi| after the step.
    - `result`: the verdict on the choice of the independent variables.
    """

    inverse: Float[Array, "nv nc"]
    J: Float[Array, "nc nv"]
    tolerance: Float[Array, ""]
    result: RESULTS


def no_correction(point: Point) -> Correction:
    """The correction of methods that do not change the state."""
    return Correction(jnp.zeros_like(point.v), jnp.zeros_like(point.v))


class AbstractEnforcement(Extensible):
    """How the constraints are enforced. A method is continuous (a vector field that any scheme
    integrates), split (a free step, then an impulse) or implicit (a step of its own)."""

    # Whether the constraints hold exactly in the limit of small steps. Then a start that violates
    # them is an error. The rows of a compliant method deflect by design.
    rigid: eqx.AbstractClassVar[bool]

    # Whether the method handles contacts (gaps).
    unilateral: ClassVar[bool] = False

    def stored_energy(self, phi: Float[Array, " nh"]) -> Scalar:
        """The energy stored in compliant rows with the violation phi [J]."""
        return jnp.zeros((), phi.dtype)


class AbstractContinuousEnforcement(AbstractEnforcement):
    """A constrained vector field (q', v') = (N velocity, acceleration)."""

    @abc.abstractmethod
    def factorise(self, point: Point) -> Any:
        """The factors that the methods below need, computed once."""

    @abc.abstractmethod
    def motion(self, point: Point, factor: Any) -> Motion:
        """Velocity, acceleration and multipliers at a point."""

    @abc.abstractmethod
    def correction(self, point: Point, factor: Any) -> Correction:
        """The drift correction, computed at the start of a step and constant through its stages. As
        a feedback in every stage it would reduce the order of accuracy, since stages violate the
        constraints by O(h^2) by construction."""

    @abc.abstractmethod
    def result(self, point: Point, factor: Any, correction: Correction) -> RESULTS:
        """The verdict on the solution of the equations at the start of a step, where `correction`
        is to remove the drift."""

    def dependents(self, point: Point, factor: Any) -> Dependents | None:
        """How the dependent variables are found within a step, chosen at its start. `None`, the
        default, if all variables are integrated."""
        del point, factor
        return None


class AbstractSplitEnforcement(AbstractEnforcement):
    """A velocity-level step: v* from the scheme on the free motion M v' = f, an impulse that
    gives v(n+1), then q(n+1) = q(n) (+) N [h v(n+1) + displacement]. Of first order."""

    @abc.abstractmethod
    def impulse(
        self, point: Point, phi: Float[Array, " nh"], drift: Rows, h: RealScalarLike
    ) -> tuple[RowImpulse, RESULTS]:
        """The impulses of the rows with their effect, and the verdict.

        - `point`: at (t(n+1), q(n), v*).
        - `phi`: Phi(q(n), t(n)).
        - `drift`: the part of the row velocities J v(n+1) + drift that does not depend on v. For
          holonomic rows it is the secant [Phi(q, t + h) - Phi(q, t)] / h in place of Phi_t, so that
          they meet the prescribed motion at t(n+1) exactly. It is Psi(v*) - J v* for nonholonomic
          rows.
        """


class AbstractImplicitEnforcement(AbstractEnforcement):
    """A method whose step is a system of equations, solved by Newton's method. The equations are
    part of the method, so it takes no scheme."""

    solver: eqx.AbstractVar[AbstractConstraintSolver]


def spring_energy(stiffness: Array, phi: Float[Array, " nh"]) -> Scalar:
    """phi . K phi / 2 of the rows that are not rigid [J]."""
    K = one_each(stiffness, phi.shape[0], "stiffness")
    return jnp.sum(jnp.where(jnp.isinf(K), 0.0, K) * phi**2) / 2

"""The equations of a system at one (t, q, v), from which methods are built, and whether rows
contradict each other."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._checks import check_system, with_dtype
from .._compiler import largest
from .._equations import AbstractEquations, ConstraintRows, equations
from .._inputs import checked
from .._linalg import AbstractConstraintSolver, AbstractEquationMap, ConstraintOperator, dense
from .._results import RESULTS
from .._system import AbstractSystem
from .._types import Control, Coordinates, Force, RealScalarLike, Velocity


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


# Rows contradict each other if more than this share of the violation cannot be removed. In loops
# that close, the share is at most half the angle of the violation (measured for four-bars with a
# drift of up to 0.2 m). In other loops all of the violation remains in the end, and at first its
# part in redundant rows.
_STAYS = 0.1


def contradiction(
    point: Point,
    solver: AbstractConstraintSolver,
    phi: Float[Array, " nh"],
    left: Float[Array, " nh"],
) -> RESULTS:
    """The verdict on rows with the violation `phi`, of which no small motion removes the part
    `left`.

    If rows contradict each other, it depends on the tolerance whether the solver drops the rows
    that would lock the motion. A part of the violation then remains. In a loop that closes, only
    the square of the violation remains.
    """
    if point.tilt is None or solver.cutoff_given():
        return RESULTS.successful
    left, size, ahead = map(largest, (left, phi, point.rows.phi))
    # `tilt` is the angle of the violation at the time of the point.
    number = jnp.finfo(size.dtype)
    angle = point.tilt * size / (ahead + number.tiny)
    beyond_rounding = angle * left > number.eps**0.5 * size
    contradict = (left > jnp.maximum(angle, _STAYS) * size) & beyond_rounding
    return RESULTS.where(contradict, RESULTS.contradicting_rows, RESULTS.successful)


def contradiction_of(
    point: Point,
    solver: AbstractConstraintSolver,
    operator: ConstraintOperator,
    phi: Float[Array, " nh"],
) -> RESULTS:
    """`contradiction`, where the remaining part of `phi` is not known yet."""
    if point.tilt is None or solver.cutoff_given():
        return RESULTS.successful
    stays = operator.null(jax.lax.stop_gradient(point.rows.position(phi)))
    return contradiction(point, solver, phi, stays[: phi.shape[0]])

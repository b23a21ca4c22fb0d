"""The check for rows that contradict each other, as in a loop that does not quite close."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._fusion import largest
from .._linalg import AbstractConstraintSolver, ConstraintOperator
from .._results import RESULTS
from .point import Point

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

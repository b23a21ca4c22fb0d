"""Whether rows contradict each other, as in a loop that does not quite close."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._linalg import AbstractConstraintSolver, ConstraintOperator
from .._results import RESULTS
from .base import Point

# The share of a violation that stays, above which rows contradict each other. In loops that close
# it is at most half the angle that belongs to the violation (of four-bars that drift apart, by up
# to 0.2 m). In others all of it stays in the end, and at first what lies in redundant rows.
_STAYS = 0.1


def contradiction(
    point: Point,
    solver: AbstractConstraintSolver,
    phi: Float[Array, " nh"],
    left: Float[Array, " nh"],
) -> RESULTS:
    """The verdict on rows of whose violation `phi` no small motion takes back the part `left`.

    Of rows that contradict each other, the solver has left out what would lock the motion, or has
    not: a matter of size. Then a part of the violation stays, where that of a loop that closes is
    taken back but for its square.
    """
    if point.tilt is None or solver.cutoff_given():
        return RESULTS.successful
    left, size, ahead = (
        jnp.max(jnp.abs(jax.lax.stop_gradient(x)), initial=0.0) for x in (left, phi, point.rows.phi)
    )
    # `tilt` is the angle that belongs to the violation at the time of the point.
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
    """The same where the part of `phi` that stays is not known yet."""
    if point.tilt is None or solver.cutoff_given():
        return RESULTS.successful
    stays = operator.null(jax.lax.stop_gradient(point.rows.position(phi)))
    return contradiction(point, solver, phi, stays[: phi.shape[0]])

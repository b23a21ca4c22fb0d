"""Initial states that are known, or are found together with the parameters."""

from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._assemble import assemble
from .._concrete import as_one_program
from .._equations import equations
from .._extensible import Extensible
from .._inputs import checked, positive, positive_or_infinite
from .._linalg import dense
from .._results import RESULTS
from .._search import nonzero, redundancy
from .._step import near
from .._system import AbstractSystem, State


class AbstractStart(Extensible):
    """Whether the initial states of records are known."""


class KnownStart(AbstractStart):
    """Each record starts from its own `start`."""


@checked
class UnknownStart(AbstractStart):
    """The initial state of each record is found as well. It has two free numbers for each degree of
    freedom, along the admissible directions at its guess.

    **Fields:**

    - `position`, `velocity`: typical changes of q (+) N p and v, which are the units of the search.
    - `sigma_position`, `sigma_velocity`: the standard deviations of the guess, if they are known;
      `None` otherwise.
    """

    position: Annotated[Any, positive] = 1.0
    velocity: Annotated[Any, positive] = 1.0
    sigma_position: Annotated[Any, positive_or_infinite] = None
    sigma_velocity: Annotated[Any, positive_or_infinite] = None


def admissible(system: AbstractSystem, state: State) -> np.ndarray:
    """Orthonormal directions B with J B = 0 at a state, shape `(nv, dof)`."""
    t = jnp.asarray(state.t, state.q.dtype)
    J = np.asarray(_jacobian(system, t, state.q, state.v))
    _, values, rows = np.linalg.svd(J, full_matrices=True)
    rank = int(np.sum(nonzero(values, redundancy(values.dtype))))
    return rows[rank:].T


@as_one_program
def _jacobian(system: AbstractSystem, t: Array, q: Array, v: Array) -> Array:
    return dense(equations(system).rows(t, q, v).J)


def displaced(
    system: AbstractSystem,
    state: State,
    directions: Float[Array, "nv dof"],
    z: Float[Array, " two_dof"],
    constrained: bool,
) -> tuple[State, RESULTS]:
    """The consistent state nearest to q (+) N B z_1, v + B z_2; and whether there is one."""
    shift, kick = jnp.split(z, 2)
    q = system.retract(state.q, directions @ shift)
    v = state.v + directions @ kick
    return consistent(system, State(state.t, q, v, angles=state.angles), constrained)


def consistent(system: AbstractSystem, state: State, constrained: bool) -> tuple[State, RESULTS]:
    """The nearest consistent state; and whether there is one."""
    if not constrained:
        return State(state.t, state.q, state.v, angles=state.angles), RESULTS.successful
    system = near(system, state.angles)
    found = assemble(system, state.q, state.v, state.t, throw=False)
    return State(found.t, found.q, found.v, angles=state.angles), found.report.result

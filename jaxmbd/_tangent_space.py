"""The tangent space of the states: small changes dx = (dp, dv), which add like vectors in any
coordinates, and the constraints on them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._equations import equations
from ._search import nonzero, redundancy
from ._system import AbstractSystem
from ._types import Coordinates, RealScalarLike, Velocity


def displaced(
    system: AbstractSystem, q: Coordinates, v: Velocity, dx: Float[Array, " nx"]
) -> tuple[Coordinates, Velocity]:
    """x (+) dx with dx = (dp, dv), nx = 2 nv."""
    nv = v.shape[0]
    return system.retract(q, dx[:nv]), v + dx[nv:]


def difference(
    system: AbstractSystem,
    x0: tuple[Coordinates, Velocity],
    x1: tuple[Coordinates, Velocity],
) -> Float[Array, " nx"]:
    """x1 (-) x0, so that x0 (+) (x1 (-) x0) = x1."""
    return jnp.concatenate([system.difference(x0[0], x1[0]), x1[1] - x0[1]])


def violations(
    system: AbstractSystem, t: RealScalarLike, q: Coordinates, v: Velocity
) -> Float[Array, " rows"]:
    """(Phi, Phi', Psi)."""
    return jnp.concatenate(equations(system).violation(t, q, v))


def state_jacobian(
    system: AbstractSystem, t: RealScalarLike, q: Coordinates, v: Velocity
) -> Float[Array, "rows nx"]:
    """C = d(Phi, Phi', Psi) / d(dp, dv): the admissible changes of a state are those with
    C dx = 0."""

    def rows(dx):
        return violations(system, t, *displaced(system, q, v, dx))

    return jax.jacfwd(rows)(jnp.zeros(2 * v.shape[0], v.dtype))


def nearer_to_constraints(
    system: AbstractSystem, t: RealScalarLike, q: Coordinates, v: Velocity
) -> tuple[Coordinates, Velocity]:
    """(q, v) after one step of Newton's method onto the constraints."""
    C = state_jacobian(system, t, q, v)
    if C.shape[0] == 0:
        return q, v
    back = jnp.linalg.pinv(C, rtol=redundancy(C.dtype)) @ violations(system, t, q, v)
    return displaced(system, q, v, -back)


def admissible_count(system: AbstractSystem, t: RealScalarLike, q: Coordinates, v: Velocity) -> int:
    """The number of independent admissible changes of a state whose numbers are concrete."""
    C = np.asarray(eqx.filter_jit(state_jacobian)(system, t, q, v))
    s = np.linalg.svd(C, compute_uv=False)
    return C.shape[1] - int(np.sum(nonzero(s, redundancy(s.dtype))))

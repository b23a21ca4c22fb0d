"""Small changes of a state: numbers that add, whatever the coordinates, and those among them that
the constraints admit."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from .._constraints import positions, row_count, velocities
from .._system import AbstractSystem
from .._types import Coordinates, RealScalarLike, Velocity
from .problem import Problem


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


class Tangent(NamedTuple):
    """Where a state can go without violating (Phi, Phi', Psi), to first order.

    - `Z`: an orthonormal basis of the admissible dx in its columns, shape `(nx, m)`; columns that
      are too many are zero.
    - `back`: from a violation of the rows to the smallest dx that takes it back, `(nx, rows)`.
    """

    Z: Float[Array, "*batch nx m"]
    back: Float[Array, "*batch nx rows"]


def _violations(problem: Problem, t, q, v):
    return jnp.concatenate([positions(problem.system, t, q), velocities(problem.system, t, q, v)])


def _is_constrained(problem: Problem) -> bool:
    # A compliant method leaves all directions open.
    state = problem.state
    return bool(problem.enforcement.rigid) and row_count(problem.system, *_at(state)) > 0


def _at(state):
    return state.t, state.q, state.v


def _row_jacobian(problem: Problem, t, q, v):
    def rows(dx):
        return _violations(problem, t, *displaced(problem.system, q, v, dx))

    return jax.jacfwd(rows)(jnp.zeros(2 * v.shape[0], v.dtype))


def _cutoff(s, xp: Any = jnp):
    # Rows that are redundant are so only up to the drift of the constraints.
    rtol = 1e-6 if s.dtype == np.float64 else 1e-3
    return rtol * xp.max(s, initial=0.0)


def tangent_size(problem: Problem) -> int:
    """How many admissible directions there are at the start; all, if the start is traced."""
    nx = 2 * problem.state.v.shape[0]
    if not _is_constrained(problem):
        return nx
    if any(isinstance(x, Tracer) for x in jax.tree.leaves((problem.system, problem.state))):
        return nx
    jacobian = eqx.filter_jit(_row_jacobian)(problem, *_at(problem.state))
    s = np.linalg.svd(np.asarray(jacobian), compute_uv=False)
    return nx - int(np.sum(s > _cutoff(s, np)))


def tangent(problem: Problem, t: RealScalarLike, q: Coordinates, v: Velocity, size: int) -> Tangent:
    """The `size` directions along which the rows change least, as far as they do not change."""
    nx = 2 * v.shape[0]
    if not _is_constrained(problem):
        return Tangent(jnp.eye(nx, dtype=v.dtype), jnp.zeros((nx, 0), v.dtype))
    C = _row_jacobian(problem, t, q, v)
    U, s, Vh = jnp.linalg.svd(C, full_matrices=True)
    kept = s > _cutoff(s)
    rank = jnp.sum(kept)
    admissible = jnp.arange(nx - size, nx) >= rank
    Z = jnp.where(admissible[None, :], Vh[nx - size :].T, 0.0)
    inverse = jnp.where(kept, 1 / jnp.where(kept, s, 1.0), 0.0)
    k = s.shape[0]
    return Tangent(Z, (Vh[:k].T * inverse[None, :]) @ U[:, :k].T)


def along(
    problem: Problem,
    tangent: Tangent,
    t: RealScalarLike,
    q: Coordinates,
    v: Velocity,
    xi: Float[Array, " m"],
) -> tuple[Coordinates, Velocity]:
    """The state reached by the displacement Z xi and back onto the constraints, exact up to the
    second order in xi."""
    moved = displaced(problem.system, q, v, tangent.Z @ xi)
    if tangent.back.shape[1] == 0:
        return moved
    violation = _violations(problem, t, *moved) - _violations(problem, t, q, v)
    return displaced(problem.system, *moved, -(tangent.back @ violation))

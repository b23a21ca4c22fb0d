"""Bases of the displacements that the constraints of a problem admit."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float

from .._equations import equations
from .._search import nonzero, redundancy, with_value
from .._tangent_space import admissible_count, displaced, state_jacobian, violations
from .._types import Coordinates, RealScalarLike, Velocity
from .expansion import first_and_second
from .problem import Problem


class Tangent(NamedTuple):
    """The displacements dx of a state that do not violate (Phi, Phi', Psi), to first order.

    - `Z`: an orthonormal basis of the admissible dx, `(nx, m)`. Surplus columns are zero.
    - `back`: the matrix from a violation of the rows to the smallest dx for it, `(nx, rows)`.
    """

    Z: Float[Array, "*batch nx m"]
    back: Float[Array, "*batch nx rows"]


def is_constrained(problem: Problem) -> bool:
    """Whether the motion has constraints that hold exactly."""
    # With a compliant method all directions are admissible.
    state = problem.state
    return bool(problem.enforcement.rigid) and equations(problem.system).row_count(*_at(state)) > 0


def _at(state):
    return state.t, state.q, state.v


def tangent_size(problem: Problem) -> int:
    """The number of admissible directions at the start; all directions if the start is traced."""
    nx = 2 * problem.state.v.shape[0]
    if not is_constrained(problem):
        return nx
    if any(isinstance(x, Tracer) for x in jax.tree.leaves((problem.system, problem.state))):
        return nx
    return admissible_count(problem.system, *_at(problem.state))


def tangent(problem: Problem, t: RealScalarLike, q: Coordinates, v: Velocity, size: int) -> Tangent:
    """The `size` directions that change the rows least. Those that do change them are zero."""
    nx = 2 * v.shape[0]
    if not is_constrained(problem):
        return Tangent(jnp.eye(nx, dtype=v.dtype), jnp.zeros((nx, 0), v.dtype))
    C = state_jacobian(problem.system, t, q, v)
    U, s, Vh = jnp.linalg.svd(C, full_matrices=True)
    independent = nonzero(s, redundancy(s.dtype))
    rank = jnp.sum(independent)
    admissible = jnp.arange(nx - size, nx) >= rank
    Z = jnp.where(admissible[None, :], Vh[nx - size :].T, 0.0)
    inverse = jnp.where(independent, 1 / jnp.where(independent, s, 1.0), 0.0)
    k = s.shape[0]
    return Tangent(Z, (Vh[:k].T * inverse[None, :]) @ U[:, :k].T)


class Chart(NamedTuple):
    """The states (q, v) near a point of the grid as polynomials in xi: their values at xi = 0, and
    their first and second derivatives."""

    value: tuple[Array, Array]
    slope: tuple[Array, Array]
    bend: tuple[Array, Array]

    def __call__(self, xi: Float[Array, " m"]) -> tuple[Coordinates, Velocity]:
        return jax.tree.map(lambda x, slope, bend: x + (slope + bend @ xi / 2) @ xi, *self)


def chart(
    problem: Problem, tangent: Tangent, t: RealScalarLike, q: Coordinates, v: Velocity
) -> Chart:
    """The states after the displacement Z xi and a correction back onto the constraints, exact up
    to second order in xi. It takes one pass through the equations, however many functions of xi
    follow."""
    system, zero = problem.system, jnp.zeros(tangent.Z.shape[1], v.dtype)
    moved = Chart(*_expanded(lambda xi: displaced(system, q, v, tangent.Z @ xi), zero))
    if tangent.back.shape[1] == 0:
        return moved
    _, _, bent = _expanded(lambda xi: violations(system, t, *moved(xi)), zero)
    # The correction is of second order, so that it adds to the state along q' = N dp.
    dp, dv = jnp.split(jnp.tensordot(tangent.back, bent, 1), 2)
    dq = jax.vmap(jax.vmap(lambda dp: system.qdot(q, dp), 1, 1), 2, 2)(dp)
    q_bend, v_bend = moved.bend
    return moved._replace(bend=(q_bend - dq, v_bend - dv))


def _expanded(fn, x):
    """fn(x) and its first and second derivatives."""
    slope, bend, value, _ = first_and_second(with_value(fn), x)
    return value, slope, bend

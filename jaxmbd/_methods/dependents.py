"""The dependent variables of a state from its independent ones."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._compiler import apply, stop_gradient
from .._equations import AbstractEquations
from .._results import RESULTS
from .._types import Coordinates, RealScalarLike, Velocity

# Iterations end when what is left shrinks by less than this factor, in linear equations not among
# the first ones: the units of x differ, so it may grow at first.
_SLOW = 0.5
_FIRST = 8
_MAX_CORRECTIONS = 60

# Newton's steps that give the solution its derivatives: with two of them those up to the third
# order are right, as each step doubles the order of the error.
_STEPS = 2
# Newton's steps for the velocities if their rows are not linear.
_NONLINEAR_STEPS = 4


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


def solve_dependents(
    of: AbstractEquations, t: RealScalarLike, q: Coordinates, v: Velocity, dependents: Dependents
) -> tuple[tuple[Coordinates, Velocity], Float[Array, ""]]:
    """The state on the constraints with the independent variables of (q, v), and the largest |Phi|
    that is left.

    The displacement x of q is the zero of x + K (Phi(q (+) N x) - J x). K J is the identity for
    changes of dependent variables, so the corrections of x are -K Phi, and the derivative with
    respect to x is nearly the identity. The change of v follows from the same equations with
    (Phi', Psi).
    """
    rest, count = jnp.zeros_like(v), dependents.J.shape[0]

    def displaced(x):
        phi = of.positions(t, of.system.retract(q, x))
        return jnp.concatenate([phi, jnp.zeros(count - phi.shape[0], phi.dtype)])

    displaced = eqx.filter_closure_convert(displaced, rest)
    fixed_phi, fixed = stop_gradient((displaced, dependents))

    def correction(x):
        change, phi = _residual(fixed_phi, fixed, x)
        return -change, phi

    x, left = _least(correction, rest)

    def position_step(x, _):
        r, along = jax.linearize(lambda x: _residual(displaced, dependents, x)[0], x)
        # The value of x is the solution already.
        return x - _solved(along, r - jax.lax.stop_gradient(r)), None

    x, _ = jax.lax.scan(position_step, x, None, length=_STEPS)
    q = of.system.retract(q, x)

    def velocity_step(v, _):
        r, rows = of.velocities(t, q, v), of.map(t, q, v).rows

        def along(x):
            return _residual(rows, dependents, x)[0]

        return v - _solved(along, apply(dependents.inverse, r)), None

    linear = of.positions(t, q).shape[0] == count
    v, _ = jax.lax.scan(velocity_step, v, None, length=1 if linear else _NONLINEAR_STEPS)
    return (q, v), left


def _residual(rows: Callable, dependents: Dependents, x: Velocity) -> tuple[Velocity, Array]:
    """x + K (rows(x) - J x), and rows(x)."""
    r = rows(x)
    return x + apply(dependents.inverse, r - apply(dependents.J, x)), r


def _solved(along: Callable, r: Velocity) -> Velocity:
    """x with `along(x)` = r, where `along` is linear and nearly the identity."""

    def solve(along, r):
        return _least(lambda x: (r - along(x),) * 2, jnp.zeros_like(r), _FIRST)[0]

    return jax.lax.custom_linear_solve(along, r, solve, solve)


class _Search(NamedTuple):
    """The next x, the best x so far with its residual, and the residual of the x before."""

    x: Velocity
    best: Velocity
    least: Float[Array, ""]
    before: Float[Array, ""]
    going: Bool[Array, ""]
    turns: Int[Array, ""]


def _least(
    step: Callable[[Velocity], tuple[Velocity, Array]], rest: Velocity, patience: int = 1
) -> tuple[Velocity, Float[Array, ""]]:
    """The best of the iterates x + change with `change, residual = step(x)` from x = 0, and its
    largest residual.

    Beside a singular pose, where K is large in one direction, what is left in this direction grows
    in the end. Before it does so, the other directions have converged."""
    eps = jnp.finfo(rest.dtype).eps

    def corrected(at: _Search):
        change, residual = step(at.x)
        size = jnp.max(jnp.abs(residual))
        better = size < at.least
        shrinks = (size <= _SLOW * at.before) | (at.turns < patience)
        going = shrinks & (size > eps * jnp.max(jnp.abs(at.x))) & (at.turns < _MAX_CORRECTIONS)
        return _Search(
            at.x + change,
            jnp.where(better, at.x, at.best),
            jnp.where(better, size, at.least),
            size,
            going,
            at.turns + 1,
        )

    infinite = jnp.full((), jnp.inf, rest.dtype)
    start = _Search(rest, rest, infinite, infinite, jnp.array(True), jnp.array(0))
    end = jax.lax.while_loop(lambda at: at.going, corrected, start)
    return end.best, end.least

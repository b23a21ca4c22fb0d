"""The derivative (dp, dv) -> (dp, dv) of a motion with respect to its start, step by step."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._methods import StepperState
from .._search import nonzero, redundancy
from .._simulate import Grid
from .._step import Stepper
from .._system import displacement
from .._tangent_space import state_jacobian
from .._types import Control


@eqx.filter_jit
def admissible(stepper: Stepper, state: StepperState) -> tuple[Float[Array, "d d"], Int[Array, ""]]:
    """Orthonormal columns (dp, dv) that change neither Phi nor (Phi', Psi), followed by columns of
    zeros; and the number of the former."""
    system, q = stepper.problem(state).system, state.q
    A = state_jacobian(system, state.t, q, state.v)
    nx = A.shape[1]
    _, values, right = jnp.linalg.svd(jnp.concatenate([A, jnp.zeros((nx, nx), q.dtype)]))
    free = ~nonzero(values, redundancy(values.dtype))
    # Singular values are in falling order, so the free directions come last.
    return jnp.where(free[::-1, None], right[::-1], 0.0).T, jnp.sum(free)


def lengths(grid: Grid, every: int) -> Float[Array, "n every"]:
    """The lengths of the steps of each piece. Steps that fill up the last piece have length 0."""
    pieces = math.ceil(grid.steps / every)
    i = jnp.arange(pieces * every)
    rest = 0.0 if grid.aligned else grid.t1 - (grid.t0 + grid.whole * grid.dt)
    h = jnp.where(i < grid.whole, grid.dt, jnp.where(i == grid.whole, rest, 0.0))
    return h.reshape(pieces, every)


def transported(
    stepper: Stepper,
    control: Control | None,
    state: StepperState,
    Q: Float[Array, "d k"],
    lengths: Float[Array, " every"],
) -> tuple[StepperState, Float[Array, "d k"]]:
    """The state after the steps of a piece, and the tangents (dp, dv) there that start as Q."""
    system, nv = stepper.problem(state).system, state.v.shape[0]

    def flow(q, v):
        def step(state, h):
            go = lambda state: stepper.step(state, h, control)  # noqa: E731
            return jax.lax.cond(h > 0, go, lambda state: state, state), None

        end, _ = jax.lax.scan(step, state.replace(q=q, v=v), lengths)
        return (end.q, end.v), end

    def along(column):
        changes = (system.qdot(state.q, column[:nv]), column[nv:])
        return jax.jvp(flow, (state.q, state.v), changes, has_aux=True)

    _, (dq, dv), ends = jax.vmap(along, in_axes=1)(Q)
    # All tangents belong to one motion.
    end = jax.tree.map(lambda x: x[0], ends)
    system = stepper.problem(end).system
    dp = jax.vmap(lambda dq: displacement(system, end.q, dq, nv))(dq)
    return end, jnp.concatenate([dp, dv], axis=1).T


def orthogonal(Z: Float[Array, "d k"], columns: Bool[Array, " k"]) -> tuple[Array, Array]:
    """Factorise Z = Q R, with zeros in Q and R for all but the given columns."""
    Q, R = jnp.linalg.qr(Z)
    return jnp.where(columns[None], Q, 0.0), jnp.where(columns[None], R, 0.0)

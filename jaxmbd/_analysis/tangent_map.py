"""The derivative of a motion by its start, (dp, dv) -> (dp, dv), through the steps of a stepper."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .._enforcement.stepping import AbstractStepper
from .._fixed import advanced
from .._saving import Grid
from .._system import displacement
from .._tangent_space import rank_cutoff, state_jacobian
from .._types import Coordinates, Velocity


@eqx.filter_jit
def admissible(
    stepper: AbstractStepper, grid: Grid, q: Coordinates, v: Velocity
) -> tuple[Float[Array, "d d"], Int[Array, ""]]:
    """Orthonormal (dp, dv), as columns, that change neither Phi nor (Phi', Psi), and how many there
    are; columns of zeros follow."""
    y, _ = stepper.start(grid.t0, grid.dt, q, v)
    A = state_jacobian(stepper.system(y), grid.t0, q, v)
    nx = A.shape[1]
    _, values, right = jnp.linalg.svd(jnp.concatenate([A, jnp.zeros((nx, nx), q.dtype)]))
    free = values <= rank_cutoff(values)
    # Singular values fall, so the free directions are the last.
    return jnp.where(free[::-1, None], right[::-1], 0.0).T, jnp.sum(free)


def times(grid: Grid, every: int) -> tuple[Float[Array, "n every"], Float[Array, "n every"]]:
    """Where the steps of each piece begin and end; those that fill up the last one have no
    length."""
    pieces = math.ceil(grid.steps / every)
    i = jnp.arange(pieces * every + 1, dtype=jnp.result_type(grid.t0))
    edges = grid.t0 + jnp.minimum(i, grid.whole) * grid.dt
    if not grid.aligned:
        edges = jnp.where(i > grid.whole, grid.t1, edges)
    return edges[:-1].reshape(pieces, every), edges[1:].reshape(pieces, every)


def transported(stepper, y, scheme_state, result, Q, times):
    """The state after the steps of a piece, and the tangents (dp, dv) there, from Q."""
    system, (q, v, *rest) = stepper.system(y), y
    nv = v.shape[0]

    def flow(q, v):
        def step(carry, times):
            y, scheme_state, result = carry
            t, t_next = times

            def go(y, scheme_state, result):
                return advanced(stepper, t, t_next, y, scheme_state, result, None)

            stay = lambda *carry: carry  # noqa: E731
            return jax.lax.cond(t_next > t, go, stay, y, scheme_state, result), None

        carry, _ = jax.lax.scan(step, ((q, v, *rest), scheme_state, result), times)
        (q, v, *others), *aux = carry
        return (q, v), (others, *aux)

    def along(column):
        changes = (system.qdot(q, column[:nv]), column[nv:])
        return jax.jvp(flow, (q, v), changes, has_aux=True)

    (q, v), (dq, dv), aux = jax.vmap(along, in_axes=1)(Q)
    # One motion for all tangents.
    (q, v), (others, scheme_state, result) = jax.tree.map(lambda x: x[0], ((q, v), aux))
    y = (q, v, *others)
    system = stepper.system(y)
    dp = jax.vmap(lambda dq: displacement(system, q, dq, nv))(dq)
    return y, scheme_state, result, jnp.concatenate([dp, dv], axis=1).T


def orthogonal(Z: Float[Array, "d k"], columns: Bool[Array, " k"]) -> tuple[Array, Array]:
    """Z = Q R, with zeros in Q and R for all but the given columns."""
    Q, R = jnp.linalg.qr(Z)
    return jnp.where(columns[None], Q, 0.0), jnp.where(columns[None], R, 0.0)

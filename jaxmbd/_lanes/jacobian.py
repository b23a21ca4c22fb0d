"""Jacobians in forward mode, with the tangents side by side."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import eval_jaxpr
from jaxtyping import Array, Float, PyTree

from .._linalg import loops_cost_nothing
from .lanes import LANES, in_lanes


def forward_jacobian(fn: Callable, x: Float[Array, " n"]) -> tuple[PyTree, Any]:
    """The derivatives of what fn(x) returns first, with the axis of x last, and its second output,
    as by `jax.jacfwd(fn, has_aux=True)(x)`.

    No condition depends on the tangents, and what they are multiplied by is the same for all. So on
    CPUs each has its own lane of the vector instructions. If there are more tangents than lanes,
    they take turns. A turn computes fn(x) again, and its arrays stay in the L1 cache.
    """

    def along(x, dx):
        _, slope, rest = jax.jvp(fn, (x,), (dx,), has_aux=True)
        return slope, rest

    program, shapes = jax.make_jaxpr(along, return_shape=True)(x, x)
    slopes = len(jax.tree.leaves(shapes[0]))
    n = x.shape[0]
    turns = max(-(-n // LANES), 1)
    lanes = -(-n // turns)
    together = in_lanes(program, [False, True], lanes) if loops_cost_nothing() else None

    def at_once(dx):
        """(n, tangents) -> slopes (..., tangents) and the second output"""
        if together is not None:
            found = together(x, dx)
            return found[:slopes], [y[..., 0] for y in found[slopes:]]

        def alone(dx):
            found = eval_jaxpr(program.jaxpr, program.consts, x, dx)
            return found[:slopes], found[slopes:]

        return jax.vmap(alone, in_axes=-1, out_axes=(-1, None))(dx)

    if together is None or turns == 1:
        found = at_once(jnp.eye(n, dtype=x.dtype))
    else:
        tangents = jnp.eye(n, turns * lanes, dtype=x.dtype).reshape(n, turns, lanes)
        slope, rest = jax.lax.map(at_once, jnp.moveaxis(tangents, 1, 0))
        joined = lambda x: jnp.moveaxis(x, 0, -2).reshape(*x.shape[1:-1], -1)[..., :n]  # noqa: E731
        found = list(map(joined, slope)), [y[0] for y in rest]
    return jax.tree.unflatten(jax.tree.structure(shapes), [*found[0], *found[1]])

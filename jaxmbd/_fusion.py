"""A limit to XLA's fusion."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


@jax.custom_jvp
def once(x: Array) -> Array:
    """x, computed before whatever uses it."""
    if x.shape[0] < 2:
        return x
    return x.at[jnp.asarray(np.arange(x.shape[0]))].get(mode="promise_in_bounds")


@once.defjvp
def _once_jvp(primals, tangents):
    return once(*primals), tangents[0]

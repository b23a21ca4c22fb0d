"""Controls u = control(t, q, v)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .systems import parameter


class Table(eqx.Module):
    """Open loop: values (n, 2) at equidistant times 0 ... duration, linear between them."""

    values: Array
    duration: Array = parameter(0.5)

    def __call__(self, t, q, v):
        times = jnp.linspace(0, 1, len(self.values), dtype=q.dtype) * self.duration
        return jax.vmap(jnp.interp, (None, None, 1))(jnp.asarray(t, q.dtype), times, self.values)


class Feedback(eqx.Module):
    """u = -k q - d v."""

    k: Array = parameter(5.0)
    d: Array = parameter(0.4)

    def __call__(self, t, q, v):
        return -self.k * q - self.d * v

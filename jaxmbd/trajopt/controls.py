"""Controls as functions of time, from values on a grid of equal intervals."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


def _interval(t, t0, duration, steps: int):
    """Number of the interval of t, and the place in it between 0 and 1; held beyond the ends."""
    place = jnp.clip((t - t0) / duration, 0, 1) * steps
    k = jnp.clip(jnp.floor(place), 0, steps - 1)
    return k.astype(int), place - k


class LinearControl(eqx.Module):
    """Linear between values at the grid points, held before and after them.

    - `t0`, `duration`: of the grid [s]. `values`: shape `(steps + 1, nu)`.
    """

    t0: Any
    duration: Any
    values: Float[Array, "points nu"]

    def __call__(self, t, q, v):
        del q, v
        k, s = _interval(t, self.t0, self.duration, self.values.shape[0] - 1)
        return (1 - s) * self.values[k] + s * self.values[k + 1]


class QuadraticControl(eqx.Module):
    """In each interval the parabola through its ends and its middle.

    - `t0`, `duration`: of the grid [s]. `values`: at grid points, shape `(steps + 1, nu)`.
    - `middles`: in the middles of the intervals, shape `(steps, nu)`.
    """

    t0: Any
    duration: Any
    values: Float[Array, "points nu"]
    middles: Float[Array, "steps nu"]

    def __call__(self, t, q, v):
        del q, v
        k, s = _interval(t, self.t0, self.duration, self.middles.shape[0])
        begin, middle, end = self.values[k], self.middles[k], self.values[k + 1]
        return (2 * s - 1) * (s - 1) * begin + 4 * s * (1 - s) * middle + s * (2 * s - 1) * end


class ConstantControl(eqx.Module):
    """One value in each interval.

    - `t0`, `duration`: of the grid [s]. `values`: shape `(steps, nu)`.
    """

    t0: Any
    duration: Any
    values: Float[Array, "steps nu"]

    def __call__(self, t, q, v):
        del q, v
        return self.values[_interval(t, self.t0, self.duration, self.values.shape[0])[0]]

"""The control of Hermite-Simpson collocation: a parabola in each interval."""

from typing import Annotated, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._inputs import checked, positive, unjudged
from .controls import AbstractControl, place


@checked
class PiecewiseQuadratic(AbstractControl):
    """The control whose u in each interval is a parabola through the values at its ends and in its
    middle. It is constant before and after the table.

    **Arguments:**

    - `t0`: the start [s]. `dt`: the length of an interval [s]. `values`: u at the grid points,
      shape `(n + 1, nu)`. `middles`: u in the middles of the intervals, shape `(n, nu)`.
    """

    constants: ClassVar[tuple[str, ...]] = ("t0", "dt")

    t0: Float[Array, "..."] = eqx.field(converter=jnp.asarray)
    dt: Annotated[Float[Array, "..."], positive] = eqx.field(converter=jnp.asarray)
    values: Annotated[Float[Array, "*batch points nu"], unjudged] = eqx.field(converter=jnp.asarray)
    middles: Annotated[Float[Array, "*batch n nu"], unjudged] = eqx.field(converter=jnp.asarray)

    def __check_init__(self):
        expected = (*self.values.shape[:-2], self.values.shape[-2] - 1, self.values.shape[-1])
        if self.middles.shape != expected:
            raise ValueError(
                f"Argument `middles` must have shape {expected}, one row for each interval between "
                f"`values`, but has {self.middles.shape}."
            )

    def __call__(self, t, q, v):
        del q, v
        k, s = place(self.t0, self.dt, t, self.middles.shape[0])
        begin, middle, end = self.values[k], self.middles[k], self.values[k + 1]
        return (2 * s - 1) * (s - 1) * begin + 4 * s * (1 - s) * middle + s * (2 * s - 1) * end

    def within(self, t, q, v):
        del t, q, v
        return self

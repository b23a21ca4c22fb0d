"""Losses, some of which are robust against outliers."""

import abc
from typing import Annotated

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._extensible import Extensible
from .._inputs import checked, positive


class AbstractLoss(Extensible):
    """A loss rho(r) of weighted residuals r, given by r-hat with r-hat^2 = rho(r) and the sign of
    r. Least squares of r-hat minimise the sum of rho."""

    @abc.abstractmethod
    def __call__(self, r: Float[Array, " n"]) -> Float[Array, " n"]:
        """The transformed residual r-hat(r), which is smooth and equals r for small r."""


class Squares(AbstractLoss):
    """Least squares: rho = r^2."""

    def __call__(self, r):
        return r


@checked
class Huber(AbstractLoss):
    """Quadratic up to |r| = `delta` and linear beyond: rho = r^2 or 2 delta |r| - delta^2. `delta`
    is in units of the weighted residuals.

    Reference: Huber (1964), Robust estimation of a location parameter, Ann. Math. Statist. 35."""

    delta: Annotated[float | Float[Array, ""], positive] = 1.345

    def __call__(self, r):
        delta = jnp.asarray(self.delta, r.dtype)
        large = jnp.abs(r) > delta
        size = jnp.where(large, jnp.abs(r), delta)
        return jnp.where(large, jnp.sign(r) * jnp.sqrt(2 * delta * size - delta**2), r)


@checked
class Cauchy(AbstractLoss):
    """Logarithmic: rho = scale^2 log(1 + (r/scale)^2), in which far outliers hardly count. `scale`
    is in units of the weighted residuals. It has local minima; start from a fit by `Huber`."""

    scale: Annotated[float | Float[Array, ""], positive] = 2.385

    def __call__(self, r):
        scale = jnp.asarray(self.scale, r.dtype)
        x = (r / scale) ** 2
        small = x < 1e-8
        safe = jnp.where(small, 1.0, x)
        factor = jnp.where(small, 1 - x / 4, jnp.sqrt(jnp.log1p(safe) / safe))
        return r * factor

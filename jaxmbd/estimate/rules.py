"""How a filter makes linear maps of functions."""

import abc
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from .._compiler import product
from .._extensible import Extensible
from .._inputs import at_least, checked
from .._lanes import forward_jacobian
from .gaussian import LinearMap, factor


class Images(NamedTuple):
    """What a function of xi gives at 0: `center`, and its `other` outputs. `nearby`: what a rule
    knows of values around it. `others`: the other outputs there, along a leading axis.
    `valid`: whether the covariance can be used."""

    center: Any
    other: Any
    nearby: Any
    others: Any
    valid: Bool[Array, ""]


class AbstractRule(Extensible):
    """How a filter makes a linear map of a function of a normal variable xi with mean 0, in two
    steps, since what values are measured in depends on the value at 0."""

    # Whether the values of the function are read away from xi = 0, where projections onto the
    # constraints need more than one step of Newton's method.
    finite: eqx.AbstractClassVar[bool]

    @abc.abstractmethod
    def images(
        self, fn: Callable[[Float[Array, " n"]], tuple[PyTree, PyTree]], P: Float[Array, "n n"]
    ) -> Images:
        """The images of xi under `fn(xi)` -> (value, other outputs), for the covariance P."""

    @abc.abstractmethod
    def linear(self, images: Images, local: Callable[[PyTree], Float[Array, " m"]]) -> LinearMap:
        """The function as a linear map to coordinates `local(value)`, 0 at the center."""


class Extended(AbstractRule):
    """The extended Kalman filter: functions are replaced by their derivatives at the mean."""

    finite: ClassVar[bool] = False

    def images(self, fn, P):
        def both(xi):
            found = fn(xi)
            return found[0], found

        slopes, (center, other) = forward_jacobian(both, jnp.zeros(P.shape[0], P.dtype))
        none = jax.tree.map(lambda x: x[None], other)
        return Images(center, other, slopes, none, jnp.array(True))

    def linear(self, images, local):
        def along(dy):
            return jax.jvp(local, (images.center,), (dy,))

        mean, slope = jax.vmap(along, in_axes=-1, out_axes=(None, -1))(images.nearby)
        m = mean.shape[0]
        return LinearMap(jnp.zeros_like(mean), slope, jnp.zeros((m, m), mean.dtype))


@checked
class Unscented(AbstractRule):
    """The unscented Kalman filter: functions are evaluated at the mean and at 2 n points around it,
    at a distance of `spread` sqrt(n) standard deviations along each axis. It takes second
    derivatives into account, and needs none. Its steps cost 2 n + 1 simulations each.

    **Fields:** `spread`: at least 1, so that no point has a negative weight and covariances stay
    positive. With 1 the mean itself has no weight (the cubature Kalman filter). For one or two
    deviations sqrt(3 / n) also reproduces fourth moments.

    References: Julier and Uhlmann (2004), Unscented filtering and nonlinear estimation, Proceedings
    of the IEEE 92; Arasaratnam and Haykin (2009), Cubature Kalman filters, IEEE Trans. Automatic
    Control 54.
    """

    spread: Annotated[float, at_least(1)] = 1.0

    finite: ClassVar[bool] = True

    def images(self, fn, P):
        n = P.shape[0]
        of_P = factor(P)
        away = self.spread * n**0.5 * of_P.L.T
        points = jnp.concatenate([jnp.zeros((1, n), P.dtype), away, -away])
        values, others = jax.vmap(fn)(points)
        center, other = jax.tree.map(lambda x: x[0], (values, others))
        return Images(center, other, (values, points, of_P.W), others, of_P.valid)

    def linear(self, images, local):
        values, points, W = images.nearby
        n = points.shape[1]
        d = jax.vmap(local)(values)
        weight = 0.5 / (self.spread**2 * n)
        of_center = 1 - 1 / self.spread**2
        mean = weight * jnp.sum(d[1:], axis=0) + of_center * d[0]
        slope = product((d[1 : n + 1] - d[n + 1 :]).T, W) / (2 * self.spread * n**0.5)
        rest = d - mean[None] - product(points, slope.T)
        rest = weight * product(rest[1:].T, rest[1:]) + of_center * jnp.outer(rest[0], rest[0])
        return LinearMap(mean, slope, rest)

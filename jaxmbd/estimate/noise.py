"""What a model does not know of the motion: process noise."""

import abc
from collections.abc import Mapping
from typing import Annotated, Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._extensible import Extensible
from .._inputs import Numbers, checked, not_negative


class AbstractProcessNoise(Extensible):
    """Random changes of the state and the parameters from step to step, which are normal and
    independent of each other.

    A law of your own writes `of_motion` and, if parameters drift or there are internal
    states, `of_parameters` and `of_internal`."""

    @abc.abstractmethod
    def of_motion(self, sample: Any, h: Float[Array, ""]) -> tuple[Array, Array, Array]:
        """The covariance of the changes (dp, dv) of positions and velocities in a step h that ends
        at `sample`: its blocks of dp, of dp with dv, and of dv, each a matrix `(nv, nv)`, or a
        vector `(nv,)` for a diagonal one. What the constraints do not admit has no effect."""

    def of_internal(self, sample: Any, h: Float[Array, ""]) -> Float[Array, " nz"]:
        """The standard deviations of the changes of the internal states; default 0."""
        del h
        return jnp.zeros_like(sample.z)

    def of_parameters(self, h: Float[Array, ""]) -> Mapping[str, Numbers]:
        """Name -> standard deviation of the change of an unknown parameter, in its units. Default:
        all are constant."""
        del h
        return {}


@checked
class ContinuousNoise(AbstractProcessNoise):
    """White noise in continuous time, whose effect grows with the square root of time, whatever the
    steps are.

    **Fields:**

    - `acceleration`: the square root of the spectral density of random accelerations v', one number
      or one for each velocity [m/s^2 / sqrt(Hz), rad/s^2 / sqrt(Hz)]. In a time h, velocities
      change by `acceleration` sqrt(h).
    - `internal`: that of the rates z' of internal states.
    - `drift`: name -> that of the rate of an unknown parameter: it moves by `drift` sqrt(h), in its
      units. Parameters that are not named are constant.
    """

    acceleration: Annotated[Numbers, not_negative] = 0.0
    internal: Annotated[Numbers, not_negative] = 0.0
    drift: Mapping[str, Any] | None = None

    def of_motion(self, sample, h):
        variance = _each(self.acceleration, sample.v) ** 2
        return variance * (h**3 / 3), variance * (h**2 / 2), variance * h

    def of_internal(self, sample, h):
        return _each(self.internal, sample.z) * jnp.sqrt(h)

    def of_parameters(self, h):
        root = jnp.sqrt(h)
        return {key: jnp.asarray(x, h.dtype) * root for key, x in (self.drift or {}).items()}


@checked
class DiscreteNoise(AbstractProcessNoise):
    """Noise of each step, however long it is.

    **Fields:**

    - `position`, `velocity`: standard deviations of the changes of positions and velocities in a
      step, one number or one for each velocity.
    - `internal`: those of the internal states.
    - `drift`: name -> that of an unknown parameter, in its units. Others are constant.
    """

    position: Annotated[Numbers, not_negative] = 0.0
    velocity: Annotated[Numbers, not_negative] = 0.0
    internal: Annotated[Numbers, not_negative] = 0.0
    drift: Mapping[str, Any] | None = None

    def of_motion(self, sample, h):
        del h
        pp, vv = (_each(x, sample.v) ** 2 for x in (self.position, self.velocity))
        return pp, jnp.zeros_like(pp), vv

    def of_internal(self, sample, h):
        del h
        return _each(self.internal, sample.z)

    def of_parameters(self, h):
        return {key: jnp.asarray(x, h.dtype) for key, x in (self.drift or {}).items()}


def _each(x: Any, like: Array) -> Array:
    return jnp.broadcast_to(jnp.asarray(x, like.dtype), like.shape)

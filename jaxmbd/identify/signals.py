"""Functions of time with unknown coefficients, from which experiments are designed."""

import abc
import math
from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._extensible import Extensible
from .._inputs import at_least, checked, positive
from .._types import RealScalarLike, Scalar


class AbstractSignal(Extensible):
    """A scalar function of time and of `size` coefficients, about -1 to 1: the middle and the ends
    of the range of what it drives. It must have two derivatives by the time.

    Implement `size` and `__call__`, and `scale` if some coefficients should be smaller than others.
    """

    # The number of coefficients.
    size: eqx.AbstractVar[int]

    @abc.abstractmethod
    def __call__(self, coefficients: Float[Array, " size"], t: RealScalarLike) -> Scalar:
        """The value at the time t [s]."""

    @property
    def scale(self) -> np.ndarray:
        """Typical coefficients, `(size,)`. A search begins with normal numbers of this standard
        deviation. Default: all 0.3."""
        return np.full(self.size, 0.3)


@checked
class Fourier(AbstractSignal):
    r"""A finite Fourier series of period T,

    $$
    c_0 + \sum_{k=1}^{n} \frac{1}{k} \Bigl(a_k \sin \frac{2\pi k t}{T}
    + b_k \cos \frac{2\pi k t}{T}\Bigr) .
    $$

    Measure whole periods, after those in which the machine settles. Averages over periods have less
    noise, and rates and accelerations follow from the series of the measured positions.

    **Arguments:** `period`: T [s]; `harmonics`: n. The order of the coefficients is c0, a, b.

    Reference: Swevers, Ganseman, De Schutter and Van Brussel (1997), Generation of periodic
    trajectories for optimal robot excitation, J. Manuf. Sci. Eng. 119.
    """

    period: Annotated[float, positive]
    harmonics: Annotated[int, at_least(1)] = eqx.field(static=True, default=5)

    @property
    def size(self):
        return 1 + 2 * self.harmonics

    def __call__(self, coefficients, t):
        c, a, b = jnp.split(coefficients, [1, 1 + self.harmonics])
        k = jnp.asarray(np.arange(1, self.harmonics + 1), coefficients.dtype)
        angle = 2 * math.pi * k / self.period * t
        return c[0] + (a / k) @ jnp.sin(angle) + (b / k) @ jnp.cos(angle)


@checked
class Spline(AbstractSignal):
    """A cubic spline with equal intervals, twice continuously differentiable. It starts and ends at
    rest, without acceleration.

    **Arguments:** `duration` [s]; `points`: the number of coefficients, which are the control
    points of the B-spline, the first and the last ones three times.

    Reference: Rackl, Lampariello and Hirzinger (2012), Robot excitation trajectories for dynamic
    parameter estimation using optimized B-splines, ICRA.
    """

    duration: Annotated[float, positive]
    points: Annotated[int, at_least(2)] = eqx.field(static=True, default=10)

    @property
    def size(self):
        return self.points

    @property
    def scale(self):
        return np.full(self.size, 0.5)

    def __call__(self, coefficients, t):
        p = jnp.concatenate([coefficients[:1]] * 2 + [coefficients] + [coefficients[-1:]] * 2)
        intervals = self.points + 1
        s = jnp.clip(jnp.asarray(t, p.dtype) / self.duration, 0.0, 1.0) * intervals
        k = jnp.clip(jnp.floor(jax.lax.stop_gradient(s)), 0, intervals - 1)
        x, k = s - k, k.astype(int)
        weights = [
            (1 - x) ** 3,
            3 * x**3 - 6 * x**2 + 4,
            -3 * x**3 + 3 * x**2 + 3 * x + 1,
            x**3,
        ]
        return jnp.stack(weights) @ p[k + np.arange(4)] / 6


@checked
class Sweep(AbstractSignal):
    r"""A sine whose frequency rises evenly from `first` to `last` [Hz] within `duration` [s]. Its
    two coefficients are the amplitude and the phase. It is a common choice to compare with.
    """

    first: Annotated[float, positive]
    last: Annotated[float, positive]
    duration: Annotated[float, positive]
    size: int = eqx.field(static=True, init=False, default=2)

    @property
    def scale(self):
        return np.array([0.5, 3.0])

    def __call__(self, coefficients, t):
        amplitude, phase = coefficients
        rise = (self.last - self.first) / self.duration
        return amplitude * jnp.sin(2 * math.pi * (self.first + rise * t / 2) * t + phase)

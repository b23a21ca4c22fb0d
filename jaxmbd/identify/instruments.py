"""Sensors as they are: what lies between a quantity of the motion and the number in the file."""

import math
from collections.abc import Callable, Iterator
from typing import Annotated

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._compiler import is_known
from .._inputs import Numbers, checked, not_negative, positive
from .lag import lagged
from .sensors import AbstractSensor, Sensor

# A lag forgets its start after so many time constants: e^-10 is 5e-5.
_FORGOTTEN = 10


class AbstractInstrument(AbstractSensor):
    """A sensor that changes the readings of another one, `sensor`, any function of a `Sample`.
    Several are nested, in the order in which they act."""

    sensor: eqx.AbstractVar[Sensor]

    @property
    def reach(self) -> float:
        """How long before a reading the motion may matter to it [s]; default 0. Fits leave out the
        samples that reach back beyond the start of their simulation."""
        return 0.0


def chain(sensor: Sensor) -> Iterator[Sensor]:
    """A sensor and those inside it, outermost first."""
    yield sensor
    while isinstance(sensor, AbstractInstrument):
        sensor = sensor.sensor
        yield sensor


def reach_of(sensor: Sensor) -> float:
    """How long before a reading the motion may matter to it [s]."""
    found = [each.reach for each in chain(sensor) if isinstance(each, AbstractInstrument)]
    return math.fsum(found)


@checked
class Calibrated(AbstractInstrument):
    """gain reading + bias.

    **Fields:** `gain`: a number, one for each number of the reading, or a matrix, of which the
    entries off the diagonal are the cross-axis sensitivities or misalignments; `bias`: a number or
    one for each number of the result.
    """

    sensor: Callable
    gain: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=1.0)
    bias: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=0.0)

    def __call__(self, sample):
        x = jnp.ravel(self.sensor(sample))
        gain, bias = self.gain.astype(x.dtype), self.bias.astype(x.dtype)
        y = gain @ x if gain.ndim == 2 else gain * x
        return y + bias


class Delayed(AbstractInstrument):
    """The reading of a moment ago: y(t) = x(t - delay), with the motion between its steps.

    **Fields:** `delay` [s]; `longest`: what the delay is at most [s]. Samples that are taken less
    than `longest` after the start of a simulation, or of a part of it in multiple shooting, may
    show a motion before the start, so fits leave them out. In `measure` they show the start.
    """

    sensor: Sensor
    delay: Float[Array, ""]
    longest: float = eqx.field(static=True)

    @checked
    def __init__(
        self,
        sensor: Callable,
        delay: Annotated[Float[Array, ""], not_negative],
        *,
        longest: Annotated[float, positive] | None = None,
    ):
        """**Arguments:** as the fields; `longest`: default twice the delay.

        **Raises:** `ValueError` for a delay above `longest`, and for an unknown delay or none
        without `longest`."""
        if longest is None:
            if not is_known(delay) or delay == 0:
                raise ValueError(
                    "Argument `longest` of Delayed must be given if the delay is 0 or traced: the "
                    "largest delay that may be found."
                )
            longest = 2 * float(delay)
        if is_known(delay) and delay > longest:
            raise ValueError(
                f"`delay` of Delayed must be at most `longest`, {longest:g} s, but is {delay:g} s."
            )
        self.sensor, self.delay, self.longest = sensor, jnp.asarray(delay), longest

    def __call__(self, sample):
        return self.sensor(sample.at(sample.t - self.delay.astype(sample.q.dtype)))

    @property
    def reach(self):
        return self.longest


class LowPass(AbstractInstrument):
    r"""A lag of first order, $\tau y' + y = x$. Between the steps of the simulation x is the
    polynomial through nearby steps, and y is exact for it. Two of them, one in the other, are a lag
    of second order.

    **Fields:**

    - `time_constant`: tau [s], 1 / (2 pi cutoff frequency).
    - `settling`: the time after which the start of the filter is forgotten [s]. At the start of a
      simulation, or of a part of it in multiple shooting, y is x. Fits leave out the samples that
      come before `settling`, since y may have been different.
    """

    sensor: Sensor
    time_constant: Float[Array, ""]
    settling: float = eqx.field(static=True)

    @checked
    def __init__(
        self,
        sensor: Callable,
        time_constant: Annotated[Float[Array, ""], positive],
        *,
        settling: Annotated[float, not_negative] | None = None,
    ):
        """**Arguments:** as the fields; `settling`: default ten time constants. Give 0 if the
        records start at rest.

        **Raises:** `ValueError` for a traced time constant without `settling`."""
        if settling is None:
            if not is_known(time_constant):
                raise ValueError(
                    "Argument `settling` of LowPass must be given if the time constant is traced."
                )
            settling = _FORGOTTEN * float(time_constant)
        self.sensor, self.settling = sensor, settling
        self.time_constant = jnp.asarray(time_constant)

    def __call__(self, sample):
        motion = sample.whole_motion
        x = motion.at_steps(self.sensor)
        rate = motion.dt / self.time_constant.astype(x.dtype)
        return lagged(x, rate, motion.steps_at(sample.t), motion.points)

    @property
    def reach(self):
        return self.settling


@checked
class Quantised(AbstractInstrument):
    """Whole multiples of a step, as from an analog-to-digital converter. `measure` rounds. Fits
    compare with the number before rounding: over noise of at least half a step that is the
    expected reading, and rounding adds step^2 / 12 to the variance of the noise.

    **Fields:** `step`: a number or one for each number of the reading.
    """

    sensor: Callable
    step: Annotated[Numbers, positive]

    def __call__(self, sample):
        x = self.sensor(sample)
        return self.rounded(x) if sample.rounded else x

    def rounded(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """The nearest multiple of the step."""
        step = jnp.asarray(self.step, x.dtype)
        return step * jnp.round(x / step)


@checked
class Unwrapped(AbstractInstrument):
    """An angle with its turns counted from the start of the simulation, where it is within half a
    turn, as an incremental encoder counts them. It must turn by less than half a turn in a step of
    the simulation."""

    sensor: Callable

    def __call__(self, sample):
        motion, here = sample.whole_motion, jnp.ravel(self.sensor(sample))
        wrapped = motion.at_steps(self.sensor)
        turns = jnp.cumsum(jnp.round(jnp.diff(wrapped, axis=0) / (2 * math.pi)), axis=0)
        counted = wrapped.at[1:].add(-2 * math.pi * turns)
        nearest = jnp.round(motion.steps_at(sample.t)).astype(jnp.int32)
        return here + 2 * math.pi * jnp.round((counted[nearest] - here) / (2 * math.pi))

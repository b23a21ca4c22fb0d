"""Sensors as they are: what lies between a quantity of the motion and the number in the file."""

import math
from collections.abc import Callable, Iterator
from typing import Annotated

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._compiler import is_known
from .._inputs import Numbers, checked, inside, not_negative, positive, shown
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

    @property
    def ahead(self) -> float:
        """How long after a reading the motion may matter to it [s]; default 0."""
        return 0.0


def chain(sensor: Sensor) -> Iterator[Sensor]:
    """A sensor and those inside it, outermost first."""
    yield sensor
    while isinstance(sensor, AbstractInstrument):
        sensor = sensor.sensor
        yield sensor


def reach_of(sensor: Sensor) -> tuple[float, float]:
    """How long before and after a reading the motion may matter to it [s]."""
    found = [each for each in chain(sensor) if isinstance(each, AbstractInstrument)]
    return math.fsum(each.reach for each in found), math.fsum(each.ahead for each in found)


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
        if gain.shape[-1:] not in ((), x.shape) or bias.shape not in (
            (),
            gain.shape[:1] or x.shape,
        ):
            raise ValueError(
                f"A reading of {x.size} numbers does not fit a gain of shape {gain.shape} and a "
                f"bias of shape {bias.shape}."
            )
        y = gain @ x if gain.ndim == 2 else gain * x
        return y + bias


class Delayed(AbstractInstrument):
    """The reading of a moment ago: y(t) = x(t - delay), with the motion between its steps.

    **Fields:** `delay` [s]; `longest`, `shortest`: what it is at most and at least [s]. A negative
    delay is that of a device whose clock is behind. Samples that are taken less than `longest`
    after the start of a simulation, or of a part of it in multiple shooting, may show a motion
    before the start, so fits leave them out. In `measure` they show the start.
    """

    sensor: Sensor
    delay: Float[Array, ""]
    longest: float = eqx.field(static=True)
    shortest: float = eqx.field(static=True)

    @checked
    def __init__(
        self,
        sensor: Callable,
        delay: Float[Array, ""],
        *,
        longest: Annotated[float, not_negative] | None = None,
        shortest: float = 0.0,
    ):
        """**Arguments:** as the fields; `longest`: default twice the delay.

        **Raises:** `ValueError` for a delay that is not between the shortest and the longest, and
        if `longest` is needed: the delay is traced or not positive."""
        known = float(delay) if is_known(delay) else None
        if longest is None:
            if known is None or known <= 0:
                raise ValueError(
                    "Argument `longest` of Delayed must be given, the largest delay that may be "
                    "found, if the delay is traced or not positive."
                )
            longest = 2 * known
        if not shortest < longest or (known is not None and not shortest <= known <= longest):
            raise ValueError(
                f"`delay` of Delayed must be between `shortest`, {shortest:g} s, and `longest`, "
                f"{longest:g} s, but is {shown(delay)}."
            )
        self.sensor, self.delay = sensor, jnp.asarray(delay)
        self.longest, self.shortest = longest, shortest

    def __call__(self, sample):
        return self.sensor(sample.at(sample.t - self.delay.astype(sample.q.dtype)))

    @property
    def reach(self):
        return self.longest

    @property
    def ahead(self):
        return max(0.0, -self.shortest)


class LowPass(AbstractInstrument):
    r"""A lag of first order, $\tau y' + y = x$. Between the steps of the simulation x is the
    polynomial through nearby steps, and y is exact for it. Two of them, one in the other, are an
    overdamped lag of second order; `SecondOrderLowPass` may swing.

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
        self.sensor, self.time_constant = sensor, jnp.asarray(time_constant)
        if settling is None:
            _need_known("LowPass", time_constant)
            settling = _FORGOTTEN * float(time_constant)
        self.settling = settling

    def __call__(self, sample):
        motion = sample.whole_motion
        x = motion.at_steps(self.sensor)
        rate = motion.dt / self.time_constant.astype(x.dtype)
        return lagged(x, rate, motion.steps_at(sample.t), motion.points)

    @property
    def reach(self):
        return self.settling


class SecondOrderLowPass(AbstractInstrument):
    r"""A lag of second order that may swing,

    $$ y'' + 2 \zeta \omega y' + \omega^2 y = \omega^2 x, $$

    as exact as `LowPass`.

    **Fields:**

    - `frequency`: omega / (2 pi) [Hz]. `damping`: zeta, between 0 and 1; 0.707 for Butterworth's
      filter.
    - `settling`: as of `LowPass`.
    """

    sensor: Sensor
    frequency: Float[Array, ""]
    damping: Float[Array, ""]
    settling: float = eqx.field(static=True)

    @checked
    def __init__(
        self,
        sensor: Callable,
        frequency: Annotated[Float[Array, ""], positive],
        damping: Annotated[Float[Array, ""], inside(0, 1)] = math.sqrt(0.5),  # type: ignore[assignment]
        *,
        settling: Annotated[float, not_negative] | None = None,
    ):
        """**Arguments:** as the fields; `settling`: default ten times 1 / (zeta omega). Give 0 if
        the records start at rest.

        **Raises:** `ValueError` for traced numbers without `settling`."""
        self.sensor = sensor
        self.frequency, self.damping = jnp.asarray(frequency), jnp.asarray(damping, float)
        if settling is None:
            _need_known("SecondOrderLowPass", (frequency, damping))
            settling = _FORGOTTEN / (2 * math.pi * float(frequency) * float(damping))
        self.settling = settling

    def __call__(self, sample):
        motion = sample.whole_motion
        x = motion.at_steps(self.sensor)
        frequency, zeta = self.frequency.astype(x.dtype), self.damping.astype(x.dtype)
        # The lags of first order with the rates r and conj(r), of which y is a combination.
        omega = 2 * math.pi * frequency * motion.dt
        r = jax.lax.complex(omega * zeta, omega * jnp.sqrt(1 - zeta**2))
        w = lagged(x.astype(r.dtype), r, motion.steps_at(sample.t), motion.points)
        return -jnp.imag(jnp.conj(r) * w) / jnp.imag(r)

    @property
    def reach(self):
        return self.settling


def _need_known(name: str, numbers: PyTree) -> None:
    if not is_known(numbers):
        raise ValueError(f"Argument `settling` of {name} must be given if its numbers are traced.")


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

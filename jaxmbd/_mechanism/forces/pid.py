"""A controller of a scalar coordinate with memory."""

from typing import Annotated

import equinox as eqx
from jaxtyping import Array, ArrayLike, Bool, Float

from ..._checks import check_ordered
from ..._compiler import array_namespace, refuted, to_jax
from ..._inputs import (
    Number,
    Numbers,
    Shape,
    checked,
    not_negative,
    not_negative_or_infinite,
    number,
)
from ..scalar_coordinates import AbstractScalarCoordinate, AlongCoordinate
from .coordinate import AbstractCoordinateForce
from .signal import (
    AbstractSignal,
    FromControl,
    SignalLike,
    as_signal,
    bounded,
    clipped,
    read,
)


class PIDController(AbstractCoordinateForce):
    """A controller with memory along a scalar coordinate x: with the error e = target - x, and the
    integral s of e, an internal state,

        wanted = proportional e + integral s + derivative (target_rate - x') + feedforward,
        force or torque = wanted, clipped to `limits`,
        s' = e - (wanted - force) / proportional.

    At a limit the integral follows what the limit allows instead of winding up. It holds a constant
    load without an error. With `most` it takes no notice of the limits of the force: s' = e, but s
    stays between -most and most. `most` may be infinite.

    **Fields:** `name`; `coordinate`; `target` [m or rad]: an `AbstractSignal`, by default entry 0
    of the control; `proportional` [N/m or N m/rad]; `integral` [N/(m s) or N m/(rad s)], or `None`
    for a controller without it; `derivative` [N s/m or N m s/rad]; `target_rate` [m/s or rad/s] and
    `feedforward` [N or N m]: signals, or `None` for 0; `limits`: lower and upper limit of the force
    or torque, or `None`; `most` [m s or rad s], or `None`; `accumulated`: s at the start [m s or
    rad s].

    Reference: Åström and Hägglund (1995), PID controllers: theory, design, and tuning, section 3.5,
    for the way in which the integral follows.
    """

    target: AbstractSignal
    proportional: Float[Array, ""]
    integral: Float[Array, ""] | None
    derivative: Float[Array, ""]
    target_rate: AbstractSignal | None
    feedforward: AbstractSignal | None
    limits: Float[Array, "2"] | None
    most: Float[Array, ""] | None
    accumulated: Float[Array, ""]
    internal_names: tuple[str, ...] = eqx.field(static=True)

    @checked
    def __init__(
        self,
        name: str,
        coordinate: AbstractScalarCoordinate,
        *,
        proportional: Annotated[Number, not_negative],
        integral: Annotated[Number, not_negative] | None = None,
        derivative: Annotated[Number, not_negative] = 0.0,
        target: SignalLike | None = None,
        target_rate: SignalLike | None = None,
        feedforward: SignalLike | None = None,
        limits: Annotated[Numbers, Shape([2]), number] | None = None,
        most: Annotated[Number, not_negative_or_infinite] | None = None,
        accumulated: Number = 0.0,
    ):
        """**Arguments:** the fields. A signal may be a number, a function of the time, or an
        `AbstractSignal` such as `FromControl(2)`.

        **Raises:** `ValueError` for a gain that is negative, a lower limit above the upper one, and
        for an `integral` that follows the limits, without `most`, if `proportional` is 0."""
        AlongCoordinate.__init__(self, name, coordinate)
        dtype = coordinate.dtype
        self.proportional, self.derivative, self.accumulated = (
            to_jax(x, dtype) for x in (proportional, derivative, accumulated)
        )
        self.integral, self.limits, self.most = (
            None if x is None else to_jax(x, dtype) for x in (integral, limits, most)
        )
        target = FromControl(0) if target is None else target
        self.target = as_signal(self._of("target"), target, dtype)
        self.target_rate, self.feedforward = (
            None if x is None else as_signal(self._of(what), x, dtype)
            for what, x in (("target_rate", target_rate), ("feedforward", feedforward))
        )
        # Static, since names are asked for where numbers are left out.
        self.internal_names = () if integral is None else ("integral",)
        if self.limits is not None:
            check_ordered(f'`limits` of PIDController "{name}"', self.limits)
        if integral is not None and most is None and refuted(lambda p: p > 0, self.proportional):
            raise ValueError(
                f'`proportional` of PIDController "{name}" must be positive, for the `integral` to '
                "follow the limits, but is 0. Give `most`, which may be infinite."
            )

    @property
    def glyphs(self):
        return (self.coordinate.actuator_glyph,)

    def _of(self, field: str) -> str:
        return f'`{field}` of PIDController "{self.name}"'

    @property
    def initial_internal(self):
        return self.accumulated[None]

    def internal_rate(self, x, rate, t, u, z):
        error, wanted = self.wanted(x, rate, t, u, z)
        return self.moved(error, wanted - clipped(wanted, self.limits), z)

    def force(self, x, rate, t, u, z=None):
        return clipped(self.wanted(x, rate, t, u, z)[1], self.limits)

    def wanted(self, x, rate, t, u, z) -> tuple[Array, Array]:
        """The error, and the force without limits."""
        dtype = self.proportional.dtype
        error = read(self._of("target"), self.target, t, u, dtype) - x
        rate = -rate
        if self.target_rate is not None:
            rate = rate + read(self._of("target_rate"), self.target_rate, t, u, dtype)
        wanted = self.proportional * error + self.derivative * rate
        if self.integral is not None:
            wanted = wanted + self.integral * z[0]
        if self.feedforward is not None:
            wanted = wanted + read(self._of("feedforward"), self.feedforward, t, u, dtype)
        return error, wanted

    def moved(self, error, beyond, z) -> Float[Array, "1"]:
        """s' at an error, where the force is short of what is wanted."""
        if self.most is None:
            return (error - beyond / self.proportional)[None]
        return bounded(error, z[0], -self.most, self.most)[None]

    @property
    def needs_turns(self) -> Bool[ArrayLike, "..."]:
        if self.integral is not None:
            return True
        return array_namespace(self.proportional).asarray(self.proportional) != 0

"""Forces along scalar coordinates with states of their own: friction with bristles, and a
controller with its integral."""

from typing import Annotated, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import check_ordered
from ..._compiler import refuted, to_jax
from ..._inputs import Number, Numbers, Shape, checked, not_negative, number, positive
from ..scalar_coordinates import AbstractScalarCoordinate, AlongCoordinate
from .coordinate import AbstractCoordinateForce
from .signal import AbstractSignal, FromControl, SignalLike, as_signal, clipped, read


class LuGreFriction(AbstractCoordinateForce):
    """Friction along a scalar coordinate x that sticks: the surfaces touch by bristles, which bend
    by z, the internal state [m or rad], and slip when they are bent too far. The force is -F,

        F = stiffness z + damping z' + viscous x',
        z' = x' - stiffness |x'| z / g(x'),
        g = dry + (static - dry) exp(-(x' / speed)^2).

    At rest F is what holds, up to `static`: x moves by F / stiffness and does not creep under a
    constant load. Under one that oscillates it may, as this model is known to do. Sliding at a
    constant rate, F = g sign(x') + viscous x', so that friction falls from `static` to `dry` around
    `speed` (Stribeck's effect). `dry` and `static` are given forces, and do not depend on the load
    of a joint.

    Bristles are fast, and integrated implicitly. But methods at velocity level and explicit schemes
    take x' and z in turn, so their step must stay below 2 sqrt(m / stiffness), where m is the mass
    that moves with x, and below 2 m / damping. With longer steps the bristles chatter and x creeps,
    without a failure in the result. `GeneralisedAlpha` has no such limit, nor have implicit schemes
    such as `diffrax.Kvaerno5()`.

    Choose `damping` of the order of sqrt(stiffness m), so that bristles do not ring. Much more may
    supply energy where x' passes through 0.

    **Fields:** `name`; `coordinate`; `dry`, `static` [N or N m]; `speed` [m/s or rad/s];
    `stiffness` [N/m or N m/rad] and `damping` [N s/m or N m s/rad] of the bristles; `viscous`
    [N s/m or N m s/rad]; `deflection` of the bristles at the start [m or rad].

    Reference: Canudas de Wit, Olsson, Åström and Lischinsky (1995), A new model for control of
    systems with friction, IEEE Transactions on Automatic Control 40.
    """

    internal_names: ClassVar[tuple[str, ...]] = ("deflection",)

    dry: Float[Array, ""]
    static: Float[Array, ""]
    speed: Float[Array, ""]
    stiffness: Float[Array, ""]
    damping: Float[Array, ""]
    viscous: Float[Array, ""]
    deflection: Float[Array, ""]

    @checked
    def __init__(
        self,
        name: str,
        coordinate: AbstractScalarCoordinate,
        *,
        dry: Annotated[Number, positive],
        stiffness: Annotated[Number, positive],
        damping: Annotated[Number, not_negative],
        static: Annotated[Number, positive] | None = None,
        speed: Annotated[Number, positive] = 1e-2,
        viscous: Annotated[Number, not_negative] = 0.0,
        deflection: Number = 0.0,
    ):
        """**Arguments:** the fields. `static` is by default `dry`.

        **Raises:** `ValueError` for a coefficient that is out of its range, and for `static` below
        `dry`."""
        AlongCoordinate.__init__(self, name, coordinate)
        dtype = coordinate.dtype
        values = dry, dry if static is None else static, speed, stiffness, damping, viscous
        self.dry, self.static, self.speed, self.stiffness, self.damping, self.viscous = (
            to_jax(x, dtype) for x in values
        )
        self.deflection = to_jax(deflection, dtype)
        if refuted(lambda dry, static: dry <= static, self.dry, self.static):
            raise ValueError(
                f'`static` of LuGreFriction "{name}" must not be below `dry`, but they are '
                f"{float(self.static):.6g} and {float(self.dry):.6g}."
            )

    @property
    def glyphs(self):
        return (self.coordinate.spring_glyph,)

    @property
    def initial_internal(self):
        return self.deflection[None]

    def internal_rate(self, x, rate, t, u, z):
        falling = (self.static - self.dry) * jnp.exp(-jnp.square(rate / self.speed))
        return rate - self.stiffness * jnp.abs(rate) / (self.dry + falling) * z

    def force(self, x, rate, t, u, z):  # pyright: ignore[reportIncompatibleMethodOverride]
        bending = self.internal_rate(x, rate, t, u, z)[0]
        return -(self.stiffness * z[0] + self.damping * bending + self.viscous * rate)

    @property
    def measures(self):
        return False


class PIDController(AbstractCoordinateForce):
    """A controller with memory along a scalar coordinate x: with the error e = target - x, and the
    integral s of e, its internal state,

        wanted = proportional e + integral s - derivative x',
        force or torque = wanted, clipped to `limits`,
        s' = e - (wanted - force) / proportional.

    At a limit the integral follows what the limit allows instead of winding up. It holds a constant
    load without an error.

    **Fields:** `name`; `coordinate`; `target` [m or rad]: an `AbstractSignal`, by default entry 0
    of the control; `proportional` [N/m or N m/rad]; `integral` [N/(m s) or N m/(rad s)];
    `derivative` [N s/m or N m s/rad]; `limits`: lower and upper limit of the force or torque, or
    `None`; `accumulated`: s at the start [m s or rad s].

    Reference: Åström and Hägglund (1995), PID controllers: theory, design, and tuning, section 3.5,
    for the way in which the integral follows.
    """

    internal_names: ClassVar[tuple[str, ...]] = ("integral",)

    target: AbstractSignal
    proportional: Float[Array, ""]
    integral: Float[Array, ""]
    derivative: Float[Array, ""]
    limits: Float[Array, "2"] | None
    accumulated: Float[Array, ""]

    @checked
    def __init__(
        self,
        name: str,
        coordinate: AbstractScalarCoordinate,
        *,
        proportional: Annotated[Number, positive],
        integral: Annotated[Number, not_negative] = 0.0,
        derivative: Annotated[Number, not_negative] = 0.0,
        target: SignalLike | None = None,
        limits: Annotated[Numbers, Shape([2]), number] | None = None,
        accumulated: Number = 0.0,
    ):
        """**Arguments:** the fields. `target` may be a number, a function of the time, or an
        `AbstractSignal` such as `FromControl(2)`.

        **Raises:** `ValueError` for a `proportional` that is not positive, another gain that is
        negative, and a lower limit above the upper one."""
        AlongCoordinate.__init__(self, name, coordinate)
        dtype = coordinate.dtype
        values = proportional, integral, derivative, accumulated
        self.proportional, self.integral, self.derivative, self.accumulated = (
            to_jax(x, dtype) for x in values
        )
        signal = FromControl(0) if target is None else target
        self.target = as_signal(self._of_target, signal, dtype)
        self.limits = None if limits is None else to_jax(limits, dtype)
        if self.limits is not None:
            check_ordered(f'`limits` of PIDController "{name}"', self.limits)

    @property
    def glyphs(self):
        return (self.coordinate.actuator_glyph,)

    @property
    def _of_target(self) -> str:
        return f'`target` of PIDController "{self.name}"'

    @property
    def initial_internal(self):
        return self.accumulated[None]

    def internal_rate(self, x, rate, t, u, z):
        error, wanted = self._wanted(x, rate, t, u, z)
        beyond = wanted - clipped(wanted, self.limits)
        return (error - beyond / self.proportional)[None]

    def force(self, x, rate, t, u, z):  # pyright: ignore[reportIncompatibleMethodOverride]
        return clipped(self._wanted(x, rate, t, u, z)[1], self.limits)

    def _wanted(self, x, rate, t, u, z) -> tuple[Array, Array]:
        """The error, and the force without limits."""
        error = read(self._of_target, self.target, t, u, z.dtype) - x
        wanted = self.proportional * error + self.integral * z[0] - self.derivative * rate
        return error, wanted

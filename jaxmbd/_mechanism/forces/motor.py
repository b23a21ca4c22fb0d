"""A motor with its winding: current, torque ripple, limits, and heat."""

from typing import Annotated

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float

from ..._checks import check_ordered, with_dtype
from ..._compiler import array_namespace, to_jax
from ..._inputs import Number, Numbers, Shape, checked, not_negative, number, positive
from ..scalar_coordinates import AbstractScalarCoordinate, AlongCoordinate, OfJoint
from .coordinate import AbstractCoordinateForce, reflected
from .signal import AbstractSignal, FromControl, SignalLike, as_signal, clipped, read


class WindingHeat(eqx.Module):
    """How the winding of a `DCMotor` warms up, and what the drive does about it. With the
    temperature T,

        capacity T' = R i^2 - (T - ambient) / resistance,
        R = (resistance of the motor) (1 + coefficient (T - ambient)),

    and the current limit falls linearly from all of it at the lower temperature of `derating` to 0
    at the upper one.

    **Fields:** `capacity` [J/K]; `resistance` to the surroundings [K/W]; `ambient` temperature
    [°C], at which the resistance of the motor is given; `coefficient` [1/K]; `derating` [°C], or
    `None`; `temperature` at the start [°C].
    """

    capacity: Float[Array, ""]
    resistance: Float[Array, ""]
    ambient: Float[Array, ""]
    coefficient: Float[Array, ""]
    derating: Float[Array, "2"] | None
    temperature: Float[Array, ""]

    @checked
    def __init__(
        self,
        *,
        capacity: Annotated[Number, positive],
        resistance: Annotated[Number, positive],
        ambient: Number = 25.0,
        coefficient: Annotated[Number, not_negative] = 0.0039,
        derating: Annotated[Numbers, Shape([2]), number] | None = None,
        temperature: Number | None = None,
    ):
        """**Arguments:** the fields. `coefficient` is by default that of copper, `temperature` is
        `ambient`.

        **Raises:** `ValueError` for coefficients out of their range, and for temperatures of
        `derating` that are swapped."""
        temperature = ambient if temperature is None else temperature
        values = capacity, resistance, ambient, coefficient, temperature
        self.capacity, self.resistance, self.ambient, self.coefficient, self.temperature = (
            to_jax(x, float) for x in values
        )
        self.derating = None if derating is None else to_jax(derating, float)
        if self.derating is not None:
            check_ordered("`derating` of WindingHeat", self.derating)

    def left(self, limit, temperature) -> Float[Array, ""]:
        """What is left of a limit."""
        if self.derating is None:
            return limit
        low, high = self.derating[0], self.derating[1]
        width = jnp.where(high > low, high - low, 1.0)
        return limit * jnp.clip((high - temperature) / width, 0.0, 1.0)


class DCMotor(AbstractCoordinateForce):
    """A motor with a winding, driven by a voltage, along a scalar coordinate x. With the current i,
    its internal state,

        inductance i' = voltage - resistance i - gear k x',
        force or torque = gear k i - gear^2 rotor_inertia x'',
        k = constant (1 + ripple sin(cycles gear x + phase)).

    The rotor turns `gear` times as fast as the coordinate. k is both the torque per ampere and the
    voltage per speed: what the winding takes from one side, voltage times current, less its heat
    resistance i^2 and what it stores, inductance i^2 / 2, the other side gets. The time constant
    inductance / resistance may be far shorter than the step.

        motor = mbd.forces.DCMotor(
            "motor", mbd.OfJoint("hinge"), resistance=2.0, inductance=1e-3, constant=0.05, gear=50.0
        )
        sol = mbd.simulate(mechanism, method, state, t1=1.0, dt=1e-3, control=volts)
        current = mechanism.internal_of(sol.z, "motor")[:, 0]

    With a `current_limit` the drive keeps the voltage within resistance times this limit of the
    back-EMF gear k x', as far as its `limits` allow. So the current approaches the limit with the
    time constant of the winding, and does not pass it. Cogging is a `CoordinateSpring` with a
    `potential`.

    **Fields:** `name`; `coordinate`; `resistance` [ohm]; `inductance` [H]; `constant` [N m/A, which
    is V s/rad]; `gear` [rad/rad or rad/m]; `voltage` [V]: an `AbstractSignal`, by default entry 0
    of the control; `limits`: lower and upper limit of the voltage, or `None`; `rotor_inertia`
    before the gear [kg m^2], part of M, or `None`; `current` at the start [A]; `ripple`, or `None`,
    with its `cycles` per radian of the rotor, the number of them in a turn, and `phase` [rad];
    `current_limit` [A], or `None`; `heat`: a `WindingHeat`, whose temperature is then a second
    internal state, or `None`.
    """

    resistance: Float[Array, ""]
    inductance: Float[Array, ""]
    constant: Float[Array, ""]
    gear: Float[Array, ""]
    voltage: AbstractSignal
    limits: Float[Array, "2"] | None
    rotor_inertia: Float[Array, ""] | None
    current: Float[Array, ""]
    ripple: Float[Array, ""] | None
    cycles: Float[Array, ""]
    phase: Float[Array, ""]
    current_limit: Float[Array, ""] | None
    heat: WindingHeat | None

    @checked
    def __init__(
        self,
        name: str,
        coordinate: AbstractScalarCoordinate,
        *,
        resistance: Annotated[Number, positive],
        inductance: Annotated[Number, positive],
        constant: Number,
        gear: Number = 1.0,
        voltage: SignalLike | None = None,
        limits: Annotated[Numbers, Shape([2]), number] | None = None,
        rotor_inertia: Annotated[Number, not_negative] | None = None,
        current: Number = 0.0,
        ripple: Number | None = None,
        cycles: Number = 1.0,
        phase: Number = 0.0,
        current_limit: Annotated[Number, positive] | None = None,
        heat: WindingHeat | None = None,
    ):
        """**Arguments:** the fields. `voltage` may be a number, a function of the time, or an
        `AbstractSignal` such as `FromControl(2)`.

        **Raises:** `ValueError` for a resistance, an inductance or a `current_limit` that is not
        positive, a negative `rotor_inertia`, a lower limit above the upper one, and derating
        without a `current_limit`."""
        AlongCoordinate.__init__(self, name, coordinate)
        dtype = coordinate.dtype
        values = resistance, inductance, constant, gear, current, cycles, phase
        self.resistance, self.inductance, self.constant, self.gear, *rest = (
            to_jax(x, dtype) for x in values
        )
        self.current, self.cycles, self.phase = rest
        signal = FromControl(0) if voltage is None else voltage
        self.voltage = as_signal(self._of_voltage, signal, dtype)
        self.limits, self.rotor_inertia, self.ripple, self.current_limit = (
            None if x is None else to_jax(x, dtype)
            for x in (limits, rotor_inertia, ripple, current_limit)
        )
        self.heat = None if heat is None else with_dtype(heat, dtype)
        if self.limits is not None:
            check_ordered(f'`limits` of DCMotor "{name}"', self.limits)
        if heat is not None and heat.derating is not None and current_limit is None:
            raise ValueError(f'DCMotor "{name}" with `derating` needs the `current_limit`.')

    @property
    def internal_names(self):
        return ("current",) if self.heat is None else ("current", "temperature")

    @property
    def glyphs(self):
        return (self.coordinate.actuator_glyph,)

    @property
    def _of_voltage(self) -> str:
        return f'`voltage` of DCMotor "{self.name}"'

    @property
    def initial_internal(self):
        if self.heat is None:
            return self.current[None]
        return jnp.stack([self.current, self.heat.temperature])

    def internal_rate(self, x, rate, t, u, z):
        voltage = read(self._of_voltage, self.voltage, t, u, z.dtype)
        i, resistance = z[0], self.resistance
        if self.heat is not None:
            resistance = resistance * (1 + self.heat.coefficient * (z[1] - self.heat.ambient))
        counter = self.gear * self._constant(x) * rate
        if self.current_limit is not None:
            # The slope by i is that of the winding, so that Newton's method sees no kink in it.
            most = resistance * self._most(z)
            voltage = jnp.clip(voltage, counter - most, counter + most)
        voltage = clipped(voltage, self.limits)
        slope = (voltage - resistance * i - counter) / self.inductance
        if self.heat is None:
            return slope[None]
        lost = (z[1] - self.heat.ambient) / self.heat.resistance
        return jnp.stack([slope, (resistance * i * i - lost) / self.heat.capacity])

    def force(self, x, rate, t, u, z):  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.gear * self._constant(x) * z[0]

    def _most(self, z) -> Float[Array, ""]:
        """The largest current."""
        assert self.current_limit is not None
        return self.current_limit if self.heat is None else self.heat.left(self.current_limit, z[1])

    def _constant(self, x) -> Float[Array, ""]:
        if self.ripple is None:
            return self.constant
        angle = self.cycles * self.gear * x + self.phase
        return self.constant * (1 + self.ripple * jnp.sin(angle))

    @property
    def inertance(self):
        return reflected(self.gear, self.rotor_inertia)

    @property
    def measures(self):
        return self.ripple is not None

    @property
    def needs_turns(self) -> Bool[ArrayLike, "..."]:
        if self.ripple is None:
            return False
        if not isinstance(self.coordinate, OfJoint):
            return True
        xp = array_namespace(self.cycles, self.gear)
        many = xp.asarray(self.cycles) * xp.asarray(self.gear)
        return xp.abs(many - xp.round(many)) > 1e-6

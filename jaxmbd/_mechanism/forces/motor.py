"""A motor with its winding: current, torque ripple, limits, and heat."""

from typing import Annotated

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float

from ..._checks import check_ordered, with_dtype
from ..._compiler import array_namespace, clip, to_jax
from ..._inputs import Number, Numbers, Shape, checked, not_negative, number, positive
from ..element import replaced
from ..scalar_coordinates import AbstractScalarCoordinate, AlongCoordinate, OfJoint
from .coordinate import AbstractCoordinateForce, reflected
from .pid import PIDController
from .signal import AbstractSignal, FromControl, SignalLike, as_signal, clipped, read


class WindingHeat(eqx.Module):
    """How the winding of a `DCMotor` warms up, and what the drive does about it. With the
    temperature T,

        capacity T' = R i^2 - (T - ambient) / resistance,
        R = (resistance of the motor) (1 + coefficient (T - reference)),

    and the current limit falls linearly from all of it at the lower temperature of `derating` to 0
    at the upper one.

    **Fields:** `capacity` [J/K]; `resistance` to the surroundings [K/W]; `ambient` temperature
    [°C]; `reference`: the temperature at which the resistance of the motor is given [°C];
    `coefficient` [1/K]; `derating` [°C], or `None`; `temperature` at the start [°C].
    """

    capacity: Float[Array, ""]
    resistance: Float[Array, ""]
    ambient: Float[Array, ""]
    reference: Float[Array, ""]
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
        reference: Number | None = None,
        coefficient: Annotated[Number, not_negative] = 0.0039,
        derating: Annotated[Numbers, Shape([2]), number] | None = None,
        temperature: Number | None = None,
    ):
        """**Arguments:** the fields. `coefficient` is by default that of copper, `temperature` and
        `reference` are `ambient`.

        **Raises:** `ValueError` for coefficients out of their range, and for temperatures of
        `derating` that are swapped."""
        starts = (ambient if x is None else x for x in (reference, temperature))
        values = capacity, resistance, ambient, coefficient, *starts
        self.capacity, self.resistance, self.ambient, self.coefficient, *rest = (
            to_jax(x, float) for x in values
        )
        self.reference, self.temperature = rest
        self.derating = None if derating is None else to_jax(derating, float)
        if self.derating is not None:
            check_ordered("`derating` of WindingHeat", self.derating)

    def left(self, limit, temperature) -> Float[Array, ""]:
        """What is left of a limit."""
        if self.derating is None:
            return limit
        low, high = self.derating[0], self.derating[1]
        width = jnp.where(high > low, high - low, 1.0)
        return limit * clip((high - temperature) / width, 0.0, 1.0)


class DCMotor(AbstractCoordinateForce):
    """A motor with a winding, driven by a voltage, along a scalar coordinate x. With the current i,
    its internal state,

        inductance i' = voltage - resistance i - gear k x',
        force or torque = gear k i - gear^2 rotor_inertia x'',
        k = constant (1 + ripple sin(cycles gear x + phase)).

    The rotor turns `gear` times as fast as the coordinate. k is both the torque per ampere and the
    voltage per speed: what the winding takes from one side, voltage times current, less its heat
    resistance i^2 and what it stores, inductance i^2 / 2, the other side gets. The time constant
    inductance / resistance may be far shorter than the step. Without an inductance the current
    follows at once, and is no state.

        motor = mbd.forces.DCMotor(
            "motor", mbd.OfJoint("hinge"), resistance=2.0, inductance=1e-3, constant=0.05, gear=50.0
        )
        sol = mbd.simulate(mechanism, method, state, t1=1.0, dt=1e-3, control=volts)
        current = mechanism.internal_of(sol.z, "motor")[:, 0]

    With a `current_limit` the drive keeps the voltage within resistance times this limit of the
    back-EMF gear k x', as far as its `limits` allow. So the current approaches the limit with the
    time constant of the winding, and does not pass it. `current_rate` limits |i'|, and
    `torque_limits` the torque k i of the rotor, however large the current is. Cogging is a
    `CoordinateSpring` with a `potential`.

    With a `controller` of x the drive sets the voltage resistance i + gear k x', within `limits`,
    where i is the current for the force or torque that the controller wants. Its integral follows
    what the voltage allows, and is the last state of the motor. The controller is no force of the
    mechanism.

    **Fields:** `name`; `coordinate`; `resistance` [ohm]; `inductance` [H], or `None`; `constant`
    [N m/A, which is V s/rad]; `gear` [rad/rad or rad/m]; `voltage` [V]: an `AbstractSignal`, by
    default entry 0 of the control; `limits`: lower and upper limit of the voltage, or `None`;
    `rotor_inertia` before the gear [kg m^2], part of M, or `None`; `current` at the start [A];
    `ripple`, or `None`, with its `cycles` per radian of the rotor, the number of them in a turn,
    and `phase` [rad]; `current_limit` [A], `current_rate` [A/s], `torque_limits`: lower and upper
    [N m], each `None` for none; `heat`: a `WindingHeat`, whose temperature is then a second
    internal state, or `None`; `controller`: a `PIDController`, or `None`.
    """

    resistance: Float[Array, ""]
    inductance: Float[Array, ""] | None
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
    current_rate: Float[Array, ""] | None
    torque_limits: Float[Array, "2"] | None
    heat: WindingHeat | None
    controller: PIDController | None
    internal_names: tuple[str, ...] = eqx.field(static=True)

    @checked
    def __init__(
        self,
        name: str,
        coordinate: AbstractScalarCoordinate,
        *,
        resistance: Annotated[Number, positive],
        inductance: Annotated[Number, positive] | None,
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
        current_rate: Annotated[Number, positive] | None = None,
        torque_limits: Annotated[Numbers, Shape([2]), number] | None = None,
        heat: WindingHeat | None = None,
        controller: PIDController | None = None,
    ):
        """**Arguments:** the fields. `voltage` may be a number, a function of the time, or an
        `AbstractSignal` such as `FromControl(2)`. A `controller` is kept without its name and its
        coordinate, which is that of the motor.

        **Raises:** `ValueError` for a resistance, an inductance, a `current_limit` or a
        `current_rate` that is not positive, a negative `rotor_inertia`, a lower limit above the
        upper one, derating without a `current_limit`, a `current_rate` without an inductance, and a
        `voltage` beside a `controller`."""
        AlongCoordinate.__init__(self, name, coordinate)
        dtype = coordinate.dtype
        values = resistance, constant, gear, current, cycles, phase
        self.resistance, self.constant, self.gear, self.current, self.cycles, self.phase = (
            to_jax(x, dtype) for x in values
        )
        default = FromControl(0) if controller is None else 0.0
        signal = default if voltage is None else voltage
        self.voltage = as_signal(self._of_voltage, signal, dtype)
        self.limits, self.torque_limits = (
            None if x is None else to_jax(x, dtype) for x in (limits, torque_limits)
        )
        self.inductance, self.rotor_inertia, self.ripple, self.current_limit, self.current_rate = (
            None if x is None else to_jax(x, dtype)
            for x in (inductance, rotor_inertia, ripple, current_limit, current_rate)
        )
        self.heat, self.controller = None if heat is None else with_dtype(heat, dtype), None
        if controller is not None:
            bare = replaced(controller, name="controller", coordinate=None)
            self.controller = with_dtype(bare, dtype)
        names = () if controller is None else controller.internal_names
        states = ("current", inductance), ("temperature", heat)
        # Static, since names are asked for where numbers are left out.
        self.internal_names = (*(name for name, x in states if x is not None), *names)
        for what, ends in (("limits", self.limits), ("torque_limits", self.torque_limits)):
            if ends is not None:
                check_ordered(f'`{what}` of DCMotor "{name}"', ends)
        if controller is not None and voltage is not None:
            raise ValueError(
                f'DCMotor "{name}" gets its voltage from its `controller`: leave out `voltage`.'
            )
        if current_rate is not None and inductance is None:
            raise ValueError(f'`current_rate` of DCMotor "{name}" needs an `inductance`.')
        if heat is not None and heat.derating is not None and current_limit is None:
            raise ValueError(f'DCMotor "{name}" with `derating` needs the `current_limit`.')

    @property
    def glyphs(self):
        return (self.coordinate.actuator_glyph,)

    @property
    def _of_voltage(self) -> str:
        return f'`voltage` of DCMotor "{self.name}"'

    @property
    def initial_internal(self):
        given = {"current": self.current}
        if self.heat is not None:
            given["temperature"] = self.heat.temperature
        if self.controller is not None:
            given["integral"] = self.controller.accumulated
        return jnp.stack([given[name] for name in self.internal_names])

    def _state(self, name: str, z) -> Float[Array, ""]:
        return z[self.internal_names.index(name)]

    def internal_rate(self, x, rate, t, u, z):
        voltage, counter, error, short = self._driven(x, rate, t, u, z)
        resistance, rates = self._resistance(z), []
        i = self._current(x, rate, t, u, z)
        if self.inductance is not None:
            slope = (voltage - resistance * i - counter) / self.inductance
            if self.current_rate is not None:
                slope = clip(slope, -self.current_rate, self.current_rate)
            rates.append(slope[None])
        if self.heat is not None:
            lost = (self._state("temperature", z) - self.heat.ambient) / self.heat.resistance
            rates.append(((resistance * i * i - lost) / self.heat.capacity)[None])
        if self.controller is not None and self.controller.internal_names:
            rates.append(self.controller.moved(error, short, z[-1:]))
        return jnp.concatenate(rates)

    def force(self, x, rate, t, u, z=None):
        torque = self._constant(x) * self._current(x, rate, t, u, z)
        return self.gear * clipped(torque, self.torque_limits)

    def _current(self, x, rate, t, u, z) -> Float[Array, ""]:
        if self.inductance is not None:
            return self._state("current", z)
        voltage, counter, *_ = self._driven(x, rate, t, u, z)
        return (voltage - counter) / self._resistance(z)

    def _driven(self, x, rate, t, u, z) -> tuple[Array, Array, Array | None, Array | None]:
        """The voltage and the back-EMF; and with a controller its error, and how much less than it
        wants the voltage allows."""
        k, of = self.gear * self._constant(x), self.controller
        counter = k * rate
        error = wanted = None
        if of is None:
            voltage = read(self._of_voltage, self.voltage, t, u, counter.dtype)
        else:
            own = z[-1:] if of.internal_names else None
            error, wanted = of.wanted(x, rate, t, u, own)
            voltage = self.resistance / k * clipped(wanted, of.limits) + counter
        if self.current_limit is not None:
            # The slope by i is that of the winding, so that Newton's method sees no kink in it.
            most = self._resistance(z) * self._most(z)
            voltage = clip(voltage, counter - most, counter + most)
        voltage = clipped(voltage, self.limits)
        if wanted is not None:
            wanted = wanted - (voltage - counter) * k / self.resistance
        return voltage, counter, error, wanted

    def _resistance(self, z) -> Float[Array, ""]:
        if self.heat is None:
            return self.resistance
        warmer = self._state("temperature", z) - self.heat.reference
        return self.resistance * (1 + self.heat.coefficient * warmer)

    def _most(self, z) -> Float[Array, ""]:
        """The largest current."""
        assert self.current_limit is not None
        if self.heat is None:
            return self.current_limit
        return self.heat.left(self.current_limit, self._state("temperature", z))

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
        return self.ripple is not None or self.controller is not None

    @property
    def needs_turns(self) -> Bool[ArrayLike, "..."]:
        if self.controller is not None:
            return True
        if self.ripple is None:
            return False
        if not isinstance(self.coordinate, OfJoint):
            return True
        xp = array_namespace(self.cycles, self.gear)
        many = xp.asarray(self.cycles) * xp.asarray(self.gear)
        return xp.abs(many - xp.round(many)) > 1e-6

"""Controllers and motors with windings of a compiled model."""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._mechanism import (
    AbstractForceElement,
    AbstractScalarCoordinate,
    CoordinateSpring,
    DCMotor,
    FromControl,
    LuGreFriction,
    PIDController,
    WindingHeat,
)
from .source import Source

# What makes `load` read what it tells as missing.
REMEDY = ": load(activation=True) reads it"


class Drive(NamedTuple):
    """Actuator i along a coordinate, with the limits of its force before the gear, or `None`."""

    source: Source
    i: int
    name: str
    coordinate: AbstractScalarCoordinate
    gear: float
    limits: np.ndarray | None

    def told(self, why: str) -> None:
        """Note what has no counterpart."""
        self.source.drop("actuator", self.i, why)

    def of(self, field: str) -> Any:
        """A field of the actuator."""
        return getattr(self.source.m, f"actuator_{field}")[self.i]

    def remember(self, element: str, states: list[str | None], **numbers: tuple[float, float]):
        """Note where the compiled model has the states of an element: those of the actuator in
        their order, `None` for those of others. `numbers`: factor and summand, by default 1 and
        0."""
        for k, state in enumerate(states):
            if state is not None:
                factor, summand = numbers.get(state, (1.0, 0.0))
                place = int(self.of("actadr")) + k
                self.source.acts.append((element, state, place, factor, summand))


class Cogging(eqx.Module):
    """The potential of a torque that repeats along a coordinate x, which is
    amplitude sin(cycles x + phase)."""

    amplitude: Float[Array, ""]
    cycles: Float[Array, ""]
    phase: Float[Array, ""]

    def __call__(self, x):
        return self.amplitude / self.cycles * jnp.cos(self.cycles * x + self.phase)


# --- controllers ---------------------------------------------------------------------------------


def inputs(source: Source, i: int) -> dict[str, int]:
    """The inputs of an actuator with several, by name, and their entries of the control."""
    m, bits = source.m, source.mujoco.mjtCtrlInput
    names = {
        "pos": bits.mjINPUT_POS,
        "vel": bits.mjINPUT_VEL,
        "ff": bits.mjINPUT_FF,
        "voltage": bits.mjINPUT_VOLTAGE,
    }
    given = [name for name, bit in names.items() if int(m.actuator_ctrlspec[i]) & int(bit)]
    first = int(m.actuator_ctrladr[i])
    return {name: first + k for k, name in enumerate(given)}


class _Gains(NamedTuple):
    """The numbers of a controller, in the units of the actuator."""

    proportional: float
    integral: float
    derivative: float
    most: float
    slew: float

    @property
    def states(self) -> list[str | None]:
        """The states of the compiled model, in its order."""
        given = (None, self.slew), ("integral", self.integral)
        return [name for name, number in given if number > 0]


def _controller(drive: Drive, gains: _Gains, **options: Any) -> PIDController | None:
    """The controller along the coordinate, which is the length of the actuator by its gear."""
    if min(gains.proportional, gains.integral, gains.derivative) < 0:
        drive.told("a negative gain, and so all of it")
        return None
    gear, square, at = drive.gear, drive.gear**2, inputs(drive.source, drive.i)
    integral = gains.integral > 0
    if integral and not drive.source.lags:
        drive.told(f"the integral of its controller{REMEDY}")
        integral = False
    if gains.slew > 0:
        drive.told('its "slewmax": limit the rate of the control, e.g. by mbd.Sampled')

    def signal(name: str, factor: float) -> FromControl | None:
        return FromControl(at[name], gear=factor) if name in at else None

    return PIDController(
        drive.name,
        drive.coordinate,
        target=signal("pos", 1 / gear) or 0.0,
        target_rate=signal("vel", 1 / gear),
        feedforward=options.pop("feedforward", None) or signal("ff", gear),
        proportional=square * gains.proportional,
        derivative=square * gains.derivative,
        integral=square * gains.integral if integral else None,
        most=(gains.most / abs(gear) if gains.most > 0 else np.inf) if integral else None,
        **options,
    )


def _along(drive: Drive) -> np.ndarray | None:
    """The limits of the force along the coordinate."""
    return None if drive.limits is None else np.sort(drive.gear * drive.limits)


def _stated(element: AbstractForceElement, states: list[str | None]) -> list[str | None]:
    """The states of the compiled model, `None` for those that an element is without."""
    return [x if x in element.internal_names else None for x in states]


def pid(drive: Drive) -> list[AbstractForceElement]:
    """An actuator of gain "pid"."""
    gain, bias, numbers = (drive.of(f"{x}prm") for x in ("gain", "bias", "dyn"))
    gains = _Gains(-bias[1], gain[0], -bias[2], numbers[0], numbers[1])
    options: dict[str, Any] = {"limits": _along(drive)}
    if bias[0] and "ff" in inputs(drive.source, drive.i):
        drive.told("the constant of its bias")
    elif bias[0]:
        options["feedforward"] = drive.gear * bias[0]
    if drive.of("actlimited") and gains.states:
        drive.told("the limits of its activation")
    found = _controller(drive, gains, **options)
    if found is None:
        return []
    drive.remember(drive.name, _stated(found, gains.states), integral=(1 / drive.gear, 0.0))
    return [found]


# --- motors --------------------------------------------------------------------------------------


def dc_motor(drive: Drive) -> list[AbstractForceElement]:
    """An actuator of gain "dcmotor"."""
    source, name = drive.source, drive.name
    given = map(float, drive.of("gainprm")[:8])
    resistance, constant, coefficient, reference, p, i, d, volts = given
    given = map(float, drive.of("dynprm")[:9])
    lag, rate, to_ambient, capacity, ambient, bristles, _, slew, most = given
    gains = _Gains(p, i, d, most, slew)
    at = inputs(source, drive.i)
    controlled = any(x in at for x in ("pos", "vel", "ff"))
    # In the order of the compiled model.
    states = list(gains.states)
    states += ["temperature"] * (to_ambient > 0) + ["deflection"] * (bristles > 0)
    states += ["current"] * (lag > 0)
    # What stands alone has the name of the actuator.
    alone = constant <= 0 and bool(drive.of("biasprm")[0]) != (bristles > 0)
    names = {kind: name if alone else f"{name} {kind}" for kind in ("cogging", "friction")}
    found = [*_cogging(drive, names["cogging"]), *_bristles(drive, names["friction"], states)]
    if constant <= 0:
        return found
    if controlled and "voltage" in at:
        drive.told('its input "voltage" beside those of its controller')
    if not source.lags:
        for what, number in (("inductance", lag), ("heat", to_ambient)):
            if number > 0:
                drive.told(f"its {what}{REMEDY}")
        lag = to_ambient = 0.0
    heat = controller = voltage = None
    if to_ambient > 0:
        if lag and coefficient:
            drive.told("that its inductance grows with its resistance")
        heat = WindingHeat(
            capacity=capacity,
            resistance=to_ambient,
            ambient=ambient,
            reference=reference,
            coefficient=coefficient,
        )
    if controlled:
        controller = _controller(drive, gains)
        if controller is None:
            return found
    else:
        voltage = FromControl(at["voltage"]) if at else 0.0
    motor = DCMotor(
        name,
        drive.coordinate,
        resistance=resistance,
        inductance=resistance * lag if lag else None,
        constant=constant,
        gear=drive.gear,
        voltage=voltage,
        limits=np.array([-volts, volts]) if controlled and volts > 0 else None,
        torque_limits=drive.limits,
        current_rate=rate if lag and rate > 0 else None,
        heat=heat,
        controller=controller,
    )
    numbers = {"integral": (1 / drive.gear, 0.0), "temperature": (1.0, ambient)}
    drive.remember(name, _stated(motor, states), **numbers)
    return [motor, *found]


def _cogging(drive: Drive, name: str) -> list[AbstractForceElement]:
    amplitude, teeth, phase = map(float, drive.of("biasprm")[:3])
    if not amplitude:
        return []
    torque, cycles = drive.gear * amplitude, drive.gear * teeth
    if teeth:
        law = Cogging(*(jnp.asarray(x, float) for x in (torque, cycles, phase)))
        given: dict[str, Any] = {"potential": law}
    else:
        given = {"actuator": torque * np.sin(phase)}
    return [CoordinateSpring(name, drive.coordinate, **given)]


def _bristles(drive: Drive, name: str, states: list[str | None]) -> list[AbstractForceElement]:
    stiffness, damping = map(float, drive.of("dynprm")[5:7])
    dry, static, speed = map(float, drive.of("biasprm")[3:6])
    if stiffness <= 0:
        return []
    if not drive.source.lags:
        drive.told(f"its friction{REMEDY}")
        return []
    if speed <= 0:
        static, speed = dry, 1.0
    if dry <= 0 or static < dry or damping < 0:
        drive.told("its friction, which is not positive or rises with the speed")
        return []
    gear, square = abs(drive.gear), drive.gear**2
    found = LuGreFriction(
        name,
        drive.coordinate,
        dry=gear * dry,
        static=gear * static,
        speed=speed / gear,
        stiffness=square * stiffness,
        damping=square * damping,
    )
    drive.remember(found.name, _stated(found, states), deflection=(1 / drive.gear, 0.0))
    return [found]

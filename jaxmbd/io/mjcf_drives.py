"""Actuators, motors, controllers and friction with bristles as actuators of MJCF."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from .._mechanism import (
    AbstractSignal,
    CoordinateActuator,
    CoordinateSpring,
    DCMotor,
    FromControl,
    LuGreFriction,
    PIDController,
)
from .drives import Cogging

# What is stated here. Of springs only cogging.
Driving: TypeAlias = CoordinateActuator | PIDController | DCMotor | LuGreFriction | CoordinateSpring


class Stated(NamedTuple):
    """An actuator of MJCF: its tag, `None` if there is none; its attributes; the entries of the
    control that it reads, one after the other; and what it is without."""

    tag: str | None
    attributes: Mapping[str, Any] = MappingProxyType({})
    entries: Sequence[int] = ()
    without: Sequence[str] = ()


class _Refused(Exception):
    """Why an element cannot be stated at all."""


def stated(force: Driving, offset: float) -> Stated:
    """An element as an actuator. `offset`: its coordinate where that of the file is 0."""
    if isinstance(force, CoordinateActuator):
        return _actuator(force, offset)
    try:
        if isinstance(force, PIDController):
            return _pid(force, offset)
        if isinstance(force, DCMotor):
            return _motor(force, offset)
    except _Refused as why:
        return Stated(None, without=[str(why)])
    if isinstance(force, LuGreFriction):
        numbers = force.stiffness, force.damping, force.dry, force.static, force.speed
        return Stated("dcmotor", _IDLE | {"lugre": numbers})
    assert isinstance(force.potential, Cogging)
    law = force.potential
    amplitude, cycles, phase = map(float, (law.amplitude, law.cycles, law.phase))
    rest = 0.0 if force.rest is None else float(force.rest)
    return Stated(
        "dcmotor", _IDLE | {"cogging": (amplitude, cycles, phase + cycles * (offset - rest))}
    )


# A motor without a winding.
_IDLE = {"input": "none", "resistance": 1.0, "motorconst": (0.0, 0.0)}


def is_cogging(force: CoordinateSpring) -> bool:
    """Whether a spring is cogging and nothing else."""
    others = force.stiffness, force.damping, force.dry, force.law, force.actuator, force.armature
    constant = force.rest is None or force.rest.ndim == 0
    return isinstance(force.potential, Cogging) and others == (None,) * 6 and constant


def at_the_start(force: Driving) -> list[str]:
    """What is missing of the internal states: MuJoCo begins with 0, and motors as warm as their
    surroundings."""
    if not force.internal_names:
        return []
    usual = np.zeros(len(force.internal_names))
    if isinstance(force, DCMotor) and force.heat is not None:
        usual[force.internal_names.index("temperature")] = float(force.heat.ambient)
    same = np.array_equal(np.asarray(force.initial_internal), usual)
    return [] if same else ["its internal states at the start"]


def _actuator(force: CoordinateActuator, offset: float) -> Stated:
    """A motor, or a general actuator where its force depends on the coordinate, or has a memory."""
    tag, given = "motor", dict[str, Any](gear=force.gear)
    if force.gain is not None or force.bias is not None:
        gain = np.array([1.0, 0.0, 0.0] if force.gain is None else force.gain, float)
        bias = np.array([0.0, 0.0, 0.0] if force.bias is None else force.bias, float)
        for x in (gain, bias):
            x[0] += x[1] * offset * float(force.gear)
        tag = "general"
        given |= {
            "gaintype": "affine" if np.any(gain[1:]) else "fixed",
            "gainprm": gain,
            "biastype": "affine" if np.any(bias) else "none",
            "biasprm": bias,
        }
    if force.internal_names:
        tag, lag = "general", force.lag
        given["dyntype"] = "integrator" if lag is None else "filterexact"
        given["dynprm"] = None if lag is None else np.array([lag])
    if force.activation_limits is not None:
        given["actrange"] = np.clip(force.activation_limits, -1e30, 1e30)
    if force.limits is not None:
        given["forcerange"] = np.clip(force.limits, -1e30, 1e30)
    return Stated(tag, given, [force.index])


def _pid(force: PIDController, offset: float) -> Stated:
    gears = [_gear(force.target), _gear(force.target_rate), _inverse(_gear(force.feedforward))]
    gear = next((1 / x for x in gears if x), 1.0)
    names, entries = _inputs(force, gear)
    if not entries:
        raise _Refused("it reads no entry of the control")
    kp, ki, kd, most, without = _gains(force, gear, offset)
    given = {"gear": gear, "kp": kp, "ki": ki, "kv": kd, "imax": most, "input": " ".join(names)}
    if force.limits is not None:
        given["forcerange"] = np.clip(np.sort(np.asarray(force.limits) / gear), -1e30, 1e30)
    return Stated("pid", given, entries, without)


def _motor(force: DCMotor, offset: float) -> Stated:
    gear, without = float(force.gear), list[str]()
    given = {
        "gear": gear,
        "resistance": force.resistance,
        "motorconst": (force.constant, 0.0),
        "inductance": None if force.inductance is None else (force.inductance, 0.0),
    }
    torque = _symmetric(force.torque_limits)
    if force.torque_limits is not None and torque is None:
        without.append("its torque limits, which differ in size")
    rate = 0.0 if force.current_rate is None else force.current_rate
    if torque or force.current_rate is not None:
        given["saturation"] = (torque or 0.0, 0.0, rate)
    for what, value in (("ripple", force.ripple), ("current limit", force.current_limit)):
        if value is not None:
            without.append(f"its {what}")
    if force.heat is not None:
        heat = force.heat
        cooling = heat.resistance, heat.capacity, 0.0
        given["thermal"] = (*cooling, heat.coefficient, heat.reference, heat.ambient)
        if heat.derating is not None:
            without.append("its derating")
    if force.controller is None:
        if _is_zero(force.voltage):
            return Stated("dcmotor", given | {"input": "none"}, (), without)
        if _gear(force.voltage) != 1:
            raise _Refused("its voltage is no entry of the control")
        if force.limits is not None:
            given["ctrlrange"] = np.clip(force.limits, -1e30, 1e30)
        return Stated("dcmotor", given, _indices([force.voltage]), without)
    names, entries = _inputs(force.controller, gear)
    kp, ki, kd, most, more = _gains(force.controller, gear, offset)
    volts = _symmetric(force.limits)
    if force.limits is not None and volts is None:
        more.append("its limits of the voltage, which differ in size")
    if force.controller.limits is not None:
        more.append("the limits of its controller")
    given["controller"] = (kp, ki, kd, 0.0, most or 0.0, volts or 0.0)
    given["input"] = " ".join(names) or "none"
    return Stated("dcmotor", given, entries, [*without, *more])


def _gains(law: PIDController, gear: float, offset: float):
    """Gains and the limit of the integral in the units of an actuator, and what is missing."""
    integral, without = 0.0 if law.integral is None else float(law.integral), []
    if offset and (integral or float(law.proportional)):
        raise _Refused("its target is counted from elsewhere than the coordinate of the file")
    most = None
    if law.integral is not None and law.most is None:
        without.append("that its integral follows the limits")
    elif law.most is not None and np.isfinite(float(law.most)):
        most = float(law.most) * abs(gear)
    gains = (float(law.proportional), integral, float(law.derivative))
    return *(x / gear**2 for x in gains), most, without


def _inputs(law: PIDController, gear: float) -> tuple[list[str], list[int]]:
    """The inputs of a controller, and their entries of the control."""
    names, signals = [], []
    for name, signal, factor in (
        ("pos", law.target, 1 / gear),
        ("vel", law.target_rate, 1 / gear),
        ("ff", law.feedforward, gear),
    ):
        if signal is None or _is_zero(signal):
            continue
        own = _gear(signal)
        if own is None or not np.isclose(own, factor, rtol=1e-12):
            raise _Refused("its inputs are no entries of the control in the units of one gear")
        names.append(name)
        signals.append(signal)
    return names, _indices(signals)


def _indices(signals: Sequence[Any]) -> list[int]:
    found = [signal.index for signal in signals]
    if found and found != list(range(found[0], found[0] + len(found))):
        raise _Refused("its entries of the control do not follow each other")
    return found


def _gear(signal: AbstractSignal | None) -> float | None:
    """The factor of one entry of the control, `None` for anything else."""
    if not isinstance(signal, FromControl) or not isinstance(signal.index, int):
        return None
    return float(signal.gear) if np.ndim(signal.gear) == 0 else None


def _inverse(x: float | None) -> float | None:
    return 1 / x if x else None


def _is_zero(signal: AbstractSignal) -> bool:
    value = getattr(signal, "value", None)
    return value is not None and not np.any(np.asarray(value))


def _symmetric(ends: Any) -> float | None:
    """The size of a lower and an upper limit, `None` if they differ in size, or without any."""
    if ends is None:
        return None
    low, high = map(float, ends)
    return high if low == -high and np.isfinite(high) else None

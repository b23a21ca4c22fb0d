"""Forces along scalar coordinates."""

import abc
from typing import Annotated, Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._compiler import numpy_if_concrete, to_jax
from ..._inputs import (
    Number,
    Numbers,
    Shape,
    Vector,
    at_least,
    checked,
    not_negative,
    number,
    positive,
)
from ..element import checked_name
from ..scalar_coordinates import AbstractScalarCoordinate, AlongCoordinate
from .base import AbstractForceElement, Wrench
from .signal import control_entry


class AbstractCoordinateForce(AlongCoordinate, AbstractForceElement):
    """A force or torque along a scalar coordinate."""

    @abc.abstractmethod
    def along(self, poses, twists, u) -> Float[Array, ""]:
        """The force or torque along the coordinate [N or N m]."""

    def wrenches(self, poses, twists, t, u):
        del t
        force = self.along(poses, twists, u)
        directions = self.coordinate.directions(poses)
        return tuple(Wrench(force * d.linear, force * d.angular) for d in directions)


class CoordinateSpring(AbstractCoordinateForce):
    """Spring, damper, dry friction and rotor along a scalar coordinate x, with the force or torque

        -stiffness s(x) - damping x' - dry x' / sqrt(x'^2 + speed^2) - armature x''.

    s(x) is the distance of x from the interval `rest`, with its sign. The dry friction is the
    smooth one of `TurningFriction`. The armature is part of M.

    **Fields:** `name`; `coordinate`; `stiffness` [N/m or N m/rad]; `rest`:
    lower and upper end of the interval without force [m or rad]; `damping` [N s/m or N m s/rad];
    `dry` [N or N m] and `speed` [m/s or rad/s]; `armature` [kg or kg m^2], or `None`.
    """

    name: str = eqx.field(static=True)
    coordinate: AbstractScalarCoordinate
    stiffness: Float[Array, ""]
    rest: Float[Array, "2"]
    damping: Float[Array, ""]
    dry: Float[Array, ""]
    speed: Float[Array, ""]
    armature: Float[Array, ""] | None

    @checked
    def __init__(
        self,
        name: str,
        coordinate: AbstractScalarCoordinate,
        *,
        stiffness: Annotated[Number, not_negative] = 0.0,
        rest: Numbers = 0.0,
        damping: Annotated[Number, not_negative] = 0.0,
        dry: Annotated[Number, not_negative] = 0.0,
        speed: Annotated[Number, positive] = 1e-2,
        armature: Annotated[Number, not_negative] | None = None,
    ):
        """**Arguments:** the fields; `rest` is one number for an ordinary spring.

        **Raises:** `ValueError` for a coefficient that is negative or not finite."""
        self.name = checked_name("CoordinateSpring", name)
        self.coordinate = coordinate
        dtype = coordinate.dtype
        self.stiffness, self.damping = to_jax(stiffness, dtype), to_jax(damping, dtype)
        rest = to_jax(rest, dtype)
        xp = numpy_if_concrete(rest)
        self.rest = to_jax(xp.broadcast_to(xp.asarray(rest), (2,)))
        self.dry, self.speed = to_jax(dry, dtype), to_jax(speed, dtype)
        self.armature = None if armature is None else to_jax(armature, dtype)

    def along(self, poses, twists, u):
        del u
        rate = self.coordinate.rate(poses, twists)
        friction = self.damping + self.dry / jnp.sqrt(rate * rate + self.speed * self.speed)
        return -self.stiffness * self._stretch(poses) - friction * rate

    def _stretch(self, poses) -> Float[Array, ""]:
        x = self.coordinate.value(poses)
        return x - jnp.clip(x, self.rest[0], self.rest[1])

    @property
    def inertance(self):
        return self.armature

    @property
    def needs_turns(self):
        return numpy_if_concrete(self.stiffness).asarray(self.stiffness) != 0

    def rate(self, poses, twists):
        return self.coordinate.rate(poses, twists)

    def energy(self, poses, t):
        del t
        stretch = self._stretch(poses)
        return self.stiffness * stretch * stretch / 2


class CoordinateActuator(AbstractCoordinateForce):
    """An actuator along a scalar coordinate x, for instance a servo drive. Its force or torque is
    gear F, with

        F = (g_0 + g_1 l + g_2 l') u + b_0 + b_1 l + b_2 l',    l = gear x,

    clipped to `limits`. A motor has g_0 = 1. A position servo has g_0 = k, b_1 = -k and
    b_2 = -damping; a velocity servo has g_0 = k and b_2 = -k. u is an entry of the control.

    **Fields:** `name`; `coordinate`; `gear`; `gain`: g, and `bias`: b,
    shape `(3,)`; `limits`: lower and upper limit of F, or `None`; `index` of the entry of the
    control, counted from 0.
    """

    name: str = eqx.field(static=True)
    coordinate: AbstractScalarCoordinate
    gear: Float[Array, ""]
    gain: Float[Array, "3"]
    bias: Float[Array, "3"]
    limits: Float[Array, "2"] | None
    index: int = eqx.field(static=True)

    @checked
    def __init__(
        self,
        name: str,
        coordinate: AbstractScalarCoordinate,
        *,
        index: Annotated[int, at_least(0)] = 0,
        gear: Number = 1.0,
        gain: Vector = (1.0, 0.0, 0.0),
        bias: Vector = (0.0, 0.0, 0.0),
        limits: Annotated[Any, Shape([2]), number] | None = None,
    ):
        """**Arguments:** the fields.

        **Raises:** `ValueError` for limits in the wrong order. At evaluation, for a control without
        such an entry."""
        self.name = checked_name("CoordinateActuator", name)
        self.coordinate = coordinate
        dtype = coordinate.dtype
        self.gear = to_jax(gear, dtype)
        self.gain, self.bias = to_jax(gain, dtype), to_jax(bias, dtype)
        self.limits = None if limits is None else to_jax(limits, dtype)
        self.index = index

    def effort(self, poses, twists, u) -> Float[Array, ""]:
        """F, before the gear."""
        u = control_entry(f'CoordinateActuator "{self.name}"', u, self.index)
        length = self.gear * self.coordinate.value(poses)
        rate = self.gear * self.coordinate.rate(poses, twists)
        gain = self.gain[0] + self.gain[1] * length + self.gain[2] * rate
        bias = self.bias[0] + self.bias[1] * length + self.bias[2] * rate
        force = gain * jnp.asarray(u, self.gear.dtype) + bias
        return force if self.limits is None else jnp.clip(force, self.limits[0], self.limits[1])

    @property
    def needs_turns(self):
        xp = numpy_if_concrete(self.gear, self.gain, self.bias)
        gear, gain, bias = (xp.asarray(x) for x in (self.gear, self.gain, self.bias))
        return (gear != 0) & ((gain[1] != 0) | (bias[1] != 0))

    def along(self, poses, twists, u):
        return self.gear * self.effort(poses, twists, u)

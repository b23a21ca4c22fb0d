from typing import Annotated, Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._concrete import numpy_if_concrete, to_jax
from ..._inputs import Number, Shape, Vector, at_least, checked, number
from ..element import checked_name
from ..scalar_coordinates import AbstractScalarCoordinate, anonymous
from .coordinate_force import AbstractCoordinateForce
from .signal import control_entry


class CoordinateActuator(AbstractCoordinateForce):
    """An actuator along a scalar coordinate x, for instance a servo drive. Its force or torque is
    gear F, with

        F = (g_0 + g_1 l + g_2 l') u + b_0 + b_1 l + b_2 l',    l = gear x,

    clipped to `limits`. A motor has g_0 = 1. A position servo has g_0 = k, b_1 = -k and
    b_2 = -damping; a velocity servo has g_0 = k and b_2 = -k. u is an entry of the control.

    **Fields:** `name`; `names` of the bodies; `coordinate`; `gear`; `gain`: g, and `bias`: b,
    shape `(3,)`; `limits`: lower and upper limit of F, or `None`; `index` of the entry of the
    control, counted from 0.
    """

    name: str = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
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
        self.names, self.coordinate = coordinate.bodies, anonymous(coordinate)
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

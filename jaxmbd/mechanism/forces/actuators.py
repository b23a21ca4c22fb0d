"""Actuators between two bodies, with gear and rotor."""

from typing import Annotated, Any, ClassVar, Unpack

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._compiler import to_jax
from ..._coordinates import dot
from ..._inputs import Number, at_least, checked, not_negative
from ..body import Body
from ..frames import Frames
from ..relative import z_axis
from .base import AbstractForce, Wrench
from .signal import control_entry


class AbstractActuator(AbstractForce):
    """A force or torque along or about the axis of a, `gear` times one entry u of the control, less
    the inertia of the rotor:

        gear u - gear^2 rotor_inertia d(rate)/dt,

    with the rate along or about the axis. For instance, a motor with the torque u drives a gearbox
    of ratio `gear`, and its rotor turns `gear` times as fast as the joint. The inertia of the rotor
    is part of M. Its gyroscopic torque is neglected.

    **Fields:**

    - `gear`: ratio of the force or torque to the entry of the control [N or N m per unit of u].
    - `rotor_inertia`: inertia of the rotor, before the gearbox [kg m^2], or `None`.
    - `index`: index of the entry of the control u, counted from 0.
    """

    gear: Float[Array, ""]
    rotor_inertia: Float[Array, ""] | None
    index: int = eqx.field(static=True)

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        gear: Number = 1.0,
        rotor_inertia: Annotated[Number | None, not_negative] = None,
        index: Annotated[int, at_least(0)] = 0,
        **frames: Unpack[Frames],
    ):
        """**Arguments:** the fields; `frames` as in `Frames`.

        **Raises:** `ValueError` for a `gear` that is not finite, a negative `rotor_inertia`, and an
        `index` that is not an index. At evaluation, for a control without such an entry.
        """
        self._connect(name, a, b, frames)
        self.gear = to_jax(gear, self.dtype)
        self.rotor_inertia = None
        if rotor_inertia is not None:
            self.rotor_inertia = to_jax(rotor_inertia, self.dtype)
        self.index = index

    def effort(self, u: Any) -> Float[Array, ""]:
        """The force or torque."""
        entry = control_entry(f'{type(self).__name__} "{self.name}"', u, self.index)
        return self.gear * jnp.asarray(entry, self.gear.dtype)

    @property
    def inertance(self) -> Float[Array, ""] | None:
        if self.rotor_inertia is None:
            return None
        return self.gear * self.gear * self.rotor_inertia


class LinearActuator(AbstractActuator):
    """Force `gear` u along the axis of a. It acts on b at its origin, and the opposite on a at the
    same point. A positive force pushes b forwards. Fields and constructor: see `AbstractActuator`.

    If u is the torque of a motor that drives a spindle, `gear` is 2 pi over its pitch, and a
    `rotor_inertia` acts like a mass of gear^2 rotor_inertia. For a force along the line between two
    points, as of a hydraulic cylinder, see the `actuator` of `Spring`.
    """

    directed: ClassVar[bool] = True

    def wrench(self, a, b, twist_a, twist_b, t, u):
        del b, twist_a, twist_b, t
        force = self.effort(u) * z_axis(a)
        return Wrench(force, jnp.zeros_like(force))

    def rate(self, poses, twists):
        (a, b), (twist_a, twist_b) = poses, twists
        return dot(z_axis(a), twist_b.linear - twist_a.at(b.position - a.position))


class Motor(AbstractActuator):
    """Torque `gear` u about the axis of a. It acts on b, and the opposite on a. A positive torque
    turns b forwards. Fields and constructor are those of `AbstractActuator`.

    If u is the torque of a motor before a gearbox, `gear` is the speed of the motor over that of
    the joint, and a `rotor_inertia` acts at the joint as gear^2 rotor_inertia.
    """

    directed: ClassVar[bool] = True

    def wrench(self, a, b, twist_a, twist_b, t, u):
        del b, twist_a, twist_b, t
        torque = self.effort(u) * z_axis(a)
        return Wrench.of_torque(torque)

    def rate(self, poses, twists):
        return dot(z_axis(poses[0]), twists[1].angular - twists[0].angular)

from typing import Annotated

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._concrete import numpy_if_concrete, to_jax
from ..._inputs import Number, Numbers, checked, not_negative, positive
from ..element import checked_name
from ..scalar_coordinates import AbstractScalarCoordinate, anonymous
from .coordinate_force import AbstractCoordinateForce


class CoordinateSpring(AbstractCoordinateForce):
    """Spring, damper, dry friction and rotor along a scalar coordinate x, with the force or torque

        -stiffness s(x) - damping x' - dry x' / sqrt(x'^2 + speed^2) - armature x''.

    s(x) is the distance of x from the interval `rest`, with its sign. The dry friction is the
    smooth one of `TurningFriction`. The armature is part of M.

    **Fields:** `name`; `names` of the bodies; `coordinate`; `stiffness` [N/m or N m/rad]; `rest`:
    lower and upper end of the interval without force [m or rad]; `damping` [N s/m or N m s/rad];
    `dry` [N or N m] and `speed` [m/s or rad/s]; `armature` [kg or kg m^2], or `None`.
    """

    name: str = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
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
        self.names, self.coordinate = coordinate.bodies, anonymous(coordinate)
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

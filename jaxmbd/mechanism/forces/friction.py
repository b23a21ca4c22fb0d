"""Dry friction in joints."""

from typing import Annotated, ClassVar, Unpack

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._compiler import to_jax
from ..._coordinates import dot
from ..._inputs import Number, checked, not_negative, positive
from ..body import Body
from ..element import AbstractConnector
from ..frames import Frames
from ..relative import z_axis
from .base import AbstractForce, Wrench


class AbstractJointFriction(AbstractForce):
    """Viscous and smooth dry friction in a joint. The resistance to the rate w of a coordinate is

        viscous w + dry w / sqrt(w^2 + speed^2).

    The second term is Coulomb's law with its jump at rest smoothed: 71 % of `dry` at `speed`,
    99.5 % at ten times that rate. So the joint creeps instead of sticking, like a stiff damper with
    the force dry w / speed. Choose `speed` well below the rates of interest. With an explicit
    scheme of step h, dry h / speed must not exceed the mass. The power is never positive, and the
    force is smooth.

    `dry` is a given force or torque. It does not depend on the load of the joint.

    **Fields:** `viscous` [N s/m or N m s/rad], `dry` [N or N m], `speed` [m/s or rad/s].
    """

    viscous: Float[Array, ""]
    dry: Float[Array, ""]
    speed: Float[Array, ""]

    @checked
    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        viscous: Annotated[Number, not_negative] = 0.0,
        dry: Annotated[Number, not_negative] = 0.0,
        speed: Annotated[Number, positive] = 1e-2,
        **frames: Unpack[Frames],
    ):
        """**Arguments:** the fields; `frames` as in `Frames`.

        **Raises:** `ValueError` for a negative friction, which would add energy, and for a `speed`
        that is not positive.
        """
        self._connect(name, a, b, frames)
        self.viscous = to_jax(viscous, self.dtype)
        self.dry = to_jax(dry, self.dtype)
        self.speed = to_jax(speed, self.dtype)

    @classmethod
    def of(
        cls,
        joint: AbstractConnector,
        name: str | None = None,
        *,
        viscous: Annotated[Number, not_negative] = 0.0,
        dry: Annotated[Number, not_negative] = 0.0,
        speed: Annotated[Number, positive] = 1e-2,
    ):
        """The friction of a `joint`, in its frames, and with its name unless another is given.

        **Raises:** `ValueError` for a constraint that does not connect two frames.
        """
        if not isinstance(joint, AbstractConnector):
            raise ValueError(
                f"{cls.__name__} needs a joint between two bodies, but {type(joint).__name__} "
                f'"{joint.name}" is none: give `frame_a` and `frame_b` instead.'
            )
        return cls(
            joint.name if name is None else name,
            joint.body_a,
            joint.body_b,
            viscous=viscous,
            dry=dry,
            speed=speed,
            frame_a=joint.frame_a,
            frame_b=joint.frame_b,
        )

    def resistance(self, rate: Float[Array, ""]) -> Float[Array, ""]:
        """The force or torque against the rate, with the sign of the rate."""
        return rate * (self.viscous + self.dry / jnp.sqrt(rate * rate + self.speed * self.speed))


class SlidingFriction(AbstractJointFriction):
    """Friction of a slide: a force against the velocity of the origin of b relative to a along the
    axis of a. The law is that of `AbstractJointFriction`, with `viscous` [N s/m], `dry` [N] and
    `speed` [m/s]."""

    directed: ClassVar[bool] = True

    def wrench(self, a, b, twist_a, twist_b, t, u):
        del t, u
        axis = z_axis(a)
        rate = dot(axis, twist_b.linear - twist_a.at(b.position - a.position))
        return Wrench(-self.resistance(rate) * axis, jnp.zeros_like(axis))


class TurningFriction(AbstractJointFriction):
    """Friction of a hinge: a torque against the angular velocity of b relative to a about the axis
    of a. The law is that of `AbstractJointFriction`, with `viscous` [N m s/rad], `dry` [N m] and
    `speed` [rad/s]."""

    directed: ClassVar[bool] = True

    def wrench(self, a, b, twist_a, twist_b, t, u):
        del b, t, u
        axis = z_axis(a)
        rate = dot(axis, twist_b.angular - twist_a.angular)
        return Wrench.of_torque(-self.resistance(rate) * axis)

from typing import Annotated, Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._inputs import Number, at_least, checked, not_negative
from ..body import Body
from ..connector import AbstractConnector
from .base import AbstractForce
from .signal import control_entry


class AbstractActuator(AbstractForce):
    """`gear` times one entry of the control, along or about the axis of a,

        gear u - gear^2 rotor_inertia d(rate)/dt,

    with the rate of the axis: as of a motor with the torque u before a gearbox of the ratio
    `gear`, whose rotor turns `gear` times as fast. Its inertia is part of M; its own spin does not
    tilt with the bodies (no gyroscopic torque).

    **Fields:**

    - `gear`: ratio of the force or torque to the entry of the control [N or N m per unit of u].
    - `rotor_inertia`: of what turns before the gearbox [kg m^2], or `None`.
    - `index`: which entry of the control u it is driven by, counted from 0.
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
        **frames: Any,
    ):
        """**Arguments:** the fields; the others as in `AbstractJoint`.

        **Raises:** `ValueError` for a `gear` that is not finite, a `rotor_inertia` that is
        negative, and an `index` that is none; and when it is evaluated, for a control that has no
        such entry.
        """
        AbstractConnector.__init__(self, name, a, b, **frames)
        self.gear = jnp.asarray(gear, self.dtype)
        self.rotor_inertia = None
        if rotor_inertia is not None:
            self.rotor_inertia = jnp.asarray(rotor_inertia, self.dtype)
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

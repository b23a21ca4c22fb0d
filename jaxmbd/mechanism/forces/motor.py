from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..body import Body
from ..connector import AbstractConnector
from ..parameter import finite
from ..relative import z_axis
from .base import AbstractForce, Wrench
from .signal import check_index, control_entry


class Motor(AbstractForce):
    """Torque `gear` u about the axis of a, on b and back on a: a positive one turns b forwards.

    The rotor has no inertia of its own.

    **Fields:**

    - `gear`: ratio of the torque to the entry of the control [N m per unit of u]; for a motor
      torque u behind a gearbox, the ratio of the speed of the motor to that of the joint.
    - `index`: which entry of the control u it is driven by, counted from 0.
    """

    gear: Float[Array, ""]
    index: int = eqx.field(static=True)

    directed: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        a: Body | str,
        b: Body | str,
        *,
        gear: Any = 1.0,
        index: int = 0,
        **frames: Any,
    ):
        """**Arguments:** the fields; the others as in `AbstractJoint`.

        **Raises:** `ValueError` for a `gear` that is not finite and an `index` that is none; and
        when it is evaluated with a control that has no such entry.
        """
        AbstractConnector.__init__(self, name, a, b, **frames)
        self.gear = finite(f'`gear` of Motor "{name}"', gear, self.dtype)
        check_index(f'Motor "{name}"', index)
        self.index = index

    def wrench(self, a, b, twist_a, twist_b, t, u):
        del b, twist_a, twist_b, t
        axis = z_axis(a)
        entry = control_entry(f'Motor "{self.name}"', u, self.index)
        torque = self.gear * jnp.asarray(entry, axis.dtype) * axis
        return Wrench(jnp.zeros_like(torque), torque)

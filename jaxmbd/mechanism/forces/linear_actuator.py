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


class LinearActuator(AbstractForce):
    """Force `gear` u along the axis of a, on b at its origin, and back on a at the same point: a
    positive one pushes b forwards. For a force along the line between two points, as of a hydraulic
    cylinder, see the `actuator` of `Spring`.

    **Fields:**

    - `gear`: ratio of the force to the entry of the control [N per unit of u]; for a motor torque u
      behind a spindle, 2 pi over its pitch.
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
        """**Arguments** and errors as `Motor`."""
        AbstractConnector.__init__(self, name, a, b, **frames)
        self.gear = finite(f'`gear` of LinearActuator "{name}"', gear, self.dtype)
        check_index(f'LinearActuator "{name}"', index)
        self.index = index

    def wrench(self, a, b, twist_a, twist_b, t, u):
        del b, twist_a, twist_b, t
        axis = z_axis(a)
        entry = control_entry(f'LinearActuator "{self.name}"', u, self.index)
        force = self.gear * jnp.asarray(entry, axis.dtype) * axis
        return Wrench(force, jnp.zeros_like(force))

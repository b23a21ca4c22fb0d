from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..body import Body
from ..connector import AbstractConnector
from ..relative import z_axis
from .base import AbstractForce, Wrench


class Motor(AbstractForce):
    """Torque `gear` u about the axis of a, on b and back on a.

    **Fields:**

    - `gear`: ratio of the torque to the entry of the control [N m per unit of u].
    - `index`: which entry of the control u it is driven by.
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
        """**Arguments:** the fields; the others as in `AbstractJoint`."""
        AbstractConnector.__init__(self, name, a, b, **frames)
        self.gear = jnp.asarray(gear, self.frame_a.position.dtype)
        self.index = index

    def wrench(self, a, b, twist_a, twist_b, t, u):
        axis = z_axis(a)
        if u is None:
            raise ValueError(
                f'Motor "{self.name}" needs a control: pass `control=` to `simulate`, a function '
                f"(t, q, v) -> u with at least {self.index + 1} entries."
            )
        torque = self.gear * jnp.atleast_1d(u)[self.index] * axis
        return Wrench(jnp.zeros_like(torque), torque)

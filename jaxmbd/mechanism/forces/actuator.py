from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..body import Body
from ..connector import AbstractConnector
from ..parameter import finite
from .base import AbstractForce
from .signal import as_index, control_entry


class AbstractActuator(AbstractForce):
    """`gear` times one entry of the control, along or about the axis of a.

    **Fields:**

    - `gear`: ratio of the force or torque to the entry of the control [N or N m per unit of u].
    - `index`: which entry of the control u it is driven by, counted from 0.
    """

    gear: Float[Array, ""]
    index: int = eqx.field(static=True)

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
        when it is evaluated, for a control that has no such entry.
        """
        AbstractConnector.__init__(self, name, a, b, **frames)
        kind = type(self).__name__
        self.gear = finite(f'`gear` of {kind} "{name}"', gear, self.dtype)
        self.index = as_index(f'{kind} "{name}"', index)

    def effort(self, u: Any) -> Float[Array, ""]:
        """The force or torque."""
        entry = control_entry(f'{type(self).__name__} "{self.name}"', u, self.index)
        return self.gear * jnp.asarray(entry, self.gear.dtype)
